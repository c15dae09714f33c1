//! What went wrong, and why, in sentences.
//!
//! Failed work is explained at the moment when it fails, with what is known then of both ends: which memory there is, which
//! receives were posted, what state queue pairs are in. What waits, and what happened too often, is told at the end.

mod causes;
mod facts;
mod memory;
mod rest;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ferroce_record::{
    Completed, CompletedFlags, Connection, ConnectionStep, Event, Packet, PacketFlags, Queue, Refusal, Timer,
    TimerKind,
};
use ferroce_transport::{State, Status};
use ferroce_wire::{NakCode, Position, Qpn, Syndrome};

use self::facts::{Facts, Receives, Tally};
use self::memory::Memory;
pub use self::text::{Evidence, Explanation, Finding, Severity};
use crate::fast::FastMap;
use crate::glance::Glance;
use crate::read::{Told, read};
use crate::show::Nanos;
use crate::timeline::{Seen, Timeline};
use crate::work::Work;

/// Failures that are explained; those beyond are counted.
const FAILURES: usize = 50;

/// Queue pairs that are remembered; those beyond are not explained.
const QUEUE_PAIRS: usize = 100_000;

/// Puts an explanation together, as a time-line is read.
#[derive(Debug)]
pub struct Explainer {
    records: Vec<Record>,
    queue_pairs: FastMap<(usize, Qpn), Facts>,
    /// Which queue pair lives at an address.
    homes: HashMap<(IpAddr, Qpn), usize>,
    receives: FastMap<(usize, Queue), Receives>,
    memory: Vec<Memory>,
    failures: Vec<Finding>,
    /// Failures beyond those, by status.
    more: BTreeMap<Status, u64>,
    overruns: BTreeMap<(usize, u32), Tally>,
    /// With the last queue pair that was meant, and how many were for those that had been there.
    refused: BTreeMap<(usize, Refusal), (Tally, Qpn, u64)>,
    connections: BTreeMap<(usize, ConnectionStep), (Tally, Connection)>,
    unpolled: BTreeMap<(usize, u32), Tally>,
    outstanding: BTreeMap<(usize, Queue), rest::Outstanding>,
    oddities: Vec<(usize, String)>,
    more_oddities: u64,
    last: u64,
}

/// What is known of a record as a file.
#[derive(Debug)]
struct Record {
    name: String,
    lost: u64,
    overwritten: u64,
    is_cut: bool,
    sample: u32,
}

impl Explanation {
    /// Reads the records of a time-line, and explains them.
    #[must_use]
    pub fn of(timeline: &Timeline) -> Self {
        let mut explainer = Explainer::new(timeline);
        let Ok(_) = read(timeline, |told| {
            explainer.take(&told);
            std::ops::ControlFlow::<std::convert::Infallible>::Continue(())
        });
        explainer.finish()
    }
}

impl Explainer {
    /// For the records of this time-line.
    #[must_use]
    pub fn new(timeline: &Timeline) -> Self {
        let record = |source: &crate::Source| Record {
            name: source.path().display().to_string(),
            lost: source.lost(),
            overwritten: source.overwritten(),
            is_cut: source.trace().is_cut(),
            sample: source.trace().header().sample,
        };
        Self::of(timeline.sources().iter().map(record).collect())
    }

    fn of(records: Vec<Record>) -> Self {
        Self {
            memory: records.iter().map(|_| Memory::default()).collect(),
            records,
            queue_pairs: FastMap::default(),
            homes: HashMap::new(),
            receives: FastMap::default(),
            failures: Vec::new(),
            more: BTreeMap::new(),
            overruns: BTreeMap::new(),
            refused: BTreeMap::new(),
            connections: BTreeMap::new(),
            unpolled: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            oddities: Vec::new(),
            more_oddities: 0,
            last: 0,
        }
    }

    /// Takes what is read next.
    pub fn take(&mut self, told: &Told) {
        match told {
            Told::Event(seen) => self.event(seen),
            Told::Failed(source, work) => self.failed(*source, work),
            Told::Over(..) => {}
            Told::Open(source, work) => self.open(*source, work),
            Told::Odd(source, oddity) => {
                if self.oddities.is_empty() {
                    self.oddities.push((*source, oddity.to_string()));
                } else {
                    self.more_oddities += 1;
                }
            }
        }
    }

