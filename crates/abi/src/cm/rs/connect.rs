//! Sockets from their making to their connection.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_cabi::IBV_QPT_RC;
use ferroce_cabi::cm::RDMA_PS_TCP;
use ferroce_device::Uncancelled;
use libc::{
    AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM,
    sockaddr, socklen_t,
};

use super::datagram;
use super::options::Options;
use super::service::{self, parameters};
use super::socket::{Inner, Phase, Socket};
use super::stream::Stream;
use super::table;
use crate::cm::address::{read, written};
use crate::cm::connect::rdma_connect;
use crate::cm::handles;
use crate::cm::id;
use crate::cm::resolve::{listen, rdma_bind_addr, resolve_address, resolve_route};
use crate::object::lock;
use crate::refusal::{Answer, Refused, last_errno, minus_one, set_errno};

/// For functions that return a descriptor, or -1 and `errno`.
pub(super) fn descriptor(function: &str, answer: Answer<c_int>) -> c_int {
    answer.unwrap_or_else(|refused| {
        set_errno(refused.tell(function));
        -1
    })
}

fn make(domain: c_int, kind: c_int, protocol: c_int) -> Answer<c_int> {
    let (flags, kind) = (kind & (SOCK_NONBLOCK | SOCK_CLOEXEC), kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC));
    let is_known = match kind {
        SOCK_STREAM => [0, IPPROTO_TCP].contains(&protocol),
        SOCK_DGRAM => [0, IPPROTO_UDP].contains(&protocol),
        _ => false,
    };
    if domain != AF_INET && domain != AF_INET6 || !is_known {
        let what = format_args!("sockets of domain {domain}, type {kind} and protocol {protocol}");
        return Err(Refused::new(libc::ENOTSUP, what));
    }
    if crate::devices::chosen()?.is_empty() {
        return Err(Refused::new(libc::ENODEV, "there is no device"));
    }
    let mut options = Options::default();
    options.nonblocking = flags & SOCK_NONBLOCK != 0;
    if kind == SOCK_DGRAM {
        return Ok(datagram::make(domain, options)?.descriptor());
    }
    let id = new_id()?;
    let socket = Socket::new(domain, Phase::New, Some(Arc::clone(&id)), options).inspect_err(|_| {
        let _ = id::destroy(&id);
    })?;
    table::enroll(id.as_c(), &socket);
    table::show(&socket);
    Ok(socket.descriptor())
}

fn new_id() -> Answer<Arc<id::Id>> {
    let channel = service::channel()?;
    let id = id::create(channel.as_c(), std::ptr::null_mut(), RDMA_PS_TCP, IBV_QPT_RC)?;
    handles::show_id(&id);
    Ok(id)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let _whole = Uncancelled::new();
    descriptor("rsocket", make(domain, kind, protocol))
}

/// The address that a program gives to a socket; one of IPv4 may be written as one of IPv6.
///
/// # Safety
/// `address` is null, or to so many bytes.
pub(super) unsafe fn given(address: *const sockaddr, len: socklen_t) -> Answer<SocketAddr> {
    let needed = |family: c_int| match family {
        AF_INET => size_of::<libc::sockaddr_in>(),
        _ => size_of::<libc::sockaddr_in6>(),
    };
    if address.is_null() {
        return Err(Refused::new(libc::EFAULT, "no address"));
    }
    if len < 2 {
        return Err(Refused::invalid("an address of too few bytes"));
    }
    // SAFETY: every address begins with its family, and there are two bytes.
    let family = c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    if ![AF_INET, AF_INET6].contains(&family) {
        return Err(Refused::new(libc::EAFNOSUPPORT, format_args!("addresses of family {family}")));
    }
    // What old programs leave out at the end is zero to them.
    if (len as usize) < needed(family).min(24) {
        return Err(Refused::invalid(format_args!("an address of {len} bytes")));
    }
    // SAFETY: it is as long as its family says.
    let mut address = unsafe { read(address) }?;
    address.set_ip(address.ip().to_canonical());
    Ok(address)
}

