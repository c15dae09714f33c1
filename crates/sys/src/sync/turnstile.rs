//! The lock of an engine and its bell, in one word.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use bitflags::bitflags;

use super::prim::{self, AtomicU32, Parking};

bitflags! {
    /// What the bell was rung for. Each reason has a bit of its own, so that a turn which sees to
    /// one does not silence another.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Calls: u32 {
        /// Work was posted.
        const POSTED = 1 << 8;
        /// Packets may have arrived. The thread that takes this call reads until nothing is left, or rings
        /// again.
        const ARRIVED = 1 << 9;
        /// A time has come.
        const TIMER = 1 << 10;
    }
}

/// A thread is inside.
const INSIDE: u32 = 1 << 0;
/// Threads may be asleep in [`Turnstile::enter`]: the thread that leaves wakes one.
const WAITING: u32 = 1 << 1;
/// The bits of all calls.
const CALLS: u32 = Calls::all().bits();

/// Lets one thread at a time to a value, and has a bell that the thread inside hears.
///
/// The lock and the bell are bits of one atomic word, and that is the whole protocol: all changes
/// of one word have one order. A thread that rings, then finds another thread inside, has rung *before*
/// that one leaves; and leaving is a single step that looks at the bell, so it sees the call and
/// stays ([`Inside::leave`]) or goes with the duty to send another thread ([`Inside::leave_ringing`]).
/// A thread that rings after the last one has left finds no thread inside, and enters itself. So no
/// call is ever lost, and no thread that rings ever has to wait.
///
/// Entering and leaving cost one read-modify-write each, and taking calls one more if there are any.
pub struct Turnstile<T> {
    word: AtomicU32,
    parking: Parking,
    value: UnsafeCell<T>,
}

// SAFETY: a shared turnstile hands out the value to one thread at a time (the bit INSIDE, kept by
// `try_enter`, `enter` and the two ways to leave), which is to send it from thread to thread.
unsafe impl<T: Send> Sync for Turnstile<T> {}

impl<T> Turnstile<T> {
    /// A turnstile around `value`: no thread is inside and none has rung.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), parking: Parking::default(), value: UnsafeCell::new(value) }
    }

    /// Says that there is something to do. It never waits. What this thread did before is seen by
    /// the thread that takes the calls.
    ///
    /// The caller then tries to enter, or sees to it that another thread does.
    pub fn ring(&self, calls: Calls) {
        self.word.fetch_or(calls.bits() & CALLS, SeqCst);
    }

    /// What the bell is ringing for.
    #[must_use]
    pub fn is_ringing(&self) -> Calls {
        Calls::from_bits_truncate(self.word.load(SeqCst))
    }

    /// Enters if no thread is inside.
    #[must_use]
    pub fn try_enter(&self) -> Option<Inside<'_, T>> {
        // A look first, because a taken turnstile should not cost its owner the cache line. It cannot be
        // older than our own ring, so the one it sees inside has still to leave.
        if self.word.load(Relaxed) & INSIDE != 0 || self.word.fetch_or(INSIDE, Acquire) & INSIDE != 0 {
            return None;
        }
        Some(self.inside())
    }

    /// Enters, and waits for it if it must: for control paths, never for posting or polling. A thread
    /// that comes by at the right moment may enter first.
    pub fn enter(&self) -> Inside<'_, T> {
        for _ in 0..prim::SPINS {
            if let Some(inside) = self.try_enter() {
                return inside;
            }
            prim::pause();
        }
        loop {
            // WAITING is set even if we get in: leaving clears it and wakes one thread, and that one cannot
            // know whether others still sleep. The last one wakes none, at the price of one call.
            let before = self.word.fetch_or(INSIDE | WAITING, Acquire);
            if before & INSIDE == 0 {
                return self.inside();
            }
            self.parking.wait(&self.word, before | WAITING);
        }
    }

    /// The value, without a lock: no other thread can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// For the thread that has just set the bit INSIDE.
    fn inside(&self) -> Inside<'_, T> {
        Inside { turnstile: self, value: PhantomData }
    }

    /// Opens the turnstile; only for the thread inside, which must not touch the value any more.
    fn go(&self) -> Calls {
        let before = self.word.fetch_and(!(INSIDE | WAITING), SeqCst);
        self.wake_if_waiting(before);
        Calls::from_bits_truncate(before)
    }

    fn wake_if_waiting(&self, before: u32) {
        if before & WAITING != 0 {
            self.parking.wake_one(&self.word);
        }
    }
}

impl<T> fmt::Debug for Turnstile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Relaxed);
        f.debug_struct("Turnstile")
            .field("inside", &(word & INSIDE != 0))
            .field("waiting", &(word & WAITING != 0))
            .field("ringing", &Calls::from_bits_truncate(word))
            .finish_non_exhaustive()
    }
}

