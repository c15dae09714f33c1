//! The board as JSON. Times are milliseconds of the Unix clock, since scripts know no integers of 64 bits.

use std::fmt::Write;
use std::net::IpAddr;

use ferroce_mesh::{Node, Outcomes, Tier, Topology};
use serde_json::{Map, Value, json};

use super::refusals;
use crate::board::{
    Board, BoardAffected, BoardFinding, BoardHost, BoardService, BoardSuspect, Cell, Counts, Depth, Kept,
    KeptFlow, KeptTrace, priority_name,
};
use crate::metrics::Met;
use crate::outlet::{KeptFiles, OutletState};
use crate::window::named;

/// Flows of a pair that are told at most, those with the most trouble first.
const FLOWS: usize = 500;

const fn millis(nanos: u64) -> u64 {
    nanos / 1_000_000
}

/// Which windows there are, sums since the start, and what was refused.
pub(super) fn state(board: &Board, met: &Met) -> Value {
    let row = |kept: &Kept| {
        let record = &kept.record;
        let (probes, lost) = record.matrix.sums();
        json!([record.number, millis(record.start), millis(record.end), probes, lost, record.open.len()])
    };
    let [windows, sums, traces] = board.bytes();
    let totals = board.totals();
    let kinds = |of: fn(u64, u64) -> u64| {
        let counts = totals.findings_by_kind();
        Map::from_iter(counts.map(|(kind, opened, over)| (kind.name().to_owned(), json!(of(opened, over)))))
    };
    let counters = Map::from_iter(met.counters.iter().map(|(name, count)| (name.to_owned(), json!(count))));
    let sum = totals.all();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "windows": board.windows().map(row).collect::<Vec<_>>(),
        "window_columns": ["number", "start_ms", "end_ms", "probes", "lost", "open"],
        "windows_most": board.config().windows,
        "whole_windows": board.config().whole,
        "bytes": { "windows": windows, "windows_most": board.config().bytes, "sums": sums, "traces": traces },
        "traces_left_out": board.traces_left_out(),
        "wiring": board.wiring(),
        "agents": board.newest().map_or(0, |kept| kept.record.agents),
        "totals": { "probes": probes(&sum), "outcomes": outcomes(&sum) },
        "findings": { "opened": kinds(|opened, _| opened), "over": kinds(|_, over| over) },
        "counters": counters,
        "refused": refusals::told(&met.counters),
        "trouble": met.trouble,
        "store_trouble": met.store_trouble,
        "leads": met.leads,
        "outlets": met.outlets.iter().map(outlet).collect::<Vec<_>>(),
    })
}

fn outlet(state: &OutletState) -> Value {
    let OutletState { name, to, waiting, sent, refused, dropped, failures, last_success, trouble, kept } =
        state;
    json!({
        "name": name, "to": to, "waiting": waiting, "sent": sent, "refused": refused, "dropped": dropped,
        "failures": failures, "trouble": trouble,
        "last_success_ms": (*last_success > 0).then_some(millis(*last_success)),
        "kept": kept.map(|KeptFiles { files, bytes, removed }| {
            json!({ "files": files, "bytes": bytes, "removed": removed })
        }),
    })
}

/// All probes: slow ones are a part of those that are ok.
fn probes(counts: &Counts) -> u64 {
    let slow = named(&Outcomes::default()).iter().position(|(name, _)| *name == "slow");
    let all = counts.iter().enumerate().filter(|(place, _)| Some(*place) != slow);
    all.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
}

fn outcomes(counts: &Counts) -> Value {
    let names = named(&Outcomes::default());
    let pairs = names.iter().zip(counts);
    Value::Object(pairs.map(|((name, _), count)| ((*name).to_owned(), json!(count))).collect())
}

fn outcomes_of(one: &Outcomes) -> Value {
    Value::Object(named(one).iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect())
}

/// The names of the ToRs of a window, in the order of rows.
pub(super) fn names(board: &Board, kept: &Kept) -> Vec<String> {
    kept.record.matrix.tors().iter().map(|tor| board.tor_name(*tor).to_owned()).collect()
}

