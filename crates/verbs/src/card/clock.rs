//! The clock of a card, on which it says when work ended, beside that of the program.

use std::sync::Mutex;
use std::time::Duration;

use ferroce_device::now;
use ferroce_system::CallError;
use ferroce_transport::Time;

use super::lock;

/// Turns times of a card into those of the program.
#[derive(Debug)]
pub(crate) struct CardClock {
    pace: Pace,
    /// Read anew now and then, because the two clocks drift apart.
    reading: Mutex<Option<Reading>>,
}

/// How a card's clock counts.
#[derive(Clone, Copy, Debug)]
struct Pace {
    khz: u64,
    /// Its bits: it begins anew after the last.
    mask: u64,
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    time: Time,
    ticks: u64,
}

/// Turns times around, for a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turner {
    pace: Pace,
    reading: Reading,
    now: Time,
}

impl Turner {
    /// When the card's clock showed this. What has ended did so before now.
    pub(crate) fn time_of(&self, ticks: u64) -> Time {
        self.pace.time_of(self.reading, ticks).min(self.now)
    }
}

/// How long a reading is good for: clocks that are one in 10,000 apart are off by 10 microseconds then.
const GOOD_FOR: Duration = Duration::from_millis(100);

/// Readings of which the shortest counts: the program may be held up during each.
const TRIES: u32 = 4;

impl CardClock {
    /// A clock that ticks so fast, in kilohertz, in numbers of these bits; none of a card that does not say so.
    pub(crate) fn new(khz: u64, mask: u64) -> Option<Self> {
        let pace = Pace { khz, mask };
        (khz > 0 && mask > 0).then_some(Self { pace, reading: Mutex::new(None) })
    }

    /// Readies for turning times around, by reading the clock if the last reading is old. None if the card does not tell its time.
    pub(crate) fn turner(&self, read: impl FnMut() -> Result<u64, CallError>) -> Option<Turner> {
        let now = now();
        let mut known = lock(&self.reading);
        if known.is_none_or(|reading| now.since(reading.time) > GOOD_FOR) {
            *known = take(read);
        }
        Some(Turner { pace: self.pace, reading: (*known)?, now })
    }
}

fn take(mut read: impl FnMut() -> Result<u64, CallError>) -> Option<Reading> {
    let tries = (0..TRIES).filter_map(|_| {
        let before = now();
        let ticks = read().ok()?;
        let took = now().since(before);
        Some((took, Reading { time: before + took / 2, ticks }))
    });
    tries.min_by_key(|(took, _)| *took).map(|(_, reading)| reading)
}

impl Pace {
    /// When the clock showed this, which is nearer to the reading than half of what it counts to.
    fn time_of(self, reading: Reading, ticks: u64) -> Time {
        let later = ticks.wrapping_sub(reading.ticks) & self.mask;
        let earlier = reading.ticks.wrapping_sub(ticks) & self.mask;
        if later <= earlier {
            reading.time + self.lasts(later)
        } else {
            let nanos = u64::try_from(self.lasts(earlier).as_nanos()).unwrap_or(u64::MAX);
            Time::from_nanos(reading.time.nanos().saturating_sub(nanos))
        }
    }

    fn lasts(self, ticks: u64) -> Duration {
        let nanos = u128::from(ticks) * 1_000_000 / u128::from(self.khz.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64, ticks: u64) -> Reading {
        Reading { time: Time::from_nanos(nanos), ticks }
    }

    #[test]
    fn times_before_and_after_a_reading_are_known_at_any_pace() {
        // Of mlx5: 156.25 MHz in 63 bits, so 6.4 ns for each tick.
        let pace = Pace { khz: 156_250, mask: u64::MAX >> 1 };
        let reading = at(1_000_000, 5000);
        assert_eq!(pace.time_of(reading, 5000).nanos(), 1_000_000);
        assert_eq!(pace.time_of(reading, 5010).nanos(), 1_000_064);
        assert_eq!(pace.time_of(reading, 4990).nanos(), 999_936);
        assert_eq!(pace.time_of(at(10, 5000), 0), Time::ZERO, "before the program's clock began");
    }

    #[test]
    fn a_clock_that_has_begun_anew_goes_on() {
        let pace = Pace { khz: 1_000_000, mask: 0xffff };
        assert_eq!(pace.time_of(at(1000, 0xfff0), 0x10).nanos(), 1032);
        assert_eq!(pace.time_of(at(1000, 0x10), 0xfff0).nanos(), 968);
    }

    #[test]
    fn the_shortest_of_several_readings_counts_and_none_is_no_clock() {
        let mut ticks = 0;
        let mut read = || {
            ticks += 1;
            Ok(ticks)
        };
        let clock = CardClock::new(1_000_000, u64::MAX).unwrap();
        let turn = clock.turner(&mut read).unwrap();
        assert!(
            turn.time_of(1) <= now() && turn.time_of(u64::MAX / 4) <= now(),
            "nothing has ended in the future"
        );
        assert_eq!(ticks, u64::from(TRIES));
        let refuse = || Err(CallError { call: "ibv_query_rt_values_ex", code: 95 });
        let silent = CardClock::new(1_000_000, u64::MAX).unwrap();
        assert!(silent.turner(refuse).is_none());
        assert!(CardClock::new(0, u64::MAX).is_none() && CardClock::new(1, 0).is_none());
    }
}
