//! Socket addresses, between C's words and Rust's.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};

use libc::{AF_INET, AF_INET6, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::object::seen;
use crate::refusal::{Answer, Refused};

/// The address that a program means.
///
/// # Safety
/// `address` is null, or to an address that is as long as its family says.
pub(crate) unsafe fn read(address: *const sockaddr) -> Answer<SocketAddr> {
    // Programs may keep addresses where they are not aligned.
    // SAFETY: the caller vouches for it; bytes have no alignment.
    unsafe { seen(address.cast::<u8>(), "address") }?;
    // SAFETY: every address begins with its family.
    let family = c_int::from(unsafe { address.cast::<sa_family_t>().read_unaligned() });
    match family {
        AF_INET => {
            // SAFETY: the family says that it is one of IPv4.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        AF_INET6 => {
            // SAFETY: the family says that it is one of IPv6.
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from_octets(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            // One of IPv4 in the dress of IPv6 is what it is: its peers know it as one of IPv4.
            Ok(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddrV4::new(ip, port).into(),
                None => SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into(),
            })
        }
        _ => Err(Refused::invalid(format_args!("addresses of family {family}: AF_INET or AF_INET6"))),
    }
}

/// The address in C's words, and how long it is there.
pub(crate) fn written(address: SocketAddr) -> (sockaddr_storage, usize) {
    // SAFETY: a structure of numbers, all of which may be zero.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let to = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let v4 = sockaddr_in {
                sin_family: sa_family_t::try_from(AF_INET).unwrap_or_default(),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: v4.ip().to_bits().to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a storage has room for every address, and is aligned for it.
            unsafe { to.cast::<sockaddr_in>().write(v4) };
            (storage, size_of::<sockaddr_in>())
        }
        SocketAddr::V6(v6) => {
            let v6 = sockaddr_in6 {
                sin6_family: sa_family_t::try_from(AF_INET6).unwrap_or_default(),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { to.cast::<sockaddr_in6>().write(v6) };
            (storage, size_of::<sockaddr_in6>())
        }
    }
}

/// The number of the interface that a link-local address is of; 0 for all others, and if it is not said.
pub(crate) const fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
        _ => 0,
    }
}

/// The wildcard address of the family of another one.
pub(crate) const fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// The address that packets to a peer come from, as the kernel routes them.
///
/// # Errors
/// There is no way.
pub(crate) fn source_for(peer: SocketAddr) -> Answer<IpAddr> {
    let refused = |error: std::io::Error| {
        Refused::new(error.raw_os_error().unwrap_or(libc::ENETUNREACH), format_args!("{peer}: {error}"))
    };
    let any = SocketAddr::new(unspecified(peer.ip()), 0);
    let socket = UdpSocket::bind(any).map_err(refused)?;
    // Nothing is sent; a port must be named all the same.
    let mut named = peer;
    if named.port() == 0 {
        named.set_port(4791);
    }
    socket.connect(named).map_err(refused)?;
    Ok(socket.local_addr().map_err(refused)?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["127.0.0.1:4711", "[::1]:65535", "[fe80::1%3]:7"] {
            let address: SocketAddr = text.parse().unwrap();
            let (storage, len) = written(address);
            assert!(len <= size_of::<sockaddr_storage>());
            // SAFETY: the storage was just filled.
            assert_eq!(unsafe { read((&raw const storage).cast()) }.unwrap(), address);
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }.unwrap_err().code, libc::EINVAL);
        // SAFETY: a structure of numbers.
        let nothing: sockaddr_storage = unsafe { std::mem::zeroed() };
        // SAFETY: it is long enough for every family.
        assert_eq!(unsafe { read((&raw const nothing).cast()) }.unwrap_err().code, libc::EINVAL);
    }

    #[test]
    fn an_address_of_ipv4_in_the_dress_of_ipv6_is_one_of_ipv4() {
        let (storage, _) = written("[::ffff:10.1.2.3]:7".parse().unwrap());
        // SAFETY: the storage was just filled.
        let read = unsafe { read((&raw const storage).cast()) }.unwrap();
        assert_eq!(read, "10.1.2.3:7".parse().unwrap());
    }

    #[test]
    fn only_a_link_local_address_has_an_interface() {
        for (text, scope) in
            [("[fe80::1%3]:7", 3), ("[fe80::1]:7", 0), ("[fd00::1%3]:7", 0), ("10.0.0.1:7", 0)]
        {
            assert_eq!(scope_of(text.parse().unwrap()), scope, "{text}");
        }
    }

    #[test]
    fn the_way_to_this_machine_begins_on_it() {
        assert_eq!(source_for("127.0.0.1:1".parse().unwrap()).unwrap(), IpAddr::from([127, 0, 0, 1]));
    }
}
