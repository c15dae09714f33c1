//! Answers probes: once at once, and once more with the times.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferroce::time::now;
use ferroce::{AddressHandle, Gid, Qpn, Time};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::end::{Arrival, End, Happened, Place};
use crate::packet::{Kind, Packet};

/// Options of `ferroce-prober respond`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
}

/// How long the responder sleeps before it looks whether it is to end.
const PAUSE: Duration = Duration::from_millis(100);

/// Probers whose addresses are kept at hand; beyond them, all are looked up anew.
const MOST_HANDLES: usize = 1024;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    let end = End::open(&args.place)?;
    println!("responder at {}/{:#08x}", args.place.address, end.qpn().get());
    std::io::stdout().flush()?;
    let mut responder =
        Responder { end, handles: HashMap::new(), first: HashMap::new(), counters: Counters::default() };
    let mut happened = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        responder.end.wait(now() + PAUSE, &mut happened)?;
        for happened in happened.drain(..) {
            responder.handle(happened)?;
        }
    }
    let Counters { probes, answered, strange, failed } = responder.counters;
    println!(
        "{probes} probes, {answered} answered twice, {strange} strange datagrams, {failed} failed sends"
    );
    Ok(())
}

#[derive(Debug, Default)]
struct Counters {
    probes: u64,
    answered: u64,
    strange: u64,
    failed: u64,
}

/// A first answer that is under way.
struct First {
    to: AddressHandle,
    qpn: Qpn,
    packet: Packet,
}

struct Responder {
    end: End,
    handles: HashMap<(Gid, u8, u32), AddressHandle>,
    first: HashMap<u64, First>,
    counters: Counters,
}

impl Responder {
    fn handle(&mut self, happened: Happened) -> anyhow::Result<()> {
        match happened {
            Happened::Arrived(arrival) if arrival.packet.kind == Kind::Probe => self.answer(&arrival),
            Happened::Arrived(_) | Happened::Strange => {
                self.counters.strange += 1;
                Ok(())
            }
            Happened::Sent { number, time } => self.answer_again(number, time),
            Happened::Failed(error) => {
                self.counters.failed += 1;
                eprintln!("ferroce-prober: {error}");
                Ok(())
            }
        }
    }

    fn answer(&mut self, probe: &Arrival) -> anyhow::Result<()> {
        self.counters.probes += 1;
        let to = self.handle_for(probe)?;
        let packet = Packet { kind: Kind::FirstAnswer, t3: probe.time, ..probe.packet };
        let number = self.end.send(&to, probe.from, &packet)?;
        self.first.insert(number, First { to, qpn: probe.from, packet });
        Ok(())
    }

    /// The first answer has left, so its time can be told.
    fn answer_again(&mut self, number: u64, t4: Time) -> anyhow::Result<()> {
        // A second answer that has left is not told of.
        if let Some(First { to, qpn, packet }) = self.first.remove(&number) {
            self.end.send(&to, qpn, &Packet { kind: Kind::SecondAnswer, t4, ..packet })?;
            self.counters.answered += 1;
        }
        Ok(())
    }

    /// The way back to a prober, with the traffic class and the flow label that it chose.
    fn handle_for(&mut self, probe: &Arrival) -> anyhow::Result<AddressHandle> {
        let vector = probe.header.reply_to(0);
        let key = (vector.gid, vector.traffic_class, vector.flow_label);
        if let Some(handle) = self.handles.get(&key) {
            return Ok(handle.clone());
        }
        if self.handles.len() >= MOST_HANDLES {
            self.handles.clear();
        }
        let handle = self.end.handle(&vector)?;
        self.handles.insert(key, handle.clone());
        Ok(handle)
    }
}
