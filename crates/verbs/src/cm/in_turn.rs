//! A queue in which every address has its turn.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Things that came from addresses. Those of one address come out in their order, one of each address at a
/// time.
#[derive(Debug)]
pub(super) struct InTurn<T> {
    of: BTreeMap<IpAddr, VecDeque<T>>,
    /// Every address of which something is there, once.
    turns: VecDeque<IpAddr>,
}

impl<T> Default for InTurn<T> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<T> InTurn<T> {
    pub(super) fn push(&mut self, from: IpAddr, thing: T) {
        let all = self.of.entry(from).or_default();
        if all.is_empty() {
            self.turns.push_back(from);
        }
        all.push_back(thing);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.pop_from(|_| true)
    }

    /// The next of an address that is wanted now.
    pub(super) fn pop_from(&mut self, mut wanted: impl FnMut(IpAddr) -> bool) -> Option<T> {
        let place = self.turns.iter().position(|from| wanted(*from))?;
        let from = self.turns.remove(place)?;
        let all = self.of.get_mut(&from)?;
        let next = all.pop_front();
        if all.is_empty() {
            self.of.remove(&from);
        } else {
            self.turns.push_back(from);
        }
        next
    }

    pub(super) fn len(&self) -> usize {
        self.of.values().map(VecDeque::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_its_turn() {
        let mut queue = InTurn::default();
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        for number in 0..100 {
            queue.push(from(1), (1, number));
        }
        queue.push(from(2), (2, 0));
        queue.push(from(2), (2, 1));
        let mut taken: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(taken[..5], [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2)]);
        assert!(taken.len() == 102 && queue.is_empty());
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 102);
        queue.push(from(2), (2, 7));
        assert_eq!((queue.pop(), queue.pop()), (Some((2, 7)), None));
    }

    #[test]
    fn an_address_that_is_not_wanted_keeps_its_turn() {
        let mut queue = InTurn::default();
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        for (last, number) in [(1, 10), (2, 20), (1, 11), (2, 21)] {
            queue.push(from(last), number);
        }
        assert_eq!(queue.pop_from(|address| address == from(3)), None);
        assert_eq!(queue.pop_from(|address| address == from(2)), Some(20));
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop(), queue.pop()],
            [Some(10), Some(21), Some(11), None]
        );
    }
}
