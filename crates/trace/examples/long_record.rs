//! Makes a long record, and reads it: what a record of ten million events costs to look at.
//!
//! ```text
//! cargo run --release -p ferroce-trace --example long_record -- make long.ftrace 10000000
//! time cargo run --release -p ferroce-trace --example long_record -- stats long.ftrace
//! ```

use std::convert::Infallible;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ferroce_record::{
    Completed, CompletedFlags, Doorbell, HEADERS, Mode, Packet, PacketFlags, Polled, Posted, PostedFlags,
    Queue, QueuePair, RecordConfig, Recorder, Step, Way, WorkOp,
};
use ferroce_trace::{Block, Explanation, Filter, Line, Stats, Timeline, Told, check, read};
use ferroce_transport::{State, Status, WorkKind};
use ferroce_wire::{Lkey, Qpn, Rkey, Service};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, file, rest @ ..] = &args[..] else {
        return Err("make|show|json|stats|explain|check FILE [EVENTS] [unpolled]".into());
    };
    let path = PathBuf::from(file);
    if what == "make" {
        let events = rest.first().map_or(Ok(10_000_000), |count| count.parse())?;
        return make(&path, events, rest.get(1).is_some_and(|word| word == "unpolled"));
    }
    let timeline = Timeline::open(&[path])?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match what.as_str() {
        "show" | "json" => {
            let is_json = what == "json";
            let shown = read(&timeline, |told| {
                if let Told::Over(record, work) | Told::Open(record, work) = &told {
                    let written = if is_json {
                        writeln!(out, "{}", Line { record: *record, work })
                    } else {
                        writeln!(out, "{}", Block(work))
                    };
                    if let Err(error) = written {
                        return ControlFlow::Break(error);
                    }
                }
                ControlFlow::Continue(())
            });
            shown.map(drop)?;
        }
        "stats" => {
            let mut stats = Stats::new(&timeline, Filter::default());
            let Ok(_) = read(&timeline, |told| {
                stats.take(&told);
                ControlFlow::<Infallible>::Continue(())
            });
            write!(out, "{stats}")?;
        }
        "explain" => write!(out, "{}", Explanation::of(&timeline))?,
        "check" => check(&timeline).iter().try_for_each(|check| write!(out, "{check}"))?,
        other => return Err(format!("no such word: {other}").into()),
    }
    Ok(())
}

/// With `unpolled`, a record of which much is missing, so that nothing is ever known to be over; else
/// sixteen queue pairs with WRITEs of one packet, each with a bell, its packet, an answer, a completion and a poll.
fn make(path: &Path, events: u64, is_unpolled: bool) -> Result<(), Box<dyn std::error::Error>> {
    const QUEUE_PAIRS: u32 = 16;
    const DEPTH: u32 = 32;
    let sample = if is_unpolled { 2 } else { 1 };
    let config = RecordConfig { bytes: 64 << 20, sample, ..RecordConfig::new(Mode::Whole, "a long record") };
    let recorder = Recorder::create(path, &config)?;
    let (mut engine, program) = (recorder.engine_ring().ok_or("no ring")?, recorder.program_ring());
    let mut time = 0;
    let mut written = 0_u64;
    for number in 1..=QUEUE_PAIRS {
        let qpn = Qpn::new(number);
        engine.push(time, &made(qpn).into());
        engine.push(time, &way(qpn).into());
    }
    let mut work = 0_u32;
    while written < events {
        // The thread that keeps events is not as quick as this.
        while recorder.unkept() > 100_000 {
            std::thread::yield_now();
        }
        let qpn = Qpn::new(work / DEPTH % QUEUE_PAIRS + 1);
        let first = work / (DEPTH * QUEUE_PAIRS) * DEPTH;
        let queue = Queue::Send(qpn);
        for ahead in 0..DEPTH {
            time += 150;
            engine.push(time, &posted(queue, first + ahead).into());
        }
        engine.push(time, &Doorbell { queue, first, count: DEPTH }.into());
        for ahead in 0..DEPTH {
            time += 300;
            engine.push(time, &packet(qpn, first + ahead, PacketFlags::OUT).into());
        }
        for ahead in 0..DEPTH {
            time += 400 + u64::from(work % 97) * 10;
            engine.push(time, &packet(qpn, first + ahead, PacketFlags::empty()).into());
            engine.push(time, &completed(queue, qpn, first + ahead).into());
        }
        for ahead in (0..DEPTH).filter(|_| !is_unpolled) {
            time += 50;
            program
                .push(time, &Polled { qpn, cq: 1, id: u64::from(first + ahead), is_receive: false }.into());
        }
        work += DEPTH;
        written += u64::from(DEPTH) * 5 + 1;
    }
    drop(recorder);
    println!("{written} events");
    Ok(())
}

fn made(qpn: Qpn) -> QueuePair {
    let (service, state, step) = (Service::Rc, State::Rts, Step::Made);
    QueuePair { qpn, step, service, state, send_cq: 1, receive_cq: 1, shared: None, sends: 64, receives: 0 }
}

fn way(qpn: Qpn) -> Way {
    let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    Way { qpn, peer: Qpn::new(qpn.get() + 0x100), local, remote, port: 0, mtu: 1024, is_local: false }
}

fn posted(queue: Queue, work: u32) -> Posted {
    Posted {
        queue,
        work,
        id: work.into(),
        op: WorkOp::Write,
        flags: PostedFlags::SIGNALED,
        pieces: 1,
        length: 64,
        address: 0x7f00_0000_0000,
        lkey: Lkey(5),
        remote: 0x7f80_0000_0000,
        key: Rkey(7),
        imm: 0,
    }
}

fn packet(qpn: Qpn, work: u32, flags: PacketFlags) -> Packet {
    let is_out = flags.contains(PacketFlags::OUT);
    let dest = if is_out { qpn.get() + 0x100 } else { qpn.get() };
    let mut headers = vec![if is_out { 0x0a } else { 0x11 }, 0x40, 0xff, 0xff, 0];
    headers.extend(&dest.to_be_bytes()[1..]);
    headers.push(0x80);
    headers.extend(&work.to_be_bytes()[1..]);
    if is_out {
        headers.extend(0x7f80_0000_0000_u64.to_be_bytes());
        headers.extend([0, 0, 0, 7, 0, 0, 0, 64]);
    } else {
        headers.extend([0x1f, 0, 0, 0]);
    }
    let (flags, payload) = (flags | PacketFlags::WORK, if is_out { 64 } else { 0 });
    let packet = Packet { qpn, flags, work, payload, headers_len: 0, repeat: 0, headers: [0; HEADERS] };
    packet.with_headers(&headers).0
}

fn completed(queue: Queue, qpn: Qpn, work: u32) -> Completed {
    Completed {
        queue,
        work,
        id: work.into(),
        status: Status::Success,
        vendor_code: None,
        kind: WorkKind::Write,
        flags: CompletedFlags::empty(),
        byte_len: 0,
        imm: 0,
        cq: 1,
        qpn,
        source_qp: 0,
        invalidated: Rkey(0),
    }
}
