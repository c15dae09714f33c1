//! Puts the events of each work request together.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use ferroce_record::{
    Begun, Completed, Doorbell, Event, Matched, Operands, Packet, PacketFlags, Piece, Polled, Posted, Queue,
    QueuePair, Stamped, Step, Wait,
};
use ferroce_wire::Qpn;

use crate::fast::FastMap;
use crate::timeline::Source;
use crate::work::{Arrival, PacketAt, Work};

/// Packets of one work request that are held; those beyond are counted.
const PACKETS: usize = 4096;

/// Waits of one work request that are held.
const WAITS: usize = 64;

/// Work that ended last, among which that of a late packet is looked for.
const LATE: usize = 1024;

/// Work that is held if events are missing: what ended, or was taken, and is not known to be, would stay for ever.
const HELD: usize = 1 << 17;

/// Completions that may be missing in a row.
const MISSING: usize = 4096;

/// What does not fit together in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oddity {
    /// Work of this number was posted though the one before was not over.
    PostedTwice(Queue, u32),
    /// Work ended that was not posted, or had ended before.
    EndedUnknown(Box<Completed>),
    /// A program took a completion that was not written.
    PolledUnknown(Polled),
    /// A packet belongs to work that is not known.
    PacketUnknown(Qpn, u32),
    /// Something else is told of work that is not known: a piece, a doorbell, a message.
    PartUnknown(Queue, u32),
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PostedTwice(queue, work) => {
                write!(
                    f,
                    "work {work} of {queue} was posted while the one before of that number was not over"
                )
            }
            Self::EndedUnknown(completed) => {
                let Completed { work, queue, .. } = **completed;
                write!(f, "work {work} of {queue} ended, but it was not posted, or had ended before")
            }
            Self::PolledUnknown(Polled { qpn, id, .. }) => {
                write!(f, "the program took a completion of {qpn} with id {id:#x} that was not written")
            }
            Self::PacketUnknown(qpn, work) => {
                write!(f, "a packet of {qpn} belongs to work {work}, which is not known")
            }
            Self::PartUnknown(queue, work) => {
                write!(f, "work {work} of {queue} is told of, but was not posted")
            }
        }
    }
}

/// Puts events together, as they come.
#[derive(Debug, Default)]
pub struct Assembler {
    /// Work that has not ended.
    open: FastMap<(Queue, u32), Box<Work>>,
    /// Work that ended and whose completion was not taken, by queue pair and side, oldest first.
    ended: FastMap<(Qpn, bool), VecDeque<Work>>,
    /// Work whose completion was taken, until the program comes back to the queue pair.
    taken: FastMap<Qpn, Vec<Work>>,
    /// The work of the packet that came last.
    last: Option<(Qpn, u32)>,
    /// Work that is over.
    over: VecDeque<Work>,
    /// How much work is in `ended`.
    unpolled: usize,
    /// Queue pairs that were there before the record began, and of which completions may be taken that it does not have.
    earlier: HashSet<(Qpn, bool)>,
    oddities: Vec<Oddity>,
    /// Whether the beginning of the record is missing: then something that is not known is no oddity.
    is_partial: bool,
}

impl Assembler {
    /// For a record that has everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For a record whose beginning is missing, as that of a flight recorder: what is told of work that was posted
    /// before is left out.
    #[must_use]
    pub fn of_the_end() -> Self {
        Self { is_partial: true, ..Self::default() }
    }

    /// For this record, as much as it has.
    #[must_use]
    pub fn for_record(source: &Source) -> Self {
        if source.is_complete() { Self::new() } else { Self::of_the_end() }
    }

    /// Takes the next event.
    pub fn take(&mut self, stamped: &Stamped) {
        let time = stamped.time;
        match stamped.event {
            Event::Posted(posted) => self.posted(time, posted),
            Event::Piece(piece) => self.piece(piece),
            Event::Operands(operands) => self.operands(operands),
            Event::Doorbell(doorbell) => self.doorbell(time, doorbell),
            Event::Begun(begun) => self.begun(time, begun),
            Event::Packet(packet) => self.packet(time, packet),
            Event::MoreHeaders(more) => self.of_last_packet(more.qpn, |packet| packet.more = Some(more)),
            Event::Ends(ends) => self.of_last_packet(ends.qpn, |packet| packet.ends = Some(ends)),
            Event::Wait(wait) => self.wait(time, wait),
            Event::Matched(matched) => self.matched(time, matched),
            Event::Completed(completed) => self.completed(time, completed),
            Event::Polled(polled) => self.polled(time, polled),
            Event::QueuePair(QueuePair { qpn, step: Step::Gone, .. }) => self.came_back(qpn, None),
            Event::QueuePair(QueuePair { qpn, step: Step::Earlier, .. }) => {
                self.earlier.extend([(qpn, false), (qpn, true)]);
            }
            _ => {}
        }
    }

