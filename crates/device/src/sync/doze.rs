//! How a driver sleeps without missing a call, and is woken without a system call too many.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use thiserror::Error;

use super::prim::{AtomicU32, fence};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Whether one sleeper is asleep, and the alarm that wakes it.
///
/// The sleeper says [`going_to_sleep`](Self::going_to_sleep), *then* looks for work once more, and
/// sleeps on the alarm only if there is none. A waker leaves its work first (it rings), *then* calls
/// [`wake_if_asleep`](Self::wake_if_asleep). Each side writes before it reads what the other has
/// written, with a fence between: at least one of them sees the other, so work is found or the alarm
/// sounds. Only the first waker of a sleep sounds it; a driver that is awake costs wakers no system
/// call.
#[derive(Debug)]
pub struct Doze<A = EventFd> {
    /// Changed by exchanges alone, so that all changes stand in one order that the model can follow.
    state: AtomicU32,
    alarm: A,
}

/// What a sleeper waits on.
pub trait Alarm {
    /// Wakes the sleeper; if nobody sleeps on it, the next one to do so is woken at once.
    fn sound(&self);

    /// Takes back every [`sound`](Self::sound) so far.
    fn silence(&self);
}

impl<A: Alarm> Doze<A> {
    /// A sleeper that is awake.
    #[must_use]
    pub fn new(alarm: A) -> Self {
        Self { state: AtomicU32::new(AWAKE), alarm }
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
        // In this order: nobody sounds the alarm for the next sleep before it is announced.
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

/// An eventfd: an [`Alarm`] to sleep on with `epoll` or `poll`, together with sockets. It is readable
/// while it sounds.
pub struct EventFd(OwnedFd);

/// Why there is no eventfd.
#[derive(Debug, Error)]
pub enum EventFdError {
    /// The kernel refused.
    #[error("the kernel gave no eventfd ({0}), one per engine is needed; raise the limit of open files")]
    Refused(#[source] io::Error),
}

impl EventFd {
    /// One that is silent, and is closed when another program is executed.
    ///
    /// # Errors
    /// The kernel gives none, as when too many files are open.
    pub fn new() -> Result<Self, EventFdError> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(EventFdError::Refused(io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl Alarm for EventFd {
    fn sound(&self) {
        let one = 1_u64;
        let from = &raw const one;
        // Raw, because the function of the C library may end a thread that was cancelled. It cannot fail:
        // the counter has room for more wakes than will ever be.
        // SAFETY: `one` has the eight bytes that are read and outlives the call; the descriptor is ours.
        unsafe { libc::syscall(libc::SYS_write, self.0.as_raw_fd(), from, size_of::<u64>()) };
    }

    fn silence(&self) {
        let mut count = 0_u64;
        let into = &raw mut count;
        // Reading takes the whole counter. If it was zero this fails at once, which is silence too.
        // SAFETY: `count` has room for the eight bytes that are written and outlives the call; the
        // descriptor is ours.
        unsafe { libc::syscall(libc::SYS_read, self.0.as_raw_fd(), into, size_of::<u64>()) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for EventFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventFd").field(&self.0.as_raw_fd()).finish()
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// Waits until the alarm sounds, at most so long; says whether it does.
    pub(crate) fn sounds(alarm: &EventFd, within: Duration) -> bool {
        let mut poll = libc::pollfd { fd: alarm.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = i32::try_from(within.as_millis()).expect("less than a month");
        // SAFETY: one entry is passed, and it outlives the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        assert!(ready >= 0, "poll: {}", io::Error::last_os_error());
        ready == 1
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
