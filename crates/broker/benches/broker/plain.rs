//! The same with the verbs alone: messages over one connection, with receives that are posted again.

use std::time::Duration;

use ferroce_testkit::process::Parent;
use ferroce_verbs::cm::{self, CmOptions, Listener};
use ferroce_verbs::{Access, Completion, Service, Status};

use super::{LEN, LONG, MESSAGES, Outcome, RING, Rate, device, in_slices};

const PORT: u16 = 7480;

/// Completions that one look takes off.
const CHUNK: usize = 16;

/// Takes messages off until the peer sends no more.
pub(crate) fn sink(host: u8) -> Outcome<()> {
    let context = device(host + 1)?;
    let domain = context.protection_domain()?;
    let listener = Listener::bind(&context, PORT, 1)?;
    Parent.say("ready")?;
    let queue = context.completion_queue(2 * RING)?;
    let qp = domain.queue_pair(Service::Rc).send_queue(&queue, 1).receive_queue(&queue, RING).build()?;
    let memory = domain.allocate(LEN * RING as usize, Access::LOCAL_WRITE)?;
    let post = |places: &mut dyn Iterator<Item = u64>| -> Outcome<()> {
        let mut batch = qp.receive_batch();
        for place in places {
            let start = usize::try_from(place)? * LEN;
            batch.add(qp.receive(memory.slice(start..start + LEN)).id(place));
        }
        Ok(batch.post()?)
    };
    post(&mut (0..u64::from(RING)))?;
    let _connection = listener.accept(LONG)?.accept(&qp, &CmOptions::default())?;
    let mut found = [Completion::EMPTY; CHUNK];
    loop {
        let count = queue.wait_into(&mut found, LONG)?;
        if found[..count].iter().any(|done| done.status != Status::Success) {
            return Ok(());
        }
        post(&mut found[..count].iter().map(|done| done.id))?;
    }
}

/// Messages per second with so many for each doorbell; the last of each asks for a completion.
pub(crate) fn rate(host: u8, batch: u32, time: Duration) -> Outcome<Rate> {
    let context = device(host)?;
    let domain = context.protection_domain()?;
    let queue = context.completion_queue(2 * RING)?;
    let qp = domain.queue_pair(Service::Rc).send_queue(&queue, RING).receive_queue(&queue, 1);
    let qp = qp.signal_all(false).build()?;
    let memory = domain.allocate(LEN * RING as usize, Access::empty())?;
    let peer = ([127, 0, 196, host + 1], PORT).into();
    let _connection = cm::connect(peer, &qp, &CmOptions::default())?;
    let mut found = [Completion::EMPTY; CHUNK];
    let (mut posted, mut done) = (0_u64, 0_u64);
    in_slices(time, || {
        for _ in 0..MESSAGES.div_ceil(u64::from(batch)) {
            while posted + u64::from(batch) - done > u64::from(RING) {
                let count = queue.poll(&mut found);
                if let Some(last) = found[..count].last() {
                    last.result()?;
                    done = last.id;
                }
            }
            let work = |number: u64| {
                let place = usize::try_from(number % u64::from(RING)).unwrap_or(0);
                qp.send(memory.slice(place * LEN..(place + 1) * LEN)).id(number + 1)
            };
            let end = posted + u64::from(batch);
            if batch == 1 {
                work(posted).signaled().post()?;
            } else {
                let mut list = qp.batch();
                for number in posted..end {
                    list.add(if number + 1 == end { work(number).signaled() } else { work(number) });
                }
                list.post()?;
            }
            posted = end;
        }
        Ok(MESSAGES.next_multiple_of(u64::from(batch)))
    })
}
