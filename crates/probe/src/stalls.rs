//! When our own host stood still of late.

use std::collections::VecDeque;
use std::time::Duration;

use crate::stamp::Stamp;

/// Stalls that still matter to a probe, oldest first. None overlaps another, and each is at least `shortest`
/// long, so there are at most `memory / shortest` of them, and one more.
#[derive(Clone, Debug)]
pub(crate) struct Stalls {
    shortest: Duration,
    memory: Duration,
    recent: VecDeque<(Stamp, Stamp)>,
}

impl Stalls {
    /// Stalls of at least `shortest`, kept for `memory`.
    pub(crate) fn new(shortest: Duration, memory: Duration) -> Self {
        Self { shortest: shortest.max(Duration::from_millis(1)), memory, recent: VecDeque::new() }
    }

    /// The host did nothing in this time. Whether that is a stall, and a new one.
    pub(crate) fn add(&mut self, from: Stamp, to: Stamp) -> bool {
        if to.since(from) < self.shortest {
            return false;
        }
        while let Some((_, end)) = self.recent.front()
            && to.since(*end) > self.memory
        {
            self.recent.pop_front();
        }
        let (mut from, mut to, mut is_new) = (from, to, true);
        self.recent.retain(|(start, end)| {
            let apart = *end < from || to < *start;
            if !apart {
                (from, to, is_new) = (from.min(*start), to.max(*end), false);
            }
            apart
        });
        let place = self.recent.partition_point(|(start, _)| *start < from);
        self.recent.insert(place, (from, to));
        is_new
    }

    /// Whether one of them was between these.
    pub(crate) fn touch(&self, from: Stamp, to: Stamp) -> bool {
        self.recent.iter().any(|(start, end)| *start <= to && from <= *end)
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.recent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Stamp {
        Stamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn stalls_are_told_apart_and_forgotten() {
        let mut stalls = Stalls::new(Duration::from_millis(50), Duration::from_secs(5));
        assert!(!stalls.add(at(0), at(49)), "too short");
        assert!(stalls.add(at(1000), at(1050)));
        assert!(!stalls.add(at(1010), at(1090)), "the same one, seen by another packet");
        assert!(stalls.add(at(2000), at(2100)));
        assert_eq!(stalls.count(), 2);
        for (from, to, touched) in
            [(0, 999, false), (0, 1000, true), (1090, 1500, true), (1091, 1999, false), (2050, 2060, true)]
        {
            assert_eq!(stalls.touch(at(from), at(to)), touched, "{from} to {to}");
        }
        assert!(stalls.add(at(7000), at(7050)));
        assert!(!stalls.touch(at(1000), at(1090)), "more than five seconds ago");
        assert!(stalls.touch(at(2100), at(2100)));
    }

    #[test]
    fn a_stall_between_two_makes_one_of_all() {
        let mut stalls = Stalls::new(Duration::from_millis(50), Duration::from_secs(5));
        stalls.add(at(1000), at(1050));
        assert!(!stalls.add(at(1050), at(1100)), "one goes on where the other ended");
        stalls.add(at(1200), at(1300));
        assert!(!stalls.add(at(1050), at(1250)));
        assert_eq!(stalls.count(), 1);
        assert!(stalls.touch(at(1150), at(1160)) && !stalls.touch(at(1301), at(1400)));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut stalls = Stalls::new(Duration::ZERO, Duration::from_secs(5));
        for start in 0..20_000 {
            stalls.add(at(start * 2), Stamp::from_nanos(start * 2_000_000 + 1_000_000));
        }
        assert!(stalls.count() <= 5001, "{}", stalls.count());
    }
}
