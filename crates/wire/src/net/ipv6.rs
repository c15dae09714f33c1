//! IPv6 header as RoCEv2 uses it: UDP inside, no extension headers.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};
use crate::error::ParseError;

/// IPv6 header in front of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Traffic class: DSCP (6) and ECN (2).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub source: Ipv6Addr,
    /// Destination.
    pub dest: Ipv6Addr,
}

impl Ipv6 {
    /// Length on the wire.
    pub const LEN: usize = 40;

    /// Next-header number of UDP.
    pub(crate) const UDP: u8 = 17;

    /// Reads the header, and the length of what follows it.
    ///
    /// # Errors
    /// Another version, or a next header other than UDP.
    pub fn parse(header: &[u8; Self::LEN]) -> Result<(Self, u16), ParseError> {
        if header[0] >> 4 != 6 {
            return Err(ParseError::UnknownIpVersion(header[0] >> 4));
        }
        if header[6] != Self::UDP {
            return Err(ParseError::NotUdp(header[6]));
        }
        let ip = Self {
            traffic_class: header[0] << 4 | header[1] >> 4,
            flow_label: u32::from_be_bytes(field::<0, 4, 40>(header)) & 0x000f_ffff,
            hop_limit: header[7],
            source: field::<8, 16, 40>(header).into(),
            dest: field::<24, 16, 40>(header).into(),
        };
        Ok((ip, u16::from_be_bytes(field::<4, 2, 40>(header))))
    }

    /// Writes the header of a packet with `payload_len` bytes after it; of the flow label its low 20 bits.
    pub fn emit(&self, payload_len: u16, header: &mut [u8; Self::LEN]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        put::<0, 4, 40>(header, first.to_be_bytes());
        put::<4, 2, 40>(header, payload_len.to_be_bytes());
        header[6] = Self::UDP;
        header[7] = self.hop_limit;
        put::<8, 16, 40>(header, self.source.octets());
        put::<24, 16, 40>(header, self.dest.octets());
    }
}

impl Describe for Ipv6 {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("ipv6", "Internet Protocol Version 6", Self::LEN)?;
        visitor.field("source", "Src", Value::Ip(IpAddr::V6(self.source)))?;
        visitor.field("dest", "Dst", Value::Ip(IpAddr::V6(self.dest)))?;
        visitor.field("traffic_class", "Traffic Class", Value::hex(self.traffic_class, 8))?;
        visitor.field("flow_label", "Flow Label", Value::hex(self.flow_label, 20))?;
        visitor.field("hop_limit", "Hop Limit", Value::decimal(self.hop_limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_label_share_the_first_word() {
        let mut header = [0; 40];
        header[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 24, 17, 64]);
        let (ip, payload_len) = Ipv6::parse(&header).unwrap();
        assert_eq!((ip.traffic_class, ip.flow_label, ip.hop_limit, payload_len), (0xab, 0x12345, 64, 24));
        let mut again = [0xff; 40];
        ip.emit(payload_len, &mut again);
        assert_eq!(again, header);
    }

    #[test]
    fn another_version_is_named() {
        let mut header = [0; Ipv6::LEN];
        header[0] = 0x45;
        assert_eq!(Ipv6::parse(&header), Err(ParseError::UnknownIpVersion(4)));
    }
}
