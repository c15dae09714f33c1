//! UDP header.

use core::fmt;

use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};
use crate::error::ParseError;

/// UDP header in front of a RoCEv2 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port: any value, chosen so that routers spread connections over paths.
    pub source_port: u16,
    /// Destination port.
    pub dest_port: u16,
    /// Checksum as seen. RoCEv2 senders may leave it 0, also over IPv6: the ICRC protects the packet.
    pub checksum: u16,
}

impl Udp {
    /// Length on the wire.
    pub const LEN: usize = 8;

    /// The UDP port of RoCEv2 (annex A17).
    pub const ROCE_PORT: u16 = 4791;

    /// Reads the header, and the length of what follows it.
    ///
    /// # Errors
    /// A length field shorter than the header.
    pub fn parse(header: &[u8; Self::LEN]) -> Result<(Self, u16), ParseError> {
        let len = u16::from_be_bytes(field::<4, 2, 8>(header));
        let Some(payload_len) = len.checked_sub(8) else {
            return Err(ParseError::LengthMismatch { what: "UDP", said: len.into(), have: Self::LEN });
        };
        let udp = Self {
            source_port: u16::from_be_bytes(field::<0, 2, 8>(header)),
            dest_port: u16::from_be_bytes(field::<2, 2, 8>(header)),
            checksum: u16::from_be_bytes(field::<6, 2, 8>(header)),
        };
        Ok((udp, payload_len))
    }

    /// Writes the header of a datagram with `payload_len` bytes after it. Beyond 65,527 the length wraps.
    pub fn emit(&self, payload_len: u16, header: &mut [u8; Self::LEN]) {
        put::<0, 2, 8>(header, self.source_port.to_be_bytes());
        put::<2, 2, 8>(header, self.dest_port.to_be_bytes());
        put::<4, 2, 8>(header, payload_len.wrapping_add(8).to_be_bytes());
        put::<6, 2, 8>(header, self.checksum.to_be_bytes());
    }
}

impl Describe for Udp {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("udp", "User Datagram Protocol", Self::LEN)?;
        visitor.field("source_port", "Src Port", Value::decimal(self.source_port))?;
        visitor.field("dest_port", "Dst Port", Value::decimal(self.dest_port))?;
        visitor.field("checksum", "Checksum", Value::hex(self.checksum, 16))
    }
}
