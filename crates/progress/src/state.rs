//! The state of an engine's driver in one word, and the policy that changes it.

use crate::table::{FOUND_IN_DOUBT, PARK_AFTER, PARK_AFTER_ASKED, PARK_AFTER_FINDING, PERMITS};

/// Which threads watch the sockets of an engine, and the evidence for changing that.
///
/// It is a value: the policy makes the next one of it and of an [`Event`], and [`Duty`](crate::Duty) keeps
/// the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The sockets wake the driver. If they do not, it is parked, or a thread sits in its place.
    pub armed: bool,
    /// A thread of the program sleeps on the sockets, in the driver's place.
    pub seated: bool,
    /// The driver is to end.
    pub stopped: bool,
    /// The driver was armed by a poll that found packets, and no program has polled since.
    pub unpolled: bool,
    /// Polls that found nothing since the driver was last armed, [`PARK_AFTER_ASKED`] at most.
    pub empty: u8,
    /// Polls that found something since the driver was last armed, [`PARK_AFTER_FINDING`] at most.
    pub found: u8,
    /// Polls that find packets and may arm the driver.
    pub permits: u8,
}

/// What a thread has seen, or begins to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A program found completions without looking at the sockets.
    Found,
    /// A program looked at the sockets, and packets had come or not.
    Polled {
        /// Packets had come.
        received: bool,
    },
    /// A program goes to sleep, or leaves a waker, and relies on the driver.
    Sleep,
    /// A thread wants to sleep on the sockets itself.
    Sit,
    /// The thread that slept on the sockets is awake.
    Rise,
    /// The driver found that the program polls no more.
    Gone,
    /// The driver took packets in.
    Received,
    /// The device is closed.
    Stop,
}

/// What else the policy has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// A thread or a future of the program sleeps and relies on the driver: it must not be parked.
    pub(crate) is_relied_on: bool,
    /// The program has asked for an event on a channel, and a thread of it may sleep for that.
    pub(crate) is_asked: bool,
    /// The program was found gone a moment ago.
    pub(crate) is_doubted: bool,
}

impl State {
    /// A driver of a new engine is armed.
    pub const NEW: Self =
        Self { armed: true, seated: false, stopped: false, unpolled: false, empty: 0, found: 0, permits: 0 };

    /// Whether no sleeping thread is woken by a packet: programs have to poll.
    #[must_use]
    pub const fn is_parked(self) -> bool {
        !self.armed && !self.seated
    }

    /// Whether polls that found something, so many of them, have shown that no driver is needed.
    pub(crate) const fn is_kept_busy(self) -> bool {
        self.armed && self.found >= PARK_AFTER_FINDING
    }

    /// Whether this is the next state, too, after a program looked at the sockets, whatever else there is to
    /// know: no driver is armed, and a poll is no news. A program that polls comes here most of the time.
    #[inline]
    pub(crate) const fn stays_after_poll(self, received: bool) -> bool {
        let is_news = if received { self.permits > 0 } else { self.empty < PARK_AFTER || self.found > 0 };
        !self.armed && !self.unpolled && !is_news
    }

    /// The next state.
    pub(crate) const fn after(self, event: Event, facts: Facts) -> Self {
        match event {
            Event::Found => self.found(facts),
            Event::Polled { received: true } => {
                if !self.armed && self.permits > 0 {
                    return Self { permits: self.permits - 1, unpolled: true, ..self.armed() };
                }
                Self { unpolled: false, ..self }.found(facts)
            }
            Event::Polled { received: false } => {
                let most = if self.armed { PARK_AFTER_ASKED } else { PARK_AFTER };
                let empty = if self.empty < most { self.empty + 1 } else { self.empty };
                let next = Self { empty, unpolled: false, ..self };
                let is_enough = if facts.is_asked {
                    // Whether the program is doubted is asked only from then on, since that takes a clock.
                    self.asks_and_polls() && (!facts.is_doubted || self.found >= FOUND_IN_DOUBT)
                } else {
                    empty >= PARK_AFTER
                };
                if is_enough && !facts.is_relied_on { next.parked() } else { next }
            }
            Event::Sleep => Self { unpolled: self.unpolled && self.armed, ..self.armed() },
            Event::Sit => {
                if self.seated || facts.is_relied_on || facts.is_asked {
                    return self;
                }
                Self { seated: true, ..self.parked() }
            }
            Event::Rise => Self { seated: false, ..self },
            Event::Gone => {
                if self.is_parked() {
                    return Self { permits: PERMITS, ..self.armed() };
                }
                self
            }
            Event::Received => {
                if self.unpolled && self.permits > 0 {
                    return Self { permits: PERMITS, ..self };
                }
                self
            }
            Event::Stop => Self { stopped: true, ..self },
        }
    }

