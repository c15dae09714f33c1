//! Whether a task that waits looks again in a moment, or sleeps.
//!
//! To be woken takes a task longer than most answers take to come: the device's thread has to wake for the packet, and
//! then the thread of the runtime. So for a moment after a connection had something to do, its tasks only let others
//! go first and look again. They do so as long as that pays, and so take in by themselves what comes.
//!
//! A look in vain costs its time, which the peer may have needed. So after one there is no other before tasks have slept
//! for some answers, for twice as many each time.

use std::time::Duration;

use ferroce_verbs::time::Time;

/// What one end knows of how its tasks pass their time.
#[derive(Debug)]
pub(crate) struct Looking {
    /// Something was done since a task waited last.
    stirred: bool,
    wait: Wait,
    /// What had arrived when it began.
    arrived: u64,
    /// What had happened at the last look.
    seen: Happened,
    /// Above zero: it pays.
    score: u8,
    /// Sleeps until it is tried again, and how many it will be the next time.
    rests: u16,
    next_rests: u16,
}

/// What has happened on a connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Happened {
    /// Messages and answers that have come.
    pub(crate) arrivals: u64,
    /// Work that is done.
    pub(crate) done: u64,
}

/// How tasks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    None,
    /// They look, until then.
    Looks(Time),
    Sleeps,
}

/// What a look that found something adds to the score; one in vain takes 1 away.
const GAIN: u8 = 2;
/// The highest score.
const MOST: u8 = 16;
/// Sleeps after a look in vain, until the next is tried: at first, and at most.
const RESTS: u16 = 4;
const RESTS_MOST: u16 = 512;

impl Looking {
    pub(crate) const fn new() -> Self {
        let seen = Happened { arrivals: 0, done: 0 };
        let (arrived, score, rests) = (0, 1, 0);
        Self { stirred: true, wait: Wait::None, arrived, seen, score, rests, next_rests: RESTS }
    }

    /// A call of a task was done.
    pub(crate) const fn stir(&mut self) {
        self.stirred = true;
    }

    /// Whether a task that has nothing to do looks again: so long after anything has happened.
    pub(crate) fn looks_again(&mut self, time: Duration, happened: Happened, now: impl Fn() -> Time) -> bool {
        if std::mem::take(&mut self.stirred) {
            if happened.arrivals != self.arrived {
                self.has_come();
            }
            (self.arrived, self.seen) = (happened.arrivals, happened);
            let looks = !time.is_zero() && (self.score > 0 || self.rests == 0);
            self.wait = if looks { Wait::Looks(now() + time) } else { Wait::Sleeps };
            return looks;
        }
        let Wait::Looks(end) = self.wait else { return false };
        let now = now();
        if std::mem::replace(&mut self.seen, happened) != happened {
            self.wait = Wait::Looks(now + time);
        } else if now >= end {
            self.look_was_in_vain();
            self.wait = Wait::Sleeps;
            return false;
        }
        true
    }

    /// What was waited for has come.
    fn has_come(&mut self) {
        match self.wait {
            Wait::None => {}
            Wait::Looks(_) => {
                self.score = (self.score + GAIN).min(MOST);
                self.next_rests = (self.next_rests / 2).max(RESTS);
            }
            Wait::Sleeps => self.rests = self.rests.saturating_sub(1),
        }
    }

    const fn look_was_in_vain(&mut self) {
        self.score = self.score.saturating_sub(1);
        if self.score == 0 {
            self.rests = self.next_rests;
            self.next_rests = if self.next_rests < RESTS_MOST { self.next_rests * 2 } else { RESTS_MOST };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_micros(50);

    const fn at(micros: u64) -> impl Fn() -> Time {
        move || Time::from_nanos(micros * 1000)
    }

    const fn arrived(arrivals: u64) -> Happened {
        Happened { arrivals, done: 0 }
    }

    /// A connection with a peer that answers each question after some microseconds: so many if its task looks, so many
    /// if it sleeps.
    struct Talk {
        looking: Looking,
        now: u64,
        arrived: u64,
    }

    impl Talk {
        const fn new() -> Self {
            Self { looking: Looking::new(), now: 0, arrived: 0 }
        }

        /// How many of so many answers were looked for.
        fn ask(&mut self, count: u32, looked: u64, slept: u64) -> u32 {
            let mut looks = 0;
            for _ in 0..count {
                self.looking.stir();
                let looks_now = self.looking.looks_again(MOMENT, arrived(self.arrived), at(self.now));
                looks += u32::from(looks_now);
                if looks_now && looked >= 50 {
                    assert!(!self.looking.looks_again(MOMENT, arrived(self.arrived), at(self.now + 50)));
                }
                self.now += if looks_now { looked } else { slept };
                self.arrived += 1;
            }
            looks
        }
    }

    #[test]
    fn it_looks_for_a_moment_after_each_stir_and_then_sleeps() {
        let mut looking = Looking::new();
        assert!(looking.looks_again(MOMENT, arrived(0), at(0)));
        assert!(looking.looks_again(MOMENT, arrived(0), at(49)));
        assert!(!looking.looks_again(MOMENT, arrived(0), at(50)));
        assert!(!looking.looks_again(MOMENT, arrived(1), at(51)), "no call was done since");
        assert!(!Looking::new().looks_again(Duration::ZERO, arrived(0), at(0)), "there is no time to look");
    }

    #[test]
    fn it_looks_on_while_work_is_done() {
        let mut looking = Looking::new();
        assert!(looking.looks_again(MOMENT, arrived(0), at(0)));
        assert!(looking.looks_again(MOMENT, Happened { arrivals: 0, done: 1 }, at(60)));
        assert!(looking.looks_again(MOMENT, Happened { arrivals: 0, done: 1 }, at(109)));
        assert!(!looking.looks_again(MOMENT, Happened { arrivals: 0, done: 1 }, at(110)));
    }

    #[test]
    fn it_looks_while_answers_come_soon() {
        assert_eq!(Talk::new().ask(1000, 20, 60), 1000);
    }

    #[test]
    fn a_peer_that_is_slow_is_mostly_slept_for() {
        let mut talk = Talk::new();
        talk.ask(1000, 20, 60);
        assert!(talk.ask(1000, 1000, 1000) <= 30);
        assert!(talk.ask(10_000, 1000, 1000) <= 20);
    }

    #[test]
    fn it_looks_again_when_answers_come_soon_again() {
        let mut talk = Talk::new();
        talk.ask(20, 1000, 1000);
        assert!(talk.ask(1000, 20, 60) > 950);
    }

    #[test]
    fn a_peer_that_needs_this_very_processor_is_hardly_disturbed() {
        // The answer comes when the look is over.
        assert!(Talk::new().ask(10_000, 60, 30) <= 40);
    }
}
