//! Counts the instructions of programs, by callgrind.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::shell::{Cmd, on_path};

/// Whether instructions can be counted here; else, what to do.
pub(super) fn check() -> Result<()> {
    ensure!(
        on_path("valgrind"),
        "valgrind is not on PATH: it counts the instructions; install the package valgrind"
    );
    Ok(())
}

/// Instructions of a run: of all its threads, or only those that a thread spends within a function.
pub(super) fn count(program: &Path, args: &[&str], within: Option<&str>) -> Result<f64> {
    // Threads take turns, and the profile itself is of no use.
    let valgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=try"];
    let within = within.map(|function| format!("--toggle-collect={function}*"));
    let run = Cmd::new("valgrind").args(valgrind).args(within).arg(program).args(args);
    let (done, said) = run.captured()?;
    ensure!(done, "`{run}` failed: {said}");
    collected(&said).with_context(|| format!("callgrind said no number of instructions: {said}"))
}

/// The instructions that callgrind says it has seen.
fn collected(said: &str) -> Option<f64> {
    let (_, count) = said.lines().rev().find_map(|line| line.split_once("Collected :"))?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_what_callgrind_says() {
        let said =
            "==7== Events    : Ir\n==7== Collected : 14527464\n==7== \n==7== I   refs:      14,527,464\n";
        assert_eq!(collected(said), Some(14_527_464.0));
        assert_eq!(collected("==7== Command: ./refusals\n"), None);
    }
}
