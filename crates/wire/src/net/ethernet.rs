//! Ethernet II header, with up to two VLAN tags.

use core::fmt;

use crate::bytes::{field, put, take};
use crate::describe::{Describe, Value, Visitor};
use crate::error::{BufferTooSmall, ParseError};

/// Ethernet header in front of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Receiving station.
    pub dest: [u8; 6],
    /// Sending station.
    pub source: [u8; 6],
    /// The virtual networks that the frame belongs to.
    pub vlans: Vlans,
}

/// The VLAN tags of a frame. A provider puts its own in front of that of its customer
/// (IEEE 802.1ad); more than two are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlans {
    /// None.
    Untagged,
    /// One.
    Tagged(VlanTag),
    /// Two, the outer one first.
    Stacked(VlanTag, VlanTag),
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Whether it is a provider's tag (0x88a8) and not an ordinary one (0x8100).
    pub service: bool,
    /// Tag control information: priority (3), drop eligible (1), VLAN (12).
    pub control: u16,
}

impl Ethernet {
    /// Ethertype of IPv4.
    pub const IPV4: u16 = 0x0800;
    /// Ethertype of IPv6.
    pub const IPV6: u16 = 0x86dd;

    const ADDRESSES_LEN: usize = 12;
    const ETHERTYPE_LEN: usize = 2;

    /// Length on the wire.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        Self::ADDRESSES_LEN + self.vlans.tags().count() * VlanTag::LEN + Self::ETHERTYPE_LEN
    }

    /// Reads the header off the front of `bytes`, and the ethertype behind it.
    ///
    /// # Errors
    /// The bytes end inside the header.
    pub fn parse(bytes: &mut &[u8]) -> Result<(Self, u16), ParseError> {
        let addresses: &[u8; Self::ADDRESSES_LEN] = take(bytes, "Ethernet header")?;
        let vlans = match (VlanTag::parse(bytes)?, VlanTag::parse(bytes)?) {
            (Some(outer), Some(inner)) => Vlans::Stacked(outer, inner),
            (Some(tag), None) => Vlans::Tagged(tag),
            (None, _) => Vlans::Untagged,
        };
        let ethertype = u16::from_be_bytes(*take(bytes, "Ethernet header")?);
        let (dest, source) = (field::<0, 6, 12>(addresses), field::<6, 6, 12>(addresses));
        Ok((Self { dest, source, vlans }, ethertype))
    }

    /// Writes the header to the front of `buffer` and returns its length.
    ///
    /// # Errors
    /// The buffer is shorter than [`len`](Self::len); nothing is written.
    pub fn emit(&self, ethertype: u16, buffer: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let (need, have) = (self.len(), buffer.len());
        let too_small = BufferTooSmall { need, have };
        let header = buffer.get_mut(..need).ok_or(too_small)?;
        let (addresses, rest) = header.split_first_chunk_mut().ok_or(too_small)?;
        put::<0, 6, 12>(addresses, self.dest);
        put::<6, 6, 12>(addresses, self.source);
        let (tags, last) = rest.as_chunks_mut();
        for (bytes, tag) in tags.iter_mut().zip(self.vlans.tags()) {
            tag.emit(bytes);
        }
        last.copy_from_slice(&ethertype.to_be_bytes());
        Ok(need)
    }
}

impl Vlans {
    /// The tags, the outer one first.
    pub fn tags(self) -> impl Iterator<Item = VlanTag> {
        let [outer, inner] = match self {
            Self::Untagged => [None; 2],
            Self::Tagged(tag) => [Some(tag), None],
            Self::Stacked(outer, inner) => [Some(outer), Some(inner)],
        };
        outer.into_iter().chain(inner)
    }
}

impl VlanTag {
    /// Length on the wire.
    pub const LEN: usize = 4;

    const ORDINARY: u16 = 0x8100;
    const SERVICE: u16 = 0x88a8;

    /// The VLAN, 12 bits.
    #[must_use]
    pub const fn vlan(self) -> u16 {
        self.control & 0x0fff
    }

