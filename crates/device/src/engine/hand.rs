//! Completions past their queue: a thread that polls and takes in the packets itself is handed what they complete, with no
//! ring and no lock between.
//!
//! This is done only where no other way could tell the difference. The queue is empty, so nothing is overtaken; no thread waits
//! for it and none has asked for an event, so no thread misses a call; nothing is written down. From the first completion on
//! that goes into the queue after all, because it has more to tell or the thread has no room, all others follow it there.
//! What has to hold before the first one is asked in [`CqSide::is_passed_by`](crate::completion::CqSide::is_passed_by).

use ferroce_transport::{Completion, PlainCompletion, Time, WorkKind};
use ferroce_wire::Qpn;

use crate::completion::{CqId, CqSide};

/// Completions that are handed over at once: a message that came and the end of one that had left are two.
const MOST: usize = 4;

/// What a thread that polls is handed as it leaves.
#[derive(Debug)]
pub(crate) struct Hand {
    /// The queue that it polls.
    of: CqId,
    /// A thread does so, and nothing has gone into the queue since.
    is_open: bool,
    /// So many it takes.
    room: usize,
    count: usize,
    held: [PlainCompletion; MOST],
}

/// What a place of a hand holds at first.
const NOTHING: PlainCompletion =
    PlainCompletion { id: 0, kind: WorkKind::Send, qpn: Qpn::SMI, byte_len: 0, solicited: false };

impl Default for Hand {
    fn default() -> Self {
        Self { of: CqId(0), is_open: false, room: 0, count: 0, held: [NOTHING; MOST] }
    }
}

impl Hand {
    /// A thread polls this queue, and takes so many completions: opens the hand for it, if they may pass the queue by.
    #[inline]
    pub(crate) fn open(&mut self, of: CqId, side: Option<&CqSide>, room: usize) {
        if side.is_some_and(CqSide::is_passed_by) {
            (self.of, self.is_open, self.room) = (of, true, room.min(MOST));
        }
    }

    /// Takes a completion; false if it has to go into its queue, and whatever comes after it.
    #[inline(always)]
    pub(super) fn takes(&mut self, cq: CqId, plain: &PlainCompletion) -> bool {
        if !self.is_open || self.of != cq {
            return false;
        }
        match self.held.get_mut(self.count).filter(|_| self.count < self.room) {
            Some(place) => {
                *place = *plain;
                self.count += 1;
                true
            }
            None => {
                self.is_open = false;
                false
            }
        }
    }

    /// A completion goes into this queue: from here on all have to.
    #[inline(always)]
    pub(super) fn close_for(&mut self, cq: CqId) {
        self.is_open &= self.of != cq;
    }

    /// Closes the hand, and gives what it holds to the thread; how many. They ended at this time.
    #[inline]
    pub(crate) fn give(&mut self, into: &mut [Completion], time: Time) -> usize {
        self.is_open = false;
        let count = std::mem::take(&mut self.count);
        for (place, plain) in into.iter_mut().zip(&self.held[..count.min(MOST)]) {
            let PlainCompletion { id, kind, qpn, byte_len, solicited } = *plain;
            *place = Completion { id, kind, qpn, byte_len, solicited, time, ..Completion::EMPTY };
        }
        count
    }

    /// Closes the hand for a thread that will not come for what it holds, and returns that with its queue.
    pub(super) fn take_back(&mut self) -> (CqId, Vec<PlainCompletion>) {
        self.is_open = false;
        (self.of, self.held[..std::mem::take(&mut self.count)].to_vec())
    }
}
