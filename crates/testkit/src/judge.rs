//! Foreign programs as judges, and what happens where one is missing.

use std::path::Path;
use std::process::{Command, Stdio};

/// Whether `program` can be run. If it cannot, says so on standard error.
///
/// # Panics
/// With `CI` set, or as root on Debian, where `cargo xtask test` installs what is
/// missing: there a skipped test would hide something.
#[must_use]
pub fn is_here(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        let advice = "`cargo xtask setup` installs it";
        assert!(!skipping_is_failing(), "{program} is missing: {advice}");
        eprintln!("SKIPPED: {program} is missing; {advice}");
    }
    found
}

fn skipping_is_failing() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| {
        use std::os::unix::fs::MetadataExt;
        me.uid() == 0
    });
    std::env::var_os("CI").is_some() || (root && Path::new("/etc/debian_version").exists())
}
