//! RDMA extended transport header (IBA 9.3.3): which remote memory.

use core::fmt;

use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};
use crate::num::Rkey;

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Remote virtual address of the first byte.
    pub address: u64,
    /// The key that gives access to it.
    pub rkey: Rkey,
    /// Length of the whole message in bytes.
    pub length: u32,
}

impl Reth {
    /// Length on the wire.
    pub const LEN: usize = 16;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self {
            address: u64::from_be_bytes(field::<0, 8, 16>(header)),
            rkey: Rkey(u32::from_be_bytes(field::<8, 4, 16>(header))),
            length: u32::from_be_bytes(field::<12, 4, 16>(header)),
        }
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        put::<0, 8, 16>(header, self.address.to_be_bytes());
        put::<8, 4, 16>(header, self.rkey.0.to_be_bytes());
        put::<12, 4, 16>(header, self.length.to_be_bytes());
    }
}

impl Describe for Reth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("reth", "RDMA Extended Transport Header", Self::LEN)?;
        visitor.field("address", "Virtual Address", Value::hex(self.address, 64))?;
        visitor.field("rkey", "Remote Key", Value::hex(self.rkey.0, 32))?;
        visitor.field("length", "DMA Length", Value::decimal(self.length))
    }
}
