//! The JSON of `ferroce stat`.

use std::collections::BTreeMap;

use ferroce::{Completions, Level};
use ferroce_device::switchboard::{Group, ProcessStats, QueueStats, WorkStats};
use serde_json::{Map, Value, json};

use super::Look;
use super::prometheus::status_name;
use super::rates::{Between, Rates, Row, between};
use super::table::path_name;

/// One object, in a line.
pub(super) fn line(before: &Look, after: &Look) -> String {
    let all: Vec<Value> = after.all.iter().map(|process| of_process(before, process)).collect();
    format!("{}\n", json!({ "processes": all }))
}

fn of_process(before: &Look, process: &ProcessStats) -> Value {
    let Between { seconds, totals, rows } = between(before, process);
    let Group { interface, address } = &process.group;
    let report = &process.report;
    let mut sums = of_work(&report.totals);
    add_rates(&mut sums, totals);
    json!({
        "pid": process.pid,
        "program": process.program,
        "service": process.service,
        "interface": interface,
        "address": address.map(|address| address.to_string()),
        "engines": process.engines,
        "busy_engines": process.busy,
        "queue_pair_count": report.queue_pairs,
        "queue_pairs_made": report.queue_pairs_made,
        "refused": report.refused.iter().collect::<BTreeMap<_, _>>(),
        "seconds": seconds,
        "totals": sums,
        "queue_pairs": rows.iter().map(of_row).collect::<Vec<_>>(),
        "completion_queues": report.completion_queues.iter().map(of_queue).collect::<Vec<_>>(),
        "shared_receive_queues": report.shared_queues.iter().map(of_queue).collect::<Vec<_>>(),
    })
}

fn of_row(Row { now, rates }: &Row<'_>) -> Value {
    let mut row = of_work(&now.work);
    for (name, value) in [
        ("qpn", json!(now.qpn.get())),
        ("engine", json!(now.engine)),
        ("type", json!(now.service.name())),
        ("state", json!(now.state.name())),
        ("path", json!(now.path.map(path_name))),
        ("peer_qpn", json!(now.peer.map(|(qpn, _)| qpn.get()))),
        ("peer", json!(now.peer.map(|(_, address)| address.to_string()))),
        ("from", json!(now.from.map(|(address, _)| address.to_string()))),
        ("source_port", json!(now.from.map(|(_, port)| port))),
        ("send_completion_queue", json!(now.completion_queues.0)),
        ("receive_completion_queue", json!(now.completion_queues.1)),
        ("shared_receive_queue", json!(now.shared_queue)),
        ("send_queue", of_level(now.send_queue)),
        ("receive_queue", of_level(now.receive_queue)),
    ] {
        row.insert(name.to_owned(), value);
    }
    add_rates(&mut row, *rates);
    row.into()
}

/// What was counted since the beginning.
fn of_work(work: &WorkStats) -> Map<String, Value> {
    let mut all: Map<_, _> = work.counts().map(|(name, count)| (name.to_owned(), json!(count))).collect();
    let by_status = |of: fn(&Completions, ferroce::Status) -> u64| {
        let counts = ferroce::Status::ALL.into_iter().map(|status| (status, of(&work.completions, status)));
        counts.map(|(status, count)| (status_name(status), count)).collect::<BTreeMap<_, _>>()
    };
    all.insert("send_completions".to_owned(), json!(by_status(Completions::sends)));
    all.insert("receive_completions".to_owned(), json!(by_status(Completions::receives)));
    all
}

/// Rates, or null in the place of each.
fn add_rates(to: &mut Map<String, Value>, rates: Option<Rates>) {
    for (name, rate) in rates.unwrap_or_else(Rates::none).iter() {
        let rate = rates.map(|_| rate);
        to.insert(format!("{name}_per_s"), json!(rate));
    }
}

fn of_queue(queue: &QueueStats) -> Value {
    let QueueStats { id, level: Level { now, most, capacity, .. }, overrun } = *queue;
    json!({ "number": id, "now": now, "most": most, "capacity": capacity, "overrun": overrun })
}

fn of_level(level: Level) -> Value {
    json!({ "now": level.now, "most": level.most, "capacity": level.capacity })
}
