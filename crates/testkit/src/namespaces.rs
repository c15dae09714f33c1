//! Network namespaces of a test's own, which are gone with its process, whatever ends it.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::judge;

/// Set for the process that runs inside.
const INSIDE: &str = "FERROCE_TEST_INSIDE";

/// Whether this process has namespaces of its own.
#[must_use]
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs this program again in namespaces of its own, where every interface may be a device, if these programs are
/// there. Without them, or where namespaces are not allowed, the rule of [`judge`] decides.
#[must_use]
pub fn run_inside(programs: &[&str]) -> ExitCode {
    if !programs.iter().chain(&["unshare"]).all(|program| judge::is_here(program)) {
        return ExitCode::SUCCESS;
    }
    let mut words = vec!["--net", "--mount"];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    let possible = Command::new("unshare").args(&words).args(["ip", "link"]).stdout(Stdio::null()).status();
    if !judge::has_namespaces(possible.is_ok_and(|status| status.success())) {
        return ExitCode::SUCCESS;
    }
    let Ok(program) = env::current_exe() else { return ExitCode::FAILURE };
    let status = Command::new("unshare")
        .args(&words)
        .arg(program)
        .args(env::args_os().skip(1))
        .envs([("FERROCE_NETDEV", "all"), (INSIDE, "1")])
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = io::stderr().write_all(format!("unshare: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Makes room for named namespaces that only this process sees.
///
/// # Panics
/// The process is not [inside](is_inside), or the system refuses.
pub fn prepare() {
    assert!(is_inside(), "namespaces are made inside of `run_inside` only");
    if !Path::new("/run/netns").exists() || !Path::new(MARK).exists() {
        run("mount -t tmpfs tmpfs /run");
        File::create(MARK).expect("a file in a file system of one's own");
        run("ip link set lo up");
    }
}

/// Shows that /run is this process's own.
const MARK: &str = "/run/ferroce-test";

/// Does something in a thread of a named namespace, and waits for it.
///
/// # Panics
/// There is no such namespace, or what is done panics.
pub fn enter<T: Send>(name: &str, action: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let namespace = File::open(format!("/run/netns/{name}")).expect("a namespace of this name");
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).expect("a way into the namespace");
            action()
        });
        match inside.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Runs a command line.
///
/// # Panics
/// It failed: with what it said.
pub fn run(line: &str) {
    let _ = answer_to(line, "");
}

/// Runs a command line that reads this.
///
/// # Panics
/// It failed: with what it said.
pub fn run_with(line: &str, input: &str) {
    let _ = answer_to(line, input);
}

/// Runs a command line that reads this, and returns what it printed.
///
/// # Panics
/// It failed: with what it said.
#[must_use]
pub fn answer_to(line: &str, input: &str) -> String {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    let output = thread::scope(|scope| {
        let stdin = child.stdin.take();
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    });
    let output = output.unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
