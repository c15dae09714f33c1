//! What is done, and when it is cancelled, drawn from a seed.

use std::time::Duration;

/// Bytes of the longest message.
pub(crate) const LONGEST: usize = 64 << 10;

/// Numbers that look like chance (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

/// What a future is raced against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// Nothing: it finishes.
    Nothing,
    /// It is dropped before it is polled.
    Drop,
    /// The task lets others run so many times; if that is 0, one poll is all it gets.
    Others(usize),
    /// A timer.
    Timer(Duration),
}

impl Draw {
    /// One for each use: two that differ in anything draw other numbers.
    pub(crate) fn new(seed: u64, uses: &[u64]) -> Self {
        let mut draw = Self(seed);
        for each in uses {
            draw.0 = draw.next() ^ each;
        }
        draw
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }

    pub(crate) fn against(&mut self) -> Against {
        match self.below(8) {
            0 | 1 => Against::Nothing,
            2 => Against::Drop,
            3..=5 => Against::Others(self.below(4)),
            _ => Against::Timer(Duration::from_micros(100 + self.below(3000) as u64)),
        }
    }
}

/// The bytes of a message: both ends know them.
pub(crate) fn body(seed: u64, connection: usize, number: u32) -> Vec<u8> {
    let mut draw = Draw::new(seed, &[2, connection as u64, number.into()]);
    // Each power of two is as likely as any other.
    let power = draw.below(LONGEST.trailing_zeros() as usize);
    let len = (1 << power) + draw.below(1 << power);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(draw.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
