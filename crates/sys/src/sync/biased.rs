//! A lock that costs next to nothing while one thread has it again and again.
//!
//! An ordinary lock is two atomic operations, 40 cycles or so, and most locks of a data path are taken by one thread alone.
//! So a thread that has taken this one often in turn becomes its *habitual* thread, which takes it with plain loads and stores. As soon
//! as another thread wants it, that one takes the habit away, and the lock is an ordinary one again.
//!
//! The habitual thread says that it holds the lock, and looks whether the habit is still its own; the other thread takes the
//! habit away, and looks whether the lock is held. One of the two must see the other, which needs a barrier between the two
//! steps of each: the other thread has the kernel put one into all threads of the process (`membarrier`), so the habitual
//! one needs none of its own. Where the kernel cannot, the lock is an ordinary one for ever.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::prim::{
    AtomicU32, Mutex, MutexGuard, Parking, all_threads_fence, known_thread_number, own_fence,
    this_thread_number,
};

/// Mutual exclusion, cheap for a thread that comes often. It knows no poison: a thread that panics while it holds it lets go of it.
pub struct Biased<T> {
    /// The habitual thread and its place in `held`, as [`Habit`] has them; 0 without one.
    habit: AtomicU32,
    /// Whether the habitual thread is inside: each habit has a place of its own, so that a thread that is late in seeing that its
    /// habit was taken away disturbs no other.
    held: [AtomicU32; HABITS],
    parking: Parking,
    /// Held by all other threads while they are inside.
    shared: Mutex<Streak>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time gets to the value, as with a `Mutex`.
unsafe impl<T: Send> Send for Biased<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Biased<T> {}

/// How often a lock may get a habitual thread.
const HABITS: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 2;

/// How often a thread must come in turn to get the habit for the first time, the second and so on: taking it away costs a system call and an
/// interrupt of other processors, which then stay rare.
#[cfg(not(loom))]
const STREAKS: [u32; HABITS] = [64, 1 << 12, 1 << 16, 1 << 20];
#[cfg(loom)]
const STREAKS: [u32; HABITS] = [1, 1, 1, 1];

/// A thread that comes again and again.
#[derive(Debug)]
struct Streak {
    thread: u32,
    times: u32,
    /// Habits that there have been.
    habits: u32,
}

/// A thread by its number, and the place where it says that it is inside.
#[derive(Clone, Copy)]
struct Habit(u32);

impl Habit {
    const fn of(thread: u32, place: u32) -> Self {
        Self(thread << PLACE_BITS | place)
    }

    const fn thread(self) -> u32 {
        self.0 >> PLACE_BITS
    }

    const fn place(self) -> usize {
        self.0 as usize & (HABITS - 1)
    }
}

/// Numbers of threads that fit into a habit. Others, after a thousand million, never have one.
const MOST_THREADS: u32 = u32::MAX >> PLACE_BITS;

impl<T> Biased<T> {
    /// A lock around this value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            habit: AtomicU32::new(0),
            held: std::array::from_fn(|_| AtomicU32::new(0)),
            parking: Parking::default(),
            shared: Mutex::new(Streak { thread: 0, times: 0, habits: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, and waits for it as long as another thread has it.
    ///
    /// # Panics
    /// This thread has it already.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let held = self.enter();
        let shared = ManuallyDrop::new(if held.is_none() { Some(self.lock_shared()) } else { None });
        Guard { lock: self, held, shared, of: PhantomData }
    }

    /// Takes the lock if this thread has the habit: then it is free. A short way beside one that is longer, and takes the lock in any
    /// case.
    ///
    /// # Panics
    /// This thread has it already.
    #[inline(always)]
    pub fn lock_by_habit(&self) -> Option<Habitual<'_, T>> {
        let held = self.enter()?;
        Some(Habitual { lock: self, held, of: PhantomData })
    }

    /// Has the habitual thread take the lock; any other gets nothing. Where it says that it is inside.
    #[inline(always)]
    fn enter(&self) -> Option<&AtomicU32> {
        let habit = self.habit.load(Relaxed);
        // Threads are counted from 1, so without a habit it is no thread's; nor is it that of a thread without a number.
        if Habit(habit).thread() != known_thread_number() {
            return None;
        }
        let held = &self.held[Habit(habit).place()];
        assert!(held.load(Relaxed) == 0, "a thread takes a lock that it has");
        held.store(1, Relaxed);
        own_fence();
        if self.habit.load(Relaxed) == habit {
            return Some(held);
        }
        // It was taken away meanwhile.
        self.let_go(held);
        None
    }

    /// The value, of which there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[cold]
    fn lock_shared(&self) -> MutexGuard<'_, Streak> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let habit = self.habit.load(Relaxed);
        if habit != 0 {
            self.habit.store(0, Relaxed);
            all_threads_fence();
            // From here on the thread sees that its habit is gone, or this one that it is inside.
            let held = &self.held[Habit(habit).place()];
            while held.load(Acquire) != 0 {
                self.parking.wait(held, 1);
            }
            (shared.thread, shared.times) = (0, 0);
        }
        let thread = this_thread_number();
        if shared.thread == thread {
            shared.times = shared.times.saturating_add(1);
        } else {
            (shared.thread, shared.times) = (thread, 1);
        }
        shared
    }

    /// What a thread that has come often enough gets as it goes.
    #[cold]
    fn unlock_shared(&self, mut shared: MutexGuard<'_, Streak>) {
        let Some(needed) = STREAKS.get(shared.habits as usize) else { return };
        if shared.times >= *needed && (1..MOST_THREADS).contains(&shared.thread) {
            // What this thread has done under the lock is behind it in its own order.
            self.habit.store(Habit::of(shared.thread, shared.habits).0, Relaxed);
            shared.habits += 1;
            shared.times = 0;
        }
    }

