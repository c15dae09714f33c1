//! One-sided work on regions of the program's own.

use std::sync::Arc;
use std::time::Duration;

use ferroce_endpoint::{Access, Connection, Memory};

use crate::messages::{accept, connect, gigabytes};
use crate::{MIB, Outcome, each};

/// Memory that is written and read.
pub(crate) fn memory(host: u8) -> Outcome<()> {
    let connection = accept(host)?;
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let _memory = connection.expose("memory", Memory::zeroed(4 * MIB)?, all).wait()?;
    // Nothing is to be done here, until we are killed.
    loop {
        std::thread::park();
    }
}

/// Begins work 32 times, with four under way, as the verbs beside it do.
fn batches(
    address: &str,
    time: Duration,
    begin: impl Fn(&Connection, u64, u64) -> Outcome<()>,
) -> Outcome<f64> {
    let connection = connect(address)?;
    let done =
        || -> Outcome<()> { Ok(connection.next_done().wait()?.ok_or("nothing is under way")?.result?) };
    let batch = each(time, || {
        for i in 0..32 {
            begin(&connection, i, (i % 4) * MIB as u64)?;
            if i >= 4 {
                done()?;
            }
        }
        (0..4).try_for_each(|_| done())
    })?;
    Ok(gigabytes(batch, 32 * MIB))
}

pub(crate) fn write_from(address: &str, time: Duration) -> Outcome<f64> {
    let known = std::cell::OnceCell::new();
    batches(address, time, |connection, tag, at| {
        let (remote, region) = prepared(connection, &known)?;
        Ok(connection.begin_write(tag, remote.at(at), region, .., None).wait()?)
    })
}

pub(crate) fn read_into(address: &str, time: Duration) -> Outcome<f64> {
    let known = std::cell::OnceCell::new();
    batches(address, time, |connection, tag, at| {
        let (remote, region) = prepared(connection, &known)?;
        Ok(connection.begin_read(tag, remote.at(at), region, ..).wait()?)
    })
}

type Known = (ferroce_endpoint::RemoteMemory, Arc<ferroce_verbs::MemoryRegion>);

/// The peer's memory and a region of ours, made once.
fn prepared<'a>(connection: &Connection, known: &'a std::cell::OnceCell<Known>) -> Outcome<&'a Known> {
    if let Some(known) = known.get() {
        return Ok(known);
    }
    let region = connection.protection_domain().allocate(MIB, Access::LOCAL_WRITE)?;
    let made = (connection.remote("memory").wait()?, Arc::new(region));
    Ok(known.get_or_init(|| made))
}
