//! What a board has counted, in the text that Prometheus reads.
//!
//! Labels are ToRs, services, outcomes, kinds and severities: never tuples or RNICs. There are no more than
//! [`SERIES`] series, whatever agents call their ToRs.

use std::fmt::{Display, Write};

use ferroce_mesh::{Outcomes, Priority, Severity};

use crate::board::{Board, BoardService, Kind, POWERS, RoundTrips, priority_name};
use crate::counters::AnalyzerCounters;
use crate::window::named;

/// Series at most: for each of 1,024 ToRs, those beyond, and those that are not known: seven outcomes, slow
/// ones, and 19 of round trips; for each of 64 services and those beyond five; and 70 more.
pub const SERIES: usize = 1026 * (7 + 1 + POWERS.len() + 3) + 5 * (SERVICES + 1) + 70;

/// Services with series of their own: those in trouble first, then those with the most queue pairs.
const SERVICES: usize = 64;

/// The name of all services beyond; no other has signs of this kind and this name.
const OTHERS: &str = "(others)";

const SEVERITIES: [(Severity, &str); 3] =
    [(Severity::Minor, "minor"), (Severity::Major, "major"), (Severity::Critical, "critical")];

/// All that there is to scrape.
#[must_use]
pub fn text(board: &Board, met: &AnalyzerCounters, hears_controller: bool) -> String {
    let mut text = Text::default();
    probes(&mut text, board);
    round_trips(&mut text, board);
    findings(&mut text, board);
    services(&mut text, board);
    windows(&mut text, board);
    text.head("ferroce_mesh_analyzer_events_total", "counter", "What the analyzer met, by what it was");
    for (name, count) in met.iter() {
        text.sample("ferroce_mesh_analyzer_events_total", &[("event", name)], count);
    }
    let name = "ferroce_mesh_controller_heard";
    text.head(name, "gauge", "Whether the controller tells which RNICs there are");
    text.sample(name, &[], u8::from(hears_controller));
    text.0
}

fn probes(text: &mut Text, board: &Board) {
    let by_tor = board.totals().by_tor();
    let names = named(&Outcomes::default()).map(|(name, _)| name);
    let name = "ferroce_mesh_probes_total";
    text.head(name, "counter", "Probes that ended, by the ToR that they came from and by how they ended");
    for (tor, counts) in &by_tor {
        let tor = board.tor_name(*tor);
        for (outcome, count) in names.iter().zip(counts).filter(|(outcome, _)| **outcome != "slow") {
            text.sample(name, &[("tor", tor), ("outcome", outcome)], count);
        }
    }
    let name = "ferroce_mesh_probes_slow_total";
    text.head(
        name,
        "counter",
        "Of the probes that are ok, those that took longer than is usual on their path",
    );
    for (tor, counts) in &by_tor {
        let slow = names.iter().zip(counts).find(|(outcome, _)| **outcome == "slow");
        text.sample(name, &[("tor", board.tor_name(*tor))], slow.map_or(0, |(_, count)| *count));
    }
}

fn round_trips(text: &mut Text, board: &Board) {
    let name = "ferroce_mesh_round_trip_seconds";
    text.head(name, "histogram", "Round trips of probes in the network, by the ToR that they came from");
    for (tor, RoundTrips { counts, sum }) in board.totals().round_trips() {
        let tor = board.tor_name(*tor);
        let mut all: u64 = 0;
        let limits = POWERS.iter().map(|power| seconds(1 << power)).chain(["+Inf".to_owned()]);
        for (limit, count) in limits.zip(counts) {
            all = all.saturating_add(*count);
            text.sample(&format!("{name}_bucket"), &[("tor", tor), ("le", &limit)], all);
        }
        text.sample(&format!("{name}_sum"), &[("tor", tor)], seconds(*sum));
        text.sample(&format!("{name}_count"), &[("tor", tor)], all);
    }
}

