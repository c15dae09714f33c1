//! Base transport header (IBA 9.2): the twelve bytes that every packet begins with.

use core::fmt;

use crate::bytes::{field, put, put_u24, u24};
use crate::describe::{Describe, Value, Visitor};
use crate::error::ParseError;
use crate::num::{PKey, Psn, Qpn};
use crate::opcode::Opcode;

/// Base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// The receiver is asked to raise a completion event.
    pub solicited: bool,
    /// The path migration state is "migrated".
    pub migrated: bool,
    /// Zero bytes that fill the payload up to a multiple of four, 0 to 3.
    pub pad: u8,
    /// The partition.
    pub pkey: PKey,
    /// The packet met congestion on its way (annex A17).
    pub fecn: bool,
    /// The packet tells of congestion in the other direction (annex A17).
    pub becn: bool,
    /// The queue pair that it is for.
    pub dest_qp: Qpn,
    /// The responder is asked to acknowledge.
    pub ack_request: bool,
    /// Its place in the sequence of packets.
    pub psn: Psn,
}

impl Bth {
    /// Length on the wire.
    pub const LEN: usize = 12;

    /// Where the byte with FECN and BECN lies. It is the one byte of the
    /// transport packet that switches may change: the ICRC takes it as ones.
    pub const VARIANT_BYTE: usize = 4;

    /// Reads the header. Reserved bits are ignored, as IBA 9.2 asks of receivers.
    ///
    /// # Errors
    /// An opcode that is not in the table, or a header version other than 0.
    #[inline]
    pub const fn parse(header: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        let Some(opcode) = Opcode::from_byte(header[0]) else {
            return Err(ParseError::UnknownOpcode(header[0]));
        };
        let flags = header[1];
        if flags & 0x0f != 0 {
            return Err(ParseError::UnknownVersion(flags & 0x0f));
        }
        Ok(Self {
            opcode,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad: flags >> 4 & 0x03,
            pkey: PKey(u16::from_be_bytes(field::<2, 2, 12>(header))),
            fecn: header[Self::VARIANT_BYTE] & 0x80 != 0,
            becn: header[Self::VARIANT_BYTE] & 0x40 != 0,
            dest_qp: Qpn::new(u24::<5, 12>(header)),
            ack_request: header[8] & 0x80 != 0,
            psn: Psn::new(u24::<9, 12>(header)),
        })
    }

    /// Writes the header, reserved bits as zero.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        header[0] = self.opcode.byte();
        header[1] = (self.solicited as u8) << 7 | (self.migrated as u8) << 6 | (self.pad & 3) << 4;
        put::<2, 2, 12>(header, self.pkey.0.to_be_bytes());
        header[Self::VARIANT_BYTE] = (self.fecn as u8) << 7 | (self.becn as u8) << 6;
        put_u24::<5, 12>(header, self.dest_qp.get());
        header[8] = (self.ack_request as u8) << 7;
        put_u24::<9, 12>(header, self.psn.get());
    }
}

impl Describe for Bth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        let operation = self.opcode.info().operation.name();
        visitor.header("bth", "Base Transport Header", Self::LEN)?;
        visitor.field("service", "Service", Value::Text(self.opcode.info().service.name()))?;
        visitor.field("opcode", "Opcode", Value::named(operation, self.opcode.byte(), 8))?;
        visitor.field("solicited", "Solicited Event", Value::Flag(self.solicited))?;
        visitor.field("migrated", "Migrated", Value::Flag(self.migrated))?;
        visitor.field("pad", "Pad Count", Value::decimal(self.pad))?;
        visitor.field("version", "Transport Header Version", Value::decimal(0_u8))?;
        visitor.field("pkey", "Partition Key", Value::hex(self.pkey.0, 16))?;
        visitor.field("fecn", "Forward Congestion", Value::Flag(self.fecn))?;
        visitor.field("becn", "Backward Congestion", Value::Flag(self.becn))?;
        visitor.field("dest_qp", "Destination Queue Pair", Value::hex(self.dest_qp.get(), 24))?;
        visitor.field("ack_request", "Acknowledge Request", Value::Flag(self.ack_request))?;
        visitor.field("psn", "Packet Sequence Number", Value::hex(self.psn.get(), 24))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let bytes = [0x0a, 0xf0, 0x12, 0x34, 0xc0, 0x01, 0x02, 0x03, 0x80, 0xab, 0xcd, 0xef];
        let bth = Bth::parse(&bytes).unwrap();
        assert!(bth.solicited && bth.migrated && bth.fecn && bth.becn && bth.ack_request);
        assert_eq!(bth.pad, 3);
        assert_eq!(bth.pkey, PKey(0x1234));
        assert_eq!(bth.dest_qp, Qpn::new(0x01_0203));
        assert_eq!(bth.psn, Psn::new(0xab_cdef));
        let mut again = [0xff; 12];
        bth.emit(&mut again);
        assert_eq!(again, bytes);
    }

    #[test]
    fn other_header_versions_are_refused() {
        let mut bytes = [0; 12];
        bytes[1] = 0x02;
        assert_eq!(Bth::parse(&bytes), Err(ParseError::UnknownVersion(2)));
        bytes[0] = 0x15;
        assert_eq!(Bth::parse(&bytes), Err(ParseError::UnknownOpcode(0x15)));
    }
}
