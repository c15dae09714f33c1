//! Runs the binary.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

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
        self
    }

    /// Checks that the run failed with one line on standard error, and returns that line.
    #[track_caller]
    pub(crate) fn failure(&self) -> &str {
        assert_eq!(self.code, Some(1), "{}", self.stderr);
        let line = self.stderr.strip_suffix('\n').expect("a whole line");
        assert!(line.starts_with("ferroce: ") && !line.contains('\n'), "{line}");
        line
    }
}

pub(crate) fn ferroce(args: &[impl AsRef<OsStr>]) -> Out {
    finish(spawn(args, Stdio::null()))
}

pub(crate) fn decode(args: &[&str], path: &Path) -> Out {
    let args: Vec<&OsStr> = ["decode"].iter().chain(args).map(OsStr::new).chain([path.as_os_str()]).collect();
    ferroce(&args)
}

/// Decodes bytes from standard input.
pub(crate) fn decode_bytes(args: &[&str], bytes: &[u8]) -> Out {
    let mut child = start(args);
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // The child may stop reading at any time.
        scope.spawn(move || stdin.write_all(bytes).ok());
        finish(child)
    })
}

/// Begins to decode standard input.
pub(crate) fn start(args: &[&str]) -> Child {
    let args: Vec<&str> = ["decode"].iter().chain(args).chain(&["-"]).copied().collect();
    spawn(&args, Stdio::piped())
}

fn spawn(args: &[impl AsRef<OsStr>], stdin: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.args(args).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

pub(crate) fn finish(child: Child) -> Out {
    let out = child.wait_with_output().unwrap();
    let [stdout, stderr] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Out { code: out.status.code(), stdout, stderr }
}
