//! Clocks of hosts: off by some time, and too fast or too slow.

use ferroce_probe::Stamp;

/// A clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// What it shows when the simulation begins, in nanoseconds.
    pub beginning: u64,
    /// How much too fast it is, in millionths.
    pub ppm: i32,
}

impl Clock {
    /// What it shows at a time of the simulation.
    #[must_use]
    pub fn at(&self, time: u64) -> Stamp {
        let wrong = i128::from(time) * i128::from(self.ppm) / 1_000_000;
        let shown = i128::from(self.beginning) + i128::from(time) + wrong;
        Stamp::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    /// The first time at which it shows this, or a few nanoseconds after it.
    #[must_use]
    pub fn time_of(&self, stamp: Stamp) -> u64 {
        let shown = i128::from(stamp.nanos()) - i128::from(self.beginning);
        let time = shown.max(0) * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        let mut time = u64::try_from(time).unwrap_or(u64::MAX);
        while self.at(time) < stamp && time < u64::MAX {
            time += 1;
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_show_their_time_and_say_when() {
        for ppm in [-100, 0, 37, 100] {
            let clock = Clock { beginning: 7_200_000_000_000, ppm };
            for time in [0, 1, 999, 123_456_789, 60_000_000_000] {
                let stamp = clock.at(time);
                assert!(clock.time_of(stamp).abs_diff(time) <= 2, "{ppm} ppm, {time}");
                assert!(clock.at(clock.time_of(stamp)) >= stamp);
            }
        }
        let fast = Clock { beginning: 5, ppm: 100 };
        assert_eq!(fast.at(10_000_000).nanos(), 10_001_005);
    }
}
