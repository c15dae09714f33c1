//! Where things are in a lane, and what the word before a record says.

/// Bytes before the ring: the words of both sides, on cache lines of their own.
#[cfg(not(loom))]
pub(crate) const HEADER_PAGE: usize = 4096;

/// Where the producer says how many bytes it has ever published.
#[cfg(not(loom))]
pub(crate) const HEAD_AT: usize = 128;

/// Where the consumer says how many bytes it has ever given back: on a line that the neighbouring line of the head is not
/// fetched with, since processors fetch lines in pairs.
#[cfg(not(loom))]
pub(crate) const TAIL_AT: usize = 256;

/// Where the producer says in which doors of the consumer's process its hand is.
#[cfg(not(loom))]
pub(crate) const HAND_AT: usize = 384;

/// Where words begin in a file that has nothing else, behind what is never changed.
#[cfg(not(loom))]
pub(crate) const WORDS_AT: usize = 128;

/// The longest record that a lane takes, in bytes; lanes of less than 32 KiB take [less](crate::Producer::longest).
pub const LONGEST: usize = 8192;

/// Bytes of the word before each record; records begin at multiples of it.
pub(crate) const WORD: usize = 8;

/// The longest record for a ring of so many bytes. With its word it has at most half of the ring, so that an empty ring has
/// room for it wherever its positions stand.
pub(crate) const fn longest(ring: usize) -> usize {
    let half = ring / 2 - WORD;
    if half < LONGEST { half } else { LONGEST }
}

/// Bytes that a record takes in the ring, its word included.
pub(crate) const fn space(len: usize) -> usize {
    WORD + len.next_multiple_of(WORD)
}

/// Bytes at the beginning of a ring of so many that are used again and again, as long as the consumer keeps up: they stay in the
/// caches of both processors. Short rings are used as a whole.
pub(crate) const fn front(ring: usize) -> usize {
    const FRONT: usize = 64 << 10;
    if ring >= 3 * FRONT { FRONT } else { ring }
}

/// Where the next record is behind one that ends here.
#[inline]
pub(crate) const fn behind(end: usize, ring: usize) -> usize {
    if end < ring { end } else { 0 }
}

/// What stands before the bytes of each record.
///
/// | bits | |
/// |---|---|
/// | 0 to 31 | bytes of the record; of a skip, those up to the end of the ring |
/// | 32 to 39 | the kind of the record |
/// | 40 | this is no record: the next one is at the beginning of the ring, for want of room or because that is in the caches |
/// | 41 to 63 | zero |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Record { kind: u8, len: usize },
    Skip { len: usize },
}

const SKIPS: u64 = 1 << 40;

impl Mark {
    /// What a word says; `None` if no mark is written so.
    pub(crate) const fn parse(word: u64) -> Option<Self> {
        let [a, b, c, d, kind, skips, rest @ ..] = word.to_le_bytes();
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        match (kind, skips, rest) {
            (kind, 0, [0, 0]) => Some(Self::Record { kind, len }),
            (0, 1, [0, 0]) => Some(Self::Skip { len }),
            _ => None,
        }
    }

    /// The word that says this.
    pub(crate) const fn emit(self) -> u64 {
        match self {
            Self::Record { kind, len } => len as u64 | (kind as u64) << 32,
            Self::Skip { len } => len as u64 | SKIPS,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_were_written() {
        let marks = [
            Mark::Record { kind: 0, len: 0 },
            Mark::Record { kind: 255, len: LONGEST },
            Mark::Skip { len: 0 },
            Mark::Skip { len: 4088 },
        ];
        for mark in marks {
            assert_eq!(Mark::parse(mark.emit()), Some(mark));
        }
    }

    #[test]
    fn other_words_are_no_marks() {
        for word in [1 << 41, 1 << 63, SKIPS | 1 << 32, SKIPS << 1 | SKIPS, u64::MAX] {
            assert_eq!(Mark::parse(word), None, "{word:#x}");
        }
    }

    #[test]
    fn the_longest_record_fits_into_half_of_a_ring() {
        for ring in [4096, 16384, 32768, 131_072, 245_760] {
            assert!(space(longest(ring)) <= ring / 2, "{ring}");
        }
        assert_eq!((longest(4096), longest(131_072)), (2040, LONGEST));
        assert_eq!((front(131_072), front(245_760)), (131_072, 65_536));
    }
}
