//! What rsockets say to each other: private data of the connection, words that go with writes, and the entries that
//! each side keeps for the other. Nothing here asks or changes anything.

/// Bytes of private data, both ways.
pub(super) const CONNECTION: usize = 40;
/// Entries of the list in which a peer finds where to write.
pub(super) const ENTRIES: u32 = 2;
/// Bytes of one entry, and of one entry of the table of mapped memory.
pub(super) const ENTRY: usize = 16;
pub(super) const MAPPED: usize = 24;

const VERSION: u8 = 1;
const BIG_ENDIAN: u8 = 1;
const MAPS: u8 = 2;

/// Memory of one side, as the other side is told of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: u64,
    pub(super) key: u32,
    /// Bytes, or entries of a list.
    pub(super) length: u32,
}

/// What both sides say of themselves when they connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    pub(super) is_big_endian: bool,
    pub(super) maps_memory: bool,
    /// Messages that may be sent before the first answer.
    pub(super) credits: u16,
    /// Entries of the table of mapped memory.
    pub(super) mapped: u16,
    /// The list that is to be filled with places to write to.
    pub(super) list: Place,
    /// The first place to write to.
    pub(super) buffer: Place,
}

impl Introduction {
    pub(super) fn emit(&self) -> [u8; CONNECTION] {
        let mut bytes = [0; CONNECTION];
        bytes[0] = VERSION;
        bytes[1] = if self.is_big_endian { BIG_ENDIAN } else { 0 } | if self.maps_memory { MAPS } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = scaled(self.mapped);
        for (place, to) in [(self.list, 8), (self.buffer, 24)] {
            bytes[to..to + 8].copy_from_slice(&place.address.to_be_bytes());
            bytes[to + 8..to + 12].copy_from_slice(&place.key.to_be_bytes());
            bytes[to + 12..to + 16].copy_from_slice(&place.length.to_be_bytes());
        }
        bytes
    }

    /// Nothing if the peer speaks another version, or said too little.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<CONNECTION>()?;
        if bytes[0] != VERSION {
            return None;
        }
        let place = |at: usize| Place {
            address: u64::from_be_bytes(array(&bytes[at..at + 8])),
            key: u32::from_be_bytes(array(&bytes[at + 8..at + 12])),
            length: u32::from_be_bytes(array(&bytes[at + 12..at + 16])),
        };
        let maps_memory = bytes[1] & MAPS != 0;
        Some(Self {
            is_big_endian: bytes[1] & BIG_ENDIAN != 0,
            maps_memory,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            mapped: if maps_memory { unscaled(bytes[7]) } else { 0 },
            list: place(8),
            buffer: place(24),
        })
    }
}

/// The bytes of a part of a message; zeros if it has another length, which it never has.
fn array<const N: usize>(part: &[u8]) -> [u8; N] {
    part.try_into().unwrap_or([0; N])
}

/// A number in eight bits: small ones as they are, others by their upper half.
const fn scaled(value: u16) -> u8 {
    if value <= 128 { value.to_le_bytes()[0] } else { 0x80 | value.to_be_bytes()[0] }
}

const fn unscaled(value: u8) -> u16 {
    if value <= 128 { value as u16 } else { ((value & 0x7f) as u16) << 8 }
}

/// The largest number of entries that comes back from its eight bits as it was, and is not less.
pub(super) const fn mapped_size(wanted: u16) -> u16 {
    if wanted <= 128 {
        wanted
    } else {
        let whole = wanted.div_ceil(256);
        // 128 itself is "as it is": the upper half must not be nothing.
        if whole > 0x7f { 0x7f << 8 } else { whole << 8 }
    }
}

/// What goes with a write, in its immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// So many bytes of the stream were written.
    Data(u32),
    /// The sender takes messages up to this number; a place to write to may have come along.
    Credits(u16),
    /// An entry of the table of mapped memory has changed.
    Mapped(u32),
    /// No more messages in either direction.
    Disconnect,
    KeepAlive,
    /// No more messages from the sender.
    Shutdown,
    /// One that has no meaning yet.
    Unknown,
}

const SHIFT: u32 = 29;
const VALUE: u32 = (1 << SHIFT) - 1;

impl Word {
    pub(super) const fn emit(self) -> u32 {
        let (op, value) = match self {
            Self::Data(length) => (0, length & VALUE),
            Self::Credits(number) => (4, number as u32),
            Self::Mapped(index) => (6, index & VALUE),
            Self::Disconnect => (7, 0),
            Self::KeepAlive => (7, 1),
            Self::Shutdown => (7, 2),
            Self::Unknown => (5, 0),
        };
        op << SHIFT | value
    }

    pub(super) const fn parse(word: u32) -> Self {
        let value = word & VALUE;
        match (word >> SHIFT, value) {
            (0, length) => Self::Data(length),
            (4, number) => Self::Credits((number & 0xffff) as u16),
            (6, index) => Self::Mapped(index),
            (7, 0) => Self::Disconnect,
            (7, 1) => Self::KeepAlive,
            (7, 2) => Self::Shutdown,
            _ => Self::Unknown,
        }
    }
}

