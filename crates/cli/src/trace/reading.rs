//! Reads all records through, with a bar on the terminal if that takes long.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use ferroce_trace::{Timeline, Told, read};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::files::note;

/// Events from which on there is a bar.
const LONG: u64 = 500_000;

/// Events between two steps of the bar.
const STEP: u64 = 1 << 16;

/// Reads all there is. A reader that wants no more breaks off without an error. `prints` says whether it prints meanwhile.
pub(super) fn read_all(
    timeline: &Timeline,
    prints: bool,
    mut each: impl FnMut(Told) -> anyhow::Result<ControlFlow<()>>,
) -> anyhow::Result<()> {
    let bar = bar(timeline.len(), prints);
    let mut events = 0_u64;
    let read = read(timeline, |told| {
        if matches!(told, Told::Event(_)) {
            events += 1;
            if events.is_multiple_of(STEP) {
                bar.set_position(events);
            }
        }
        match each(told) {
            Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(())) => ControlFlow::Break(Ok(())),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    });
    bar.finish_and_clear();
    match read {
        Ok(end) => {
            if end.skipped > 0 {
                note(&format!("{} places held no event that this program knows", end.skipped));
            }
            end.trouble
                .map_or(Ok(()), |error| Err(anyhow::Error::new(error).context("a record could not be read")))
        }
        Err(ended) => ended,
    }
}

/// A bar on standard error, if that is a terminal, and not in the middle of what is printed there meanwhile.
pub(super) fn bar(events: u64, prints: bool) -> ProgressBar {
    let target = if events < LONG || prints && io::stdout().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr_with_hz(10)
    };
    let bar = ProgressBar::with_draw_target(Some(events), target);
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % of {len} events");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