    #[inline]
    fn let_go(&self, held: &AtomicU32) {
        held.store(0, Release);
        own_fence();
        // Another thread may wait for this.
        if self.habit.load(Relaxed) == 0 {
            self.wake(held);
        }
    }

    #[cold]
    fn wake(&self, held: &AtomicU32) {
        self.parking.wake_one(held);
    }
}

impl<T: Default> Default for Biased<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Biased(habit of thread {})", Habit(self.habit.load(Relaxed)).thread())
    }
}

/// The lock, held by this thread until this is dropped.
#[must_use = "the lock is held as long as this is"]
pub struct Guard<'a, T> {
    lock: &'a Biased<T>,
    /// Where a thread that has the habit says that it is inside.
    held: Option<&'a AtomicU32>,
    /// Of a thread that does not have it. It is taken out as the guard is dropped: what is dropped by itself would be looked at once
    /// more.
    shared: ManuallyDrop<Option<MutexGuard<'a, Streak>>>,
    /// It is as a reference to the value, and stays with its thread.
    of: PhantomData<(&'a mut T, *const ())>,
}

/// The lock, held by the thread that has the habit until this is dropped.
#[must_use = "the lock is held as long as this is"]
pub struct Habitual<'a, T> {
    lock: &'a Biased<T>,
    held: &'a AtomicU32,
    /// As above.
    of: PhantomData<(&'a mut T, *const ())>,
}

impl<T> Deref for Habitual<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock, so no other has a reference to the value, and this guard has lent none out to change
        // it.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Habitual<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Habitual<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.let_go(self.held);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock, so no other has a reference to the value, and this guard has lent none out to change
        // it.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(held) = self.held {
            return self.lock.let_go(held);
        }
        if let Some(shared) = self.shared.take() {
            self.lock.unlock_shared(shared);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    fn habitual<T>(lock: &Biased<T>) -> u32 {
        Habit(lock.habit.load(Relaxed)).thread()
    }

    fn often(lock: &Biased<u64>, times: u32) {
        for _ in 0..times {
            *lock.lock() += 1;
        }
    }

    #[test]
    fn a_thread_that_comes_often_has_the_habit_until_another_comes() {
        let lock = Arc::new(Biased::new(0_u64));
        often(&lock, STREAKS[0] - 1);
        assert_eq!(habitual(&lock), 0);
        often(&lock, 1);
        assert_eq!(habitual(&lock), this_thread_number());
        often(&lock, 1000);
        let other = Arc::clone(&lock);
        thread::spawn(move || *other.lock() += 1).join().unwrap();
        assert_eq!(habitual(&lock), 0);
        often(&lock, STREAKS[1]);
        assert_eq!(habitual(&lock), this_thread_number());
        assert_eq!(*lock.lock(), u64::from(STREAKS[0]) + 1000 + 1 + u64::from(STREAKS[1]));
    }

    #[test]
    fn threads_that_come_in_turn_never_get_the_habit() {
        let lock = Biased::new(0_u64);
        for _ in 0..STREAKS[0] {
            often(&lock, STREAKS[0] / 2);
            thread::scope(|scope| scope.spawn(|| often(&lock, STREAKS[0] / 2)).join()).unwrap();
        }
        assert_eq!(habitual(&lock), 0);
    }

    #[test]
    fn a_habit_is_not_given_for_ever() {
        let lock = Biased::new(0_u64);
        lock.shared.lock().unwrap().habits = u32::try_from(STREAKS.len()).unwrap();
        often(&lock, 2 * STREAKS[0]);
        assert_eq!(habitual(&lock), 0);
        assert_eq!(*lock.lock(), u64::from(2 * STREAKS[0]));
    }

    #[test]
    #[should_panic(expected = "a thread takes a lock that it has")]
    fn a_thread_does_not_take_twice_what_it_takes_by_habit() {
        let lock = Biased::new(0_u64);
        often(&lock, STREAKS[0]);
        let _first = lock.lock();
        let _second = lock.lock();
    }

    #[test]
    fn a_panic_lets_go_of_the_lock() {
        let lock = Biased::new(0_u64);
        often(&lock, STREAKS[0]);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("as it was meant to");
        }));
        assert!(ended.is_err());
        often(&lock, 1);
        thread::scope(|scope| scope.spawn(|| often(&lock, 1)).join()).unwrap();
        assert_eq!(*lock.lock(), u64::from(STREAKS[0]) + 2);
    }

    #[test]
    fn a_thread_that_wants_it_waits_until_the_habitual_one_lets_go() {
        let lock = Biased::new(0_u64);
        often(&lock, STREAKS[0]);
        thread::scope(|scope| {
            let mut guard = lock.lock();
            let other = scope.spawn(|| *lock.lock());
            // It has taken the habit away, and waits.
            while habitual(&lock) != 0 {
                thread::yield_now();
            }
            *guard = 7;
            drop(guard);
            assert_eq!(other.join().unwrap(), 7);
        });
    }

    #[test]
    fn no_count_is_lost_between_threads_that_come_and_go() {
        const TIMES: u32 = 20_000;
        let lock = Biased::new(0_u64);
        for round in 1..=6_u64 {
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| often(&lock, TIMES));
                }
            });
            // Alone for a while: it gets the habit, which the next round takes away.
            often(&lock, 100_000);
            assert_eq!(*lock.lock(), round * (3 * u64::from(TIMES) + 100_000));
        }
    }
}