    /// The next work request that is over: it ended, and its completion was taken if it has one.
    pub fn next_over(&mut self) -> Option<Work> {
        self.over.pop_front()
    }

    /// At the end of the record: all completions that were taken are done with, as far as is known.
    pub fn settle(&mut self) {
        let mut taken: Vec<Work> = self.taken.drain().flat_map(|(_, works)| works).collect();
        taken.sort_by_key(|work| (work.polled_at, work.posted.queue, work.posted.work));
        self.over.extend(taken);
    }

    /// The work that this event has just ended.
    pub(crate) fn just_ended(&self, completed: &Completed) -> Option<&Work> {
        let is_receive = !matches!(completed.queue, Queue::Send(_));
        let ended = self.ended.get(&(completed.qpn, is_receive)).and_then(VecDeque::back);
        let is_it = |work: &&Work| work.posted.queue == completed.queue && work.posted.work == completed.work;
        ended.filter(is_it).or_else(|| self.over.back().filter(is_it))
    }

    /// What did not fit together since this was asked last.
    pub fn oddities(&mut self) -> Vec<Oddity> {
        std::mem::take(&mut self.oddities)
    }

    /// At the end of the record: work that is not over, oldest first.
    #[must_use]
    pub fn finish(self) -> Vec<Work> {
        let ended = self.ended.into_values().flatten().chain(self.taken.into_values().flatten());
        let mut rest: Vec<Work> =
            self.over.into_iter().chain(ended).chain(self.open.into_values().map(|work| *work)).collect();
        rest.sort_by_key(|work| (work.posted_at, work.posted.queue, work.posted.work));
        rest
    }

    fn odd(&mut self, oddity: Oddity) {
        if !self.is_partial {
            self.oddities.push(oddity);
        }
    }

    fn posted(&mut self, time: u64, posted: Posted) {
        let key = (posted.queue, posted.work);
        if let Some(qpn) = posted.queue.qpn() {
            self.came_back(qpn, Some(time));
        }
        if self.is_partial && self.open.len() >= HELD {
            self.let_go();
        }
        if self.open.insert(key, Box::new(Work::new(time, posted))).is_some() {
            // Whatever is missing at the beginning, this is wrong.
            self.oddities.push(Oddity::PostedTwice(key.0, key.1));
        }
    }

    /// The program does something with a queue pair, or it is gone: completions that were taken before are done with.
    fn came_back(&mut self, qpn: Qpn, time: Option<u64>) {
        let Some(taken) = self.taken.get_mut(&qpn) else { return };
        for mut work in taken.drain(..) {
            work.processed_at = time.filter(|time| work.polled_at <= Some(*time));
            self.over.push_back(work);
        }
    }

    /// Lets the older half of all work go: its end is missing in the record.
    fn let_go(&mut self) {
        let mut times: Vec<u64> = self.open.values().map(|work| work.posted_at).collect();
        let (_, median, _) = times.select_nth_unstable(HELD / 2);
        let median = *median;
        let old = self.open.extract_if(|_, work| work.posted_at <= median).map(|(_, work)| *work);
        self.over.extend(old);
    }

    /// Does something to work that has not ended.
    fn with(&mut self, queue: Queue, work: u32, change: impl FnOnce(&mut Work)) {
        match self.open.get_mut(&(queue, work)) {
            Some(known) => change(known),
            None => self.odd(Oddity::PartUnknown(queue, work)),
        }
    }

    fn piece(&mut self, piece: Piece) {
        self.with(piece.queue, piece.work, |work| work.pieces.push(piece));
    }

    fn operands(&mut self, operands: Operands) {
        self.with(Queue::Send(operands.qpn), operands.work, |work| work.operands = Some(operands));
    }

    /// A doorbell is about work that may be over by now: what is done at once is done before it.
    fn doorbell(&mut self, time: u64, Doorbell { queue, first, count }: Doorbell) {
        // A file may say anything; no queue holds more.
        for number in 0..count.min(1 << 16) {
            if let Some(work) = self.open.get_mut(&(queue, first.wrapping_add(number))) {
                work.doorbell_at.get_or_insert(time);
            }
        }
    }

    fn begun(&mut self, time: u64, begun: Begun) {
        self.with(Queue::Send(begun.qpn), begun.work, |work| {
            work.begun.get_or_insert((time, begun));
        });
    }

