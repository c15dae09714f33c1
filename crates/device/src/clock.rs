//! The clock: the one place that asks what time it is.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ferroce_transport::Time;

/// Nanoseconds since this process first asked.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the device is where time comes from")]
pub fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    // One past the beginning, so that no time of a running device is zero.
    Time::from_nanos(1) + start.elapsed()
}

/// How long from now until `later`; nothing if it has passed.
#[must_use]
pub fn until(later: Time) -> Duration {
    later.since(now())
}
