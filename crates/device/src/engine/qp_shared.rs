//! What posting needs to know of a queue pair without meeting its machine.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_transport::{Caps, DomainId, Level, PostRules, SharedQueueId};

/// What posting needs to know of a queue pair without meeting its machine.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) domain: DomainId,
    pub(crate) caps: Caps,
    /// The shared queue that the receives come from, which counts them itself.
    pub(crate) shared_queue: Option<SharedQueueId>,
    pub(crate) rules: Mutex<PostRules>,
    /// Sends that have a place in the queue: posted, and the program has not heard of their end.
    pub(crate) sends: AtomicU32,
    /// Receives that have a place in the queue: posted, and the program has not heard of their end.
    pub(crate) receives: AtomicU32,
    /// The most sends that had a place at a time.
    pub(crate) most_sends: AtomicU32,
    /// The most receives that had a place at a time.
    pub(crate) most_receives: AtomicU32,
}

impl QpShared {
    /// How full the send queue and the receive queue are.
    pub(crate) fn levels(&self) -> (Level, Level) {
        let level = |now: &AtomicU32, most: &AtomicU32, capacity| {
            Level::new(now.load(Ordering::Relaxed), most.load(Ordering::Relaxed), capacity)
        };
        (
            level(&self.sends, &self.most_sends, self.caps.max_send),
            level(&self.receives, &self.most_receives, self.caps.max_receive),
        )
    }

    /// Frees the places of so many sends.
    pub(crate) fn sends_retired(&self, count: u32) {
        release(&self.sends, count);
    }

    /// The program has taken so many completions of sends and receives.
    pub(crate) fn heard(&self, sends: u32, receives: u32) {
        release(&self.sends, sends);
        if self.shared_queue.is_none() {
            release(&self.receives, receives);
        }
    }

    /// Frees all places: the queue pair was reset.
    pub(crate) fn forget(&self) {
        self.sends.store(0, Ordering::Relaxed);
        self.receives.store(0, Ordering::Relaxed);
    }

    /// Frees the places of so many receives.
    pub(crate) fn receives_retired(&self, count: u32) {
        release(&self.receives, count);
    }
}

/// Gives back places. Completions from before a reset may say so twice.
pub(crate) fn release(used: &AtomicU32, count: u32) {
    if count > 0 {
        let less = |used: u32| Some(used.saturating_sub(count));
        // Cannot fail: the closure always has an answer.
        let _ = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Notes that so many places were taken at a time. It is seldom more than ever before.
#[inline]
pub(crate) fn note_most(most: &AtomicU32, now: u32) {
    if now > most.load(Ordering::Relaxed) {
        most.fetch_max(now, Ordering::Relaxed);
    }
}
