//! Ethernet II header, with or without a VLAN tag.

use core::fmt;

use crate::bytes::{field, take};
use crate::describe::{Describe, Value, Visitor};
use crate::error::ParseError;

/// Ethernet header in front of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Receiving station.
    pub dest: [u8; 6],
    /// Sending station.
    pub source: [u8; 6],
    /// Tag control information of an 802.1Q tag: priority (3), drop eligible (1), VLAN (12).
    pub vlan: Option<u16>,
}

impl Ethernet {
    /// Ethertype of IPv4.
    pub const IPV4: u16 = 0x0800;
    /// Ethertype of IPv6.
    pub const IPV6: u16 = 0x86dd;
    const TAGGED: u16 = 0x8100;

    /// Length on the wire.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Reads the header off the front of `bytes`, and the ethertype behind it.
    ///
    /// # Errors
    /// The bytes end inside the header.
    pub fn parse(bytes: &mut &[u8]) -> Result<(Self, u16), ParseError> {
        let header: &[u8; 14] = take(bytes, "Ethernet header")?;
        let mut ethernet =
            Self { dest: field::<0, 6, 14>(header), source: field::<6, 6, 14>(header), vlan: None };
        let mut ethertype = u16::from_be_bytes(field::<12, 2, 14>(header));
        if ethertype == Self::TAGGED {
            let tag: &[u8; 4] = take(bytes, "VLAN tag")?;
            ethernet.vlan = Some(u16::from_be_bytes(field::<0, 2, 4>(tag)));
            ethertype = u16::from_be_bytes(field::<2, 2, 4>(tag));
        }
        Ok((ethernet, ethertype))
    }

    /// Writes the header to the front of `buffer`, which must have room for [`len`](Self::len) bytes.
    ///
    /// # Panics
    /// If it has not.
    pub fn emit(&self, ethertype: u16, buffer: &mut [u8]) {
        buffer[..6].copy_from_slice(&self.dest);
        buffer[6..12].copy_from_slice(&self.source);
        let mut at = 12;
        if let Some(tag) = self.vlan {
            buffer[12..14].copy_from_slice(&Self::TAGGED.to_be_bytes());
            buffer[14..16].copy_from_slice(&tag.to_be_bytes());
            at = 16;
        }
        buffer[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
    }
}

impl Describe for Ethernet {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("ethernet", "Ethernet II", self.len())?;
        visitor.field("source", "Src", Value::Mac(self.source))?;
        visitor.field("dest", "Dst", Value::Mac(self.dest))?;
        match self.vlan {
            Some(tag) => visitor.field("vlan", "VLAN", Value::decimal(tag & 0x0fff)),
            None => Ok(()),
        }
    }
}
