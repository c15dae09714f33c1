//! Options of sockets.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::{Uncancelled, now};
use ferroce_transport::Time;
use libc::{
    IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP, SO_ACCEPTCONN, SO_DOMAIN, SO_ERROR, SO_KEEPALIVE,
    SO_LINGER, SO_PROTOCOL, SO_RCVBUF, SO_RCVTIMEO, SO_REUSEADDR, SO_SNDBUF, SO_SNDTIMEO, SO_TYPE,
    SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, linger, socklen_t, timeval,
};

use super::connect::descriptor;
use super::proto::mapped_size;
use super::socket::{Inner, Phase, Socket};
use super::table;
use crate::cm::id::Id;
use crate::object::lock;
use crate::refusal::{Answer, Refused, minus_one};

/// The options of rsockets alone, as its header numbers them.
const SOL_RDMA: c_int = 0x1_0000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

/// How large the parts of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) send_queue: u16,
    pub(super) receive_queue: u16,
    pub(super) inline: usize,
    pub(super) send_buffer: usize,
    /// Two halves, of which the peer fills one after the other.
    pub(super) receive_buffer: usize,
    pub(super) mapped: u16,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            send_queue: 384,
            receive_queue: 384,
            inline: 64,
            send_buffer: 1 << 19,
            receive_buffer: 1 << 19,
            mapped: 0,
        }
    }
}

impl Sizes {
    /// Completions that there may be at once.
    pub(super) fn entries(&self) -> c_int {
        c_int::from(self.send_queue) + c_int::from(self.receive_queue)
    }
}

/// What a program has said about a socket.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) nonblocking: bool,
    pub(super) sizes: Sizes,
    pub(super) backlog: usize,
    /// Seconds that a close may take, if any were given.
    pub(super) linger: Option<c_int>,
    pub(super) reuse: bool,
    family_only: Option<bool>,
    pub(super) tos: u8,
    send_timeout: Option<Duration>,
    receive_timeout: Option<Duration>,
    /// Those that change nothing, but are told as they were given.
    others: BTreeMap<(c_int, c_int), c_int>,
}

impl Options {
    /// Those of a socket that a listener with these accepts.
    pub(super) fn for_accepted(&self) -> Self {
        Self { nonblocking: false, ..self.clone() }
    }

    pub(super) fn sends_until(&self) -> Option<Time> {
        self.send_timeout.map(|timeout| now() + timeout)
    }

    pub(super) fn receives_until(&self) -> Option<Time> {
        self.receive_timeout.map(|timeout| now() + timeout)
    }

    /// An id is to have them.
    pub(super) fn write_to(&self, id: &Arc<Id>) {
        let mut state = lock(&id.state);
        state.options.reuse = self.reuse;
        state.options.tos = self.tos;
        state.options.family_only = self.family_only;
    }
}

const fn is_before_connecting(inner: &Inner) -> bool {
    matches!(inner.phase, Phase::New | Phase::Bound | Phase::Listening)
}

/// A value of the program's.
///
/// # Safety
/// `value` is null, or to so many bytes.
unsafe fn value<T: Copy>(value: *const c_void, len: socklen_t) -> Answer<T> {
    if value.is_null() {
        return Err(Refused::new(libc::EFAULT, "no value"));
    }
    if (len as usize) < size_of::<T>() {
        return Err(Refused::invalid(format_args!("a value of {len} bytes")));
    }
    // SAFETY: the caller vouches for so many bytes, and the types are made of numbers.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

fn span(time: timeval) -> Option<Duration> {
    let whole = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
        + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0));
    (!whole.is_zero()).then_some(whole)
}

/// A size of a buffer that is given as half of it.
fn size_of_buffer(given: c_int) -> usize {
    let given = usize::try_from(given).unwrap_or(0).clamp(1 << 11, 1 << 28);
    (given * 2).next_multiple_of(4096)
}

fn size_of_queue(given: c_int) -> u16 {
    u16::try_from(given).unwrap_or(if given < 0 { 0 } else { u16::MAX }).clamp(16, 4096)
}

