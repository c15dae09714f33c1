//! `ferroce mesh demo`: both stories, from the first probe to the finding that closes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferroce_device::cm::Notice;
use ferroce_testkit::judge;
use serde_json::Value;

/// No demo takes longer, also beside other work; then it is ended, and the test says what came last.
const LIMIT: Duration = Duration::from_secs(240);

/// A demo that runs, and is killed if it does so for too long.
struct Demo {
    child: Child,
    is_over: Arc<Notice<bool>>,
}

impl Demo {
    fn start(options: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_ferroce"))
            .args(["mesh", "demo", "--page", "127.0.0.1:0", "--break-after", "5", "--mend-after", "1"])
            .args(["--once", "--json"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let is_over = Arc::new(Notice::new(false));
        let (pid, watched) = (child.id().to_string(), Arc::clone(&is_over));
        thread::spawn(move || {
            if watched.wait(Some(LIMIT), |is_over| is_over.then_some(())).is_none() {
                let _ = Command::new("kill").arg(pid).status();
            }
        });
        Self { child, is_over }
    }

    /// All that it told, each with `see` when it came.
    fn events(mut self, mut see: impl FnMut(&Value)) -> Vec<Value> {
        let lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        let events: Vec<Value> = lines
            .map(|line| {
                let event = serde_json::from_str(&line.unwrap()).unwrap();
                see(&event);
                event
            })
            .collect();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status} after {events:#?}");
        events
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.is_over.change(|is_over| *is_over = true);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the page answers.
fn ask(place: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(place).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

/// Sees a story to its end: whatever else a busy machine lets happen, this is found, and is on the page.
fn see(options: &[&str], culprit: &str) {
    let mut page = None;
    let mut on_page = false;
    let is_it = |event: &Value| {
        let suspects = event["suspects"].as_array();
        event["event"] == "finding"
            && suspects.is_some_and(|all| all.iter().any(|name| name.as_str().unwrap().contains(culprit)))
    };
    let events = Demo::start(options).events(|event| {
        if event["event"] == "page" {
            page = event["url"].as_str().unwrap().strip_prefix("http://").map(str::to_owned);
        } else if is_it(event) {
            let place = page.as_deref().unwrap().trim_end_matches('/');
            assert!(ask(place, "/").contains("<html"));
            on_page |= ask(place, "/api/findings").contains(culprit);
        }
    });
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    // On a busy machine a finding may close before the end, and go on under another name.
    for steps in [&["begun", "page", "well", "broken", "finding", "mended"][..], &["finding", "closed"]] {
        let mut rest = names.iter();
        for step in steps {
            assert!(rest.any(|name| name == step), "{step} is missing in {events:#?}");
        }
    }
    assert!(events.iter().any(is_it) && on_page, "{culprit}: {events:#?}");
}

#[test]
fn a_card_that_goes_bad_is_found_on_loopback_addresses() {
    see(&["--loopback"], "127.0.153.6");
}

#[test]
fn a_link_that_goes_bad_is_found_in_a_network_of_namespaces() {
    if !["unshare", "nft"].iter().all(|program| judge::is_here(program)) {
        return;
    }
    see(&[], "link a00 -> c1");
}
