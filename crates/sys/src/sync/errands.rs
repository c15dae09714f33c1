//! Errands for one thread, from threads that wait for what comes of them.

use std::fmt;
use std::sync::PoisonError;

use super::prim::{Condvar, Mutex, MutexGuard};

/// Where one thread does what others ask for, one errand at a time.
pub struct Errands<Q, A> {
    state: Mutex<State<Q, A>>,
    /// There is something to do for the thread that does errands.
    sent: Condvar,
    /// There is something to see for the threads that send it.
    done: Condvar,
}

struct State<Q, A> {
    errand: Option<Q>,
    answer: Option<A>,
    /// An errand is under way, or its answer waits for its sender.
    busy: bool,
    /// No more errands will come.
    over: bool,
    /// No more errands will be done.
    gone: bool,
}

impl<Q, A> Errands<Q, A> {
    /// Nothing to do yet.
    #[must_use]
    pub fn new() -> Self {
        let state = State { errand: None, answer: None, busy: false, over: false, gone: false };
        Self { state: Mutex::new(state), sent: Condvar::new(), done: Condvar::new() }
    }

    /// What came of an errand, waited for; `None` if no thread does any more.
    pub fn send(&self, errand: Q) -> Option<A> {
        let mut state = self.lock();
        while state.busy && !state.gone {
            state = wait(&self.done, state);
        }
        if state.over || state.gone {
            return None;
        }
        state.busy = true;
        state.errand = Some(errand);
        self.sent.notify_one();
        while state.answer.is_none() && !state.gone {
            state = wait(&self.done, state);
        }
        state.busy = false;
        self.done.notify_all();
        state.answer.take()
    }

    /// Does errands until there will be no more.
    pub fn work(&self, mut act: impl FnMut(Q) -> A) {
        let _leaving = Leaving(self);
        while let Some(errand) = self.next() {
            let answer = act(errand);
            self.lock().answer = Some(answer);
            self.done.notify_all();
        }
    }

    fn next(&self) -> Option<Q> {
        let mut state = self.lock();
        loop {
            if let Some(errand) = state.errand.take() {
                return Some(errand);
            }
            if state.over {
                return None;
            }
            state = wait(&self.sent, state);
        }
    }

    /// There will be no more errands: the thread that does them ends when it has done the last.
    pub fn end(&self) {
        self.lock().over = true;
        self.sent.notify_one();
    }

    /// The state, even if a thread panicked with the lock: it is whole between any two steps.
    fn lock(&self) -> MutexGuard<'_, State<Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// The thread that does errands leaves, in whatever way: none waits for it any more.
struct Leaving<'a, Q, A>(&'a Errands<Q, A>);

impl<Q, A> Drop for Leaving<'_, Q, A> {
    fn drop(&mut self) {
        self.0.lock().gone = true;
        self.0.done.notify_all();
    }
}

impl<Q, A> Default for Errands<Q, A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Q, A> fmt::Debug for Errands<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Errands")
    }
}
