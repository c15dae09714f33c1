//! The prober: which probes are pending, what their answers say, and how each of them ended.
//!
//! - **In**: [`start`](Prober::start) for a probe to be sent, [`sent`](Prober::sent) with the stamp of its
//!   send, [`take`](Prober::take) with a packet that came, [`stalled`](Prober::stalled) and
//!   [`clock_stepped`](Prober::clock_stepped) with what the host saw of itself, [`advance`](Prober::advance)
//!   with time.
//! - **Out**: [`poll`](Prober::poll) after each of these until it has nothing more, then
//!   [`wake_at`](Prober::wake_at) for when to come back.
//!
//! What the caller promises: `now` does not run backwards unless [`clock_stepped`](Prober::clock_stepped) is
//! called; packets that have arrived are taken, and stamps of sends told, before time advances, so that
//! nothing that waits in a socket is missed; all times but those inside of packets are on one clock.
//!
//! What the machine promises: each probe ends exactly once; the stamp of a send and the two answers may come
//! in any order; whatever else comes is counted by kind and changes nothing; what is kept is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use thiserror::Error;

use crate::arrivals::Arrivals;
use crate::counters::{OutcomeCounters, ProberCounters};
use crate::directions::{Directions, Ways};
use crate::packet::{Kind, Packet, Ports, ProbePacketError, Sequence};
use crate::report::{HostFault, Invalid, Outcome, Peer, Report, Times};
use crate::stalls::Stalls;
use crate::stamp::{Stamp, StampSource};

/// No prober keeps more probes pending.
pub const MAX_PENDING: usize = 65_536;

/// How long a prober waits, and for how many probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProberConfig {
    /// Answers that arrive later after T1 are late.
    pub timeout: Duration,
    /// Answers that arrive later after T1 are not waited for.
    pub late: Duration,
    /// So many probes are pending at most; [`MAX_PENDING`] bounds it.
    pub capacity: usize,
    /// A host that does nothing for so long has stalled.
    pub stall: Duration,
    /// Whether responders are asked how many probes came, so that loss is known by direction.
    pub asks_arrivals: bool,
}

impl Default for ProberConfig {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(500),
            late: Duration::from_secs(5),
            capacity: MAX_PENDING,
            stall: Duration::from_millis(50),
            asks_arrivals: true,
        }
    }
}

/// Why a probe cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProbeStartError {
    /// All places are taken by probes that may still be answered in time.
    #[error("{pending} probes are pending, and no more may be; wait for answers or time-outs")]
    Full {
        /// Probes that are pending.
        pending: usize,
    },
}

/// Something that happened to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEvent {
    /// It has no complete answer in time. Late answers are waited for, so how it ends is not known yet.
    Overdue {
        /// Which probe.
        sequence: Sequence,
        /// Where it went.
        target: Peer,
    },
    /// It is over.
    Ended(Report),
}

/// A packet as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// What it holds.
    pub bytes: &'a [u8],
    /// The queue pair that sent it.
    pub from: Peer,
    /// When it arrived.
    pub at: Stamp,
    /// What says so.
    pub source: StampSource,
}

/// A prober.
#[derive(Clone, Debug)]
pub struct Prober {
    config: ProberConfig,
    first: Sequence,
    /// Probes that were started; the next one has this index.
    started: u64,
    /// By index, which is the order of T1.
    pending: BTreeMap<u64, Pending>,
    /// Probes with a smaller index were told to be overdue, or are over.
    told: u64,
    stalls: Stalls,
    events: VecDeque<ProbeEvent>,
    counters: ProberCounters,
    outcomes: OutcomeCounters,
    ways: Ways,
}

/// A probe that is not over.
#[derive(Clone, Copy, Debug)]
struct Pending {
    target: Peer,
    port: u16,
    /// Which probe of its target and port it is, from 1.
    number: u64,
    times: Times,
    /// When the second ACK arrived.
    second: Option<Stamp>,
    answer_ports: Option<Ports>,
    /// What is wrong with the answers, if something is.
    lie: Option<Invalid>,
}

