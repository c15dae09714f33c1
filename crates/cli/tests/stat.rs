//! `ferroce stat`, beside processes that are at work.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Child, Command, Output, Stdio};

use ferroce_device::{Config, Nic};
use serde_json::Value;

/// A process that measures until it is dropped.
struct Busy(Child);

impl Busy {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
        command.arg("perf").args(words).args(["--duration", "600"]);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce")).arg("stat").args(words).output().unwrap()
}

fn said(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Looks until a queue pair of the process completes something; all its queue pairs.
fn at_work(pid: &str) -> Vec<Value> {
    for _ in 0..100 {
        let output = run(&["--json", "--once", "--interval", "0.2", pid]);
        // It may not have opened its devices yet.
        if !output.status.success() {
            continue;
        }
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let processes = told["processes"].as_array().unwrap();
        assert!(processes.iter().all(|process| process["pid"].as_u64() == pid.parse().ok()), "{told}");
        let all = processes.iter().flat_map(|process| process["queue_pairs"].as_array().unwrap().clone());
        let all: Vec<Value> = all.collect();
        let is_known = |pair: &Value| pair["done_per_s"].is_f64();
        if all.iter().all(is_known) && all.iter().any(|pair| pair["done_per_s"].as_f64().unwrap() > 0.0) {
            return all;
        }
    }
    panic!("nothing was ever done");
}

#[test]
fn a_measurement_over_the_wire_is_seen_from_outside() {
    let busy = Busy::start(&["write", "--bw", "--size", "4096", "--path", "wire"]);
    let all = at_work(&busy.pid());
    let active = all.iter().find(|pair| pair["posted_per_s"].as_f64().unwrap() > 0.0).unwrap();
    let words = ["type", "state", "path"].map(|key| active[key].as_str().unwrap());
    assert_eq!(words, ["RC", "RTS", "wire"]);
    assert!(active["packets_sent_per_s"].as_f64().unwrap() > 0.0, "{active}");
    assert!(active["peer"].as_str().unwrap().starts_with("127."), "{active}");
    // Its peer is in the same process, and knows it.
    let is_peer = |pair: &&Value| pair["qpn"] == active["peer_qpn"];
    assert_eq!(all.iter().find(is_peer).unwrap()["peer_qpn"], active["qpn"]);

    let text = said(&["--once", "--interval", "0.2", &busy.pid()]);
    assert!(text.contains(&format!("process {} (ferroce) on ", busy.pid())), "{text}");
    assert!(text.lines().any(|line| line.starts_with("0x") && line.contains(" RC RTS   wire ")), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80 && !line.contains('\u{1b}')), "{text}");
}

#[test]
fn the_local_path_is_seen_too() {
    let busy = Busy::start(&["write", "--bw", "--size", "64", "--path", "local"]);
    let all = at_work(&busy.pid());
    let active = all.iter().find(|pair| pair["direct_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(active.unwrap_or_else(|| panic!("{all:?}"))["path"], "local");
}

#[test]
fn a_process_without_queue_pairs_is_shown() {
    let nic = Nic::open(Config { address: Some([127, 0, 65, 7].into()), ..Config::new("lo") }).unwrap();
    let pid = std::process::id().to_string();
    let text = said(&["--once", "--interval", "0.1", &pid]);
    assert!(text.contains("on 127.0.65.7 on lo: 0 queue pairs"), "{text}");
    drop(nic);
}

#[test]
fn who_cannot_be_asked_is_an_error() {
    for (words, told) in [
        (&["--once", "0"][..], "there is no process 0"),
        (&["--interval", "0"], "between 0.1 and 3600 seconds are possible"),
        (&["--interval", "soon"], "a number of seconds"),
    ] {
        let output = run(words);
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(told), "{text}");
    }
    let quiet = Command::new("cat").stdin(Stdio::piped()).spawn().map(Busy).unwrap();
    let output = run(&["--once", &quiet.pid()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, format!("ferroce: process {} has no device open\n", quiet.pid()));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_process_of_another_user_is_none_of_ours() {
    use std::os::unix::fs::MetadataExt;
    let ours = std::fs::metadata("/proc/self").unwrap().uid();
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        entry.metadata().is_ok_and(|process| process.uid() != ours).then_some(pid)
    });
    // Root can start one; any other user finds some, such as the first process.
    let mut helper = None;
    if ours == 0 {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups", "sleep", "600"]);
        helper = command.spawn().ok().map(Busy);
    }
    let pid = helper.as_ref().map(Busy::pid).or_else(|| processes.next().map(|pid| pid.to_string()));
    let Some(pid) = pid else { return };
    let mut text = String::new();
    for _ in 0..1000 {
        text = String::from_utf8(run(&["--once", &pid]).stderr).unwrap();
        if text.contains("belongs to another user") {
            return;
        }
    }
    panic!("{text}");
}
