//! The functions of `epoll`. A wait polls our sockets, the set of the kernel, and a bell that is rung when the set changes.
//! Edge-triggered entries are told once, and again when the program has used the socket since.

use std::ffi::c_int;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use ferroce_sys::Uncancelled;
use ferroce_sys::clock::now;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, POLLIN, epoll_event, pollfd, sigset_t, timespec};

use crate::next::{errno, fail, next, set_errno};
use crate::numbers;
use crate::polls::{masked, millis, rpoll, span_of};
use crate::sets::{self, Entry};

mod real {
    use super::*;

    next! {
        of_c epoll_ctl(set: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
        of_c epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
        of_c epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
        of_c epoll_pwait2(set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    }
}

/// What the kernel says of the alarm in its sets: an address that is no program's.
fn alarm() -> u64 {
    static PLACE: AtomicU8 = AtomicU8::new(0);
    (&raw const PLACE).addr() as u64
}

pub(crate) fn add_to_kernel(set: c_int, fd: c_int, mut event: epoll_event) {
    // SAFETY: the event lives during the call.
    unsafe { real::epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw mut event) };
}

/// Threads that wait for the set in the kernel come back, one after the other, as long as the alarm is there.
pub(crate) fn sound_in_kernel(set: c_int, bell: c_int) {
    add_to_kernel(set, bell, epoll_event { events: libc::EPOLLIN as u32, u64: alarm() });
}

pub(crate) fn silence_in_kernel(set: c_int, bell: c_int) {
    let mut none = epoll_event { events: 0, u64: 0 };
    // SAFETY: the event lives during the call.
    unsafe { real::epoll_ctl(set, EPOLL_CTL_DEL, bell, &raw mut none) };
}

/// Takes the alarm out of what the kernel said; how many events are left.
fn without_alarm(events: &mut [epoll_event]) -> c_int {
    let mut count = 0;
    for index in 0..events.len() {
        if { events[index].u64 } != alarm() {
            events[count] = events[index];
            count += 1;
        }
    }
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some(hidden) = numbers::socket_of(fd) else {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::epoll_ctl(set, op, fd, event) };
    };
    let mut state = sets::state();
    let known = if let Some(known) = numbers::set_of(set) {
        known
    } else {
        let mut none = epoll_event { events: 0, u64: 0 };
        // The kernel knows whether it is a set at all: it says then that the socket is not in it.
        // SAFETY: the event lives during the call.
        let is_none = unsafe { real::epoll_ctl(set, EPOLL_CTL_DEL, fd, &raw mut none) } != 0;
        if is_none && errno() != libc::ENOENT {
            return -1;
        }
        match state.make_set(set) {
            Ok(known) => known,
            Err(error) => return fail(error.raw_os_error().unwrap_or(libc::ENOMEM)),
        }
    };
    let is_there = state.has(known, fd, hidden);
    let entry = match op {
        EPOLL_CTL_ADD if is_there => return fail(libc::EEXIST),
        EPOLL_CTL_MOD | EPOLL_CTL_DEL if !is_there => return fail(libc::ENOENT),
        EPOLL_CTL_ADD | EPOLL_CTL_MOD => {
            // SAFETY: the caller passes an event, or null.
            let Some(event) = (unsafe { event.as_ref() }) else { return fail(libc::EFAULT) };
            Some(Entry::new(*event))
        }
        EPOLL_CTL_DEL => None,
        _ => return fail(libc::EINVAL),
    };
    state.change(known, fd, hidden, entry);
    0
}

