//! Sending and receiving, in all the forms that sockets have.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use ferroce_device::Uncancelled;
use libc::{
    MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t,
};

use super::buffer::Parts;
use super::connect::{given, rgetpeername, write_name};
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
    let socket = table::find(socket)?;
    // SAFETY: the caller vouches for it.
    unsafe { send_to(&socket, (parts, count), flags, (std::ptr::null(), 0)) }
}

/// # Safety
/// As for [`send`]; the address is null, or of so many bytes.
unsafe fn send_to(
    socket: &Socket,
    (parts, count): (*const iovec, usize),
    flags: c_int,
    (address, len): (*const sockaddr, socklen_t),
) -> Answer<usize> {
    // SAFETY: the caller vouches for it.
    let parts = unsafe { named(parts, count) }?;
    // SAFETY: as above.
    let mut parts = unsafe { Parts::new(parts) };
    if !socket.is_datagram {
        return socket.send(Wish { flags }, &mut parts);
    }
    let to = if address.is_null() {
        None
    } else {
        // SAFETY: as above.
        Some(unsafe { given(address, len) }?)
    };
    socket.send_datagram(Wish { flags }, &mut parts, to)
}

/// What a call has received.
struct Got {
    len: usize,
    /// Where it came from, if it was a datagram.
    from: Option<SocketAddr>,
    /// There was no room for all of it.
    is_cut: bool,
}

impl Got {
    const fn some(len: usize) -> Self {
        Self { len, from: None, is_cut: false }
    }

    /// Tells where it came from.
    ///
    /// # Safety
    /// `address` and `len` are null, or to a place of so many bytes.
    unsafe fn tell(&self, socket: &Socket, address: *mut sockaddr, len: *mut socklen_t) {
        if let Some(from) = self.from
            && !address.is_null()
            && !len.is_null()
        {
            // SAFETY: the caller vouches for it.
            unsafe { write_name(socket, from, address, len) };
        }
    }
}

/// # Safety
/// `parts` is null, or to so many parts, each of which may be written.
unsafe fn receive(socket: c_int, parts: *const iovec, count: usize, flags: c_int) -> Answer<usize> {
    let socket = table::find(socket)?;
    // SAFETY: the caller vouches for it.
    let got = unsafe { receive_from(&socket, (parts, count), flags) }?;
    Ok(got.len)
}

/// # Safety
/// As for [`receive`].
unsafe fn receive_from(socket: &Socket, (parts, count): (*const iovec, usize), flags: c_int) -> Answer<Got> {
    // SAFETY: the caller vouches for it.
    let parts = unsafe { named(parts, count) }?;
    // SAFETY: as above.
    let mut parts = unsafe { Parts::new(parts) };
    if !socket.is_datagram {
        return socket.receive(Wish { flags }, &mut parts).map(Got::some);
    }
    let Some(received) = socket.receive_datagram(Wish { flags }, &mut parts)? else {
        return Ok(Got::some(0));
    };
    Ok(Got {
        len: if flags & MSG_TRUNC == 0 { received.copied } else { received.whole },
        from: Some(received.from),
        is_cut: received.copied < received.whole,
    })
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

/// A stream knows where it goes: it takes no address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    let _whole = Uncancelled::new();
    let answer = table::find(socket).and_then(|socket| {
        if !address.is_null() && !socket.is_datagram {
            return Err(Refused::new(libc::EISCONN, "a stream has one peer"));
        }
        // SAFETY: the caller passes so many bytes, and an address or null.
        unsafe { send_to(&socket, (&one(from, len), 1), flags, (address, address_len)) }
    });
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
        let to = (message.msg_name.cast_const().cast(), message.msg_namelen);
        let socket = table::find(socket)?;
        // SAFETY: as above.
        unsafe { send_to(&socket, (message.msg_iov, message.msg_iovlen), flags, to) }
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
    let answer = table::find(socket).and_then(|known| {
        // SAFETY: the caller passes room for so many bytes.
        let got = unsafe { receive_from(&known, (&one(to, len), 1), flags) }?;
        // SAFETY: the caller passes places to fill.
        unsafe { got.tell(&known, address, address_len) };
        if got.from.is_none() && !address.is_null() && !address_len.is_null() {
            // SAFETY: as above.
            unsafe { rgetpeername(socket, address, address_len) };
        }
        Ok(got.len)
    });
    length("rrecvfrom", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rrecvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a message, or null.
    let answer = unsafe { crate::object::filled(message, "message") }.and_then(|message| {
        let mut room = std::mem::take(&mut message.msg_namelen);
        (message.msg_controllen, message.msg_flags) = (0, 0);
        let socket = table::find(socket)?;
        // SAFETY: as above.
        let got = unsafe { receive_from(&socket, (message.msg_iov, message.msg_iovlen), flags) }?;
        if got.from.is_some() && !message.msg_name.is_null() {
            // SAFETY: as above.
            unsafe { got.tell(&socket, message.msg_name.cast(), &raw mut room) };
            message.msg_namelen = room;
        }
        if got.is_cut {
            message.msg_flags = MSG_TRUNC;
        }
        Ok(got.len)
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
