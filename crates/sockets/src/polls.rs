//! `poll` and `select`.

use std::cell::Cell;
use std::ffi::{c_int, c_ulong};
use std::time::Duration;

use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval,
};

use crate::next::{errno, fail, next, set_errno};
use crate::numbers;

mod real {
    use super::*;

    next! {
        of_c poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        of_c ppoll(entries: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
        of_c select(count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set, timeout: *mut timeval) -> c_int;
        of_c pselect(count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
        of_rsockets rpoll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    }
}

pub(crate) use real::rpoll;

/// The entries of the program.
///
/// # Safety
/// There are so many, or the pointer is null.
unsafe fn given<'a>(entries: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if entries.is_null() {
        return &mut [];
    }
    // SAFETY: the caller vouches for it.
    unsafe { std::slice::from_raw_parts_mut(entries, usize::try_from(count).unwrap_or(0)) }
}

fn has_ours(entries: &[pollfd]) -> bool {
    entries.iter().any(|entry| numbers::socket_of(entry.fd).is_some())
}

/// Polls entries of which some are sockets of ours.
fn poll_both(entries: &mut [pollfd], timeout: c_int) -> c_int {
    let hidden = |entry: &pollfd| numbers::socket_of(entry.fd).unwrap_or(entry.fd);
    let mut polled: Vec<pollfd> =
        entries.iter().map(|entry| pollfd { fd: hidden(entry), revents: 0, ..*entry }).collect();
    // SAFETY: the entries live during the call, and are so many.
    let ready = unsafe { rpoll(polled.as_mut_ptr(), polled.len() as nfds_t, timeout) };
    if ready >= 0 {
        for (entry, polled) in entries.iter_mut().zip(&polled) {
            entry.revents = polled.revents;
        }
    }
    ready
}

/// A time span, or none for ever. An error if it is no time.
pub(crate) unsafe fn span_of(timeout: *const timespec) -> Result<Option<Duration>, ()> {
    // SAFETY: the caller passes a time, or null.
    let Some(timeout) = (unsafe { timeout.as_ref() }) else { return Ok(None) };
    let seconds = u64::try_from(timeout.tv_sec).map_err(|_| ())?;
    let nanos = u32::try_from(timeout.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000).ok_or(())?;
    Ok(Some(Duration::new(seconds, nanos)))
}

/// In milliseconds. A part of one is one more: a wait is not over before its time.
pub(crate) fn millis(span: Option<Duration>) -> c_int {
    let Some(span) = span else { return -1 };
    c_int::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

thread_local! {
    /// The signals that are blocked while this thread sleeps in `poll`; null if there are none but those of the thread.
    static MASK: Cell<*const sigset_t> = const { Cell::new(std::ptr::null()) };
}

/// Has a wait of rsockets be one in which other signals are blocked, as `ppoll` does it: no signal comes between the change
/// of the mask and the sleep. All signals are blocked, and the library of rsockets sleeps by `poll`, which is the function
/// below: that changes the mask and sleeps at once.
///
/// # Safety
/// `mask` is null, or to a set of signals.
pub(crate) unsafe fn masked(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    // SAFETY: a set of signals is a structure of numbers.
    let mut all: sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // SAFETY: the set is ours.
    unsafe { libc::sigfillset(&raw mut all) };
    // Not those that say that the program has made a mistake just now.
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT] {
        // SAFETY: as above.
        unsafe { libc::sigdelset(&raw mut all, signal) };
    }
    // SAFETY: both sets are ours.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let outer = MASK.replace(mask);
    let answer = wait();
    let code = errno();
    MASK.set(outer);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    set_errno(code);
    answer
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller passes so many entries.
    let all = unsafe { given(entries, count) };
    if has_ours(all) {
        return poll_both(all, timeout);
    }
    // A handler of a signal that polls in its turn does not.
    let mask = MASK.replace(std::ptr::null());
    if mask.is_null() {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::poll(entries, count, timeout) };
    }
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let limit = limit.map(ferroce_sys::descriptor::timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: as above; the mask is there as long as it is known, and the limit lives here.
    let ready = unsafe { real::ppoll(entries, count, limit, mask) };
    MASK.set(mask);
    ready
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __poll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    _room: usize,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { poll(entries, count, timeout) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller passes so many entries.
    let all = unsafe { given(entries, count) };
    if !has_ours(all) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::ppoll(entries, count, timeout, mask) };
    }
    // SAFETY: the caller passes a time, or null.
    let Ok(span) = (unsafe { span_of(timeout) }) else { return fail(libc::EINVAL) };
    // SAFETY: the caller passes a mask, or null.
    unsafe { masked(mask, || poll_both(all, millis(span))) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __ppoll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: usize,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { ppoll(entries, count, timeout, mask) }
}