/// Gives a socket its own address.
fn bind(inner: &mut Inner, address: SocketAddr) -> Answer<()> {
    if let Inner { datagrams: Some(datagrams), options, .. } = inner {
        return datagrams.bind(address, options);
    }
    if inner.phase != Phase::New {
        return Err(Refused::invalid("the socket has an address already"));
    }
    let id = inner.id()?;
    inner.options.write_to(&id);
    let (mut storage, _) = written(address);
    // SAFETY: the address is a whole one.
    if unsafe { rdma_bind_addr(id.as_c(), (&raw mut storage).cast()) } != 0 {
        return Err(last_errno(format_args!("{address} cannot be had")));
    }
    inner.phase = Phase::Bound;
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rbind(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let _whole = Uncancelled::new();
    let answer = table::find(socket).and_then(|socket| {
        // SAFETY: the caller passes an address of so many bytes.
        let address = unsafe { given(address, len) }?;
        bind(&mut lock(&socket.inner), address)
    });
    minus_one("rbind", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    let _whole = Uncancelled::new();
    let answer = table::find(socket).and_then(|socket| {
        refuse_datagrams(&socket)?;
        let mut inner = lock(&socket.inner);
        match inner.phase {
            Phase::New => {
                let any = if socket.domain == AF_INET { "0.0.0.0:0" } else { "[::]:0" };
                bind(&mut inner, any.parse().map_err(Refused::invalid)?)?;
            }
            Phase::Bound | Phase::Listening => {}
            _ => return Err(Refused::invalid("the socket is connected")),
        }
        inner.options.backlog =
            usize::try_from(backlog).ok().filter(|most| *most > 0).unwrap_or(128).min(1024);
        if inner.phase == Phase::Bound {
            let id = inner.id()?;
            // First: a request may come at once.
            inner.phase = Phase::Listening;
            listen(&id, 0).inspect_err(|_| inner.phase = Phase::Bound)?;
        }
        Ok(())
    });
    minus_one("rlisten", answer)
}

fn refuse_datagrams(socket: &Socket) -> Answer<()> {
    if socket.is_datagram { Err(Refused::unsupported("connections of datagrams")) } else { Ok(()) }
}

/// Waits for a connection.
fn accept(listener: &Socket) -> Answer<Arc<Socket>> {
    refuse_datagrams(listener)?;
    let inner = lock(&listener.inner);
    if inner.phase != Phase::Listening {
        return Err(Refused::invalid("the socket does not listen"));
    }
    let at_once = inner.options.nonblocking;
    let until = inner.options.receives_until();
    let accepted = listener.wait(inner, until, |inner| {
        if let Some(accepted) = inner.accepted.pop_front() {
            return Some(Ok(accepted));
        }
        if inner.phase != Phase::Listening {
            return Some(Err(Refused::new(libc::EBADF, "another thread has closed the socket")));
        }
        at_once.then(|| Err(Refused::quiet(libc::EAGAIN)))
    })?;
    table::show(&accepted);
    Ok(accepted)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn raccept(socket: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let _whole = Uncancelled::new();
    let answer = table::find(socket).and_then(|listener| {
        let accepted = accept(&listener)?;
        // SAFETY: the caller passes a place to fill, or null.
        let _ = unsafe { tell_name(&accepted, true, address, len) };
        Ok(accepted.descriptor())
    });
    descriptor("raccept", answer)
}

/// Starts to connect. What comes of it is heard by the thread of the service.
fn begin(socket: &Arc<Socket>, inner: &mut Inner, address: SocketAddr) -> Answer<()> {
    let id = inner.id()?;
    inner.options.write_to(&id);
    let unreachable = |refused: Refused| {
        // There is no device that leads there.
        if refused.code == libc::EINVAL {
            Refused::new(libc::ENETUNREACH, "no device leads there")
        } else {
            refused
        }
    };
    resolve_address(&id, None, address)?;
    resolve_route(&id).map_err(unreachable)?;
    let stream = Stream::new(&id, inner.options.sizes)?;
    let data = stream.introduction().emit();
    let mut param = parameters(&data);
    inner.stream = Some(Box::new(stream));
    inner.phase = Phase::Connecting;
    table::enroll(id.as_c(), socket);
    // SAFETY: the parameters and their data live during the call.
    if unsafe { rdma_connect(id.as_c(), &raw mut param) } != 0 {
        return Err(last_errno(format_args!("{address} cannot be asked")));
    }
    Ok(())
}

/// An id whose connection failed cannot be used again: the socket gets another.
fn renew(inner: &mut Inner) -> Answer<()> {
    if let Some(id) = inner.id.take() {
        table::strike(id.as_c());
        // Before its queue pair: the thread of the service may use that for an event.
        let _ = id::destroy(&id);
    }
    inner.stream = None;
    inner.id = Some(new_id()?);
    inner.phase = Phase::New;
    Ok(())
}

fn connect(socket: &Arc<Socket>, address: SocketAddr) -> Answer<()> {
    let mut inner = lock(&socket.inner);
    if let Inner { datagrams: Some(datagrams), options, .. } = &mut *inner {
        return datagrams.connect(address, options);
    }
    match inner.phase {
        Phase::New | Phase::Bound => {}
        Phase::Failed => {
            if inner.error != 0 {
                let code = std::mem::take(&mut inner.error);
                return Err(Refused::new(code, format_args!("{address}: not connected")));
            }
            renew(&mut inner)?;
        }
        Phase::Connecting => return Err(Refused::quiet(libc::EALREADY)),
        Phase::Connected => return Err(Refused::new(libc::EISCONN, "the socket is connected")),
        Phase::Listening => return Err(Refused::invalid("the socket listens")),
        Phase::Closed => return Err(Refused::new(libc::EBADF, "the socket is closed")),
    }
    begin(socket, &mut inner, address).inspect_err(|_| inner.phase = Phase::Failed)?;
    if inner.options.nonblocking {
        return Err(Refused::quiet(libc::EINPROGRESS));
    }
    let until = inner.options.sends_until();
    socket.wait(inner, until, |inner| match inner.phase {
        Phase::Connecting => None,
        Phase::Connected => Some(Ok(())),
        Phase::Failed => {
            let code = std::mem::take(&mut inner.error);
            Some(Err(Refused::new(code, format_args!("{address}: not connected"))))
        }
        _ => Some(Err(Refused::new(libc::EBADF, "another thread has closed the socket"))),
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rconnect(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let _whole = Uncancelled::new();
    let answer = table::find(socket).and_then(|socket| {
        // SAFETY: the caller passes an address of so many bytes.
        connect(&socket, unsafe { given(address, len) }?)
    });
    minus_one("rconnect", answer)
}

/// Tells the program the address of an end of a socket.
///
/// # Safety
/// `address` and `len` are null, or to a place of so many bytes.
unsafe fn tell_name(socket: &Socket, peer: bool, address: *mut sockaddr, len: *mut socklen_t) -> Answer<()> {
    if address.is_null() || len.is_null() {
        return Ok(());
    }
    let inner = lock(&socket.inner);
    let known = if let Some(datagrams) = &inner.datagrams {
        datagrams.name(peer)
    } else {
        let id = inner.id()?;
        let is_connected = matches!(inner.phase, Phase::Connected);
        drop(inner);
        let state = lock(&id.state);
        if peer { state.destination.filter(|_| is_connected) } else { state.source }
    };
    if peer && known.is_none() {
        return Err(Refused::new(libc::ENOTCONN, "the socket is not connected"));
    }
    let is_v4 = socket.domain == AF_INET;
    let none = if is_v4 { SocketAddr::from(([0; 4], 0)) } else { SocketAddr::from(([0_u16; 8], 0)) };
    // SAFETY: the caller vouches for both.
    unsafe { write_name(socket, known.unwrap_or(none), address, len) };
    Ok(())
}

/// Writes an address where the program wants it.
///
/// # Safety
/// `address` and `len` are to a place of so many bytes.
pub(super) unsafe fn write_name(
    socket: &Socket,
    known: SocketAddr,
    address: *mut sockaddr,
    len: *mut socklen_t,
) {
    let is_v4 = socket.domain == AF_INET;
    let known = match known {
        SocketAddr::V4(v4) if !is_v4 => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
        other => other,
    };
    let (storage, whole) = written(known);
    // SAFETY: the caller vouches for it.
    let room = unsafe { len.read_unaligned() } as usize;
    // SAFETY: the place has room for so many bytes, and the storage has more.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const storage).cast::<u8>(), address.cast(), room.min(whole));
    };
    // SAFETY: the caller vouches for it.
    unsafe { len.write_unaligned(socklen_t::try_from(whole).unwrap_or(0)) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rgetpeername(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a place to fill, or null.
    let answer = table::find(socket).and_then(|socket| unsafe { tell_name(&socket, true, address, len) });
    minus_one("rgetpeername", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rgetsockname(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a place to fill, or null.
    let answer = table::find(socket).and_then(|socket| unsafe { tell_name(&socket, false, address, len) });
    minus_one("rgetsockname", answer)
}
