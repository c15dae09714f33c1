//! FLUSH extended transport header (annex A19): what earlier writes must reach.

use core::fmt;

use bitflags::bitflags;

use crate::describe::{Describe, Value, Visitor};

bitflags! {
    /// Where the flushed bytes must have arrived, four bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FlushPlacement: u8 {
        /// Every processor of the responder sees them.
        const GLOBAL = 1 << 0;
        /// They survive a power failure of the responder.
        const PERSISTENT = 1 << 1;
        /// Bits that are not defined yet are kept as they are.
        const _ = 0x0f;
    }
}

/// How much is flushed, two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// The bytes that the RDMA extended transport header names.
    Range,
    /// The whole memory region.
    Region,
    /// Undefined: 2.
    Reserved2,
    /// Undefined: 3.
    Reserved3,
}

/// FLUSH extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth {
    /// Where the bytes must have arrived.
    pub placement: FlushPlacement,
    /// How much is flushed.
    pub scope: FlushScope,
}

impl Feth {
    /// Length on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        let scope = match header[3] >> 4 & 3 {
            0 => FlushScope::Range,
            1 => FlushScope::Region,
            2 => FlushScope::Reserved2,
            _ => FlushScope::Reserved3,
        };
        Self { placement: FlushPlacement::from_bits_truncate(header[3] & 0x0f), scope }
    }

    /// Writes the header, reserved bits as zero.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        *header = [0, 0, 0, (self.scope as u8) << 4 | self.placement.bits() & 0x0f];
    }
}

impl Describe for Feth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        let scope = match self.scope {
            FlushScope::Range => "Range",
            FlushScope::Region => "Whole Region",
            FlushScope::Reserved2 | FlushScope::Reserved3 => "Reserved",
        };
        visitor.header("feth", "FLUSH Extended Transport Header", Self::LEN)?;
        visitor.field("placement", "Placement Type", Value::hex(self.placement.bits(), 4))?;
        visitor.field("scope", "Selectivity Level", Value::named(scope, self.scope as u8, 2))
    }
}
