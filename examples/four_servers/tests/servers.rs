//! The whole program, as its users run it: what it printed, and how it ended.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Stdio};

use serde_json::Value;

struct Ended {
    success: bool,
    out: String,
    err: String,
}

fn four_servers(args: &[&str]) -> Ended {
    let program = env!("CARGO_BIN_EXE_ferroce-four-servers");
    let mut command = Command::new(program);
    let output = command.args(args).args(["--limit", "100"]).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { success: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
}

/// The numbers of all servers under a name.
fn numbers(report: &Value, name: &str) -> Vec<u64> {
    report["servers"].as_array().unwrap().iter().map(|server| server[name].as_u64().unwrap()).collect()
}

#[test]
fn a_killed_server_comes_back_and_every_message_arrives_once() {
    let args = ["--json", "--messages", "500", "--address", "127.0.125.1"];
    let ended = four_servers(&args);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["same_on_both_sides"], true);
    assert_eq!(report["killed"]["server"], 3);
    let millis = |name: &str| report["killed"][name].as_u64().unwrap();
    assert!(millis("noticed_ms") > 0 && millis("noticed_ms") < millis("returned_ms"), "{report}");
    for server in report["servers"].as_array().unwrap() {
        let number = |name: &str| server[name].as_u64().unwrap();
        // Two lanes, three peers, 500 requests each; five of eight are messages, and each is answered.
        assert!(number("done") >= 2 * 3 * 500, "{server}");
        for (name, share) in [("messages", 5), ("writes", 1), ("reads", 1), ("atomics", 2), ("long", 1)] {
            assert!(number(name) >= 2 * 3 * 500 / 8 * share, "{name}: {server}");
        }
        assert!(number("doorbells") > 0 && number("doorbells_saved") > number("requests") / 4, "{server}");
        assert_eq!(server["lanes"].as_array().unwrap().len(), 2);
    }
    // Only what was under way to the killed server is not known to have arrived.
    let lost = numbers(&report, "lost");
    assert!(lost.iter().all(|lost| *lost <= 2 * 32) && lost[3] == 0, "{lost:?}");
}

/// With more to gather than the ring has places, and on a bad network.
#[test]
fn a_batch_larger_than_the_ring_ends_well_under_faults() {
    let faults = "loss=0.005,dup=0.002,reorder=0.005,corrupt=0.001,seed=5";
    let ended = four_servers(&[
        "--no-kill",
        "--messages=400",
        "--address=127.0.125.11",
        "--batch=256",
        "--ring=16",
        "--patience=10000",
        &format!("--faults={faults}"),
    ]);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines.len(), 6, "{}", ended.out);
    assert!(lines[0].starts_with("server   messages") && lines[0].ends_with("saved"), "{}", lines[0]);
    assert!(lines[5].ends_with("and both sides counted the same"), "{}", lines[5]);
    assert!(!ended.out.contains("killed"), "{}", ended.out);
    // No bar where there is no terminal.
    assert_eq!(ended.err, "");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        (&["--messages", "1"][..], "1 is not in 8.."),
        (&["--batch", "0"], "0 is not in 1.."),
        (&["--faults", "loss=2"], "is not a rate"),
        (&["--address", "192.0.2.1"], "is no address of loopback"),
    ] {
        let ended = four_servers(args);
        assert!(!ended.success && ended.err.contains(expected), "{args:?}: {}", ended.err);
    }
    let program = env!("CARGO_BIN_EXE_ferroce-four-servers");
    let args = ["server", "--id", "9", "--members", "127.0.125.21:7471"];
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && err.contains("the first line of input is no secret"), "{err}");
}
