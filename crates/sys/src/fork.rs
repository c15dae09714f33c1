//! What a forked child must not keep: the parent's place in the switchboard.
//!
//! A child that holds the sockets of a group would keep a dead group alive; one that holds a connection
//! would hide the death of a leader. So a handler, which runs in the child before `fork` returns there,
//! puts something harmless in the place of each such descriptor. The numbers stay in use: objects from
//! before the fork may close them later, and must not hit others. A page that the kernel wipes in
//! children could tell that a fork happened, but not close anything; hence the handler. It makes system
//! calls and touches atomics only, as is right between `fork` and `exec`.
//!
//! The handler also counts the *generation* of the process up. Objects remember theirs, and return errors
//! in any other.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use libc::c_void;

use crate::cancel::Uncancelled;
use crate::clock;
use crate::descriptor::owned;

/// How often this process was forked from one that had used the switchboard.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// All records ever made; they are used again, and never freed.
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

/// A thread has descriptors that no record knows yet, or no longer. No fork meanwhile.
static HELD: AtomicBool = AtomicBool::new(false);

/// The fork that is under way has waited for its turn.
static FORKING: AtomicBool = AtomicBool::new(false);

/// Descriptors that a record has room for: all sockets of a group, those for sending and for multicast
/// groups, and the leader's connections.
const MOST: usize = 2048;

/// Which process this is, counted in forks.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// What one membership must not leave to a child.
pub struct Record {
    next: *mut Record,
    used: AtomicBool,
    descriptors: [AtomicI32; MOST],
    map: AtomicPtr<c_void>,
    map_len: AtomicUsize,
    /// What takes the place of descriptors in a child: an event that is never signalled.
    blank: AtomicI32,
}

// SAFETY: `next` is written before a record is shown to any other thread, and records are never freed.
unsafe impl Sync for Record {}

/// The right to have descriptors that no record knows.
#[derive(Debug)]
pub struct Held(());

/// Waits until no fork is under way, and keeps others from beginning.
pub fn hold() -> Held {
    while HELD.swap(true, Ordering::Acquire) {
        clock::pause(Duration::from_micros(50));
    }
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.store(false, Ordering::Release);
    }
}

impl Record {
    /// A record with nothing in it. From now on forks are noticed.
    pub fn acquire() -> io::Result<&'static Self> {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the three handlers are functions of this program, which live as long as it does.
            unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
        });
        let mut at = RECORDS.load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: records in the list are never freed.
            let record: &'static Self = unsafe { &*at };
            if !record.used.swap(true, Ordering::AcqRel) {
                return match blank() {
                    Ok(blank) => {
                        record.blank.store(blank, Ordering::Relaxed);
                        Ok(record)
                    }
                    Err(error) => {
                        record.used.store(false, Ordering::Release);
                        Err(error)
                    }
                };
            }
            at = record.next;
        }
        Self::add()
    }

    fn add() -> io::Result<&'static Self> {
        let blank = blank()?;
        let record = Box::into_raw(Box::new(Self {
            next: RECORDS.load(Ordering::Acquire),
            used: AtomicBool::new(true),
            descriptors: [const { AtomicI32::new(-1) }; MOST],
            map: AtomicPtr::new(ptr::null_mut()),
            map_len: AtomicUsize::new(0),
            blank: AtomicI32::new(blank),
        }));
        loop {
            // SAFETY: the record is not in the list yet, so this is the only place that knows it.
            let next = unsafe { &raw mut (*record).next };
            // SAFETY: as above.
            let expected = unsafe { *next };
            match RECORDS.compare_exchange(expected, record, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: it is in the list now, and stays there.
                Ok(_) => return Ok(unsafe { &*record }),
                // SAFETY: it still is not.
                Err(other) => unsafe { *next = other },
            }
        }
    }

    /// Remembers a descriptor; false if there is no room.
    pub fn track(&self, _: &Held, fd: RawFd) -> bool {
        let free = |place: &&AtomicI32| place.load(Ordering::Relaxed) < 0;
        self.descriptors.iter().find(free).map(|place| place.store(fd, Ordering::Relaxed)).is_some()
    }

    /// Forgets it, because it is going to be closed.
    pub fn untrack(&self, _: &Held, fd: RawFd) {
        let known = |place: &&AtomicI32| place.load(Ordering::Relaxed) == fd;
        if let Some(place) = self.descriptors.iter().find(known) {
            place.store(-1, Ordering::Relaxed);
        }
    }

    /// Whether a child would lose this descriptor.
    pub fn tracks(&self, fd: RawFd) -> bool {
        self.descriptors.iter().any(|place| place.load(Ordering::Relaxed) == fd)
    }

    /// Remembers where a shared file is mapped, and how much of it.
    ///
    /// # Safety
    /// Until the record is released, the mapping is there, and zeroes are values of everything in it: in a
    /// forked child private zeroes take its place, where objects from before the fork may still look.
    pub unsafe fn track_map(&self, _: &Held, map: *mut c_void, len: usize) {
        self.map_len.store(len, Ordering::Relaxed);
        self.map.store(map, Ordering::Relaxed);
    }

    /// Forgets everything: the record may be used by others.
    pub fn release(&self, _: &Held) {
        self.clear();
        let blank = self.blank.swap(-1, Ordering::Relaxed);
        // SAFETY: the record made it when it was acquired, and no other thread closes it: it was taken out
        // just now.
        unsafe { libc::close(blank) };
        self.used.store(false, Ordering::Release);
    }

    fn clear(&self) {
        for place in &self.descriptors {
            place.store(-1, Ordering::Relaxed);
        }
        self.map.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// What takes the place of a descriptor: it fails where a socket is expected.
fn blank() -> io::Result<RawFd> {
    // SAFETY: a system call without pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(IntoRawFd::into_raw_fd)
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Record")
    }
}

