//! The watchdog: probing slows down while our own host is busy, and says so.
//!
//! A host is as busy as its timers are late and its packets wait: both are seen by the prober anyway, and
//! both spoil what it measures. In each window it counts how many were too late. A busy window slows probing
//! down by one step, some calm ones in a row make it faster by one; in between, nothing changes, so that the
//! pace does not swing. It never becomes zero: a prober that says nothing looks like a network that is gone.

use std::time::Duration;

use crate::stamp::Stamp;

/// How fast probes leave, compared with what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pace {
    /// As asked for.
    #[default]
    Full,
    /// Every second probe.
    Half,
    /// Every fourth probe.
    Quarter,
    /// Every tenth probe.
    Tenth,
}

impl Pace {
    /// All of them, the fastest first.
    pub const ALL: [Self; 4] = [Self::Full, Self::Half, Self::Quarter, Self::Tenth];

    /// How many intervals lie between two probes.
    #[must_use]
    pub const fn intervals(self) -> u32 {
        match self {
            Self::Full => 1,
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Tenth => 10,
        }
    }

    /// The interval between two probes, if this one was asked for.
    #[must_use]
    pub const fn stretch(self, interval: Duration) -> Duration {
        interval.saturating_mul(self.intervals())
    }

    fn slower(self) -> Self {
        Self::ALL.into_iter().find(|pace| *pace > self).unwrap_or(Self::Tenth)
    }

    fn faster(self) -> Self {
        Self::ALL.into_iter().rev().find(|pace| *pace < self).unwrap_or(Self::Full)
    }
}

/// When a host is busy, and when it is calm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchdogConfig {
    /// How long a window is.
    pub window: Duration,
    /// A window is busy if one of ten is later than this.
    pub busy: Duration,
    /// A window is calm if nine of ten are no later than this.
    pub calm: Duration,
    /// So many calm windows in a row make probing faster by one step.
    pub calm_windows: u32,
}

impl Default for WatchdogConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(1),
            busy: Duration::from_millis(2),
            calm: Duration::from_millis(1),
            calm_windows: 3,
        }
    }
}

/// The pace has changed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceChange {
    /// From this.
    pub from: Pace,
    /// To this.
    pub to: Pace,
    /// How late timers woke us.
    pub timers: Lateness,
    /// How long packets that had arrived waited for us.
    pub packets: Lateness,
}

/// How late things were in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// How many there were.
    pub count: u32,
    /// How many of them were later than [`WatchdogConfig::busy`].
    pub busy: u32,
    /// How many of them were later than [`WatchdogConfig::calm`].
    pub uneasy: u32,
    /// The latest.
    pub worst: Duration,
}

/// The watchdog.
#[derive(Clone, Debug)]
pub struct Watchdog {
    config: WatchdogConfig,
    pace: Pace,
    /// When the window began.
    window: Option<Stamp>,
    timers: Lateness,
    packets: Lateness,
    /// Calm windows in a row.
    calm: u32,
}

impl Watchdog {
    /// A watchdog that has seen nothing.
    #[must_use]
    pub fn new(config: WatchdogConfig) -> Self {
        let (timers, packets) = (Lateness::default(), Lateness::default());
        Self { config, pace: Pace::Full, window: None, timers, packets, calm: 0 }
    }

    /// A timer that was due woke us at this time.
    pub fn woke(&mut self, due: Stamp, now: Stamp) -> Option<PaceChange> {
        self.timers.add(now.since(due), &self.config);
        self.look(now)
    }

    /// A packet that arrived was handled at this time.
    pub fn handled(&mut self, arrived: Stamp, now: Stamp) -> Option<PaceChange> {
        self.packets.add(now.since(arrived), &self.config);
        self.look(now)
    }

    /// How fast to probe.
    #[must_use]
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// At the end of a window, what it says.
    fn look(&mut self, now: Stamp) -> Option<PaceChange> {
        let start = *self.window.get_or_insert(now);
        if now.since(start) < self.config.window {
            return None;
        }
        self.window = Some(now);
        let timers = std::mem::take(&mut self.timers);
        let packets = std::mem::take(&mut self.packets);
        let from = self.pace;
        let is_calm = timers.is_calm() && packets.is_calm();
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        if timers.is_busy() || packets.is_busy() {
            self.pace = from.slower();
        } else if self.calm >= self.config.calm_windows {
            (self.pace, self.calm) = (from.faster(), 0);
        }
        (self.pace != from).then_some(PaceChange { from, to: self.pace, timers, packets })
    }
}

