//! Both roles as processes, as their users run them: what they printed, and how they ended.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ferroce-prober");

/// A responder in a process of its own. Dropping it ends it.
struct Responder {
    process: Child,
    output: BufReader<ChildStdout>,
    target: String,
}

impl Responder {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        let mut process = command.arg("respond").args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let target = line.trim().strip_prefix("responder at ").unwrap().to_owned();
        Self { process, output, target }
    }

    /// Asks it to end, and returns what it said.
    fn stop(mut self) -> String {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.process.wait().unwrap().success(), "{text}");
        text
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

fn probe(args: &[&str]) -> Ended {
    let output = Command::new(PROGRAM).arg("probe").args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {value}"))
}

#[test]
fn all_probes_are_answered_and_their_times_make_sense() {
    let responder = Responder::start(&["--address", "127.0.126.1"]);
    let args = ["--address", "127.0.126.2", "--target", &responder.target];
    let more =
        ["--count=50", "--interval=2", "--timeout=20000", "--traffic-class=104", "--hop-limit=9", "--json"];
    let ended = probe(&[&args[..], &more].concat());
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.out, ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let target = &report["targets"][0];
    assert_eq!(target["target"], responder.target.as_str());
    let count = |name| number(target, name);
    assert_eq!((count("sent"), count("lost"), count("late")), (50, 0, 0), "{target}");
    assert_eq!(count("answered") + count("invalid"), 50, "{target}");
    for row in ["network_rtt_ns", "prober_delay_ns", "responder_delay_ns"] {
        let columns = ["least", "p50", "p90", "p99", "most"].map(|column| number(&target[row], column));
        assert!(columns.is_sorted(), "{row}: {target}");
    }
    assert!(number(&target["network_rtt_ns"], "most") > 0, "{target}");
    // What the header before an answer says: the responder answers with the class that it was asked in.
    assert_eq!(target["answers"]["source"], "127.0.126.1");
    assert_eq!(
        (number(&target["answers"], "traffic_class"), number(&target["answers"], "hop_limit")),
        (104, 64)
    );
    assert!(report["times"].as_str().unwrap().contains("when a turn of its engine begins"));
    let said = responder.stop();
    assert_eq!(said, "50 probes, 50 answered twice, 0 strange datagrams, 0 failed sends\n");
}

#[test]
fn a_responder_that_is_not_there_is_all_loss() {
    let args = ["--address=127.0.126.11", "--target=127.0.126.12/0x000123", "--count=20", "--interval=1"];
    let ended = probe(&[&args[..], &["--timeout=100"]].concat());
    assert_eq!(ended.code, Some(1), "{}\n{}", ended.out, ended.err);
    assert!(ended.out.starts_with("127.0.126.12/0x000123\n"), "{}", ended.out);
    assert!(ended.out.contains("20 sent, 0 answered, 20 lost, 0 invalid, 0 late answers"), "{}", ended.out);
    assert!(!ended.out.contains("p99"), "{}", ended.out);
}

/// One target answers, the other has no such queue pair: each has its own count.
#[test]
fn targets_are_counted_apart() {
    let responder = Responder::start(&["--address", "127.0.126.21"]);
    let args = ["--address=127.0.126.22", "--count=10", "--interval=1", "--timeout=3000"];
    let ended = probe(&[&args[..], &["--target", &responder.target, "--target=127.0.126.21/77"]].concat());
    assert_eq!(ended.code, Some(1), "{}\n{}", ended.out, ended.err);
    let (there, gone) = ended.out.split_once("127.0.126.21/0x00004d\n").unwrap();
    assert!(there.contains("10 sent, ") && there.contains(" 0 lost") && there.contains("p99"), "{there}");
    assert!(gone.contains("10 sent, 0 answered, 10 lost, 0 invalid"), "{gone}");
}

#[test]
fn injected_loss_is_counted_as_loss() {
    let responder = Responder::start(&["--address=127.0.126.31", "--faults=loss=0.1,seed=3"]);
    let args = ["--address=127.0.126.32", "--target", &responder.target, "--faults=loss=0.1,dup=0.1,seed=4"];
    let ended = probe(&[&args[..], &["--count=200", "--interval=1", "--timeout=2000", "--json"]].concat());
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.out, ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let count = |name| number(&report["targets"][0], name);
    assert_eq!(count("sent"), 200);
    assert_eq!(count("answered") + count("invalid") + count("lost"), 200, "{report}");
    // A probe and two answers, and each is lost in one of ten: about 54 of 200.
    assert!((20..=100).contains(&count("lost")), "{report}");
    // A probe that came twice was answered four times.
    assert!(count("late") > 0, "{report}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        (&["--target=127.0.126.1/0x12"][..], "--address"),
        (&["--address=127.0.126.41"], "--target"),
        (&["--address=127.0.126.41", "--target=127.0.126.1"], "is not ADDRESS/QUEUE PAIR"),
        (&["--address=127.0.126.41", "--target=127.0.126.1/0xffffff"], "is not ADDRESS/QUEUE PAIR"),
        (&["--address=127.0.126.41", "--target=192.0.2.1/0x12"], "192.0.2.1"),
        (&["--address=127.0.126.41", "--target=127.0.126.1/0x12", "--faults=loss=2"], "is not a rate"),
    ] {
        let ended = probe(args);
        assert!(
            ended.code == Some(2) && ended.err.contains(expected),
            "{args:?}: {:?} {}",
            ended.code,
            ended.err
        );
    }
}
