//! Sending and receiving.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::next::{errno, next};
use crate::numbers::{self, Way};

mod real {
    use super::*;

    next! {
        of_c send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t;
        of_c sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t) -> ssize_t;
        of_c sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
        of_c write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t;
        of_c writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
        of_c recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
        of_c recvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t) -> ssize_t;
        of_c recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
        of_c read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t;
        of_c readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
        of_c sendfile(fd: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
        of_rsockets rsend(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t;
        of_rsockets rsendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t) -> ssize_t;
        of_rsockets rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
        of_rsockets rwrite(fd: c_int, from: *const c_void, len: size_t) -> ssize_t;
        of_rsockets rwritev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
        of_rsockets rrecv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
        of_rsockets rrecvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t) -> ssize_t;
        of_rsockets rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
        of_rsockets rread(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t;
        of_rsockets rreadv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    }
}

/// Bytes were taken out of a socket, or not. An edge may follow unless it was the end, after which nothing comes.
fn has_received(hidden: c_int, got: ssize_t) -> ssize_t {
    if got > 0 || got < 0 && matches!(errno(), libc::EAGAIN | libc::EINTR) {
        numbers::has_used(hidden, Way::In);
    }
    got
}

/// Bytes were sent, or not. An edge may follow if there was no room for all.
fn has_sent(hidden: c_int, sent: ssize_t, wanted: size_t) -> ssize_t {
    if usize::try_from(sent).is_ok_and(|sent| sent >= wanted) {
        return sent;
    }
    numbers::has_used(hidden, Way::Out);
    sent
}

/// How many bytes some parts have.
///
/// # Safety
/// There are so many parts, or the pointer is null.
unsafe fn total(parts: *const iovec, count: usize) -> size_t {
    if parts.is_null() {
        return 0;
    }
    // SAFETY: the caller vouches for it.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.iov_len))
}

/// Defines functions that ask rsockets about sockets of ours, and the C library about all else.
macro_rules! either {
    ($($name:ident $ours:ident($($argument:ident: $type:ty),*) $done:expr;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name(fd: c_int $(, $argument: $type)*) -> ssize_t {
            if let Some(hidden) = numbers::socket_of(fd) {
                // SAFETY: the caller keeps the contract of the function, which is the same for both.
                let answer = unsafe { real::$ours(hidden $(, $argument)*) };
                $done(hidden, answer)
            } else {
                // SAFETY: as above.
                unsafe { real::$name(fd $(, $argument)*) }
            }
        }
    )*};
}

either! {
    send rsend(from: *const c_void, len: size_t, flags: c_int) |hidden, sent| has_sent(hidden, sent, len);
    sendto rsendto(from: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t)
        |hidden, sent| has_sent(hidden, sent, len);
    sendmsg rsendmsg(message: *const msghdr, flags: c_int) |hidden, sent: ssize_t| {
        // SAFETY: the message was read just now, unless it was refused.
        let message = if sent < 0 { None } else { unsafe { message.as_ref() } };
        // SAFETY: as above.
        let wanted = message.map_or(0, |message| unsafe { total(message.msg_iov, message.msg_iovlen) });
        has_sent(hidden, sent, wanted)
    };
    write rwrite(from: *const c_void, len: size_t) |hidden, sent| has_sent(hidden, sent, len);
    writev rwritev(parts: *const iovec, count: c_int) |hidden, sent: ssize_t| {
        let count = if sent < 0 { 0 } else { usize::try_from(count).unwrap_or(0) };
        // SAFETY: the parts were read just now, unless they were refused.
        has_sent(hidden, sent, unsafe { total(parts, count) })
    };
    recv rrecv(to: *mut c_void, len: size_t, flags: c_int) has_received;
    recvfrom rrecvfrom(to: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t)
        has_received;
    recvmsg rrecvmsg(message: *mut msghdr, flags: c_int) has_received;
    read rread(to: *mut c_void, len: size_t) has_received;
    readv rreadv(parts: *const iovec, count: c_int) has_received;
}

// Compilers put these in the place of some where they check lengths.

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { read(fd, to, len.min(room)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { recv(fd, to, len.min(room), flags) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { recvfrom(fd, to, len.min(room), flags, address, address_len) }
}

/// Bytes of a file that are sent at once.
const PIECE: usize = 1 << 16;

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendfile(
    fd: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    let Some(hidden) = numbers::socket_of(fd) else {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::sendfile(fd, from, offset, len) };
    };
    let start = if offset.is_null() {
        // SAFETY: a function of numbers.
        unsafe { libc::lseek(from, 0, libc::SEEK_CUR) }
    } else {
        // SAFETY: the caller passes an offset.
        unsafe { offset.read() }
    };
    if start < 0 {
        return -1;
    }
    let mut buffer = vec![0_u8; PIECE.min(len)];
    let mut done: ssize_t = 0;
    while done.cast_unsigned() < len {
        let wanted = buffer.len().min(len - done.cast_unsigned());
        // SAFETY: the buffer has so many bytes.
        let got = unsafe { libc::pread(from, buffer.as_mut_ptr().cast(), wanted, start + done as off_t) };
        if got <= 0 {
            if got < 0 && done == 0 {
                return -1;
            }
            break;
        }
        // SAFETY: as above.
        let sent = unsafe { real::rsend(hidden, buffer.as_ptr().cast(), got.cast_unsigned(), 0) };
        has_sent(hidden, sent, got.cast_unsigned());
        if sent < 0 {
            if done == 0 {
                return -1;
            }
            break;
        }
        done += sent;
        if sent < got {
            break;
        }
    }
    if offset.is_null() {
        // SAFETY: a function of numbers.
        unsafe { libc::lseek(from, start + done as off_t, libc::SEEK_SET) };
    } else {
        // SAFETY: the caller passes an offset.
        unsafe { offset.write(start + done as off_t) };
    }
    done
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendfile64(
    fd: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller keeps the contract of the function; on 64 bits both are the same.
    unsafe { sendfile(fd, from, offset, len) }
}
