//! The state where threads meet: one word, the epoll set that follows it, and the threads that rely on the
//! driver.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::{Arc, PoisonError};

use ferroce_sys::sync::prim::{AtomicU32, AtomicU64, Mutex, fence};
use ferroce_transport::Time;

use crate::state::{Event, Facts, State};
use crate::table::DOUBT;

/// The sockets of an engine, as its driver watches them.
pub trait Sockets {
    /// Has arrivals wake the driver from now on, or no longer. What is in the sockets already counts as an
    /// arrival.
    fn watch(&self, arrivals: bool);
}

/// How many completion queues of a device the program sleeps for, relying on the drivers: then none may be
/// parked. And for how many it has asked for an event on a channel: then one may be parked only for a program that polls on.
///
/// A thread first adds itself, then tells the duties of the engines ([`Event::Sleep`]). A thread that parks a
/// driver first changes the state, then looks here. Each writes before it reads what the other has written,
/// with a fence between: at least one of them sees the other, so the driver is armed in the end.
#[derive(Debug, Default)]
pub struct Sleepers {
    count: AtomicU32,
    asked: AtomicU32,
}

impl Sleepers {
    /// Counts one queue more.
    pub fn add(&self) {
        self.count.fetch_add(1, AcqRel);
        fence(SeqCst);
    }

    /// Counts one queue less.
    pub fn remove(&self) {
        self.count.fetch_sub(1, AcqRel);
    }

    /// How many queues are slept for.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.load(Acquire)
    }

    /// Counts one queue more for which the program has asked for an event.
    pub fn ask(&self) {
        self.asked.fetch_add(1, AcqRel);
        fence(SeqCst);
    }

    /// Counts one queue less: its event has come, or the queue goes.
    pub fn answer(&self) {
        self.asked.fetch_sub(1, AcqRel);
    }

    fn facts(&self, is_doubted: bool) -> Facts {
        Facts { is_relied_on: self.count() > 0, is_asked: self.asked.load(Acquire) > 0, is_doubted }
    }
}

/// The state of one engine's driver, shared by all threads.
#[derive(Debug)]
pub struct Duty<S> {
    /// A [`State`].
    word: AtomicU32,
    /// Until when a program that was found gone is doubted, in nanoseconds.
    doubted_until: AtomicU64,
    sleepers: Arc<Sleepers>,
    sockets: S,
    /// Whether the sockets are watched: as the word says, each time that the lock is free.
    watched: Mutex<bool>,
}

impl<S: Sockets> Duty<S> {
    /// A driver that is armed. The sockets are watched already; `sleepers` are those of the whole device.
    pub fn new(sockets: S, sleepers: Arc<Sleepers>) -> Self {
        Self {
            word: AtomicU32::new(State::NEW.pack()),
            doubted_until: AtomicU64::new(0),
            sleepers,
            sockets,
            watched: Mutex::new(true),
        }
    }

    /// The sockets that are watched.
    pub const fn sockets(&self) -> &S {
        &self.sockets
    }

    /// The state of this moment.
    #[inline]
    #[must_use]
    pub fn state(&self) -> State {
        State::unpack(self.word.load(Acquire))
    }

    /// Whether a thread or a future of the program sleeps and relies on the driver, or may do so.
    #[must_use]
    pub fn is_relied_on(&self) -> bool {
        let facts = self.sleepers.facts(false);
        facts.is_relied_on || facts.is_asked
    }

    /// Whether the program is doubted: it was found gone a moment ago.
    #[must_use]
    pub fn is_doubted(&self, now: Time) -> bool {
        now.nanos() < self.doubted_until.load(Relaxed)
    }

    /// Doubts the program from now on: it was found gone.
    pub fn doubt(&self, now: Time) {
        self.doubted_until.store((now + DOUBT).nanos(), Relaxed);
    }

    /// Notes that a program found completions without looking at the sockets. Whether the driver was parked
    /// for it.
    #[inline]
    pub fn found(&self, now: impl FnOnce() -> Time) -> bool {
        let state = self.state();
        state.armed && self.found_something(Event::Found, state, now)
    }

    /// Notes that a program looked at the sockets. Whether the driver was parked for it.
    #[inline]
    pub fn polled(&self, received: bool, now: impl FnOnce() -> Time) -> bool {
        let (state, event) = (self.state(), Event::Polled { received });
        if state.stays_after_poll(received) {
            return false;
        }
        if received {
            return self.found_something(event, state, now);
        }
        self.change(event, state.asks_and_polls() && self.is_doubted(now()))
    }

    /// Polls that find something say little, so the clock is asked about them only now and then.
    fn found_something(&self, event: Event, state: State, now: impl FnOnce() -> Time) -> bool {
        self.change(event, state.is_kept_busy() && self.is_doubted(now()))
    }

    /// Notes anything else that happened. Whether the driver was parked for it.
    pub fn note(&self, event: Event) -> bool {
        self.change(event, false)
    }

    /// Lets a thread sleep on the sockets in the driver's place. `None` if another one does, or one relies on
    /// the driver; else whether the driver was parked for it.
    pub fn sit(&self) -> Option<bool> {
        let facts = self.sleepers.facts(false);
        let (before, after) = self.step(Event::Sit, facts);
        (before.seated != after.seated).then(|| before.armed && self.follow(before, after, facts))
    }

    /// Takes the next state; says whether that parked the driver.
    fn change(&self, event: Event, is_doubted: bool) -> bool {
        let facts = self.sleepers.facts(is_doubted);
        let (before, after) = self.step(event, facts);
        before.armed != after.armed && self.follow(before, after, facts)
    }

    /// One step of the policy, in one piece.
    fn step(&self, event: Event, facts: Facts) -> (State, State) {
        let mut word = self.word.load(Acquire);
        loop {
            let before = State::unpack(word);
            let after = before.after(event, facts);
            if after == before {
                return (before, after);
            }
            match self.word.compare_exchange_weak(word, after.pack(), AcqRel, Acquire) {
                Ok(_) => return (before, after),
                Err(changed) => word = changed,
            }
        }
    }

    /// Does what a step asks for, which knew these facts; says whether the driver is parked by it.
    #[cold]
    fn follow(&self, before: State, after: State, known: Facts) -> bool {
        let mut is_parked = before.armed && !after.armed;
        if is_parked {
            // A thread that begins to sleep from here on sees that it is parked.
            fence(SeqCst);
            let facts = self.sleepers.facts(false);
            if facts.is_relied_on || (facts.is_asked && !known.is_asked) {
                self.step(Event::Sleep, Facts::default());
                is_parked = false;
            }
        }
        self.follow_word();
        is_parked
    }

    /// Has the sockets watched as the word says. The last thread that changed the word comes here after it,
    /// so whatever the order, the last one in here sees the last word.
    fn follow_word(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let armed = self.state().armed;
        if *watched != armed {
            *watched = armed;
            self.sockets.watch(armed);
        }
    }
}
