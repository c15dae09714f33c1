//! One line on standard error for each refusal, if the user asked for it.

use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;

use ferroce_device::Uncancelled;

/// Whether refusals are told: `FERROCE_LOG` is `warn`, or a level that tells more.
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        let level = std::env::var("FERROCE_LOG").unwrap_or_default();
        matches!(level.trim(), "warn" | "info" | "debug" | "trace")
    })
}

/// Says why a function of the library refused.
pub(crate) fn warn(function: &str, why: &dyn Display) {
    if is_on() {
        let _whole = Uncancelled::new();
        let line = format!("ferroce: {function}: {why}\n");
        // A program that has closed its standard error does not want to hear.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
