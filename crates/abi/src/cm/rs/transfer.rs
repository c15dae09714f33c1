//! Sending and receiving, in all the forms that sockets have.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ferroce_device::Uncancelled;
use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::buffer::Parts;
use super::socket::{Phase, Socket};
use super::stream::Stream;
use super::table;
use crate::object::{lock, seen};
use crate::refusal::{Answer, Refused, set_errno};

/// The most parts that a call may name, as for sockets of the kernel.
const MOST_PARTS: usize = 1024;

/// How a call is to be done.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) flags: c_int,
}

/// For functions that return a length, or -1 and `errno`.
pub(super) fn length(function: &str, answer: Answer<usize>) -> ssize_t {
    match answer {
        Ok(len) => ssize_t::try_from(len).unwrap_or(ssize_t::MAX),
        Err(refused) => {
            set_errno(refused.tell(function));
            -1
        }
    }
}

/// The parts that a program names.
///
/// # Safety
/// `parts` is null, or to so many parts.
unsafe fn named<'a>(parts: *const iovec, count: usize) -> Answer<&'a [iovec]> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > MOST_PARTS {
        return Err(Refused::invalid(format_args!("{count} parts: at most {MOST_PARTS}")));
    }
    // SAFETY: the caller vouches for it.
    unsafe { seen(parts, "list of parts") }?;
    // SAFETY: as above.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    let whole = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len));
    if whole.is_none_or(|whole| ssize_t::try_from(whole).is_err()) {
        return Err(Refused::invalid("the parts are too long together"));
    }
    if parts.iter().any(|part| part.iov_base.is_null() && part.iov_len > 0) {
        return Err(Refused::new(libc::EFAULT, "a part without memory"));
    }
    Ok(parts)
}

impl Socket {
    /// Waits until a connection that is under way stands.
    fn connected(&self) -> Answer<()> {
        let mut inner = lock(&self.inner);
        if inner.phase == Phase::Connecting && !inner.options.nonblocking {
            return self.wait(inner, None, |inner| (inner.phase != Phase::Connecting).then_some(Ok(())));
        }
        inner.stream().map(|_| ())
    }

