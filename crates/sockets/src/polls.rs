//! `poll` and `select`.

use std::ffi::{c_int, c_void};

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::kinds;
use crate::next::next;

mod real {
    use super::*;

    next! {
        of_c poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        of_c ppoll(entries: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
        of_c select(count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set, timeout: *mut timeval) -> c_int;
        of_c pselect(count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
        of_rsockets rpoll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        of_rsockets rselect(count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set, timeout: *mut timeval) -> c_int;
    }
}

pub(crate) use real::rpoll;

/// Whether there is a socket of ours among the entries.
unsafe fn has_ours(entries: *const pollfd, count: nfds_t) -> bool {
    if entries.is_null() || count == 0 {
        return false;
    }
    // SAFETY: the caller passes so many entries.
    let entries = unsafe { std::slice::from_raw_parts(entries, usize::try_from(count).unwrap_or(0)) };
    entries.iter().any(|entry| kinds::is_socket(entry.fd))
}

/// Whether there is a socket of ours in a set.
unsafe fn holds_ours(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    let mut all = 0..count.min(c_int::try_from(libc::FD_SETSIZE).unwrap_or(0));
    all.any(|fd| {
        kinds::is_socket(fd)
            && sets.into_iter().any(|set| {
                // SAFETY: the caller passes sets, or null.
                !set.is_null() && unsafe { libc::FD_ISSET(fd, set) }
            })
    })
}

/// Milliseconds, or -1 for ever.
pub(crate) unsafe fn millis(timeout: *const timespec) -> c_int {
    // SAFETY: the caller passes a time, or null.
    let Some(timeout) = (unsafe { timeout.as_ref() }) else { return -1 };
    let millis = timeout.tv_sec.saturating_mul(1000).saturating_add((timeout.tv_nsec + 999_999) / 1_000_000);
    c_int::try_from(millis).unwrap_or(c_int::MAX)
}

/// While it lives, other signals of the thread are blocked.
pub(crate) struct Masked(Option<sigset_t>);

impl Masked {
    /// # Safety
    /// `mask` is null, or to a set of signals.
    pub(crate) unsafe fn new(mask: *const sigset_t) -> Self {
        if mask.is_null() {
            return Self(None);
        }
        // SAFETY: a set of signals is a structure of numbers.
        let mut old: sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the caller passes a set, and the other one is ours.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut old) };
        Self(Some(old))
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        if let Some(old) = &self.0 {
            // SAFETY: the set is ours.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, std::ptr::null_mut()) };
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of the function, in all that follows.
    if unsafe { has_ours(entries, count) } {
        // SAFETY: as above.
        unsafe { rpoll(entries, count, timeout) }
    } else {
        // SAFETY: as above.
        unsafe { real::poll(entries, count, timeout) }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __poll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    _room: usize,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { poll(entries, count, timeout) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ppoll(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function, in all that follows.
    if !unsafe { has_ours(entries, count) } {
        // SAFETY: as above.
        return unsafe { real::ppoll(entries, count, timeout, mask) };
    }
    // SAFETY: as above.
    let millis = unsafe { millis(timeout) };
    // SAFETY: as above.
    let _mask = unsafe { Masked::new(mask) };
    // SAFETY: as above.
    unsafe { rpoll(entries, count, millis) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    excepts: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function, in all that follows.
    if unsafe { holds_ours(count, [reads, writes, excepts]) } {
        // SAFETY: as above.
        unsafe { real::rselect(count, reads, writes, excepts, timeout) }
    } else {
        // SAFETY: as above.
        unsafe { real::select(count, reads, writes, excepts, timeout) }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    excepts: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function, in all that follows.
    if !unsafe { holds_ours(count, [reads, writes, excepts]) } {
        // SAFETY: as above.
        return unsafe { real::pselect(count, reads, writes, excepts, timeout, mask) };
    }
    // SAFETY: as above.
    let time = unsafe { timeout.as_ref() };
    let mut time = time.map(|time| timeval { tv_sec: time.tv_sec, tv_usec: (time.tv_nsec + 999) / 1000 });
    let place: *mut timeval = time.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: as above.
    let _mask = unsafe { Masked::new(mask) };
    // SAFETY: as above.
    unsafe { real::rselect(count, reads, writes, excepts, place) }
}

/// Rings a descriptor that a thread polls.
pub(crate) fn ring(fd: c_int) {
    let one = 1_u64;
    // SAFETY: eight bytes of ours; what is full rings already.
    unsafe { libc::write(fd, (&raw const one).cast::<c_void>(), size_of::<u64>()) };
}