impl Prober {
    /// A prober whose sequence numbers begin here: a random epoch, and a counter.
    #[must_use]
    pub fn new(config: ProberConfig, first: Sequence) -> Self {
        let config = ProberConfig {
            capacity: config.capacity.clamp(1, MAX_PENDING),
            late: config.late.max(config.timeout),
            ..config
        };
        Self {
            config,
            first,
            started: 0,
            pending: BTreeMap::new(),
            told: 0,
            stalls: Stalls::new(config.stall, config.late),
            events: VecDeque::new(),
            counters: ProberCounters::default(),
            outcomes: OutcomeCounters::default(),
            ways: Ways::new(MAX_PENDING),
        }
    }

    /// Begins a probe: the packet is to be sent at once, from this port if it is not 0.
    ///
    /// # Errors
    /// If too many are pending. A probe that is overdue makes room for a new one.
    pub fn start(&mut self, target: Peer, ports: Ports, now: Stamp) -> Result<Packet, ProbeStartError> {
        if self.pending.len() >= self.config.capacity {
            self.make_room(now)?;
        }
        let index = self.started;
        self.started += 1;
        self.counters.probes += 1;
        let times = Times { t1: now, source: StampSource::Hardware, ..Times::default() };
        let number = if self.config.asks_arrivals { self.ways.leaves(target, ports.sent) } else { 0 };
        let probe =
            Pending { target, port: ports.sent, number, times, second: None, answer_ports: None, lie: None };
        self.pending.insert(index, probe);
        let (t3, t4) = (Stamp::default(), Stamp::default());
        let arrivals = self.config.asks_arrivals.then(Arrivals::default);
        let (kind, sequence, ports) = (Kind::Probe, self.sequence(index), Some(ports));
        Ok(Packet { kind, sequence, t1: now, t3, t4, ports, arrivals })
    }

    /// The probe left at this time (T2). This may come before its answers or after them.
    pub fn sent(&mut self, sequence: Sequence, at: Stamp, source: StampSource) {
        let index = self.index(sequence);
        let probe = index.and_then(|index| Some((index, self.pending.get_mut(&index)?)));
        match probe.filter(|(_, probe)| probe.times.t2.is_none()) {
            Some((index, Pending { times, .. })) => {
                (times.t2, times.source) = (Some(at), times.source.max(source));
                self.end_if_complete(index);
            }
            None => self.counters.stray_stamps += 1,
        }
    }

    /// The probe could not be sent.
    pub fn send_failed(&mut self, sequence: Sequence) {
        let index = self.index(sequence);
        match index.and_then(|index| Some((index, *self.pending.get(&index)?))) {
            Some((index, Pending { target, port, number, .. })) => {
                self.ways.stays(target, port, number);
                self.end(index, Outcome::Host(HostFault::SendFailed));
            }
            None => self.counters.stray_stamps += 1,
        }
    }

    /// A packet came and is handled now.
    pub fn take(&mut self, arrival: &Arrival<'_>, now: Stamp) {
        self.stalled(arrival.at, now);
        let packet = match Packet::parse(arrival.bytes) {
            Ok(packet) => packet,
            Err(error) => {
                *self.counter_of(error) += 1;
                return;
            }
        };
        match self.matching(&packet, arrival.from) {
            Ok(index) => self.answer(index, &packet, arrival, now),
            Err(counter) => *counter += 1,
        }
    }

    /// The host did nothing in this time: a timer that was due woke it late, or a packet that had arrived
    /// waited. What is shorter than [`ProberConfig::stall`] does not matter.
    pub fn stalled(&mut self, from: Stamp, to: Stamp) {
        self.counters.stalls += u64::from(self.stalls.add(from, to));
    }

    /// The clock made a step. Stamps from before and after it cannot be compared, so all pending probes are
    /// invalid.
    pub fn clock_stepped(&mut self) {
        self.counters.clock_steps += 1;
        while let Some((index, _)) = self.pending.first_key_value() {
            self.end(*index, Outcome::Invalid(Invalid::ClockStep));
        }
        self.stalls = Stalls::new(self.config.stall, self.config.late);
    }

