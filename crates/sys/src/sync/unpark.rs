//! A waker that unparks a thread.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;

/// Unparks a thread that sleeps in [`park`](crate::clock::park).
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static THIS_THREAD: Waker = new();
}

fn new() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

/// The waker of this thread, which unparks it. Always the same one, so that a list that keeps each waker once
/// keeps one of it.
#[must_use]
pub fn this_thread() -> Waker {
    // A thread that is about to end has lost its own.
    THIS_THREAD.try_with(Waker::clone).unwrap_or_else(|_| new())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_one_waker_and_it_unparks_the_thread() {
        assert!(this_thread().will_wake(&this_thread()));
        let of_another = std::thread::spawn(this_thread).join().unwrap();
        assert!(!this_thread().will_wake(&of_another));
        this_thread().wake();
        std::thread::park();
    }
}
