//! One readable line per event, kept only on request.

use std::collections::VecDeque;

use ferroce_transport::Time;

/// Lines of a run.
#[derive(Debug, Default)]
pub struct Trace {
    /// How many to keep; none means that nothing is written down.
    keep: usize,
    lines: VecDeque<String>,
    /// Lines that were not kept.
    pub dropped: u64,
}

impl Trace {
    /// Writes nothing down.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Keeps the last `keep` lines.
    #[must_use]
    pub fn keeping(keep: usize) -> Self {
        Self { keep, ..Self::default() }
    }

    /// Writes a line, if lines are kept at all.
    pub fn line(&mut self, now: Time, text: impl FnOnce() -> String) {
        if self.keep == 0 {
            return;
        }
        if self.lines.len() == self.keep {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(format!("{:>14} {}", now.to_string(), text()));
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}
