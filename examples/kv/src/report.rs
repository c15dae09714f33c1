//! What was measured, for people to read.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// How long operations of one kind took.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    pub(crate) fn new() -> Self {
        // From a nanosecond to a minute, with three digits.
        Self(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order"))
    }

    pub(crate) fn add(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        // They have the same bounds.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }
}

/// One line of the table.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) times: &'a Times,
    pub(crate) elapsed: Duration,
}

pub(crate) const HEADING: &str =
    "                    count       per s   p50 us   p90 us   p99 us p99.9 us   max us";

impl fmt::Display for Line<'_> {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, times: Times(times), elapsed } = self;
        let rate = times.len() as f64 / elapsed.as_secs_f64().max(1e-9);
        write!(f, "{name:14}{:>11}{rate:>12.0}", times.len())?;
        for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
            write!(f, "{:>9.1}", times.value_at_quantile(share) as f64 / 1000.0)?;
        }
        Ok(())
    }
}
