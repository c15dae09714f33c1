//! What easy endpoints cost, beside the verbs below them and TCP, in one run.
//!
//! `cargo xtask bench --only endpoint` runs this. The two ends are two processes: this program starts itself again as the
//! other one. Both sides of a figure are measured in turn, so that a slow minute falls on both.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of short runs")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

mod flood;
mod http;
mod messages;
mod one_sided;
mod plain;
mod servers;

use ferroce_endpoint::Context;
use ferroce_testkit::figure::sample;
use ferroce_testkit::process::{Parent, Peer};
use ferroce_testkit::processor::pin;

const MIB: usize = 1 << 20;

/// What a measurement gives, or why there is none.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One side of a figure: the role of the other process, and what is measured here.
struct Side {
    name: &'static str,
    role: &'static str,
    measure: fn(&str, Duration) -> Outcome<f64>,
}

/// Two things that are compared.
struct Figure {
    name: &'static str,
    unit: &'static str,
    ours: Side,
    beside: Side,
}

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
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    // With `--pin` each process has a processor of its own.
    let pinned = has("--pin");
    if let Some(at) = args.iter().position(|arg| arg == "--peer") {
        if pinned {
            pin(1)?;
        }
        let role = args.get(at + 1).ok_or("--peer needs the name of a role")?;
        let host = args.get(at + 2).ok_or("--peer needs an address")?.parse()?;
        return play(role, host);
    }
    if pinned {
        pin(0)?;
    }
    // Without `--bench` it is run by `cargo test`: to see that it works is enough.
    let quick = has("--quick") || !has("--bench");
    let (repeats, time) = if quick { (1, 20) } else { (11, 400) };
    // Our side of each figure, once, as lines for `cargo xtask bench pairs`.
    let once = has("--once");
    let mut host = 1;
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    if !once {
        println!("{:26} {:>6}  {:>22} {:>22} {:>7}", "", "unit", "ours", "beside", "ratio");
    }
    for figure in FIGURES {
        if !filters.is_empty() && !filters.iter().any(|part| figure.name.contains(part.as_str())) {
            continue;
        }
        let mut measure = |side: &Side| -> Outcome<f64> {
            // The last one may not be quite gone yet, so this one gets another address.
            host = if host < 250 { host + 1 } else { 2 };
            let role = ["--bench", "--peer", side.role, &host.to_string()];
            let mut peer = Peer::start(role.into_iter().chain(pinned.then_some("--pin")))?;
            (side.measure)(&peer.hear()?, Duration::from_millis(time))
        };
        if once {
            println!("{}", sample(figure.name, figure.unit, measure(&figure.ours)?));
            continue;
        }
        let (mut ours, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            beside.push(measure(&figure.beside)?);
            ours.push(measure(&figure.ours)?);
        }
        let (mine, other) = (median(&mut ours), median(&mut beside));
        println!(
            "{:26} {:>6}  {:>22} {:>22} {:>6.2}x",
            figure.name,
            figure.unit,
            format!("{} {mine:.2}", figure.ours.name),
            format!("{} {other:.2}", figure.beside.name),
            mine / other
        );
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
