//! What happened between two looks, per second.

use std::collections::HashMap;

use ferroce_device::switchboard::{ProcessStats, QpStats, WorkStats};
use ferroce_wire::Qpn;

use super::Look;

/// A process between two looks.
pub(super) struct Between<'a> {
    /// The time between them; zero if the first did not see it.
    pub(super) seconds: f64,
    /// What all its queue pairs did, also those that came and went meanwhile.
    pub(super) totals: Option<Rates>,
    /// Its queue pairs, the most active first.
    pub(super) rows: Vec<Row<'a>>,
}

/// A queue pair between two looks.
pub(super) struct Row<'a> {
    pub(super) now: &'a QpStats,
    /// `None` if the first look did not see it.
    pub(super) rates: Option<Rates>,
}

/// What happened in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) posted: f64,
    pub(super) sends_done: f64,
    pub(super) receives_done: f64,
    pub(super) failed: f64,
    pub(super) packets_sent: f64,
    pub(super) packets_received: f64,
    pub(super) direct: f64,
    pub(super) retransmitted: f64,
    pub(super) rnr_received: f64,
    pub(super) rnr_sent: f64,
    pub(super) timeouts: f64,
    pub(super) errors: f64,
    pub(super) waits: f64,
}

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "nothing counts that far between two looks")]
    fn between(before: &WorkStats, now: &WorkStats, seconds: f64) -> Self {
        // A queue pair that was made anew under the same number has counted from nothing.
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Self {
            posted: rate(before.sends_posted, now.sends_posted),
            sends_done: rate(before.sends_done, now.sends_done),
            receives_done: rate(before.completions.all_receives(), now.completions.all_receives()),
            failed: rate(before.completions.failed(), now.completions.failed()),
            packets_sent: rate(before.packets_sent, now.packets_sent),
            packets_received: rate(before.packets_received, now.packets_received),
            direct: rate(before.direct, now.direct),
            retransmitted: rate(before.retransmitted, now.retransmitted),
            rnr_received: rate(before.rnr_received, now.rnr_received),
            rnr_sent: rate(before.rnr_sent, now.rnr_sent),
            timeouts: rate(before.timeouts, now.timeouts),
            errors: rate(before.errors, now.errors),
            waits: rate(before.waits, now.waits),
        }
    }

    pub(super) const fn done(&self) -> f64 {
        self.sends_done + self.receives_done
    }

    pub(super) const fn packets(&self) -> f64 {
        self.packets_sent + self.packets_received + self.direct
    }

    /// Name and value of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("posted", self.posted),
            ("done", self.done()),
            ("sends_done", self.sends_done),
            ("receives_done", self.receives_done),
            ("failed", self.failed),
            ("packets_sent", self.packets_sent),
            ("packets_received", self.packets_received),
            ("direct", self.direct),
            ("retransmitted", self.retransmitted),
            ("rnr_received", self.rnr_received),
            ("rnr_sent", self.rnr_sent),
            ("timeouts", self.timeouts),
            ("errors", self.errors),
            ("waits", self.waits),
        ]
        .into_iter()
    }

    /// No rates: for their names.
    pub(super) fn none() -> Self {
        Self::between(&WorkStats::default(), &WorkStats::default(), 1.0)
    }
}

/// A process between two looks. A queue pair that was not there before has no rates yet.
pub(super) fn between<'a>(before: &Look, now: &'a ProcessStats) -> Between<'a> {
    let key = |process: &ProcessStats| (process.pid, process.since);
    let is_same = |other: &&ProcessStats| key(other) == key(now) && other.group == now.group;
    let before = before.all.iter().find(is_same);
    let seconds = before.map_or(0.0, |before| now.time.since(before.time).as_secs_f64());
    let before = before.filter(|_| seconds > 0.0);
    let known: HashMap<Qpn, &QpStats> =
        before.iter().flat_map(|before| before.report.rows.iter().map(|row| (row.qpn, row))).collect();
    let row = |row: &'a QpStats| {
        let before = known.get(&row.qpn);
        Row { now: row, rates: before.map(|before| Rates::between(&before.work, &row.work, seconds)) }
    };
    let mut rows: Vec<Row<'_>> = now.report.rows.iter().map(row).collect();
    rows.sort_by(|one, other| {
        let active =
            |row: &Row<'_>| row.rates.map_or(0.0, |rates| rates.done() + rates.packets() + rates.posted);
        active(other).total_cmp(&active(one)).then(one.now.qpn.cmp(&other.now.qpn))
    });
    let totals = before.map(|before| Rates::between(&before.report.totals, &now.report.totals, seconds));
    Between { seconds, totals, rows }
}
