//! How long something took. The only file of xtask that reads a clock.

use std::fmt;
use std::time::{Duration, Instant};

/// Runs from its creation.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "xtask tells a person how long a part took; nothing decides by it"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "xtask tells a person how long a part took; nothing decides by it"
    )]
    pub(crate) fn read(&self) -> Took {
        Took(self.0.elapsed())
    }
}

/// A duration as people read it: `0.4 s`, `3 min 05 s`, `2 h 10 min`.
#[derive(Clone, Copy)]
pub(crate) struct Took(pub(crate) Duration);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let text = match seconds {
            0..60 => format!("{:.1} s", self.0.as_secs_f64()),
            60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
            _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_speech() {
        assert_eq!(Took(Duration::from_millis(430)).to_string(), "0.4 s");
        assert_eq!(Took(Duration::from_secs(185)).to_string(), "3 min 05 s");
        assert_eq!(Took(Duration::from_secs(7800)).to_string(), "2 h 10 min");
    }
}
