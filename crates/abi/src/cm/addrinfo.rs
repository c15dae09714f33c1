//! From names to addresses.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::SocketAddr;

use ferroce_cabi::cm::{RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP, RDMA_PS_UDP, rdma_addrinfo};
use ferroce_cabi::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
use ferroce_device::Uncancelled;
use libc::{sockaddr, sockaddr_storage, socklen_t};

use super::address::{read, written};
use crate::object::{filled, seen};
use crate::refusal::{Refused, minus_one};

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

/// A copy in memory of the C library, or null if there is none left.
///
/// Programs change answers: libfabric frees an address and puts one of its own there, and makes answers itself. So all
/// parts are the C library's, and [`rdma_freeaddrinfo`] frees what it finds.
fn copied(bytes: &[u8]) -> *mut c_void {
    // SAFETY: any size may be asked for.
    let room = unsafe { libc::malloc(bytes.len().max(1)) };
    if !room.is_null() {
        // SAFETY: the memory is new and as long as the bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast(), bytes.len()) };
    }
    room
}

/// A copy of an address, and how long it is.
fn kept(address: SocketAddr) -> (*mut sockaddr, socklen_t) {
    let (storage, len) = written(address);
    let len = len.min(size_of::<sockaddr_storage>());
    // SAFETY: the whole structure was zeroed before the address was written to it, and is longer than this.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const storage).cast::<u8>(), len) };
    (copied(bytes).cast(), socklen_t::try_from(len).unwrap_or(0))
}

/// # Safety
/// The addresses of the hints are null, or as their families say.
unsafe fn build(
    found: Option<(SocketAddr, Option<CString>)>,
    hints: Option<&rdma_addrinfo>,
) -> Result<*mut rdma_addrinfo, c_int> {
    // SAFETY: a structure of numbers and pointers, all of which may be zero.
    let mut c: rdma_addrinfo = unsafe { std::mem::zeroed() };
    let is_passive = hints.is_some_and(|hints| hints.ai_flags & RAI_PASSIVE != 0);
    let read = |address: *mut sockaddr| {
        // SAFETY: the caller vouches for the addresses of the hints.
        unsafe { read(address) }.ok()
    };
    let mut source = hints.and_then(|hints| read(hints.ai_src_addr));
    let mut destination = hints.and_then(|hints| read(hints.ai_dst_addr));
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
    let mut is_whole = true;
    if let Some(address) = source {
        (c.ai_src_addr, c.ai_src_len) = kept(address);
        is_whole &= !c.ai_src_addr.is_null();
    }
    if let Some(address) = destination {
        (c.ai_dst_addr, c.ai_dst_len) = kept(address);
        is_whole &= !c.ai_dst_addr.is_null();
    }
    if let Some(name) = name {
        let text = copied(name.as_bytes_with_nul()).cast();
        *if is_passive { &mut c.ai_src_canonname } else { &mut c.ai_dst_canonname } = text;
        is_whole &= !text.is_null();
    }
    // SAFETY: any size may be asked for.
    let answer: *mut rdma_addrinfo = unsafe { libc::malloc(size_of::<rdma_addrinfo>()) }.cast();
    if answer.is_null() || !is_whole {
        // SAFETY: all its parts are null or from `copied`.
        unsafe { free_parts(&c) };
        // SAFETY: it is null or new.
        unsafe { libc::free(answer.cast()) };
        return Err(libc::EAI_MEMORY);
    }
    // SAFETY: the memory is new, as long as the structure, and aligned for any.
    unsafe { answer.write(c) };
    Ok(answer)
}

/// Frees what an answer points to, except for the next one.
///
/// # Safety
/// All its pointers are null or from the C library's allocator, and not used again.
unsafe fn free_parts(info: &rdma_addrinfo) {
    let names = [info.ai_src_canonname, info.ai_dst_canonname].map(<*mut c_char>::cast::<c_void>);
    let addresses = [info.ai_src_addr, info.ai_dst_addr].map(<*mut sockaddr>::cast::<c_void>);
    for part in names.into_iter().chain(addresses).chain([info.ai_route, info.ai_connect]) {
        // SAFETY: the caller vouches for it.
        unsafe { libc::free(part) };
    }
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
    match unsafe { build(found, hints) } {
        Ok(answer) => {
            *to = answer;
            0
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) {
    let _whole = Uncancelled::new();
    let mut next = info;
    while !next.is_null() {
        let this = next;
        // SAFETY: it came from `rdma_getaddrinfo`, or the program made it in the same way; it gives all of them back.
        let answer = unsafe { this.read() };
        next = answer.ai_next;
        // SAFETY: as above; the parts are the program's to give back, too.
        unsafe { free_parts(&answer) };
        // SAFETY: as above; it was read before.
        unsafe { libc::free(this.cast()) };
    }
}
