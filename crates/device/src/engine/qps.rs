//! The queue pairs of an engine, and how they are numbered.
//!
//! A queue pair number is a slot (8 bits) and an index (16 bits). The slot says which engine it
//! belongs to, the index which of its queue pairs. Indices are dealt at random: a number that was
//! in use a moment ago, in this process or one before it, should not mean another queue pair now.

use std::collections::VecDeque;
use std::sync::Arc;

use ferroce_fabric::Route;
use ferroce_fabric::{Path, PathChoice};
use ferroce_progress::AckDelay;
use ferroce_switchboard::slot_of;
use ferroce_sys::Random;
use ferroce_transport::{Acks, Completions, Level, QpTotals, QueuePair, Status, Time};
use ferroce_wire::{Flow, Qpn};

use crate::completion::CqId;
use crate::engine::qp_shared::QpShared;
use crate::engine::stamps::Held;
use crate::engine::watch::Watch;
use crate::engine::windows::WindowId;

/// The index of a queue pair number.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
pub(crate) const fn index_of(qpn: Qpn) -> u16 {
    qpn.get() as u16
}

/// A queue pair and what the device knows about it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) machine: QueuePair,
    pub(crate) send_cq: CqId,
    pub(crate) receive_cq: CqId,
    pub(crate) window: WindowId,
    /// The way to its peer, when it has one.
    pub(crate) way: Option<Way>,
    pub(crate) path: Option<PathChoice>,
    /// The queue pair that it is connected to.
    pub(crate) peer: Qpn,
    /// The slot that its packets may come from through memory.
    pub(crate) neighbour: Option<u8>,
    /// What tells the owner of that slot, to which it is connected, from later ones.
    pub(crate) incarnation: Option<u64>,
    /// The queue pair stands in the list of those that may have something to send.
    pub(crate) queued: bool,
    /// The queue pair waits for room in its window.
    pub(crate) waiting: bool,
    /// The queue pair stands in the list of those that owe an acknowledgement.
    pub(crate) owing: bool,
    /// Whether the program answers what the driver takes in.
    pub(crate) ack_delay: AckDelay,
    /// The earliest entry of the queue pair among the timers.
    pub(crate) scheduled: Option<Time>,
    /// Sends in the machine, as far as `shared` knows.
    pub(crate) counted: u32,
    /// Receives in the machine, as far as `shared` knows.
    pub(crate) counted_receives: u32,
    /// What the last calls of the machine added to completion queues.
    pub(crate) tally: Tally,
    /// Sends that were posted, since the queue pair was made.
    pub(crate) sends_posted: u64,
    /// Sends that have ended.
    pub(crate) sends_done: u64,
    /// Receives that were posted to its own queue.
    pub(crate) receives_posted: u64,
    pub(crate) shared: Arc<QpShared>,
}

impl Entry {
    /// What the queue pair has done since it was made.
    pub(crate) fn totals(&self) -> QpTotals {
        let mut totals = QpTotals::default();
        totals.sends_posted = self.sends_posted;
        totals.sends_done = self.sends_done;
        totals.receives_posted = self.receives_posted;
        totals.completions = self.tally.ended.completions();
        totals.counters = *self.machine.counters();
        totals
    }

    /// Whether it may have something to send, beside an acknowledgement that has time. On the way to a queue pair of this
    /// process acknowledgements cost nothing, and have none.
    #[inline]
    pub(super) fn has_to_send(&self) -> bool {
        let is_local = self.path.is_some_and(|choice| choice.path == Path::Local);
        is_local || self.waiting || self.machine.may_transmit(Acks::Hold)
    }

    /// How full its send queue and its own receive queue are.
    pub(crate) fn levels(&self) -> (Level, Level) {
        self.shared.levels()
    }
}

/// Completions of a queue pair that the engine has not taken note of yet.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Completions of sends: their places are free when the program has seen them.
    pub(crate) sends: u32,
    /// Completions of receives: their places are free when the program has seen them.
    pub(crate) receives: u32,
    /// Receives whose completions a thread that polls is handed past the queue: their places are free at once.
    pub(crate) receives_handed: u32,
    /// A completion queue had no room: the queue pair must go into error.
    pub(crate) overrun: bool,
    /// All completions since the queue pair was made, by status; these are never taken away.
    pub(crate) ended: Ended,
    /// Sends whose completions wait for stamps, if the queue pair asked for stamps.
    pub(crate) held: Option<Box<Held>>,
    /// What the record has to know of it, if there is one.
    pub(crate) watch: Option<Box<Watch>>,
}

/// Completions by status, without a place for each failure as long as there is none: there are many queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    sends: u64,
    receives: u64,
    failed: Option<Box<Completions>>,
}

impl Ended {
    #[inline]
    pub(crate) fn count_send(&mut self, status: Status) {
        match status {
            Status::Success => self.sends += 1,
            _ => self.failed.get_or_insert_default().count_send(status),
        }
    }

    #[inline]
    pub(crate) fn count_receive(&mut self, status: Status) {
        match status {
            Status::Success => self.receives += 1,
            _ => self.failed.get_or_insert_default().count_receive(status),
        }
    }

