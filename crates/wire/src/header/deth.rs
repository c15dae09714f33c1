//! Datagram extended transport header (IBA 9.3.2): which queue pair sent a datagram, and by what right.

use core::fmt;

use crate::bytes::{field, put, put_u24, u24};
use crate::describe::{Describe, Value, Visitor};
use crate::num::{QKey, Qpn};

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Must equal the Q_Key of the receiving queue pair.
    pub qkey: QKey,
    /// The queue pair that sent the datagram.
    pub source_qp: Qpn,
}

impl Deth {
    /// Length on the wire.
    pub const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self {
            qkey: QKey(u32::from_be_bytes(field::<0, 4, 8>(header))),
            source_qp: Qpn::new(u24::<5, 8>(header)),
        }
    }

    /// Writes the header, reserved bits as zero.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        put::<0, 4, 8>(header, self.qkey.0.to_be_bytes());
        header[4] = 0;
        put_u24::<5, 8>(header, self.source_qp.get());
    }
}

impl Describe for Deth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("deth", "Datagram Extended Transport Header", Self::LEN)?;
        visitor.field("qkey", "Queue Key", Value::hex(self.qkey.0, 32))?;
        visitor.field("source_qp", "Source Queue Pair", Value::hex(self.source_qp.get(), 24))
    }
}