    /// Sends all that the parts have, or what can be sent at once. `some` sends some, or says that there is no room.
    pub(super) fn write_with(
        &self,
        wish: Wish,
        parts: &mut Parts<'_>,
        mut some: impl FnMut(&mut Stream, &mut Parts<'_>, usize) -> Answer<Option<usize>>,
    ) -> Answer<usize> {
        self.connected()?;
        let mut done = 0;
        loop {
            let inner = lock(&self.inner);
            let at_once = inner.options.nonblocking || wish.flags & MSG_DONTWAIT != 0;
            let until = inner.options.sends_until();
            let sent = self.wait(inner, until, |inner| {
                let stream = match inner.stream() {
                    Ok(stream) => stream,
                    Err(refused) => return Some(Err(refused)),
                };
                if !stream.writes {
                    let code =
                        if stream.shut { libc::EPIPE } else { stream.error.unwrap_or(libc::ECONNRESET) };
                    return Some(Err(Refused::new(code, "the connection has ended")));
                }
                match some(stream, parts, done) {
                    Ok(Some(sent)) => Some(Ok(sent)),
                    Ok(None) => at_once.then(|| Err(Refused::quiet(libc::EAGAIN))),
                    Err(refused) => Some(Err(refused)),
                }
            });
            match sent {
                Ok(sent) => done += sent,
                Err(_) if done > 0 => return Ok(done),
                Err(refused) => return Err(refused),
            }
            if parts.left() == 0 {
                return Ok(done);
            }
        }
    }

    fn send(&self, wish: Wish, parts: &mut Parts<'_>) -> Answer<usize> {
        self.write_with(wish, parts, |stream, parts, _| {
            if parts.left() == 0 {
                return Ok(Some(0));
            }
            if stream.can_write() { stream.send(parts).map(Some) } else { Ok(None) }
        })
    }

    fn receive(&self, wish: Wish, parts: &mut Parts<'_>) -> Answer<usize> {
        self.connected()?;
        let mut done = 0;
        loop {
            let inner = lock(&self.inner);
            let at_once = inner.options.nonblocking || wish.flags & MSG_DONTWAIT != 0;
            let until = inner.options.receives_until();
            let got = self.wait(inner, until, |inner| {
                let stream = match inner.stream() {
                    Ok(stream) => stream,
                    Err(refused) => return Some(Err(refused)),
                };
                if parts.left() == 0 {
                    return Some(Ok(0));
                }
                if stream.readable_bytes() > 0 {
                    let got = stream.receive(parts, wish.flags & MSG_PEEK != 0);
                    return Some(Ok(got));
                }
                if !stream.reads {
                    let error = if stream.shut { None } else { stream.error.take() };
                    return Some(
                        error.map_or(Ok(0), |code| Err(Refused::new(code, "the connection has ended"))),
                    );
                }
                at_once.then(|| Err(Refused::quiet(libc::EAGAIN)))
            });
            match got {
                Ok(got) => {
                    done += got;
                    let is_whole = wish.flags & MSG_WAITALL != 0 && wish.flags & MSG_PEEK == 0;
                    if got == 0 || !is_whole || parts.left() == 0 {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => return Ok(done),
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// # Safety
/// `parts` is null, or to so many parts, each of which may be read.
unsafe fn send(socket: c_int, parts: *const iovec, count: usize, flags: c_int) -> Answer<usize> {
    let socket: Arc<Socket> = table::find(socket)?;
    // SAFETY: the caller vouches for it.
    let parts = unsafe { named(parts, count) }?;
    // SAFETY: as above.
    socket.send(Wish { flags }, &mut unsafe { Parts::new(parts) })
}

/// # Safety
/// `parts` is null, or to so many parts, each of which may be written.
unsafe fn receive(socket: c_int, parts: *const iovec, count: usize, flags: c_int) -> Answer<usize> {
    let socket: Arc<Socket> = table::find(socket)?;
    // SAFETY: the caller vouches for it.
    let parts = unsafe { named(parts, count) }?;
    // SAFETY: as above.
    socket.receive(Wish { flags }, &mut unsafe { Parts::new(parts) })
}

const fn one(start: *const c_void, len: size_t) -> iovec {
    iovec { iov_base: start.cast_mut(), iov_len: len }
}

fn count_of(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsend(
    socket: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes so many bytes.
    length("rsend", unsafe { send(socket, &one(from, len), 1, flags) })
}

/// A stream knows where it goes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    _address_len: socklen_t,
) -> ssize_t {
    let _whole = Uncancelled::new();
    let answer = if address.is_null() {
        // SAFETY: the caller passes so many bytes.
        unsafe { send(socket, &one(from, len), 1, flags) }
    } else {
        table::find(socket).and_then(|_| Err(Refused::new(libc::EISCONN, "a stream has one peer")))
    };
    length("rsendto", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a message, or null.
    let answer = unsafe { seen(message, "message") }.and_then(|message| {
        if message.msg_controllen > 0 {
            return Err(Refused::unsupported("control messages"));
        }
        // SAFETY: as above.
        unsafe { send(socket, message.msg_iov, message.msg_iovlen, flags) }
    });
    length("rsendmsg", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rwrite(socket: c_int, from: *const c_void, len: size_t) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes so many bytes.
    length("rwrite", unsafe { send(socket, &one(from, len), 1, 0) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rwritev(socket: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes so many parts.
    length("rwritev", unsafe { send(socket, parts, count_of(count), 0) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rrecv(socket: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes room for so many bytes.
    length("rrecv", unsafe { receive(socket, &one(to, len), 1, flags) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes room for so many bytes.
    let answer = unsafe { receive(socket, &one(to, len), 1, flags) };
    if answer.is_ok() && !address.is_null() && !address_len.is_null() {
        // SAFETY: the caller passes places to fill.
        unsafe { super::connect::rgetpeername(socket, address, address_len) };
    }
    length("rrecvfrom", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rrecvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a message, or null.
    let answer = unsafe { crate::object::filled(message, "message") }.and_then(|message| {
        (message.msg_controllen, message.msg_namelen, message.msg_flags) = (0, 0, 0);
        // SAFETY: as above.
        unsafe { receive(socket, message.msg_iov, message.msg_iovlen, flags) }
    });
    length("rrecvmsg", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rread(socket: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes room for so many bytes.
    length("rread", unsafe { receive(socket, &one(to, len), 1, 0) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rreadv(socket: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes so many parts.
    length("rreadv", unsafe { receive(socket, parts, count_of(count), 0) })
}
