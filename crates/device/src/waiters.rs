//! The threads and futures that wait for the completions of a queue.

use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use ferroce_progress::Sleepers;
use ferroce_sys::sync::lock;

/// Whether a waker needs the driver to take packets in meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reliance {
    /// No thread polls: the driver must not be parked.
    Driver,
    /// A thread watches the sockets, or the waker has time until a parked driver looks again.
    None,
}

/// A waker is here.
const WAITED_FOR: u8 = 1;

/// A waker that is here relies on the driver.
const RELIED_ON: u8 = 2;

/// The wakers of a completion queue.
#[derive(Debug)]
pub(crate) struct Waiters {
    wakers: Mutex<Vec<Waker>>,
    /// [`WAITED_FOR`] and [`RELIED_ON`]. Changed under the lock, read by engines without it.
    how: AtomicU8,
    /// Counts this queue while a waker relies on the driver.
    sleepers: Arc<Sleepers>,
}

impl Waiters {
    pub(crate) fn new(sleepers: Arc<Sleepers>) -> Self {
        Self { wakers: Mutex::default(), how: AtomicU8::new(0), sleepers }
    }

    /// Whether any wakers are here. An engine asks this after it has added a completion, with a fence
    /// between.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.how.load(Ordering::SeqCst) != 0
    }

    /// Keeps a waker. The caller then looks for completions once more: it sees what an engine has added, or
    /// the engine sees the waker.
    pub(crate) fn add(&self, waker: &Waker, reliance: Reliance) {
        let mut wakers = lock(&self.wakers);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        let how = match reliance {
            Reliance::Driver => WAITED_FOR | RELIED_ON,
            Reliance::None => WAITED_FOR,
        };
        if self.how.fetch_or(how, Ordering::SeqCst) & RELIED_ON < how & RELIED_ON {
            self.sleepers.add();
        }
        drop(wakers);
        fence(Ordering::SeqCst);
    }

    /// Forgets a waker whose thread is awake.
    pub(crate) fn remove(&self, waker: &Waker) {
        let mut wakers = lock(&self.wakers);
        wakers.retain(|known| !known.will_wake(waker));
        if wakers.is_empty() {
            self.change_to(0);
        }
    }

    /// Has no waker that is here rely on the driver any more.
    pub(crate) fn relax(&self) {
        let _wakers = lock(&self.wakers);
        self.change_to(self.how.load(Ordering::SeqCst) & WAITED_FOR);
    }

    /// Wakes all waiters.
    pub(crate) fn wake_all(&self) {
        let wakers = {
            let mut wakers = lock(&self.wakers);
            self.change_to(0);
            std::mem::take(&mut *wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Sets how there are waiters, to less than before; for the thread that has the lock.
    fn change_to(&self, how: u8) {
        if self.how.swap(how, Ordering::SeqCst) & RELIED_ON != 0 {
            self.sleepers.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_counts_once_and_until_the_last_waker_that_relies_on_the_driver_is_gone() {
        let sleepers = Arc::new(Sleepers::default());
        let waiters = Waiters::new(Arc::clone(&sleepers));
        let waker = Waker::noop();
        waiters.add(waker, Reliance::None);
        assert_eq!((waiters.are_any(), sleepers.count()), (true, 0));
        for _ in 0..2 {
            waiters.add(waker, Reliance::Driver);
            assert_eq!(sleepers.count(), 1);
        }
        waiters.relax();
        assert_eq!((waiters.are_any(), sleepers.count()), (true, 0));
        waiters.relax();
        waiters.add(waker, Reliance::Driver);
        waiters.remove(waker);
        assert_eq!((waiters.are_any(), sleepers.count()), (false, 0));
        waiters.add(waker, Reliance::Driver);
        waiters.wake_all();
        waiters.wake_all();
        assert_eq!((waiters.are_any(), sleepers.count()), (false, 0));
    }
}
