//! Servers of callbacks: what idle connections cost, and how classes keep their latency.

use std::time::{Duration, Instant};

use ferroce_endpoint::{
    Connection, Context, Error, Handler, Listener, Options, Polling, Priority, Reactor, ReactorOptions,
};
use ferroce_testkit::process::Parent;

use crate::{Outcome, address, device, device_towards};

/// How many connections of a crowd are busy.
const BUSY: usize = 10;

/// A server that echoes, and tells its processor time to those that send nothing.
pub(crate) fn crowd(host: u8) -> Outcome<()> {
    let context = device(host)?;
    let options = small(&context).backlog(64);
    let reactor = Reactor::start(ReactorOptions::new())?;
    let listening = reactor.listen(Listener::bind_with(address(host), &options)?, |_: &Connection| {
        Handler::new(|connection, message| {
            let answer = match message.is_empty() {
                true => processor_time().unwrap_or(0).to_be_bytes().to_vec(),
                false => message.into_vec(),
            };
            // A peer that has gone needs none.
            let _ = connection.send(&answer).wait();
        })
    })?;
    Parent.say(listening.local_addr())?;
    loop {
        std::thread::park();
    }
}

/// Options of a connection of which there are many.
fn small(context: &Context) -> Options {
    Options::new().context(context).send_depth(16).signal_every(8).receive_depth(16).eager(1024)
}

/// Processor time of all threads of this process, in nanoseconds.
fn processor_time() -> Outcome<u64> {
    let mut all = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        all += text.split(' ').next().ok_or("an empty file")?.parse::<u64>()?;
    }
    Ok(all)
}

pub(crate) fn ten_of_thousand(address: &str, time: Duration) -> Outcome<f64> {
    server_time(address, time, 1000)
}

pub(crate) fn ten_alone(address: &str, time: Duration) -> Outcome<f64> {
    server_time(address, time, BUSY)
}

/// Processor time of the server for one message, in microseconds.
fn server_time(address: &str, time: Duration, count: usize) -> Outcome<f64> {
    let options = small(&device_towards(address)?).polling(Polling::Busy);
    let connect = |_| Ok(Connection::connect_with(address, &options).wait()?);
    let connections = (0..count).map(connect).collect::<Outcome<Vec<_>>>()?;
    let spent = || -> Outcome<u64> {
        connections[0].send(&[]).wait()?;
        let answer = connections[0].recv().wait()?.ok_or("the peer has gone")?.into_vec();
        Ok(u64::from_be_bytes(answer.as_slice().try_into()?))
    };
    // The busy ones are spread over all of them.
    let busy: Vec<&Connection> = connections.iter().step_by(count / BUSY).collect();
    let mut bytes = [7; 64];
    let mut round = || -> Outcome<()> {
        for connection in &busy {
            connection.send(&bytes).wait()?;
        }
        for connection in &busy {
            connection.recv_into(&mut bytes).wait()?.ok_or("the peer has gone")?;
        }
        Ok(())
    };
    let warm = Instant::now();
    while warm.elapsed() < time / 5 {
        round()?;
    }
    let (before, start, mut messages) = (spent()?, Instant::now(), 0_u32);
    while start.elapsed() < time {
        round()?;
        messages += u32::try_from(busy.len())?;
    }
    Ok((spent()? - before) as f64 / 1e3 / f64::from(messages))
}

/// A server with two ports: connections of the higher class are echoed, and those of the lower one have something to do for
/// a microsecond with each message.
pub(crate) fn classes(host: u8) -> Outcome<()> {
    let context = device(host)?;
    let reactor = Reactor::start(ReactorOptions::new().polling(Polling::Busy))?;
    let high = Options::new().context(&context).priority(Priority::High);
    let high = reactor.listen(Listener::bind_with(address(host), &high)?, |_: &Connection| {
        Handler::new(|connection, message| drop(connection.send(&message.into_vec()).wait()))
    })?;
    let normal = Options::new().context(&context);
    let normal = reactor.listen(Listener::bind_with(address(host), &normal)?, |_: &Connection| {
        Handler::new(|_, _| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(1) {
                std::hint::spin_loop();
            }
        })
    })?;
    Parent.say(format_args!("{} {}", high.local_addr(), normal.local_addr()))?;
    loop {
        std::thread::park();
    }
}

/// Connections of the lower class that have sent as much as the server takes.
const FLOODERS: usize = 16;

pub(crate) fn beside_lower_class(addresses: &str, time: Duration) -> Outcome<f64> {
    high_class(addresses, time, FLOODERS)
}

pub(crate) fn high_class_alone(addresses: &str, time: Duration) -> Outcome<f64> {
    high_class(addresses, time, 0)
}

/// A round trip of the higher class, in microseconds, while `flooders` connections of the lower one have all messages under
/// way that they may. This thread fills them up before each trip, so that no other process takes part in the figure: a
/// sender that floods takes processor time from everything on the machine, and no server can give that back.
fn high_class(addresses: &str, time: Duration, flooders: usize) -> Outcome<f64> {
    let (high, normal) = addresses.split_once(' ').ok_or("two addresses")?;
    let options = Options::new().context(&device_towards(high)?).polling(Polling::Busy);
    let first = Connection::connect_with(high, &options).wait()?;
    let connect = |_| Ok(Connection::connect_with(normal, &options).wait()?);
    let lower = (0..flooders).map(connect).collect::<Outcome<Vec<_>>>()?;
    let mut bytes = [7; 64];
    let (begin, mut trips, mut spent) = (Instant::now(), 0_u32, Duration::ZERO);
    while begin.elapsed() < time + time / 5 {
        for connection in &lower {
            loop {
                match connection.send(&[1; 64]).wait_for(Duration::ZERO) {
                    Ok(()) => {}
                    Err(Error::TimedOut(_)) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let start = Instant::now();
        first.send(&bytes).wait()?;
        first.recv_into(&mut bytes).wait()?.ok_or("the peer has gone")?;
        if begin.elapsed() > time / 5 {
            spent += start.elapsed();
            trips += 1;
        }
    }
    Ok(spent.as_secs_f64() * 1e6 / f64::from(trips.max(1)))
}
