//! Where the time of work went, how much was done when, and what went wrong how often: in figures.
//!
//! Nothing here grows with the length of a record: times go into histograms, and what happened when into a fixed number of
//! stretches, which double as the record goes on.

mod depth;
mod json;
mod series;
mod stage;
mod text;

use std::collections::BTreeMap;

use ferroce_record::{Event, Packet, PacketFlags, Queue, Timer, TimerKind, WorkOp};
use ferroce_transport::Status;
use ferroce_wire::{Qpn, Syndrome};

use self::depth::Depth;
use self::series::Series;
pub use self::stage::Stage;
use self::stage::Times;
use crate::fast::FastMap;
use crate::filter::Filter;
use crate::glance::Glance;
use crate::read::Told;
use crate::timeline::{Seen, Timeline};
use crate::work::Work;

/// Queue pairs that have figures of their own; the figures of those beyond are one.
const QUEUE_PAIRS: usize = 10_000;

/// Figures of all work of a time-line.
#[derive(Debug)]
pub struct Stats {
    filter: Filter,
    rows: BTreeMap<(u8, u32), Row>,
    queue_pairs: FastMap<(usize, Qpn), QpFigures>,
    /// Queue pairs beyond those that have figures of their own.
    others: QpFigures,
    depths: FastMap<(usize, Queue), Depth>,
    series: Series,
    /// Sends of all queues that are not over.
    sends: u64,
    /// When the first and the last event were.
    span: Option<(u64, u64)>,
    events: u64,
    outstanding: u64,
    lost: u64,
    overwritten: u64,
    /// One of so many work requests was recorded.
    sample: u32,
    names: Vec<String>,
}

/// Work of one operation and one class of sizes.
#[derive(Debug)]
struct Row {
    op: WorkOp,
    /// The class: sizes from this power of two on; 0 for nothing.
    from: u64,
    count: u64,
    bytes: u64,
    errors: u64,
    times: Times,
}

/// What happened to a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QpFigures {
    posted: u64,
    ended: u64,
    errors: u64,
    flushed: u64,
    out: u64,
    came: u64,
    repeats: u64,
    taken: u64,
    timeouts: u64,
    probes: u64,
    rnr_came: u64,
    rnr_sent: u64,
    nak_came: u64,
    nak_sent: u64,
    refused: u64,
}

impl Stats {
    /// For the records of this time-line, and the work that a filter wants.
    #[must_use]
    pub fn new(timeline: &Timeline, filter: Filter) -> Self {
        let sources = timeline.sources();
        let name = |source: &crate::Source| source.path().display().to_string();
        Self {
            filter,
            rows: BTreeMap::new(),
            queue_pairs: FastMap::default(),
            others: QpFigures::default(),
            depths: FastMap::default(),
            series: Series::default(),
            sends: 0,
            span: None,
            events: 0,
            outstanding: 0,
            lost: sources.iter().map(crate::Source::lost).sum(),
            overwritten: sources.iter().map(crate::Source::overwritten).sum(),
            sample: sources.iter().map(|source| source.trace().header().sample).max().unwrap_or(1),
            names: sources.iter().map(name).collect(),
        }
    }

    /// Takes what is read next.
    pub fn take(&mut self, told: &Told) {
        match told {
            Told::Event(seen) => self.event(seen),
            Told::Over(_, work) => self.work(work),
            Told::Open(_, work) => {
                self.outstanding += u64::from(work.completed.is_none() && self.filter.wants(work));
                if work.completed.is_some() {
                    self.work(work);
                }
            }
            Told::Failed(..) | Told::Odd(..) => {}
        }
    }

    fn work(&mut self, work: &Work) {
        let Some((_, completed)) = work.completed.filter(|_| self.filter.wants(work)) else { return };
        let op = work.posted.op;
        let bytes = u64::from(if op == WorkOp::Receive { completed.byte_len } else { work.posted.length });
        let is_good = completed.status == Status::Success;
        let class = bytes.checked_ilog2().map_or(0, |power| power + 1);
        let from = class.checked_sub(1).map_or(0, |power| 1 << power);
        let new = || Row { op, from, count: 0, bytes: 0, errors: 0, times: Times::default() };
        let row = self.rows.entry((op.code(), class)).or_insert_with(new);
        row.count += 1;
        row.errors += u64::from(work.is_failure());
        if is_good {
            row.bytes += bytes;
        }
        row.times.add(work);
    }

