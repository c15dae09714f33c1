//! What probes found, summed up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferroce_probe::net::{ProbeEndError, ProberEnd};
use ferroce_probe::{Directions, OutcomeCounters, Peer, Report, Stamp, StampSource};
use hdrhistogram::Histogram;

/// The most points that a picture keeps.
const POINTS: usize = 50_000;

/// Everything that was found.
pub(super) struct Figures {
    pub(super) round_trip: Histogram<u64>,
    pub(super) responder: Histogram<u64>,
    pub(super) prober: Histogram<u64>,
    pub(super) outcomes: OutcomeCounters,
    /// By source port.
    pub(super) ports: BTreeMap<u16, OfPort>,
    /// Probes with times that were not the kernel's.
    pub(super) after_call: u64,
    /// Ports that no probe could leave from, and why the first of them could not.
    pub(super) refused_ports: (u64, Option<String>),
    pub(super) points: Option<Vec<Point>>,
    begin: Stamp,
    end: Stamp,
}

/// What was found of one source port.
pub(super) struct OfPort {
    pub(super) outcomes: OutcomeCounters,
    pub(super) round_trip: Histogram<u64>,
    /// The responders that probes went to.
    targets: BTreeSet<Peer>,
}

impl OfPort {
    fn new() -> Self {
        let outcomes = OutcomeCounters::default();
        Self { outcomes, round_trip: histogram(), targets: BTreeSet::new() }
    }

    /// Which way probes from this port were lost.
    pub(super) fn directions(&self, port: u16, end: &ProberEnd) -> Directions {
        let mut all = Directions::default();
        self.targets.iter().filter_map(|target| end.directions(*target, port)).for_each(|one| all.add(&one));
        all
    }
}

/// A probe in a picture.
pub(super) struct Point {
    /// Since the beginning.
    pub(super) at: Duration,
    /// None if it was lost.
    pub(super) round_trip: Option<Duration>,
    pub(super) port: u16,
}

impl Figures {
    pub(super) fn new(keeps_points: bool) -> Self {
        Self {
            round_trip: histogram(),
            responder: histogram(),
            prober: histogram(),
            outcomes: OutcomeCounters::default(),
            ports: BTreeMap::new(),
            after_call: 0,
            refused_ports: (0, None),
            points: keeps_points.then(Vec::new),
            begin: Stamp::default(),
            end: Stamp::default(),
        }
    }

    pub(super) const fn begin(&mut self, now: Stamp) {
        self.begin = now;
    }

    pub(super) const fn end(&mut self, now: Stamp) {
        self.end = now;
    }

    /// A probe could not leave from its port.
    pub(super) fn refuse(&mut self, error: &ProbeEndError) {
        let (count, why) = &mut self.refused_ports;
        *count += 1;
        why.get_or_insert_with(|| {
            let reason = std::error::Error::source(error).map(|reason| format!(": {reason}"));
            format!("{error}{}", reason.unwrap_or_default())
        });
    }

    /// How long it took.
    pub(super) fn time(&self) -> Duration {
        self.end.since(self.begin)
    }

    pub(super) fn add(&mut self, report: &Report) {
        let Report { outcome, times, delays, port, target, .. } = report;
        outcome.count(&mut self.outcomes);
        let of_port = self.ports.entry(*port).or_insert_with(OfPort::new);
        of_port.targets.insert(*target);
        outcome.count(&mut of_port.outcomes);
        if let Some(delays) = delays {
            for (histogram, delay) in [
                (&mut self.round_trip, delays.round_trip),
                (&mut self.responder, delays.responder),
                (&mut self.prober, delays.prober),
                (&mut of_port.round_trip, delays.round_trip),
            ] {
                histogram.saturating_record(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
            }
            self.after_call += u64::from(times.source == StampSource::AfterCall);
        }
        if let Some(points) = self.points.as_mut().filter(|points| points.len() < POINTS)
            && (delays.is_some() || outcome.is_loss())
        {
            let round_trip = delays.map(|delays| delays.round_trip);
            points.push(Point { at: times.t1.since(self.begin), round_trip, port: *port });
        }
    }

    /// Which way probes were lost.
    pub(super) fn directions(&self, end: &ProberEnd) -> Directions {
        let mut all = Directions::default();
        self.ports.iter().for_each(|(port, of)| all.add(&of.directions(*port, end)));
        all
    }

    /// Probes that are over.
    pub(super) fn probes(&self) -> u64 {
        all(&self.outcomes)
    }

    /// Probes that the responder has answered.
    pub(super) const fn answered(&self) -> u64 {
        let OutcomeCounters { ok, late, ack1_lost, ack2_lost, .. } = self.outcomes;
        ok + late + ack1_lost + ack2_lost
    }
}

/// All of them.
pub(super) fn all(outcomes: &OutcomeCounters) -> u64 {
    outcomes.iter().map(|(_, count)| count).sum()
}

/// Times from a nanosecond to a minute, with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}
