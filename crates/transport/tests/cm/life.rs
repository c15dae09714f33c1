//! What a program has heard of one connection, and whether that can be.

use ferroce_transport::Time;
use ferroce_transport::cm::{End, Event, Failure};
use ferroce_wire::mad::CommId;

/// A connection as one program knows it.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) node: usize,
    pub(crate) id: CommId,
    /// For the side that was asked: the side that asked, and its name for the connection.
    pub(crate) asked_by: Option<(usize, CommId)>,
    /// When the wait for an outcome began, and when it has to be over.
    pub(crate) bound: Time,
    pub(crate) stage: Stage,
    /// When the program asked for the end.
    pub(crate) parting_bound: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Begun,
    Replied,
    Stands,
    Failed(Failure),
    Ended(End),
    /// The program let go of it before anything came of it.
    Dropped,
}

impl Life {
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Failed(_) | Stage::Ended(_) | Stage::Dropped)
    }

    /// Takes in what the program hears, and panics if that cannot follow what it heard before.
    pub(crate) fn hears(&mut self, now: Time, event: &Event, latest: &dyn Fn(Time) -> Time) {
        let next = match (&self.stage, event) {
            (Stage::Begun, Event::Replied(_)) if self.asked_by.is_none() => Stage::Replied,
            (Stage::Replied, Event::Established) => Stage::Stands,
            (Stage::Begun, Event::Established) if self.asked_by.is_some() => Stage::Stands,
            (Stage::Begun | Stage::Replied, Event::Failed(failure)) => Stage::Failed(failure.clone()),
            (Stage::Stands, Event::Ended(end)) => {
                if let (End::Here | End::Unanswered, Some(bound)) = (end, self.parting_bound) {
                    assert!(now <= latest(bound), "{self:?} ended late, at {now}");
                }
                Stage::Ended(*end)
            }
            (stage, event) => panic!("{event:?} after {stage:?}: {self:?}"),
        };
        if matches!(self.stage, Stage::Begun | Stage::Replied) && next != Stage::Replied {
            assert!(now <= latest(self.bound), "{self:?} became {next:?} late, at {now}");
        }
        self.stage = next;
    }
}