/// # Safety
/// `at` is null, or to so many bytes.
unsafe fn set(socket: &Socket, level: c_int, name: c_int, at: *const c_void, len: socklen_t) -> Answer<()> {
    let mut inner = lock(&socket.inner);
    if level == IPPROTO_TCP && socket.is_datagram {
        return Err(unknown(level, name));
    }
    // SAFETY: the caller vouches for it.
    let number = || unsafe { value::<c_int>(at, len) };
    match (level, name) {
        (SOL_SOCKET, SO_REUSEADDR) => inner.options.reuse = number()? != 0,
        // The buffers of a connection are made before it: later there is nothing to change, and it is no error.
        (SOL_SOCKET, SO_RCVBUF) => {
            let size = size_of_buffer(number()?);
            if is_before_connecting(&inner) {
                inner.options.sizes.receive_buffer = size;
            }
        }
        (SOL_SOCKET, SO_SNDBUF) => {
            let size = size_of_buffer(number()?);
            if is_before_connecting(&inner) {
                inner.options.sizes.send_buffer = size;
            }
        }
        (SOL_SOCKET, SO_LINGER) => {
            // SAFETY: the caller vouches for it.
            let given = unsafe { value::<linger>(at, len) }?;
            inner.options.linger = (given.l_onoff != 0).then_some(given.l_linger);
        }
        // SAFETY: the caller vouches for it.
        (SOL_SOCKET, SO_RCVTIMEO) => inner.options.receive_timeout = span(unsafe { value(at, len) }?),
        // SAFETY: as above.
        (SOL_SOCKET, SO_SNDTIMEO) => inner.options.send_timeout = span(unsafe { value(at, len) }?),
        (IPPROTO_IPV6, libc::IPV6_V6ONLY) => inner.options.family_only = Some(number()? != 0),
        (IPPROTO_IP, libc::IP_TOS) | (IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            inner.options.tos = u8::try_from(number()?).map_err(Refused::invalid)?;
        }
        (SOL_RDMA, RDMA_SQSIZE) => inner.options.sizes.send_queue = size_of_queue(number()?),
        (SOL_RDMA, RDMA_RQSIZE) => inner.options.sizes.receive_queue = size_of_queue(number()?),
        (SOL_RDMA, RDMA_INLINE) => {
            inner.options.sizes.inline = usize::try_from(number()?).unwrap_or(0).min(256);
        }
        (SOL_RDMA, RDMA_IOMAPSIZE) => {
            if !is_before_connecting(&inner) {
                return Err(Refused::invalid("the table of mappings is made before a connection"));
            }
            inner.options.sizes.mapped = mapped_size(u16::try_from(number()?).map_err(Refused::invalid)?);
        }
        (SOL_SOCKET, SO_ERROR | SO_TYPE | SO_DOMAIN | SO_PROTOCOL | SO_ACCEPTCONN) => {
            return Err(unknown(level, name));
        }
        (SOL_SOCKET | IPPROTO_TCP | IPPROTO_IP | IPPROTO_IPV6, _) if is_idle(level, name) => {
            let given = number()?;
            inner.options.others.insert((level, name), given);
        }
        _ => return Err(unknown(level, name)),
    }
    Ok(())
}

/// Options that have no meaning here, but do no harm.
const fn is_idle(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => {
            matches!(name, SO_KEEPALIVE | libc::SO_OOBINLINE | libc::SO_REUSEPORT | libc::SO_PRIORITY)
        }
        IPPROTO_TCP => matches!(
            name,
            libc::TCP_NODELAY
                | libc::TCP_CORK
                | libc::TCP_QUICKACK
                | libc::TCP_DEFER_ACCEPT
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
                | libc::TCP_SYNCNT
                | libc::TCP_FASTOPEN
                | libc::TCP_USER_TIMEOUT
                | libc::TCP_MAXSEG
        ),
        IPPROTO_IP => matches!(name, libc::IP_MTU_DISCOVER | libc::IP_BIND_ADDRESS_NO_PORT),
        _ => false,
    }
}

fn unknown(level: c_int, name: c_int) -> Refused {
    Refused::new(libc::ENOPROTOOPT, format_args!("option {name} of level {level}"))
}

