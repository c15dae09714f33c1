//! Whole programs against the policy, in simulated time: every packet is taken in, soon, and no thread spins.
#![cfg(not(loom))]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ferroce_progress::{Duty, Event, Plan, Program, Sleepers, Sockets, due, table};
use ferroce_transport::Time;
use proptest::prelude::*;

/// What a thread of the program does for a while.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Polls, so many microseconds apart, so often.
    Poll { every: u64, times: u64 },
    /// Makes no calls: it computes, or looks at its memory.
    Away { micros: u64 },
    /// Sleeps until a packet was taken in, relying on the driver.
    Sleep { at_most: u64 },
    /// Sleeps on the sockets until a packet arrives, if it may; else as above.
    Sit { at_most: u64 },
    /// Finds completions without looking at the sockets.
    Find { every: u64, times: u64 },
    /// Asks for an event on a channel, which comes with the next packet, and goes on.
    Ask,
    /// Posts work whose timer comes up after so many microseconds.
    Post { timer: u64 },
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![
        3 => (1_u64..400, 1_u64..200).prop_map(|(every, times)| Phase::Poll { every, times }),
        1 => (1_000_u64..5_000, 1_u64..10).prop_map(|(every, times)| Phase::Poll { every, times }),
        3 => (1_u64..8_000).prop_map(|micros| Phase::Away { micros }),
        2 => (1_u64..8_000).prop_map(|at_most| Phase::Sleep { at_most }),
        2 => (1_u64..40_000).prop_map(|at_most| Phase::Sit { at_most }),
        1 => Just(Phase::Ask),
        1 => (1_u64..50, 1_u64..300).prop_map(|(every, times)| Phase::Find { every, times }),
        1 => (1_u64..20_000).prop_map(|timer| Phase::Post { timer }),
    ]
}

/// The epoll set: what it holds, and that it was just given the sockets.
#[derive(Default)]
struct Set {
    holds: Cell<bool>,
    is_new: Cell<bool>,
}

impl Sockets for Set {
    fn watch(&self, arrivals: bool) {
        assert_ne!(self.holds.replace(arrivals), arrivals);
        self.is_new.set(arrivals);
    }
}

/// A thread of the program.
struct Thread {
    phases: Vec<Phase>,
    /// When it goes on by itself.
    next: Option<Time>,
    doing: Doing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Has to begin its next phase.
    Nothing,
    Repeating {
        polls: bool,
        every: Duration,
        left: u64,
    },
    Sleeping,
    Sitting,
    /// The program has no phase left.
    Done,
}

struct World {
    duty: Duty<Set>,
    sleepers: Arc<Sleepers>,
    /// Events that were asked for and have not come.
    asked: u32,
    /// What the driver knows.
    program: Program,
    /// When the driver wakes by itself.
    until: Option<Time>,
    threads: Vec<Thread>,
    now: Time,
    polls: u64,
    last_poll: Time,
    /// Since when a thread relies on the driver, or sits.
    watched_since: Option<Time>,
    /// When each packet arrived that is in the socket.
    socket: Vec<Time>,
    /// When the engine's timer comes up.
    timer: Option<Time>,
    wakes: u64,
    changes: u64,
    /// When a packet arrived last, or a thread of the program did something.
    last_event: Time,
}

const TWO_TICKS: Duration = table::TICK.saturating_mul(2);

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

impl World {
    fn new(threads: Vec<Vec<Phase>>) -> Self {
        let sleepers = Arc::new(Sleepers::default());
        let set = Set { holds: Cell::new(true), is_new: Cell::new(false) };
        let now = Time::from_nanos(1_000_000_000);
        let thread = |phases| Thread { phases, next: Some(now), doing: Doing::Nothing };
        Self {
            duty: Duty::new(set, Arc::clone(&sleepers)),
            sleepers,
            asked: 0,
            program: Program::new(now),
            until: None,
            threads: threads.into_iter().map(thread).collect(),
            now,
            polls: 0,
            last_poll: now,
            watched_since: None,
            socket: Vec::new(),
            timer: None,
            wakes: 0,
            changes: 0,
            last_event: now,
        }
    }

    fn needed_at(&mut self, time: Time) {
        if self.until.is_none_or(|until| time < until) {
            let time = due(self.duty.state(), time, || self.now);
            self.until = Some(self.until.map_or(time, |until| until.min(time)));
        }
    }

    /// What follows a change of the duty.
    fn after(&mut self, is_parked: bool) {
        if is_parked {
            self.needed_at(self.now);
        }
        if self.duty.sockets().is_new.take() {
            self.changes += 1;
            if !self.socket.is_empty() {
                self.until = Some(self.now);
            }
        }
        let is_watched = self.sleepers.count() > 0 || self.duty.state().seated;
        if !is_watched {
            self.watched_since = None;
        } else if self.watched_since.is_none() {
            self.watched_since = Some(self.now);
        }
    }

