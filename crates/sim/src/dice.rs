//! All chance of a run, from one seed.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A stream of decisions. The same seed gives the same decisions, everywhere and for ever.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

/// One in a million: the unit of probabilities here.
pub(crate) const MILLION: u32 = 1_000_000;

impl Dice {
    /// The decisions that belong to a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A separate stream, so that one use of chance does not shift another.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self::new(self.word())
    }

    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.0.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// An index into something of this length.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// The same, 32 bits wide.
    pub fn between_u32(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.between(u64::from(low), u64::from(high))).unwrap_or(high)
    }

    /// The same, with every order of magnitude equally likely. `low` is at least 1.
    pub fn log_between(&mut self, low: u64, high: u64) -> u64 {
        let low = low.max(1);
        let shift = self.between(0, u64::from((high / low).max(1).ilog2()));
        let floor = low << shift;
        self.between(floor, (floor * 2 - 1).min(high).max(floor))
    }

    /// True this often in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(u64::from(MILLION)) < u64::from(per_million)
    }

    /// True one time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_run() {
        let mut dice = Dice::new(7);
        let first: Vec<u64> = (0..4).map(|_| dice.below(1000)).collect();
        let mut again = Dice::new(7);
        assert_eq!(first, (0..4).map(|_| again.below(1000)).collect::<Vec<_>>());
    }

    #[test]
    fn bounds_are_kept() {
        let mut dice = Dice::new(1);
        for _ in 0..1000 {
            assert!(dice.below(3) < 3);
            assert!((5..=9).contains(&dice.between(5, 9)));
            assert!((10..=5000).contains(&dice.log_between(10, 5000)));
        }
        assert!(!dice.chance(0));
        assert!(dice.chance(MILLION));
    }
}
