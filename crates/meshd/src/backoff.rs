//! How long to wait before the next try: longer each time, and never the same for two agents.

use std::time::Duration;

/// The least and the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffConfig {
    /// Before the first new try, at most.
    pub first: Duration,
    /// Before any new try, at most.
    pub longest: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), longest: Duration::from_secs(15) }
    }
}

/// Waits that double, each drawn between nothing and all of it, so that a service that comes back is not met by
/// all its agents at once.
#[derive(Clone, Debug)]
pub struct Backoff {
    config: BackoffConfig,
    tries: u32,
    word: u64,
}

impl Backoff {
    /// Waits that are drawn from this number.
    #[must_use]
    pub const fn new(config: BackoffConfig, seed: u64) -> Self {
        Self { config, tries: 0, word: seed }
    }

    /// How long to wait before the next try.
    pub fn wait(&mut self) -> Duration {
        let whole = self.config.first.saturating_mul(1 << self.tries.min(20)).min(self.config.longest);
        self.tries = self.tries.saturating_add(1);
        self.draw(whole)
    }

    /// It worked: the next wait is a short one again.
    pub const fn worked(&mut self) {
        self.tries = 0;
    }

    /// A part of this time.
    pub fn draw(&mut self, whole: Duration) -> Duration {
        // The steps of SplitMix64.
        self.word = self.word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.word;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = u32::try_from((word ^ (word >> 31)) >> 32).unwrap_or(u32::MAX);
        whole.mul_f64(f64::from(part) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew() {
        let config = BackoffConfig { first: Duration::from_secs(1), longest: Duration::from_secs(8) };
        for (tries, most) in [(0, 1), (1, 2), (2, 4), (3, 8), (4, 8), (40, 8)] {
            let waits = (0..200).map(|seed| {
                let mut backoff = Backoff::new(config, seed);
                for _ in 0..tries {
                    backoff.wait();
                }
                backoff.wait()
            });
            let longest = waits.max().unwrap();
            let most = Duration::from_secs(most);
            assert!(longest <= most && longest > most.mul_f64(0.9), "{tries}: {longest:?}");
        }
        let mut backoff = Backoff::new(config, 7);
        for _ in 0..10 {
            backoff.wait();
        }
        backoff.worked();
        assert!(backoff.wait() <= Duration::from_secs(1));
    }

    #[test]
    fn a_thousand_agents_come_back_spread_over_the_wait() {
        let config = BackoffConfig { first: Duration::from_secs(10), longest: Duration::from_secs(10) };
        let mut tenths = [0_u32; 10];
        for seed in 0..1000 {
            let wait = Backoff::new(config, seed).wait();
            tenths[usize::try_from(wait.as_millis() / 1001).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (60..150).contains(count)), "{tenths:?}");
    }
}
