//! When a frame was captured.

use std::fmt;

/// Seconds since 1970 (UTC), with as many decimal places as the capture has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    seconds: u64,
    fraction: u64,
    digits: u8,
}

impl Time {
    /// Seconds and a fraction of `digits` decimal digits. A fraction of more than
    /// a second, as damaged files have it, is carried over.
    pub(super) fn new(seconds: u64, fraction: u64, digits: u8) -> Self {
        let unit = 10_u64.pow(digits.into());
        Self { seconds: seconds.saturating_add(fraction / unit), fraction: fraction % unit, digits }
    }

    /// The same time as the clock shows it: `10:04:56.000001`.
    pub(crate) fn clock(self) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            let Self { seconds, fraction, digits } = self;
            let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
            let shown: u8 = if digits <= 6 { 6 } else { 9 };
            let more = 10_u64.pow(u32::from(shown).saturating_sub(digits.into()));
            let less = 10_u64.pow(u32::from(digits).saturating_sub(shown.into()));
            let width = usize::from(shown);
            write!(f, "{hours:02}:{minutes:02}:{seconds:02}.{:0width$}", fraction * more / less)
        })
    }
}

/// The seconds since 1970, with every digit that the capture has.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, fraction, digits } = self;
        match usize::from(*digits) {
            0 => write!(f, "{seconds}"),
            width => write!(f, "{seconds}.{fraction:0width$}"),
        }
    }
}

/// How an interface of a pcapng file counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    unit: Unit,
    offset_seconds: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// 10 to the minus this many seconds.
    Decimal(u8),
    /// 2 to the minus this many seconds.
    Binary(u8),
}

impl Resolution {
    /// Microseconds since 1970, unless a file says otherwise.
    pub(super) const DEFAULT: Self = Self { unit: Unit::Decimal(6), offset_seconds: 0 };

    /// The same with the unit that the option `if_tsresol` codes in one byte, or
    /// `None` if 64 bits could not even count to one second in it.
    pub(super) fn with_unit(self, code: u8) -> Option<Self> {
        let unit = match (code & 0x80 != 0, code & 0x7f) {
            (false, exponent @ 0..=19) => Unit::Decimal(exponent),
            (true, exponent @ 0..=63) => Unit::Binary(exponent),
            _ => return None,
        };
        Some(Self { unit, ..self })
    }

    /// The same with seconds to be added, the option `if_tsoffset`.
    pub(super) fn with_offset(self, offset_seconds: i64) -> Self {
        Self { offset_seconds, ..self }
    }

    /// The time of a time stamp. Binary units are rounded down to nanoseconds, and
    /// what would be before 1970 is 1970.
    pub(super) fn time(self, stamp: u64) -> Time {
        let time = match self.unit {
            Unit::Decimal(digits) => Time::new(0, stamp, digits),
            Unit::Binary(exponent) => {
                let below_one = u128::from(stamp & ((1 << exponent) - 1));
                let nanos = (below_one * 1_000_000_000) >> exponent;
                Time::new(stamp >> exponent, u64::try_from(nanos).unwrap_or(0), 9)
            }
        };
        Time { seconds: time.seconds.saturating_add_signed(self.offset_seconds), ..time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(time: Time) -> (String, String) {
        (time.clock().to_string(), time.to_string())
    }

    fn told(clock: &str, seconds: &str) -> (String, String) {
        (clock.into(), seconds.into())
    }

    #[test]
    fn micro_and_nanoseconds() {
        assert_eq!(both(Time::new(36_296, 1, 6)), told("10:04:56.000001", "36296.000001"));
        assert_eq!(both(Time::new(86_400 + 59, 12, 9)), told("00:00:59.000000012", "86459.000000012"));
        assert_eq!(both(Time::new(1, 2_500_000, 6)), told("00:00:03.500000", "3.500000"));
        assert_eq!(Time::new(u64::MAX, u64::MAX, 6).seconds, u64::MAX);
    }

    #[test]
    fn every_unit_of_pcapng() {
        let unit = |code| Resolution::DEFAULT.with_unit(code);
        assert_eq!(both(unit(3).unwrap().time(1_234)), told("00:00:01.234000", "1.234"));
        assert_eq!(both(unit(0).unwrap().time(7)), told("00:00:07.000000", "7"));
        assert_eq!(
            both(unit(12).unwrap().time(1_000_000_001_999)),
            told("00:00:01.000000001", "1.000000001999")
        );
        assert_eq!(both(unit(0x81).unwrap().time(3)), told("00:00:01.500000000", "1.500000000"));
        for code in 0..=u8::MAX {
            if let Some(resolution) = unit(code) {
                resolution.time(u64::MAX).clock().to_string();
            }
        }
        assert_eq!(unit(20), None);
        assert_eq!(unit(0x80 | 64), None);
    }

    #[test]
    fn offsets_are_added() {
        let shifted = |offset| Resolution::DEFAULT.with_offset(offset).time(5_000_000);
        assert_eq!(shifted(10).to_string(), "15.000000");
        assert_eq!(shifted(-1).to_string(), "4.000000");
        assert_eq!(shifted(i64::MIN).to_string(), "0.000000");
    }
}
