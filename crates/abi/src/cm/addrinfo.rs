//! From names to addresses.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::SocketAddr;

use ferroce_cabi::cm::{RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP, RDMA_PS_UDP, rdma_addrinfo};
use ferroce_cabi::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
use ferroce_device::Uncancelled;
use libc::{sockaddr, sockaddr_storage, socklen_t};

use super::address::{read, written};
use crate::object::{filled, given, seen};
use crate::refusal::{Refused, minus_one};

/// An answer. The C structure comes first, and points to the rest.
#[repr(C)]
struct Info {
    c: rdma_addrinfo,
    source: Option<Box<sockaddr_storage>>,
    destination: Option<Box<sockaddr_storage>>,
    name: Option<CString>,
}

/// What the C library is asked for, by what the program wants.
fn wish(hints: Option<&rdma_addrinfo>) -> libc::addrinfo {
    // SAFETY: a structure of numbers and pointers, all of which may be zero.
    let mut wish: libc::addrinfo = unsafe { std::mem::zeroed() };
    let Some(hints) = hints else {
        wish.ai_socktype = libc::SOCK_STREAM;
        return wish;
    };
    if hints.ai_flags & RAI_PASSIVE != 0 {
        wish.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & RAI_NUMERICHOST != 0 {
        wish.ai_flags |= libc::AI_NUMERICHOST;
    }
    if hints.ai_flags & RAI_FAMILY != 0 || hints.ai_family != 0 {
        wish.ai_family = hints.ai_family;
    }
    match (hints.ai_qp_type, hints.ai_port_space) {
        (IBV_QPT_UD, _) | (0, RDMA_PS_UDP) => wish.ai_socktype = libc::SOCK_DGRAM,
        _ => wish.ai_socktype = libc::SOCK_STREAM,
    }
    match hints.ai_port_space {
        RDMA_PS_TCP => wish.ai_protocol = libc::IPPROTO_TCP,
        RDMA_PS_UDP => wish.ai_protocol = libc::IPPROTO_UDP,
        _ => {}
    }
    wish
}

/// Asks the C library, which answers with the first address and its full name, or with a number of its own.
///
/// # Safety
/// Both names are null, or texts that end with a zero byte.
unsafe fn ask(
    node: *const c_char,
    service: *const c_char,
    wish: &libc::addrinfo,
) -> Result<(SocketAddr, Option<CString>), c_int> {
    let mut found: *mut libc::addrinfo = std::ptr::null_mut();
    // SAFETY: the caller vouches for the names; the rest is ours.
    match unsafe { libc::getaddrinfo(node, service, wish, &raw mut found) } {
        0 => {}
        code => return Err(code),
    }
    // SAFETY: the C library has filled it.
    let first = unsafe { found.as_ref() };
    let answer = first.ok_or(libc::EAI_NONAME).and_then(|first| {
        // SAFETY: as above.
        let address = unsafe { read(first.ai_addr) }.map_err(|_| libc::EAI_FAMILY)?;
        let name = if first.ai_canonname.is_null() {
            None
        } else {
            // SAFETY: as above; a text of the C library.
            Some(unsafe { CStr::from_ptr(first.ai_canonname) }.to_owned())
        };
        Ok((address, name))
    });
    // SAFETY: it came from the C library, and nothing of it is kept.
    unsafe { libc::freeaddrinfo(found) };
    answer
}

/// An address on the heap, and how long it is.
fn kept(address: SocketAddr) -> (Box<sockaddr_storage>, socklen_t) {
    let (storage, len) = written(address);
    (Box::new(storage), socklen_t::try_from(len).unwrap_or(0))
}

/// # Safety
/// The addresses of the hints are null, or as their families say.
unsafe fn build(found: Option<(SocketAddr, Option<CString>)>, hints: Option<&rdma_addrinfo>) -> Box<Info> {
    // SAFETY: a structure of numbers and pointers, all of which may be zero.
    let mut c: rdma_addrinfo = unsafe { std::mem::zeroed() };
    let is_passive = hints.is_some_and(|hints| hints.ai_flags & RAI_PASSIVE != 0);
    let copied = |address: *mut sockaddr| {
        // SAFETY: the caller vouches for the addresses of the hints.
        unsafe { read(address) }.ok()
    };
    let mut source = hints.and_then(|hints| copied(hints.ai_src_addr));
    let mut destination = hints.and_then(|hints| copied(hints.ai_dst_addr));
    let mut name = None;
    if let Some((address, called)) = found {
        name = called;
        c.ai_family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        if is_passive {
            source = Some(address);
        } else {
            destination = Some(address);
        }
    } else {
        c.ai_family = hints.map_or(0, |hints| hints.ai_family);
    }
    c.ai_flags = if is_passive { RAI_PASSIVE } else { 0 };
    let (kind, space) = hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
    c.ai_qp_type = match (kind, space) {
        (0, RDMA_PS_UDP) => IBV_QPT_UD,
        (0, _) => IBV_QPT_RC,
        _ => kind,
    };
    c.ai_port_space = match (space, c.ai_qp_type) {
        (0, IBV_QPT_RC | IBV_QPT_UC) => RDMA_PS_TCP,
        (0, _) => RDMA_PS_UDP,
        _ => space,
    };
    let mut info = Box::new(Info { c, source: None, destination: None, name });
    if let Some(address) = source {
        let (mut storage, len) = kept(address);
        info.c.ai_src_addr = (&raw mut *storage).cast();
        info.c.ai_src_len = len;
        info.source = Some(storage);
    }
    if let Some(address) = destination {
        let (mut storage, len) = kept(address);
        info.c.ai_dst_addr = (&raw mut *storage).cast();
        info.c.ai_dst_len = len;
        info.destination = Some(storage);
    }
    if let Some(name) = &info.name {
        let text = name.as_ptr().cast_mut();
        if is_passive {
            info.c.ai_src_canonname = text;
        } else {
            info.c.ai_dst_canonname = text;
        }
    }
    info
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    result: *mut *mut rdma_addrinfo,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a place of its own to fill, or null.
    let to = match unsafe { filled(result, "place for the addresses") } {
        Ok(to) => to,
        Err(refused) => return minus_one("rdma_getaddrinfo", Err(refused)),
    };
    // SAFETY: the caller passes hints, or null.
    let hints = unsafe { seen(hints, "hints") }.ok();
    if node.is_null() && service.is_null() && hints.is_none() {
        let refused = Refused::invalid("neither a name, nor a port, nor hints");
        return minus_one("rdma_getaddrinfo", Err(refused));
    }
    let found = if node.is_null() && service.is_null() {
        None
    } else {
        // SAFETY: the caller passes texts, or null.
        match unsafe { ask(node, service, &wish(hints)) } {
            Ok(found) => Some(found),
            Err(code) => return code,
        }
    };
    // SAFETY: the caller vouches for the hints.
    let info = unsafe { build(found, hints) };
    *to = given(*info).cast();
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) {
    let _whole = Uncancelled::new();
    if !info.is_null() {
        // SAFETY: it came from `rdma_getaddrinfo`, and the program gives it back.
        drop(unsafe { Box::from_raw(info.cast::<Info>()) });
    }
}
