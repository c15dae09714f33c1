//! The primitives under everything here: those of `std`, or those of loom with `--cfg loom`.

#[cfg(loom)]
pub use self::modelled::*;
#[cfg(not(loom))]
pub use self::real::*;

#[cfg(not(loom))]
mod real {
    pub use std::hint::spin_loop as pause;
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub use std::sync::{Condvar, Mutex, MutexGuard};

    /// How often to look again before sleeping: about as long as a short turn takes.
    pub const SPINS: u32 = 100;

    /// Where threads sleep until a word changes: a futex.
    #[derive(Debug, Default)]
    pub struct Parking(());

    impl Parking {
        /// Sleeps while `word` holds `expected`, until [`wake_one`](Self::wake_one). It may also
        /// return for no reason.
        pub fn wait(&self, word: &AtomicU32, expected: u32) {
            let forever = std::ptr::null::<libc::timespec>();
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the word is aligned and lives as long as its borrow, which outlasts the call; no time
            // is pointed to. Every error (the word has changed, a signal came) only means to look again.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, forever) };
        }

        /// Wakes one thread that sleeps on `word`, if there is one.
        pub fn wake_one(&self, word: &AtomicU32) {
            let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the word is aligned and lives as long as its borrow, which outlasts the call; the
            // kernel uses only its address.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::sync::PoisonError;
    use std::sync::atomic::Ordering::SeqCst;

    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use loom::thread::yield_now as pause;

    /// Once: to look again shows a model nothing new.
    pub const SPINS: u32 = 1;

    /// Stands in for a futex: to compare and fall asleep is one step for threads that wake others. A thread
    /// that no other wakes is a deadlock, which loom reports.
    #[derive(Debug, Default)]
    pub struct Parking {
        bucket: Mutex<()>,
        woken: Condvar,
    }

    impl Parking {
        /// Sleeps if `word` holds `expected`, until [`wake_one`](Self::wake_one).
        pub fn wait(&self, word: &AtomicU32, expected: u32) {
            let bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            if word.load(SeqCst) == expected {
                drop(self.woken.wait(bucket));
            }
        }

        /// Wakes one thread that sleeps, if there is one.
        pub fn wake_one(&self, _: &AtomicU32) {
            drop(self.bucket.lock());
            self.woken.notify_one();
        }
    }
}
