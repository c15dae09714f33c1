//! Making, connecting, asking and closing sockets.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{AF_INET, AF_INET6, O_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, sockaddr, socklen_t};

use crate::epoll;
use crate::kinds;
use crate::next::{errno, next, set_errno};

/// The functions behind those that are defined here.
mod real {
    use super::*;

    next! {
        of_c socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
        of_c bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
        of_c listen(fd: c_int, backlog: c_int) -> c_int;
        of_c accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
        of_c connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
        of_c shutdown(fd: c_int, how: c_int) -> c_int;
        of_c close(fd: c_int) -> c_int;
        of_c getsockopt(fd: c_int, level: c_int, name: c_int, at: *mut c_void, len: *mut socklen_t) -> c_int;
        of_c setsockopt(fd: c_int, level: c_int, name: c_int, at: *const c_void, len: socklen_t) -> c_int;
        of_c getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
        of_c getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
        of_c fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
        of_c ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int;
        of_rsockets rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
        of_rsockets rbind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
        of_rsockets rlisten(fd: c_int, backlog: c_int) -> c_int;
        of_rsockets raccept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
        of_rsockets rconnect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
        of_rsockets rshutdown(fd: c_int, how: c_int) -> c_int;
        of_rsockets rclose(fd: c_int) -> c_int;
        of_rsockets rgetsockopt(fd: c_int, level: c_int, name: c_int, at: *mut c_void, len: *mut socklen_t) -> c_int;
        of_rsockets rsetsockopt(fd: c_int, level: c_int, name: c_int, at: *const c_void, len: socklen_t) -> c_int;
        of_rsockets rgetpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
        of_rsockets rgetsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
        of_rsockets rfcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    }
}

pub(crate) use real::close as close_real;

/// Defines functions that ask rsockets about sockets of ours, and the C library about all else.
macro_rules! either {
    ($($name:ident $ours:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name(fd: c_int $(, $argument: $type)*) -> c_int {
            if kinds::is_socket(fd) {
                // SAFETY: the caller keeps the contract of the function, which is the same for both.
                unsafe { real::$ours(fd $(, $argument)*) }
            } else {
                // SAFETY: as above.
                unsafe { real::$name(fd $(, $argument)*) }
            }
        }
    )*};
}

either! {
    bind rbind(address: *const sockaddr, len: socklen_t);
    listen rlisten(backlog: c_int);
    shutdown rshutdown(how: c_int);
    setsockopt rsetsockopt(level: c_int, name: c_int, at: *const c_void, len: socklen_t);
    getpeername rgetpeername(address: *mut sockaddr, len: *mut socklen_t);
    getsockname rgetsockname(address: *mut sockaddr, len: *mut socklen_t);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if !kinds::is_socket(fd) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::getsockopt(fd, level, name, at, len) };
    }
    if level == libc::IPPROTO_TCP && name == libc::TCP_INFO && !at.is_null() && !len.is_null() {
        // There is no TCP: all that can be counted is zero.
        // SAFETY: the caller passes a place of so many bytes.
        let room = unsafe { len.read_unaligned() };
        // SAFETY: as above.
        unsafe { at.write_bytes(0, room as usize) };
        return 0;
    }
    // SAFETY: the caller keeps the contract of the function.
    unsafe { real::rgetsockopt(fd, level, name, at, len) }
}

/// Whether a program asks for a socket that can be one of ours.
const fn is_stream(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    (domain == AF_INET || domain == AF_INET6)
        && kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) == SOCK_STREAM
        && (protocol == 0 || protocol == libc::IPPROTO_TCP)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if is_stream(domain, kind, protocol) {
        // SAFETY: a function of numbers.
        let fd = unsafe { real::rsocket(domain, kind, protocol) };
        if fd >= 0 {
            if kinds::made_socket(fd) {
                return fd;
            }
            // SAFETY: it was made just now.
            unsafe { real::rclose(fd) };
        }
    }
    // Without a device, or too many.
    // SAFETY: a function of numbers.
    unsafe { real::socket(domain, kind, protocol) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if !kinds::is_socket(fd) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::accept4(fd, address, len, flags) };
    }
    kinds::tell_again(fd, kinds::TOLD_IN);
    // SAFETY: as above.
    let accepted = unsafe { real::raccept(fd, address, len) };
    if accepted < 0 {
        return -1;
    }
    if !kinds::made_socket(accepted) {
        // SAFETY: it was made just now.
        unsafe { real::rclose(accepted) };
        set_errno(libc::EMFILE);
        return -1;
    }
    if flags & SOCK_NONBLOCK != 0 {
        // SAFETY: a function of numbers.
        unsafe { real::rfcntl(accepted, libc::F_SETFL, O_NONBLOCK as usize) };
    }
    accepted
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { accept4(fd, address, len, 0) }
}

/// The socket becomes one of the kernel, under the same number.
unsafe fn fall_back(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let (mut domain, mut size) = (AF_INET, 4);
    // SAFETY: the places are ours.
    unsafe {
        real::rgetsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut size)
    };
    // SAFETY: a function of numbers.
    let flags = unsafe { real::rfcntl(fd, libc::F_GETFL, 0) } & O_NONBLOCK;
    let kind = SOCK_STREAM | SOCK_CLOEXEC | if flags == 0 { 0 } else { SOCK_NONBLOCK };
    // SAFETY: as above.
    let other = unsafe { real::socket(domain, kind, 0) };
    if other < 0 {
        return -1;
    }
    kinds::gone(fd);
    // SAFETY: the descriptors are ours.
    unsafe { real::rclose(fd) };
    // SAFETY: as above.
    let moved = unsafe { libc::dup3(other, fd, libc::O_CLOEXEC) };
    // SAFETY: as above.
    unsafe { real::close(other) };
    if moved < 0 {
        return -1;
    }
    // SAFETY: the caller keeps the contract of the function.
    unsafe { real::connect(fd, address, len) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if !kinds::is_socket(fd) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::connect(fd, address, len) };
    }
    // SAFETY: as above.
    let answer = unsafe { real::rconnect(fd, address, len) };
    if answer != 0 && matches!(errno(), libc::ENETUNREACH | libc::ENODEV) {
        // SAFETY: as above.
        return unsafe { fall_back(fd, address, len) };
    }
    answer
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    if kinds::is_socket(fd) {
        kinds::gone(fd);
        epoll::socket_is_gone(fd);
        // SAFETY: a function of numbers.
        return unsafe { real::rclose(fd) };
    }
    if kinds::is_set(fd) {
        kinds::gone(fd);
        epoll::set_is_gone(fd);
    }
    // SAFETY: as above.
    unsafe { real::close(fd) }
}

/// The third argument is there whether the command has one or not: the calling conventions of C allow it.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    if kinds::is_socket(fd) {
        // SAFETY: the commands that it knows have numbers as arguments.
        return unsafe { real::rfcntl(fd, command, argument) };
    }
    // SAFETY: the caller keeps the contract of the function.
    unsafe { real::fcntl(fd, command, argument) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller keeps the contract of the function; on 64 bits both are the same.
    unsafe { fcntl(fd, command, argument) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if !kinds::is_socket(fd) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::ioctl(fd, request, argument) };
    }
    if request == libc::FIONBIO && argument != 0 {
        // SAFETY: the caller passes a number.
        let on = unsafe { std::ptr::with_exposed_provenance::<c_int>(argument).read_unaligned() };
        // SAFETY: a function of numbers.
        return unsafe { real::rfcntl(fd, libc::F_SETFL, if on == 0 { 0 } else { O_NONBLOCK as usize }) };
    }
    set_errno(libc::ENOTTY);
    -1
}
