//! What posting needs to know of a queue pair without meeting its machine.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_transport::{Caps, DomainId, PostRules};

/// What posting needs to know of a queue pair without meeting its machine.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) domain: DomainId,
    pub(crate) caps: Caps,
    /// The receives come from a shared queue, which counts them itself.
    pub(crate) from_shared_queue: bool,
    pub(crate) rules: Mutex<PostRules>,
    /// Sends that have a place in the queue: posted, and the program has not heard of their end.
    pub(crate) sends: AtomicU32,
    /// Receives that have a place in the queue: posted, and the program has not heard of their end.
    pub(crate) receives: AtomicU32,
}

impl QpShared {
    /// Frees the places of so many sends.
    pub(crate) fn sends_retired(&self, count: u32) {
        release(&self.sends, count);
    }

    /// The program has taken so many completions of sends and receives.
    pub(crate) fn heard(&self, sends: u32, receives: u32) {
        release(&self.sends, sends);
        if !self.from_shared_queue {
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
