//! Times as probes know them: nanoseconds on some clock, always passed in.

use std::time::Duration;

/// A point in time on one clock, in nanoseconds.
///
/// Stamps of two clocks have nothing to do with each other: only [`Stamp::minus`] of two stamps of the same
/// clock means something, and each bracket of the arithmetic of a probe is such a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// The point this many nanoseconds after the clock's beginning.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to this; negative if it lies ahead. No two stamps are too far apart.
    #[must_use]
    pub const fn minus(self, earlier: Self) -> i128 {
        self.0 as i128 - earlier.0 as i128
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The point this much later; the end of the clock if it does not go that far.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// What read the clock for a stamp, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StampSource {
    /// The network interface, as the packet passed it.
    Hardware,
    /// The kernel, as the packet passed it.
    #[default]
    Kernel,
    /// The program, after the call that sent or received: too late by an unknown time.
    AfterCall,
}

impl StampSource {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Kernel => "kernel",
            Self::AfterCall => "after-call",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_a_sign_and_no_end() {
        let (first, last) = (Stamp::from_nanos(0), Stamp::from_nanos(u64::MAX));
        assert_eq!(last.minus(first), i128::from(u64::MAX));
        assert_eq!(first.minus(last), -i128::from(u64::MAX));
        assert_eq!((first.since(last), last.plus(Duration::MAX)), (Duration::ZERO, last));
        assert_eq!(Stamp::from_nanos(7).plus(Duration::from_micros(1)).nanos(), 1007);
    }

    #[test]
    fn the_worse_source_is_the_larger_one() {
        assert!(StampSource::Hardware < StampSource::Kernel && StampSource::Kernel < StampSource::AfterCall);
        assert_eq!(StampSource::AfterCall.name(), "after-call");
    }
}
