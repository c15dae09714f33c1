//! Work for the thread inside a turnstile, from threads outside of it.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::prim::{AtomicBool, Mutex, MutexGuard};

/// A queue that any thread may put something into, and that is emptied as a whole.
///
/// It has no limit of its own: what goes in is limited by the queues above it. The room it was made
/// with is kept and changes hands when it is emptied, so a mailbox and a taker's queue that are
/// large enough never allocate again.
pub struct Mailbox<T> {
    items: Mutex<VecDeque<T>>,
    /// Whether there are items. Written under the lock only, so it never falls behind them.
    has: AtomicBool,
}

impl<T> Mailbox<T> {
    /// An empty mailbox with room for this many items before it has to grow.
    #[must_use]
    pub fn with_capacity(items: usize) -> Self {
        Self { items: Mutex::new(VecDeque::with_capacity(items)), has: AtomicBool::new(false) }
    }

    /// Puts an item in, behind all others. A thread that learns that this has returned finds the
    /// mailbox not empty, unless another thread has taken the item.
    pub fn push(&self, item: T) {
        let mut items = self.lock();
        items.push_back(item);
        self.has.store(true, Release);
    }

    /// Moves everything into `into`, behind what is there, oldest first. If `into` is empty the two
    /// queues are exchanged and nothing is copied.
    pub fn take(&self, into: &mut VecDeque<T>) {
        if self.is_empty() {
            return;
        }
        let mut items = self.lock();
        if into.is_empty() {
            mem::swap(&mut *items, into);
        } else {
            into.append(&mut items);
        }
        self.has.store(false, Release);
    }

    /// Whether nothing is inside. Costs one load.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has.load(Acquire)
    }

    /// The items, even if a thread panicked with the lock: a queue is whole between any two steps.
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_out_in_order() {
        let mailbox = Mailbox::with_capacity(2);
        let mut queue = VecDeque::new();
        mailbox.take(&mut queue);
        assert!(queue.is_empty() && mailbox.is_empty());
        mailbox.push(1);
        mailbox.push(2);
        assert!(!mailbox.is_empty());
        mailbox.take(&mut queue);
        assert!(mailbox.is_empty());
        mailbox.push(3);
        mailbox.take(&mut queue);
        assert_eq!(queue, [1, 2, 3]);
    }

    #[test]
    fn room_changes_hands_and_is_kept() {
        let mailbox = Mailbox::with_capacity(64);
        let mut queue = VecDeque::with_capacity(64);
        let buffers = |queue: &VecDeque<u64>| queue.as_slices().0.as_ptr();
        let mut seen = Vec::new();
        for round in 0..10 {
            (0..64).for_each(|item| mailbox.push(round * 64 + item));
            mailbox.take(&mut queue);
            seen.push(buffers(&queue));
            assert_eq!(queue.drain(..).count(), 64);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 2, "two buffers take turns");
    }
}