    fn event(&mut self, Seen { source, stamped }: &Seen) {
        let (source, time) = (*source, stamped.time);
        self.events += 1;
        self.span = Some(self.span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
        match &stamped.event {
            Event::Posted(posted) => {
                self.depth(source, posted.queue).rise(time);
                if let Some(qpn) = posted.queue.qpn() {
                    self.of(source, qpn).posted += 1;
                }
                self.sends += u64::from(matches!(posted.queue, Queue::Send(_)));
                let bucket = self.series.at(time);
                bucket.posted += 1;
                bucket.depth = bucket.depth.max(self.sends);
            }
            Event::Completed(completed) => {
                self.depth(source, completed.queue).fall(time);
                let figures = self.of(source, completed.qpn);
                figures.ended += 1;
                let is_error = !matches!(completed.status, Status::Success | Status::Flushed);
                figures.errors += u64::from(is_error);
                figures.flushed += u64::from(completed.status == Status::Flushed);
                let bucket = self.series.at(time);
                // Those that were posted before the stretch count in it, too.
                bucket.depth = bucket.depth.max(self.sends);
                if matches!(completed.queue, Queue::Send(_)) {
                    self.sends = self.sends.saturating_sub(1);
                }
                bucket.ended += 1;
                bucket.errors += u64::from(is_error);
            }
            Event::Packet(packet) => self.packet(source, time, packet),
            Event::Timer(Timer { qpn, kind, .. }) => {
                let figures = self.of(source, *qpn);
                figures.timeouts += u64::from(*kind == TimerKind::Acknowledgement);
                figures.probes += u64::from(*kind == TimerKind::Tail);
            }
            _ => {}
        }
    }

    fn packet(&mut self, source: usize, time: u64, packet: &Packet) {
        let has = |flag| packet.flags.contains(flag);
        let figures = self.of(source, packet.qpn);
        if packet.flags.intersects(PacketFlags::FATE) {
            figures.taken += u64::from(has(PacketFlags::TAKEN));
            return;
        }
        let is_out = has(PacketFlags::OUT);
        figures.out += u64::from(is_out);
        figures.came += u64::from(!is_out);
        figures.repeats += u64::from(has(PacketFlags::REPEAT));
        figures.refused += u64::from(has(PacketFlags::REFUSED));
        match syndrome(packet) {
            Some(Syndrome::RnrNak(_)) if is_out => figures.rnr_sent += 1,
            Some(Syndrome::RnrNak(_)) => figures.rnr_came += 1,
            Some(Syndrome::Nak(_)) if is_out => figures.nak_sent += 1,
            Some(Syndrome::Nak(_)) => figures.nak_came += 1,
            _ => {}
        }
        let bucket = self.series.at(time);
        let (packets, bytes) = if is_out {
            (&mut bucket.out, &mut bucket.bytes_out)
        } else {
            (&mut bucket.came, &mut bucket.bytes_came)
        };
        *packets += 1;
        *bytes += u64::from(packet.payload);
    }

    fn of(&mut self, source: usize, qpn: Qpn) -> &mut QpFigures {
        if self.queue_pairs.len() >= QUEUE_PAIRS && !self.queue_pairs.contains_key(&(source, qpn)) {
            return &mut self.others;
        }
        self.queue_pairs.entry((source, qpn)).or_default()
    }

    fn depth(&mut self, source: usize, queue: Queue) -> &mut Depth {
        self.depths.entry((source, queue)).or_default()
    }

    /// Figures of all queue pairs together.
    fn sum(&self) -> QpFigures {
        self.queue_pairs.values().fold(self.others, QpFigures::plus)
    }

    /// The queue pairs, those with most errors and then most work first.
    fn ranked(&self) -> Vec<(usize, Qpn, QpFigures)> {
        let mut all: Vec<_> =
            self.queue_pairs.iter().map(|((source, qpn), figures)| (*source, *qpn, *figures)).collect();
        all.sort_by_key(|(source, qpn, figures)| {
            (std::cmp::Reverse((figures.errors, figures.flushed, figures.ended)), *source, qpn.get())
        });
        all
    }

    /// The queues, deepest first.
    fn deepest(&self) -> Vec<(usize, Queue, Depth)> {
        let mut all: Vec<_> =
            self.depths.iter().map(|((source, queue), depth)| (*source, *queue, *depth)).collect();
        all.sort_by_key(|(source, queue, depth)| (std::cmp::Reverse(depth.most), *source, *queue));
        all
    }
}

/// What an answer says, without a look at packets that are none: there are many.
fn syndrome(packet: &Packet) -> Option<Syndrome> {
    /// Only answers have this header length and no payload, or are READ responses, which are never refusals.
    const ANSWER: u8 = 16;
    if packet.headers_len != ANSWER || packet.payload != 0 {
        return None;
    }
    Glance::of(packet)?.syndrome
}

impl QpFigures {
    const fn plus(self, other: &Self) -> Self {
        Self {
            posted: self.posted + other.posted,
            ended: self.ended + other.ended,
            errors: self.errors + other.errors,
            flushed: self.flushed + other.flushed,
            out: self.out + other.out,
            came: self.came + other.came,
            repeats: self.repeats + other.repeats,
            taken: self.taken + other.taken,
            timeouts: self.timeouts + other.timeouts,
            probes: self.probes + other.probes,
            rnr_came: self.rnr_came + other.rnr_came,
            rnr_sent: self.rnr_sent + other.rnr_sent,
            nak_came: self.nak_came + other.nak_came,
            nak_sent: self.nak_sent + other.nak_sent,
            refused: self.refused + other.refused,
        }
    }

    /// Each figure and what it is called.
    const fn named(&self) -> [(&'static str, u64); 15] {
        [
            ("posted", self.posted),
            ("ended", self.ended),
            ("errors", self.errors),
            ("flushed", self.flushed),
            ("packets_out", self.out),
            ("packets_in", self.came),
            ("repeats", self.repeats),
            ("taken_by_fault_injection", self.taken),
            ("timeouts", self.timeouts),
            ("tail_probes", self.probes),
            ("rnr_naks_in", self.rnr_came),
            ("rnr_naks_out", self.rnr_sent),
            ("naks_in", self.nak_came),
            ("naks_out", self.nak_sent),
            ("refused_packets", self.refused),
        ]
    }
}

#[cfg(test)]
mod tests;
