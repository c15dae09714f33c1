//! How two classes of connections share the time of one thread: the higher one first, the lower one a tenth for sure.

use std::time::Duration;

use crate::options::Priority;

/// What the lower class is owed of the thread's time, in nanoseconds times [`LOWER_PARTS`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    owed: i64,
}

/// Of ten parts, the lower class gets one for sure.
const PARTS: i64 = 10;
const LOWER_PARTS: i64 = 1;

impl Shares {
    /// A connection of this class has had so much time, while the higher class had something to do.
    pub(super) fn spent(&mut self, class: Priority, time: Duration) {
        let time = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / PARTS).min(i64::MAX / PARTS);
        let change = match class {
            Priority::High => LOWER_PARTS * time,
            Priority::Normal => -(PARTS - LOWER_PARTS) * time,
        };
        self.owed = self.owed.saturating_add(change);
    }

    /// Whether it is the turn of the lower class although the higher one has something to do.
    pub(super) const fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// The lower class has nothing to do, and no claim on time that has passed.
    pub(super) fn forgive(&mut self) {
        self.owed = self.owed.min(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves whichever class is due, each turn as long as said in microseconds; gives the share of the lower class.
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
        for (high, normal) in
            [(1, 1), (10, 1), (1, 10), (3, 7), (100, 1), (1, 100), (400, 400), (1_000_000, 1)]
        {
            let share = overloaded(1_000_000, high, normal);
            assert!((share - 0.1).abs() < 0.002, "{high} and {normal} us: {share}");
        }
    }

    #[test]
    fn a_class_with_nothing_to_do_saves_up_nothing() {
        let mut shares = Shares::default();
        shares.spent(Priority::High, Duration::from_secs(10_000));
        shares.forgive();
        assert!(!shares.is_owed());
        // What it had too much of stays: one long event.
        shares.spent(Priority::Normal, Duration::from_millis(1));
        shares.forgive();
        shares.spent(Priority::High, Duration::from_millis(8));
        assert!(!shares.is_owed());
        shares.spent(Priority::High, Duration::from_millis(2));
        assert!(shares.is_owed());
    }
}
