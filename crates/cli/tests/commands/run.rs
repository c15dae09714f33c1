//! Runs the binary.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Out {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Out {
    #[track_caller]
    pub(crate) fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        assert_eq!(self.stderr, "");
        self
    }

    /// Checks that the run failed with one line on standard error, and returns that line.
    #[track_caller]
    pub(crate) fn failure(&self) -> &str {
        assert_eq!(self.code, Some(1), "{} {}", self.stdout, self.stderr);
        let line = self.stderr.strip_suffix('\n').expect("a whole line");
        assert!(line.starts_with("ferroce: ") && !line.contains('\n'), "{line}");
        line
    }

    /// Checks that the command line was refused, and returns what was said.
    #[track_caller]
    pub(crate) fn usage(&self) -> &str {
        assert_eq!(self.code, Some(2), "{} {}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        &self.stderr
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// The binary, with nothing from the environment that changes what it does.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["COLUMNS", "NO_COLOR", "FERROCE_NETDEV", "FERROCE_FAULTS", "FERROCE_PATH", "FERROCE_ADDRESS"]
    {
        command.env_remove(name);
    }
    command
}

pub(crate) fn ferroce(args: &[&str]) -> Out {
    finish(command(args).spawn().unwrap())
}

pub(crate) fn finish(child: Child) -> Out {
    let out = child.wait_with_output().unwrap();
    let [stdout, stderr] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Out { code: out.status.code(), stdout, stderr }
}

/// A process that is running, whose lines are read one by one.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    /// Its end, when what it prints is not read any more.
    pub(crate) fn leave(self) -> Out {
        drop(self.lines);
        finish(self.child)
    }

    /// Ends it without a word, as a machine that loses power does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Its end, with what it printed since.
    pub(crate) fn finish(mut self) -> Out {
        let mut stdout = String::new();
        self.lines.read_to_string(&mut stdout).unwrap();
        drop(self.lines);
        Out { stdout, ..finish(self.child) }
    }
}

/// A server for `ferroce perf --connect`, and its port.
pub(crate) fn server(options: &[&str]) -> (Running, String) {
    let args: Vec<&str> = ["perf", "--server", "--port", "0"].iter().chain(options).copied().collect();
    let mut server = Running::start(command(&args));
    let line = server.line();
    let port = line.trim_end().rsplit(' ').next().unwrap().to_owned();
    assert!(line.starts_with("listening at ") && port.parse::<u16>().is_ok(), "{line}");
    (server, port)
}
