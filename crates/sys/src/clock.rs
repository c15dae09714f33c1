//! The clock: the one place that asks what time it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ferroce_transport::Time;

/// Nanoseconds since this process first asked.
#[must_use]
#[inline]
pub fn now() -> Time {
    let nanos = monotonic();
    let start = start(nanos);
    // One past the beginning, so that no time of a running device is zero. Two threads that ask first may do
    // so in the wrong order.
    Time::from_nanos(1 + nanos.saturating_sub(start))
}

/// When this process first asked; 0 before that.
static START: AtomicU64 = AtomicU64::new(0);

/// When this process first asked: now, if it never did.
#[inline]
fn start(now: u64) -> u64 {
    match START.load(Ordering::Relaxed) {
        0 => START
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|known| known, |_| now),
        known => known,
    }
}

/// What the clock that all processes of the machine share shows at [`Time::ZERO`], and what the clock of the wall does,
/// in nanoseconds: by these, times of two processes, or of two machines, can be compared.
#[must_use]
pub fn starts() -> (u64, u64) {
    let nanos = monotonic();
    let zero = start(nanos).saturating_sub(1);
    let wall = u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX);
    // Another thread may have asked first, a moment later.
    (zero, wall.saturating_sub(nanos.saturating_sub(zero)))
}

/// What the clock that all processes of the machine share shows at this time, in nanoseconds.
#[inline]
pub(crate) fn shared(time: Time) -> u64 {
    START.load(Ordering::Relaxed).saturating_add(time.nanos()).saturating_sub(1)
}

/// What `Instant` reads, without the checks that turn it into a duration: every message is timed.
#[inline]
fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds on a clock of the C library, which knows where a debugger or valgrind hides the kernel's page of clocks:
/// what looks for that page by itself ends with a bad access there.
#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value that lives during the call, which cannot fail for the clocks that are asked here.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Processor time that the other threads of this process have had so far.
#[must_use]
pub fn processor_time_of_others() -> Duration {
    let own = read(libc::CLOCK_THREAD_CPUTIME_ID);
    // This thread is at work between the two.
    Duration::from_nanos(read(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(own))
}

/// The time since 1970, for people to read: it may be set, so nothing is decided by it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Milliseconds since 1970, for people to read.
#[must_use]
pub fn wall_millis() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(0)
}

/// Lets a moment pass, where there is nothing to wait for but time.
#[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Parks this thread until another one unparks it, or the time is over; for ever with `None`.
#[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
pub fn park(limit: Option<Duration>) {
    match limit {
        Some(limit) => std::thread::park_timeout(limit),
        None => std::thread::park(),
    }
}

/// How long from now until `later`; nothing if it has passed.
#[must_use]
pub fn until(later: Time) -> Duration {
    later.since(now())
}

/// The device's clock and the wall's, read together: what one time is in terms of the other.
///
/// The device's clock only goes forward; the wall's may be set. A reading that was taken near a time
/// says best what the wall showed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The device's clock, on which completions are timed.
    pub device: Time,
    /// The wall's clock at that time.
    pub wall: SystemTime,
    /// By how much the two may have been read apart.
    pub uncertainty: Duration,
}

impl ClockReading {
    /// How often it tries to read both without being interrupted.
    const TRIES: usize = 4;

    /// Reads both clocks.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    pub fn take() -> Self {
        let once = || {
            let before = now();
            let wall = SystemTime::now();
            let between = now().since(before);
            Self { device: before + between / 2, wall, uncertainty: between / 2 }
        };
        let first = once();
        (1..Self::TRIES)
            .map(|_| once())
            .fold(first, |best, other| if other.uncertainty < best.uncertainty { other } else { best })
    }

    /// What the wall's clock showed, or will show, at a time of the device.
    #[must_use]
    pub fn wall_at(&self, time: Time) -> SystemTime {
        if time >= self.device {
            self.wall + time.since(self.device)
        } else {
            self.wall - self.device.since(time)
        }
    }

    /// The device's time at a time of the wall's clock; its beginning, for all that was before.
    #[must_use]
    pub fn device_at(&self, wall: SystemTime) -> Time {
        match wall.duration_since(self.wall) {
            Ok(after) => self.device + after,
            Err(before) => Time::ZERO + self.device.since(Time::ZERO + before.duration()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_from_the_wall() {
        let reading = ClockReading::take();
        for nanos in [1, 999, 1_000_000_007, reading.device.nanos(), reading.device.nanos() + 5_000_000_000] {
            let time = Time::from_nanos(nanos);
            assert_eq!(reading.device_at(reading.wall_at(time)), time);
        }
        let long_ago = reading.wall - Duration::from_secs(1 << 32);
        assert_eq!(reading.device_at(long_ago), Time::ZERO);
        let later = ClockReading::take();
        assert!(later.device >= reading.device);
    }
}