/// A window: its matrix, hosts and findings.
pub(super) fn window(kept: &Kept, names: &[String]) -> String {
    let record = &kept.record;
    let (hosts, left_out) = kept.detail.hosts();
    let head = json!({
        "number": record.number,
        "start_ms": millis(record.start),
        "end_ms": millis(record.end),
        "agents": record.agents,
        "complete": record.is_complete,
        "unknown_flows": record.unknown,
        "tors": names,
        "hosts": hosts.iter().map(host).collect::<Vec<_>>(),
        "hosts_left_out": left_out,
        "findings": record.open.iter().map(finding).collect::<Vec<_>>(),
        "services": record.services.iter().map(service).collect::<Vec<_>>(),
        "services_left_out": record.services_left_out,
        "detail": depth(kept.detail.depth()),
    });
    let mut text = head.to_string();
    // A matrix is large: its numbers are written one by one.
    text.pop();
    list(&mut text, "probes", record.matrix.probes().iter().copied().map(u64::from));
    let [half, most] = record.matrix.times();
    list(&mut text, "p50_ns", half.map(Option::unwrap_or_default));
    list(&mut text, "p99_ns", most.map(Option::unwrap_or_default));
    let lost = record.matrix.lost().iter();
    list(&mut text, "lost", lost.flat_map(|(place, lost)| [*place, *lost]).map(u64::from));
    text.push('}');
    text
}

fn list(text: &mut String, name: &str, numbers: impl Iterator<Item = u64>) {
    let _ = write!(text, ",\"{name}\":[");
    for (place, number) in numbers.enumerate() {
        // Writing to a string cannot fail.
        let _ = if place == 0 { write!(text, "{number}") } else { write!(text, ",{number}") };
    }
    text.push(']');
}

const fn depth(depth: Depth) -> &'static str {
    match depth {
        Depth::All => "all",
        Depth::Trouble => "trouble",
    }
}

fn host(host: &BoardHost) -> Value {
    let BoardHost { host, stalls, longest, receive_drops, lapsed, changed_qpn, sent, ok, lost } = host;
    json!({
        "host": host, "stalls": stalls, "longest_ns": longest, "receive_drops": receive_drops,
        "lapsed": lapsed, "changed_qpn": changed_qpn, "sent": sent, "ok": ok, "lost": lost,
    })
}

/// The flows from one ToR to another, with their paths.
pub(super) fn pair(board: &Board, kept: &Kept, (row, column): (usize, usize), ends: (&str, &str)) -> Value {
    let Cell { probes: all, lost, p50, p99 } = kept.record.matrix.cell(row, column);
    let all_flows = kept.flows(row, column);
    let flows = &all_flows[..all_flows.len().min(FLOWS)];
    let told: u64 = flows.iter().map(|flow| probes(&named(&flow.outcomes).map(|(_, count)| count))).sum();
    let tors = kept.record.matrix.tors();
    let since = board.totals().pair(tors[row], tors[column]);
    json!({
        "window": kept.record.number,
        "start_ms": millis(kept.record.start),
        "end_ms": millis(kept.record.end),
        "from": ends.0,
        "to": ends.1,
        "probes": all,
        "lost": lost,
        "p50_ns": p50,
        "p99_ns": p99,
        "detail": depth(kept.detail.depth()),
        "flows": flows.iter().map(|flow| self::flow(board, flow)).collect::<Vec<_>>(),
        "flows_kept": all_flows.len(),
        "probes_of_other_flows": u64::from(all).saturating_sub(told),
        "since_start": outcomes(&since),
    })
}

fn flow(board: &Board, flow: &KeptFlow) -> Value {
    let KeptFlow { from, to, port, reply_port, outcomes, trips, .. } = flow;
    let way = |from: IpAddr, to: IpAddr, port: u16| {
        board.traced(from, to, port).map(|trace| path(board.topology(), trace))
    };
    json!({
        "from": from.to_string(),
        "to": to.to_string(),
        "port": port,
        "reply_port": reply_port,
        "outcomes": outcomes_of(outcomes),
        "lost": outcomes.lossy(),
        "trips": {
            "count": trips.count(),
            "p50_ns": trips.percentile(0.5),
            "p99_ns": trips.percentile(0.99),
            "buckets": trips.iter().map(|(nanos, count)| json!([nanos, count])).collect::<Vec<_>>(),
        },
        "there": way(*from, *to, *port),
        "back": way(*to, *from, *reply_port),
    })
}

