//! Streams of posts against the rule of gathering, in simulated time: what waits for company never waits long.
#![cfg(not(loom))]

use std::time::Duration;

use ferroce_progress::table::{GATHER_ALARM, GATHER_BYTES, GATHER_LONGEST, GATHER_MESSAGES};
use ferroce_progress::{Departure, Gather, Posting};
use ferroce_transport::Time;
use proptest::prelude::*;

/// What the program does next, after so many nanoseconds.
#[derive(Clone, Copy, Debug)]
enum Step {
    Post {
        messages: u32,
        bytes: u64,
        is_urgent: bool,
    },
    /// A poll that finds no completion: everything leaves.
    Poll,
    /// All that was sent is acknowledged.
    Acknowledged,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let post = (1_u32..4, 0_u64..9_000, proptest::bool::weighted(0.02));
    let post = post.prop_map(|(messages, bytes, is_urgent)| Step::Post { messages, bytes, is_urgent });
    let step = prop_oneof![20 => post, 1 => Just(Step::Poll), 1 => Just(Step::Acknowledged)];
    let pause = prop_oneof![20 => 50_u64..1_000, 2 => 1_000_u64..12_000, 1 => 12_000_u64..200_000];
    (pause, step)
}

/// An engine: what waits, what is under way, and the alarm.
#[derive(Default)]
struct Engine {
    gather: Gather,
    now: Time,
    alarm: Option<Time>,
    /// When each of the messages that wait was posted.
    waiting: Vec<Time>,
    bytes: u64,
    is_under_way: bool,
    /// How long messages have waited.
    longest: Duration,
    alarms: u32,
}

impl Engine {
    fn send(&mut self) {
        if let Some(oldest) = self.waiting.first() {
            self.longest = self.longest.max(self.now.since(*oldest));
        }
        self.is_under_way |= !self.waiting.is_empty();
        self.waiting.clear();
        self.bytes = 0;
        self.gather.left();
    }

    fn pass(&mut self, nanos: u64) {
        let end = self.now + Duration::from_nanos(nanos);
        if let Some(alarm) = self.alarm.take_if(|alarm| *alarm <= end) {
            self.now = alarm;
            if self.gather.is_waiting() {
                self.gather.alarmed(alarm);
                self.send();
            }
        }
        self.now = end;
    }

    fn post(&mut self, messages: u32, bytes: u64, is_urgent: bool) {
        let waited = !self.waiting.is_empty();
        self.waiting.extend((0..messages).map(|_| self.now));
        self.bytes += bytes;
        let is_under_way = self.is_under_way;
        let under_way = u32::from(is_under_way);
        match self.gather.posted(self.now, Posting { messages, bytes, under_way, is_urgent }) {
            Departure::Now => self.send(),
            Departure::Later(alarm) => {
                assert!(is_under_way && !is_urgent, "what finds nothing under way leaves at once");
                assert!(self.waiting.len() < GATHER_MESSAGES as usize && self.bytes < GATHER_BYTES);
                assert!(self.now.since(self.waiting[0]) < GATHER_LONGEST);
                if let Some(alarm) = alarm {
                    assert!(!waited, "an alarm that is put off would come too late");
                    self.alarm = Some(alarm);
                    self.alarms += 1;
                }
            }
        }
        assert_eq!(self.gather.is_waiting(), !self.waiting.is_empty());
    }
}

proptest! {
    #[test]
    fn nothing_waits_longer_for_company_than_the_alarm_allows(
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        let mut engine = Engine::default();
        for (pause, step) in steps {
            engine.pass(pause);
            match step {
                Step::Post { messages, bytes, is_urgent } => engine.post(messages, bytes, is_urgent),
                Step::Poll => engine.send(),
                Step::Acknowledged => engine.is_under_way = false,
            }
        }
        engine.pass(1_000_000);
        prop_assert!(engine.waiting.is_empty(), "{:?} wait for ever", engine.waiting);
        prop_assert!(engine.longest <= GATHER_ALARM, "{:?}", engine.longest);
    }
}

/// A stream of messages of 64 B, so many nanoseconds apart; how many calls it took, and how many alarms.
fn stream(engine: &mut Engine, messages: u32, apart: u64) -> (u32, u32) {
    let (mut calls, before) = (0, engine.alarms);
    for _ in 0..messages {
        engine.pass(apart);
        engine.post(1, 64, false);
        calls += u32::from(engine.waiting.is_empty());
    }
    (calls, engine.alarms - before)
}

#[test]
fn a_stream_leaves_in_runs_and_never_hears_its_alarm() {
    let mut engine = Engine::default();
    let (calls, alarms) = stream(&mut engine, 32_000, 200);
    // Fifty of them in ten microseconds.
    assert!(calls <= 650, "{calls} calls");
    assert!(alarms <= calls, "{alarms} alarms");
    assert_eq!(engine.gather.rests_left(), 0, "the program was never found gone");
}

#[test]
fn a_program_that_goes_away_soon_has_its_messages_sent_at_once() {
    let mut engine = Engine { is_under_way: true, ..Engine::default() };
    let mut late = 0;
    for _ in 0..1_000 {
        stream(&mut engine, 5, 200);
        late += u32::from(!engine.waiting.is_empty());
        engine.pass(100_000);
        engine.is_under_way = true;
    }
    assert!(late < 20, "{late} of 1000 times");
}

#[test]
fn one_message_after_the_other_is_no_stream() {
    let mut engine = Engine::default();
    let (calls, alarms) = stream(&mut engine, 1_000, 6_000);
    assert_eq!((calls, alarms), (1_000, 0));
}