/// A descriptor that no child keeps.
#[derive(Debug)]
pub struct Tracked {
    descriptor: ManuallyDrop<OwnedFd>,
    record: &'static Record,
    generation: u32,
}

impl Tracked {
    /// What `open` gives, remembered before any fork can happen.
    pub fn open(record: &'static Record, open: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Self> {
        let held = hold();
        let descriptor = open()?;
        Self::adopt(record, &held, descriptor)
    }

    /// A descriptor that came while forks were held back.
    pub fn adopt(record: &'static Record, held: &Held, descriptor: OwnedFd) -> io::Result<Self> {
        if !record.track(held, descriptor.as_raw_fd()) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(Self { descriptor: ManuallyDrop::new(descriptor), record, generation: generation() })
    }

    /// Its number, for calls that take numbers. It is open as long as this lives.
    #[must_use]
    pub fn raw(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl AsFd for Tracked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let held = hold();
        if self.generation == generation() {
            self.record.untrack(&held, self.raw());
        }
        // SAFETY: it is dropped here and nowhere else, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.descriptor) };
    }
}

/// Something that every process has for itself, although fork copies memory: a child begins with a new one.
/// The parent's may be locked by a thread that the child does not have.
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<(u32, T)>,
}

impl<T: Default + Sync + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default + Sync + 'static> PerProcess<T> {
    /// None yet: it is made at the first use.
    #[must_use]
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// This process's own. It lives for ever.
    pub fn get(&'static self) -> &'static T {
        loop {
            let at = self.current.load(Ordering::Acquire);
            // SAFETY: what the pointer was set to is never freed.
            if let Some((of, value)) = unsafe { at.as_ref() }
                && *of == generation()
            {
                return value;
            }
            let new = Box::into_raw(Box::new((generation(), T::default())));
            if self.current.compare_exchange(at, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}

/// Before a fork: waits until every descriptor is known to a record, but not for ever: a thread that forks
/// while it holds them itself, in a handler of a signal, would wait for itself. What such a fork costs: the
/// child may keep the one descriptor, or those of a group that was just being joined, that no record knew in
/// that moment, until it ends or becomes another program. While it does, the group's port cannot be had by a
/// new group; members are not disturbed. All that records knew is replaced in the child as after any other
/// fork.
extern "C" fn before() {
    let _whole = Uncancelled::new();
    for _ in 0..PATIENCE {
        if !HELD.swap(true, Ordering::Acquire) {
            FORKING.store(true, Ordering::Relaxed);
            return;
        }
        let moment = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: the pointer is to a time that lives during the call; the rest is not asked for.
        unsafe { libc::nanosleep(&raw const moment, ptr::null_mut()) };
    }
}

/// Steps of 50 us that a fork waits: a second.
const PATIENCE: usize = 20_000;

/// After a fork, in both processes.
extern "C" fn after() {
    if FORKING.swap(false, Ordering::Relaxed) {
        HELD.store(false, Ordering::Release);
    }
}

extern "C" fn in_child() {
    let _whole = Uncancelled::new();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let mut at = RECORDS.load(Ordering::Acquire);
    while !at.is_null() {
        // SAFETY: records in the list are never freed.
        let record = unsafe { &*at };
        if record.used.load(Ordering::Acquire) {
            leave_to_parent(record);
            record.clear();
            let blank = record.blank.swap(-1, Ordering::Relaxed);
            // SAFETY: as in `release`. Its copies in the places of the others stay.
            unsafe { libc::close(blank) };
            record.used.store(false, Ordering::Release);
        }
        at = record.next;
    }
    HELD.store(false, Ordering::Release);
    FORKING.store(false, Ordering::Relaxed);
}

fn leave_to_parent(record: &Record) {
    let blank = record.blank.load(Ordering::Relaxed);
    for place in &record.descriptors {
        let fd = place.load(Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: takes and gives plain numbers. Both descriptors are ours: `fd` is in the record of a
            // membership, which keeps it open until it has taken it out.
            unsafe { libc::dup3(blank, fd, libc::O_CLOEXEC) };
        }
    }
    let map = record.map.load(Ordering::Relaxed);
    if !map.is_null() {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let len = record.map_len.load(Ordering::Relaxed);
        // SAFETY: a mapping of exactly this length is replaced by zeroes, which are values of everything in
        // it: so promised the caller of `track_map`.
        unsafe { libc::mmap(map, len, access, kind, -1, 0) };
    }
}
