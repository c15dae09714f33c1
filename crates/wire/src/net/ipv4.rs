//! IPv4 header as RoCEv2 uses it: no options, no fragments, UDP inside.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};
use crate::error::ParseError;

/// IPv4 header in front of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Type of service: DSCP (6) and ECN (2).
    pub tos: u8,
    /// Identification. The ICRC covers it.
    pub id: u16,
    /// May not be fragmented. The ICRC covers it.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// Source.
    pub source: Ipv4Addr,
    /// Destination.
    pub dest: Ipv4Addr,
}

impl Ipv4 {
    /// Length on the wire.
    pub const LEN: usize = 20;

    /// Protocol number of UDP.
    pub(crate) const UDP: u8 = 17;

    const DONT_FRAGMENT: u16 = 0x4000;
    const RESERVED_FLAG: u16 = 0x8000;

    /// Reads the header, and the length of what follows it.
    ///
    /// # Errors
    /// Another version, options, a wrong checksum, a fragment, the reserved flag, a
    /// protocol other than UDP, or a total length shorter than the header.
    pub fn parse(header: &[u8; Self::LEN]) -> Result<(Self, u16), ParseError> {
        judge_form(header)?;
        match IpChecksum::of(header) {
            IpChecksum { seen, computed } if seen != computed => {
                Err(ParseError::BadIpChecksum { seen, computed })
            }
            _ => Self::parse_fields(header),
        }
    }

    /// Reads the header, the length of what follows it, and its checksum, right or wrong:
    /// a capture shows what the network card has still to fill in, and the ICRC leaves it out.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), but for the checksum.
    pub fn parse_any_checksum(header: &[u8; Self::LEN]) -> Result<(Self, u16, IpChecksum), ParseError> {
        judge_form(header)?;
        let (ip, payload_len) = Self::parse_fields(header)?;
        Ok((ip, payload_len, IpChecksum::of(header)))
    }

    fn parse_fields(header: &[u8; Self::LEN]) -> Result<(Self, u16), ParseError> {
        let fragment = u16::from_be_bytes(field::<6, 2, 20>(header));
        if fragment & !(Self::DONT_FRAGMENT | Self::RESERVED_FLAG) != 0 {
            return Err(ParseError::Fragment);
        }
        if fragment & Self::RESERVED_FLAG != 0 {
            return Err(ParseError::ReservedIpFlag);
        }
        if header[9] != Self::UDP {
            return Err(ParseError::NotUdp(header[9]));
        }
        let total_len = u16::from_be_bytes(field::<2, 2, 20>(header));
        let Some(payload_len) = total_len.checked_sub(20) else {
            return Err(ParseError::LengthMismatch { what: "IPv4", said: total_len.into(), have: Self::LEN });
        };
        let ip = Self {
            tos: header[1],
            id: u16::from_be_bytes(field::<4, 2, 20>(header)),
            dont_fragment: fragment != 0,
            ttl: header[8],
            source: field::<12, 4, 20>(header).into(),
            dest: field::<16, 4, 20>(header).into(),
        };
        Ok((ip, payload_len))
    }

    /// Writes the header of a packet with `payload_len` bytes after it. Beyond 65,515 the length wraps.
    pub fn emit(&self, payload_len: u16, header: &mut [u8; Self::LEN]) {
        let flags = if self.dont_fragment { Self::DONT_FRAGMENT } else { 0 };
        header[0] = 0x45;
        header[1] = self.tos;
        put::<2, 2, 20>(header, payload_len.wrapping_add(20).to_be_bytes());
        put::<4, 2, 20>(header, self.id.to_be_bytes());
        put::<6, 2, 20>(header, flags.to_be_bytes());
        header[8] = self.ttl;
        header[9] = Self::UDP;
        put::<12, 4, 20>(header, self.source.octets());
        put::<16, 4, 20>(header, self.dest.octets());
        put::<10, 2, 20>(header, checksum(header).to_be_bytes());
    }
}

/// The checksum of an IPv4 header, seen and computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpChecksum {
    /// As the header carries it.
    pub seen: u16,
    /// As its bytes give it.
    pub computed: u16,
}

impl IpChecksum {
    fn of(header: &[u8; Ipv4::LEN]) -> Self {
        Self { seen: u16::from_be_bytes(field::<10, 2, 20>(header)), computed: checksum(header) }
    }

    /// Whether the header arrived as it was sent.
    #[must_use]
    pub const fn is_right(self) -> bool {
        self.seen == self.computed
    }
}

