//! Sending and receiving.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::kinds::{self, TOLD_IN, TOLD_OUT};
use crate::next::next;

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

/// Defines functions that ask rsockets about sockets of ours, and the C library about all else.
macro_rules! either {
    ($($again:ident $name:ident $ours:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name(fd: c_int $(, $argument: $type)*) -> ssize_t {
            if kinds::is_socket(fd) {
                kinds::tell_again(fd, $again);
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
    TOLD_OUT send rsend(from: *const c_void, len: size_t, flags: c_int);
    TOLD_OUT sendto rsendto(from: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t);
    TOLD_OUT sendmsg rsendmsg(message: *const msghdr, flags: c_int);
    TOLD_OUT write rwrite(from: *const c_void, len: size_t);
    TOLD_OUT writev rwritev(parts: *const iovec, count: c_int);
    TOLD_IN recv rrecv(to: *mut c_void, len: size_t, flags: c_int);
    TOLD_IN recvfrom rrecvfrom(to: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t);
    TOLD_IN recvmsg rrecvmsg(message: *mut msghdr, flags: c_int);
    TOLD_IN read rread(to: *mut c_void, len: size_t);
    TOLD_IN readv rreadv(parts: *const iovec, count: c_int);
}

// Compilers put these in the place of some where they check lengths.

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    // SAFETY: the caller keeps the contract of the function.
    unsafe { read(fd, to, len.min(room)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __recv_chk(
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
pub(crate) unsafe extern "C" fn __recvfrom_chk(
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
pub(crate) unsafe extern "C" fn sendfile(fd: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t {
    if !kinds::is_socket(fd) {
        // SAFETY: the caller keeps the contract of the function.
        return unsafe { real::sendfile(fd, from, offset, len) };
    }
    kinds::tell_again(fd, TOLD_OUT);
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
        let sent = unsafe { real::rsend(fd, buffer.as_ptr().cast(), got.cast_unsigned(), 0) };
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
pub(crate) unsafe extern "C" fn sendfile64(
    fd: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller keeps the contract of the function; on 64 bits both are the same.
    unsafe { sendfile(fd, from, offset, len) }
}