/// Waits for the sockets and the rest of a set, for ever without a time span.
fn wait(number: c_int, set: u32, events: &mut [epoll_event], span: Option<Duration>) -> c_int {
    let _whole = Uncancelled::new();
    let until = span.map(|span| now() + span);
    loop {
        let mut waits = match sets::state().begin(set) {
            Ok(Some(waits)) => waits,
            Ok(None) => return fail(libc::EBADF),
            Err(error) => return fail(error.raw_os_error().unwrap_or(libc::ENOMEM)),
        };
        waits.polled.push(pollfd { fd: number, events: POLLIN, revents: 0 });
        let timeout = millis(until.map(|until| until.since(now())));
        let count = waits.polled.len() as libc::nfds_t;
        // SAFETY: the entries live during the call, and are so many.
        let ready = unsafe { rpoll(waits.polled.as_mut_ptr(), count, timeout) };
        let code = errno();
        let kernel = waits.polled.pop().map_or(0, |kernel| kernel.revents);
        let ask_kernel = |rest: &mut [epoll_event]| {
            let room = c_int::try_from(rest.len()).unwrap_or(c_int::MAX);
            if ready <= 0 || kernel == 0 || room == 0 {
                return 0;
            }
            // SAFETY: there is room for so many.
            let found = unsafe { real::epoll_wait(number, rest.as_mut_ptr(), room, 0) };
            let Ok(found) = usize::try_from(found) else { return -1 };
            let left = without_alarm(&mut rest[..found]);
            if usize::try_from(left) != Ok(found) {
                sets::state().has_heard(number, set);
                std::thread::yield_now();
            }
            left
        };
        let first = if waits.kernel_is_first { ask_kernel(events) } else { 0 };
        let rest = events.get_mut(usize::try_from(first).unwrap_or(0)..).unwrap_or_default();
        let ours = {
            let mut state = sets::state();
            let ours = if ready > 0 { state.tell(set, &waits, rest) } else { 0 };
            state.end(set, &waits);
            ours
        };
        let last = if waits.kernel_is_first { 0 } else { ask_kernel(&mut rest[ours..]) };
        if ready < 0 {
            set_errno(code);
            return -1;
        }
        let count = first.max(0) + c_int::try_from(ours).unwrap_or(0) + last.max(0);
        if count > 0 {
            return count;
        }
        if first < 0 || last < 0 {
            // The set is gone, or what is in its place is none.
            return fail(libc::EBADF);
        }
        // Another thread was told what was ready, or the set has changed.
        if until.is_some_and(|until| now() >= until) {
            return 0;
        }
    }
}

/// A wait for any set. The kernel waits for those that it alone has something in; it may come to be one of ours meanwhile.
///
/// # Safety
/// There is room for so many events, and `ask` keeps to it.
unsafe fn wait_for(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    span: Option<Duration>,
    mask: *const sigset_t,
    ask: impl FnOnce() -> c_int,
) -> c_int {
    let until = span.map(|span| now() + span);
    if numbers::set_of(set).is_none() {
        numbers::begins_to_wait(set);
        let found = if numbers::set_of(set).is_none() { ask() } else { 0 };
        numbers::ends_to_wait(set);
        let Some(known) = numbers::set_of(set) else { return found };
        let code = errno();
        sets::state().has_heard(set, known);
        set_errno(code);
        let Ok(all) = usize::try_from(found) else { return found };
        if all > 0 {
            // SAFETY: the kernel has written so many.
            let left = without_alarm(unsafe { std::slice::from_raw_parts_mut(events, all) });
            if left > 0 {
                return left;
            }
        }
    }
    let Some(known) = numbers::set_of(set) else { return 0 };
    let Some(room) = usize::try_from(most).ok().filter(|room| *room > 0) else { return fail(libc::EINVAL) };
    if events.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller passes room for so many.
    let events = unsafe { std::slice::from_raw_parts_mut(events, room) };
    // SAFETY: the caller passes a mask, or null.
    unsafe { masked(mask, || wait(set, known, events, until.map(|until| until.since(now())))) }
}

/// A number of milliseconds as programs give it: a negative one is for ever.
fn span(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function.
    let ask = || unsafe { real::epoll_wait(set, events, most, timeout) };
    // SAFETY: as above.
    unsafe { wait_for(set, events, most, span(timeout), std::ptr::null(), ask) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function.
    let ask = || unsafe { real::epoll_pwait(set, events, most, timeout, mask) };
    // SAFETY: as above.
    unsafe { wait_for(set, events, most, span(timeout), mask, ask) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller passes a time, or null.
    let Ok(span) = (unsafe { span_of(timeout) }) else { return fail(libc::EINVAL) };
    // SAFETY: the caller keeps the contract of the function.
    let ask = || unsafe { real::epoll_pwait2(set, events, most, timeout, mask) };
    // SAFETY: as above.
    unsafe { wait_for(set, events, most, span, mask, ask) }
}