/// The sets of a select: what is asked, as an entry to poll asks it, and what is ready then.
const MEANINGS: [(i16, i16); 3] =
    [(POLLIN, POLLIN | POLLHUP | POLLERR), (POLLOUT, POLLOUT | POLLERR), (POLLPRI, POLLPRI)];

/// How many descriptors the sets of a select have.
fn room(count: c_int) -> c_int {
    count.min(c_int::try_from(libc::FD_SETSIZE).unwrap_or(0))
}

/// Whether there is a socket of ours in the sets of a select.
///
/// # Safety
/// The sets are null, or as long as so many descriptors need.
unsafe fn hold_ours(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    let mut ours = numbers::all(0, room(count) - 1, |kind| matches!(kind, numbers::Kind::Socket(_)));
    ours.any(|fd| {
        sets.into_iter().any(|set| {
            // SAFETY: the caller vouches for the sets; the number is inside of one.
            !set.is_null() && unsafe { libc::FD_ISSET(fd, set) }
        })
    })
}

/// Polls what the sets of a select have, and writes into them what is ready; how many bits.
///
/// # Safety
/// As above.
unsafe fn select_both(count: c_int, sets: [*mut fd_set; 3], timeout: c_int) -> c_int {
    let mut entries = Vec::new();
    for fd in 0..room(count) {
        let mut events = 0;
        for (set, (asked, _)) in sets.into_iter().zip(MEANINGS) {
            // SAFETY: the caller vouches for the sets; the number is inside of one.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, set) } {
                events |= asked;
            }
        }
        if events != 0 {
            entries.push(pollfd { fd, events, revents: 0 });
        }
    }
    if poll_both(&mut entries, timeout) < 0 {
        return -1;
    }
    if entries.iter().any(|entry| entry.revents & POLLNVAL != 0) {
        return fail(libc::EBADF);
    }
    // Programs may give sets that are no longer than so many descriptors need, in whole words.
    let words = usize::try_from(room(count)).unwrap_or(0).div_ceil(c_ulong::BITS as usize);
    for set in sets.into_iter().filter(|set| !set.is_null()) {
        // SAFETY: the caller vouches for so many words.
        unsafe { set.cast::<c_ulong>().write_bytes(0, words) };
    }
    let mut bits = 0;
    for entry in &entries {
        for (set, (asked, told)) in sets.into_iter().zip(MEANINGS) {
            if !set.is_null() && entry.events & asked != 0 && entry.revents & told != 0 {
                // SAFETY: the caller vouches for the sets; the number came out of one.
                unsafe { libc::FD_SET(entry.fd, set) };
                bits += 1;
            }
        }
    }
    bits
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    excepts: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [reads, writes, excepts];
    // SAFETY: the caller keeps the contract of the function.
    if !unsafe { hold_ours(count, sets) } {
        // SAFETY: as above.
        return unsafe { real::select(count, reads, writes, excepts, timeout) };
    }
    // SAFETY: the caller passes a time, or null.
    let span = match unsafe { timeout.as_ref() } {
        None => None,
        Some(time) => {
            let (Ok(seconds), Ok(micros)) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) else {
                return fail(libc::EINVAL);
            };
            Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
        }
    };
    // SAFETY: as above.
    unsafe { select_both(count, sets, millis(span)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn pselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    excepts: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = [reads, writes, excepts];
    // SAFETY: the caller keeps the contract of the function.
    if !unsafe { hold_ours(count, sets) } {
        // SAFETY: as above.
        return unsafe { real::pselect(count, reads, writes, excepts, timeout, mask) };
    }
    // SAFETY: the caller passes a time, or null.
    let Ok(span) = (unsafe { span_of(timeout) }) else { return fail(libc::EINVAL) };
    // SAFETY: the caller passes sets, or null.
    let wait = || unsafe { select_both(count, sets, millis(span)) };
    // SAFETY: the caller passes a mask, or null.
    unsafe { masked(mask, wait) }
}