    /// A turn of the engine: packets are taken in, and timers run.
    fn turn(&mut self) -> bool {
        let received = !self.socket.is_empty();
        for arrived in self.socket.drain(..) {
            let latest = arrived.max(self.last_poll) + TWO_TICKS;
            assert!(self.now <= latest, "a packet of {arrived} was taken in at {}", self.now);
            if let Some(since) = self.watched_since {
                assert_eq!(self.now, arrived.max(since), "a thread slept for it");
            }
        }
        if let Some(timer) = self.timer.filter(|timer| *timer <= self.now) {
            assert!(
                self.now <= timer.max(self.last_poll) + TWO_TICKS,
                "a timer of {timer} ran at {}",
                self.now
            );
            self.timer = None;
        }
        if received {
            self.wake_sleepers();
            for _ in 0..std::mem::take(&mut self.asked) {
                self.sleepers.answer();
            }
        }
        if let Some(timer) = self.timer {
            self.needed_at(timer);
        }
        received
    }

    fn wake_sleepers(&mut self) {
        for index in 0..self.threads.len() {
            if self.threads[index].doing == Doing::Sleeping {
                self.wake(index);
            }
        }
    }

    /// A thread that slept or sat is awake.
    fn wake(&mut self, index: usize) {
        match self.threads[index].doing {
            Doing::Sleeping => self.sleepers.remove(),
            Doing::Sitting => {
                self.duty.note(Event::Rise);
                self.polls += 1;
                let is_asleep = self.until.is_none_or(|until| until > self.now + table::TICK);
                self.needed_at(self.now);
                if is_asleep {
                    // The driver is woken, to look in a tick, and is there before the thread does anything.
                    let armed = self.duty.state().armed;
                    self.drive();
                    assert_eq!(self.duty.state().armed, armed, "a thread that has just risen is not gone");
                }
            }
            _ => return,
        }
        self.threads[index].doing = Doing::Nothing;
        self.threads[index].next = Some(self.now);
        self.after(false);
    }

    fn poll(&mut self) {
        self.polls += 1;
        let received = self.turn();
        self.last_poll = self.now;
        let now = self.now;
        let parked = self.duty.polled(received, || now);
        self.after(parked);
    }

    fn drive(&mut self) {
        self.wakes += 1;
        self.until = None;
        let seen = self.program.see(self.polls, self.now);
        let plan = Plan::new(self.duty.state(), seen, self.duty.is_doubted(self.now));
        if plan.doubts {
            self.duty.doubt(self.now);
        }
        if plan.takes_over {
            let parked = self.duty.note(Event::Gone);
            self.after(parked);
            self.until = None;
        }
        if plan.turns && self.turn() {
            let parked = self.duty.note(Event::Received);
            self.after(parked);
        }
        if let Some(next) = self.program.next_look(self.duty.state()) {
            self.until = Some(self.until.map_or(next, |until| until.min(next)));
        }
    }

    fn arrive(&mut self) {
        self.socket.push(self.now);
        if self.duty.sockets().holds.get() {
            self.until = Some(self.now);
        }
        for index in 0..self.threads.len() {
            if self.threads[index].doing == Doing::Sitting {
                // It polls at once, and its thread is awake.
                self.turn();
                self.wake(index);
                self.poll();
            }
        }
    }

    fn step(&mut self, index: usize) {
        match self.threads[index].doing {
            Doing::Sleeping | Doing::Sitting => self.wake(index),
            Doing::Repeating { polls, every, left } => {
                let thread = &mut self.threads[index];
                thread.next = Some(self.now + every);
                thread.doing = match left {
                    0 => Doing::Nothing,
                    _ => Doing::Repeating { polls, every, left: left - 1 },
                };
                let now = self.now;
                if polls {
                    self.poll();
                } else {
                    let parked = self.duty.found(|| now);
                    self.after(parked);
                }
            }
            Doing::Nothing | Doing::Done => self.begin(index),
        }
    }

    fn begin(&mut self, index: usize) {
        let now = self.now;
        let thread = &mut self.threads[index];
        let Some(phase) = thread.phases.pop() else {
            thread.doing = Doing::Done;
            thread.next = None;
            return;
        };
        let repeating = |polls, every, left| Doing::Repeating { polls, every: micros(every), left };
        thread.next = Some(now);
        match phase {
            Phase::Poll { every, times } => thread.doing = repeating(true, every, times),
            Phase::Find { every, times } => thread.doing = repeating(false, every, times),
            Phase::Away { micros: time } => thread.next = Some(now + micros(time)),
            Phase::Post { timer } => {
                let timer = now + micros(timer);
                let timer = self.timer.map_or(timer, |set| set.min(timer));
                self.timer = Some(timer);
                self.needed_at(timer);
            }
            Phase::Ask => {
                self.sleepers.ask();
                self.asked += 1;
                let parked = self.duty.note(Event::Sleep);
                self.after(parked);
            }
            Phase::Sleep { at_most } => self.sleep(index, at_most),
            Phase::Sit { at_most } => {
                // A thread polls before it sleeps.
                self.poll();
                match self.duty.sit() {
                    Some(parked) => {
                        self.threads[index].doing = Doing::Sitting;
                        self.threads[index].next = Some(now + micros(at_most));
                        self.after(parked);
                    }
                    None => self.sleep(index, at_most),
                }
            }
        }
    }

