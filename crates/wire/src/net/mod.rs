//! The headers below RoCEv2: Ethernet, IPv4, IPv6 and UDP, as far as RoCEv2 uses them.

mod ethernet;
mod ipv4;
mod ipv6;
mod udp;

pub use ethernet::{Ethernet, VlanTag, Vlans};
pub use ipv4::{IpChecksum, Ipv4};
pub use ipv6::Ipv6;
pub use udp::Udp;

use core::fmt;
use core::net::IpAddr;

use crate::bytes::take;
use crate::describe::{Describe, Visitor};
use crate::error::{BufferTooSmall, ParseError};

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
    /// Reads the header off the front of `bytes`, and the length of what follows it.
    ///
    /// # Errors
    /// The reason of [`Ipv4::parse`] or [`Ipv6::parse`], or another version.
    pub fn parse(bytes: &mut &[u8]) -> Result<(Self, u16), ParseError> {
        match version(bytes)? {
            4 => Ipv4::parse(take(bytes, "IPv4 header")?).map(|(ip, len)| (Self::V4(ip), len)),
            6 => Ipv6::parse(take(bytes, "IPv6 header")?).map(|(ip, len)| (Self::V6(ip), len)),
            other => Err(ParseError::UnknownIpVersion(other)),
        }
    }

    /// Reads the header as [`parse`](Self::parse) does, but whatever the checksum of an IPv4 header is.
    pub(crate) fn parse_any_checksum(
        bytes: &mut &[u8],
    ) -> Result<(Self, u16, Option<IpChecksum>), ParseError> {
        if version(bytes)? != 4 {
            return Self::parse(bytes).map(|(ip, len)| (ip, len, None));
        }
        let (ip, len, checksum) = Ipv4::parse_any_checksum(take(bytes, "IPv4 header")?)?;
        Ok((Self::V4(ip), len, Some(checksum)))
    }

    /// Writes the header of a packet with `payload_len` bytes after it to the front
    /// of `buffer` and returns its length.
    ///
    /// # Errors
    /// The buffer is shorter than [`len`](Self::len); nothing is written.
    pub fn emit(&self, payload_len: u16, buffer: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let too_small = BufferTooSmall { need: self.len(), have: buffer.len() };
        match self {
            Self::V4(ip) => ip.emit(payload_len, buffer.first_chunk_mut().ok_or(too_small)?),
            Self::V6(ip) => ip.emit(payload_len, buffer.first_chunk_mut().ok_or(too_small)?),
        }
        Ok(self.len())
    }

    /// The identification that the ICRC covers; IPv6 has none.
    pub(crate) const fn id(&self) -> u16 {
        match self {
            Self::V4(ip) => ip.id,
            Self::V6(_) => 0,
        }
    }
}

/// The version in the first four bits of an IP header.
fn version(bytes: &[u8]) -> Result<u8, ParseError> {
    let too_short = ParseError::TooShort { what: "IP header", need: Ipv4::LEN, have: 0 };
    bytes.first().map(|first| first >> 4).ok_or(too_short)
}

impl Describe for Ip {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        match self {
            Self::V4(ip) => ip.describe(visitor),
            Self::V6(ip) => ip.describe(visitor),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_buffer_that_is_too_small_is_refused_and_left_alone() {
        let (source, dest) = (Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST);
        let v4 = Ip::V4(Ipv4 { tos: 1, id: 2, dont_fragment: true, ttl: 3, source, dest });
        let (source, dest) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let v6 = Ip::V6(Ipv6 { traffic_class: 1, flow_label: 2, hop_limit: 3, source, dest });
        for (ip, need) in [(v4, 20), (v6, 40)] {
            let mut buffer = [0xaa; 40];
            for have in 0..need {
                assert_eq!(ip.emit(8, &mut buffer[..have]), Err(BufferTooSmall { need, have }));
            }
            assert_eq!(buffer, [0xaa; 40]);
            assert_eq!(ip.emit(8, &mut buffer), Ok(need));
            assert_eq!(Ip::parse(&mut &buffer[..need]), Ok((ip, 8)));
        }
    }
}
