//! FLUSH extended transport header (annex A19): what earlier writes must reach.

use core::fmt;
use core::ops::BitOr;

use crate::describe::{Describe, Value, Visitor};

/// Where the flushed bytes must have arrived: a set of four bits, two of them defined.
/// Bits that are not defined yet are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FlushPlacement(u8);

impl FlushPlacement {
    /// Every processor of the responder sees them.
    pub const GLOBAL: Self = Self(1 << 0);

    /// They survive a power failure of the responder.
    pub const PERSISTENT: Self = Self(1 << 1);

    /// Nowhere.
    #[must_use]
    pub const fn empty() -> Self {
        Self(0)
    }

    /// The set in the low four bits of `bits`.
    #[must_use]
    pub const fn new(bits: u8) -> Self {
        Self(bits & 0x0f)
    }

    /// The four bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `other` is asked for.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for FlushPlacement {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
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

impl FlushScope {
    /// The scope in the low two bits of `code`.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        match code & 3 {
            0 => Self::Range,
            1 => Self::Region,
            2 => Self::Reserved2,
            _ => Self::Reserved3,
        }
    }
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
        Self { placement: FlushPlacement::new(header[3]), scope: FlushScope::new(header[3] >> 4) }
    }

    /// Writes the header, reserved bits as zero.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        *header = [0, 0, 0, (self.scope as u8) << 4 | self.placement.bits()];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_add_up_and_the_same_twice_is_the_same() {
        for bits in 0..16 {
            for other in 0..16 {
                let both = FlushPlacement::new(bits) | FlushPlacement::new(other);
                assert_eq!(both.bits(), bits | other);
                assert!(both.contains(FlushPlacement::new(bits)));
                let contains = FlushPlacement::new(bits).contains(FlushPlacement::new(other));
                assert_eq!(contains, bits & other == other);
            }
        }
    }
}