impl Place {
    /// An entry of the peer's list, in the peer's order of bytes.
    pub(super) fn emit(&self, swap: bool) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8]
            .copy_from_slice(&if swap { self.address.swap_bytes() } else { self.address }.to_ne_bytes());
        bytes[8..12].copy_from_slice(&if swap { self.key.swap_bytes() } else { self.key }.to_ne_bytes());
        bytes[12..].copy_from_slice(&if swap { self.length.swap_bytes() } else { self.length }.to_ne_bytes());
        bytes
    }

    /// An entry of our list, which the peer wrote in our order of bytes.
    pub(super) fn parse(bytes: [u8; ENTRY]) -> Self {
        Self {
            address: u64::from_ne_bytes(array(&bytes[..8])),
            key: u32::from_ne_bytes(array(&bytes[8..12])),
            length: u32::from_ne_bytes(array(&bytes[12..])),
        }
    }
}

/// Memory that a program has mapped for its peer, by an offset of its choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) place: Place,
}

impl Mapping {
    pub(super) fn emit(&self, swap: bool) -> [u8; MAPPED] {
        let mut bytes = [0; MAPPED];
        let offset = if swap { self.offset.swap_bytes() } else { self.offset };
        bytes[..8].copy_from_slice(&offset.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.place.emit(swap));
        bytes
    }

    pub(super) fn parse(bytes: [u8; MAPPED]) -> Self {
        Self { offset: u64::from_ne_bytes(array(&bytes[..8])), place: Place::parse(array(&bytes[8..])) }
    }

    /// Where an offset is, and how many bytes there are from there on.
    pub(super) fn find(&self, offset: u64) -> Option<Place> {
        let skip = offset.checked_sub(self.offset)?;
        let left = u64::from(self.place.length).checked_sub(skip).filter(|left| *left > 0)?;
        let address = self.place.address.checked_add(skip)?;
        Some(Place { address, key: self.place.key, length: u32::try_from(left).unwrap_or(u32::MAX) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction() -> Introduction {
        Introduction {
            is_big_endian: false,
            maps_memory: true,
            credits: 384,
            mapped: 0x300,
            list: Place { address: 0x0102_0304_0506_0708, key: 0x1122_3344, length: 2 },
            buffer: Place { address: 0x1112_1314_1516_1718, key: 0x5566_7788, length: 65_536 },
        }
    }

    #[test]
    fn an_introduction_has_the_bytes_of_the_protocol() {
        let bytes = introduction().emit();
        assert_eq!(bytes[..8], [1, 2, 1, 128, 0, 0, 0, 0x83]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..24], [0x11, 0x22, 0x33, 0x44, 0, 0, 0, 2]);
        assert_eq!(bytes[36..], [0, 1, 0, 0]);
        assert_eq!(Introduction::parse(&bytes), Some(introduction()));
    }

    #[test]
    fn another_version_or_too_few_bytes_are_refused() {
        let mut bytes = introduction().emit();
        assert_eq!(Introduction::parse(&bytes[..39]), None);
        bytes[0] = 2;
        assert_eq!(Introduction::parse(&bytes), None);
    }

    #[test]
    fn every_word_comes_back() {
        for word in 0..=u32::from(u16::MAX) {
            // All operations, with values over the whole range.
            let word = word << 16 | word;
            let parsed = Word::parse(word);
            if !matches!(parsed, Word::Unknown | Word::Credits(_)) {
                assert_eq!(parsed.emit(), word, "{parsed:?}");
            }
        }
        assert_eq!(Word::Credits(7).emit(), 0x8000_0007);
        assert_eq!(Word::Shutdown.emit(), 0xe000_0002);
        assert_eq!(Word::Mapped(3).emit(), 0xc000_0003);
    }

    #[test]
    fn sizes_of_tables_come_back_and_are_not_less() {
        for wanted in 0..=0x7f00 {
            let size = mapped_size(wanted);
            assert!(size >= wanted, "{wanted}");
            assert_eq!(unscaled(scaled(size)), size, "{wanted}");
        }
    }

    #[test]
    fn entries_are_swapped_for_a_peer_of_the_other_order() {
        let place = Place { address: 1, key: 2, length: 3 };
        assert_eq!(Place::parse(place.emit(false)), place);
        assert_eq!(Place::parse(place.emit(true)).key, 2_u32.swap_bytes());
        let mapping = Mapping { offset: 100, place: Place { address: 1000, key: 9, length: 50 } };
        assert_eq!(Mapping::parse(mapping.emit(false)), mapping);
        assert_eq!(mapping.find(99), None);
        assert_eq!(mapping.find(120), Some(Place { address: 1020, key: 9, length: 30 }));
        assert_eq!(mapping.find(150), None);
        assert_eq!(Mapping { offset: 0, ..Mapping::default() }.find(0), None);
    }
}
