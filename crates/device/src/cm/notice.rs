//! Something that threads and tasks wait for.

use std::fmt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::sync::{lock, wait_for};

/// A value that changes, for threads that sleep and tasks that are woken when it does.
pub struct Notice<T> {
    inside: Mutex<Inside<T>>,
    changed: Condvar,
}

struct Inside<T> {
    value: T,
    wakers: Vec<Waker>,
}

impl<T> Notice<T> {
    /// Tasks that are woken together.
    const WAKERS: usize = 1024;

    /// A value that nothing waits for yet.
    pub const fn new(value: T) -> Self {
        Self { inside: Mutex::new(Inside { value, wakers: Vec::new() }), changed: Condvar::new() }
    }

    /// Looks at the value, or changes it in a way that nothing waits for.
    pub fn look<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut lock(&self.inside).value)
    }

    /// Changes the value, and wakes all that wait.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut inside = lock(&self.inside);
        let result = change(&mut inside.value);
        let wakers = std::mem::take(&mut inside.wakers);
        drop(inside);
        self.changed.notify_all();
        // Outside of the lock: a waker may look at once.
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// Looks until something is found, sleeping in between, until the time is over; for ever without one.
    pub fn wait<R>(&self, timeout: Option<Duration>, mut look: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let end = timeout.map(|timeout| clock::now() + timeout);
        let mut inside = lock(&self.inside);
        loop {
            if let Some(found) = look(&mut inside.value) {
                return Some(found);
            }
            inside = match end.map(clock::until) {
                None => self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => wait_for(&self.changed, inside, left),
            };
        }
    }

    /// Looks once; if nothing is found, the waker is called with the next change.
    pub fn poll<R>(&self, waker: &Waker, look: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let mut inside = lock(&self.inside);
        let found = look(&mut inside.value);
        if found.is_some() || inside.wakers.iter().any(|known| known.will_wake(waker)) {
            return found;
        }
        // Of tasks that are gone, wakers are left; those that are not look again.
        let full = inside.wakers.len() >= Self::WAKERS;
        let crowd = if full { std::mem::take(&mut inside.wakers) } else { Vec::new() };
        inside.wakers.push(waker.clone());
        drop(inside);
        crowd.into_iter().for_each(Waker::wake);
        None
    }
}

impl<T: fmt::Debug> fmt::Debug for Notice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.look(|value| write!(f, "Notice({value:?})"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_thread_that_sleeps_hears_of_the_change() {
        let notice = Arc::new(Notice::new(0));
        let other = Arc::clone(&notice);
        let thread = std::thread::spawn(move || other.wait(None, |value| (*value == 5).then_some("five")));
        for value in 1..=5 {
            notice.change(|it| *it = value);
        }
        assert_eq!(thread.join().unwrap(), Some("five"));
        assert_eq!(notice.wait(Some(Duration::from_millis(1)), |value| (*value == 6).then_some(())), None);
    }

    #[test]
    fn a_task_is_woken_once_for_each_time_that_it_asked() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let notice = Notice::new(0);
        for _ in 0..3 {
            assert_eq!(notice.poll(&waker, |value| (*value == 2).then_some(())), None);
        }
        notice.change(|value| *value = 1);
        notice.change(|value| *value = 2);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(notice.poll(&waker, |value| (*value == 2).then_some(())), Some(()));
    }
}
