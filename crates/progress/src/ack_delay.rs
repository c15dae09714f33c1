//! Whether a program answers what the driver takes in for it.
//!
//! A program that spins on its memory makes no calls: the driver takes packets in, and the program answers as
//! soon as it sees them. An acknowledgement that the driver sends at once ends the peer's waiting for it, so
//! the peer turns to its own memory, and needs its own driver for the answer. One that rides with the answer
//! finds the peer still polling, and no driver is needed on either side. But a program that never answers
//! would only be late with every acknowledgement; so it is learned which kind a program is.

use std::time::Duration;

use ferroce_transport::Time;

use crate::table::{ACK_GAIN, ACK_LONGEST, ACK_MOST, ACK_SHORTEST};

/// What is known of one queue pair's program.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckDelay {
    /// Above zero: it answers.
    score: u8,
    /// When the driver took in what is not answered yet.
    taken_in: Option<Time>,
    /// An acknowledgement waits since then.
    waits: bool,
    /// How long answers took of late; longer where everything takes longer, such as in an emulated machine.
    takes: Duration,
}

impl AckDelay {
    /// The driver could acknowledge something. Until when it rather waits; `None` for not at all.
    pub fn wait_until(&mut self, now: Time) -> Option<Time> {
        if !self.waits {
            self.taken_in = Some(now);
            self.waits = self.score > 0;
        }
        let end = self.taken_in? + (self.takes * 2).clamp(ACK_SHORTEST, ACK_LONGEST);
        if self.waits && now < end {
            return Some(end);
        }
        if std::mem::take(&mut self.waits) {
            self.score -= 1;
        }
        None
    }

    /// The program has sent something.
    pub fn sent(&mut self, now: Time) {
        if let Some(then) = self.taken_in.take() {
            self.waits = false;
            let took = now.since(then);
            if took < ACK_LONGEST {
                self.score = (self.score + ACK_GAIN).min(ACK_MOST);
                self.takes = took.max(self.takes - self.takes / 8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000 + micros * 1000)
    }

    #[test]
    fn a_program_that_never_answers_is_never_waited_for() {
        let mut delay = AckDelay::default();
        for round in 0..100 {
            assert_eq!(delay.wait_until(at(round * 10)), None);
        }
        delay.sent(at(5_000));
        assert_eq!(delay.wait_until(at(6000)), None, "that was too late to be an answer");
    }

    #[test]
    fn a_program_that_answers_is_waited_for_until_it_does_not() {
        let mut delay = AckDelay::default();
        assert_eq!(delay.wait_until(at(0)), None);
        delay.sent(at(3));
        assert_eq!(delay.wait_until(at(10)), Some(at(110)));
        assert_eq!(delay.wait_until(at(20)), Some(at(110)), "it waits since the first");
        delay.sent(at(30));
        let mut waits = 0;
        let mut now = 1000;
        while delay.wait_until(at(now)).is_some() {
            waits += 1;
            assert_eq!(delay.wait_until(at(now + 100)), None, "long enough");
            now += 1000;
        }
        assert_eq!(waits, 4, "two answers, and then none");
    }

    #[test]
    fn a_program_that_answers_slowly_is_waited_for_longer() {
        let mut delay = AckDelay::default();
        assert_eq!(delay.wait_until(at(0)), None);
        delay.sent(at(180));
        assert_eq!(delay.wait_until(at(1000)), Some(at(1360)));
        delay.sent(at(1400));
        assert_eq!(delay.wait_until(at(2000)), Some(at(2500)), "but not for ever");
        for round in 3..40 {
            delay.sent(at(round * 1000 + 1));
            assert!(delay.wait_until(at((round + 1) * 1000)).is_some());
        }
        assert!(delay.wait_until(at(40_050)).is_some_and(|end| end < at(40_150)), "faster again");
    }

    #[test]
    fn a_long_score_ends_too() {
        let mut delay = AckDelay::default();
        for round in 0..1000 {
            let _ = delay.wait_until(at(round * 50));
            delay.sent(at(round * 50 + 5));
        }
        assert_eq!(delay.score, ACK_MOST);
    }
}
