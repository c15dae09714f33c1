//! Socket addresses, as C has them.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address that C can read.
pub(super) enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Self::V6(libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }
}

impl Address {
    /// For a call that only reads it.
    pub(super) const fn as_ptr(&self) -> *mut libc::sockaddr {
        match self {
            Self::V4(v4) => std::ptr::from_ref(v4).cast::<libc::sockaddr>().cast_mut(),
            Self::V6(v6) => std::ptr::from_ref(v6).cast::<libc::sockaddr>().cast_mut(),
        }
    }
}

/// The address that C has left here; nothing if it is none of IP.
///
/// # Safety
/// The storage lives, and nothing writes to it meanwhile.
pub(super) unsafe fn read(storage: *const libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the caller vouches for it.
    let found = unsafe { (*storage).ss_family };
    if found == family(libc::AF_INET) {
        // SAFETY: as above; the family says which of the forms it is, and the storage has room for all of them.
        let v4 = unsafe { storage.cast::<libc::sockaddr_in>().read() };
        let ip = v4.sin_addr.s_addr.to_ne_bytes().into();
        return Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into());
    }
    if found == family(libc::AF_INET6) {
        // SAFETY: as above.
        let v6 = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
        let (port, ip) = (u16::from_be(v6.sin6_port), v6.sin6_addr.s6_addr.into());
        return Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into());
    }
    None
}

/// Families have small numbers.
fn family(number: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).unwrap_or(0)
}
