//! A small table of speeds.

use std::time::Duration;

use serde_json::json;

use super::stage::Stage;
use crate::output::figure;
use crate::perf;
use crate::perf::report::Row;
use crate::perf::session::{self, Place};
use crate::perf::task::{Limit, Measure, Target, Task, Verb, Way};

/// How long each figure is measured.
const TIME: Duration = Duration::from_millis(250);

/// What is measured: a name, the task, and how its figure is written.
const WANTED: [(&str, Measure, usize, u32, Target); 3] = [
    ("8 B WRITE, half a round trip", Measure::Latency, 8, 1, Target::Poll),
    ("64 B WRITE, messages", Measure::Rate, 64, 128, Target::Sleep),
    ("1 MiB WRITE, bandwidth", Measure::Bandwidth, 1 << 20, 16, Target::Sleep),
];

pub(crate) fn show(stage: &mut Stage, near: &Place, far: &Place) -> anyhow::Result<()> {
    stage.section("Speeds, measured now on this machine (ferroce perf tells more)")?;
    stage.row(&format!("{:32}{:>16}{:>16}", "", "wire", "local"), None)?;
    let wire = measure(near, far, Way::Wire)?;
    let local = measure(near, near, Way::Local)?;
    for (((name, ..), wire), local) in WANTED.iter().zip(&wire).zip(&local) {
        let ((wire, unit), (local, _)) = (value(wire), value(local));
        let text = format!(
            "{name:32}{:>16}{:>16}",
            format!("{} {unit}", figure(wire)),
            format!("{} {unit}", figure(local))
        );
        stage.row(&text, Some(json!({ "name": name, "unit": unit, "wire": wire, "local": local })))?;
    }
    Ok(())
}

fn measure(near: &Place, far: &Place, way: Way) -> anyhow::Result<Vec<Row>> {
    perf::between(near, far, |talk| {
        let one = |(_, measure, size, depth, target): (&str, Measure, usize, u32, Target)| {
            let task = Task { verb: Verb::Write, measure, size, qps: 1, depth, target, verify: false, way };
            session::measure(talk, near, &task, Limit::Time(TIME), &mut |_| {})
        };
        WANTED.into_iter().map(one).collect()
    })
}

fn value(row: &Row) -> (f64, &'static str) {
    let rate = row.figures.per_second();
    match row.task.measure {
        Measure::Latency => (row.figures.quantile(0.5), "us"),
        Measure::Rate => (rate / 1e6, "M/s"),
        Measure::Bandwidth => (rate * row.task.size as f64 / 1e9, "GB/s"),
    }
}
