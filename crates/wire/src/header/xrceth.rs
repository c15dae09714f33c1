//! XRC extended transport header (annex A14): which shared receive queue a request is for.

use core::fmt;

use crate::bytes::{put_u24, u24};
use crate::describe::{Describe, Value, Visitor};
use crate::num::Srqn;

/// XRC extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xrceth(pub Srqn);

impl Xrceth {
    /// Length on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self(Srqn::new(u24::<1, 4>(header)))
    }

    /// Writes the header, reserved bits as zero.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        header[0] = 0;
        put_u24::<1, 4>(header, self.0.get());
    }
}

impl Describe for Xrceth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("xrceth", "XRC Extended Transport Header", Self::LEN)?;
        visitor.field("srqn", "Shared Receive Queue", Value::hex(self.0.get(), 24))
    }
}
