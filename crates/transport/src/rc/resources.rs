//! What a responder keeps of READs and atomics: answers not yet sent, and results to repeat.
//!
//! The requester has at most `max_dest_rd_atomic` of them unanswered, so that many are kept.
//! An answer is repeated by making its entry pending again; entries stay in the order of
//! their PSNs, so answers always leave in order.

use ferroce_wire::{Msn, Psn, Reth, Rkey};

use crate::connection::Connection;
use crate::transmit::PayloadSource;

/// The most READs and atomics that a responder holds.
pub const MAX_RESOURCES: u8 = 16;

/// One READ or atomic that was executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    /// Its first PSN, and how many its answer takes.
    pub(crate) psn: Psn,
    pub(crate) packets: u32,
    /// Messages completed when it was executed.
    pub(crate) msn: Msn,
    pub(crate) answer: Answer,
    /// The answer has left once. Repeating it takes no place from newer requests: the peer
    /// sends those only when it has the answer.
    pub(crate) repeated: bool,
}

/// The answer, and what of it is still to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// Memory, read when it is sent.
    Read(ReadAnswer),
    /// The value that an atomic found.
    Atomic { original: u64, pending: bool },
    /// The empty READ response to an ATOMIC WRITE.
    Empty { pending: bool },
}

/// Response packets of a READ, from the PSN that was asked for last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAnswer {
    pub(crate) psn: Psn,
    pub(crate) packets: u32,
    pub(crate) rkey: Rkey,
    pub(crate) address: u64,
    pub(crate) length: u32,
    /// Packets sent of it.
    pub(crate) sent: u32,
}

impl ReadAnswer {
    pub(crate) const fn new(psn: Psn, reth: &Reth, connection: &Connection) -> Self {
        Self {
            psn,
            packets: connection.packets(reth.length),
            rkey: reth.rkey,
            address: reth.address,
            length: reth.length,
            sent: 0,
        }
    }

    /// The packet that comes next.
    #[expect(clippy::cast_possible_truncation, reason = "at most the path MTU")]
    pub(crate) fn next_part(&self, mtu: u32) -> ReadPart {
        let offset = u64::from(self.sent) * u64::from(mtu);
        let length = (u64::from(self.length) - offset).min(u64::from(mtu)) as u32;
        ReadPart {
            psn: self.psn + self.sent,
            place: Reth { address: self.address.wrapping_add(offset), rkey: self.rkey, length },
            begins: self.sent == 0,
            ends: self.sent + 1 == self.packets,
        }
    }
}

/// One packet of the answer to a READ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPart {
    pub(crate) psn: Psn,
    /// The memory that it brings.
    pub(crate) place: Reth,
    pub(crate) begins: bool,
    pub(crate) ends: bool,
}

impl ReadPart {
    pub(crate) const fn payload(&self) -> PayloadSource<'static> {
        match self.place {
            Reth { length: 0, .. } => PayloadSource::Nothing,
            Reth { rkey, address, length: len } => PayloadSource::Remote { rkey, address, len },
        }
    }
}

impl Resource {
    pub(crate) const fn is_pending(&self) -> bool {
        match self.answer {
            Answer::Read(read) => read.sent < read.packets,
            Answer::Atomic { pending, .. } | Answer::Empty { pending } => pending,
        }
    }

    /// Sends no more of the answer.
    pub(crate) const fn give_up(&mut self) {
        match &mut self.answer {
            Answer::Read(read) => read.sent = read.packets,
            Answer::Atomic { pending, .. } | Answer::Empty { pending } => *pending = false,
        }
    }

    const fn covers(&self, psn: Psn) -> bool {
        psn.is_within(self.psn, self.packets)
    }
}

/// The resources of one responder, oldest first.
#[derive(Debug)]
pub(crate) struct Resources {
    entries: Box<[Option<Resource>]>,
    /// Next to be overwritten: the oldest, once all are used.
    next: usize,
    limit: usize,
    /// False only if nothing is pending: most queue pairs answer no READ for most of the time.
    may_be_pending: bool,
}

impl Resources {
    pub(crate) fn new() -> Self {
        let entries = vec![None; usize::from(MAX_RESOURCES)].into();
        Self { entries, next: 0, limit: 0, may_be_pending: false }
    }

