//! Where things stand in a file.
//!
//! ```text
//!   0                 header, 4096 bytes
//!   4096              ring 0: its head, 128 bytes; its events
//!   ...               ring 1, ...
//!   behind the rings  chunks, in a whole record
//! ```

use crate::event::{EVENT_LEN, WORDS};

/// Words of the header of a file.
pub(crate) const HEADER_WORDS: usize = 512;

/// Bytes of the header of a file.
pub(crate) const HEADER_LEN: usize = HEADER_WORDS * 8;

/// Words of the head of a ring: what the writer stores, and on another cache line, what the keeper stores.
pub(crate) const RING_HEAD: usize = 16;

/// Events that were ever begun in a ring.
pub(crate) const BEGUN: usize = 0;
/// Events that were lost, because there was no room.
pub(crate) const LOST: usize = 1;
/// Events that are in chunks.
pub(crate) const KEPT: usize = 8;

/// The rings of a file: so many, each with so many events, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rings {
    pub(crate) count: u32,
    pub(crate) slots: u32,
}

impl Rings {
    /// Rings that fit into so many bytes of events.
    pub(crate) fn within(count: u32, bytes: u64) -> Self {
        let each = bytes / EVENT_LEN as u64 / u64::from(count.max(1));
        let slots = u32::try_from(each).unwrap_or(1 << 31).clamp(LEAST, MOST);
        // The next lower power of two.
        Self { count, slots: 1 << slots.ilog2() }
    }

    /// Whether a file may have such rings.
    pub(crate) const fn are_possible(self) -> bool {
        0 < self.count
            && self.count <= MOST_RINGS
            && self.slots.is_power_of_two()
            && LEAST <= self.slots
            && self.slots <= MOST
    }

    /// Words of a ring.
    pub(crate) const fn ring_words(self) -> usize {
        RING_HEAD + self.slots as usize * WORDS
    }

    /// The first word of a ring.
    pub(crate) const fn at(self, ring: u32) -> usize {
        HEADER_WORDS + ring as usize * self.ring_words()
    }

    /// Words of header and rings.
    pub(crate) const fn words(self) -> usize {
        self.at(self.count)
    }

    /// The oldest event of a ring in which so many were begun. The place of the next one may be half written already.
    pub(crate) const fn oldest(self, begun: u64) -> u64 {
        // A file may say anything.
        begun.saturating_add(1).saturating_sub(self.slots as u64)
    }

    /// The lap of an event, which says that it was written to its end; never 0.
    #[inline]
    pub(crate) const fn lap(self, number: u64) -> u64 {
        (number >> self.slots.trailing_zeros()) % 255 + 1
    }
}

/// Events of a ring at least and at most.
const LEAST: u32 = 64;
const MOST: u32 = 1 << 26;

/// Rings of a file at most.
pub(crate) const MOST_RINGS: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_take_no_more_than_they_may() {
        let rings = Rings::within(4, 64 << 20);
        assert_eq!(rings, Rings { count: 4, slots: 1 << 18 });
        assert!(rings.are_possible());
        assert_eq!(Rings::within(3, 64 << 20).slots, 1 << 18, "a power of two");
        assert_eq!(Rings::within(2, 1).slots, LEAST);
        assert_eq!(Rings::within(1, u64::MAX).slots, MOST);
        assert_eq!(rings.words() * 8, HEADER_LEN + 4 * (128 + (1 << 24)));
    }

    #[test]
    fn the_place_of_the_next_event_has_none() {
        let rings = Rings { count: 1, slots: 64 };
        assert_eq!([0, 63, 64, 65, 1000].map(|begun| rings.oldest(begun)), [0, 0, 1, 2, 937]);
        assert_eq!(rings.oldest(u64::MAX), u64::MAX - 64);
    }

    #[test]
    fn a_lap_is_never_that_of_an_empty_place_nor_of_the_lap_before() {
        let rings = Rings { count: 1, slots: 64 };
        for number in 0..64 * 600_u64 {
            let lap = rings.lap(number);
            assert!((1..=255).contains(&lap) && lap != rings.lap(number + 64));
        }
    }
}
