//! A small table of speeds.

use std::time::Duration;

use ferroce::Time;
use ferroce_device::now;
use serde_json::json;

use super::stage::Stage;
use crate::output::figure;
use crate::perf;
use crate::perf::report::Row;
use crate::perf::session::{self, Place};
use crate::perf::task::{Limit, Measure, Target, Task, Verb, Way};

/// How long each figure is measured, and how often: a neighbour on the same machine may have one of the runs.
const TIME: Duration = Duration::from_millis(100);
const RUNS: usize = 3;
/// When a machine is too busy for more than one run of each.
const PATIENCE: Duration = Duration::from_secs(6);

/// What is measured: a name, the task, and how its figure is written.
const WANTED: [(&str, Measure, usize, u32, Target); 3] = [
    ("8 B WRITE, half a round trip", Measure::Latency, 8, 1, Target::Poll),
    ("64 B WRITE, messages", Measure::Rate, 64, 128, Target::Sleep),
    ("1 MiB WRITE, bandwidth", Measure::Bandwidth, 1 << 20, 16, Target::Sleep),
];

pub(crate) fn show(stage: &mut Stage, near: &Place, far: &Place) -> anyhow::Result<()> {
    stage.section("Speeds on this machine now, best of three short runs")?;
    stage.row(&format!("{:30}{:>14}{:>14}{:>14}", "", "wire", "shared", "local"), None)?;
    let deadline = now() + PATIENCE;
    let wire = measure(near, far, Way::Wire, deadline)?;
    let both = perf::shared_place()?;
    let shared = measure(&both, &both, Way::Shared, deadline)?;
    let local = measure(near, near, Way::Local, deadline)?;
    for ((((name, ..), wire), shared), local) in WANTED.iter().zip(&wire).zip(&shared).zip(&local) {
        let ((wire, unit), (shared, _), (local, _)) = (value(wire), value(shared), value(local));
        let [first, second, third] = [wire, shared, local].map(|value| format!("{} {unit}", figure(value)));
        let text = format!("{name:30}{first:>14}{second:>14}{third:>14}");
        let facts = json!({ "name": name, "unit": unit, "wire": wire, "shared": shared, "local": local });
        stage.row(&text, Some(facts))?;
    }
    Ok(())
}

fn measure(near: &Place, far: &Place, way: Way, deadline: Time) -> anyhow::Result<Vec<Row>> {
    perf::between(near, far, |talk| {
        let mut best = Vec::new();
        for (_, measure, size, depth, target) in WANTED {
            let task = Task { verb: Verb::Write, measure, size, qps: 1, depth, target, verify: false, way };
            let mut runs = Vec::new();
            while runs.is_empty() || runs.len() < RUNS && now() < deadline {
                runs.push(session::measure(talk, near, &task, Limit::Time(TIME), &mut |_| {})?);
            }
            best.extend(runs.into_iter().max_by(|a, b| merit(a).total_cmp(&merit(b))));
        }
        Ok(best)
    })
}

/// What makes a run better than another one.
fn merit(row: &Row) -> f64 {
    match row.task.measure {
        Measure::Latency => -row.figures.quantile(0.5),
        Measure::Rate | Measure::Bandwidth => row.figures.per_second(),
    }
}

fn value(row: &Row) -> (f64, &'static str) {
    let rate = row.figures.per_second();
    match row.task.measure {
        Measure::Latency => (row.figures.quantile(0.5), "us"),
        Measure::Rate => (rate / 1e6, "M/s"),
        Measure::Bandwidth => (rate * row.task.size as f64 / 1e9, "GB/s"),
    }
}
