//! Communication ids.

use ferroce_wire::mad::CommId;

/// Deals out communication ids, each once in 2^24, in an order that is hard to guess.
///
/// The top byte is given: it says which process of a host the answers are for.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    top: u8,
    key: u32,
    next: u32,
}

/// Bits that are ours to choose.
const MASK: u32 = 0x00ff_ffff;

/// Any odd number makes a permutation.
const STRIDE: u32 = 0x9e_3779;

impl Ids {
    pub(super) const fn new(top: u8, key: u32) -> Self {
        Self { top, key, next: key }
    }

    /// The next one that is not taken; `None` if all are, which the limits prevent.
    pub(super) fn deal(&mut self, is_taken: impl Fn(CommId) -> bool) -> Option<CommId> {
        for _ in 0..=MASK {
            self.next = self.next.wrapping_add(1);
            let mixed = (self.next.wrapping_mul(STRIDE) ^ self.key.rotate_left(13)) & MASK;
            let id = CommId(u32::from(self.top) << 24 | mixed);
            // Zero stands for "none" in messages.
            if id.0 != 0 && !is_taken(id) {
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_id_comes_twice_before_all_were_there() {
        let mut ids = Ids::new(7, 0xdead_beef);
        let mut seen = HashSet::new();
        for _ in 0..100_000 {
            let id = ids.deal(|_| false).unwrap();
            assert_eq!(id.0 >> 24, 7);
            assert!(seen.insert(id), "{id} twice");
        }
    }

    #[test]
    fn what_is_taken_is_not_dealt() {
        let mut ids = Ids::new(0, 1);
        let first = ids.clone().deal(|_| false).unwrap();
        let second = ids.deal(|id| id == first).unwrap();
        assert_ne!(first, second);
        assert_eq!(Ids::new(0, 1).deal(|id| id != CommId(5)), Some(CommId(5)));
        assert_eq!(Ids::new(0, 1).deal(|_| true), None);
    }
}
