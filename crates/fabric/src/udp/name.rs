//! Socket addresses as the kernel lays them out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::socket::Family;

/// An address and a port in the kernel's own form, for a socket of either family.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Name {
    bytes: [u8; Self::ROOM as usize],
    len: u8,
}

impl Name {
    /// Bytes of the longer form (`sockaddr_in6`).
    pub const ROOM: u32 = 28;

    /// Nowhere: what a name holds before the kernel writes it.
    pub const EMPTY: Self = Self { bytes: [0; Self::ROOM as usize], len: 0 };

    /// This address and port for a socket of this family; `None` if such a socket cannot reach it.
    #[must_use]
    pub fn new(family: Family, address: IpAddr, port: u16) -> Option<Self> {
        let mut name = Self::EMPTY;
        match (family, address) {
            (Family::V4, IpAddr::V4(address)) => {
                name.put(0, &AF_INET.to_ne_bytes());
                name.put(4, &address.octets());
                name.len = 16;
            }
            (Family::V4, IpAddr::V6(_)) => return None,
            (Family::V6, _) => {
                let address = match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                name.put(0, &AF_INET6.to_ne_bytes());
                name.put(8, &address.octets());
                name.len = 28;
            }
        }
        name.put(2, &port.to_be_bytes());
        Some(name)
    }

    /// Whether the kernel has written the same bytes.
    #[inline]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }

    /// The address and port; an IPv4 address in the dress of IPv6 becomes itself again.
    #[must_use]
    pub fn parse(&self) -> Option<(IpAddr, u16)> {
        let port = u16::from_be_bytes(self.take(2)?);
        match u16::from_ne_bytes(self.take(0)?) {
            AF_INET => Some((Ipv4Addr::from(self.take::<4>(4)?).into(), port)),
            AF_INET6 => Some((IpAddr::V6(Ipv6Addr::from(self.take::<16>(8)?)).to_canonical(), port)),
            _ => None,
        }
    }

    /// Where the bytes are, for the kernel to read.
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// Where the bytes are, for the kernel to write up to [`ROOM`](Self::ROOM) of them.
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// How many bytes are in use.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.len as u32
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn take<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }
}

/// The families, as wide as they are in an address.
#[expect(clippy::cast_possible_truncation, reason = "it is 2")]
const AF_INET: u16 = libc::AF_INET as u16;
#[expect(clippy::cast_possible_truncation, reason = "it is 10")]
const AF_INET6: u16 = libc::AF_INET6 as u16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_it_was_written() {
        for (family, address) in
            [(Family::V4, "127.0.0.3"), (Family::V6, "127.0.0.3"), (Family::V6, "fd00::2")]
        {
            let address: IpAddr = address.parse().unwrap();
            let name = Name::new(family, address, 4791).unwrap();
            assert_eq!(name.parse(), Some((address, 4791)));
        }
    }

    #[test]
    fn an_ipv4_socket_has_no_name_for_ipv6() {
        assert!(Name::new(Family::V4, Ipv6Addr::LOCALHOST.into(), 1).is_none());
        assert_eq!(Name::EMPTY.parse(), None);
    }
}