/// Version 4, and no options.
fn judge_form(header: &[u8; Ipv4::LEN]) -> Result<(), ParseError> {
    match header[0] {
        0x45 => Ok(()),
        first if first >> 4 == 4 => Err(ParseError::IpOptions(usize::from(first & 0x0f) * 4)),
        first => Err(ParseError::UnknownIpVersion(first >> 4)),
    }
}

/// The ones' complement sum of the header without its checksum field (RFC 791).
fn checksum(header: &[u8; Ipv4::LEN]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let without_itself = words.iter().enumerate().filter(|(index, _)| *index != 5);
    let sum: u32 = without_itself.map(|(_, word)| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [_, _, high, low] = ((folded & 0xffff) + (folded >> 16)).to_be_bytes();
    !u16::from_be_bytes([high, low])
}

impl Describe for Ipv4 {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("ipv4", "Internet Protocol Version 4", Self::LEN)?;
        visitor.field("source", "Src", Value::Ip(IpAddr::V4(self.source)))?;
        visitor.field("dest", "Dst", Value::Ip(IpAddr::V4(self.dest)))?;
        visitor.field("tos", "Type of Service", Value::hex(self.tos, 8))?;
        visitor.field("id", "Identification", Value::hex(self.id, 16))?;
        visitor.field("dont_fragment", "Don't Fragment", Value::Flag(self.dont_fragment))?;
        visitor.field("ttl", "Time to Live", Value::decimal(self.ttl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [u8; 20] =
        [0x45, 0, 0, 0x34, 0x12, 0x34, 0x40, 0, 64, 17, 0x14, 0x14, 10, 77, 0, 3, 10, 77, 0, 2];

    fn with(index: usize, value: u8) -> [u8; 20] {
        let mut header = GOOD;
        header[index] = value;
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    #[test]
    fn a_header_comes_back() {
        let header = with(1, 0x02);
        let (ip, payload_len) = Ipv4::parse(&header).unwrap();
        assert_eq!((ip.tos, ip.id, ip.dont_fragment, ip.ttl, payload_len), (2, 0x1234, true, 64, 32));
        let mut again = [0; 20];
        ip.emit(payload_len, &mut again);
        assert_eq!(again, header);
    }

    #[test]
    fn what_rocev2_forbids_is_refused() {
        assert_eq!(Ipv4::parse(&with(0, 0x46)), Err(ParseError::IpOptions(24)));
        assert_eq!(Ipv4::parse(&with(0, 0x65)), Err(ParseError::UnknownIpVersion(6)));
        assert_eq!(Ipv4::parse(&with(6, 0x20)), Err(ParseError::Fragment));
        assert_eq!(Ipv4::parse(&with(7, 0x01)), Err(ParseError::Fragment));
        assert_eq!(Ipv4::parse(&with(9, 6)), Err(ParseError::NotUdp(6)));
        assert!(matches!(Ipv4::parse(&with(3, 19)), Err(ParseError::LengthMismatch { .. })));
        let mut broken = with(1, 0);
        broken[15] ^= 1;
        assert!(matches!(Ipv4::parse(&broken), Err(ParseError::BadIpChecksum { .. })));
        assert_eq!(Ipv4::parse(&with(6, 0x80)), Err(ParseError::ReservedIpFlag));
        assert_eq!(Ipv4::parse(&with(6, 0xa0)), Err(ParseError::Fragment));
    }

    #[test]
    fn a_checksum_that_is_not_filled_in_can_be_read_past() {
        let mut empty = with(1, 2);
        let right = u16::from_be_bytes([empty[10], empty[11]]);
        empty[10..12].fill(0);
        let (ip, payload_len, checksum) = Ipv4::parse_any_checksum(&empty).unwrap();
        assert_eq!(Ok((ip, payload_len)), Ipv4::parse(&with(1, 2)));
        assert_eq!(checksum, IpChecksum { seen: 0, computed: right });
        assert_eq!(Ipv4::parse_any_checksum(&with(6, 0x20)), Err(ParseError::Fragment));
    }

    #[test]
    fn a_wrong_checksum_is_told_with_the_right_one() {
        let mut header = [0; Ipv4::LEN];
        header[0] = 0x45;
        header[10..12].copy_from_slice(&0x1234_u16.to_be_bytes());
        let seen = IpChecksum::of(&header);
        assert_eq!((seen.seen, seen.computed, seen.is_right()), (0x1234, !0x4500, false));
        header[10..12].copy_from_slice(&(!0x4500_u16).to_be_bytes());
        assert!(IpChecksum::of(&header).is_right());
    }
}
