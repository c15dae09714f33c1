//! How often a program registers memory on a card, and from where: what is dear there should not be done all the time.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::panic::Location;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use ferroce_transport::Time;

use super::lock;

/// How many registrations a card has made for this process, and how often it is asked for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registrations {
    /// All that were asked for so far.
    pub made: u64,
    /// Those of the last whole second in which there were some.
    pub last_second: u32,
    /// The places in the program that have asked for so many that they were warned of, in the order in which they were.
    pub hot: Vec<HotPlace>,
}

/// A place in a program that registers memory again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotPlace {
    /// Where.
    pub place: &'static Location<'static>,
    /// How many registrations it asked for in the second after which it was warned of.
    pub in_a_second: u32,
}

/// What is counted of one card.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    told: Registrations,
    all: Rate,
    places: HashMap<(&'static str, u32, u32), Place>,
}

#[derive(Debug, Default)]
struct Place {
    rate: Rate,
    /// Seconds in turn that were hot.
    hot: u32,
    is_told: bool,
}

/// How many there were in a second that begins with the first of them.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    since: Time,
    count: u32,
}

/// From so many in a second on, a second is hot. A card takes some ten microseconds for one, and more for each page.
const HOT: u32 = 100;

/// So many hot seconds in turn are a habit: a program that begins registers much, and then no more.
const SECONDS: u32 = 2;

const SECOND: Duration = Duration::from_secs(1);

/// Places that are told apart; others are counted, but not warned of.
const PLACES: usize = 1024;

impl Rate {
    /// One more, at this time. At the end of a second, how many there were in it; a second without any is not told of.
    fn add(&mut self, now: Time) -> Option<u32> {
        let over = self.count > 0 && now.since(self.since) >= SECOND;
        let ended = over.then_some(self.count);
        if over || self.count == 0 {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        ended
    }

    /// Whether the second before the one that begins now was one of its own.
    fn goes_on(&self, now: Time) -> bool {
        now.since(self.since) < 2 * SECOND
    }
}

impl Watch {
    /// A place in the program asks for a registration. If it is to be warned of it, with how many in the last second.
    fn count(&self, place: &'static Location<'static>, now: Time) -> Option<u32> {
        let mut inside = lock(&self.inside);
        let Inside { told, all, places } = &mut *inside;
        told.made += 1;
        if let Some(ended) = all.add(now) {
            told.last_second = ended;
        }
        let key = (place.file(), place.line(), place.column());
        let room = places.len() < PLACES;
        let known = match places.get_mut(&key) {
            Some(known) => known,
            None if room => places.entry(key).or_default(),
            None => return None,
        };
        let goes_on = known.rate.goes_on(now);
        let in_a_second = known.rate.add(now)?;
        known.hot = if in_a_second >= HOT && goes_on { known.hot + 1 } else { 0 };
        if known.is_told || known.hot < SECONDS {
            return None;
        }
        known.is_told = true;
        told.hot.push(HotPlace { place, in_a_second });
        Some(in_a_second)
    }

    /// The same, and warns on standard error if the user wants to hear (`FERROCE_LOG`).
    pub(crate) fn note(&self, card: &str, place: &'static Location<'static>) {
        if let Some(in_a_second) = self.count(place, ferroce_device::now())
            && is_wanted()
        {
            let line = format!("ferroce: {}\n", Warning { in_a_second, card, place });
            // A program that has closed its standard error does not want to hear.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    pub(crate) fn report(&self) -> Registrations {
        lock(&self.inside).told.clone()
    }
}

struct Warning<'a> {
    in_a_second: u32,
    card: &'a str,
    place: &'static Location<'static>,
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { in_a_second, card, place } = self;
        write!(
            f,
            "{in_a_second} registrations in the last second on {card}, asked for at {place}: a card takes long for each; keep \
             regions, or see `ProtectionDomain::allocate_or_reuse` and `lend`"
        )
    }
}

/// Whether warnings are told: `FERROCE_LOG` is `warn`, or a level that tells more.
fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let level = std::env::var("FERROCE_LOG").unwrap_or_default();
        matches!(level.trim(), "warn" | "info" | "debug" | "trace")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(1 + millis * 1_000_000)
    }

    /// Registers once in each `step` milliseconds from `from` to `to`: what was warned of, and when.
    fn registers(
        watch: &Watch,
        place: &'static Location<'static>,
        from: u64,
        to: u64,
        step: usize,
    ) -> Vec<(u64, u32)> {
        (from..to).step_by(step).filter_map(|ms| Some((ms, watch.count(place, at(ms))?))).collect()
    }

    #[test]
    fn a_place_that_registers_all_the_time_is_warned_of_once() {
        let (watch, place) = (Watch::default(), Location::caller());
        assert_eq!(registers(&watch, place, 0, 10_000, 5), [(2000, 200)]);
        let told = watch.report();
        assert_eq!((told.made, told.last_second), (2000, 200));
        assert_eq!(told.hot, [HotPlace { place, in_a_second: 200 }]);
        let other = Location::caller();
        assert_eq!(registers(&watch, other, 10_000, 20_000, 10), [(12_000, 100)], "another place");
        assert_eq!(watch.report().hot.len(), 2);
    }

    #[test]
    fn a_program_that_begins_or_registers_now_and_then_is_not() {
        let (watch, place) = (Watch::default(), Location::caller());
        assert_eq!(registers(&watch, place, 0, 990, 1), [], "much at once, and then no more");
        assert_eq!(registers(&watch, place, 60_000, 60_990, 1), [], "again a minute later");
        assert_eq!(registers(&watch, place, 120_000, 180_000, 20), [], "fifty in a second");
        assert_eq!(watch.report().hot, []);
    }

    #[test]
    fn a_warning_says_how_many_where_and_what_to_do() {
        let warning = Warning { in_a_second: 123, card: "mlx5_0", place: Location::caller() }.to_string();
        assert!(
            warning.starts_with("123 registrations in the last second on mlx5_0, asked for at "),
            "{warning}"
        );
        assert!(warning.contains("registrations.rs:"), "{warning}");
    }
}