    /// Reads a tag off the front of `bytes`, if there is one.
    fn parse(bytes: &mut &[u8]) -> Result<Option<Self>, ParseError> {
        let service = match bytes.first_chunk().map(|protocol| u16::from_be_bytes(*protocol)) {
            Some(Self::ORDINARY) => false,
            Some(Self::SERVICE) => true,
            _ => return Ok(None),
        };
        let tag: &[u8; Self::LEN] = take(bytes, "VLAN tag")?;
        Ok(Some(Self { service, control: u16::from_be_bytes(field::<2, 2, 4>(tag)) }))
    }

    fn emit(self, tag: &mut [u8; Self::LEN]) {
        let protocol = if self.service { Self::SERVICE } else { Self::ORDINARY };
        put::<0, 2, 4>(tag, protocol.to_be_bytes());
        put::<2, 2, 4>(tag, self.control.to_be_bytes());
    }
}

impl Describe for Ethernet {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("ethernet", "Ethernet II", self.len())?;
        visitor.field("source", "Src", Value::Mac(self.source))?;
        visitor.field("dest", "Dst", Value::Mac(self.dest))?;
        match self.vlans {
            Vlans::Untagged => Ok(()),
            Vlans::Tagged(tag) => visitor.field("vlan", "VLAN", Value::decimal(tag.vlan())),
            Vlans::Stacked(outer, inner) => {
                visitor.field("outer_vlan", "Outer VLAN", Value::decimal(outer.vlan()))?;
                visitor.field("vlan", "VLAN", Value::decimal(inner.vlan()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: [u8; 12] = [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16];

    /// The addresses, then these bytes; how many there are in all.
    fn header(rest: &[u8]) -> ([u8; 26], usize) {
        let mut bytes = [0; 26];
        bytes[..12].copy_from_slice(&ADDRESSES);
        bytes[12..12 + rest.len()].copy_from_slice(rest);
        (bytes, 12 + rest.len())
    }

    #[test]
    fn up_to_two_tags_are_taken_off_and_put_back() {
        let ordinary = VlanTag { service: false, control: 0x6005 };
        let service = VlanTag { service: true, control: 0x2fff };
        for (rest, vlans) in [
            (&[0x08, 0x00][..], Vlans::Untagged),
            (&[0x81, 0x00, 0x60, 0x05, 0x08, 0x00], Vlans::Tagged(ordinary)),
            (&[0x88, 0xa8, 0x2f, 0xff, 0x08, 0x00], Vlans::Tagged(service)),
            (
                &[0x88, 0xa8, 0x2f, 0xff, 0x81, 0x00, 0x60, 0x05, 0x08, 0x00],
                Vlans::Stacked(service, ordinary),
            ),
            (
                &[0x81, 0x00, 0x60, 0x05, 0x81, 0x00, 0x60, 0x05, 0x08, 0x00],
                Vlans::Stacked(ordinary, ordinary),
            ),
        ] {
            let (bytes, len) = header(rest);
            let mut left = &bytes[..len];
            let (ethernet, ethertype) = Ethernet::parse(&mut left).unwrap();
            assert_eq!((ethernet.vlans, ethertype, left.len()), (vlans, Ethernet::IPV4, 0));
            assert_eq!((ethernet.dest, ethernet.source), ([1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16]));
            assert_eq!(ethernet.len(), len);

            let mut again = [0xaa; 26];
            for have in 0..len {
                let refused = Err(BufferTooSmall { need: len, have });
                assert_eq!(ethernet.emit(ethertype, &mut again[..have]), refused);
                assert!(Ethernet::parse(&mut &bytes[..have]).is_err());
            }
            assert_eq!(again, [0xaa; 26]);
            assert_eq!(ethernet.emit(ethertype, &mut again), Ok(len));
            assert_eq!(again[..len], bytes[..len]);
        }
    }

    #[test]
    fn a_third_tag_is_not_read() {
        let (bytes, len) = header(&[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 0x08, 0x00]);
        let (_, ethertype) = Ethernet::parse(&mut &bytes[..len]).unwrap();
        assert_eq!(ethertype, 0x8100);
    }
}
