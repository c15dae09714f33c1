//! Times as connection management writes them.

use core::fmt;
use core::time::Duration;

/// A time as a 5-bit exponent: 4.096 us times two to the power of the code (IBA 12.7.8).
///
/// From 4 us to 2.4 hours. Only for the ACK timeout of a queue pair does code 0
/// have another meaning: it never expires (IBA 9.9.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timeout(u8);

impl Timeout {
    /// The longest one.
    pub const MAX: Self = Self(0x1f);

    /// The timeout with the code in the low 5 bits.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & Self::MAX.0)
    }

    /// The 5-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How long it lasts.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << self.0)
    }

    /// The shortest one that lasts at least so long, or the longest there is.
    #[must_use]
    pub const fn at_least(time: Duration) -> Self {
        let mut timeout = Self(0);
        while timeout.0 < Self::MAX.0 && timeout.duration().as_nanos() < time.as_nanos() {
            timeout = Self(timeout.0 + 1);
        }
        timeout
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timeout({}: {:?})", self.0, self.duration())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_doubles() {
        assert_eq!(Timeout::new(0).duration(), Duration::from_nanos(4_096));
        assert_eq!(Timeout::new(14).duration(), Duration::from_nanos(67_108_864));
        assert_eq!(Timeout::new(0x14).duration(), Duration::from_nanos(4_294_967_296));
        assert_eq!(Timeout::MAX.duration(), Duration::from_nanos(8_796_093_022_208));
        assert_eq!(Timeout::new(0x34), Timeout::new(0x14));
    }

    #[test]
    fn at_least_rounds_up_and_stops_at_the_longest() {
        assert_eq!(Timeout::at_least(Duration::ZERO), Timeout::new(0));
        assert_eq!(Timeout::at_least(Duration::from_nanos(4_096)), Timeout::new(0));
        assert_eq!(Timeout::at_least(Duration::from_nanos(4_097)), Timeout::new(1));
        assert_eq!(Timeout::at_least(Duration::from_secs(2)), Timeout::new(0x13));
        assert_eq!(Timeout::at_least(Duration::MAX), Timeout::MAX);
    }
}
