//! The whole program, as its users run it: what it printed, and how it ended.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Stdio};

use serde_json::Value;

struct Ended {
    success: bool,
    out: String,
    err: String,
}

fn snow(args: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce-snow"));
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { success: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
}

/// As many as in a few seconds, or a million.
fn messages() -> u64 {
    if std::env::var_os("FERROCE_SOAK").is_some() { 1_000_000 } else { 3000 }
}

#[test]
fn a_server_of_callbacks_goes_on_when_a_client_is_killed() {
    let messages = messages();
    let ended = snow(&[
        "--json",
        "--messages",
        &messages.to_string(),
        "--address",
        "127.0.121.11",
        "--limit",
        if messages > 3000 { "7200" } else { "100" },
    ]);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    // No bar where there is no terminal.
    assert_eq!(ended.err, "");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["same_on_both_sides"], true);
    let number = |of: &Value, name: &str| of["counts"][name].as_u64().unwrap();
    assert_eq!(number(&report, "messages"), messages);
    // The mean of all lengths is 75 kB.
    assert!(number(&report, "bytes") > messages * 50_000, "{report}");
    // One of eight is answered, one of sixteen written to, and as many read from.
    for (name, least) in [("answers", messages / 12), ("writes", messages / 24), ("reads", messages / 24)] {
        assert!(number(&report, name) > least, "{name}: {report}");
    }
    let clients = report["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 3);
    assert_eq!(clients.iter().map(|client| number(client, "messages")).sum::<u64>(), messages);
    // The one that was killed was in the middle of its work, and the server heard why it is gone.
    let killed = &report["killed"];
    assert!(number(killed, "messages") >= 256 && number(killed, "answers") > 0, "{killed}");
    assert!(killed["why"].as_str().unwrap().contains("does not answer any more"), "{killed}");
    eprintln!("{report}");
}

#[test]
fn a_table_for_people_with_other_options() {
    let options = ["--polling=event", "--signal-every=1", "--seed=9", "--clients=2", "--rate-limit=4000000"];
    let mut args = vec!["--messages=600", "--address=127.0.121.21", "--limit=100"];
    args.extend(options);
    let ended = snow(&args);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines.len(), 7, "{}", ended.out);
    assert!(lines[1].starts_with("0 (killed) "), "{}", lines[1]);
    let finished: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(finished[..2], ["finished", "600"], "{}", ended.out);
    assert!(lines[5].contains("the server heard of it after"), "{}", lines[5]);
    assert!(lines[6].ends_with("and both sides counted the same"), "{}", lines[6]);
}

/// A server whose book is drawn from another seed expects other bytes, and says so.
#[test]
fn a_client_with_other_bytes_is_found_out() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce-snow"));
    command.args(["server", "--address=127.0.121.31:7471", "--seed=1"]);
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "listening 127.0.121.31:7471");
    let client = |seed: &str| {
        snow(&["client", "--to=127.0.121.31:7471", "--address=127.0.121.32", "--messages=20", seed])
    };
    let stranger = client("--seed=2");
    assert!(!stranger.success && stranger.err.starts_with("ferroce-snow: "), "{}", stranger.err);
    let told = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("error")).unwrap();
    assert!(told.contains("another seed"), "{told}");
    // The next one is served.
    let friend = client("--seed=1");
    assert!(friend.success && friend.out.starts_with("done {"), "{}\n{}", friend.out, friend.err);
    // The end of its input is the end of the server.
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        (&["--messages", "1"][..], "1 is not in 10.."),
        (&["--clients", "1"], "1 is not in 2.."),
        (&["--rate-limit", "0"], "0 is not in 1.."),
        (&["--address", "192.0.2.1"], "is no address of loopback"),
    ] {
        let ended = snow(args);
        assert!(!ended.success && ended.err.contains(expected), "{args:?}: {}", ended.err);
    }
}
