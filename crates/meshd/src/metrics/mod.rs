//! What a board has counted, as series: scraped, or sent elsewhere, they are the same.
//!
//! Labels are ToRs, services, outcomes, kinds and severities: never tuples or RNICs. There are no more than
//! [`SERIES`] series, whatever agents call their ToRs.

mod family;
mod text;

use std::sync::Arc;

use ferroce_mesh::{Outcomes, Priority, Severity};

pub use self::family::{Family, Labels, Point, Spread, Value, Values};
pub use self::text::text;
use crate::board::{Board, BoardFinding, BoardService, Kind, POWERS, RoundTrips, priority_name};
use crate::counters::AnalyzerCounters;
use crate::outlet::OutletState;
use crate::window::named;

/// Series at most: for each of 1,024 ToRs, those beyond, and those that are not known: seven outcomes, slow
/// ones, and 19 of round trips; for each of 64 services and those beyond five; and 110 more.
pub const SERIES: usize = 1026 * (7 + 1 + POWERS.len() + 3) + 5 * (SERVICES + 1) + 110;

/// Services with series of their own: those in trouble first, then those with the most queue pairs.
const SERVICES: usize = 64;

/// The name of all services beyond; no other has signs of this kind and this name.
const OTHERS: &str = "(others)";

const SEVERITIES: [(Severity, &str); 3] =
    [(Severity::Minor, "minor"), (Severity::Major, "major"), (Severity::Critical, "critical")];

/// What an analyzer knows of itself, beside what is on its board.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// What it met.
    pub counters: AnalyzerCounters,
    /// Why the controller is not heard; empty if it is.
    pub trouble: String,
    /// Why nothing can be kept, or why it stands by; empty if nothing is wrong.
    pub store_trouble: String,
    /// Whether it leads, or stands by.
    pub leads: bool,
    /// What leaves it, and where to.
    pub outlets: Vec<OutletState>,
}

impl From<(AnalyzerCounters, String)> for Met {
    fn from((counters, trouble): (AnalyzerCounters, String)) -> Self {
        Self { counters, trouble, leads: true, ..Self::default() }
    }
}

/// All that there is to tell.
#[must_use]
pub fn families(board: &Board, met: &Met) -> Vec<Family> {
    let mut all = probes(board);
    all.push(round_trips(board));
    all.extend(findings(board));
    all.extend(services(board));
    all.extend(windows(board));
    all.extend(of_itself(met));
    all
}

