//! Whether a thread that polls in vain lets others have its processor.
//!
//! Where there are more threads than processors, the peer that a program waits for may be waiting for the program's own
//! processor: then nothing comes until the scheduler takes it away, some milliseconds later. So a thread that has polled in
//! vain for a while lets others run. Where no other thread wants to run, this takes less than a poll. Where a peer does, it
//! runs for a moment and gives the processor back as it waits in its turn. But a program that computes runs for as
//! long as the scheduler lets it, and what the thread gave away does not come back; so where this took long again and
//! again, it is tried only now and then.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ferroce_transport::Time;

use crate::table::{YIELD_AFTER, YIELD_BRIEF, YIELD_FREE, YIELD_GAIN, YIELD_MOST, YIELD_RETRY};

/// What has been learned of whether it pays to let others run. Only an estimate: threads that poll at once count as one.
#[derive(Debug)]
pub struct Courtesy {
    /// The last poll that found something, by its number.
    found: AtomicU64,
    /// Above zero: it pays.
    score: AtomicU32,
    /// When it is tried again although it did not pay, in nanoseconds.
    retry: AtomicU64,
}

impl Courtesy {
    /// An estimate that knows nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { found: AtomicU64::new(0), score: AtomicU32::new(YIELD_GAIN), retry: AtomicU64::new(0) }
    }

    /// The poll of this number found something.
    #[inline]
    pub fn found(&self, poll: u64) {
        self.found.store(poll, Ordering::Relaxed);
    }

    /// The poll of this number found nothing. Whether to let others run now; if so, [`has_waited`](Self::has_waited) has to
    /// follow.
    #[inline]
    #[must_use]
    pub fn is_due(&self, poll: u64, now: impl FnOnce() -> Time) -> bool {
        poll.is_multiple_of(YIELD_AFTER)
            && poll.saturating_sub(self.found.load(Ordering::Relaxed)) >= YIELD_AFTER
            && (self.score.load(Ordering::Relaxed) > 0 || now().nanos() >= self.retry.load(Ordering::Relaxed))
    }

    /// The thread has let others run from one time to the other.
    pub fn has_waited(&self, from: Time, to: Time) {
        let (took, score) = (to.since(from), self.score.load(Ordering::Relaxed));
        if took < YIELD_FREE {
            return;
        }
        if took <= YIELD_BRIEF {
            self.score.store((score + YIELD_GAIN).min(YIELD_MOST), Ordering::Relaxed);
        } else {
            self.score.store(score.saturating_sub(1), Ordering::Relaxed);
            self.retry.store((to + YIELD_RETRY).nanos(), Ordering::Relaxed);
        }
    }
}

impl Default for Courtesy {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_millis(4);
    const BRIEF: Duration = Duration::from_micros(100);
    const FREE: Duration = Duration::from_nanos(400);

    /// A thread that polls in vain for so long, a poll a microsecond; how often it let others run, each time for so long.
    fn poll(courtesy: &Courtesy, now: &mut Time, polls: u64, took: Duration) -> u32 {
        let mut times = 0;
        let first = now.nanos() / 1000 * YIELD_AFTER;
        courtesy.found(first);
        for poll in first + 1..=first + polls {
            *now = *now + Duration::from_micros(1);
            if courtesy.is_due(poll, || *now) {
                courtesy.has_waited(*now, *now + took);
                *now = *now + took;
                times += 1;
            }
        }
        times
    }

    #[test]
    fn others_run_after_many_polls_in_vain_and_not_after_one_that_found_something() {
        let courtesy = Courtesy::new();
        let now = || Time::from_nanos(1);
        assert!(!courtesy.is_due(YIELD_AFTER - 1, now));
        assert!(courtesy.is_due(YIELD_AFTER, now));
        courtesy.found(YIELD_AFTER + 1);
        assert!(!courtesy.is_due(2 * YIELD_AFTER, now), "something was found since");
        assert!(courtesy.is_due(3 * YIELD_AFTER, now));
    }

    #[test]
    fn what_costs_nothing_or_little_goes_on() {
        let courtesy = Courtesy::new();
        let mut now = Time::from_nanos(1000);
        assert_eq!(poll(&courtesy, &mut now, 1000 * YIELD_AFTER, FREE), 1000);
        assert_eq!(poll(&courtesy, &mut now, 1000 * YIELD_AFTER, BRIEF), 1000);
        assert_eq!(courtesy.score.load(Ordering::Relaxed), YIELD_MOST);
    }

    #[test]
    fn a_program_that_computes_is_given_little_and_tried_now_and_then() {
        let courtesy = Courtesy::new();
        let mut now = Time::from_nanos(1000);
        // Two seconds of polls.
        let polls = 2_000_000;
        let given = poll(&courtesy, &mut now, polls, LONG);
        assert!((20..=30).contains(&given), "{given} times {LONG:?} in two seconds");
        // A peer on the same processor: the next try shows it.
        assert!(poll(&courtesy, &mut now, 200_000, BRIEF) > 1000);
        // A peer that has the processor every other time.
        let mut mixed = 0;
        for round in 0..1000 {
            mixed += poll(&courtesy, &mut now, YIELD_AFTER, if round % 2 == 0 { LONG } else { BRIEF });
        }
        assert_eq!(mixed, 1000, "it pays on the whole");
    }
}
