//! The analyzer's side.

use std::time::Duration;

use thiserror::Error;

use super::Mark;

/// What windows an analyzer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxConfig {
    /// Windows that ended longer ago are refused.
    pub oldest: Duration,
    /// Windows that end later than this from now are refused, and so are lives that begin later: clocks differ a little.
    pub ahead: Duration,
    /// The longest window.
    pub longest: Duration,
}

impl Default for InboxConfig {
    fn default() -> Self {
        Self {
            oldest: Duration::from_hours(1),
            ahead: Duration::from_secs(10),
            longest: Duration::from_mins(10),
        }
    }
}

/// Why a window is refused; it is settled nevertheless, since it would be refused again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WindowRefusal {
    /// It ended too long ago.
    #[error("the window ended {ago:?} ago, and no more than {most:?} is taken")]
    TooOld {
        /// How long ago.
        ago: Duration,
        /// How long ago it may be.
        most: Duration,
    },
    /// It ends in the future.
    #[error("the window ends in {ahead:?}, and no more than {most:?} is taken; set the clocks")]
    Future {
        /// How far ahead.
        ahead: Duration,
        /// How far it may be.
        most: Duration,
    },
    /// It is longer than a window may be, or ends before it begins.
    #[error("the window begins at {start} and ends at {end} ns; it has to be 0 to {most:?} long")]
    Length {
        /// Nanoseconds of the Unix clock.
        start: u64,
        /// Nanoseconds of the Unix clock.
        end: u64,
        /// How long it may be.
        most: Duration,
    },
    /// The life of the agent begins in the future.
    #[error("the epoch lies {ahead:?} ahead, and no more than {most:?} is taken; set the clocks")]
    Epoch {
        /// How far ahead.
        ahead: Duration,
        /// How far it may be.
        most: Duration,
    },
    /// Numbers begin with 1.
    #[error("a window has number 0; numbers begin with 1")]
    Number,
}

/// What became of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is new, and counts.
    Kept,
    /// It came before.
    Replay,
    /// It does not count.
    Refused(WindowRefusal),
}

/// Which windows of one agent came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inbox {
    settled: Mark,
    /// Windows that were kept.
    pub kept: u64,
    /// Windows that came again.
    pub replays: u64,
    /// Windows that were refused.
    pub refused: u64,
    /// Windows whose numbers were left out: they will not come.
    pub lost: u64,
}

impl Inbox {
    /// An inbox in which all windows up to this one are settled.
    #[must_use]
    pub fn settled_at(mark: Mark) -> Self {
        Self { settled: mark, ..Self::default() }
    }

    /// All windows up to this one are settled.
    #[must_use]
    pub const fn settled(&self) -> Mark {
        self.settled
    }

    /// Takes a window from `start` to `end`, at a time; all in nanoseconds of the Unix clock.
    pub fn take(&mut self, mark: Mark, start: u64, end: u64, now: u64, config: &InboxConfig) -> Taken {
        // What cannot be a mark settles nothing: else one wrong number would shut an agent out.
        if let Err(refusal) = judge_mark(mark, now, config) {
            self.refused += 1;
            return Taken::Refused(refusal);
        }
        if mark <= self.settled {
            self.replays += 1;
            return Taken::Replay;
        }
        // The first that is seen of a life may be any: the analyzer may be younger than the agent.
        if mark.epoch == self.settled.epoch {
            self.lost = self.lost.saturating_add(mark.number - self.settled.number - 1);
        }
        self.settled = mark;
        match judge_time(start, end, now, config) {
            Ok(()) => {
                self.kept += 1;
                Taken::Kept
            }
            Err(refusal) => {
                self.refused += 1;
                Taken::Refused(refusal)
            }
        }
    }
}

fn judge_mark(mark: Mark, now: u64, config: &InboxConfig) -> Result<(), WindowRefusal> {
    if mark.number == 0 {
        return Err(WindowRefusal::Number);
    }
    let ahead = Duration::from_nanos(mark.epoch.saturating_sub(now));
    if ahead > config.ahead {
        return Err(WindowRefusal::Epoch { ahead, most: config.ahead });
    }
    Ok(())
}

fn judge_time(start: u64, end: u64, now: u64, config: &InboxConfig) -> Result<(), WindowRefusal> {
    let length = end.checked_sub(start).map(Duration::from_nanos);
    if length.is_none_or(|length| length > config.longest) {
        return Err(WindowRefusal::Length { start, end, most: config.longest });
    }
    let (ago, ahead) =
        (Duration::from_nanos(now.saturating_sub(end)), Duration::from_nanos(end.saturating_sub(now)));
    if ago > config.oldest {
        return Err(WindowRefusal::TooOld { ago, most: config.oldest });
    }
    if ahead > config.ahead {
        return Err(WindowRefusal::Future { ahead, most: config.ahead });
    }
    Ok(())
}
