//! Whether it pays to look for a moment before a thread sleeps.
//!
//! To be woken takes a thread longer than most answers take to come. So a thread that waits looks again and
//! again for a moment before it sleeps, if that has been of use of late. Where it has not, because answers
//! take longer, or because the thread that gives them waits for this very processor, it sleeps at once, and
//! tries again now and then.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::table::{SPIN_GAIN, SPIN_MOST, SPIN_RETRY};

/// What has been learned of whether it pays to look for a moment before a thread sleeps. Only an estimate:
/// threads that do this at once may count as one.
#[derive(Debug)]
pub struct Spin {
    /// Above zero: it pays.
    score: AtomicU32,
    waits: AtomicU32,
}

impl Spin {
    /// An estimate that knows nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { score: AtomicU32::new(SPIN_GAIN), waits: AtomicU32::new(0) }
    }

    /// Whether a thread that is about to wait looks for a moment first.
    #[must_use]
    pub fn looks_first(&self) -> bool {
        let waits = self.waits.load(Ordering::Relaxed).wrapping_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        self.score.load(Ordering::Relaxed) > 0 || waits.is_multiple_of(SPIN_RETRY)
    }

    /// Learns whether such a look found something.
    pub fn has_looked(&self, found: bool) {
        let score = self.score.load(Ordering::Relaxed);
        let score = if found { (score + SPIN_GAIN).min(SPIN_MOST) } else { score.saturating_sub(1) };
        self.score.store(score, Ordering::Relaxed);
    }
}

impl Default for Spin {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(spin: &Spin, waits: u32, found: bool) -> u32 {
        let look = |_: &u32| {
            let looks = spin.looks_first();
            if looks {
                spin.has_looked(found);
            }
            looks
        };
        u32::try_from((0..waits).filter(look).count()).unwrap()
    }

    #[test]
    fn what_pays_is_done_and_what_does_not_is_tried_now_and_then() {
        let spin = Spin::new();
        assert_eq!(looks(&spin, 1000, true), 1000);
        assert!((16..=28).contains(&looks(&spin, 2560, false)), "it is given up, and tried ten times");
        let tried = looks(&spin, 2560, true);
        assert!((2300..=2560).contains(&tried), "it pays again: {tried}");
    }
}
