//! Global route header (IBA 8.3): what a UD receive buffer begins with.
//!
//! RoCEv2 packets have an IP header in its place. A receiver still finds forty
//! bytes before a datagram: an IPv6 header as it is, or an IPv4 header in the
//! last twenty of them, the first twenty undefined (annex A17).

use core::fmt;

use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};
use crate::error::ParseError;
use crate::net::{Ipv4, Ipv6};
use crate::num::Gid;

/// Global route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_len: u16,
    /// What follows: 0x1b is a transport header of the IBA, 17 is UDP.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub source: Gid,
    /// Destination.
    pub dest: Gid,
}

impl Grh {
    /// Length on the wire, and before every datagram in a UD receive buffer.
    pub const LEN: usize = 40;

    /// Reads the header.
    ///
    /// # Errors
    /// The version nibble is not 6.
    pub const fn parse(header: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        let first = u32::from_be_bytes(field::<0, 4, 40>(header));
        if header[0] >> 4 != 6 {
            return Err(ParseError::UnknownIpVersion(header[0] >> 4));
        }
        Ok(Self {
            traffic_class: header[0] << 4 | header[1] >> 4,
            flow_label: first & 0x000f_ffff,
            payload_len: u16::from_be_bytes(field::<4, 2, 40>(header)),
            next_header: header[6],
            hop_limit: header[7],
            source: Gid(field::<8, 16, 40>(header)),
            dest: Gid(field::<24, 16, 40>(header)),
        })
    }

    /// Writes the header; of the flow label its low 20 bits.
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        let first = 6 << 28 | (self.traffic_class as u32) << 20 | self.flow_label & 0x000f_ffff;
        put::<0, 4, 40>(header, first.to_be_bytes());
        put::<4, 2, 40>(header, self.payload_len.to_be_bytes());
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        put::<8, 16, 40>(header, self.source.0);
        put::<24, 16, 40>(header, self.dest.0);
    }
}

/// The forty bytes before a datagram in a UD receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramPrefix {
    /// The datagram came over IPv4.
    V4(Ipv4, u16),
    /// The datagram came over IPv6.
    V6(Grh),
}

impl DatagramPrefix {
    /// Reads the prefix: IPv4 if its last twenty bytes are an IPv4 header with a
    /// right checksum, else IPv6.
    ///
    /// # Errors
    /// Neither an IPv4 header at the end nor an IPv6 header at the start.
    pub fn parse(prefix: &[u8; Grh::LEN]) -> Result<Self, ParseError> {
        let tail = field::<20, 20, 40>(prefix);
        match Ipv4::parse(&tail) {
            Ok((ip, payload_len)) => Ok(Self::V4(ip, payload_len)),
            Err(_) => Grh::parse(prefix).map(Self::V6),
        }
    }

    /// Writes the prefix; the undefined bytes before an IPv4 header as zero.
    pub fn emit(&self, prefix: &mut [u8; Grh::LEN]) {
        match self {
            Self::V4(ip, payload_len) => {
                let mut tail = [0; Ipv4::LEN];
                ip.emit(*payload_len, &mut tail);
                *prefix = [0; Grh::LEN];
                put::<20, 20, 40>(prefix, tail);
            }
            Self::V6(grh) => grh.emit(prefix),
        }
    }
}

impl From<(Ipv6, u16)> for Grh {
    fn from((ip, payload_len): (Ipv6, u16)) -> Self {
        Self {
            traffic_class: ip.traffic_class,
            flow_label: ip.flow_label,
            payload_len,
            next_header: Ipv6::UDP,
            hop_limit: ip.hop_limit,
            source: ip.source.into(),
            dest: ip.dest.into(),
        }
    }
}

impl Describe for Grh {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("grh", "Global Route Header", Self::LEN)?;
        visitor.field("traffic_class", "Traffic Class", Value::hex(self.traffic_class, 8))?;
        visitor.field("flow_label", "Flow Label", Value::hex(self.flow_label, 20))?;
        visitor.field("payload_len", "Payload Length", Value::decimal(self.payload_len))?;
        visitor.field("next_header", "Next Header", Value::hex(self.next_header, 8))?;
        visitor.field("hop_limit", "Hop Limit", Value::decimal(self.hop_limit))?;
        visitor.field("source", "Source GID", Value::Gid(self.source))?;
        visitor.field("dest", "Destination GID", Value::Gid(self.dest))
    }
}
