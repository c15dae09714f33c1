//! A test binary that runs itself again, to have a process of its own: for a peer, or for counting what a
//! process holds without other tests beside.
//!
//! The child is the same binary, told by a variable to run one test in another role. Both speak in
//! lines over the child's standard input and output; a line of the child's begins with a mark, because
//! the test harness writes there too.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use ferroce_verbs::time::{Time, now, until, wait_readable};

/// The variable that names the role; absent in the parent.
pub(crate) const ROLE: &str = "FERROCE_TEST_ROLE";

/// What the child's lines begin with.
const MARK: char = '@';

/// The name of a device's thread.
const DRIVER: &str = "ferroce-driver";

/// The role of this process, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A child of this test. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts this binary again: only the test `name`, in this role, with these variables besides.
    pub(crate) fn start(name: &str, role: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_by(command(name, role, variables))
    }

    /// The same, by a command of the test's own.
    pub(crate) fn start_by(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this binary runs");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, input, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says a line to it.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the child listens");
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("text");
            assert!(read > 0, "the child ended without an answer: {:?}", self.child.wait());
            if let Some(line) = line.strip_prefix(MARK) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Ends it without any warning, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Sends a signal such as `STOP` to it.
    pub(crate) fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.pid());
        let done = Command::new("sh").args(["-c", &line]).status().expect("a shell");
        assert!(done.success(), "{line}: {done}");
    }

    /// Whether all its threads are in this state: `S` sleeps, `R` runs, `T` is stopped. The drivers of its
    /// devices do not count.
    pub(crate) fn is_in_state(&self, state: char) -> bool {
        let mut tasks = self.tasks().into_iter();
        tasks.all(|task| {
            let stat = std::fs::read_to_string(format!("{task}/stat")).expect("the child lives");
            let (name, rest) = stat.rsplit_once(") ").expect("a name in brackets");
            name.ends_with(DRIVER) || rest.starts_with(state)
        })
    }

    /// The folder of the driver thread of its one device.
    pub(crate) fn driver(&self) -> String {
        let is_driver = |path: &String| {
            std::fs::read_to_string(format!("{path}/comm")).is_ok_and(|name| name.trim_end() == DRIVER)
        };
        self.tasks().into_iter().find(is_driver).expect("a driver thread")
    }

    fn tasks(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the child lives");
        tasks.map(|task| task.expect("a task").path().display().to_string()).collect()
    }

    /// Waits until it has ended by itself, and well.
    pub(crate) fn join(mut self) {
        let ended = self.child.wait().expect("it is our child");
        assert!(ended.success(), "the child failed: {ended}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs one test of this binary in a role until it ends; fails if it does, and returns what it said.
pub(crate) fn run_alone(name: &str, role: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let mut other = Other::start(name, role, variables);
    let mut said = Vec::new();
    let mut line = String::new();
    while other.output.read_line(&mut line).expect("text") > 0 {
        said.extend(line.strip_prefix(MARK).map(|line| line.trim_end().to_owned()));
        line.clear();
    }
    other.join();
    said
}

/// How this binary is started again.
pub(crate) fn command(name: &str, role: &str, variables: &[(&str, impl AsRef<OsStr>)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a name"));
    command.args(["--exact", name, "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.env(ROLE, role).envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// Says a line to the parent. The line of the harness before it has no end of its own.
pub(crate) fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("the parent listens");
}

/// The next line of the parent; ends this process if the parent is gone.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(1);
    }
    line.trim_end().to_owned()
}

/// Lets time pass: for what must be seen *not* to happen, or to go on while the programs do nothing.
pub(crate) fn let_pass(time: Duration) {
    let (quiet, _open) = std::io::pipe().expect("a pipe");
    let end = now() + time;
    while until(end) > Duration::ZERO {
        wait_readable(std::os::fd::AsFd::as_fd(&quiet), Some(until(end))).expect("the system waits");
    }
}

/// Looks until it is so. The limit is for a test that fails.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end: Time = now() + Duration::from_secs(20);
    while !is_so() {
        assert!(now() < end, "it never came: {what}");
        let_pass(Duration::from_millis(2));
    }
}

/// How long the long forms may take in minutes; `None` for the short forms.
pub(crate) fn soak_minutes() -> Option<u64> {
    std::env::var("FERROCE_SOAK").ok().and_then(|text| text.parse().ok())
}
