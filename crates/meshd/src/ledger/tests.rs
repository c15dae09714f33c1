//! An agent and an analyzer with streams between them that break at any moment, and of which old ones go on.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_000_000 * SECOND;

/// What may happen next.
#[derive(Clone, Debug)]
enum Step {
    /// The agent closes a window.
    Window,
    /// The agent sends the next one.
    Send,
    /// The analyzer takes the next one of a stream, perhaps of an old one.
    Arrive(usize),
    /// The agent hears the next answer.
    Answer,
    /// The stream breaks: what is in it may still arrive, but no answer comes back.
    Break,
    /// The agent lives on with a new queue pair.
    Epoch,
}

#[derive(Debug)]
struct Stream {
    there: VecDeque<(Mark, u64)>,
    back: VecDeque<Mark>,
}

struct World {
    outbox: Outbox<u64>,
    inbox: Inbox,
    cursor: Mark,
    /// The newest is the one that the agent uses.
    streams: Vec<Stream>,
    kept: Vec<u64>,
    next: u64,
}

impl World {
    fn new(most: usize) -> Self {
        let mut world = Self {
            outbox: Outbox::new(5, most),
            inbox: Inbox::default(),
            cursor: Mark::default(),
            streams: Vec::new(),
            kept: Vec::new(),
            next: 0,
        };
        world.connect();
        world
    }

    /// A new stream begins with how far windows are settled.
    fn connect(&mut self) {
        let settled = self.inbox.settled();
        self.outbox.settle(settled);
        self.cursor = settled;
        self.streams.push(Stream { there: VecDeque::new(), back: VecDeque::new() });
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Window => {
                self.outbox.push(self.next);
                self.next += 1;
            }
            Step::Send => {
                if let Some((mark, window)) = self.outbox.after(self.cursor) {
                    let window = *window;
                    self.cursor = mark;
                    self.streams.last_mut().unwrap().there.push_back((mark, window));
                }
            }
            Step::Arrive(which) => {
                let which = which % self.streams.len();
                if let Some((mark, window)) = self.streams[which].there.pop_front() {
                    let taken = self.inbox.take(mark, NOW - SECOND, NOW, NOW, &InboxConfig::default());
                    if taken == Taken::Kept {
                        self.kept.push(window);
                    }
                    let settled = self.inbox.settled();
                    self.streams[which].back.push_back(settled);
                }
            }
            Step::Answer => {
                if let Some(mark) = self.streams.last_mut().unwrap().back.pop_front() {
                    self.outbox.settle(mark);
                }
            }
            Step::Break => self.connect(),
            Step::Epoch => self.outbox.begin(self.outbox.epoch() + 1),
        }
    }

    /// Nothing breaks any more.
    fn end(&mut self) {
        self.connect();
        for _ in 0..=self.outbox.waiting() {
            self.step(&Step::Send);
            self.step(&Step::Arrive(self.streams.len() - 1));
            self.step(&Step::Answer);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Window),
        4 => Just(Step::Send),
        4 => (0_usize..8).prop_map(Step::Arrive),
        3 => Just(Step::Answer),
        1 => Just(Step::Break),
        1 => Just(Step::Epoch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_window_is_lost_or_counted_twice(steps in proptest::collection::vec(step(), 0..200)) {
        let mut world = World::new(1000);
        steps.iter().for_each(|step| world.step(step));
        world.end();
        prop_assert_eq!(world.kept, (0..world.next).collect::<Vec<_>>());
        prop_assert_eq!(world.outbox.waiting(), 0);
        prop_assert_eq!((world.inbox.lost, world.inbox.kept), (0, world.next));
    }

    #[test]
    fn what_a_full_queue_dropped_is_all_that_is_missing(steps in proptest::collection::vec(step(), 0..200)) {
        let mut world = World::new(3);
        steps.iter().for_each(|step| world.step(step));
        world.end();
        prop_assert!(world.kept.is_sorted_by(|one, other| one < other), "each once, in order: {:?}", world.kept);
        // A window may be dropped after it was kept, if its answer was on the way: so some may be in both.
        prop_assert!(world.kept.len() as u64 + world.outbox.dropped() >= world.next);
        prop_assert!(world.inbox.kept <= world.next && world.outbox.waiting() == 0);
    }
}

#[test]
fn an_agent_whose_clock_was_set_back_goes_on_in_a_later_life() {
    let config = InboxConfig::default();
    let mut inbox = Inbox::default();
    inbox.take(Mark { epoch: 9, number: 4 }, NOW - SECOND, NOW, NOW, &config);
    let mut outbox = Outbox::new(3, 10);
    for window in 0..3 {
        outbox.push(window);
    }
    assert!(outbox.after(inbox.settled()).is_none(), "all of them would be replays");
    outbox.begin_anew(inbox.settled().epoch + 1);
    let mut cursor = inbox.settled();
    while let Some((mark, _)) = outbox.after(cursor) {
        assert_eq!(inbox.take(mark, NOW - SECOND, NOW, NOW, &config), Taken::Kept);
        cursor = mark;
    }
    assert_eq!((inbox.kept, inbox.settled()), (4, Mark { epoch: 10, number: 3 }));
    outbox.begin(10);
    assert_eq!(outbox.push(3), Mark { epoch: 10, number: 4 }, "the same life does not begin twice");
}

#[test]
fn windows_of_other_times_are_refused_and_settled_and_wrong_marks_settle_nothing() {
    let config = InboxConfig::default();
    let mut inbox = Inbox::default();
    let hour = 3600 * SECOND;
    let cases = [
        (NOW - 2 * hour, NOW - 2 * hour + SECOND, "ended"),
        (NOW + hour, NOW + hour + SECOND, "set the clocks"),
        (NOW - hour, NOW, "has to be"),
        (NOW, NOW - SECOND, "has to be"),
    ];
    for (number, (start, end, why)) in (1..).zip(cases) {
        let mark = Mark { epoch: 1, number };
        let Taken::Refused(refusal) = inbox.take(mark, start, end, NOW, &config) else { panic!("{why}") };
        assert!(refusal.to_string().contains(why), "{refusal}");
        assert_eq!(inbox.settled(), mark);
    }
    let before = inbox.settled();
    for mark in [Mark { epoch: 1, number: 0 }, Mark { epoch: u64::MAX, number: 7 }] {
        assert!(matches!(inbox.take(mark, NOW - SECOND, NOW, NOW, &config), Taken::Refused(_)));
        assert_eq!(inbox.settled(), before);
    }
    assert_eq!(inbox.take(Mark { epoch: 1, number: 9 }, NOW - SECOND, NOW, NOW, &config), Taken::Kept);
    assert_eq!((inbox.kept, inbox.refused, inbox.lost), (1, 6, 4));
    assert_eq!(config.ahead, Duration::from_secs(10));
}
