//! What a client sends and asks for, drawn from a seed: both sides draw the same, so every byte can be checked.

use std::ops::Range;

/// Bytes of the longest message.
pub(crate) const LONGEST: usize = 1 << 20;

/// Bytes of the longest answer, write and read.
pub(crate) const LONGEST_ANSWER: usize = 64 << 10;

/// Questions of a client that may be open. Each has a slot of the memory that the server writes into.
///
/// So the server never has more to send to a client than its connection takes without waiting: a callback that
/// waits for one client lets all others wait too.
pub(crate) const SLOTS: usize = 32;

/// Bytes that messages are cut out of.
const BOOK: usize = 2 << 20;

/// One message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Counted from 0; it goes along as immediate data.
    pub(crate) number: u32,
    /// Its bytes in the book.
    pub(crate) part: Range<usize>,
    /// What the server is to do when it has it.
    pub(crate) ask: Option<Question>,
}

/// What a client asks the server for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) kind: Kind,
    /// The slot that it takes until it is answered.
    pub(crate) slot: usize,
    /// The bytes of the book that the answer is about.
    pub(crate) part: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message with these bytes.
    Answer,
    /// These bytes, written into the slot of the client's memory.
    Write,
    /// These bytes, read from the client's memory, and a word that it is done.
    Read,
}

/// The messages of a client, in order and without an end.
#[derive(Debug)]
pub(crate) struct Plan {
    draw: Draw,
    next: u32,
    questions: usize,
}

impl Plan {
    pub(crate) fn new(seed: u64, client: u32) -> Self {
        Self { draw: Draw::new(seed, client, 1), next: 0, questions: 0 }
    }
}

impl Iterator for Plan {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let draw = &mut self.draw;
        let part = draw.part(LONGEST);
        let kind = match draw.below(16) {
            0 | 1 => Some(Kind::Answer),
            2 => Some(Kind::Write),
            3 => Some(Kind::Read),
            _ => None,
        };
        let answer = draw.part(LONGEST_ANSWER);
        let ask = kind.map(|kind| Question { kind, slot: self.questions % SLOTS, part: answer });
        self.questions += usize::from(ask.is_some());
        let number = self.next;
        self.next = self.next.checked_add(1)?;
        Some(Item { number, part, ask })
    }
}

/// The bytes that all messages of a client are cut out of.
pub(crate) fn book(seed: u64, client: u32) -> Vec<u8> {
    let mut draw = Draw::new(seed, client, 2);
    (0..BOOK / 8).flat_map(|_| draw.next().to_le_bytes()).collect()
}

/// Numbers that look like chance (SplitMix64).
#[derive(Debug)]
struct Draw(u64);

impl Draw {
    fn new(seed: u64, client: u32, use_of: u64) -> Self {
        let mut draw = Self(seed);
        let start = draw.next() ^ (u64::from(client) << 8 | use_of);
        draw.0 = start;
        draw
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    /// A part of the book with a length from 1 to `longest`, a power of two: each power of two is as likely
    /// as any other.
    fn part(&mut self, longest: usize) -> Range<usize> {
        let powers = longest.trailing_zeros() as usize + 1;
        let len = match self.below(powers) {
            0 => 1,
            power => (1 << (power - 1)) + 1 + self.below(1 << (power - 1)),
        };
        let start = self.below(BOOK - len + 1);
        start..start + len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_all_sizes_and_each_seed_has_its_own() {
        let items: Vec<Item> = Plan::new(1, 2).take(20_000).collect();
        let lens: Vec<usize> = items.iter().map(|item| item.part.len()).collect();
        assert_eq!((lens.iter().min(), lens.iter().all(|len| *len <= LONGEST)), (Some(&1), true));
        for power in 1..=20 {
            let found = lens.iter().filter(|len| (1 << (power - 1)) < **len && **len <= 1 << power).count();
            // 952 on average.
            assert!((700..1200).contains(&found), "{found} messages of up to {} bytes", 1 << power);
        }
        for kind in [Kind::Answer, Kind::Write, Kind::Read] {
            let asked = items.iter().filter(|item| item.ask.as_ref().is_some_and(|ask| ask.kind == kind));
            assert!(asked.count() > 1000, "{kind:?}");
        }
        assert!(items.iter().all(|item| item.part.end <= BOOK));
        assert_eq!(items[..100], Plan::new(1, 2).take(100).collect::<Vec<_>>());
        assert_ne!(items[..100], Plan::new(1, 3).take(100).collect::<Vec<_>>());
        assert_ne!(items[..100], Plan::new(2, 2).take(100).collect::<Vec<_>>());
        assert_eq!((book(1, 2).len(), book(1, 2) == book(1, 2)), (BOOK, true));
        assert!(book(1, 2) != book(1, 3));
    }

    #[test]
    fn two_open_questions_never_share_a_slot() {
        let slots: Vec<usize> =
            Plan::new(7, 0).filter_map(|item| item.ask).map(|ask| ask.slot).take(3 * SLOTS).collect();
        let expected: Vec<usize> = (0..SLOTS).cycle().take(3 * SLOTS).collect();
        assert_eq!(slots, expected);
    }
}
