//! The process of one case: it runs it, and says in one line on standard output what became of it.

use std::io::{self, Write as _};
use std::process;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use ferroce_verbs::time::{now, park, until};

use crate::{Case, Outcome, Rig, UnderError, outcome, waiting};

/// Runs a case on the rig that `open` gives, and tells what became of it ([`Outcome::to_json`], one line on standard output). If it
/// takes longer than `limit`, it tells what the case waits for, and ends the process.
pub fn run(case: &Case, limit: Duration, open: impl FnOnce() -> Result<Rig, UnderError>) -> Outcome {
    let end = now() + limit;
    thread::spawn(move || {
        while !until(end).is_zero() {
            park(Some(until(end)));
        }
        tell(&Outcome::TimedOut { waited_for: waiting::known().map(|wait| wait.to_string()) });
        process::exit(0);
    });
    let outcome = outcome::of(case, open);
    tell(&outcome);
    outcome
}

/// Only the first is told: the case and its end may meet.
fn tell(outcome: &Outcome) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let line = format!("{}\n", outcome.to_json());
        let mut out = io::stdout().lock();
        // If the reader is gone, nothing is left to do.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    });
}
