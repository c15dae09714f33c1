//! What a case counts as: what is known of a driver is no failure of it, and what is new is one.

use std::time::Duration;

use ferroce_conformance::known::Driver;
use ferroce_conformance::{Case, Ended, Outcome};

/// What a case counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Passed,
    NotPossible,
    /// It failed, or timed out, as is known of the driver.
    Known,
    Failed,
    TimedOut,
    Crashed,
}

impl Kind {
    /// All that there are, in the order in which they are told.
    pub(super) const ALL: [Self; 6] =
        [Self::Passed, Self::NotPossible, Self::Known, Self::Failed, Self::TimedOut, Self::Crashed];

    /// The word for it in the report that is sent.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NotPossible => "not_possible",
            Self::Known => "known",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Crashed => "crashed",
        }
    }

    /// What people read.
    pub(super) const fn told(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NotPossible => "not possible here",
            Self::Known => "as known of this driver",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Crashed => "crashed",
        }
    }

    /// Whether it is a failure of the device.
    pub(super) const fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut | Self::Crashed)
    }
}

/// A case that has ended, with what is known of its driver.
pub(super) struct Judged<'a> {
    pub(super) kind: Kind,
    /// Why it came to this, if that is known of the driver.
    pub(super) why: Option<&'static str>,
    /// It passed, though the driver was known not to.
    pub(super) is_better: bool,
    driver: Option<&'static Driver>,
    ended: &'a Ended<'a>,
}

impl<'a> Judged<'a> {
    pub(super) fn new(ended: &'a Ended<'a>, driver: Option<&'static Driver>) -> Self {
        let outcome = &ended.outcome;
        let why = driver.and_then(|driver| driver.explains(ended.name, outcome));
        let kind = match outcome {
            Outcome::Passed => Kind::Passed,
            Outcome::Missing(_) if driver.is_none() || why.is_some() => Kind::NotPossible,
            Outcome::Failed { .. } | Outcome::TimedOut { .. } if why.is_some() => Kind::Known,
            Outcome::TimedOut { .. } => Kind::TimedOut,
            Outcome::Crashed { .. } => Kind::Crashed,
            // What the device has not, and had on this driver before.
            _ => Kind::Failed,
        };
        let is_better = *outcome == Outcome::Passed && driver.is_some_and(|driver| driver.spoils(ended.name));
        Self { kind, why, is_better, driver, ended }
    }

    pub(super) const fn name(&self) -> &'a str {
        self.ended.name
    }

    pub(super) fn group(&self) -> &'static str {
        Case::find(self.ended.name).map_or("", |case| case.group)
    }

    pub(super) const fn outcome(&self) -> &'a Outcome {
        &self.ended.outcome
    }

    pub(super) const fn took(&self) -> Duration {
        self.ended.took
    }

    /// The end of what its process said on standard error.
    pub(super) fn said(&self) -> &'a str {
        &self.ended.said
    }

    /// What became of it, in words.
    pub(super) fn text(&self) -> String {
        match (self.outcome(), self.driver) {
            (Outcome::Missing(_), Some(driver)) if self.kind == Kind::Failed => {
                format!("{}, which is not known of the driver {}", self.outcome(), driver.name)
            }
            (outcome, _) => outcome.to_string(),
        }
    }
}