/// What an analyzer tells of itself, also while it stands by.
pub(crate) fn of_itself(met: &Met) -> Vec<Family> {
    let mut all = vec![Family {
        name: "ferroce_mesh_leads",
        help: "Whether this analyzer leads, or stands by for another",
        values: Values::Gauge(vec![alone(u64::from(met.leads))]),
    }];
    let event = |(name, count): (&'static str, u64)| one("event", name, count);
    all.push(Family {
        name: "ferroce_mesh_analyzer_events_total",
        help: "What the analyzer met, by what it was",
        values: Values::Counter(met.counters.iter().map(event).collect()),
    });
    all.push(Family {
        name: "ferroce_mesh_controller_heard",
        help: "Whether the controller tells which RNICs there are",
        values: Values::Gauge(vec![alone(u64::from(met.trouble.is_empty()))]),
    });
    if !met.outlets.is_empty() {
        all.extend(outlets(&met.outlets));
    }
    all
}

fn probes(board: &Board) -> Vec<Family> {
    let names = named(&Outcomes::default()).map(|(name, _)| name);
    let outcomes = names.map(Arc::<str>::from);
    let (mut ended, mut slow) = (Vec::new(), Vec::new());
    for (tor, counts) in board.totals().by_tor() {
        let tor: Arc<str> = Arc::from(board.tor_name(tor));
        for ((name, outcome), count) in names.iter().zip(&outcomes).zip(counts) {
            let mut labels: Labels = vec![("tor", Arc::clone(&tor))];
            if *name == "slow" {
                slow.push(Point { labels, value: Value::Count(count) });
            } else {
                labels.push(("outcome", Arc::clone(outcome)));
                ended.push(Point { labels, value: Value::Count(count) });
            }
        }
    }
    vec![
        Family {
            name: "ferroce_mesh_probes_total",
            help: "Probes that ended, by the ToR that they came from and by how they ended",
            values: Values::Counter(ended),
        },
        Family {
            name: "ferroce_mesh_probes_slow_total",
            help: "Of the probes that are ok, those that took longer than is usual on their path",
            values: Values::Counter(slow),
        },
    ]
}

fn round_trips(board: &Board) -> Family {
    let spread = |(tor, trips): (&_, &RoundTrips)| Spread {
        labels: vec![("tor", Arc::from(board.tor_name(*tor)))],
        counts: trips.counts,
        sum: trips.sum,
    };
    Family {
        name: "ferroce_mesh_round_trip_seconds",
        help: "Round trips of probes in the network, by the ToR that they came from",
        values: Values::Histogram(board.totals().round_trips().iter().map(spread).collect()),
    }
}

fn findings(board: &Board) -> [Family; 3] {
    let open = board.newest().map(|kept| kept.record.open.as_slice()).unwrap_or_default();
    let mut now = Vec::new();
    for kind in Kind::ALL {
        for (severity, word) in SEVERITIES {
            let is_one = |finding: &&BoardFinding| (finding.kind(), finding.severity) == (kind, severity);
            let labels: Labels = vec![("kind", Arc::from(kind.name())), ("severity", Arc::from(word))];
            let count = open.iter().filter(is_one).count() as u64;
            now.push(Point { labels, value: Value::Count(count) });
        }
    }
    let by_kind = |count: fn(u64, u64) -> u64| {
        let totals = board.totals().findings_by_kind();
        totals.map(|(kind, opened, over)| one("kind", kind.name(), count(opened, over))).collect()
    };
    [
        Family {
            name: "ferroce_mesh_findings_open",
            help: "What is bad now, by what it is and by how bad it is",
            values: Values::Gauge(now),
        },
        Family {
            name: "ferroce_mesh_findings_opened_total",
            help: "Findings that were opened, by what was bad",
            values: Values::Counter(by_kind(|opened, _| opened)),
        },
        Family {
            name: "ferroce_mesh_findings_over_total",
            help: "Findings that are over, by what was bad",
            values: Values::Counter(by_kind(|_, over| over)),
        },
    ]
}

/// What is bad by what it means for services, and what these do; in the newest windows.
fn services(board: &Board) -> Vec<Family> {
    let newest = board.newest().map(|kept| &kept.record);
    let open = newest.map(|record| record.open.as_slice()).unwrap_or_default();
    let by_priority = [Priority::P0, Priority::P1, Priority::P2].map(|priority| {
        let is_one = |finding: &&BoardFinding| {
            finding.impact.as_ref().is_some_and(|impact| impact.priority == priority)
        };
        one("priority", priority_name(priority), open.iter().filter(is_one).count() as u64)
    });
    let all = newest.map(|record| record.services.as_slice()).unwrap_or_default();
    let left_out = newest.map_or(0, |record| u64::from(record.services_left_out));
    let gauge = |name, help, points| Family { name, help, values: Values::Gauge(points) };
    let mut families = vec![
        gauge(
            "ferroce_mesh_findings_open_by_priority",
            "What is bad now, by how bad it is for services",
            by_priority.into(),
        ),
        gauge(
            "ferroce_mesh_services",
            "Services with queue pairs between RNICs of the mesh",
            vec![alone(all.len() as u64 + left_out)],
        ),
    ];
    // A service may be called as those beyond are: then it is one of them.
    let (own, others): (Vec<_>, Vec<_>) =
        all.iter().enumerate().partition(|(place, one)| *place < SERVICES && one.service != OTHERS);
    type Of = fn(&BoardService) -> u64;
    let of_each: [(&'static str, &'static str, Of); 4] = [
        ("ferroce_mesh_service_flows", "Queue pairs of a service between RNICs of the mesh", |one| {
            one.flows.into()
        }),
        ("ferroce_mesh_service_flows_crossing", "Of these, those that cross what is bad", |one| {
            one.crossing.into()
        }),
        ("ferroce_mesh_service_packets", "Packets of a service in the newest three windows", |one| one.sent),
        (
            "ferroce_mesh_service_packets_again",
            "Packets sent again, and answers that did not come, in these windows",
            |one| one.again,
        ),
    ];
    for (name, help, of) in of_each {
        let mut points: Vec<Point> =
            own.iter().map(|(_, service)| one("service", &service.service, of(service))).collect();
        if !others.is_empty() {
            let sum = others.iter().fold(0, |sum: u64, (_, service)| sum.saturating_add(of(service)));
            points.push(one("service", OTHERS, sum));
        }
        families.push(gauge(name, help, points));
    }
    families
}

fn windows(board: &Board) -> [Family; 4] {
    let newest = board.newest().map(|kept| &kept.record);
    let parts = ["windows", "sums", "traces"].into_iter().zip(board.bytes());
    let end = newest.map_or(0, |record| record.end);
    let gauge = |name, help, values| Family { name, help, values: Values::Gauge(values) };
    [
        gauge(
            "ferroce_mesh_agents",
            "Agents that told of the newest window",
            vec![alone(newest.map_or(0, |record| u64::from(record.agents)))],
        ),
        gauge(
            "ferroce_mesh_newest_window_end_seconds",
            "When the newest window that was judged ended, since 1970; 0 before the first one",
            vec![Point { labels: Labels::new(), value: Value::Nanos(end) }],
        ),
        gauge(
            "ferroce_mesh_board_windows",
            "Windows that the page can show",
            vec![alone(board.windows().len() as u64)],
        ),
        gauge(
            "ferroce_mesh_board_bytes",
            "Memory of what the page can show",
            parts.map(|(part, bytes)| one("part", part, bytes as u64)).collect(),
        ),
    ]
}

fn outlets(states: &[OutletState]) -> [Family; 6] {
    let each = |value: fn(&OutletState) -> Value| -> Vec<Point> {
        let point = |state: &OutletState| Point {
            labels: vec![("outlet", Arc::from(state.name))],
            value: value(state),
        };
        states.iter().map(point).collect()
    };
    let counter = |name, help, points| Family { name, help, values: Values::Counter(points) };
    let gauge = |name, help, points| Family { name, help, values: Values::Gauge(points) };
    [
        counter(
            "ferroce_mesh_outlet_sent_total",
            "What was taken elsewhere: requests, or rows of windows in files",
            each(|state| Value::Count(state.sent)),
        ),
        counter(
            "ferroce_mesh_outlet_refused_total",
            "Requests that were refused for good, and not tried again",
            each(|state| Value::Count(state.refused)),
        ),
        counter(
            "ferroce_mesh_outlet_dropped_total",
            "What was never taken, since too much waited or nothing could be written: requests, or rows",
            each(|state| Value::Count(state.dropped)),
        ),
        counter(
            "ferroce_mesh_outlet_failures_total",
            "Times that something was not taken at the first try: the other end is away, or the disk is full",
            each(|state| Value::Count(state.failures)),
        ),
        gauge(
            "ferroce_mesh_outlet_waiting",
            "What waits to be taken: requests, or rows",
            each(|state| Value::Count(state.waiting)),
        ),
        gauge(
            "ferroce_mesh_outlet_last_success_seconds",
            "When something was taken last, since 1970; 0 if nothing was",
            each(|state| Value::Nanos(state.last_success)),
        ),
    ]
}

/// A series without labels.
fn alone(count: u64) -> Point {
    Point { labels: Labels::new(), value: Value::Count(count) }
}

/// A series with one label.
fn one(label: &'static str, text: &str, count: u64) -> Point {
    Point { labels: vec![(label, Arc::from(text))], value: Value::Count(count) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::histogram::Histogram;

    #[test]
    fn whatever_tors_are_called_there_are_so_many_series_and_each_is_there_once() {
        let mut board = Board::default();
        let (mut trips, outcomes) =
            (Histogram::default(), Outcomes { ok: 1, time_out: 2, ..Outcomes::default() });
        trips.add(Duration::from_micros(30));
        for number in 0..5000_u32 {
            let name = format!("\"}} 1\\\n{number}");
            board.flow(Some(&name), None, &outcomes, &trips);
        }
        board.flow(None, Some("(other)"), &outcomes, &trips);
        let outlets = crate::outlet::NAMES.map(OutletState::new).to_vec();
        let met = Met { outlets, ..Met::default() };
        let text = text(&families(&board, &met));
        let series: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.rsplit_once(' ')?.0))
            .collect();
        let different: std::collections::HashSet<_> = series.iter().collect();
        assert_eq!(different.len(), series.len());
        assert!(series.len() <= SERIES && series.len() > 1000 * 27, "{} of {SERIES}", series.len());
        let lost = text.lines().filter(|line| line.contains("outcome=\"time_out\""));
        let lost: u64 = lost.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert_eq!(lost, 2 * 5001, "nothing is left out");
    }
}
