//! What easy endpoints cost, beside the verbs below them and TCP, in one run.
//!
//! `cargo xtask bench --only endpoint` runs this. The two ends are two processes: this program starts itself again as the
//! other one. Both sides of a figure are measured in turn, so that a slow minute falls on both.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of short runs")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

mod flood;
mod http;
mod messages;
mod one_sided;
mod plain;
mod servers;

use ferroce_endpoint::Context;
use ferroce_testkit::figure::{Called, Figure, Outcome, Side};
use ferroce_testkit::process::Parent;

const MIB: usize = 1 << 20;

const FIGURES: &[Figure] = &[
    Figure {
        name: "64 B echo, one way",
        unit: "us",
        ours: Side { name: "endpoint", role: "echo", measure: messages::latency },
        beside: Side { name: "verbs SEND", role: "plain-echo", measure: plain::latency },
    },
    Figure {
        name: "1 MiB messages, region",
        unit: "GB/s",
        ours: Side { name: "endpoint", role: "sink", measure: messages::regions },
        beside: Side { name: "verbs WRITE", role: "plain-target", measure: plain::bandwidth },
    },
    Figure {
        name: "1 MiB messages, &[u8]",
        unit: "GB/s",
        ours: Side { name: "endpoint", role: "sink", measure: messages::copies },
        beside: Side { name: "verbs WRITE", role: "plain-target", measure: plain::bandwidth },
    },
    Figure {
        name: "1 MiB write_from",
        unit: "GB/s",
        ours: Side { name: "endpoint", role: "memory", measure: one_sided::write_from },
        beside: Side { name: "verbs WRITE", role: "plain-target", measure: plain::bandwidth },
    },
    Figure {
        name: "1 MiB read_into",
        unit: "GB/s",
        ours: Side { name: "endpoint", role: "memory", measure: one_sided::read_into },
        beside: Side { name: "verbs READ", role: "plain-target", measure: plain::read_bandwidth },
    },
    Figure {
        name: "server's time, 10 of 1,000",
        unit: "us",
        ours: Side { name: "10 busy of 1,000", role: "crowd", measure: servers::ten_of_thousand },
        beside: Side { name: "10 alone", role: "crowd", measure: servers::ten_alone },
    },
    Figure {
        name: "high class, trip",
        unit: "us",
        ours: Side { name: "beside the lower", role: "classes", measure: servers::beside_lower_class },
        beside: Side { name: "alone", role: "classes", measure: servers::high_class_alone },
    },
    Figure {
        name: "64 B messages, one way",
        unit: "M/s",
        ours: Side { name: "endpoint", role: "sink", measure: messages::rate },
        beside: Side { name: "verbs SEND", role: "plain-sink", measure: plain::rate },
    },
    Figure {
        name: "64 B messages, in lists",
        unit: "M/s",
        ours: Side { name: "endpoint", role: "sink", measure: messages::batches },
        beside: Side { name: "verbs SEND", role: "plain-sink", measure: plain::rate },
    },
    Figure {
        name: "HTTP echo of 64 B",
        unit: "us",
        ours: Side { name: "hyper on a stream", role: "http", measure: http::small },
        beside: Side { name: "hyper on TCP", role: "http-tcp", measure: http::small_tcp },
    },
    Figure {
        name: "HTTP echo of 256 KiB",
        unit: "us",
        ours: Side { name: "hyper on a stream", role: "http", measure: http::large },
        beside: Side { name: "hyper on TCP", role: "http-tcp", measure: http::large_tcp },
    },
    Figure {
        name: "connect, 150 REQs/s beside",
        unit: "us",
        ours: Side { name: "flooded", role: "door", measure: flood::beside_150 },
        beside: Side { name: "alone", role: "door", measure: flood::alone },
    },
    Figure {
        name: "connect, 1,000 REQs/s",
        unit: "us",
        ours: Side { name: "flooded", role: "door", measure: flood::beside_1000 },
        beside: Side { name: "alone", role: "door", measure: flood::alone },
    },
];

fn main() -> Outcome<()> {
    let Some(called) = Called::new(play)? else { return Ok(()) };
    let (repeats, millis) = if called.quick { (1, 20) } else { (11, 400) };
    called.compare(FIGURES, repeats, Duration::from_millis(millis))
}

/// The device of the other process.
fn device(host: u8) -> Outcome<Context> {
    Ok(Context::builder("lo").address([127, 0, 118, host]).open()?)
}

/// The device with which this one talks to it: a new one each time, since a connection that was dropped with its peer goes
/// on for a while, and its device with it.
fn device_towards(peer: &str) -> Outcome<Context> {
    // Some say two addresses, of one device.
    let peer = peer.split(' ').next().unwrap_or_default();
    let SocketAddr::V4(peer) = peer.parse()? else { return Err("an address that is not ours".into()) };
    Ok(Context::builder("lo").address([127, 0, 119, peer.ip().octets()[3]]).open()?)
}

/// Is the other process.
fn play(role: &str, host: u8) -> Outcome<()> {
    Parent.follow();
    match role {
        "echo" => messages::echo(host),
        "sink" => messages::sink(host),
        "plain-echo" => plain::echo(host),
        "plain-sink" => plain::sink(host),
        "plain-target" => plain::target(host),
        "memory" => one_sided::memory(host),
        "crowd" => servers::crowd(host),
        "classes" => servers::classes(host),
        "door" => flood::door(host),
        "http" => http::serve(host),
        "http-tcp" => http::serve_tcp(host),
        other => Err(format!("no role is called {other:?}").into()),
    }
}

/// The address that a process with this number has, with any port.
fn address(host: u8) -> String {
    format!("127.0.118.{host}:0")
}

/// Does something again and again for a time, after a fifth of it to warm up; how long one takes, in microseconds.
fn each(time: Duration, mut once: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let warm = Instant::now();
    while warm.elapsed() < time / 5 {
        once()?;
    }
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < time {
        for _ in 0..16 {
            once()?;
        }
        count += 16;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}