/// What an option is, in the bytes that the program sees.
fn get(socket: &Socket, level: c_int, name: c_int) -> Answer<Vec<u8>> {
    let mut inner = lock(&socket.inner);
    let size = |size: usize| c_int::try_from(size).unwrap_or(c_int::MAX);
    if level == IPPROTO_TCP && socket.is_datagram {
        return Err(unknown(level, name));
    }
    let number = match (level, name) {
        (SOL_SOCKET, SO_REUSEADDR) => c_int::from(inner.options.reuse),
        (SOL_SOCKET, SO_RCVBUF) => size(inner.options.sizes.receive_buffer),
        (SOL_SOCKET, SO_SNDBUF) => size(inner.options.sizes.send_buffer),
        (SOL_SOCKET, SO_TYPE) if socket.is_datagram => SOCK_DGRAM,
        (SOL_SOCKET, SO_TYPE) => SOCK_STREAM,
        (SOL_SOCKET, SO_DOMAIN) => socket.domain,
        (SOL_SOCKET, SO_PROTOCOL) if socket.is_datagram => IPPROTO_UDP,
        (SOL_SOCKET, SO_PROTOCOL) => IPPROTO_TCP,
        (SOL_SOCKET, SO_ACCEPTCONN) => c_int::from(inner.phase == Phase::Listening),
        (SOL_SOCKET, SO_ERROR) => {
            let failed = std::mem::take(&mut inner.error);
            let is_connected = inner.phase == Phase::Connected;
            let stream = inner.stream.as_mut().filter(|_| is_connected);
            let broken = stream.and_then(|stream| stream.error.take());
            if failed == 0 { broken.unwrap_or(0) } else { failed }
        }
        (SOL_SOCKET, SO_LINGER) => {
            let given = inner.options.linger;
            return Ok([c_int::from(given.is_some()), given.unwrap_or(0)].map(c_int::to_ne_bytes).concat());
        }
        (SOL_SOCKET, SO_RCVTIMEO | SO_SNDTIMEO) => {
            let span =
                if name == SO_RCVTIMEO { inner.options.receive_timeout } else { inner.options.send_timeout };
            let span = span.unwrap_or_default();
            return Ok([span.as_secs(), u64::from(span.subsec_micros())].map(u64::to_ne_bytes).concat());
        }
        (IPPROTO_TCP, libc::TCP_MAXSEG) => {
            let id = inner.id()?;
            128 << id.mtu_code().clamp(1, 5)
        }
        (IPPROTO_IPV6, libc::IPV6_V6ONLY) => c_int::from(inner.options.family_only == Some(true)),
        (IPPROTO_IP, libc::IP_TOS) | (IPPROTO_IPV6, libc::IPV6_TCLASS) => c_int::from(inner.options.tos),
        (SOL_RDMA, RDMA_SQSIZE) => c_int::from(inner.options.sizes.send_queue),
        (SOL_RDMA, RDMA_RQSIZE) => c_int::from(inner.options.sizes.receive_queue),
        (SOL_RDMA, RDMA_INLINE) => size(inner.options.sizes.inline),
        (SOL_RDMA, RDMA_IOMAPSIZE) => c_int::from(inner.options.sizes.mapped),
        _ if is_idle(level, name) => inner.options.others.get(&(level, name)).copied().unwrap_or(0),
        _ => return Err(unknown(level, name)),
    };
    Ok(number.to_ne_bytes().to_vec())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    at: *const c_void,
    len: socklen_t,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes so many bytes.
    let answer = table::find(socket).and_then(|socket| unsafe { set(&socket, level, name, at, len) });
    minus_one("rsetsockopt", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let _whole = Uncancelled::new();
    let answer = table::find(socket).and_then(|socket| {
        if at.is_null() || len.is_null() {
            return Err(Refused::new(libc::EFAULT, "no place for the value"));
        }
        let bytes = get(&socket, level, name)?;
        // SAFETY: the caller passes a length.
        let room = unsafe { len.read_unaligned() } as usize;
        let told = bytes.len().min(room);
        // SAFETY: the caller passes room for so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), told) };
        // SAFETY: as above.
        unsafe { len.write_unaligned(socklen_t::try_from(told).unwrap_or(0)) };
        Ok(())
    });
    minus_one("rgetsockopt", answer)
}

/// The third argument is there whether the command has one or not: the calling conventions of C allow it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rfcntl(socket: c_int, command: c_int, argument: usize) -> c_int {
    let _whole = Uncancelled::new();
    let answer = table::find(socket).and_then(|socket| {
        let mut inner = lock(&socket.inner);
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if inner.options.nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                inner.options.nonblocking = argument & libc::O_NONBLOCK as usize != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => {
                let argument = c_int::try_from(argument).unwrap_or(0);
                // SAFETY: a system call without pointers, with a descriptor of ours.
                Ok(unsafe { libc::fcntl(socket.descriptor(), command, argument) })
            }
            _ => Err(Refused::invalid(format_args!("fcntl {command}"))),
        }
    });
    descriptor("rfcntl", answer)
}
