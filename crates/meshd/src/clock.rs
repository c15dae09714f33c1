//! The two clocks of a service: one that only goes forward, and that of the wall.

use std::time::{Duration, UNIX_EPOCH};

use ferroce_probe::Stamp;
use ferroce_verbs::time::ClockReading;

/// Now, on the clock that only goes forward.
pub(crate) fn now() -> Stamp {
    ferroce_probe::net::stamp_now()
}

/// Now, in nanoseconds of the Unix clock.
pub(crate) fn unix_nanos() -> u64 {
    let since = ClockReading::take().wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    nanos(since)
}

/// A time in nanoseconds; the longest one if there are more than 64 bits hold.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A time in milliseconds; the longest one if there are more than 64 bits hold.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
