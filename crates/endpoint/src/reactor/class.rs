//! The connections of one class that have something to do, or may have.

use std::collections::VecDeque;

/// A class of connections, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Class {
    /// How many there are, those that sleep included.
    pub(super) count: usize,
    /// Those whose wakers were called.
    pub(super) ready: VecDeque<u64>,
    /// Those that are looked at again and again, since they had something to do a moment ago. All others have wakers.
    pub(super) hot: VecDeque<u64>,
    /// Which of the two comes first in the next pass.
    hot_first: bool,
}

/// How many are still to be looked at, so that each is looked at once.
#[derive(Debug)]
pub(super) struct Pass {
    ready: usize,
    hot: usize,
    hot_first: bool,
}

/// A connection that is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: u64,
    /// It was among the hot ones, and is not any more.
    pub(super) hot: bool,
}

impl Class {
    pub(super) fn pass(&mut self) -> Pass {
        self.hot_first = !self.hot_first;
        Pass { ready: self.ready.len(), hot: self.hot.len(), hot_first: self.hot_first }
    }

    /// The next connection of this pass; it is in neither list then.
    pub(super) fn next(&mut self, pass: &mut Pass) -> Option<Found> {
        let hot = pass.hot > 0 && (pass.hot_first || pass.ready == 0);
        let (list, left) = match hot {
            true => (&mut self.hot, &mut pass.hot),
            false => (&mut self.ready, &mut pass.ready),
        };
        *left = left.checked_sub(1)?;
        list.pop_front().map(|id| Found { id, hot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_looks_at_each_once_although_they_come_back() {
        let mut class = Class::default();
        class.ready.extend([1, 2]);
        class.hot.extend([3, 4]);
        let mut pass = class.pass();
        let mut seen = Vec::new();
        while let Some(found) = class.next(&mut pass) {
            seen.push(found.id);
            if found.hot { class.hot.push_back(found.id) } else { class.ready.push_back(found.id) }
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 4]);
    }

    #[test]
    fn passes_that_end_early_reach_both_lists() {
        let mut class = Class::default();
        class.ready.push_back(1);
        class.hot.push_back(2);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let mut pass = class.pass();
            let found = class.next(&mut pass).unwrap();
            seen.push(found.id);
            if found.hot { class.hot.push_back(found.id) } else { class.ready.push_back(found.id) }
        }
        assert!(seen.contains(&1) && seen.contains(&2), "{seen:?}");
    }
}
