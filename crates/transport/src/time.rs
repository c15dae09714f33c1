//! Time as the machines know it: nanoseconds since some beginning, always passed in.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(u64);

impl Time {
    /// The beginning.
    pub const ZERO: Self = Self(0);

    /// The point this many nanoseconds after the beginning.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the beginning.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} us", self.0 / 1000, self.0 % 1000)
    }
}

/// The sooner of two times that may not be set.
#[must_use]
#[inline]
pub fn sooner(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_says_how_far() {
        let time = Time::from_nanos(1_234_005);
        assert_eq!(time.to_string(), "1234.005 us");
        let later = time + Duration::from_micros(2);
        assert_eq!((later.nanos(), later - time), (1_236_005, Duration::from_micros(2)));
        assert_eq!((time - later, time.since(later)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(Time::from_nanos(u64::MAX) + Duration::MAX, Time::from_nanos(u64::MAX));
    }
}
