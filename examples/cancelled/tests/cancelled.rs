//! The whole program, as its users run it: what it printed, and how it ended.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Stdio};

use serde_json::Value;

struct Ended {
    success: bool,
    out: String,
    err: String,
}

fn cancelled(args: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce-cancelled"));
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { success: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs 200 connections from a seed, and looks at what came out.
fn run(seed: &str, address: &str) {
    let (rounds, limit) = match std::env::var_os("FERROCE_SOAK") {
        None => ("10", "100"),
        Some(_) => ("500", "3600"),
    };
    let ended =
        cancelled(&["--json", "--seed", seed, "--address", address, "--rounds", rounds, "--limit", limit]);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    // No bar where there is no terminal.
    assert_eq!(ended.err, "");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let number = |kind: &str, how: &str| report["kinds"][kind][how].as_u64().unwrap();
    for kind in ["sends", "receives", "connects", "atomics"] {
        for how in ["finished", "before", "in_flight"] {
            assert!(number(kind, how) > 0, "{kind} {how}: {report}");
        }
    }
    let rounds: u64 = rounds.parse().unwrap();
    for (kind, each) in [("sends", 3), ("atomics", 2)] {
        let all: u64 = ["finished", "before", "in_flight"].map(|how| number(kind, how)).iter().sum();
        assert_eq!(all, 200 * rounds * each, "{kind}: {report}");
    }
    let (sum, least) = (report["sum_of_atomics"].as_u64().unwrap(), number("atomics", "finished"));
    assert!((least..=least + number("atomics", "in_flight")).contains(&sum), "{report}");
    assert!(report["cancelled_and_arrived"].as_u64().unwrap() <= number("sends", "in_flight"), "{report}");
    assert_eq!(report["connections_that_work"], 200);
    eprintln!("{report}");
}

#[test]
fn nothing_is_lost_when_futures_are_cancelled_in_flight() {
    run("1", "127.0.104.11");
}

#[test]
fn nothing_is_lost_with_a_second_seed() {
    run("2", "127.0.104.21");
}

#[test]
fn nothing_is_lost_with_a_third_seed() {
    run("77777777777", "127.0.104.31");
}

#[test]
fn a_table_for_people() {
    let ended = cancelled(&["--connections=20", "--rounds=5", "--address=127.0.104.41", "--limit=100"]);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines.len(), 9, "{}", ended.out);
    let names: Vec<&str> = lines[1..5].iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["sends", "receives", "connects", "atomics"]);
    assert!(lines[5].ends_with("not at all"), "{}", lines[5]);
    assert!(lines[8].ends_with("and all 20 connections still work"), "{}", lines[8]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        (&["--connections", "0"][..], "0 is not in 1.."),
        (&["--rounds", "0"], "0 is not in 1.."),
        (&["--address", "192.0.2.1"], "is no address of loopback"),
    ] {
        let ended = cancelled(args);
        assert!(!ended.success && ended.err.contains(expected), "{args:?}: {}", ended.err);
    }
}