    /// All of them.
    pub(crate) fn completions(&self) -> Completions {
        let mut all = self.failed.as_deref().copied().unwrap_or_default();
        all.set(Status::Success, self.sends, self.receives);
        all
    }

    /// Adds others.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sends += other.sends;
        self.receives += other.receives;
        if let Some(failed) = &other.failed {
            self.failed.get_or_insert_default().add(failed);
        }
    }
}

/// The way to a peer, ready for sealing packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// With the source port that packets leave from.
    pub(crate) route: Route,
    /// The source port that is wanted.
    pub(crate) wanted_port: u16,
    /// No other one will do.
    pub(crate) must: bool,
    /// The slot of the process that has memory in common with this one, if packets go through that.
    pub(crate) lane: Option<u8>,
    pub(crate) flow: Flow,
}

/// The queue pairs of one engine.
#[derive(Debug)]
pub(crate) struct QpTable {
    slot: u8,
    entries: Vec<Option<Box<Entry>>>,
    count: usize,
    recent: Recent,
}

/// The indices that were given back last, oldest first: peers still remember them, and drop what comes from
/// them.
#[derive(Debug, Default)]
struct Recent {
    order: VecDeque<u16>,
    /// A bit for each index.
    bits: Vec<u64>,
}

impl Recent {
    /// How many are not dealt again yet.
    const LEN: usize = 4096;

    fn contains(&self, index: u16) -> bool {
        self.bits.get(usize::from(index / 64)).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    fn push(&mut self, index: u16) {
        if self.contains(index) {
            return;
        }
        if self.order.len() >= Self::LEN
            && let Some(oldest) = self.order.pop_front()
        {
            self.bits[usize::from(oldest / 64)] &= !(1 << (oldest % 64));
        }
        let word = usize::from(index / 64);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (index % 64);
        self.order.push_back(index);
    }
}

impl QpTable {
    /// Indices that a slot has. Three numbers are never dealt: 0 and 1 of slot 0, and the last of all.
    const INDICES: u32 = 1 << 16;

    pub(crate) fn new(slot: u8) -> Self {
        Self { slot, entries: Vec::new(), count: 0, recent: Recent::default() }
    }

    pub(crate) const fn slot(&self) -> u8 {
        self.slot
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// A number that no queue pair has, and none had a moment ago, if possible. `None` if all are used.
    pub(crate) fn deal(&mut self, random: &mut Random) -> Option<Qpn> {
        let start = random.next_u32();
        let free = |step: u32| {
            let index = start.wrapping_add(step) % Self::INDICES;
            let qpn = Qpn::new(u32::from(self.slot) << 16 | index);
            let special = matches!(qpn, Qpn::SMI | Qpn::GSI | Qpn::MULTICAST);
            let free = self.entries.get(index as usize).is_none_or(Option::is_none);
            (free && !special).then_some(qpn)
        };
        let is_old = |qpn: &Qpn| !self.recent.contains(index_of(*qpn));
        let mut all = 0..Self::INDICES;
        all.clone().filter_map(free).find(is_old).or_else(|| all.find_map(free))
    }

    pub(crate) fn insert(&mut self, qpn: Qpn, entry: Box<Entry>) {
        let index = usize::from(index_of(qpn));
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.count += 1;
        self.entries[index] = Some(entry);
    }

    pub(crate) fn remove(&mut self, qpn: Qpn) -> Option<Box<Entry>> {
        let entry = self.entries.get_mut(usize::from(index_of(qpn)))?.take();
        self.count -= usize::from(entry.is_some());
        if entry.is_some() {
            self.recent.push(index_of(qpn));
        }
        entry
    }

    /// Takes a queue pair out for a moment, so that it can meet another.
    pub(crate) fn take_out(&mut self, index: u16) -> Option<Box<Entry>> {
        self.entries.get_mut(usize::from(index))?.take()
    }

    /// Puts it back.
    #[inline]
    pub(crate) fn put_back(&mut self, index: u16, entry: Box<Entry>) {
        self.entries[usize::from(index)] = Some(entry);
    }

    pub(crate) fn by_index(&mut self, index: u16) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(index))?.as_deref_mut()
    }

    /// The queue pair of this number, if it is one of ours.
    pub(crate) fn get(&mut self, qpn: Qpn) -> Option<&mut Entry> {
        if slot_of(qpn) == self.slot { self.by_index(index_of(qpn)) } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter_map(Option::as_deref)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter_map(Option::as_deref_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_remembered_until_enough_others_were() {
        let mut recent = Recent::default();
        let indices = (0..=u16::MAX).step_by(7).chain([u16::MAX]);
        for (pushed, index) in indices.clone().enumerate() {
            recent.push(index);
            recent.push(index);
            assert!(recent.contains(index));
            assert_eq!(recent.order.len(), (pushed + 1).min(Recent::LEN));
        }
        let all: Vec<u16> = indices.collect();
        let (old, new) = all.split_at(all.len() - Recent::LEN);
        assert!(old.iter().all(|index| !recent.contains(*index)));
        assert!(new.iter().all(|index| recent.contains(*index)));
        assert!(!recent.contains(1));
    }
}
