//! Ctrl-C: asked for once, a measurement ends and shows what it has; asked for twice, all ends.

use std::io::{self, IsTerminal};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static ASKED: AtomicBool = AtomicBool::new(false);
/// There is something to show, and a thread looks whether an end was asked for.
static PATIENT: AtomicBool = AtomicBool::new(false);

/// Whether the user wants an end.
#[inline]
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// From here on, until the guard is gone, the first Ctrl-C is a question that [`is_asked`] answers;
/// otherwise it ends the process with one line.
#[must_use = "patience ends with the guard"]
pub(crate) fn be_patient() -> Patience {
    PATIENT.store(true, Ordering::SeqCst);
    Patience(())
}

/// See [`be_patient`].
#[derive(Debug)]
pub(crate) struct Patience(());

impl Drop for Patience {
    fn drop(&mut self) {
        PATIENT.store(false, Ordering::SeqCst);
    }
}

/// Begins to listen.
pub(crate) fn listen() -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen for Ctrl-C")?;
    let wait = move || {
        for _ in signals.forever() {
            // Before the question: the thread that finds it asked may be done, and patient no more, before this one goes on. It was: a
            // ping that was interrupted on a busy machine ended without its summary, and with a failure.
            let is_patient = PATIENT.load(Ordering::SeqCst);
            if ASKED.swap(true, Ordering::SeqCst) || !is_patient {
                // What the terminal shows of the key, and perhaps half a line, stays above.
                let above = if io::stderr().is_terminal() { "\n" } else { "" };
                eprintln!("{above}ferroce: interrupted; nothing more is done");
                process::exit(1);
            }
        }
    };
    thread::Builder::new().name("ctrl-c".into()).spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// Hands a wish to end on to a program that this one waits for. Ctrl-C is not: the terminal tells both.
pub(crate) fn hand_on(program: u32) -> anyhow::Result<()> {
    let program =
        i32::try_from(program).ok().and_then(Pid::from_raw).context("no process has this number")?;
    let mut signals = Signals::new([SIGTERM, SIGHUP]).context("cannot listen for signals")?;
    let wait = move || {
        for signal in signals.forever() {
            let signal = if signal == SIGHUP { Signal::HUP } else { Signal::TERM };
            // It may have ended just now.
            let _ = kill_process(program, signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(())
}
