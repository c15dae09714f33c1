//! Foreign programs as judges, and what happens where one is missing.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set by `cargo xtask test`, which has already decided: `1` if skipping is failing, `0` if not.
const REQUIRE_ALL: &str = "FERROCE_REQUIRE_ALL";

/// Whether `program` can be run. If it cannot, says so on standard error.
///
/// # Panics
/// Where a skipped test would hide something: if `FERROCE_REQUIRE_ALL` is `1`; without that
/// variable, in CI, or as root on Debian or one of its children.
#[must_use]
pub fn is_here(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    or_skipped(found, program)
}

/// Whether a file is there, such as a header or a program that knows no `--version`. If it is not, says so
/// on standard error.
///
/// # Panics
/// As [`is_here`].
#[must_use]
pub fn has_file(path: &str) -> bool {
    or_skipped(Path::new(path).exists(), path)
}

/// Whether this process is root, which this needs. If it is not, says so on standard error.
///
/// # Panics
/// As [`is_here`].
#[must_use]
pub fn is_root_for(what: &str) -> bool {
    or_skipped_with(is_root(), what, "run it as root")
}

/// Whether network namespaces can be made, which was just tried. If they cannot, says so on standard error.
///
/// # Panics
/// As [`is_here`].
#[must_use]
pub fn has_namespaces(possible: bool) -> bool {
    let advice = "allow them, or run it as root; `cargo xtask setup` installs `ip`";
    or_skipped_with(possible, "a way to make network namespaces", advice)
}

fn or_skipped(found: bool, what: &str) -> bool {
    or_skipped_with(found, what, "`cargo xtask setup` installs it")
}

fn or_skipped_with(found: bool, what: &str, advice: &str) -> bool {
    if !found {
        assert!(!skipping_is_failing(), "{what} is missing: {advice}");
        // `eprintln!` would be captured, and shown only if the test failed. `cargo xtask test`
        // counts these lines, so each is written whole.
        let notice = format!("SKIPPED: {what} is missing; {advice}\n");
        let _ = io::stderr().write_all(notice.as_bytes());
    }
    found
}

fn skipping_is_failing() -> bool {
    told(env::var(REQUIRE_ALL).ok().as_deref())
        .unwrap_or_else(|| must_not_skip(is_ci(), is_root(), is_debian_like(&os_release())))
}

/// What the variable says, if it says anything.
fn told(value: Option<&str>) -> Option<bool> {
    value.filter(|value| !value.is_empty()).map(|value| value != "0")
}

// From here on as in `xtask/src/setup.rs`, word for word: a test there compares them.

/// In CI notices are not read; as root on Debian, `cargo xtask setup` could have installed it.
const fn must_not_skip(ci: bool, root: bool, debian: bool) -> bool {
    ci || (root && debian)
}

fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    id.is_ok_and(|id| id.status.success() && id.stdout.trim_ascii() == b"0")
}

fn os_release() -> String {
    fs::read_to_string("/etc/os-release").unwrap_or_default()
}

/// Reads `ID` and `ID_LIKE` of an os-release file.
fn is_debian_like(os_release: &str) -> bool {
    let ids = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")));
    ids.flat_map(|value| value.trim_matches(['"', '\'']).split_whitespace())
        .any(|id| id == "debian" || id == "ubuntu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xtask_has_the_last_word() {
        assert_eq!(told(Some("1")), Some(true));
        assert_eq!(told(Some("0")), Some(false));
        assert_eq!(told(Some("")), None);
        assert_eq!(told(None), None);
    }

    #[test]
    fn skipping_fails_in_ci_or_where_we_could_install() {
        assert!(must_not_skip(true, false, false));
        assert!(must_not_skip(false, true, true));
        assert!(!must_not_skip(false, true, false));
        assert!(!must_not_skip(false, false, true));
    }
}
