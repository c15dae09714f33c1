//! Network namespaces of a test's own, which are gone with its process, whatever ends it.

use std::env;
use std::io::{self, Write};
use std::process::{ExitCode, Stdio};

pub use ferroce_lab::namespaces::is_inside;
use ferroce_lab::namespaces::{self as lab, command_inside};

use crate::judge;

/// Runs this program again in namespaces of its own, where every interface may be a device, if these programs are
/// there. Without them, or where namespaces are not allowed, the rule of [`judge`] decides.
#[must_use]
pub fn run_inside(programs: &[&str]) -> ExitCode {
    if !programs.iter().chain(&["unshare"]).all(|program| judge::is_here(program)) {
        return ExitCode::SUCCESS;
    }
    let possible = command_inside(&["--net"]).args(["ip", "link"]).stdout(Stdio::null()).status();
    if !judge::has_namespaces(possible.is_ok_and(|status| status.success())) {
        return ExitCode::SUCCESS;
    }
    let Ok(program) = env::current_exe() else { return ExitCode::FAILURE };
    let status = command_inside(&["--net"]).arg(program).args(env::args_os().skip(1)).status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = io::stderr().write_all(format!("unshare: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Does something in a thread of a named namespace, and waits for it.
///
/// # Panics
/// There is no such namespace, or what is done panics.
pub fn enter<T: Send>(name: &str, action: impl FnOnce() -> T + Send) -> T {
    lab::enter(name, action).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

/// Runs a command line.
///
/// # Panics
/// It failed: with what it said.
pub fn run(line: &str) {
    let _ = answer_to(line, "");
}

/// Runs a command line that reads this, and returns what it printed.
///
/// # Panics
/// It failed: with what it said.
#[must_use]
pub fn answer_to(line: &str, input: &str) -> String {
    lab::answer_to(line, input).unwrap_or_else(|error| panic!("{error}"))
}