    /// Time has come: probes without an answer are overdue, and later over.
    pub fn advance(&mut self, now: Stamp) {
        if let Some(due) = self.wake_at() {
            self.stalled(due, now);
        }
        while let Some((index, deadline)) = self.next_overdue()
            && deadline <= now
        {
            self.told = index + 1;
            self.overdue(index);
        }
        while let Some((index, probe)) = self.pending.first_key_value()
            && probe.times.t1.plus(self.config.late) <= now
        {
            self.give_up(*index);
        }
    }

    /// When [`advance`](Self::advance) has something to do; none while nothing is pending.
    #[must_use]
    pub fn wake_at(&self) -> Option<Stamp> {
        let last = self.pending.first_key_value().map(|(_, probe)| probe.times.t1.plus(self.config.late));
        let overdue = self.next_overdue().map(|(_, deadline)| deadline);
        [last, overdue].into_iter().flatten().min()
    }

    /// What happened, in order; none if nothing more did.
    pub fn poll(&mut self) -> Option<ProbeEvent> {
        self.events.pop_front()
    }

    /// Probes that are not over.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What was sent and what came, by kind.
    #[must_use]
    pub const fn counters(&self) -> &ProberCounters {
        &self.counters
    }

    /// How the probes ended.
    #[must_use]
    pub const fn outcomes(&self) -> &OutcomeCounters {
        &self.outcomes
    }

    /// Which way probes to this target from this port were lost, as far as the responder has told; none if none
    /// were sent lately.
    #[must_use]
    pub fn directions(&self, target: Peer, port: u16) -> Option<Directions> {
        self.ways.directions(target, port)
    }

    /// The oldest probe goes, if it is overdue.
    fn make_room(&mut self, now: Stamp) -> Result<(), ProbeStartError> {
        let oldest = self.pending.first_key_value();
        let overdue = oldest.filter(|(_, probe)| probe.times.t1.plus(self.config.timeout) <= now);
        match overdue.map(|(index, _)| *index) {
            Some(index) => {
                self.counters.cut_short += 1;
                self.give_up(index);
                Ok(())
            }
            None => {
                self.counters.no_room += 1;
                Err(ProbeStartError::Full { pending: self.pending.len() })
            }
        }
    }

    /// The counter runs through all its values, and then through them again: the epoch stays.
    fn sequence(&self, index: u64) -> Sequence {
        let steps = u32::try_from(index & u64::from(u32::MAX)).unwrap_or_default();
        Sequence::new(self.first.epoch(), self.first.counter().wrapping_add(steps))
    }

    /// Which probe has this number: of all that had it, the last one.
    fn index(&self, sequence: Sequence) -> Option<u64> {
        let next = self.sequence(self.started).counter();
        let back = u64::from(next.wrapping_sub(sequence.counter()).wrapping_sub(1)) + 1;
        self.started.checked_sub(back).filter(|_| sequence.epoch() == self.first.epoch())
    }

    fn counter_of(&mut self, error: ProbePacketError) -> &mut u64 {
        match error {
            ProbePacketError::Length { .. } => &mut self.counters.wrong_length,
            ProbePacketError::Version(_) => &mut self.counters.wrong_version,
            ProbePacketError::Kind { .. } => &mut self.counters.wrong_kind,
        }
    }

    /// The probe that a packet answers, or what is to be counted.
    fn matching(&mut self, packet: &Packet, from: Peer) -> Result<u64, &mut u64> {
        let index = self.index(packet.sequence);
        let counters = &mut self.counters;
        if packet.kind == Kind::Probe {
            return Err(&mut counters.not_answers);
        }
        if packet.sequence.epoch() != self.first.epoch() {
            return Err(&mut counters.foreign_epoch);
        }
        let Some(index) = index else { return Err(&mut counters.never_sent) };
        let Some(probe) = self.pending.get(&index) else { return Err(&mut counters.already_over) };
        if probe.target.address.to_canonical() != from.address.to_canonical() {
            return Err(&mut counters.wrong_address);
        }
        if probe.target.qpn != from.qpn {
            return Err(&mut counters.wrong_queue_pair);
        }
        let is_known = match packet.kind {
            Kind::FirstAck => probe.times.t5.is_some(),
            Kind::SecondAck | Kind::Probe => probe.second.is_some(),
        };
        if is_known { Err(&mut counters.repeated) } else { Ok(index) }
    }

