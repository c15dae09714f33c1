//! The whole store, as its users run it: nodes in processes, clients, and a history that is judged.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Stdio};

struct Ended {
    success: bool,
    out: String,
    err: String,
}

fn kv(args: &[&str]) -> Ended {
    kv_with(&[], args)
}

fn kv_with(variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let program = env!("CARGO_BIN_EXE_ferroce-kv");
    let mut command = Command::new(program);
    let output = command.args(args).envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { success: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
}

/// How many operations the line that begins so has counted.
fn count(out: &str, line: &str) -> u64 {
    let line =
        out.lines().find(|text| text.starts_with(line)).unwrap_or_else(|| panic!("no {line:?} in {out}"));
    let numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
    numbers.take(1).next().unwrap()
}

/// Five seconds, or a minute in the long form.
#[test]
fn under_faults_the_history_is_linearizable() {
    let seconds = if std::env::var_os("FERROCE_SOAK").is_some() { "60" } else { "5" };
    let faults = "loss=0.005,dup=0.002,reorder=0.005,corrupt=0.001,seed=11";
    let ended =
        kv(&["load", "--address", "127.0.154.1", "--seconds", seconds, "--faults", faults, "--keys", "24"]);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    println!("{}", ended.out);
    assert!(ended.out.contains("is linearizable"), "{}", ended.out);
    assert!(ended.out.contains("primaries and replicas of all 24 keys are the same"), "{}", ended.out);
    assert!(count(&ended.out, "get ") > 100 && count(&ended.out, "put ") > 50, "{}", ended.out);
    // The nodes counted every call of their application; the load has compared it with the number of puts.
    assert!(count(&ended.out, "get asleep") > 100, "{}", ended.out);
    assert!(ended.out.contains("never for a get"), "{}", ended.out);
}

/// Any other path is refused.
#[test]
fn through_shared_memory_the_history_is_linearizable() {
    let seconds = if std::env::var_os("FERROCE_SOAK").is_some() { "60" } else { "3" };
    let args = ["load", "--near", "--address", "127.0.154.201", "--seconds", seconds, "--keys", "24"];
    let ended = kv_with(&[("FERROCE_PATH", "shared")], &args);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    assert!(ended.out.contains("is linearizable"), "{}", ended.out);
    assert!(count(&ended.out, "get ") > 100 && count(&ended.out, "put ") > 50, "{}", ended.out);
    assert!(count(&ended.out, "get asleep") > 100, "{}", ended.out);
}

#[test]
fn a_planted_stale_read_is_found() {
    let args =
        ["--address", "127.0.154.41", "--seconds", "2", "--asleep", "0", "--keys", "6", "--gets", "50"];
    let args: Vec<&str> = ["load", "--plant", "stale-read"].into_iter().chain(args).collect();
    let ended = kv(&args);
    assert!(!ended.success, "{}", ended.out);
    assert!(ended.err.contains("is not linearizable: key "), "{}\n{}", ended.out, ended.err);
    assert!(ended.err.contains("must have been there at the same time"), "{}", ended.err);
}

/// Half-written buckets are never believed: gets read them again.
#[test]
fn torn_reads_are_noticed_and_repeated() {
    let args =
        ["--address", "127.0.154.161", "--seconds", "2", "--asleep", "0", "--keys", "3", "--gets", "60"];
    let args: Vec<&str> = ["load", "--plant", "torn-write"].into_iter().chain(args).collect();
    let ended = kv(&args);
    assert!(ended.success, "{}\n{}", ended.out, ended.err);
    let torn = ended.out.split("never for a get; ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(torn.parse::<u64>().unwrap() > 0, "{}", ended.out);
    assert!(ended.out.contains("is linearizable"), "{}", ended.out);
}

#[test]
fn a_full_bucket_is_an_error_that_says_what_to_do() {
    let ended = kv(&[
        "load",
        "--address",
        "127.0.154.81",
        "--buckets",
        "1",
        "--keys",
        "1000",
        "--seconds",
        "20",
        "--gets",
        "0",
    ]);
    assert!(!ended.success);
    assert!(ended.err.contains("is full: it has 4 keys; use more buckets"), "{}", ended.err);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        (&["load", "--nodes", "1"][..], "1 is not in 2..=16"),
        (&["load", "--buckets", "0"], "no number from 1 to"),
        (&["load", "--faults", "loss=2"], "is not a rate"),
        (&["load", "--address", "192.0.2.1"], "is no address of loopback"),
        (
            &[
                "node",
                "--id",
                "2",
                "--nodes",
                "2",
                "--members",
                "127.0.154.121:1,127.0.154.122:1,127.0.154.123:1",
            ],
            "nodes come first",
        ),
        (
            &["node", "--id", "9", "--nodes", "16", "--members", "127.0.154.121:1"],
            "member 9 is not on the list",
        ),
    ] {
        let ended = kv(args);
        assert!(!ended.success && ended.err.contains(expected), "{args:?}: {}", ended.err);
    }
}
