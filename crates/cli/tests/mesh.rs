//! `ferroce mesh`, as people use it: each part is a process of its own.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferroce_device::cm::Notice;
use ferroce_device::{now, park};
use serde_json::Value;

/// No step takes longer.
const LIMIT: Duration = Duration::from_secs(60);

struct Part {
    child: Child,
    out: BufReader<ChildStdout>,
    is_over: Arc<Notice<bool>>,
}

impl Part {
    fn start(args: &[&str]) -> Self {
        let mut child = command(args).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let is_over = Arc::new(Notice::new(false));
        let (pid, watched) = (child.id(), Arc::clone(&is_over));
        // A part that hangs ends, and so do its lines: then the test says which one it was waiting for.
        thread::spawn(move || {
            if watched.wait(Some(LIMIT), |is_over| is_over.then_some(())).is_none() {
                signal("-KILL", pid);
            }
        });
        Self { child, out, is_over }
    }

    /// The first line that has this in it. A process that ends before ends the test.
    fn line_with(&mut self, what: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "no line with {what:?} after:\n{seen}");
            if line.contains(what) {
                return line;
            }
            seen += &line;
        }
    }

    /// Asks for the end, as Ctrl-C does; the rest of what it says.
    fn end(mut self) -> String {
        signal("-TERM", self.child.id());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.is_over.change(|is_over| *is_over = true);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(sent.unwrap().success(), "{signal} to {pid}");
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.arg("mesh").args(args);
    command
}

fn output(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// The address behind "listens on".
fn address(line: &str) -> String {
    line.split_whitespace().skip_while(|word| *word != "on").nth(1).unwrap().to_owned()
}

#[test]
fn agents_probe_each_other_and_findings_say_that_nothing_is_bad() {
    let mut controller =
        Part::start(&["controller", "--listen", "127.0.149.1:0", "--window", "1", "--rate", "50"]);
    let place = address(&controller.line_with("listens on"));
    let mut analyzer = Part::start(&["analyzer", "--listen", "127.0.149.2:0", "--controller", &place]);
    let judge = address(&analyzer.line_with("listens on"));
    analyzer.line_with("the controller is heard");
    let agent = |address: &str, tor: &str| {
        let host = format!("host-{address}");
        Part::start(&["agent", "--address", address, "--tor", tor, "--host", &host, "--controller", &place])
    };
    let mut one = agent("127.0.149.3", "rack1");
    let mut two = agent("127.0.149.4", "rack2");
    one.line_with("1 RNIC to probe");
    two.line_with("1 RNIC to probe");
    controller.line_with("2 agents, 2 RNICs");
    let end = now() + LIMIT;
    let findings = loop {
        let out = output(&["findings", "--analyzer", &judge, "--json"]);
        assert!(out.status.success(), "{out:?}");
        let findings: Value = serde_json::from_slice(&out.stdout).unwrap();
        if findings["windows"].as_u64() >= Some(3) && findings["agents"] == 2 {
            break findings;
        }
        assert!(now() < end, "still waiting for three windows of two agents: {findings}");
        park(Some(Duration::from_millis(100)));
    };
    assert_eq!(findings["open"], Value::Array(Vec::new()), "{findings}");
    let out = output(&["findings", "--analyzer", &judge]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.starts_with("nothing bad is known after "), "{text}");
    // The controller is killed, and its agent says so and goes on.
    drop(controller);
    one.line_with(&format!(
        "no controller answers at http://{place}; it is tried again, 1 RNIC to probe meanwhile"
    ));
    for agent in [one, two] {
        let rest = agent.end();
        let last = rest.lines().last().unwrap();
        assert!(
            last.contains(" probes ok, ") && last.ends_with(" kept by the analyzer, 0 left behind"),
            "{rest}"
        );
        assert!(!last.starts_with("0 probes"), "{last}");
    }
    let rest = analyzer.end();
    assert!(rest.contains(" kept\n") && !rest.contains("malformed"), "{rest}");
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    for (args, why) in [
        (&["controller", "--listen", "0.0.0.0:0"][..], "listen on a loopback address, such as 127.0.0.1:0"),
        (&["analyzer", "--listen", "192.0.2.1:1"], "can be reached from other machines"),
        (
            &["analyzer", "--listen", "127.0.149.5:0", "--controller", "nowhere"],
            "\"nowhere\" does not say where",
        ),
        (&["findings", "--analyzer", "127.0.149.6:1"], "no service answers at 127.0.149.6:1; is it running?"),
        (&["findings", "--analyzer", "192.0.2.1:1"], "is not on this machine"),
        (
            &["agent", "--address", "127.0.149.7", "--tor", "t", "--controller", ""],
            "write an address and a port",
        ),
    ] {
        let out = output(args);
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.starts_with("ferroce: ") && error.contains(why), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for args in [&["agent", "--tor", "t"][..], &["controller", "--window", "0"], &["sing"], &[]] {
        assert_eq!(output(args).status.code(), Some(2), "{args:?}");
    }
}