    /// At the end: the explanation.
    #[must_use]
    pub fn finish(mut self) -> Explanation {
        let mut findings = std::mem::take(&mut self.failures);
        findings.extend(self.rest());
        findings.sort_by_key(|finding| (finding.severity, finding.time));
        Explanation { records: self.records.into_iter().map(|record| record.name).collect(), findings }
    }

    fn event(&mut self, Seen { source, stamped }: &Seen) {
        let (source, time) = (*source, stamped.time);
        self.last = self.last.max(time);
        match &stamped.event {
            Event::Posted(posted) if !matches!(posted.queue, Queue::Send(_)) => {
                self.receives.entry((source, posted.queue)).or_default().post(time);
            }
            Event::Completed(completed) => self.completed(source, time, completed),
            Event::Packet(packet) => self.packet(source, time, packet),
            Event::Timer(timer) => self.timer(source, time, timer),
            Event::Wait(wait) => {
                if let Some(facts) = self.of_pair(source, wait.qpn) {
                    facts.wait = Some((time, *wait));
                }
            }
            Event::State(change) => {
                if let Some(facts) = self.of_pair(source, change.qpn) {
                    facts.change(time, change);
                }
            }
            Event::QueuePair(pair) => {
                if let Some(facts) = self.of_pair(source, pair.qpn) {
                    facts.made(time, pair);
                }
            }
            Event::Way(way) => {
                self.homes.insert((way.local, way.qpn), source);
                if let Some(facts) = self.of_pair(source, way.qpn) {
                    facts.way = Some(*way);
                }
            }
            Event::Region(region) => self.memory[source].take(time, *region),
            Event::Connection(connection) => self.connection(source, time, connection),
            _ => {}
        }
    }

    /// What is known of a queue pair; none if there are too many.
    fn of_pair(&mut self, source: usize, qpn: Qpn) -> Option<&mut Facts> {
        let is_full = self.queue_pairs.len() >= QUEUE_PAIRS;
        if is_full && !self.queue_pairs.contains_key(&(source, qpn)) {
            return None;
        }
        Some(self.queue_pairs.entry((source, qpn)).or_default())
    }

    fn completed(&mut self, source: usize, time: u64, completed: &Completed) {
        if completed.flags.contains(CompletedFlags::OVERRUN) {
            self.overruns.entry((source, completed.cq)).or_default().add(time);
        }
        if !matches!(completed.queue, Queue::Send(_)) {
            self.receives.entry((source, completed.queue)).or_default().end();
        }
        if completed.status == Status::Flushed
            && !completed.flags.contains(CompletedFlags::FORGOTTEN)
            && let Some(facts) = self.of_pair(source, completed.qpn)
        {
            facts.flushed.add(time);
        }
    }

    fn packet(&mut self, source: usize, time: u64, packet: &Packet) {
        if let Some(refusal) = packet.refusal() {
            let was_there =
                self.queue_pairs.get(&(source, packet.qpn)).is_some_and(|facts| facts.gone.is_some());
            let first = (Tally::default(), packet.qpn, 0);
            let (tally, qpn, late) = self.refused.entry((source, refusal)).or_insert(first);
            *qpn = packet.qpn;
            *late += u64::from(was_there);
            return tally.add(time);
        }
        let Some(facts) = self.of_pair(source, packet.qpn) else { return };
        let has = |flag| packet.flags.contains(flag);
        if packet.flags.intersects(PacketFlags::FATE) {
            if has(PacketFlags::TAKEN) {
                facts.taken.add(time);
            }
            return;
        }
        let Some(glance) = Glance::of(packet) else { return };
        let is_out = has(PacketFlags::OUT);
        if has(PacketFlags::REPEAT) {
            facts.repeats.add(time);
        }
        match (is_out, glance.is_request()) {
            (true, true) => facts.asked.add(time),
            (false, false) => facts.answered.add(time),
            (false, true) => {
                facts.wanted.add(time);
                let begins = matches!(glance.info.position, Position::First | Position::Only);
                let before = if begins { 0 } else { facts.message };
                facts.message = before + u64::from(packet.payload);
                if let Some(target) = glance.target {
                    facts.target = Some(target);
                }
            }
            (true, false) => {}
        }
        match glance.syndrome {
            Some(Syndrome::RnrNak(_)) if is_out => facts.rnr_sent.add(time),
            Some(Syndrome::RnrNak(_)) => facts.rnr_came.add(time),
            Some(Syndrome::Nak(NakCode::SequenceError)) if is_out => facts.gaps_seen.add(time),
            Some(Syndrome::Nak(NakCode::SequenceError)) => facts.gaps_told.add(time),
            Some(Syndrome::Nak(_)) if is_out => facts.refused = Some((time, glance.psn)),
            _ => {}
        }
    }

