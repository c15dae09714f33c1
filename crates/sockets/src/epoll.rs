//! Sets of `epoll` with sockets of ours in them.
//!
//! The kernel keeps what is its own in the set, and we keep the rest: a wait polls our sockets, the set itself, and a
//! descriptor that is rung when the set changes. Edge-triggered entries are told once, and again when the program has
//! used the socket since.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLONESHOT, POLLERR, POLLHUP, POLLIN, POLLOUT,
    POLLRDHUP, epoll_event, pollfd, sigset_t, timespec,
};

use crate::kinds::{self, TOLD_END, TOLD_IN, TOLD_OUT};
use crate::next::{next, set_errno};
use crate::polls::{Masked, millis, ring, rpoll};
use crate::streams::close_real;

mod real {
    use super::*;

    next! {
        of_c epoll_ctl(set: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
        of_c epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
        of_c epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
        of_c epoll_pwait2(set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    }
}

/// What we keep of a set.
struct Set {
    entries: HashMap<c_int, Entry>,
    /// Rung when the entries change.
    changed: c_int,
}

#[derive(Clone, Copy)]
struct Entry {
    events: u32,
    data: u64,
    /// It was told, and is to be told once.
    is_spent: bool,
}

/// The bits of epoll that `poll` has too, with the same values.
const SHARED: u32 = (POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP | libc::POLLPRI) as u32
    | libc::EPOLLRDNORM as u32
    | libc::EPOLLWRNORM as u32;

fn sets() -> MutexGuard<'static, HashMap<c_int, Set>> {
    static SETS: OnceLock<Mutex<HashMap<c_int, Set>>> = OnceLock::new();
    SETS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

fn fail(code: c_int) -> c_int {
    set_errno(code);
    -1
}

/// A socket is closed: it is in no set any more.
pub(crate) fn socket_is_gone(fd: c_int) {
    for set in sets().values_mut() {
        if set.entries.remove(&fd).is_some() {
            ring(set.changed);
        }
    }
}

pub(crate) fn set_is_gone(fd: c_int) {
    if let Some(set) = sets().remove(&fd) {
        // SAFETY: a descriptor of ours.
        unsafe { close_real(set.changed) };
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_ctl(
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if !kinds::is_socket(fd) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::epoll_ctl(set, op, fd, event) };
    }
    let mut sets = sets();
    if !kinds::is_set(set) {
        // What a set of the same number held is gone with it.
        if let Some(old) = sets.remove(&set) {
            // SAFETY: a descriptor of ours.
            unsafe { close_real(old.changed) };
        }
        // SAFETY: a function of numbers.
        let changed = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if changed < 0 {
            return -1;
        }
        sets.insert(set, Set { entries: HashMap::new(), changed });
        kinds::made_set(set);
    }
    let Some(known) = sets.get_mut(&set) else { return fail(libc::EBADF) };
    let is_there = known.entries.contains_key(&fd);
    match op {
        EPOLL_CTL_ADD if is_there => return fail(libc::EEXIST),
        EPOLL_CTL_MOD | EPOLL_CTL_DEL if !is_there => return fail(libc::ENOENT),
        EPOLL_CTL_ADD | EPOLL_CTL_MOD => {
            // SAFETY: the caller passes an event, or null.
            let Some(event) = (unsafe { event.as_ref() }) else { return fail(libc::EFAULT) };
            let entry = Entry { events: event.events, data: event.u64, is_spent: false };
            kinds::tell_again(fd, TOLD_IN | TOLD_OUT);
            known.entries.insert(fd, entry);
        }
        EPOLL_CTL_DEL => {
            known.entries.remove(&fd);
        }
        _ => return fail(libc::EINVAL),
    }
    ring(known.changed);
    0
}

impl Entry {
    /// What to poll a socket for; nothing if it is not to be told now.
    fn wanted(&self, fd: c_int) -> Option<i16> {
        if self.is_spent {
            return None;
        }
        let mut events = i16::try_from(self.events & SHARED).unwrap_or(0);
        if self.events & EPOLLET as u32 != 0 {
            let told = kinds::told(fd);
            if told & TOLD_END != 0 {
                return None;
            }
            if told & TOLD_IN != 0 {
                events &= !(POLLIN | POLLRDHUP);
            }
            if told & TOLD_OUT != 0 {
                events &= !POLLOUT;
            }
        }
        Some(events)
    }

    /// The program is told this.
    fn has_told(&mut self, fd: c_int, events: i16) {
        if self.events & EPOLLONESHOT as u32 != 0 {
            self.is_spent = true;
        }
        if self.events & EPOLLET as u32 != 0 {
            let bits = [(POLLIN | POLLRDHUP, TOLD_IN), (POLLOUT, TOLD_OUT), (POLLHUP | POLLERR, TOLD_END)];
            for (event, bit) in bits {
                if events & event != 0 {
                    kinds::has_told(fd, bit);
                }
            }
        }
    }
}

/// What is to be polled for a set: the set itself, what is rung when it changes, and its sockets.
fn entries_of(set: c_int) -> Vec<pollfd> {
    let sets = sets();
    let mut entries = vec![pollfd { fd: set, events: POLLIN, revents: 0 }];
    if let Some(known) = sets.get(&set) {
        entries.push(pollfd { fd: known.changed, events: POLLIN, revents: 0 });
        let sockets = known.entries.iter().filter_map(|(fd, entry)| Some((*fd, entry.wanted(*fd)?)));
        entries.extend(sockets.map(|(fd, events)| pollfd { fd, events, revents: 0 }));
    }
    entries
}

/// Tells what was polled; how much.
fn tell(set: c_int, polled: &[pollfd], events: &mut [epoll_event]) -> usize {
    let mut sets = sets();
    let Some(known) = sets.get_mut(&set) else { return 0 };
    let mut count = 0;
    for entry in polled {
        let Some(item) = known.entries.get_mut(&entry.fd) else { continue };
        if entry.revents == 0 || count == events.len() {
            continue;
        }
        item.has_told(entry.fd, entry.revents);
        let told = u32::from(entry.revents.cast_unsigned()) & SHARED;
        events[count] = epoll_event { events: told, u64: item.data };
        count += 1;
    }
    count
}

/// Waits for the sockets and the rest of a set.
fn wait(set: c_int, events: &mut [epoll_event], timeout: c_int) -> c_int {
    loop {
        let mut entries = entries_of(set);
        // SAFETY: the entries live during the call, and are so many.
        let ready = unsafe { rpoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout) };
        if ready <= 0 {
            return ready;
        }
        let ours = tell(set, entries.get(2..).unwrap_or_default(), events);
        let rest = &mut events[ours..];
        let room = c_int::try_from(rest.len()).unwrap_or(c_int::MAX);
        let mut count = c_int::try_from(ours).unwrap_or(c_int::MAX);
        if entries[0].revents != 0 && room > 0 {
            // SAFETY: there is room for so many.
            let others = unsafe { real::epoll_wait(set, rest.as_mut_ptr(), room, 0) };
            if others < 0 && count == 0 {
                return others;
            }
            count += others.max(0);
        }
        if let Some(changed) = entries.get(1).filter(|entry| entry.revents != 0) {
            let mut number = 0_u64;
            // SAFETY: eight bytes of ours; the descriptor does not block.
            unsafe { libc::read(changed.fd, (&raw mut number).cast(), size_of::<u64>()) };
        }
        if count > 0 {
            return count;
        }
        // The set has changed. What is left of the time is not counted: it is waited for anew.
        if timeout == 0 {
            return 0;
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    if !kinds::is_set(set) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::epoll_wait(set, events, most, timeout) };
    }
    let Some(room) = usize::try_from(most).ok().filter(|room| *room > 0 && !events.is_null()) else {
        return fail(libc::EINVAL);
    };
    // SAFETY: the caller passes room for so many.
    wait(set, unsafe { std::slice::from_raw_parts_mut(events, room) }, timeout)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if !kinds::is_set(set) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::epoll_pwait(set, events, most, timeout, mask) };
    }
    // SAFETY: as above.
    let _mask = unsafe { Masked::new(mask) };
    // SAFETY: as above.
    unsafe { epoll_wait(set, events, most, timeout) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !kinds::is_set(set) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::epoll_pwait2(set, events, most, timeout, mask) };
    }
    // SAFETY: as above.
    let millis = unsafe { millis(timeout) };
    // SAFETY: as above.
    let _mask = unsafe { Masked::new(mask) };
    // SAFETY: as above.
    unsafe { epoll_wait(set, events, most, millis) }
}
