//! How a driver sleeps without missing a call, and is woken without a system call too many.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use super::prim::{AtomicU32, AtomicU64, fence};
use crate::descriptor::EventFd;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Whether one sleeper is asleep, until when, and the alarm that wakes it.
///
/// The sleeper says [`going_to_sleep`](Self::going_to_sleep), *then* looks for work once more, and
/// sleeps on the alarm only if there is none. A waker leaves its work first (it rings), *then* calls
/// [`wake_if_asleep`](Self::wake_if_asleep). Each side writes before it reads what the other has
/// written, with a fence between: at least one of them sees the other, so work is found or the alarm
/// sounds. Only the first waker of a sleep sounds it; a driver that is awake costs wakers no system
/// call.
///
/// A time at which the sleeper is needed is such work too: the sleeper forgets the old one
/// ([`look_around`](Self::look_around)) *before* it looks, others set it sooner
/// ([`no_later_than`](Self::no_later_than)) and then wake it, and it sleeps no longer than
/// [`until`](Self::until).
#[derive(Debug)]
pub struct Doze<A = EventFd> {
    /// Changed by exchanges alone, so that all changes stand in one order that the model can follow.
    state: AtomicU32,
    /// When the sleeper wakes by itself, in nanoseconds; [`NEVER`](Self::NEVER) for not at all.
    until: AtomicU64,
    alarm: A,
}

/// What a sleeper waits on.
pub trait Alarm {
    /// Wakes the sleeper; if no thread sleeps on it, the next one to do so is woken at once.
    fn sound(&self);

    /// Takes back every [`sound`](Self::sound) so far.
    fn silence(&self);
}

impl<A: Alarm> Doze<A> {
    /// The time of a sleeper that no thread needs.
    pub const NEVER: u64 = u64::MAX;

    /// A sleeper that is awake.
    #[must_use]
    pub fn new(alarm: A) -> Self {
        Self { state: AtomicU32::new(AWAKE), until: AtomicU64::new(Self::NEVER), alarm }
    }

    /// For the sleeper: begins to look for work, and has no time set any more.
    pub fn look_around(&self) {
        self.until.swap(Self::NEVER, AcqRel);
    }

    /// Sets the time at which the sleeper wakes, if that is sooner than before; whether it was.
    pub fn no_later_than(&self, nanos: u64) -> bool {
        self.until() > nanos && self.until.fetch_min(nanos, AcqRel) > nanos
    }

    /// When the sleeper wakes by itself, in nanoseconds.
    #[must_use]
    pub fn until(&self) -> u64 {
        self.until.load(Relaxed)
    }

    /// For the sleeper: announces sleep. It must then look for work again before it sleeps, and say
    /// [`awake`](Self::awake) in either case.
    pub fn going_to_sleep(&self) {
        self.state.swap(ASLEEP, AcqRel);
        fence(SeqCst);
    }

    /// For the sleeper: it is awake, or will not sleep after all. `sounded` says that the alarm was
    /// what woke it, which is then silenced. An alarm that sounds late, for a sleep that is over, ends
    /// the next sleep early and does no other harm.
    pub fn awake(&self, sounded: bool) {
        // In this order: no thread sounds the alarm for the next sleep before it is announced.
        self.state.swap(AWAKE, AcqRel);
        if sounded {
            self.alarm.silence();
        }
    }

    /// Wakes the sleeper if it sleeps or is about to; says whether the alarm was sounded. To be
    /// called after the work has been left, and not while inside the turnstile: it may make a system
    /// call.
    pub fn wake_if_asleep(&self) -> bool {
        fence(SeqCst);
        // The load spares the cache line of a driver that is awake.
        let wakes = self.state.load(Relaxed) == ASLEEP && self.state.swap(AWAKE, AcqRel) == ASLEEP;
        if wakes {
            self.alarm.sound();
        }
        wakes
    }

    /// What to sleep on.
    pub const fn alarm(&self) -> &A {
        &self.alarm
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// Waits until the alarm sounds, at most so long; says whether it does.
    pub(crate) fn sounds(alarm: &EventFd, within: Duration) -> bool {
        alarm.wait(Some(within)).expect("an eventfd can be waited for")
    }

    #[test]
    fn one_sound_for_each_sleep() {
        let doze = Doze::new(EventFd::new().unwrap());
        assert!(!doze.wake_if_asleep(), "it was awake");
        doze.going_to_sleep();
        assert!(!sounds(doze.alarm(), Duration::ZERO));
        assert!(doze.wake_if_asleep());
        assert!(!doze.wake_if_asleep(), "once is enough");
        assert!(sounds(doze.alarm(), Duration::ZERO));
        doze.awake(true);
        assert!(!sounds(doze.alarm(), Duration::ZERO));
        doze.going_to_sleep();
        assert!(doze.wake_if_asleep(), "and once again for the next sleep");
        doze.awake(true);
    }

    #[test]
    fn a_sleep_that_was_called_off_needs_no_sound() {
        let doze = Doze::new(EventFd::new().unwrap());
        doze.going_to_sleep();
        doze.awake(false);
        assert!(!doze.wake_if_asleep());
        doze.alarm().silence();
        assert!(!sounds(doze.alarm(), Duration::ZERO), "silence in silence changes nothing");
    }
}