    fn sleep(&mut self, index: usize, at_most: u64) {
        self.poll();
        self.threads[index].doing = Doing::Sleeping;
        self.threads[index].next = Some(self.now + micros(at_most));
        self.sleepers.add();
        let parked = self.duty.note(Event::Sleep);
        self.after(parked);
    }

    fn run(&mut self, mut arrivals: Vec<Time>, end: Time) {
        arrivals.sort_unstable_by(|one, other| other.cmp(one));
        loop {
            let of_thread = |(index, thread): (usize, &Thread)| Some((thread.next?, index));
            let thread = self.threads.iter().enumerate().filter_map(of_thread).min();
            let times = [arrivals.last().copied(), self.until, thread.map(|(time, _)| time)];
            let Some(next) = times.into_iter().flatten().min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            // A driver that an arrival has woken is the first to act.
            if times[1] == Some(next) {
                self.drive();
            } else if times[0] == Some(next) {
                arrivals.pop();
                self.last_event = self.now;
                self.arrive();
            } else if let Some((_, index)) = thread {
                self.last_event = self.now;
                self.step(index);
            }
        }
        self.now = end;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_packet_is_taken_in_soon_and_no_thread_spins(
        threads in proptest::collection::vec(proptest::collection::vec(phase(), 0..12), 1..3),
        arrivals in proptest::collection::vec(0_u64..60_000, 0..120),
    ) {
        let mut world = World::new(threads);
        let begin = world.now;
        let packets = arrivals.len() as u64;
        let arrivals: Vec<_> = arrivals.into_iter().map(|at| begin + micros(at)).collect();
        // All phases are over by then, and so are the timers that they have set.
        let busy = Duration::from_secs(2);
        world.run(arrivals, begin + busy);
        prop_assert!(world.threads.iter().all(|thread| thread.doing == Doing::Done));
        prop_assert!(world.socket.is_empty() && world.timer.is_none(), "something was forgotten");

        // It ticks, and it wakes for packets, timers and changes; for nothing else.
        let ticks = u64::try_from(world.last_event.since(begin).as_nanos() / table::TICK.as_nanos()).unwrap();
        let most = ticks + 3 * packets + 4 * world.changes + 2 * u64::from(table::QUIET_LOOKS);
        prop_assert!(world.wakes <= most, "{} wakes, {} at most", world.wakes, most);

        // When all threads are away it takes a second of silence to show that it sleeps.
        world.wakes = 0;
        let end = world.now + Duration::from_secs(1);
        world.run(Vec::new(), end);
        let most = u64::from(table::QUIET_LOOKS) + 3;
        prop_assert!(world.wakes <= most, "{} wakes in a second without work", world.wakes);
        // And it is still there.
        world.arrive();
        let end = world.now + TWO_TICKS;
        world.run(Vec::new(), end);
        prop_assert!(world.socket.is_empty());
    }
}

#[test]
fn a_program_that_only_looks_at_memory_is_served_within_two_ticks_and_then_at_once() {
    let away = Phase::Away { micros: 100_000 };
    let mut world = World::new(vec![vec![away, Phase::Poll { every: 10, times: 100 }]]);
    let begin = world.now;
    world.run(Vec::new(), begin + Duration::from_millis(1));
    assert!(world.duty.state().is_parked(), "it polled in vain");
    let after = |micros_later| vec![begin + micros(micros_later)];
    world.run(after(1_100), begin + Duration::from_millis(4));
    assert!(world.socket.is_empty(), "two ticks are over");
    assert!(world.duty.state().armed);
    let wakes = world.wakes;
    world.run(after(50_000), begin + micros(50_000));
    assert!(world.socket.is_empty(), "at once");
    assert!(world.wakes <= wakes + u64::from(table::QUIET_LOOKS) + 2);
}

#[test]
fn a_program_that_asks_for_events_has_them_at_once_and_one_that_polls_instead_soon_has_no_driver() {
    let away = Phase::Away { micros: 100_000 };
    // The last phase is the first.
    let mut asks = World::new(vec![vec![away, Phase::Poll { every: 1, times: 100 }, Phase::Ask]]);
    let begin = asks.now;
    asks.run(vec![begin + micros(5_000)], begin + micros(5_000));
    assert!(asks.socket.is_empty() && asks.duty.state().armed, "at once");
    let mut polls = World::new(vec![vec![Phase::Poll { every: 1, times: 2_000 }, Phase::Ask]]);
    let begin = polls.now;
    polls.run(Vec::new(), begin + micros(1_000));
    assert!(polls.duty.state().is_parked(), "it asked, and polls");
}

#[test]
fn the_table_has_each_constant_once_and_says_what_it_is_for() {
    let names: std::collections::BTreeSet<_> = table::TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), table::TABLE.len());
    for row in table::TABLE {
        assert!(!row.value.is_empty() && !row.unit.is_empty() && !row.serves.is_empty(), "{row:?}");
    }
}
