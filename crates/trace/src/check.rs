//! The rules that every complete record keeps: each request has one fate, each completion one origin, and each packet one
//! request.

use std::fmt;

use ferroce_record::{
    CompletedFlags, Event, Packet, PacketFlags, PostedFlags, Queue, QueuePair, Stamped, StateChange, Step,
};
use ferroce_transport::State;
use ferroce_wire::{Operation, Psn, Qpn};

use crate::assemble::{Assembler, Oddity};
use crate::fast::FastMap;
use crate::glance::Glance;
use crate::show::Nanos;
use crate::timeline::Timeline;
use crate::work::Work;

/// Violations that are held; those beyond are counted.
const HELD: usize = 1000;

/// What no record of a device that works has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Events do not fit together.
    Odd(Oddity),
    /// Work never ended, though its queue pair is gone.
    NoFate(Queue, u32),
    /// A packet left that is outside of the numbers of its request.
    Outside(Qpn, u32, Psn),
    /// A packet with data left that belongs to no request.
    Unowned(Qpn, Psn),
    /// A request begins at a number that an earlier one has.
    Overlap(Qpn, u32, Psn),
    /// Work ended without a completion, though it was to have one.
    Unreported(Queue, u32),
    /// Work ended before it was posted, or its completion was taken before it was written.
    BackInTime(Queue, u32),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Odd(oddity) => oddity.fmt(f),
            Self::NoFate(queue, work) => {
                write!(f, "work {work} of {queue} never ended, though its queue pair is gone")
            }
            Self::Outside(qpn, work, psn) => {
                write!(f, "packet {psn} of queue pair {qpn} is outside of the numbers of work {work}")
            }
            Self::Unowned(qpn, psn) => write!(f, "packet {psn} of queue pair {qpn} belongs to no work"),
            Self::Overlap(qpn, work, psn) => {
                write!(f, "work {work} of queue pair {qpn} begins at {psn}, which earlier work has")
            }
            Self::Unreported(queue, work) => {
                write!(f, "work {work} of {queue} was to have a completion, and ended without one")
            }
            Self::BackInTime(queue, work) => {
                write!(f, "work {work} of {queue} ended before it was posted, or was taken before it ended")
            }
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Events that were looked at.
    pub events: u64,
    /// Requests that were posted.
    pub posted: u64,
    /// Those of them that were posted before the record began: less is asked of them.
    pub earlier: u64,
    /// Requests that ended.
    pub ended: u64,
    /// Completions that were taken.
    pub polled: u64,
    /// Packets of requests that left.
    pub packets: u64,
    /// Requests that had not ended as the record did.
    pub outstanding: u64,
    /// What is wrong, and when that was, oldest first.
    pub violations: Vec<(u64, Violation)>,
    /// Violations beyond those.
    pub more: u64,
}

impl Check {
    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, posted, ended, polled, packets, outstanding, .. } = self;
        writeln!(
            f,
            "{events} events: {posted} requests posted, {ended} ended, {outstanding} outstanding; {polled} completions \
             taken; {packets} packets left"
        )?;
        for (time, violation) in &self.violations {
            writeln!(f, "  {}: {violation}", Nanos(*time))?;
        }
        match self.more {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

/// Checks all records of a time-line, each for itself. The rules are those of complete records: of others, what is missing is
/// no violation.
#[must_use]
pub fn check(timeline: &Timeline) -> Vec<Check> {
    let mut checkers: Vec<Checker> =
        timeline.sources().iter().map(|source| Checker::new(source.is_complete())).collect();
    timeline.events().for_each(|seen| checkers[seen.source].take(&seen.stamped));
    checkers.into_iter().map(Checker::finish).collect()
}

/// Checks the record of one process, event by event.
#[derive(Debug, Default)]
pub struct Checker {
    assembler: Assembler,
    /// Sends that have not ended, and the numbers of their packets as far as they are known.
    sends: FastMap<(Qpn, u32), Numbers>,
    /// One past the last number of a packet of each queue pair.
    ends: FastMap<Qpn, Psn>,
    /// Queue pairs that are gone, and since when.
    gone: FastMap<Qpn, u64>,
    is_complete: bool,
    check: Check,
    latest: u64,
}

/// The numbers of the packets of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// It has not begun.
    None,
    /// It was posted before the record began, and its numbers are not told.
    Unknown,
    /// These, and so many.
    Known(Psn, u32),
}

impl Checker {
    /// For a record that has everything, or not.
    #[must_use]
    pub fn new(is_complete: bool) -> Self {
        let assembler = if is_complete { Assembler::new() } else { Assembler::of_the_end() };
        Self { assembler, is_complete, ..Self::default() }
    }

