//! Endpoints.

use std::sync::Arc;
use std::time::Duration;

use ferroce_endpoint::{Access, Connection, Context, Listener, Options, Polling};
use ferroce_testkit::process::Parent;

use crate::{MIB, Outcome, address, device, device_towards, each};

fn options(device: &Context) -> Options {
    Options::new().context(device).polling(Polling::Busy)
}

pub(crate) fn accept(host: u8) -> Outcome<Connection> {
    let listener = Listener::bind_with(address(host), &options(&device(host)?))?;
    Parent.say(listener.local_addr())?;
    Ok(listener.accept().wait()?)
}

pub(crate) fn connect(address: &str) -> Outcome<Connection> {
    Ok(Connection::connect_with(address, &options(&device_towards(address)?)).wait()?)
}

pub(crate) fn echo(host: u8) -> Outcome<()> {
    let connection = accept(host)?;
    let mut bytes = [0; 4096];
    while let Some(message) = connection.recv_into(&mut bytes).wait()? {
        connection.send(&bytes[..message.len]).wait()?;
    }
    Ok(())
}

/// Takes everything, and answers an empty message, which tells the sender that all before has arrived.
pub(crate) fn sink(host: u8) -> Outcome<()> {
    let connection = accept(host)?;
    while let Some(message) = connection.recv().wait()? {
        if message.is_empty() {
            connection.send(&[]).wait()?;
        }
    }
    Ok(())
}

/// Half a round trip.
pub(crate) fn latency(address: &str, time: Duration) -> Outcome<f64> {
    let connection = connect(address)?;
    let mut bytes = [7; 64];
    let trip = each(time, || {
        connection.send(&bytes).wait()?;
        connection.recv_into(&mut bytes).wait()?.ok_or("the peer has gone")?;
        Ok(())
    })?;
    Ok(trip / 2.0)
}

/// Microseconds for a batch, as gigabytes per second.
pub(crate) fn gigabytes(batch: f64, bytes: usize) -> f64 {
    bytes as f64 / batch / 1e3
}

fn arrived(connection: &Connection) -> Outcome<()> {
    connection.send(&[]).wait()?;
    connection.recv().wait()?.ok_or("the peer has gone")?;
    Ok(())
}

pub(crate) fn regions(address: &str, time: Duration) -> Outcome<f64> {
    let connection = connect(address)?;
    let region = Arc::new(connection.protection_domain().allocate(MIB, Access::REMOTE_READ)?);
    let batch = each(time, || {
        for _ in 0..32 {
            connection.send_region(&region, .., None).wait()?;
        }
        arrived(&connection)
    })?;
    Ok(gigabytes(batch, 32 * MIB))
}

pub(crate) fn copies(address: &str, time: Duration) -> Outcome<f64> {
    let connection = connect(address)?;
    let bytes = vec![1; MIB];
    let batch = each(time, || {
        for _ in 0..32 {
            connection.send(&bytes).wait()?;
        }
        arrived(&connection)
    })?;
    Ok(gigabytes(batch, 32 * MIB))
}

pub(crate) fn rate(address: &str, time: Duration) -> Outcome<f64> {
    let connection = connect(address)?;
    let batch = each(time, || {
        for _ in 0..1000 {
            connection.send(&[1; 64]).wait()?;
        }
        arrived(&connection)
    })?;
    Ok(1000.0 / batch)
}

/// The same, handed over in lists of 64.
pub(crate) fn batches(address: &str, time: Duration) -> Outcome<f64> {
    let connection = connect(address)?;
    let messages = [[1; 64]; 64];
    let batch = each(time, || {
        for _ in 0..16 {
            let mut left = &messages[..];
            while !left.is_empty() {
                let sent = connection.send_batch(left).wait()?;
                left = &left[sent..];
            }
        }
        arrived(&connection)
    })?;
    Ok(16.0 * 64.0 / batch)
}
