//! Times of the kernel in completions: when datagrams really left and came.
//!
//! A completion says when its turn began, which is before a packet leaves and may be before one has come. A queue pair that
//! asks for stamps hears of a send when the kernel has said at what time the packet was given to the interface, and
//! of a receive with the time at which the kernel got it. The kernel stamps on the wall's clock, completions are timed on
//! the device's: both are read together once a turn.

use std::collections::VecDeque;
use std::time::{Duration, UNIX_EPOCH};

use ferroce_sys::clock::ClockReading;
use ferroce_transport::{Completion, Time, TimeSource};

use super::path_report::PathReport;

/// How long a completion waits for its stamp. Interfaces stamp within microseconds, but a packet may wait for
/// the address of its neighbour before. An interface that never stamps must not keep completions back for ever.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often stamps are looked for that nothing has told of.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Change of the wall's clock against the device's between two readings that is no step: clocks are slewed by up to
/// half a thousandth, and readings are not exact.
const SLEW: u32 = 1000;
const SLACK: Duration = Duration::from_micros(200);

/// The sends of a queue pair whose completions wait for stamps, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Held {
    waiting: VecDeque<Waiting>,
    next: u16,
    /// Datagrams of the queue pair that were sent back.
    pub(crate) reports: VecDeque<PathReport>,
}

#[derive(Debug)]
struct Waiting {
    /// The packet, if there is one that left.
    number: Option<u16>,
    /// The number of the send, and how it ended.
    completion: Option<(u32, Completion)>,
    left: Option<(Time, TimeSource)>,
    /// When it was handed to the network; at first, when it was about to be.
    sent: Time,
    /// Whether it has been.
    handed: bool,
}

