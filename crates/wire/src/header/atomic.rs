//! Extended transport headers of atomics (IBA 9.3.4) and of their acknowledgements.

use core::fmt;

use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};
use crate::num::Rkey;

/// Operands of an atomic request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Remote virtual address of the eight bytes.
    pub address: u64,
    /// The key that gives access to them.
    pub rkey: Rkey,
    /// What is stored (compare and swap) or added (fetch and add).
    pub swap_or_add: u64,
    /// What must be found for a compare and swap to store. Unused by fetch and add.
    pub compare: u64,
}

impl AtomicEth {
    /// Length on the wire.
    pub const LEN: usize = 28;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self {
            address: u64::from_be_bytes(field::<0, 8, 28>(header)),
            rkey: Rkey(u32::from_be_bytes(field::<8, 4, 28>(header))),
            swap_or_add: u64::from_be_bytes(field::<12, 8, 28>(header)),
            compare: u64::from_be_bytes(field::<20, 8, 28>(header)),
        }
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        put::<0, 8, 28>(header, self.address.to_be_bytes());
        put::<8, 4, 28>(header, self.rkey.0.to_be_bytes());
        put::<12, 8, 28>(header, self.swap_or_add.to_be_bytes());
        put::<20, 8, 28>(header, self.compare.to_be_bytes());
    }
}

impl Describe for AtomicEth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("atomiceth", "Atomic Extended Transport Header", Self::LEN)?;
        visitor.field("address", "Virtual Address", Value::hex(self.address, 64))?;
        visitor.field("rkey", "Remote Key", Value::hex(self.rkey.0, 32))?;
        visitor.field("swap_or_add", "Swap (or Add)", Value::hex(self.swap_or_add, 64))?;
        visitor.field("compare", "Compare", Value::hex(self.compare, 64))
    }
}

/// Masks of a masked atomic, between an [`AtomicEth`] and the end of the request.
///
/// Masked atomics are an addition of our own: their opcodes lie in the range that the IBA leaves to
/// manufacturers (9.2.1), so that only a peer of the same make answers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicMasks {
    /// Compare and swap: the bits that are stored. Fetch and add: the highest bit of each field,
    /// beyond which no carry goes.
    pub swap_or_add: u64,
    /// The bits that are compared. Unused by fetch and add.
    pub compare: u64,
}

impl AtomicMasks {
    /// Length on the wire.
    pub const LEN: usize = 16;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self {
            swap_or_add: u64::from_be_bytes(field::<0, 8, 16>(header)),
            compare: u64::from_be_bytes(field::<8, 8, 16>(header)),
        }
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        put::<0, 8, 16>(header, self.swap_or_add.to_be_bytes());
        put::<8, 8, 16>(header, self.compare.to_be_bytes());
    }
}

impl Describe for AtomicMasks {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("atomicmasks", "Atomic Masks", Self::LEN)?;
        visitor.field("swap_or_add", "Swap Mask (or Field Boundaries)", Value::hex(self.swap_or_add, 64))?;
        visitor.field("compare", "Compare Mask", Value::hex(self.compare, 64))
    }
}

/// The value that an atomic found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// What stood at the address before the atomic.
    pub original: u64,
}

impl AtomicAckEth {
    /// Length on the wire.
    pub const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn parse(header: &[u8; Self::LEN]) -> Self {
        Self { original: u64::from_be_bytes(*header) }
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(&self, header: &mut [u8; Self::LEN]) {
        *header = self.original.to_be_bytes();
    }
}

impl Describe for AtomicAckEth {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("atomicacketh", "Atomic ACK Extended Transport Header", Self::LEN)?;
        visitor.field("original", "Original Remote Data", Value::hex(self.original, 64))
    }
}
