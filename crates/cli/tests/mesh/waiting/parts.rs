//! `ferroce mesh`, as people use it: each part is a process of its own.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
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
fn an_agent_probes_with_all_rnics_of_its_host() {
    let mut controller =
        Part::start(&["controller", "--listen", "127.0.149.31:0", "--window", "1", "--rate", "50"]);
    let place = address(&controller.line_with("listens on"));
    let mut two = Part::start(&[
        "agent",
        "--address",
        "127.0.149.32",
        "--address",
        "127.0.149.33@rack2",
        "--tor",
        "rack1",
        "--host",
        "two",
        "--controller",
        &place,
    ]);
    two.line_with("agent two-127.0.149.32 answers probes at 127.0.149.32 and 127.0.149.33 until Ctrl-C");
    // Each probes the other one, which hangs on another ToR.
    two.line_with("2 RNICs to probe");
    controller.line_with("1 agent, 2 RNICs");
    let rest = two.end();
    assert!(rest.lines().last().unwrap().contains(" probes ok, "), "{rest}");
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
        (
            &["controller", "--listen", "127.0.149.8:0", "--tls", "no/such"],
            "cannot read no/ca.pem: No such file",
        ),
        (
            &["findings", "--analyzer", "https://127.0.149.6:1"],
            "is a service with TLS, which needs certificates",
        ),
        (&["certificates", "--out", "/proc/no/such", "a"], "cannot use /proc/no/such: "),
        (&["certificates", "--out", "/proc/no/such", "a", "a=::1"], "a name stands there twice"),
    ] {
        let out = output(args);
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.starts_with("ferroce: ") && error.contains(why), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for args in [
        &["agent", "--tor", "t"][..],
        &["agent", "--address", "127.0.149.7@"],
        &["agent", "--address", "nowhere@t"],
        &["controller", "--window", "0"],
        &["controller", "--ca", "x"],
        &["controller", "--key", "x", "--certificate", "x"],
        &["controller", "--tls", "x", "--ca", "x", "--key", "x", "--certificate", "x"],
        &["certificates", "--out", "x"],
        &["certificates", "--out", "x", "a=nowhere"],
        &["sing"],
        &[],
    ] {
        assert_eq!(output(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn certificates_are_made_once_and_let_the_parts_of_a_mesh_know_each_other() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mesh-tls-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    let out = directory.to_str().unwrap();
    let made =
        output(&["certificates", "--out", out, "controller=127.0.149.21", "analyzer=127.0.149.22,::1"]);
    let text = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success() && text.starts_with(&format!("a new CA is in {out}; ")), "{text}");
    assert!(text.ends_with("then run there: ferroce mesh ... --tls DIR/NAME\n"), "{text}");
    // One of the names has files: nothing is made.
    let again = output(&["certificates", "--out", out, "host1", "controller"]);
    let error = String::from_utf8(again.stderr).unwrap();
    let taken = format!("ferroce: {out}/controller.pem is there already, and nothing is overwritten\n");
    assert_eq!((again.status.code(), error), (Some(1), taken));
    let made = output(&["certificates", "--out", out, "--json", "host1", "host2"]);
    let told: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(told["ca"]["is_new"], false, "{told}");
    assert_eq!(told["certificates"][1]["key"], format!("{out}/host2.key"), "{told}");
    let wrong = output(&["certificates", "--out", out, "a b"]);
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(error.starts_with("ferroce: \"a b\" is no name for a certificate"), "{error}");

    let tls = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let mut controller = Part::start(&[
        "controller",
        "--listen",
        "127.0.149.21:0",
        "--window",
        "1",
        "--rate",
        "50",
        "--tls",
        &tls("controller"),
    ]);
    let place = address(&controller.line_with("listens on"));
    let url = format!("https://{place}");
    let mut analyzer = Part::start(&[
        "analyzer",
        "--listen",
        "127.0.149.22:0",
        "--controller",
        &url,
        "--tls",
        &tls("analyzer"),
    ]);
    let judge = address(&analyzer.line_with("listens on"));
    analyzer.line_with("the controller is heard");
    let words = |number: &str| {
        let words = ["agent", "--tor", "rack1", "--host", number, "--controller", &url, "--address"];
        words.map(str::to_owned).to_vec()
    };
    let agent = |name: &str, address: &str, more: &[&str]| {
        let mut words = words(name);
        words.extend([address, "--tls"].map(str::to_owned));
        words.push(tls(name));
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words
    };
    let start = |words: Vec<String>| Part::start(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let mut one = start(agent("host1", "127.0.149.23", &[]));
    let mut two = start(agent("host2", "127.0.149.24", &[]));
    assert!(one.line_with("answers probes").starts_with("agent host1 "), "its certificate names it");
    one.line_with("1 RNIC to probe");
    two.line_with("1 RNIC to probe");
    let other = agent("host1", "127.0.149.25", &["--name", "host2"]);
    let refused = output(&other.iter().map(String::as_str).collect::<Vec<_>>());
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(error, "ferroce: the certificate is for host1, so it cannot be agent host2\n");
    let out = output(&["findings", "--analyzer", &judge, "--tls", &tls("host1")]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && text.starts_with("nothing bad is known"), "{text}");
    let out = output(&["findings", "--analyzer", &judge]);
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(error, format!("ferroce: {judge} speaks TLS only; it needs certificates\n"));
    one.end();
    two.end();
    let rest = analyzer.end();
    assert!(rest.contains(" refused plain text\n"), "{rest}");
    fs::remove_dir_all(&directory).unwrap();
}