    fn timer(&mut self, source: usize, time: u64, timer: &Timer) {
        let Some(facts) = self.of_pair(source, timer.qpn) else { return };
        match timer.kind {
            TimerKind::Acknowledgement => {
                facts.timeouts.add(time);
                facts.tries = Some((timer.tries, timer.most));
            }
            TimerKind::Tail => facts.probes.add(time),
            TimerKind::ReceiverNotReady => facts.rnr_tries = Some((timer.tries, timer.most)),
            _ => {}
        }
    }

    fn connection(&mut self, source: usize, time: u64, connection: &Connection) {
        use ConnectionStep::{Ended, Left, Refused, Unanswered};
        if matches!(connection.step, Refused | Unanswered) {
            let known = self.connections.entry((source, connection.step));
            known.or_insert((Tally::default(), *connection)).0.add(time);
        }
        if matches!(connection.step, Ended | Left)
            && connection.qpn < 1 << 24
            && let Some(facts) = self.of_pair(source, Qpn::new(connection.qpn))
        {
            facts.ended = Some((time, connection.step));
        }
    }

    /// Work failed.
    fn failed(&mut self, source: usize, work: &Work) {
        let Some((time, completed)) = work.completed else { return };
        if completed.status == Status::Success || completed.flags.contains(CompletedFlags::FORGOTTEN) {
            return;
        }
        if self.failures.len() < FAILURES {
            let finding = self.explain(source, work, time, &completed);
            self.failures.push(finding);
        } else {
            *self.more.entry(completed.status).or_default() += 1;
        }
        if let Some(facts) = self.of_pair(source, completed.qpn) {
            let op = work.posted.op;
            facts.first_error.get_or_insert((time, work.posted.work, op, completed.status));
        }
    }

    /// Work that was not over as the record ended.
    fn open(&mut self, source: usize, work: &Work) {
        match work.completed {
            Some((time, completed)) => {
                if work.has_completion() && work.polled_at.is_none() {
                    self.unpolled.entry((source, completed.cq)).or_default().add(time);
                }
            }
            None => {
                self.outstanding
                    .entry((source, work.posted.queue))
                    .or_insert_with(|| rest::Outstanding::new(work))
                    .add();
            }
        }
    }

    /// What a queue pair is called: with its record, if there are several.
    fn name(&self, source: usize, qpn: Qpn) -> String {
        format!("queue pair {qpn}{}", self.of_record(source))
    }

    /// Which record, if there are several.
    fn of_record(&self, source: usize) -> String {
        if self.records.len() > 1 { format!(" of record {}", source + 1) } else { String::new() }
    }

    /// The record and the queue pair at the other end, if they are known.
    fn peer(&self, source: usize, qpn: Qpn) -> Option<(usize, Qpn)> {
        let way = self.queue_pairs.get(&(source, qpn))?.way?;
        let home = if way.is_local { Some(source) } else { self.homes.get(&(way.remote, way.peer)).copied() };
        home.filter(|home| self.queue_pairs.contains_key(&(*home, way.peer))).map(|home| (home, way.peer))
    }

    /// What the record of the other end would be good for.
    fn missing_peer(&self, source: usize, qpn: Qpn, what: &str) -> String {
        match self.queue_pairs.get(&(source, qpn)).and_then(|facts| facts.way) {
            Some(way) => format!(
                "the record of the other end (queue pair {} at {}) would tell {what}",
                way.peer, way.remote
            ),
            None => format!("the record of the other end would tell {what}"),
        }
    }
}

/// What a state is called.
const fn state_name(state: State) -> &'static str {
    match state {
        State::Reset => "RESET",
        State::Init => "INIT",
        State::Rtr => "RTR",
        State::Rts => "RTS",
        State::Sqd => "SQD",
        State::Sqe => "SQE",
        State::Err => "ERR",
    }
}

/// At a time.
fn at(time: u64) -> String {
    format!("at {}", Nanos(time))
}

#[cfg(test)]
mod tests;