    /// Forgets everything; from now on holds `limit` entries.
    pub(crate) fn reset(&mut self, limit: u8) {
        self.entries.fill(None);
        self.next = 0;
        self.limit = usize::from(limit.min(MAX_RESOURCES));
        self.may_be_pending = false;
    }

    /// From now on holds `limit` entries: the newest of those it has.
    pub(crate) fn resize(&mut self, limit: u8) {
        let mut kept = [None; MAX_RESOURCES as usize];
        let mut count = 0;
        let limit = usize::from(limit.min(MAX_RESOURCES));
        for (place, entry) in kept[..limit].iter_mut().zip(self.oldest_first().rev()) {
            *place = Some(*entry);
            count += 1;
        }
        kept[..count].reverse();
        self.entries.copy_from_slice(&kept);
        self.limit = limit;
        self.next = count % limit.max(1);
    }

    /// Whether one more may be executed: the oldest answer must have left.
    pub(crate) fn has_room(&self) -> bool {
        let unanswered = |oldest: &Resource| oldest.is_pending() && !oldest.repeated;
        self.limit > 0 && !self.entries[self.next].as_ref().is_some_and(unanswered)
    }

    pub(crate) fn push(&mut self, resource: Resource) {
        self.may_be_pending = true;
        self.entries[self.next] = Some(resource);
        self.next = (self.next + 1) % self.limit.max(1);
    }

    /// The newest entry that answers this PSN: an old one may have the same PSN, from the
    /// last time round.
    pub(crate) fn find(&mut self, psn: Psn) -> Option<&mut Resource> {
        self.may_be_pending = true;
        self.oldest_first().rev().find(|resource| resource.covers(psn))
    }

    /// Whether an entry may have something to send.
    pub(crate) const fn may_be_pending(&self) -> bool {
        self.may_be_pending
    }

    /// The oldest entry with something to send.
    pub(crate) fn first_pending(&mut self) -> Option<&mut Resource> {
        self.may_be_pending =
            self.may_be_pending && self.oldest_first().any(|resource| resource.is_pending());
        if !self.may_be_pending {
            return None;
        }
        self.oldest_first().find(|resource| resource.is_pending())
    }

    fn oldest_first(&mut self) -> impl DoubleEndedIterator<Item = &mut Resource> {
        let (newer, older) = self.entries[..self.limit].split_at_mut(self.next.min(self.limit));
        older.iter_mut().chain(newer).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atomic(psn: u32, original: u64) -> Resource {
        let answer = Answer::Atomic { original, pending: true };
        Resource { psn: Psn::new(psn), packets: 1, msn: Msn::default(), answer, repeated: false }
    }

    #[test]
    fn the_newest_of_two_answers_with_the_same_psn_is_repeated() {
        let mut resources = Resources::new();
        resources.reset(4);
        resources.push(atomic(100, 1));
        resources.push(atomic(100, 2));
        let found = resources.find(Psn::new(100)).map(|resource| resource.answer);
        assert!(matches!(found, Some(Answer::Atomic { original: 2, .. })));
    }

    #[test]
    fn another_depth_keeps_the_newest_answers_in_their_order() {
        for (from, to, kept) in [(4, 2, 5..=6), (2, 4, 5..=6), (4, 4, 3..=6), (3, 16, 4..=6)] {
            let mut resources = Resources::new();
            resources.reset(from);
            for psn in 1..=6 {
                resources.push(atomic(psn, 0));
            }
            resources.resize(to);
            let psns: Vec<u32> = resources.oldest_first().map(|resource| resource.psn.get()).collect();
            assert_eq!(psns, kept.collect::<Vec<u32>>(), "{from} to {to}");
            resources.push(atomic(7, 0));
            assert_eq!(resources.oldest_first().next_back().unwrap().psn, Psn::new(7));
        }
        let mut resources = Resources::new();
        resources.reset(4);
        resources.push(atomic(1, 0));
        resources.resize(0);
        assert!(!resources.has_room() && resources.first_pending().is_none());
    }

    #[test]
    fn answers_leave_oldest_first_also_after_the_ring_has_turned() {
        let mut resources = Resources::new();
        resources.reset(2);
        for psn in 1..=3 {
            resources.push(atomic(psn, 0));
        }
        assert_eq!(resources.first_pending().map(|resource| resource.psn), Some(Psn::new(2)));
        assert!(!resources.has_room(), "the oldest answer has not left");
    }
}