/// Nanoseconds as seconds, exactly.
fn seconds(nanos: u64) -> String {
    let (whole, part) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = format!("{whole}.{part:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn findings(text: &mut Text, board: &Board) {
    let open = board.newest().map(|kept| kept.record.open.as_slice()).unwrap_or_default();
    let name = "ferroce_mesh_findings_open";
    text.head(name, "gauge", "What is bad now, by what it is and by how bad it is");
    for kind in Kind::ALL {
        for (severity, word) in SEVERITIES {
            let is_one = |finding: &&crate::board::BoardFinding| {
                (finding.kind(), finding.severity) == (kind, severity)
            };
            let count = open.iter().filter(is_one).count();
            text.sample(name, &[("kind", kind.name()), ("severity", word)], count);
        }
    }
    let name = "ferroce_mesh_findings_opened_total";
    text.head(name, "counter", "Findings that were opened, by what was bad");
    for (kind, opened, _) in board.totals().findings_by_kind() {
        text.sample(name, &[("kind", kind.name())], opened);
    }
    let name = "ferroce_mesh_findings_over_total";
    text.head(name, "counter", "Findings that are over, by what was bad");
    for (kind, _, over) in board.totals().findings_by_kind() {
        text.sample(name, &[("kind", kind.name())], over);
    }
}

/// What is bad by what it means for services, and what these do; in the newest windows.
fn services(text: &mut Text, board: &Board) {
    let newest = board.newest().map(|kept| &kept.record);
    let open = newest.map(|record| record.open.as_slice()).unwrap_or_default();
    let name = "ferroce_mesh_findings_open_by_priority";
    text.head(name, "gauge", "What is bad now, by how bad it is for services");
    for priority in [Priority::P0, Priority::P1, Priority::P2] {
        let is_one = |finding: &&crate::board::BoardFinding| {
            finding.impact.as_ref().is_some_and(|impact| impact.priority == priority)
        };
        text.sample(name, &[("priority", priority_name(priority))], open.iter().filter(is_one).count());
    }
    let name = "ferroce_mesh_services";
    text.head(name, "gauge", "Services with queue pairs between RNICs of the mesh");
    let all = newest.map(|record| record.services.as_slice()).unwrap_or_default();
    text.sample(name, &[], all.len() as u64 + u64::from(newest.map_or(0, |record| record.services_left_out)));
    // A service may be called as those beyond are: then it is one of them.
    let (own, others): (Vec<_>, Vec<_>) =
        all.iter().enumerate().partition(|(place, one)| *place < SERVICES && one.service != OTHERS);
    type Of = fn(&BoardService) -> u64;
    let gauges: [(&str, &str, Of); 4] = [
        ("flows", "Queue pairs of a service between RNICs of the mesh", |one| one.flows.into()),
        ("flows_crossing", "Of these, those that cross what is bad", |one| one.crossing.into()),
        ("packets", "Packets of a service in the newest three windows", |one| one.sent),
        ("packets_again", "Packets sent again, and answers that did not come, in these windows", |one| {
            one.again
        }),
    ];
    for (what, help, of) in gauges {
        let name = format!("ferroce_mesh_service_{what}");
        text.head(&name, "gauge", help);
        for (_, one) in &own {
            text.sample(&name, &[("service", &one.service)], of(one));
        }
        if !others.is_empty() {
            let sum = others.iter().fold(0, |sum: u64, (_, one)| sum.saturating_add(of(one)));
            text.sample(&name, &[("service", OTHERS)], sum);
        }
    }
}

fn windows(text: &mut Text, board: &Board) {
    let newest = board.newest().map(|kept| &kept.record);
    let name = "ferroce_mesh_agents";
    text.head(name, "gauge", "Agents that told of the newest window");
    text.sample(name, &[], newest.map_or(0, |record| record.agents));
    let name = "ferroce_mesh_newest_window_end_seconds";
    text.head(
        name,
        "gauge",
        "When the newest window that was judged ended, since 1970; 0 before the first one",
    );
    text.sample(name, &[], seconds(newest.map_or(0, |record| record.end)));
    let name = "ferroce_mesh_board_windows";
    text.head(name, "gauge", "Windows that the page can show");
    text.sample(name, &[], board.windows().len());
    let name = "ferroce_mesh_board_bytes";
    text.head(name, "gauge", "Memory of what the page can show");
    for (what, bytes) in ["windows", "sums", "traces"].into_iter().zip(board.bytes()) {
        text.sample(name, &[("part", what)], bytes);
    }
}

/// The text as far as it is written.
#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        let mut before = '{';
        for (label, text) in labels {
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
            before = ',';
        }
        let end = if before == ',' { "}" } else { "" };
        let _ = writeln!(self.0, "{end} {value}");
    }
}

/// A value of a label: agents choose the names of ToRs, and these three letters would end it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::histogram::Histogram;

    #[test]
    fn seconds_are_exact() {
        for (nanos, text) in [(0, "0"), (4096, "0.000004096"), (1 << 30, "1.073741824"), (2_000_000_000, "2")]
        {
            assert_eq!(seconds(nanos), text);
        }
    }

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
        let text = text(&board, &AnalyzerCounters::default(), true);
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