    const fn found(self, facts: Facts) -> Self {
        if !self.armed {
            return self;
        }
        if self.found < PARK_AFTER_FINDING {
            return Self { found: self.found + 1, ..self };
        }
        // Whether the program is doubted is asked only now, since that takes a clock.
        let next = Self { found: 0, ..self };
        let needs_driver = facts.is_doubted || facts.is_relied_on || facts.is_asked;
        if needs_driver { next } else { next.parked() }
    }

    /// Whether so many polls found nothing that the program polls, even if it has asked for an event.
    pub(crate) const fn asks_and_polls(self) -> bool {
        self.armed && self.empty >= PARK_AFTER_ASKED
    }

    const fn armed(self) -> Self {
        Self { armed: true, empty: 0, found: 0, ..self }
    }

    const fn parked(self) -> Self {
        Self { armed: false, unpolled: false, found: 0, ..self }
    }

    pub(crate) const fn pack(self) -> u32 {
        let flags = self.armed as u8
            | (self.seated as u8) << 1
            | (self.stopped as u8) << 2
            | (self.unpolled as u8) << 3;
        u32::from_le_bytes([flags, self.empty, self.found, self.permits])
    }

    pub(crate) const fn unpack(word: u32) -> Self {
        let [flags, empty, found, permits] = word.to_le_bytes();
        Self {
            armed: flags & 1 != 0,
            seated: flags & 2 != 0,
            stopped: flags & 4 != 0,
            unpolled: flags & 8 != 0,
            empty,
            found,
            permits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Event = Event::Polled { received: false };
    const FULL: Event = Event::Polled { received: true };
    const ALONE: Facts = Facts { is_relied_on: false, is_asked: false, is_doubted: false };
    const RELIED_ON: Facts = Facts { is_relied_on: true, ..ALONE };
    const ASKED: Facts = Facts { is_asked: true, ..ALONE };
    const DOUBTED: Facts = Facts { is_doubted: true, ..ALONE };

    fn run(state: State, event: Event, times: u32, facts: Facts) -> State {
        (0..times).fold(state, |state, _| state.after(event, facts))
    }

    #[test]
    fn a_state_is_one_word() {
        let state = State { seated: true, unpolled: true, empty: 3, found: 64, permits: 16, ..State::NEW };
        assert_eq!(State::unpack(state.pack()), state);
        let state = State { armed: false, stopped: true, ..State::NEW };
        assert_eq!(State::unpack(state.pack()), state);
    }

    #[test]
    fn polls_in_vain_park_the_driver_unless_a_thread_relies_on_it() {
        let few = run(State::NEW, EMPTY, u32::from(PARK_AFTER) - 1, ALONE);
        assert!(few.armed);
        assert!(few.after(EMPTY, ALONE).is_parked());
        let relied_on = run(State::NEW, EMPTY, 1000, RELIED_ON);
        assert!(relied_on.armed);
        assert!(relied_on.after(EMPTY, ALONE).is_parked(), "at once, when that thread is awake");
    }

    #[test]
    fn a_program_that_asks_for_an_event_and_polls_on_needs_no_driver() {
        let few = run(State::NEW, EMPTY, u32::from(PARK_AFTER_ASKED), ASKED);
        assert!(few.armed);
        assert!(few.after(EMPTY, ASKED).is_parked());
        assert!(few.after(Event::Sleep, ASKED).after(EMPTY, ASKED).armed, "it has asked again");
        assert!(few.after(EMPTY, Facts { is_relied_on: true, ..ASKED }).armed);
        let doubted = few.after(EMPTY, Facts { is_doubted: true, ..ASKED });
        assert!(doubted.armed && doubted.after(EMPTY, ASKED).is_parked());
        let finds = run(doubted, FULL, u32::from(FOUND_IN_DOUBT), ASKED);
        assert!(
            finds.after(EMPTY, Facts { is_doubted: true, ..ASKED }).is_parked(),
            "one that sleeps asks again"
        );
        assert!(run(State::NEW, FULL, 1000, ASKED).armed, "only what is in vain shows it");
        assert_eq!(State::NEW.after(Event::Sit, ASKED), State::NEW);
    }

    #[test]
    fn polls_that_find_something_park_the_driver_later_and_not_one_that_is_doubted() {
        let many = run(State::NEW, Event::Found, u32::from(PARK_AFTER_FINDING), ALONE);
        assert!(many.armed && many.is_kept_busy());
        assert!(many.after(Event::Found, ALONE).is_parked());
        let doubted = many.after(FULL, DOUBTED);
        assert!(doubted.armed && !doubted.is_kept_busy(), "it has to show it again");
        assert!(run(State::NEW, FULL, 1000, RELIED_ON).armed);
    }

    #[test]
    fn a_program_that_was_found_gone_arms_the_driver_with_what_it_finds() {
        let parked = run(State::NEW, EMPTY, 4, ALONE);
        assert!(parked.after(FULL, ALONE).is_parked(), "without a permit it stays parked");
        let gone = parked.after(Event::Gone, ALONE);
        assert_eq!((gone.armed, gone.permits), (true, PERMITS));
        let armed = run(gone, EMPTY, 4, ALONE).after(FULL, ALONE);
        assert_eq!((armed.armed, armed.unpolled, armed.permits), (true, true, PERMITS - 1));
        assert_eq!(
            armed.after(Event::Received, ALONE).permits,
            PERMITS,
            "it was right: the driver took it in"
        );
        let polled = armed.after(EMPTY, ALONE);
        assert_eq!(
            polled.after(Event::Received, ALONE).permits,
            PERMITS - 1,
            "it was wrong: the program came"
        );
        let mut state = gone;
        for _ in 0..PERMITS {
            state = run(state, EMPTY, 4, ALONE).after(FULL, ALONE);
            assert!(state.armed);
        }
        assert!(run(state, EMPTY, 4, ALONE).after(FULL, ALONE).is_parked(), "they are used up");
    }

    #[test]
    fn a_poll_that_is_no_news_changes_nothing_and_one_of_a_parked_driver_soon_is_none() {
        for flags in 0..16 {
            for (empty, found, permits) in
                [(0, 0, 0), (3, 0, 0), (4, 0, 0), (4, 1, 0), (4, 0, 1), (4, 64, 16), (250, 0, 0)]
            {
                let state = State::unpack(u32::from_le_bytes([flags, empty, found, permits]));
                for (received, event) in [(false, EMPTY), (true, FULL)] {
                    let changes = [ALONE, RELIED_ON, ASKED, DOUBTED]
                        .iter()
                        .any(|facts| state.after(event, *facts) != state);
                    assert!(!changes || !state.stays_after_poll(received), "{state:?}, {event:?}");
                }
            }
        }
        let parked = run(State::NEW, EMPTY, u32::from(PARK_AFTER), ALONE);
        assert!(parked.stays_after_poll(false) && parked.stays_after_poll(true));
        let busy = run(State::NEW, Event::Found, u32::from(PARK_AFTER_FINDING) + 1, ALONE);
        assert!(busy.is_parked() && !busy.stays_after_poll(false), "polls in vain are counted still");
        assert!(run(busy, EMPTY, u32::from(PARK_AFTER), ALONE).stays_after_poll(false));
        assert!(!parked.after(Event::Sleep, RELIED_ON).stays_after_poll(false));
    }

    #[test]
    fn one_thread_sits_in_the_place_of_a_driver_that_no_other_relies_on() {
        let seated = State::NEW.after(Event::Sit, ALONE);
        assert_eq!((seated.armed, seated.seated, seated.is_parked()), (false, true, false));
        assert_eq!(seated.after(Event::Sit, ALONE), seated);
        assert_eq!(State::NEW.after(Event::Sit, RELIED_ON), State::NEW);
        assert_eq!(seated.after(Event::Gone, ALONE), seated, "a thread that sleeps on the sockets is there");
        let both = seated.after(Event::Sleep, RELIED_ON);
        assert!(both.armed && both.seated);
        assert!(both.after(Event::Rise, RELIED_ON).armed);
        assert!(seated.after(Event::Rise, ALONE).is_parked());
    }
}
