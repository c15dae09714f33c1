//! What a driver knows of the program, and what it does about it.

use ferroce_transport::Time;

use crate::state::State;
use crate::table::{QUIET_LOOKS, TICK};

/// What the driver knows of a program that polls for itself.
#[derive(Clone, Debug)]
pub struct Program {
    /// How often it had polled, or risen from the driver's place, and when that was seen to change.
    polls: u64,
    since: Time,
    /// Looks without a poll in between.
    quiet: u32,
}

/// What a driver sees of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The program has polled since.
    Polling,
    /// The program has not polled since, but it had no tick to do so: a driver that is woken twice in a
    /// moment, perhaps on the program's own processor, learns nothing from the second time.
    TooEarly,
    /// The program has not polled since.
    Gone,
}

impl Program {
    /// A program that has not polled yet.
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self { polls: 0, since: now, quiet: QUIET_LOOKS }
    }

    /// What to think of a program that has polled so often by now.
    pub fn see(&mut self, polls: u64, now: Time) -> Seen {
        if polls != self.polls {
            *self = Self { polls, since: now, quiet: 0 };
            return Seen::Polling;
        }
        if now < self.since + TICK {
            return Seen::TooEarly;
        }
        self.since = now;
        self.quiet = self.quiet.saturating_add(1);
        Seen::Gone
    }

    /// When to look at the program again; `None` for not by itself. While another thread is woken by packets,
    /// the looks become rarer and end: whatever parks the driver sees to it that it looks within a tick.
    #[must_use]
    pub fn next_look(&self, state: State) -> Option<Time> {
        if state.is_parked() {
            return Some(self.since + TICK);
        }
        (self.quiet < QUIET_LOOKS).then(|| self.since + TICK * (1 << self.quiet))
    }
}

/// What a driver that has woken does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The driver takes over from a program that polls no more: [`Event::Gone`](crate::Event::Gone).
    pub takes_over: bool,
    /// The driver doubts the program for a while from now on.
    pub doubts: bool,
    /// The driver turns the engine.
    pub turns: bool,
}

impl Plan {
    /// What to do after that was seen. A program that is doubted is not given the benefit of a tick.
    #[must_use]
    pub fn new(state: State, seen: Seen, is_doubted: bool) -> Self {
        let is_gone = seen == Seen::Gone || (seen == Seen::TooEarly && is_doubted);
        let takes_over = state.is_parked() && is_gone;
        // A thread that sits in the driver's place sleeps, and sees to no timers.
        Self { takes_over, doubts: takes_over && seen == Seen::Gone, turns: !state.is_parked() || is_gone }
    }
}

/// When a driver has to wake for an engine that wants to be turned at this time. One that is parked looks
/// once a tick anyway, and the program that polls runs the timers itself, if late.
#[must_use]
pub fn due(state: State, wanted: Time, now: impl FnOnce() -> Time) -> Time {
    if state.is_parked() { wanted.max(now()) + TICK } else { wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    #[test]
    fn a_driver_that_wakes_twice_in_a_tick_does_not_take_the_program_for_gone() {
        let mut program = Program::new(at(0));
        let parked = State { armed: false, ..State::NEW };
        assert_eq!(program.see(5, at(1000)), Seen::Polling);
        assert_eq!(program.see(5, at(1020)), Seen::TooEarly);
        assert_eq!(program.see(5, at(1999)), Seen::TooEarly);
        assert_eq!(program.next_look(parked), Some(at(2000)));
        assert_eq!(program.see(5, at(2000)), Seen::Gone);
        assert_eq!(program.quiet, 1);
        assert_eq!(program.see(6, at(2010)), Seen::Polling);
        assert_eq!((program.quiet, program.next_look(parked)), (0, Some(at(3010))));
    }

    #[test]
    fn an_armed_driver_looks_ever_more_rarely_and_then_not_at_all() {
        let mut program = Program::new(Time::ZERO);
        assert_eq!(program.see(1, Time::ZERO), Seen::Polling);
        let mut ticks = 0;
        for look in 0..QUIET_LOOKS {
            ticks += 1 << look;
            let now = program.next_look(State::NEW).unwrap();
            assert_eq!(now, Time::ZERO + TICK * ticks);
            assert_eq!(program.see(1, now), Seen::Gone);
        }
        assert_eq!(program.next_look(State::NEW), None);
        assert!(program.next_look(State { armed: false, ..State::NEW }).is_some(), "a parked one never does");
    }

    #[test]
    fn a_driver_turns_the_engine_unless_the_program_polls() {
        let parked = State { armed: false, ..State::NEW };
        let seated = State { seated: true, ..parked };
        let idle = Plan { takes_over: false, doubts: false, turns: false };
        assert_eq!(Plan::new(parked, Seen::Polling, true), idle);
        assert_eq!(Plan::new(parked, Seen::TooEarly, false), idle);
        let takes_over = Plan { takes_over: true, doubts: false, turns: true };
        assert_eq!(Plan::new(parked, Seen::TooEarly, true), takes_over, "it was caught a moment ago");
        assert_eq!(Plan::new(parked, Seen::Gone, false), Plan { doubts: true, ..takes_over });
        for state in [State::NEW, seated] {
            for seen in [Seen::Polling, Seen::TooEarly, Seen::Gone] {
                assert_eq!(Plan::new(state, seen, true), Plan { turns: true, ..idle });
            }
        }
    }

    #[test]
    fn what_a_parked_driver_is_needed_for_waits_a_tick() {
        let parked = State { armed: false, ..State::NEW };
        assert_eq!(due(State::NEW, at(50), || at(100)), at(50));
        assert_eq!(due(parked, at(50), || at(100)), at(1100));
        assert_eq!(due(parked, at(500), || at(100)), at(1500));
    }
}
