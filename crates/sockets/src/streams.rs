//! Making, connecting and asking sockets.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{AF_INET, AF_INET6, O_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, sockaddr, socklen_t};

use crate::next::{errno, fail, next, set_errno};
use crate::numbers::{self, Way};
use crate::sets;

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
        of_c getsockopt(fd: c_int, level: c_int, name: c_int, at: *mut c_void, len: *mut socklen_t) -> c_int;
        of_c setsockopt(fd: c_int, level: c_int, name: c_int, at: *const c_void, len: socklen_t) -> c_int;
        of_c getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
        of_c getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
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

pub(crate) use real::{rclose, rfcntl};

/// Defines functions that ask rsockets about sockets of ours, and the C library about all else.
macro_rules! either {
    ($($name:ident $ours:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name(fd: c_int $(, $argument: $type)*) -> c_int {
            if let Some(hidden) = numbers::socket_of(fd) {
                // SAFETY: the caller keeps the contract of the function, which is the same for both.
                unsafe { real::$ours(hidden $(, $argument)*) }
            } else {
                // SAFETY: as above.
                unsafe { real::$name(fd $(, $argument)*) }
            }
        }
    )*};
}

either! {
    shutdown rshutdown(how: c_int);
    getpeername rgetpeername(address: *mut sockaddr, len: *mut socklen_t);
    getsockname rgetsockname(address: *mut sockaddr, len: *mut socklen_t);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let Some(hidden) = numbers::socket_of(fd) else {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::getsockopt(fd, level, name, at, len) };
    };
    if level == libc::IPPROTO_TCP && name == libc::TCP_INFO && !at.is_null() && !len.is_null() {
        // There is no TCP: all that can be counted is zero.
        // SAFETY: the caller passes a place of so many bytes.
        let room = unsafe { len.read_unaligned() };
        // SAFETY: as above.
        unsafe { at.write_bytes(0, room as usize) };
        return 0;
    }
    // SAFETY: the caller keeps the contract of the function.
    unsafe { real::rgetsockopt(hidden, level, name, at, len) }
}

/// Whether a program asks for a socket that can be one of ours.
const fn is_stream(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    (domain == AF_INET || domain == AF_INET6)
        && kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) == SOCK_STREAM
        && (protocol == 0 || protocol == libc::IPPROTO_TCP)
}

/// The program's socket, which is the kernel's, and ours behind it.
fn made(fd: c_int, hidden: c_int) -> bool {
    let state = sets::state();
    let is_known = numbers::made_socket(fd, hidden);
    drop(state);
    if !is_known {
        // SAFETY: it was made just now.
        unsafe { rclose(hidden) };
    }
    is_known
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: a function of numbers.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd >= 0 && is_stream(domain, kind, protocol) && numbers::may_be_made() {
        let code = errno();
        // SAFETY: as above.
        let hidden = unsafe { real::rsocket(domain, kind, protocol) };
        // Without a device, or with too many sockets, it is the kernel's.
        if hidden >= 0 {
            made(fd, hidden);
        }
        set_errno(code);
    }
    fd
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let Some(listener) = numbers::socket_of(fd) else {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::accept4(fd, address, len, flags) };
    };
    // SAFETY: as above.
    let hidden = unsafe { real::raccept(listener, address, len) };
    if hidden >= 0 || matches!(errno(), libc::EAGAIN | libc::EINTR) {
        numbers::has_used(listener, Way::In);
    }
    if hidden < 0 {
        return -1;
    }
    if flags & SOCK_NONBLOCK != 0 {
        // SAFETY: a function of numbers.
        unsafe { rfcntl(hidden, libc::F_SETFL, O_NONBLOCK as usize) };
    }
    let kind = SOCK_STREAM | flags & (SOCK_NONBLOCK | SOCK_CLOEXEC);
    // SAFETY: as above.
    let accepted = unsafe { real::socket(domain_of(hidden), kind, 0) };
    if accepted < 0 {
        let code = errno();
        // SAFETY: it was made just now.
        unsafe { rclose(hidden) };
        return fail(code);
    }
    if !made(accepted, hidden) {
        // SAFETY: as above.
        unsafe { libc::close(accepted) };
        return fail(libc::EMFILE);
    }
    accepted
}