    fn answer(&mut self, index: u64, packet: &Packet, arrival: &Arrival<'_>, now: Stamp) {
        let Some(probe) = self.pending.get_mut(&index) else { return };
        let times = &mut probe.times;
        if packet.t1 != times.t1 {
            self.counters.wrong_echo += 1;
            probe.lie.get_or_insert(Invalid::Echo);
        }
        if times.t3.is_some_and(|t3| t3 != packet.t3) {
            self.counters.contradictions += 1;
            probe.lie.get_or_insert(Invalid::Contradiction);
        }
        times.t3 = Some(packet.t3);
        if packet.kind == Kind::FirstAck {
            self.counters.first_acks += 1;
            (times.t5, times.t6) = (Some(arrival.at), Some(now));
            times.source = times.source.max(arrival.source);
            if let Some(arrivals) = packet.arrivals.filter(|_| self.config.asks_arrivals) {
                self.ways.told(probe.target, probe.port, probe.number, arrivals);
            }
        } else {
            self.counters.second_acks += 1;
            (times.t4, times.t7) = (Some(packet.t4), Some(now));
            probe.second = Some(arrival.at);
        }
        probe.answer_ports = probe.answer_ports.or(packet.ports);
        self.end_if_complete(index);
    }

    fn end_if_complete(&mut self, index: u64) {
        let Some(probe) = self.pending.get(&index) else { return };
        let (Some(first), Some(second), Some(_)) = (probe.times.t5, probe.second, probe.times.t2) else {
            return;
        };
        let deadline = probe.times.t1.plus(self.config.timeout);
        let outcome = match (probe.lie, probe.times.delays()) {
            (Some(lie), _) => Outcome::Invalid(lie),
            (None, Some(Err(invalid))) => Outcome::Invalid(invalid),
            _ if first.max(second) <= deadline => Outcome::Ok,
            _ => self.or_host(probe, Outcome::Late),
        };
        self.end(index, outcome);
    }

    /// The first probe that was not told to be overdue, and when that is to be.
    fn next_overdue(&self) -> Option<(u64, Stamp)> {
        let (index, probe) = self.pending.range(self.told..).next()?;
        Some((*index, probe.times.t1.plus(self.config.timeout)))
    }

    fn overdue(&mut self, index: u64) {
        let Some(Pending { target, times, second, .. }) = self.pending.get(&index).copied() else { return };
        if times.t5.is_some() && second.is_some() {
            // The stamp of a send comes within moments or never.
            self.end(index, Outcome::Invalid(Invalid::NoSendStamp));
        } else {
            self.events.push_back(ProbeEvent::Overdue { sequence: self.sequence(index), target });
        }
    }

    /// Nothing more is waited for.
    fn give_up(&mut self, index: u64) {
        let Some(probe) = self.pending.get(&index) else { return };
        let outcome = match (probe.times.t5, probe.second) {
            (None, None) => self.or_host(probe, Outcome::TimeOut),
            (None, Some(_)) => self.or_host(probe, Outcome::Ack1Lost),
            (Some(_), None) => self.or_host(probe, Outcome::Ack2Lost),
            (Some(_), Some(_)) => Outcome::Invalid(Invalid::NoSendStamp),
        };
        self.end(index, outcome);
    }

    /// The outcome, unless our own host may have brought it about.
    fn or_host(&self, probe: &Pending, outcome: Outcome) -> Outcome {
        let t1 = probe.times.t1;
        let stalled = self.stalls.touch(t1, t1.plus(self.config.timeout));
        if stalled { Outcome::Host(HostFault::Stalled) } else { outcome }
    }

    fn end(&mut self, index: u64, outcome: Outcome) {
        let Some(probe) = self.pending.remove(&index) else { return };
        outcome.count(&mut self.outcomes);
        let is_measured = matches!(outcome, Outcome::Ok | Outcome::Late);
        self.events.push_back(ProbeEvent::Ended(Report {
            sequence: self.sequence(index),
            target: probe.target,
            port: probe.port,
            answer_ports: probe.answer_ports,
            outcome,
            times: probe.times,
            delays: probe.times.delays().and_then(Result::ok).filter(|_| is_measured),
        }));
    }
}