impl Held {
    /// A packet is about to leave: its number.
    pub(super) fn leaves(&mut self, now: Time) -> u16 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.waiting.push_back(Waiting {
            number: Some(number),
            completion: None,
            left: None,
            sent: now,
            handed: false,
        });
        number
    }

    /// A packet left without a stamp to come, or did not leave at all.
    pub(super) fn left_at(&mut self, number: u16, time: Time, source: TimeSource) {
        let of_it = |waiting: &&mut Waiting| waiting.number == Some(number) && waiting.left.is_none();
        if let Some(waiting) = self.waiting.iter_mut().find(of_it) {
            waiting.left = Some((time, source));
        }
    }

    /// The work of the oldest packet without a completion is done, or work that has sent none has failed.
    pub(super) fn done(&mut self, send: u32, completion: Completion, now: Time) {
        let completion = (send, completion);
        match self.waiting.iter_mut().find(|waiting| waiting.completion.is_none()) {
            Some(waiting) => waiting.completion = Some(completion),
            None => {
                let left = Some((now, TimeSource::Turn));
                self.waiting.push_back(Waiting {
                    number: None,
                    completion: Some(completion),
                    left,
                    sent: now,
                    handed: true,
                });
            }
        }
    }

    /// All packets that were handed to the network have been by this time. Those that had been before keep
    /// their time, or they would be waited for as long as this is called.
    pub(super) fn handed_over(&mut self, time: Time) {
        for waiting in self.waiting.iter_mut().rev().take_while(|waiting| !waiting.handed) {
            waiting.handed = true;
            if waiting.left.is_none() {
                waiting.sent = waiting.sent.max(time);
            }
        }
    }

    /// The oldest completion, if its time is known or has been waited for long enough.
    pub(super) fn pop(&mut self, now: Time) -> Option<(u32, Completion)> {
        let Waiting { completion, left, sent, .. } = self.waiting.front()?;
        let is_over = *sent + PATIENCE <= now;
        let (time, time_source) = match left {
            Some(left) => *left,
            None if is_over => (*sent, TimeSource::AfterCall),
            None => return None,
        };
        let (send, completion) = (*completion)?;
        let completion = Completion { time, time_source, ..completion };
        self.waiting.pop_front();
        Some((send, completion))
    }

    /// The oldest completion, whether its time is known or not: the queue pair is going.
    pub(super) fn pop_at_once(&mut self) -> Option<(u32, Completion)> {
        while let Some(Waiting { completion, left, sent, .. }) = self.waiting.pop_front() {
            if let Some((send, completion)) = completion {
                let (time, time_source) = left.unwrap_or((sent, TimeSource::AfterCall));
                return Some((send, Completion { time, time_source, ..completion }));
            }
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// What the wall's clock shows at times of the device.
#[derive(Debug, Default)]
pub(super) struct Wall {
    reading: Option<ClockReading>,
    /// It was read in this turn.
    fresh: bool,
    /// In this turn it was found to have been set.
    stepped: bool,
}

impl Wall {
    /// A new turn: the clocks are read again when they are needed.
    pub(super) const fn begin_turn(&mut self) {
        self.fresh = false;
    }

    /// The device's time of a stamp of the kernel, in nanoseconds since 1970, and what it is worth.
    pub(super) fn convert(&mut self, stamp: u64) -> (Time, TimeSource) {
        self.convert_by(stamp, ClockReading::take)
    }

    fn convert_by(&mut self, stamp: u64, take: impl Fn() -> ClockReading) -> (Time, TimeSource) {
        if !self.fresh {
            self.update(take());
        }
        match self.of(stamp) {
            // A turn may be long, and its packets may be younger than its reading: that is no clock that was set.
            (_, TimeSource::Unsure) if !self.stepped => {
                self.update(take());
                self.of(stamp)
            }
            known => known,
        }
    }

    fn update(&mut self, reading: ClockReading) {
        let in_this_turn = self.fresh && self.stepped;
        self.stepped = in_this_turn || self.reading.is_some_and(|before| is_step(&before, &reading));
        self.reading = Some(reading);
        self.fresh = true;
    }

    fn of(&self, stamp: u64) -> (Time, TimeSource) {
        let Some(reading) = &self.reading else { return (Time::ZERO, TimeSource::Unsure) };
        let time = reading.device_at(UNIX_EPOCH + Duration::from_nanos(stamp));
        // What was stamped is past. A stamp that is not is of a clock that was set since.
        let is_past = time <= reading.device + reading.uncertainty + SLACK;
        (time, if self.stepped || !is_past { TimeSource::Unsure } else { TimeSource::Kernel })
    }
}

/// Whether the wall's clock was set between two readings.
fn is_step(before: &ClockReading, after: &ClockReading) -> bool {
    let elapsed = after.device.since(before.device);
    let expected = before.wall_at(after.device);
    let apart = after.wall.duration_since(expected).unwrap_or_else(|error| error.duration());
    apart > elapsed / SLEW + before.uncertainty + after.uncertainty + SLACK
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn completion(id: u64) -> Completion {
        Completion { id, ..Completion::EMPTY }
    }

    fn popped(held: &mut Held, now: u64) -> Option<(u64, Time, TimeSource)> {
        held.pop(at(now)).map(|(_, done)| (done.id, done.time, done.time_source))
    }

    #[test]
    fn completions_come_in_order_with_their_stamps() {
        let mut held = Held::default();
        let (first, second) = (held.leaves(at(10)), held.leaves(at(10)));
        held.done(1, completion(1), at(10));
        held.left_at(second, at(30), TimeSource::Kernel);
        assert_eq!(popped(&mut held, 40), None, "the first is not known");
        held.left_at(first, at(20), TimeSource::Kernel);
        assert_eq!(popped(&mut held, 40), Some((1, at(20), TimeSource::Kernel)));
        assert_eq!(popped(&mut held, 40), None, "the second is not done");
        held.done(2, completion(2), at(40));
        // Work that fails has sent nothing, and comes after what was sent.
        held.done(3, completion(3), at(50));
        assert_eq!(popped(&mut held, 60), Some((2, at(30), TimeSource::Kernel)));
        assert_eq!(popped(&mut held, 60), Some((3, at(50), TimeSource::Turn)));
        assert!(held.is_empty());
    }

    #[test]
    fn a_stamp_that_does_not_come_is_not_waited_for_without_end() {
        let mut held = Held::default();
        let number = held.leaves(at(10));
        held.handed_over(at(25));
        held.done(1, completion(1), at(30));
        // It is looked for again and again, and its time is the first one.
        held.handed_over(at(5_000_000));
        held.leaves(at(6_000_000));
        held.handed_over(at(7_000_000));
        let end = at(25) + PATIENCE;
        assert_eq!(popped(&mut held, end.nanos() - 1), None);
        assert_eq!(popped(&mut held, end.nanos()), Some((1, at(25), TimeSource::AfterCall)));
        // If it comes later, it is of no packet that waits.
        held.left_at(number, at(20), TimeSource::Kernel);
        held.done(2, completion(2), at(end.nanos()));
        assert_eq!(popped(&mut held, end.nanos()), None, "the second was handed over later");
        assert_eq!(popped(&mut held, 200_000_000), Some((2, at(7_000_000), TimeSource::AfterCall)));
        assert!(held.is_empty());
    }

    #[test]
    fn a_queue_pair_that_goes_leaves_no_completion_behind() {
        let mut held = Held::default();
        held.leaves(at(10));
        held.done(1, completion(1), at(11));
        held.leaves(at(12));
        assert_eq!(
            held.pop_at_once().map(|(_, done)| (done.id, done.time_source)),
            Some((1, TimeSource::AfterCall))
        );
        assert_eq!(held.pop_at_once(), None);
    }

    fn reading(device: u64, wall: u64) -> ClockReading {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_nanos(wall);
        ClockReading { device: at(device), wall, uncertainty: Duration::from_nanos(50) }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn stamps_become_times_of_the_device() {
        let mut wall = Wall::default();
        wall.update(reading(5 * SECOND, 1_000 * SECOND));
        assert_eq!(wall.of(1_000 * SECOND - 700), (at(5 * SECOND - 700), TimeSource::Kernel));
        // A clock that is slewed as hard as is usual.
        wall.update(reading(6 * SECOND, 1_001 * SECOND + 500_000));
        assert_eq!(wall.of(1_001 * SECOND + 400_000), (at(6 * SECOND - 100_000), TimeSource::Kernel));
    }

    #[test]
    fn a_clock_that_was_set_makes_the_stamps_of_that_turn_unsure() {
        for step in [-3600, -1, 1, 3600_i64] {
            let mut wall = Wall::default();
            wall.update(reading(5 * SECOND, 10_000 * SECOND));
            let now = (10_001 * SECOND).saturating_add_signed(step * SECOND.cast_signed());
            wall.begin_turn();
            wall.update(reading(6 * SECOND, now));
            assert_eq!(wall.of(now - 5).1, TimeSource::Unsure);
            wall.begin_turn();
            wall.update(reading(7 * SECOND, now + SECOND));
            assert_eq!(
                wall.of(now + SECOND - 5),
                (at(7 * SECOND - 5), TimeSource::Kernel),
                "from then on it is known"
            );
            assert_eq!(wall.of(now + 2 * SECOND).1, TimeSource::Unsure, "in the future");
        }
    }

    #[test]
    fn a_packet_that_is_younger_than_the_reading_of_its_turn_is_no_step_of_the_clock() {
        let mut wall = Wall::default();
        let (start, begin) = (1_000 * SECOND, || reading(5 * SECOND, 1_000 * SECOND));
        assert_eq!(wall.convert_by(start - 5, begin), (at(5 * SECOND - 5), TimeSource::Kernel));
        let later = || reading(5 * SECOND + 9_000_000, start + 9_000_000);
        let came = wall.convert_by(start + 8_000_000, later);
        assert_eq!(came, (at(5 * SECOND + 8_000_000), TimeSource::Kernel));
        // What lies ahead of a second reading too is a stamp of a clock that was set back.
        assert_eq!(wall.convert_by(start + 20_000_000, later).1, TimeSource::Unsure);
    }

    #[test]
    fn a_step_counts_for_its_whole_turn() {
        let mut wall = Wall::default();
        wall.update(reading(5 * SECOND, 1_000 * SECOND));
        wall.begin_turn();
        let set = || reading(6 * SECOND, 2_000 * SECOND);
        for stamp in [2_000 * SECOND - 5, 2_000 * SECOND - 4] {
            assert_eq!(wall.convert_by(stamp, set).1, TimeSource::Unsure);
        }
        wall.begin_turn();
        assert_eq!(wall.convert_by(2_000 * SECOND - 3, set).1, TimeSource::Kernel);
    }
}
