//! Network namespaces of a process's own, which are gone with it, whatever ends it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use thiserror::Error;

/// Why a network of namespaces cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// A program failed.
    #[error("`{line}` failed: {said}")]
    Command {
        /// The command line.
        line: String,
        /// What it said.
        said: String,
    },
    /// A program cannot be run.
    #[error("`{line}` cannot be run")]
    Start {
        /// The command line.
        line: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel cannot do it.
    #[error(
        "this kernel has no {option}: choices of routers with equal hashes are polarised, and a Clos network needs \
         Linux 6.11 or newer"
    )]
    Kernel {
        /// The option that is missing.
        option: &'static str,
    },
    /// A file, an option of the kernel or a namespace is refused.
    #[error("{what} is refused")]
    Refused {
        /// What it is.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// This process has no mount namespace of its own.
    #[error("this process has no place for namespaces of its own: it is to be started by `unshare --mount`")]
    NoRoom,
}

/// Set for a process in a mount namespace of its own.
const INSIDE: &str = "FERROCE_LAB";

/// Shows that /run is this process's own.
const MARK: &str = "/run/ferroce-lab";

/// Whether this process was started by [`command_inside`].
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// What runs a program in namespaces of its own: of mounts, of users if it has no rights, and of these kinds.
/// Every interface may be a device there.
#[must_use]
pub fn command_inside(kinds: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount").args(kinds);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.envs([("FERROCE_NETDEV", "all"), (INSIDE, "1")]);
    command
}

/// Room for named namespaces that only this process sees.
#[derive(Clone, Copy, Debug)]
pub struct Room(());

impl Room {
    /// Makes room, unless there is some.
    ///
    /// # Errors
    /// The process has no mount namespace of its own, or the system refuses.
    pub fn make() -> Result<Self, LabError> {
        if !is_inside() {
            return Err(LabError::NoRoom);
        }
        if !Path::new("/run/netns").exists() || !Path::new(MARK).exists() {
            answer_to("mount -t tmpfs tmpfs /run", "")?;
            create(MARK)?;
            let made = std::fs::create_dir("/run/netns");
            made.map_err(|source| LabError::Refused { what: "/run/netns".to_owned(), source })?;
        }
        Ok(Self(()))
    }

    /// Makes a network namespace of this name. It is one for `ip netns`, which could not make it: that wants to go
    /// back to the network that it came from, and that may be another user's.
    ///
    /// # Errors
    /// The system refuses.
    pub fn namespace(self, name: &str) -> Result<(), LabError> {
        let path = format!("/run/netns/{name}");
        create(&path)?;
        answer_to(&format!("unshare --net={path} true"), "").map(drop)
    }
}

fn create(path: &str) -> Result<(), LabError> {
    File::create(path).map(drop).map_err(|source| LabError::Refused { what: path.to_owned(), source })
}

/// Does something in a thread of a named namespace, and waits for it.
///
/// # Errors
/// There is no such namespace, or this process may not enter it.
///
/// # Panics
/// What is done panics.
pub fn enter<T: Send>(name: &str, action: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    let refused = |source| LabError::Refused { what: format!("the way into namespace {name}"), source };
    let run = move || {
        let namespace = File::open(format!("/run/netns/{name}")).map_err(refused)?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).map_err(|error| refused(error.into()))?;
        Ok(action())
    };
    thread::scope(|scope| match scope.spawn(run).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Runs a command line that reads this, and returns what it printed.
///
/// # Errors
/// It cannot be run, or failed: with what it said.
pub fn answer_to(line: &str, input: &str) -> Result<String, LabError> {
    let output = run(line, input).map_err(|source| LabError::Start { line: line.to_owned(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(LabError::Command { line: line.to_owned(), said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(line: &str, input: &str) -> io::Result<Output> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    thread::scope(|scope| {
        let stdin = child.stdin.take();
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    })
}