    /// Packets may come after the end of their work: those that are sent again are late.
    fn packet(&mut self, time: u64, packet: Packet) {
        self.last = None;
        if !packet.flags.contains(PacketFlags::WORK) {
            return;
        }
        if packet.flags.intersects(PacketFlags::FATE) {
            return self.remark(packet);
        }
        let is_out = packet.flags.contains(PacketFlags::OUT);
        match self.sender(packet.qpn, packet.work) {
            Some(work) => {
                if !is_out {
                    work.answered_at = Some(time);
                }
                if work.packets.len() < PACKETS {
                    work.packets.push(PacketAt { time, packet, more: None, ends: None });
                } else {
                    work.more_packets += 1;
                }
            }
            None => self.odd(Oddity::PacketUnknown(packet.qpn, packet.work)),
        }
        self.last = Some((packet.qpn, packet.work));
    }

    /// The work that a packet belongs to, if it is not over.
    fn sender(&mut self, qpn: Qpn, work: u32) -> Option<&mut Work> {
        let Self { open, ended, .. } = self;
        open.get_mut(&(Queue::Send(qpn), work)).map(|work| &mut **work).or_else(|| {
            let ended = ended.get_mut(&(qpn, false))?;
            ended.iter_mut().rev().take(LATE).find(|known| known.posted.work == work)
        })
    }

    /// Does something to the packet before, which more is told of.
    fn of_last_packet(&mut self, of: Qpn, change: impl FnOnce(&mut PacketAt)) {
        if let Some((qpn, work)) = self.last.filter(|(qpn, _)| *qpn == of)
            && let Some(packet) = self.sender(qpn, work).and_then(|work| work.packets.last_mut())
        {
            change(packet);
        }
    }

    /// What fault injection did to a packet: the last of these headers.
    fn remark(&mut self, remark: Packet) {
        self.last = None;
        if let Some(work) = self.sender(remark.qpn, remark.work) {
            let is_it = |at: &&mut PacketAt| {
                at.packet.flags.contains(PacketFlags::OUT) && at.packet.headers() == remark.headers()
            };
            if let Some(packet) = work.packets.iter_mut().rev().find(is_it) {
                packet.packet.flags |= remark.flags & PacketFlags::FATE;
            }
        }
    }

    fn wait(&mut self, time: u64, wait: Wait) {
        self.with(Queue::Send(wait.qpn), wait.work, |work| {
            if work.waits.len() < WAITS {
                work.waits.push((time, wait));
            }
        });
    }

    fn matched(&mut self, time: u64, matched: Matched) {
        self.with(matched.queue, matched.work, |work| {
            work.arrival.get_or_insert(Arrival { time, psn: matched.psn });
        });
    }

    fn completed(&mut self, time: u64, completed: Completed) {
        let Some(mut work) = self.open.remove(&(completed.queue, completed.work)) else {
            return self.odd(Oddity::EndedUnknown(Box::new(completed)));
        };
        work.completed = Some((time, completed));
        if !work.has_completion() {
            return self.over.push_back(*work);
        }
        let is_receive = !matches!(completed.queue, Queue::Send(_));
        if self.is_partial && self.unpolled >= HELD {
            for ended in self.ended.values_mut() {
                let half = ended.len().div_ceil(2);
                self.unpolled -= half;
                self.over.extend(ended.drain(..half));
            }
        }
        self.unpolled += 1;
        self.ended.entry((completed.qpn, is_receive)).or_default().push_back(*work);
    }

    fn polled(&mut self, time: u64, polled: Polled) {
        // Completions are taken in their order. Only where events are missing some were taken before without a word.
        let missing = if self.is_partial { MISSING } else { 0 };
        let ended = self.ended.entry((polled.qpn, polled.is_receive)).or_default();
        let place = ended.iter().take(missing + 1).position(|work| work.posted.id == polled.id);
        let Some(place) = place else {
            if !self.earlier.contains(&(polled.qpn, polled.is_receive)) {
                self.odd(Oddity::PolledUnknown(polled));
            }
            return;
        };
        self.earlier.remove(&(polled.qpn, polled.is_receive));
        self.unpolled -= place + 1;
        self.over.extend(ended.drain(..place));
        let Some(mut work) = ended.pop_front() else { return };
        if polled.is_forgotten {
            return self.over.push_back(work);
        }
        work.polled_at = Some(time);
        // Several are taken at one time.
        if self
            .taken
            .get(&polled.qpn)
            .and_then(|taken| taken.last())
            .is_some_and(|last| last.polled_at != Some(time))
        {
            self.came_back(polled.qpn, Some(time));
        }
        self.taken.entry(polled.qpn).or_default().push(work);
    }
}

#[cfg(test)]
mod tests;