    /// Takes the next event.
    pub fn take(&mut self, stamped: &Stamped) {
        self.check.events += 1;
        self.latest = stamped.time;
        match &stamped.event {
            Event::Posted(posted) => {
                let is_earlier = posted.flags.contains(PostedFlags::EARLIER);
                self.check.posted += 1;
                self.check.earlier += u64::from(is_earlier);
                if let Queue::Send(qpn) = posted.queue {
                    let numbers = if is_earlier { Numbers::Unknown } else { Numbers::None };
                    self.sends.insert((qpn, posted.work), numbers);
                }
            }
            Event::Begun(begun) => {
                self.begin(begun.qpn, begun.work, Psn::new(begun.psn), begun.packets);
            }
            Event::Packet(packet) => self.packet(packet),
            Event::Completed(completed) => {
                self.check.ended += 1;
                if let Queue::Send(qpn) = completed.queue {
                    self.sends.remove(&(qpn, completed.work));
                }
            }
            Event::Polled(_) => self.check.polled += 1,
            // A connection has new numbers.
            Event::State(StateChange { qpn, to: State::Reset | State::Init | State::Rtr, .. })
            | Event::State(StateChange { qpn, from: State::Rtr, to: State::Rts, .. }) => {
                self.ends.remove(qpn);
            }
            Event::QueuePair(QueuePair { qpn, step: Step::Gone, .. }) => {
                self.ends.remove(qpn);
                self.gone.insert(*qpn, stamped.time);
            }
            Event::QueuePair(QueuePair { qpn, step: Step::Made, .. }) => {
                self.gone.remove(qpn);
            }
            _ => {}
        }
        self.assembler.take(stamped);
        while let Some(work) = self.assembler.next_over() {
            self.times(&work);
        }
        for oddity in self.assembler.oddities() {
            self.report(Violation::Odd(oddity));
        }
    }

    /// At the end of the record: what was found.
    #[must_use]
    pub fn finish(mut self) -> Check {
        for work in std::mem::take(&mut self.assembler).finish() {
            self.times(&work);
            let queue = work.posted.queue;
            if work.completed.is_none() {
                self.check.outstanding += 1;
                let gone = queue.qpn().and_then(|qpn| self.gone.get(&qpn));
                if self.is_complete && gone.is_some_and(|gone| work.posted_at <= *gone) {
                    self.report(Violation::NoFate(queue, work.posted.work));
                }
            }
        }
        self.check
    }

    fn report(&mut self, violation: Violation) {
        if self.check.violations.len() < HELD {
            self.check.violations.push((self.latest, violation));
        } else {
            self.check.more += 1;
        }
    }

    /// Nothing ends before it begins.
    fn times(&mut self, work: &Work) {
        if work.posted.flags.contains(PostedFlags::REPORTS)
            && work.completed.is_some_and(|(_, completed)| completed.flags.contains(CompletedFlags::QUIET))
        {
            self.report(Violation::Unreported(work.posted.queue, work.posted.work));
        }
        let ended = work.completed.map(|(time, _)| time);
        let is_back = ended.is_some_and(|ended| ended < work.posted_at)
            || work.polled_at.zip(ended).is_some_and(|(polled, ended)| polled < ended);
        if is_back && !work.is_earlier() {
            self.report(Violation::BackInTime(work.posted.queue, work.posted.work));
        }
    }

    /// A request begins with this number, and has so many.
    fn begin(&mut self, qpn: Qpn, work: u32, psn: Psn, packets: u32) {
        // What has ended, or was never posted, is told of by the assembler.
        let Some(numbers) = self.sends.get_mut(&(qpn, work)) else { return };
        if matches!(numbers, Numbers::Known(..)) {
            return;
        }
        *numbers = Numbers::Known(psn, packets);
        if packets > 0 {
            let before = self.ends.insert(qpn, psn + packets);
            if before.is_some_and(|before| psn.is_before(before)) {
                self.report(Violation::Overlap(qpn, work, psn));
            }
        }
    }

    fn packet(&mut self, packet: &Packet) {
        let flags = packet.flags;
        if flags.intersects(PacketFlags::FATE) {
            return;
        }
        if !flags.contains(PacketFlags::OUT) {
            return self.answer(packet);
        }
        let Some(glance) = Glance::of(packet).filter(Glance::is_request) else { return };
        let (qpn, psn) = (packet.qpn, glance.psn);
        if !flags.contains(PacketFlags::WORK) {
            // An empty WRITE asks whether the peer is there, and is of no work.
            let is_question = packet.payload == 0 && glance.info.operation == Operation::WriteOnly;
            if self.is_complete && !is_question {
                self.report(Violation::Unowned(qpn, psn));
            }
            return;
        }
        self.check.packets += 1;
        match self.sends.get(&(qpn, packet.work)).copied() {
            // Only work of one packet is not told to begin.
            Some(Numbers::None) => self.begin(qpn, packet.work, psn, 1),
            Some(Numbers::Known(first, count)) if !psn.is_within(first, count) => {
                self.report(Violation::Outside(qpn, packet.work, psn));
            }
            _ => {}
        }
    }

    /// An answer is about packets of the request that it belongs to.
    fn answer(&mut self, packet: &Packet) {
        if let Some(Numbers::Known(first, count)) = self.sends.get(&(packet.qpn, packet.work)).copied()
            && packet.flags.contains(PacketFlags::WORK)
            && let Some(glance) = Glance::of(packet).filter(|glance| !glance.psn.is_within(first, count))
        {
            self.report(Violation::Outside(packet.qpn, packet.work, glance.psn));
        }
    }
}

#[cfg(test)]
mod tests;