fn path(topology: &Topology, trace: &KeptTrace) -> Value {
    let hop = |router: &Option<IpAddr>| {
        let node = router.and_then(|address| topology.owner(address));
        let tier = match node {
            Some(Node::Switch(id)) => Some(tier(topology.switch(id).tier)),
            _ => None,
        };
        let name = node.map(|node| topology.name(node));
        json!({ "address": router.map(|address| address.to_string()), "name": name, "tier": tier })
    };
    let hops: Vec<Value> = trace.path.routers.iter().map(hop).collect();
    json!({ "hops": hops, "reaches": trace.path.reaches, "traced_ms": millis(trace.at) })
}

const fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Tor => "tor",
        Tier::Aggregation => "aggregation",
        Tier::Core => "core",
    }
}

/// Switches with what is above them, and RNICs by ToR and host.
pub(super) fn topology(topology: &Topology) -> Value {
    let switch = |switch: &ferroce_mesh::Switch| {
        let above: Vec<u32> = switch.above.iter().map(|id| id.0).collect();
        json!({ "name": switch.name, "tier": tier(switch.tier), "above": above })
    };
    let rnic = |rnic: &ferroce_mesh::Rnic| json!([rnic.name, rnic.host.0, rnic.tor.0]);
    let hosts: Vec<&str> = topology.hosts().iter().map(|host| host.name.as_str()).collect();
    json!({
        "switches": topology.switches().iter().map(switch).collect::<Vec<_>>(),
        "hosts": hosts,
        "rnics": topology.rnics().iter().map(rnic).collect::<Vec<_>>(),
        "rnic_columns": ["name", "host", "switch"],
    })
}

/// What is bad, and what was.
pub(super) fn findings(board: &Board) -> Value {
    let open = board.newest().map(|kept| kept.record.open.iter().map(finding).collect::<Vec<_>>());
    let over: Vec<Value> = board.over().rev().map(finding).collect();
    let number = board.newest().map(|kept| kept.record.number);
    json!({ "window": number, "open": open.unwrap_or_default(), "over": over })
}

fn finding(finding: &BoardFinding) -> Value {
    let suspect =
        |one: &BoardSuspect| json!({ "kind": one.kind.name(), "name": one.name, "parts": one.parts });
    let top = |flow: &crate::board::TopFlow| {
        json!({
            "from": flow.from.to_string(), "to": flow.to.to_string(), "from_tor": flow.from_tor,
            "to_tor": flow.to_tor, "port": flow.port, "reply_port": flow.reply_port, "packets": flow.packets,
        })
    };
    let runner_up = finding.runner_up.as_ref();
    json!({
        "id": finding.id,
        "kind": finding.kind().name(),
        "trouble": format!("{:?}", finding.trouble).to_lowercase(),
        "severity": format!("{:?}", finding.severity).to_lowercase(),
        "suspects": finding.suspects.iter().map(suspect).collect::<Vec<_>>(),
        "since_ms": millis(finding.since),
        "over_ms": (finding.over > 0).then_some(millis(finding.over)),
        "evidence": {
            "crossings": finding.crossings,
            "losses": finding.losses,
            "expected": finding.expected,
            "gain": finding.gain,
            "rate": finding.rate,
            "share": finding.share,
            "runner_up": runner_up.map(|(one, less)| json!({ "suspect": suspect(one), "less": less })),
            "top": finding.top.iter().map(top).collect::<Vec<_>>(),
        },
        "priority": finding.impact.as_ref().map(|impact| priority_name(impact.priority)),
        "services": finding.impact.iter().flat_map(|impact| &impact.services).map(affected).collect::<Vec<_>>(),
        "services_left_out": finding.impact.as_ref().map_or(0, |impact| impact.left_out),
    })
}

/// A service that crosses what is bad.
fn affected(one: &BoardAffected) -> Value {
    let example = |(from, to, port): &(IpAddr, IpAddr, u16)| json!({ "from": from.to_string(), "to": to.to_string(), "port": port });
    json!({
        "name": one.service,
        "priority": priority_name(one.priority),
        "flows": one.flows,
        "examples": one.examples.iter().map(example).collect::<Vec<_>>(),
    })
}

fn service(one: &BoardService) -> Value {
    json!({
        "name": one.service,
        "hosts": one.hosts,
        "some_hosts": one.some_hosts,
        "flows": one.flows,
        "crossing": one.crossing,
        "sent": one.sent,
        "again": one.again,
        "priority": one.priority.map(priority_name),
        "findings": one.findings,
    })
}