/// Being inside a [`Turnstile`]: the way to its value.
///
/// Dropping it leaves as [`leave_ringing`](Self::leave_ringing) does, so that a panic shuts no thread
/// out; but then no thread is told of the calls that are left: a guard of the caller wakes the driver.
#[must_use = "the thread inside has to work and leave"]
pub struct Inside<'a, T> {
    turnstile: &'a Turnstile<T>,
    /// What this stands for: sharing it between threads is sharing the value.
    value: PhantomData<&'a mut T>,
}

impl<T> Inside<'_, T> {
    /// Takes the calls off the bell. A call that comes later is seen when leaving.
    pub fn take_calls(&mut self) -> Calls {
        let word = &self.turnstile.word;
        if word.load(Relaxed) & CALLS == 0 {
            return Calls::empty();
        }
        Calls::from_bits_truncate(word.fetch_and(!CALLS, SeqCst))
    }

    /// Whether a thread has rung since the calls were last taken: a look that costs little.
    #[inline]
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.turnstile.word.load(Relaxed) & CALLS != 0
    }

    /// Rings for the thread that comes next, when a turn could not finish. To leave after this takes
    /// [`leave_ringing`](Self::leave_ringing).
    pub fn ring(&self, calls: Calls) {
        if !calls.is_empty() {
            self.turnstile.ring(calls);
        }
    }

    /// Leaves, unless a thread has rung since the calls were last taken.
    ///
    /// # Errors
    /// A thread has rung: the caller is still inside.
    pub fn leave(self) -> Result<(), Self> {
        let mut before = INSIDE;
        while let Err(now) = self.turnstile.word.compare_exchange(before, 0, SeqCst, Relaxed) {
            if now & CALLS != 0 {
                return Err(self);
            }
            before = now;
        }
        let turnstile = self.turnstile;
        mem::forget(self);
        turnstile.wake_if_waiting(before);
        Ok(())
    }

    /// Leaves in any case and returns the calls that are still ringing. If there are any, the
    /// caller must see to it that another thread comes: it wakes the driver.
    #[must_use = "if calls are left, a thread has to be sent"]
    pub fn leave_ringing(self) -> Calls {
        let turnstile = self.turnstile;
        mem::forget(self);
        turnstile.go()
    }
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        self.turnstile.go();
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only one `Inside` exists at a time (the turnstile's bit INSIDE), and it lends the value
        // for no longer than it is borrowed itself.
        unsafe { &*self.turnstile.value.get() }
    }
}

impl<T> DerefMut for Inside<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one `Inside` exists at a time (the turnstile's bit INSIDE), and it is borrowed for
        // itself alone as long as the value is.
        unsafe { &mut *self.turnstile.value.get() }
    }
}

impl<T> fmt::Debug for Inside<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inside").field(self.turnstile).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn one_at_a_time() {
        let turnstile = Turnstile::new(1);
        let mut inside = turnstile.try_enter().unwrap();
        *inside += 1;
        assert!(turnstile.try_enter().is_none());
        inside.leave().unwrap();
        assert_eq!(*turnstile.try_enter().unwrap(), 2);
        assert_eq!(*turnstile.enter(), 2);
    }

    #[test]
    fn a_thread_that_heard_the_bell_stays() {
        let turnstile = Turnstile::new(());
        let inside = turnstile.try_enter().unwrap();
        turnstile.ring(Calls::POSTED);
        turnstile.ring(Calls::TIMER);
        let mut inside = inside.leave().unwrap_err();
        assert!(turnstile.try_enter().is_none(), "refusing to leave is not leaving");
        assert_eq!(inside.take_calls(), Calls::POSTED | Calls::TIMER);
        assert_eq!(inside.take_calls(), Calls::empty());
        inside.leave().unwrap();
        assert_eq!(turnstile.is_ringing(), Calls::empty());
    }

    #[test]
    fn calls_outlast_the_thread_that_leaves_them() {
        let turnstile = Turnstile::new(());
        let inside = turnstile.try_enter().unwrap();
        inside.ring(Calls::ARRIVED);
        assert_eq!(inside.leave_ringing(), Calls::ARRIVED);
        assert_eq!(turnstile.is_ringing(), Calls::ARRIVED);
        let mut next = turnstile.try_enter().unwrap();
        assert_eq!(next.take_calls(), Calls::ARRIVED);
        assert_eq!(next.leave_ringing(), Calls::empty());
    }

    #[test]
    fn a_bit_that_is_no_call_does_not_lock() {
        let turnstile = Turnstile::new(());
        turnstile.ring(Calls::from_bits_retain(u32::MAX));
        assert_eq!(turnstile.is_ringing(), Calls::all());
        assert!(turnstile.try_enter().is_some());
    }

    #[test]
    fn a_panic_inside_shuts_no_thread_out() {
        let turnstile = Turnstile::new(0);
        turnstile.ring(Calls::POSTED);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let mut inside = turnstile.enter();
            *inside = 7;
            panic!("on purpose");
        }));
        assert!(caught.is_err());
        let mut inside = turnstile.try_enter().unwrap();
        assert_eq!((*inside, inside.take_calls()), (7, Calls::POSTED));
    }
}