fn domain_of(hidden: c_int) -> c_int {
    let (mut domain, mut size) = (AF_INET, 4);
    let at = (&raw mut domain).cast();
    // SAFETY: the places are ours.
    unsafe { real::rgetsockopt(hidden, libc::SOL_SOCKET, libc::SO_DOMAIN, at, &raw mut size) };
    domain
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { accept4(fd, address, len, 0) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *const c_void,
    len: socklen_t,
) -> c_int {
    // The kernel's socket has the options of ours, so far as it knows them: it may be in its place one day.
    // SAFETY: the caller keeps the contract of the function, in all that follows.
    let kernel = unsafe { real::setsockopt(fd, level, name, at, len) };
    // SAFETY: as above.
    numbers::socket_of(fd).map_or(kernel, |hidden| unsafe { real::rsetsockopt(hidden, level, name, at, len) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let Some(hidden) = numbers::socket_of(fd) else {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::bind(fd, address, len) };
    };
    // SAFETY: as above.
    let answer = unsafe { real::rbind(hidden, address, len) };
    if answer == 0 {
        numbers::has_bound(hidden);
    }
    answer
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let Some(hidden) = numbers::socket_of(fd) else {
        // SAFETY: a function of numbers.
        return unsafe { real::listen(fd, backlog) };
    };
    // SAFETY: as above.
    let answer = unsafe { real::rlisten(hidden, backlog) };
    numbers::has_used(hidden, Way::In);
    answer
}

/// An address of a socket.
type Name = (libc::sockaddr_storage, socklen_t);

/// The address that the program has given to a socket.
fn own_name(hidden: c_int) -> Option<Name> {
    if !numbers::is_bound(hidden) {
        return None;
    }
    // SAFETY: an address is a structure of numbers.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = socklen_t::try_from(size_of_val(&name)).unwrap_or(0);
    // SAFETY: the places are ours.
    let answer = unsafe { real::rgetsockname(hidden, (&raw mut name).cast(), &raw mut len) };
    (answer == 0).then_some((name, len))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let Some(hidden) = numbers::socket_of(fd) else {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::connect(fd, address, len) };
    };
    let own = own_name(hidden);
    // SAFETY: as above.
    let answer = unsafe { real::rconnect(hidden, address, len) };
    if answer == 0 || !matches!(errno(), libc::ENETUNREACH | libc::ENODEV) {
        numbers::has_used(hidden, Way::In);
        numbers::has_used(hidden, Way::Out);
        return answer;
    }
    // No device leads there. The socket of the kernel is that of the program from now on.
    if sets::state().give_to_kernel(hidden) {
        // SAFETY: no number of the program leads to it any more.
        unsafe { rclose(hidden) };
        if let Some((own, len)) = own {
            // SAFETY: the address is ours.
            if unsafe { real::bind(fd, (&raw const own).cast(), len) } != 0 {
                return -1;
            }
        }
    }
    // SAFETY: the caller keeps the contract of the function.
    unsafe { real::connect(fd, address, len) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let hidden = numbers::socket_of(fd);
    if let Some(hidden) = hidden
        && request == libc::FIONBIO
        && argument != 0
    {
        // SAFETY: the caller passes a number.
        let on = unsafe { std::ptr::with_exposed_provenance::<c_int>(argument).read_unaligned() };
        // SAFETY: a function of numbers.
        unsafe { rfcntl(hidden, libc::F_SETFL, if on == 0 { 0 } else { O_NONBLOCK as usize }) };
    } else if hidden.is_some() && !matches!(request, libc::FIOCLEX | libc::FIONCLEX) {
        return fail(libc::ENOTTY);
    }
    // SAFETY: the caller keeps the contract of the function.
    unsafe { real::ioctl(fd, request, argument) }
}
