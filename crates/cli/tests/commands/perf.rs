//! `ferroce perf` as both ends itself.

use serde_json::Value;

use crate::run::{Running, command, ferroce, finish};

const VERBS: [&str; 4] = ["write", "read", "send", "atomic"];
const MEASURES: [&str; 3] = ["--bw", "--lat", "--rate"];

/// The rows of a run that ends well.
fn rows(args: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = ["perf"].iter().chain(args).chain(&["--json"]).copied().collect();
    let json = ferroce(&args).success().json();
    assert_eq!(json["interrupted"], false);
    json["rows"].as_array().unwrap().clone()
}

#[test]
fn every_verb_is_measured_on_all_paths_with_right_contents() {
    for verb in VERBS {
        for measure in MEASURES {
            for path in ["wire", "shared", "local"] {
                let rows = rows(&[verb, measure, "--path", path, "-n", "300", "--verify"]);
                let spins = measure == "--lat" && verb != "send";
                assert_eq!(rows.len(), if spins { 2 } else { 1 }, "{verb} {measure}");
                for row in rows {
                    assert_eq!((&row["verb"], &row["path"]), (&verb.into(), &path.into()));
                    assert_eq!(row["measure"], measure.trim_start_matches('-'));
                    assert_eq!((&row["messages"], &row["verified"]), (&300.into(), &true.into()));
                    assert!(row["messages_per_second"].as_f64().unwrap() > 0.0, "{row}");
                    judge_latency(&row, measure == "--lat");
                }
            }
        }
    }
}

fn judge_latency(row: &Value, wanted: bool) {
    let latency = &row["latency_ns"];
    assert_eq!(latency.is_object(), wanted, "{row}");
    if wanted {
        let of = |name: &str| latency[name].as_u64().unwrap();
        let order = ["min", "p50", "p90", "p99", "p99_9", "max"].map(of);
        assert!(order[0] > 0 && order.is_sorted(), "{latency}");
    }
}

#[test]
fn many_queue_pairs_and_large_messages_keep_their_contents() {
    let row = &rows(&["write", "--size", "3M", "-n", "40", "--qps", "3", "--verify"])[0];
    assert_eq!((&row["qps"], &row["messages"]), (&3.into(), &40.into()));
    let row = &rows(&["send", "--rate", "--size", "1", "-n", "5000", "--qps", "7", "--verify"])[0];
    assert_eq!((&row["qps"], &row["messages"]), (&7.into(), &5000.into()));
}

#[test]
fn targets_may_sleep_poll_or_spin() {
    for (verb, measure, targets) in [
        ("write", "--lat", "poll,spin,sleep"),
        ("send", "--lat", "sleep"),
        ("read", "--bw", "poll,spin,sleep"),
    ] {
        let rows = rows(&[verb, measure, "--target", targets, "-n", "50", "--size", "100"]);
        let seen: Vec<&str> = rows.iter().map(|row| row["target"].as_str().unwrap()).collect();
        assert_eq!(seen.join(","), targets);
    }
}

#[test]
fn time_is_a_limit_too() {
    let row = &rows(&["write", "--rate", "--duration", "0.05"])[0];
    let (seconds, messages) = (row["seconds"].as_f64().unwrap(), row["messages"].as_u64().unwrap());
    assert!(seconds >= 0.05 && messages > 0, "{row}");
}

#[test]
fn all_sizes_are_a_table() {
    let text = ferroce(&["perf", "write", "--all-sizes", "-n", "2"]).success().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "WRITE bandwidth: 1 queue pair, 16 under way");
    assert!(lines[1].starts_with("path wire: "), "{text}");
    assert_eq!(lines[3..27].iter().filter(|line| line.ends_with(" 2")).count(), 24, "{text}");
    assert!(lines[3].starts_with("     1 B ") && lines[26].starts_with("   8 MiB "), "{text}");
    assert!(!text.contains('\x1b') && lines.iter().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn under_loss_contents_are_right_and_it_is_told() {
    let args = ["perf", "write", "--size", "256K", "-n", "40", "--verify", "--json"];
    let faulty = |loss: &str| {
        let faults = format!("loss={loss},dup={loss},seed=3");
        finish(command(&args).env("FERROCE_FAULTS", faults).spawn().unwrap())
    };
    let row = &faulty("0.02").success().json()["rows"][0];
    assert!(row["retransmitted"].as_u64().unwrap() > 0, "{row}");
    let error = faulty("2");
    assert!(error.failure().contains("not a rate"), "{}", error.stderr);
}

#[test]
fn ctrl_c_keeps_what_was_found() {
    let mut running = Running::start(command(&["perf", "write", "--all-sizes", "--duration", "0.5"]));
    let heading: Vec<String> = (0..4).map(|_| running.line()).collect();
    assert!(heading[3].starts_with("     1 B "), "{heading:?}");
    let pid = running.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let out = running.finish();
    assert!(out.failure().contains("interrupted; the figures are of what was done"), "{}", out.stderr);
    assert!(out.stdout.lines().count() < 24, "it went on: {}", out.stdout);
}