impl Lateness {
    fn add(&mut self, late: Duration, config: &WatchdogConfig) {
        self.count = self.count.saturating_add(1);
        self.busy = self.busy.saturating_add(u32::from(late > config.busy));
        self.uneasy = self.uneasy.saturating_add(u32::from(late > config.calm));
        self.worst = self.worst.max(late);
    }

    fn is_busy(&self) -> bool {
        u64::from(self.busy) * 10 > u64::from(self.count)
    }

    fn is_calm(&self) -> bool {
        u64::from(self.uneasy) * 10 <= u64::from(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: u64 = 1000;
    const SECOND: u64 = 1_000_000_000;

    struct Host {
        watchdog: Watchdog,
        now: u64,
    }

    impl Host {
        fn new() -> Self {
            let mut host = Self { watchdog: Watchdog::new(WatchdogConfig::default()), now: SECOND };
            assert_eq!(host.watchdog.woke(Stamp::from_nanos(SECOND), Stamp::from_nanos(SECOND)), None);
            host
        }

        /// A window in which 20 timers wake us, so many of them late by so much.
        fn window(&mut self, late: u64, micros: u64) -> Option<PaceChange> {
            let mut change = None;
            for number in 0..20 {
                self.now += SECOND / 20;
                let lateness = if number < late { micros * MICRO } else { 0 };
                let due = Stamp::from_nanos(self.now - lateness);
                let seen = self.watchdog.woke(due, Stamp::from_nanos(self.now));
                assert!(change.is_none() || seen.is_none());
                change = change.or(seen);
            }
            change
        }
    }

    #[test]
    fn busy_windows_slow_probing_down_step_by_step_and_calm_ones_make_it_faster() {
        let mut host = Host::new();
        let mut paces = Vec::new();
        for _ in 0..5 {
            host.window(20, 3000);
            paces.push(host.watchdog.pace().intervals());
        }
        assert_eq!(paces, [2, 4, 10, 10, 10], "never zero");
        paces.clear();
        for _ in 0..10 {
            host.window(0, 0);
            paces.push(host.watchdog.pace().intervals());
        }
        assert_eq!(paces, [10, 10, 4, 4, 4, 2, 2, 2, 1, 1]);
    }

    #[test]
    fn a_change_says_why() {
        let mut host = Host::new();
        let change = host.window(20, 3000).unwrap();
        assert_eq!((change.from, change.to), (Pace::Full, Pace::Half));
        assert_eq!(change.timers.worst, Duration::from_millis(3));
        assert!(change.timers.busy >= 19 && change.packets.count == 0, "{change:?}");
        assert_eq!(host.window(20, 1500), None, "neither busy nor calm");
    }

    #[test]
    fn one_late_timer_of_ten_is_not_busy_and_packets_count_too() {
        let mut host = Host::new();
        assert_eq!(host.window(2, 3000), None);
        assert_eq!(host.window(3, 3000).map(|change| change.to), Some(Pace::Half));
        let now = Stamp::from_nanos(host.now + 2 * SECOND);
        let change = host.watchdog.handled(Stamp::from_nanos(host.now), now).unwrap();
        assert_eq!((change.to, change.packets.busy), (Pace::Quarter, 1));
    }

    #[test]
    fn what_is_between_busy_and_calm_changes_nothing_and_ends_a_row_of_calm_windows() {
        let mut host = Host::new();
        host.window(20, 3000);
        for _ in 0..3 {
            assert_eq!(host.window(0, 0), None);
            assert_eq!(host.window(0, 0), None);
            assert_eq!(host.window(20, 1500), None);
        }
        assert_eq!(host.watchdog.pace(), Pace::Half);
    }

    #[test]
    fn a_pace_stretches_intervals() {
        let stretched = Pace::ALL.map(|pace| pace.stretch(Duration::from_millis(50)).as_millis());
        assert_eq!(stretched, [50, 100, 200, 500]);
        assert_eq!(Pace::Tenth.stretch(Duration::MAX), Duration::MAX);
    }
}
