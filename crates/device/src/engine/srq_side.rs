//! The engine's side of shared receive queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_transport::{Level, Receive, ReceiveQueue, SharedQueueId};

/// The engine's side of a shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqSide {
    pub(crate) queue: ReceiveQueue,
    /// Below so many requests an event is raised, once. 0: never.
    pub(crate) limit: u32,
    /// Requests in the queue or on their way to it: the same number that posting counts up.
    pub(crate) waiting: Arc<AtomicU32>,
    /// The most that waited at a time; posting counts it too.
    pub(crate) most: Arc<AtomicU32>,
}

impl SrqSide {
    /// Moves the oldest request into `receive`; false if there is none.
    pub(crate) fn pop_into(&mut self, receive: &mut Receive) -> bool {
        let taken = self.queue.pop_into(receive);
        if taken {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// How many requests wait, and how many waited at most.
    pub(crate) fn level(&self) -> Level {
        let load = |count: &AtomicU32| count.load(Ordering::Relaxed);
        Level::new(load(&self.waiting), load(&self.most), self.queue.depth())
    }

    /// Whether the limit was reached just now. It is reached once, until it is set again.
    pub(crate) const fn reached_limit(&mut self) -> bool {
        let reached = self.limit > 0 && self.queue.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }
}

/// Bits of a shared queue's number that say where in its engine it is; those above say which engine.
pub(crate) const PLACE_BITS: u32 = 16;

/// Where in its engine the shared queue of this number is.
pub(crate) const fn place_of(id: SharedQueueId) -> usize {
    (id.0 & ((1 << PLACE_BITS) - 1)) as usize
}
