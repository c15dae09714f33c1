//! Immediate data (IBA 9.3.6) and the key to invalidate (IBA 9.3.7).

use core::fmt;

use crate::describe::{Describe, Value, Visitor};
use crate::num::Rkey;

/// Four bytes that reach the receiver's completion, in the order of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imm(pub u32);

impl Imm {
    /// Length on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self(u32::from_be_bytes(*header))
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        *header = self.0.to_be_bytes();
    }
}

impl Describe for Imm {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("immdt", "Immediate Data", Self::LEN)?;
        visitor.field("data", "Immediate Data", Value::hex(self.0, 32))
    }
}

/// The key that a SEND with invalidate takes away from its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth(pub Rkey);

impl Ieth {
    /// Length on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self(Rkey(u32::from_be_bytes(*header)))
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        *header = self.0.0.to_be_bytes();
    }
}

impl Describe for Ieth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("ieth", "Invalidate Extended Transport Header", Self::LEN)?;
        visitor.field("rkey", "Remote Key", Value::hex(self.0.0, 32))
    }
}
