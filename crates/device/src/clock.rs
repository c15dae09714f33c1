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

/// Milliseconds since 1970, for people to read.
#[expect(clippy::disallowed_methods, reason = "the device is where time comes from")]
pub(crate) fn wall_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

/// Lets a moment pass, where there is nothing to wait for but time.
#[expect(clippy::disallowed_methods, reason = "the device is where time comes from")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// How long from now until `later`; nothing if it has passed.
#[must_use]
pub fn until(later: Time) -> Duration {
    later.since(now())
}
