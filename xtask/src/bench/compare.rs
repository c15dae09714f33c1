//! Whether a figure changed: the quartiles of many samples before and after.

use serde_json::{Value, json};

use super::table::short;

/// Half of the samples lie between `low` and `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quartiles {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Quartiles {
    /// Of at least one sample. Between two samples the straight line counts.
    pub(super) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |quarter: usize| {
            let (index, rest) = (last * quarter / 4, last * quarter % 4);
            let above = sorted[(index + 1).min(last)];
            let share = [0.0, 0.25, 0.5, 0.75][rest];
            (above - sorted[index]).mul_add(share, sorted[index])
        };
        Some(Self { low: at(1), median: at(2), high: at(3) })
    }

    pub(super) fn show(self) -> String {
        format!("{} ({} to {})", short(self.median), short(self.low), short(self.high))
    }

    pub(super) fn to_json(self) -> Value {
        json!({ "median": self.median, "low": self.low, "high": self.high })
    }
}

/// Which values of a figure are the good ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Good {
    Low,
    High,
}

impl Good {
    /// What is done in a second should be much; time, memory and instructions should be little.
    pub(super) fn in_unit(unit: &str) -> Self {
        if unit.ends_with("/s") { Self::High } else { Self::Low }
    }
}

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Worse,
    Same,
    Better,
}

impl Verdict {
    /// Only quartiles that lie apart say something: else a slow minute would.
    pub(super) fn on(before: Quartiles, after: Quartiles, good: Good) -> Self {
        let (rose, fell) = (after.low > before.high, after.high < before.low);
        match good {
            Good::Low if rose => Self::Worse,
            Good::High if fell => Self::Worse,
            Good::Low if fell => Self::Better,
            Good::High if rose => Self::Better,
            _ => Self::Same,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Better => "better",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quartiles(samples: &[f64]) -> [f64; 3] {
        let Quartiles { low, median, high } = Quartiles::of(samples).unwrap();
        [low, median, high]
    }

    #[test]
    fn quartiles_lie_on_samples_or_between_two() {
        assert_eq!(quartiles(&[7.0]), [7.0, 7.0, 7.0]);
        assert_eq!(quartiles(&[3.0, 1.0, 2.0]), [1.5, 2.0, 2.5]);
        assert_eq!(quartiles(&[10.0, 20.0, 30.0, 40.0]), [17.5, 25.0, 32.5]);
        assert_eq!(quartiles(&[5.0, 1.0, 3.0, 2.0, 4.0]), [2.0, 3.0, 4.0]);
        assert_eq!(Quartiles::of(&[]), None);
    }

    #[test]
    fn one_wild_sample_moves_no_quartile_far() {
        let calm = quartiles(&[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]);
        let wild = quartiles(&[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1e9]);
        assert_eq!(calm, wild);
    }

    #[test]
    fn a_unit_says_which_values_are_good() {
        for unit in ["GB/s", "M/s"] {
            assert_eq!(Good::in_unit(unit), Good::High, "{unit}");
        }
        for unit in ["us", "ns", "KiB", "1/1000 core", "instructions"] {
            assert_eq!(Good::in_unit(unit), Good::Low, "{unit}");
        }
    }

    #[test]
    fn a_verdict_needs_quartiles_that_lie_apart() {
        let at = |low: f64, high: f64| Quartiles { low, median: low.midpoint(high), high };
        let before = at(10.0, 20.0);
        let cases = [
            (at(20.1, 30.0), Verdict::Worse, Verdict::Better),
            (at(1.0, 9.9), Verdict::Better, Verdict::Worse),
            // What only touches does not lie apart.
            (at(20.0, 30.0), Verdict::Same, Verdict::Same),
            (at(1.0, 10.0), Verdict::Same, Verdict::Same),
            (at(15.0, 90.0), Verdict::Same, Verdict::Same),
            (at(12.0, 13.0), Verdict::Same, Verdict::Same),
        ];
        for (after, if_low, if_high) in cases {
            assert_eq!(Verdict::on(before, after, Good::Low), if_low, "{after:?}");
            assert_eq!(Verdict::on(before, after, Good::High), if_high, "{after:?}");
        }
    }
}
