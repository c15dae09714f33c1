//! How threads meet around an engine.
//!
//! There is no thread that must run for work to be done: the thread inside the [`Turnstile`] is the
//! engine, and a driver thread only comes when no other thread does. A thread that has work
//!
//! 1. puts it where the engine will find it (a [`Mailbox`], or a ring of its own),
//! 2. rings ([`Turnstile::ring`]),
//! 3. tries to enter ([`Turnstile::try_enter`]). If it cannot, it goes: the one inside will see the
//!    bell before it leaves,
//! 4. inside, takes the calls ([`Inside::take_calls`]), works, and leaves ([`Inside::leave`]). If
//!    another thread has rung meanwhile it is still inside and does another round,
//! 5. after a few rounds has done enough for others: it leaves the bell ringing
//!    ([`Inside::leave_ringing`]) and wakes the driver ([`Doze::wake_if_asleep`]).
//!
//! The driver announces that it goes to sleep ([`Doze::going_to_sleep`]), looks at the bell once
//! more, and sleeps. Completions come back over a [`ring`].
//!
//! Several engines have a turnstile each. What they have in common is divided into as many [`Share`]s:
//! a thread inside one of them may read it, and a thread inside all of them may change it.
//!
//! What only one thread can do, others send it to do as [`Errands`].
//!
//! Objects that are no engines, and that one thread uses most of the time, stand behind a [`Biased`] lock.
//!
//! `tests/loom.rs` runs exactly this under every interleaving; for that, [`prim`] alone decides
//! whose atomics these are.

mod biased;
mod doze;
mod errands;
mod mailbox;
pub mod prim;
pub mod ring;
mod share;
#[cfg(all(test, not(loom)))]
mod stress;
mod turnstile;
mod unpark;

pub use biased::{Biased, Guard, Habitual};
pub use doze::{Alarm, Doze};
pub use errands::Errands;
pub use mailbox::Mailbox;
pub use share::Share;
pub use turnstile::{Calls, Inside, Turnstile};
pub use unpark::this_thread;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks; a thread that panicked while it had the lock has left nothing half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `changed` is called, but not longer than that; it may also return for no reason.
#[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
pub fn wait_for<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
    changed.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
}
