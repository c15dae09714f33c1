//! Closing numbers, and giving sockets and sets more of them.
//!
//! Only what concerns the numbers of this process is done to our sockets: a child of a `vfork` that closes descriptors
//! before it becomes another program closes its own.

use std::ffi::{c_int, c_uint};

use crate::next::{errno, fail, next, set_errno};
use crate::numbers::{self, Kind};
use crate::sets;
use crate::streams::{rclose, rfcntl};

mod real {
    use super::*;

    next! {
        of_c close(fd: c_int) -> c_int;
        of_c close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
        of_c dup(fd: c_int) -> c_int;
        of_c dup2(fd: c_int, to: c_int) -> c_int;
        of_c dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
        of_c fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    }
}

/// Sockets that have no number of the program any more end.
fn end(sockets: impl IntoIterator<Item = c_int>) {
    let code = errno();
    for hidden in sockets {
        // SAFETY: no number of the program leads to it.
        unsafe { rclose(hidden) };
    }
    set_errno(code);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let kind = numbers::kind(fd);
    if kind == Kind::Kernel || !numbers::are_of_this_process() {
        // SAFETY: a function of numbers.
        return unsafe { real::close(fd) };
    }
    if kind == Kind::Hidden {
        // The program closes all that there may be: it has no such number.
        return fail(libc::EBADF);
    }
    let mut state = sets::state();
    let ended = state.forget(fd);
    // SAFETY: as above.
    let answer = unsafe { real::close(fd) };
    drop(state);
    end(ended);
    answer
}

/// Closes a range of descriptors except for those that would not be there in another program (`FD_CLOEXEC`). The device has
/// many of them, and the program knows of none: if they were closed, the device would write to what has their numbers
/// next. What another thread opens meanwhile stays, too.
fn close_shared_ones(are_inside: impl Fn(c_int) -> bool) -> std::io::Result<()> {
    let folder = std::fs::read_dir("/proc/self/fd")?;
    let open = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    let open: Vec<_> = open.filter(|fd| are_inside(*fd)).collect();
    for fd in open {
        // SAFETY: a function of numbers.
        let flags = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 && numbers::kind(fd) == Kind::Kernel {
            // SAFETY: as above.
            unsafe { real::close(fd) };
        }
    }
    Ok(())
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let is_plain = flags == 0 && first <= last;
    if !is_plain || !numbers::is_device_open() || !numbers::are_of_this_process() {
        // SAFETY: a function of numbers.
        return unsafe { real::close_range(first, last, flags) };
    }
    let lowest = c_int::try_from(first).unwrap_or(c_int::MAX);
    let highest = c_int::try_from(last).unwrap_or(c_int::MAX);
    let mut state = sets::state();
    let is_counted = |kind| matches!(kind, Kind::Socket(_) | Kind::Set(_));
    let ours: Vec<_> = numbers::all(lowest, highest, is_counted).collect();
    let mut ended = Vec::new();
    for fd in ours {
        ended.extend(state.forget(fd));
        // SAFETY: as above.
        unsafe { real::close(fd) };
    }
    let closed = close_shared_ones(|fd| (lowest..=highest).contains(&fd));
    drop(state);
    end(ended);
    closed.map_or_else(|error| fail(error.raw_os_error().unwrap_or(libc::ENOMEM)), |()| 0)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let code = errno();
    let first = first.max(0).cast_unsigned();
    // SAFETY: a function of numbers.
    if unsafe { close_range(first, c_uint::MAX, 0) } != 0 {
        // Older than Linux 5.9.
        // SAFETY: as above.
        let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
        for fd in first.cast_signed()..c_int::try_from(most.min(1 << 20)).unwrap_or(0) {
            // SAFETY: as above.
            unsafe { close(fd) };
        }
    }
    set_errno(code);
}

/// A number that the kernel has just made of another.
fn copied(of: c_int, fd: c_int, mut state: sets::Locked) -> c_int {
    if fd >= 0 && !state.made_copy(of, fd) {
        // SAFETY: the program does not know of it yet.
        unsafe { real::close(fd) };
        return fail(libc::EMFILE);
    }
    fd
}

/// Whether a number is a socket or a set that a copy of must be known of.
fn is_counted(fd: c_int) -> bool {
    matches!(numbers::kind(fd), Kind::Socket(_) | Kind::Set(_)) && numbers::are_of_this_process()
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    if !is_counted(fd) {
        // SAFETY: a function of numbers.
        return unsafe { real::dup(fd) };
    }
    let state = sets::state();
    // SAFETY: as above.
    copied(fd, unsafe { real::dup(fd) }, state)
}

/// Has a number be a copy of another, by one of two functions.
fn copy_to(fd: c_int, to: c_int, copy: impl FnOnce() -> c_int) -> c_int {
    let is_kernels = |fd| numbers::kind(fd) == Kind::Kernel;
    if fd == to || is_kernels(fd) && is_kernels(to) || !numbers::are_of_this_process() {
        return copy();
    }
    if numbers::kind(to) == Kind::Hidden {
        // The number cannot be had.
        return fail(libc::EBADF);
    }
    let mut state = sets::state();
    // What has the number loses it in the same moment.
    let answer = copy();
    if answer < 0 {
        return answer;
    }
    let ended = state.forget(to);
    let answer = if is_counted(fd) { copied(fd, to, state) } else { answer };
    end(ended);
    answer
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: a function of numbers.
    copy_to(fd, to, || unsafe { real::dup2(fd, to) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: a function of numbers.
    copy_to(fd, to, || unsafe { real::dup3(fd, to, flags) })
}

/// The third argument is there whether the command has one or not: the calling conventions of C allow it.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let is_copy = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    if is_copy && is_counted(fd) {
        let state = sets::state();
        // SAFETY: a function of numbers.
        return copied(fd, unsafe { real::fcntl(fd, command, argument) }, state);
    }
    let Some(hidden) = numbers::socket_of(fd) else {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::fcntl(fd, command, argument) };
    };
    if command == libc::F_SETFL {
        // SAFETY: as above: a number.
        unsafe { rfcntl(hidden, command, argument) };
    }
    // The kernel's socket has the same flags.
    // SAFETY: as above.
    unsafe { real::fcntl(fd, command, argument) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller keeps the contract of the function; on 64 bits both are the same.
    unsafe { fcntl(fd, command, argument) }
}
