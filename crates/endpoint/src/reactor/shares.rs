//! How two classes of connections share the time of one thread: the higher one first, the lower one a tenth for sure.

use std::time::Duration;

use crate::options::Priority;

/// What the lower class is owed of the thread's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    /// Time that the higher class has had, less nine times what the lower one has had.
    owed: i64,
}

/// Of ten parts, the lower class gets one.
const PARTS: i64 = 10;

/// What can be owed, and what can be had in advance, in nanoseconds. A class that had nothing to do for a while has no claim
/// on the time that has passed, and one that had all of the time is not punished for it.
const MOST: i64 = 5_000_000;

impl Shares {
    /// A connection of this class has had so much time.
    pub(super) fn spent(&mut self, class: Priority, time: Duration) {
        let time = i64::try_from(time.as_nanos()).unwrap_or(MOST).min(MOST);
        let change = match class {
            Priority::High => time,
            Priority::Normal => -(PARTS - 1) * time,
        };
        self.owed = (self.owed + change).clamp(-MOST, MOST);
    }

    /// Whether it is the turn of the lower class although the higher one has something to do.
    pub(super) const fn is_owed(&self) -> bool {
        self.owed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves whichever class is due, each turn as long as said in microseconds; gives the time of the lower class.
    fn overloaded(turns: u32, high: u64, normal: u64) -> f64 {
        let (mut shares, mut had) = (Shares::default(), [0, 0]);
        for _ in 0..turns {
            let class = if shares.is_owed() { Priority::Normal } else { Priority::High };
            let time = if class == Priority::High { high } else { normal };
            shares.spent(class, Duration::from_micros(time));
            had[usize::from(class == Priority::High)] += time;
        }
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = had[0] as f64 / (had[0] + had[1]) as f64;
        share
    }

    #[test]
    fn under_overload_the_lower_class_gets_its_tenth_whatever_its_turns_cost() {
        for (high, normal) in [(1, 1), (10, 1), (1, 10), (3, 7), (100, 1), (1, 100), (400, 400)] {
            let share = overloaded(100_000, high, normal);
            assert!((share - 0.1).abs() < 0.002, "{high} and {normal} us: {share}");
        }
    }

    #[test]
    fn idle_time_is_no_claim() {
        let mut shares = Shares::default();
        // Hours of the higher class alone.
        for _ in 0..1000 {
            shares.spent(Priority::High, Duration::from_secs(10));
        }
        let mut turns = 0;
        while shares.is_owed() {
            shares.spent(Priority::Normal, Duration::from_micros(10));
            turns += 1;
        }
        assert!(turns < 60, "{turns}");
        // And of the lower class alone.
        for _ in 0..1000 {
            shares.spent(Priority::Normal, Duration::from_secs(10));
        }
        let mut turns = 0;
        while !shares.is_owed() {
            shares.spent(Priority::High, Duration::from_micros(10));
            turns += 1;
        }
        assert!(turns <= 501, "{turns}");
    }
}
