//! The clock that an end of probes goes by.

use std::fmt::Debug;
use std::time::Duration;

use ferroce_verbs::time::{Time, now, until};
use ferroce_verbs::{Completion, TimeSource};

use crate::stamp::{Stamp, StampSource};

/// A clock that an end of probes goes by. Programs have [`CardClock`]; tests have clocks that are off, to see that
/// the clocks of two hosts need not agree.
#[doc(hidden)]
pub trait ProbeClock: Debug {
    /// What it shows at a time of the card.
    fn shows(&self, time: Time) -> Stamp;

    /// At which time of the card it shows this.
    fn time_of(&self, stamp: Stamp) -> Time;

    /// What it shows now.
    fn now(&self) -> Stamp {
        self.shows(now())
    }

    /// How long it is until it shows this.
    fn until(&self, due: Stamp) -> Duration {
        until(self.time_of(due))
    }

    /// When the packet of a completion left or came, and what says so; none if the kernel's clock was set at that
    /// moment.
    fn stamp_of(&self, done: &Completion) -> Option<(Stamp, StampSource)> {
        match done.time_source {
            TimeSource::Kernel => Some((self.shows(done.time), StampSource::Kernel)),
            TimeSource::Unsure => None,
            // Also what no later version of the card has a word for: it is not the kernel's.
            _ => Some((self.shows(done.time), StampSource::AfterCall)),
        }
    }
}

/// The clock of completions, as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardClock;

impl ProbeClock for CardClock {
    fn shows(&self, time: Time) -> Stamp {
        Stamp::from_nanos(time.nanos())
    }

    fn time_of(&self, stamp: Stamp) -> Time {
        Time::from_nanos(stamp.nanos())
    }
}
