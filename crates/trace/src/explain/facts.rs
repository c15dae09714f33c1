//! What is known of a queue pair, and of a queue of receives, at a moment.

use ferroce_record::{ConnectionStep, QueuePair, StateChange, Step, Wait, Way, WorkOp};
use ferroce_transport::{State, Status};
use ferroce_wire::Psn;

use crate::glance::Target;

/// How often something happened, and when first and last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Tally {
    pub(super) const fn add(&mut self, time: u64) {
        if self.count == 0 {
            self.first = time;
        }
        self.count += 1;
        self.last = time;
    }

    pub(super) const fn is_none(&self) -> bool {
        self.count == 0
    }
}

/// What is known of a queue pair.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) way: Option<Way>,
    /// The state that it is in, since when, and whether the program asked for it.
    pub(super) state: Option<(State, u64, bool)>,
    /// The shared receive queue that it takes from.
    pub(super) shared: Option<u32>,
    /// Whether it was there before the record began.
    pub(super) is_earlier: bool,
    pub(super) gone: Option<u64>,
    /// Whether one of the ends has ended its connection.
    pub(super) ended: Option<(u64, ConnectionStep)>,
    pub(super) first_error: Option<(u64, u32, WorkOp, Status)>,
    pub(super) flushed: Tally,
    /// What the first of them were flushed for, if the queue pair was reset since.
    pub(super) flushed_for: Option<Cause>,
    pub(super) wait: Option<(u64, Wait)>,
    /// Requests that left, and answers that came.
    pub(super) asked: Tally,
    pub(super) answered: Tally,
    /// Requests of the peer that came.
    pub(super) wanted: Tally,
    pub(super) repeats: Tally,
    pub(super) taken: Tally,
    pub(super) timeouts: Tally,
    pub(super) probes: Tally,
    pub(super) rnr_came: Tally,
    pub(super) rnr_sent: Tally,
    /// NAKs for a gap in the sequence: of the peer, and ours.
    pub(super) gaps_told: Tally,
    pub(super) gaps_seen: Tally,
    /// Attempts of the last time-out, and how many there may be.
    pub(super) tries: Option<(u8, u8)>,
    pub(super) rnr_tries: Option<(u8, u8)>,
    /// When a request of the peer was refused last, and which.
    pub(super) refused: Option<(u64, Psn)>,
    /// The memory that the peer named last.
    pub(super) target: Option<Target>,
    /// Bytes of the message that came last.
    pub(super) message: u64,
}

/// What work may be flushed for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    pub(super) first_error: Option<(u64, u32, WorkOp, Status)>,
    pub(super) ended: Option<(u64, ConnectionStep)>,
    pub(super) state: Option<(State, u64, bool)>,
}

impl Facts {
    /// What work is flushed for in this life.
    pub(super) const fn cause(&self) -> Cause {
        Cause { first_error: self.first_error, ended: self.ended, state: self.state }
    }

    pub(super) const fn change(&mut self, time: u64, change: &StateChange) {
        let cause = self.cause();
        self.state = Some((change.to, time, change.is_asked));
        if matches!(change.to, State::Reset) {
            // What comes now is another life.
            if self.flushed.count > 0 && self.flushed_for.is_none() {
                self.flushed_for = Some(cause);
            }
            self.first_error = None;
            self.ended = None;
            self.wait = None;
        }
    }

    pub(super) fn made(&mut self, time: u64, pair: &QueuePair) {
        match pair.step {
            Step::Gone => self.gone = Some(time),
            Step::Made | Step::Earlier => {
                // Numbers come again.
                let way = self.way.filter(|_| pair.step == Step::Earlier);
                *self = Self {
                    way,
                    shared: pair.shared,
                    is_earlier: pair.step == Step::Earlier,
                    state: Some((pair.state, time, true)),
                    ..Self::default()
                };
            }
        }
    }
}

/// What is known of a queue of receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Receives {
    pub(super) posted: Tally,
    pub(super) waiting: u64,
}

impl Receives {
    pub(super) const fn post(&mut self, time: u64) {
        self.posted.add(time);
        self.waiting += 1;
    }

    pub(super) const fn end(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }
}
