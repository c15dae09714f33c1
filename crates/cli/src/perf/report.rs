//! What was found: rows of a table as they come, or JSON at the end.

use std::io::{self, Write};
use std::time::Duration;

use ferroce::Counters;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::task::{Measure, Task, Verb};
use crate::output::{Style, figure, size};

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Messages that were measured.
    pub(crate) messages: u64,
    /// How long they took together.
    pub(crate) time: Duration,
    /// How long each took, in nanoseconds.
    pub(crate) times: Option<Histogram<u64>>,
    /// All messages, those before and after the measurement too.
    pub(crate) total: u64,
}

impl Figures {
    /// Messages in a second.
    pub(crate) fn per_second(&self) -> f64 {
        if self.time.is_zero() { 0.0 } else { self.messages as f64 / self.time.as_secs_f64() }
    }

    /// The time that this share of messages did not need more than, in microseconds.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        self.times.as_ref().map_or(0.0, |times| times.value_at_quantile(share) as f64 / 1000.0)
    }
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) task: Task,
    pub(crate) figures: Figures,
    pub(crate) path: String,
    pub(crate) counters: Counters,
}

/// Times from a nanosecond to a minute, with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// The shares that the table shows.
const SHARES: [(&str, f64); 6] =
    [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// Where rows go.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    rows: Vec<Row>,
    /// What stands above the table now.
    heading: Option<String>,
}

impl Report {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json, rows: Vec::new(), heading: None }
    }

    /// Adds a row, and shows it if it is for people.
    pub(crate) fn add(&mut self, row: Row) -> io::Result<()> {
        if !self.json {
            let mut out = io::stdout().lock();
            let heading = heading(&row);
            if self.heading.as_ref() != Some(&heading) {
                writeln!(out, "{}", Style::Title.of(&heading))?;
                writeln!(out, "path {}", row.path)?;
                writeln!(out, "{}", Style::Faint.of(columns(row.task.measure)))?;
                self.heading = Some(heading);
            }
            writeln!(out, "{}", line(&row))?;
            out.flush()?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Ends it.
    pub(crate) fn finish(&self, interrupted: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            let rows: Vec<Value> = self.rows.iter().map(to_json).collect();
            let version = env!("CARGO_PKG_VERSION");
            let report = json!({ "ferroce": version, "interrupted": interrupted, "rows": rows });
            writeln!(out, "{report:#}")?;
            return out.flush();
        }
        let mut all = Counters::default();
        self.rows.iter().for_each(|row| all.add(&row.counters));
        let notes = [
            (all.retransmitted, "packets sent again"),
            (all.rnr_received, "RNR NAKs"),
            (all.timeouts, "time-outs"),
        ];
        let notes: Vec<String> =
            notes.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        if !notes.is_empty() {
            writeln!(out, "{}", Style::Faint.of(notes.join(", ")))?;
        }
        if self.rows.iter().any(|row| row.task.verify) {
            writeln!(out, "{}", Style::Good.of("all contents were right"))?;
        }
        out.flush()
    }
}

fn heading(row: &Row) -> String {
    let Task { verb, measure, qps, .. } = row.task;
    let verb = match verb {
        Verb::Write => "WRITE",
        Verb::Read => "READ",
        Verb::Send => "SEND",
        Verb::Atomic => "FETCH AND ADD",
    };
    let lanes = if qps == 1 { "1 queue pair".to_owned() } else { format!("{qps} queue pairs") };
    match measure {
        Measure::Bandwidth => format!("{verb} bandwidth: {lanes}, {} under way", row.task.depth()),
        Measure::Rate => format!("{verb} rate: {lanes}, {} under way", row.task.depth()),
        Measure::Latency if row.task.is_ping_pong() => format!("{verb} latency: half a round trip, in us"),
        Measure::Latency => format!("{verb} latency: from posting to completion, in us"),
    }
}

fn columns(measure: Measure) -> String {
    match measure {
        Measure::Latency => {
            let shares: String = SHARES.iter().map(|(name, _)| format!("{name:>9}")).collect();
            format!("{:>8}  target {shares}{:>9}", "size", "mean")
        }
        _ => format!("{:>8}{:>12}{:>12}{:>14}{:>14}", "size", "GB/s", "Gbit/s", "M messages/s", "messages"),
    }
}

fn line(row: &Row) -> String {
    let Row { task, figures, .. } = row;
    let bytes = size(task.size);
    if task.measure == Measure::Latency {
        let shares: String =
            SHARES.iter().map(|(_, share)| format!("{:>9}", figure(figures.quantile(*share)))).collect();
        let mean = figures.times.as_ref().map_or(0.0, |times| times.mean() / 1000.0);
        return format!("{bytes:>8}  {:7}{shares}{:>9}", task.target.name(), figure(mean));
    }
    let rate = figures.per_second();
    let giga = rate * task.size as f64 / 1e9;
    format!(
        "{bytes:>8}{:>12}{:>12}{:>14}{:>14}",
        figure(giga),
        figure(giga * 8.0),
        figure(rate / 1e6),
        figures.messages
    )
}

fn to_json(row: &Row) -> Value {
    let Row { task, figures, path, counters } = row;
    let (path, reason) = path.split_once(": ").unwrap_or((path, ""));
    let rate = figures.per_second();
    let latency = figures.times.as_ref().map(|times| {
        json!({
            "min": times.min(),
            "p50": times.value_at_quantile(0.5),
            "p90": times.value_at_quantile(0.9),
            "p99": times.value_at_quantile(0.99),
            "p99_9": times.value_at_quantile(0.999),
            "max": times.max(),
            "mean": times.mean(),
        })
    });
    json!({
        "verb": task.verb.name(),
        "measure": task.measure.name(),
        "size": task.size,
        "qps": task.qps,
        "depth": task.depth(),
        "target": task.target.name(),
        "path": path,
        "path_reason": reason,
        "verified": task.verify,
        "messages": figures.messages,
        "seconds": figures.time.as_secs_f64(),
        "messages_per_second": rate,
        "bytes_per_second": rate * task.size as f64,
        "latency_ns": latency,
        "half_round_trip": task.is_ping_pong(),
        "retransmitted": counters.retransmitted,
        "rnr_naks": counters.rnr_received,
        "timeouts": counters.timeouts,
    })
}
