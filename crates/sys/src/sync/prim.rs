//! The primitives under everything here: those of `std`, or those of loom with `--cfg loom`.

#[cfg(loom)]
pub use self::modelled::*;
#[cfg(not(loom))]
pub use self::real::*;

#[cfg(not(loom))]
mod real {
    use std::io::Write as _;

    pub use std::hint::spin_loop as pause;
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub use std::sync::{Condvar, Mutex, MutexGuard};

    /// How often to look again before sleeping: about as long as a short turn takes.
    pub const SPINS: u32 = 100;

    /// A barrier for the compiler alone, between a store and a load of this thread. With [`all_threads_fence`] of another thread it is a
    /// whole one.
    #[inline]
    pub fn own_fence() {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// A barrier in all threads of this process: each is at some point between two of its instructions meanwhile, with all stores
    /// before that point done, and no load after it begun.
    ///
    /// If the kernel cannot, though it could when threads were given numbers for this, the process ends: a panic would leave locks
    /// behind that two threads believe to have.
    pub fn all_threads_fence() {
        // A process that was forked may have to be registered anew.
        let done = membarrier(EXPEDITED)
            || (membarrier(REGISTER_EXPEDITED) && membarrier(EXPEDITED))
            || membarrier(GLOBAL);
        if !done {
            let _ = std::io::stderr().write_all(
                b"ferroce: the kernel refuses membarrier, which it did not when this process took its first lock of a card; \
                  forbid it before that, or not at all\n",
            );
            std::process::abort();
        }
    }

    const GLOBAL: libc::c_int = 1;
    const EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_EXPEDITED: libc::c_int = 1 << 4;

    fn membarrier(order: libc::c_int) -> bool {
        // SAFETY: the call takes numbers, and touches no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, order, 0, 0) == 0 }
    }

    /// A number of this thread that no other thread of the process has, at least 1; the same for all threads, `u32::MAX`, where there is no
    /// [`all_threads_fence`], or no number is left.
    #[inline]
    #[must_use]
    pub fn this_thread_number() -> u32 {
        match known_thread_number() {
            UNKNOWN => number_this_thread(),
            number => number,
        }
    }

    /// The same if this thread has been given one; else a number that no thread has.
    #[inline]
    #[must_use]
    pub fn known_thread_number() -> u32 {
        NUMBER.get()
    }

    const UNKNOWN: u32 = u32::MAX - 1;

    thread_local! {
        static NUMBER: std::cell::Cell<u32> = const { std::cell::Cell::new(UNKNOWN) };
    }

    #[cold]
    fn number_this_thread() -> u32 {
        use std::sync::OnceLock;
        use std::sync::atomic::Ordering::Relaxed;
        static CAN: OnceLock<bool> = OnceLock::new();
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = if *CAN.get_or_init(|| membarrier(REGISTER_EXPEDITED) && membarrier(EXPEDITED)) {
            let next = |last: u32| last.checked_add(1).filter(|number| *number < UNKNOWN);
            let last = LAST.fetch_update(Relaxed, Relaxed, next);
            last.map_or(u32::MAX, |last| last + 1)
        } else {
            u32::MAX
        };
        NUMBER.set(number);
        number
    }

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

    /// A whole barrier: the kernel's, of another thread, is one in this thread, too.
    pub fn own_fence() {
        fence(SeqCst);
    }

    /// Stands in for the kernel's barrier.
    pub fn all_threads_fence() {
        fence(SeqCst);
    }

    loom::thread_local! {
        static NUMBER: std::cell::Cell<u32> = std::cell::Cell::new(0);
    }

    /// A number of this thread that no other thread of the process has, at least 1.
    pub fn this_thread_number() -> u32 {
        static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        NUMBER.with(|number| {
            if number.get() == 0 {
                number.set(LAST.fetch_add(1, SeqCst) % 1_000_000 + 1);
            }
            number.get()
        })
    }

    /// The same: a thread of a model is given one when it is asked for first.
    pub fn known_thread_number() -> u32 {
        this_thread_number()
    }

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
