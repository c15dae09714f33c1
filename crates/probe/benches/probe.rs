//! What probing costs, beside datagrams of plain sockets that go to and fro, in one run.
//!
//! `cargo xtask bench --only probe` runs this. The responder is another process: this program starts itself again. Both sides of
//! a figure are measured in turn, so that a slow minute falls on both.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of short runs")]

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use ferroce_probe::net::{ProberEnd, ResponderEnd, stamp_now};
use ferroce_probe::{Peer as Target, ProbeEvent, ProberConfig, ResponderConfig};
use ferroce_testkit::figure::{Called, Figure, Outcome, Side};
use ferroce_testkit::process::Parent;
use ferroce_verbs::Context;

/// Probes that are under way at a time in a flood.
const WINDOW: usize = 64;

/// Bytes of a probe as a packet of RoCEv2, without the headers of UDP and IP.
const BYTES: usize = 12 + 8 + 40 + 4;

/// Probes each second of an agent.
const PACE: u32 = 20;

const FIGURES: &[Figure] = &[
    Figure {
        name: "probes, 64 under way",
        unit: "k/s",
        ours: Side { name: "prober", role: "responder", measure: flood },
        beside: Side { name: "plain UDP, 3 packets", role: "plain", measure: plain_flood },
    },
    Figure {
        name: "probes of a core's second",
        unit: "k",
        ours: Side { name: "prober", role: "responder", measure: flood_by_core },
        beside: Side { name: "plain UDP, 3 packets", role: "plain", measure: plain_flood_by_core },
    },
    Figure {
        name: "20 probes/s, of a core",
        unit: "%",
        ours: Side { name: "prober", role: "responder", measure: steady },
        beside: Side { name: "plain UDP, 3 packets", role: "plain", measure: plain_steady },
    },
];

fn main() -> Outcome<()> {
    let Some(called) = Called::new(play)? else { return Ok(()) };
    let (repeats, time) =
        if called.quick { (1, Duration::from_millis(50)) } else { (7, Duration::from_secs(2)) };
    called.compare(FIGURES, repeats, time)
}

/// Is the other process.
fn play(role: &str, host: u8) -> Outcome<()> {
    Parent.follow();
    let address = IpAddr::from([127, 0, 132, host]);
    match role {
        "responder" => {
            let context = Context::builder("lo").address(address).open()?;
            let config = ResponderConfig { rate: 10_000_000, burst: 1_000_000, ..ResponderConfig::default() };
            let mut responder = ResponderEnd::open(&context, address, None, config)?;
            Parent.say(format!("{address} {}", responder.qpn()))?;
            loop {
                responder.turn()?;
                responder.sleep(Duration::from_millis(20));
            }
        }
        // As many packets as a probe has: one to it, two back.
        _ => {
            let socket = UdpSocket::bind((address, 0))?;
            Parent.say(socket.local_addr()?)?;
            let mut bytes = [0; BYTES];
            loop {
                let (len, from) = socket.recv_from(&mut bytes)?;
                socket.send_to(&bytes[..len], from)?;
                socket.send_to(&bytes[..len], from)?;
            }
        }
    }
}

/// A prober, and the responder that its probes go to.
fn prober(peer: &str) -> Outcome<(ProberEnd, Target)> {
    let (address, qpn) = peer.split_once(' ').ok_or("a responder says where it is")?;
    let address: IpAddr = address.parse()?;
    let IpAddr::V4(there) = address else { return Err("an address that is not ours".into()) };
    let here = IpAddr::from([127, 0, 133, there.octets()[3]]);
    let context = Context::builder("lo").address(here).open()?;
    let prober = ProberEnd::open(&context, here, ProberConfig::default())?;
    Ok((prober, Target { address, qpn: qpn.parse()? }))
}

/// Nanoseconds that all threads of this process have run.
fn processor_time() -> Outcome<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split_whitespace().next().ok_or("no time")?.parse::<u64>()?;
    }
    Ok(sum)
}

/// Probes as fast as they are answered for a time: how many, in how many seconds of the clock and of processors.
fn run_flood(peer: &str, time: Duration) -> Outcome<(f64, f64, f64)> {
    let (mut prober, target) = prober(peer)?;
    let (start, before) = (Instant::now(), processor_time()?);
    let mut done = 0_u64;
    while start.elapsed() < time {
        while prober.pending() < WINDOW {
            prober.probe(target, None)?;
        }
        prober.turn()?;
        while let Some(event) = prober.poll() {
            done += u64::from(matches!(event, ProbeEvent::Ended(_)));
        }
    }
    let used = processor_time()? - before;
    if prober.outcomes().ok < done / 2 {
        return Err(format!("most probes failed: {:?}", prober.outcomes()).into());
    }
    Ok((done as f64, start.elapsed().as_secs_f64(), used as f64 / 1e9))
}

fn flood(peer: &str, time: Duration) -> Outcome<f64> {
    run_flood(peer, time).map(|(done, seconds, _)| done / seconds / 1e3)
}

fn flood_by_core(peer: &str, time: Duration) -> Outcome<f64> {
    run_flood(peer, time).map(|(done, _, used)| done / used / 1e3)
}

/// The same with datagrams of plain sockets: one there, two back.
fn run_plain_flood(peer: &str, time: Duration) -> Outcome<(f64, f64, f64)> {
    let socket = UdpSocket::bind("127.0.133.1:0")?;
    socket.connect(peer)?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut bytes = [0; BYTES];
    let (start, before) = (Instant::now(), processor_time()?);
    let mut done = 0_u64;
    (0..WINDOW).try_for_each(|_| socket.send(&bytes).map(drop))?;
    while start.elapsed() < time {
        socket.recv(&mut bytes)?;
        socket.recv(&mut bytes)?;
        socket.send(&bytes)?;
        done += 1;
    }
    let used = processor_time()? - before;
    Ok((done as f64, start.elapsed().as_secs_f64(), used as f64 / 1e9))
}

fn plain_flood(peer: &str, time: Duration) -> Outcome<f64> {
    run_plain_flood(peer, time).map(|(done, seconds, _)| done / seconds / 1e3)
}

fn plain_flood_by_core(peer: &str, time: Duration) -> Outcome<f64> {
    run_plain_flood(peer, time).map(|(done, _, used)| done / used / 1e3)
}

/// Probes at the pace of an agent: how much of a core that takes, in percent.
fn steady(peer: &str, time: Duration) -> Outcome<f64> {
    let (mut prober, target) = prober(peer)?;
    let (start, before) = (Instant::now(), processor_time()?);
    while start.elapsed() < time {
        prober.probe(target, None)?;
        let due = stamp_now().plus(Duration::from_secs(1) / PACE);
        while stamp_now() < due {
            prober.sleep_until(due);
            prober.turn()?;
            while prober.poll().is_some() {}
        }
    }
    let used = processor_time()? - before;
    Ok(used as f64 / start.elapsed().as_nanos() as f64 * 100.0)
}

fn plain_steady(peer: &str, time: Duration) -> Outcome<f64> {
    let socket = UdpSocket::bind("127.0.133.1:0")?;
    socket.connect(peer)?;
    let mut bytes = [0; BYTES];
    let (start, before) = (Instant::now(), processor_time()?);
    while start.elapsed() < time {
        socket.send(&bytes)?;
        socket.recv(&mut bytes)?;
        socket.recv(&mut bytes)?;
        std::thread::sleep(Duration::from_secs(1) / PACE);
    }
    let used = processor_time()? - before;
    Ok(used as f64 / start.elapsed().as_nanos() as f64 * 100.0)
}
