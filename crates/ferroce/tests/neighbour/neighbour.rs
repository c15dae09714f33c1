//! The neighbour, as the test sees it: another process, spoken to in lines.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use ferroce::time::{now, until, wait_readable};
use ferroce_testkit::neighbour::{Target, user};

use crate::liar::{MARK, ROLE};

/// The neighbour. Dropping it ends it.
pub(crate) struct Neighbour {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    heard: Vec<u8>,
    /// Whether it is another user's.
    pub(crate) is_other: bool,
}

impl Neighbour {
    pub(crate) fn start() -> Self {
        let (mut command, is_other) = user::this_program().expect("this program");
        command.args(["--exact", "the_neighbour", "--nocapture"]);
        command.env(ROLE, if is_other { "other" } else { "same" });
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program runs");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, to, from, heard: Vec::new(), is_other }
    }

    /// Tells it all that can be known.
    pub(crate) fn tell(&mut self, targets: &[Target]) {
        let lines = targets.iter().enumerate().map(|(at, target)| format!("target {at} {target}\n"));
        let lines: String = lines.chain([format!("only {}\n", targets.len())]).collect();
        self.to.write_all(lines.as_bytes()).expect("it listens");
    }

    /// Asks it to do something.
    pub(crate) fn ask(&mut self, what: &str) {
        self.to.write_all(format!("{what}\n").as_bytes()).expect("it listens");
    }

    /// Its next answer, if it comes in this time.
    pub(crate) fn answer_within(&mut self, limit: Duration) -> Option<String> {
        let end = now() + limit;
        loop {
            while let Some(at) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=at).collect();
                if let Some(said) = String::from_utf8_lossy(&line).trim().strip_prefix(MARK) {
                    return Some(said.to_owned());
                }
            }
            if !wait_readable(self.from.as_fd(), Some(until(end))).expect("a pipe") {
                return None;
            }
            let mut bytes = [0; 4096];
            let len = self.from.read(&mut bytes).expect("a pipe");
            assert!(len > 0, "the neighbour ended: {:?}", self.child.wait());
            self.heard.extend(&bytes[..len]);
        }
    }

    /// Its answer.
    pub(crate) fn answer(&mut self, to: &str, limit: Duration) -> String {
        let answer = self.answer_within(limit);
        answer.unwrap_or_else(|| panic!("the neighbour did not answer {to:?} in {limit:?}"))
    }

    /// Asks, and waits for the answer: numbers.
    pub(crate) fn numbers(&mut self, what: &str, limit: Duration) -> Vec<u64> {
        self.ask(what);
        let answer = self.answer(what, limit);
        let numbers = answer.split_whitespace().map(str::parse).collect::<Result<_, _>>();
        numbers.unwrap_or_else(|_| panic!("the neighbour said {answer:?} to {what:?}"))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
