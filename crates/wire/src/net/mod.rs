//! The headers below RoCEv2: Ethernet, IPv4, IPv6 and UDP, as far as RoCEv2 uses them.

mod ethernet;
mod ipv4;
mod ipv6;
mod udp;

pub use ethernet::Ethernet;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use udp::Udp;

use core::fmt;
use core::net::IpAddr;

use crate::describe::{Describe, Visitor};

/// The network header of a RoCEv2 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    V4(Ipv4),
    /// IPv6.
    V6(Ipv6),
}

impl Ip {
    /// Where the packet comes from.
    #[must_use]
    pub const fn source(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.source),
            Self::V6(ip) => IpAddr::V6(ip.source),
        }
    }

    /// Where the packet goes.
    #[must_use]
    pub const fn dest(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.dest),
            Self::V6(ip) => IpAddr::V6(ip.dest),
        }
    }

    /// Length of the header on the wire.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::V4(_) => Ipv4::LEN,
            Self::V6(_) => Ipv6::LEN,
        }
    }
}

impl Ip {
    /// Writes the header of a packet with `payload_len` bytes after it to the front
    /// of `buffer`, which must have room for [`len`](Self::len) bytes.
    ///
    /// # Panics
    /// If it has not.
    pub fn emit(&self, payload_len: u16, buffer: &mut [u8]) {
        match self {
            Self::V4(ip) => {
                let mut header = [0; Ipv4::LEN];
                ip.emit(payload_len, &mut header);
                buffer[..Ipv4::LEN].copy_from_slice(&header);
            }
            Self::V6(ip) => {
                let mut header = [0; Ipv6::LEN];
                ip.emit(payload_len, &mut header);
                buffer[..Ipv6::LEN].copy_from_slice(&header);
            }
        }
    }
}

impl Describe for Ip {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        match self {
            Self::V4(ip) => ip.describe(visitor),
            Self::V6(ip) => ip.describe(visitor),
        }
    }
}
