//! Lanes and lines under every interleaving:
//! `RUSTFLAGS="--cfg loom" cargo test -p ferroce-lane --test loom --release`
#![cfg(loom)]
#![allow(unsafe_code, reason = "what the model watches is shared by threads")]
#![expect(clippy::unwrap_used, reason = "a test may end so, in its helpers too")]

use ferroce_lane::{Caller, Consumer, Door, Hand, Line, Producer, Visitor, model};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Bytes of the rings here: records of two words need a skip in every round.
const RING: usize = 64;

/// Runs a model with at most so many pre-emptions in one run, which keeps it short. The environment
/// (`LOOM_MAX_PREEMPTIONS`) has the last word.
fn explore(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

/// Stands in for the eventfd: a thread that sleeps on it for ever is a deadlock, which loom reports.
#[derive(Default)]
struct Gong {
    sounding: Mutex<bool>,
    changed: Condvar,
}

impl Gong {
    fn sound(&self) {
        *self.sounding.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Sleeps until it has sounded, and silences it.
    fn sleep(&self) {
        let mut sounding = self.sounding.lock().unwrap();
        while !*sounding {
            sounding = self.changed.wait(sounding).unwrap();
        }
        *sounding = false;
    }
}

/// Puts a record of two words in, as soon as there is room.
fn push(producer: &mut Producer, number: u8) {
    while producer.room(16).is_none() {
        assert!(!producer.is_broken());
        thread::yield_now();
    }
    producer.room(16).unwrap().fill(number);
    producer.commit(number, 16);
}

/// Takes all that there is, which has to follow this number, and says which came last.
fn drain(consumer: &mut Consumer, mut last: u8) -> u8 {
    while consumer.look() {
        while let Some(record) = consumer.next() {
            last += 1;
            let mut copy = [0; 16];
            assert_eq!(record.copy_head(&mut copy), 16);
            assert_eq!((record.kind(), copy), (last, [last; 16]), "whole and in order");
            assert_eq!(record.bytes(), copy, "and not overwritten while it is read");
        }
        consumer.release();
    }
    assert!(!consumer.is_broken());
    last
}

/// Takes records until the last one has come.
fn drain_until(consumer: &mut Consumer, end: u8) {
    let mut last = 0;
    loop {
        last = drain(consumer, last);
        if last == end {
            return;
        }
        thread::yield_now();
    }
}

#[test]
fn records_arrive_whole_and_in_order_around_the_end_of_the_ring() {
    explore(3, || {
        let (mut producer, mut consumer) = model::lane(RING);
        let sender = thread::spawn(move || {
            // Two fill the ring: the third has its room only when the first was read and given back.
            for number in 1..=4 {
                push(&mut producer, number);
                assert!(producer.publish());
            }
        });
        drain_until(&mut consumer, 4);
        sender.join().unwrap();
        assert!(!consumer.look(), "none comes twice");
    });
}

#[test]
fn the_front_of_a_ring_is_used_again_only_when_it_was_read() {
    explore(3, || {
        // Two records are the front, and six the ring: whether there is a skip depends on how far the consumer is.
        let (mut producer, mut consumer) = model::lane_with_front(144, 48);
        let sender = thread::spawn(move || {
            for number in 1..=5 {
                push(&mut producer, number);
                assert!(producer.publish());
            }
        });
        drain_until(&mut consumer, 5);
        sender.join().unwrap();
        assert!(!consumer.look(), "none comes twice");
    });
}

#[test]
fn records_that_are_published_together_arrive_together() {
    explore(3, || {
        let (mut producer, mut consumer) = model::lane(RING);
        let sender = thread::spawn(move || {
            push(&mut producer, 1);
            push(&mut producer, 2);
            assert!(producer.publish());
            push(&mut producer, 3);
            assert!(producer.publish());
        });
        if consumer.look() {
            assert!(consumer.next().is_some_and(|record| record.kind() == 1));
            assert!(consumer.next().is_some_and(|record| record.bytes() == [2; 16]));
            consumer.release();
            let last = drain(&mut consumer, 2);
            assert!(last == 2 || last == 3);
        } else {
            drain_until(&mut consumer, 3);
        }
        // Room for the third record, if it has not come.
        consumer.release();
        sender.join().unwrap();
    });
}

#[test]
fn a_lane_is_empty_when_all_room_was_given_back() {
    explore(3, || {
        let (mut producer, mut consumer) = model::lane(RING);
        let receiver = thread::spawn(move || drain_until(&mut consumer, 1));
        push(&mut producer, 1);
        assert!(!producer.is_empty());
        producer.publish();
        while !producer.is_empty() {
            thread::yield_now();
        }
        // The whole ring is ours: the watches would see a reader.
        push(&mut producer, 2);
        push(&mut producer, 3);
        receiver.join().unwrap();
    });
}

/// Publishes records and calls after each.
fn send(producer: &mut Producer, caller: &mut Caller, slot: u8, records: u8, gong: &Gong) {
    for number in 1..=records {
        push(producer, number);
        producer.publish();
        if caller.call(slot) {
            gong.sound();
        }
    }
}

/// Takes records of all lanes, and only of those that call, until each has sent so many. It sleeps when it has nothing to do.
fn serve<const N: usize>(line: &mut Line, lanes: &mut [Consumer; N], records: u8, gong: &Gong) {
    let mut last = [0; N];
    loop {
        for slot in line.take().map(usize::from) {
            last[slot] = drain(&mut lanes[slot], last[slot]);
        }
        if last == [records; N] {
            return;
        }
        if !line.going_to_sleep() {
            gong.sleep();
        }
        line.awake();
    }
}

#[test]
fn a_sleeping_owner_is_woken_for_each_record() {
    explore(3, || {
        let (mut producer, consumer) = model::lane(RING);
        let (mut line, [mut caller]) = model::line();
        let gong = Arc::new(Gong::default());
        let sender = {
            let gong = Arc::clone(&gong);
            thread::spawn(move || send(&mut producer, &mut caller, 0, 2, &gong))
        };
        serve(&mut line, &mut [consumer], 2, &gong);
        sender.join().unwrap();
    });
}

#[test]
fn a_sleeping_owner_is_woken_by_each_of_two_callers() {
    explore(2, || {
        let (mut one, first) = model::lane(RING);
        let (mut other, second) = model::lane(RING);
        let (mut line, [mut calls_one, mut calls_other]) = model::line();
        let gong = Arc::new(Gong::default());
        let senders = [
            {
                let gong = Arc::clone(&gong);
                thread::spawn(move || send(&mut one, &mut calls_one, 0, 1, &gong))
            },
            {
                let gong = Arc::clone(&gong);
                thread::spawn(move || send(&mut other, &mut calls_other, 1, 1, &gong))
            },
        ];
        serve(&mut line, &mut [first, second], 1, &gong);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_bit_that_is_set_already_stands_for_later_records_too() {
    // The owner never sleeps: what it misses here, nothing would tell it later.
    explore(4, || {
        let (mut producer, mut consumer) = model::lane(RING);
        let (mut line, [mut caller]) = model::line();
        let sender = thread::spawn(move || {
            for number in 1..=2 {
                push(&mut producer, number);
                producer.publish();
                assert!(!caller.call(0));
            }
        });
        let mut last = 0;
        for _ in line.take() {
            last = drain(&mut consumer, last);
        }
        sender.join().unwrap();
        for _ in line.take() {
            last = drain(&mut consumer, last);
        }
        assert_eq!(last, 2);
    });
}

/// As [`serve`] for one lane, into which the owner looks by itself after the first record, and without its calls.
fn serve_kept(line: &mut Line, lane: &mut Consumer, records: u8, gong: &Gong) {
    let mut last = 0;
    loop {
        for _ in line.take() {
            last = drain(lane, last);
        }
        if last > 0 {
            line.keep(0);
            // As a thread that polls.
            for _ in 0..2 {
                if lane.has_more() {
                    last = drain(lane, last);
                }
            }
            line.keep_none();
        }
        if last == records {
            return;
        }
        if !line.going_to_sleep() {
            gong.sleep();
        }
        line.awake();
    }
}

#[test]
fn an_owner_that_keeps_calls_is_woken_when_it_sleeps() {
    explore(3, || {
        let (mut producer, mut consumer) = model::lane(RING);
        let (mut line, [mut caller]) = model::line();
        let gong = Arc::new(Gong::default());
        let sender = {
            let gong = Arc::clone(&gong);
            thread::spawn(move || send(&mut producer, &mut caller, 0, 2, &gong))
        };
        serve_kept(&mut line, &mut consumer, 2, &gong);
        sender.join().unwrap();
    });
}

/// What an engine of a device does around its line, turn by turn: as `Lanes` in `crates/device/src/engine/lanes.rs`.
struct Desk {
    line: Line,
    /// The lane is to be looked at.
    pending: bool,
    /// Its calls are left alone.
    kept: bool,
    /// A thread has slept, and was woken.
    woken: bool,
    /// The last record that was taken.
    last: u8,
}

impl Desk {
    fn new(line: Line) -> Self {
        Self { line, pending: false, kept: false, woken: false, last: 0 }
    }

    /// A turn, after which the engine sleeps, or threads go on polling. Whether it has to be turned again.
    fn turn(&mut self, lane: &mut Consumer, sleeps: bool) -> bool {
        if self.line.is_called() || self.pending || (self.kept && lane.has_more()) {
            self.pending |= self.kept;
            for _ in self.line.take() {
                self.pending = true;
            }
            if std::mem::take(&mut self.pending) {
                self.last = drain(lane, self.last);
            }
        }
        if sleeps {
            if std::mem::take(&mut self.kept) {
                self.line.keep_none();
            }
            return self.line.rests(std::mem::take(&mut self.woken)) || self.pending;
        }
        self.line.awake();
        if self.last > 0 && !self.kept {
            self.line.keep(0);
            self.kept = true;
        }
        false
    }

    /// Sleeps after a turn that says so, if that leaves nothing to do, until all has come.
    fn sleep(&mut self, lane: &mut Consumer, gong: &Gong) {
        if !self.turn(lane, true) && self.last < RECORDS {
            gong.sleep();
            self.woken = true;
        }
    }
}

/// Records that it is sent.
const RECORDS: u8 = 2;

/// A sender, and what a device does to take its records.
fn beside_a_sender(device: impl Fn(&mut Desk, &mut Consumer, &Gong)) {
    let (mut producer, mut consumer) = model::lane(RING);
    let (line, [mut caller]) = model::line();
    let gong = Arc::new(Gong::default());
    let sender = {
        let gong = Arc::clone(&gong);
        thread::spawn(move || send(&mut producer, &mut caller, 0, RECORDS, &gong))
    };
    let mut desk = Desk::new(line);
    while desk.last < RECORDS {
        device(&mut desk, &mut consumer, &gong);
    }
    sender.join().unwrap();
}

/// It was: a signal for a call that had been taken before the engine said anew that it sleeps was used up, and none came for the next.
#[test]
fn an_engine_that_is_turned_by_its_timers_while_it_sleeps_misses_no_record() {
    explore(3, || {
        beside_a_sender(|desk, lane, gong| {
            // A timer has it turned; that it sleeps was said before, and is not said again if it was not called.
            if !desk.turn(lane, true) {
                desk.sleep(lane, gong);
            }
        });
    });
}

#[test]
fn an_engine_that_was_polled_and_goes_to_sleep_misses_no_record() {
    explore(3, || {
        beside_a_sender(|desk, lane, gong| {
            desk.turn(lane, false);
            desk.turn(lane, false);
            desk.sleep(lane, gong);
        });
    });
}

/// The doors of a region and of a queue pair.
const REGION: Door = Door { number: 0, key: 0x1_0000_0007 };
const PAIR: Door = Door { number: 1, key: 0x2_0000_0009 };

/// Memory that two processes have mapped: the model ends if both are at it at once, or if one has not seen what the other did.
#[derive(Default)]
struct Mapped(UnsafeCell<()>);

impl Mapped {
    fn touch(&self) {
        self.0.with_mut(|_| ());
    }
}

// SAFETY: loom watches every access.
unsafe impl Sync for Mapped {}
// SAFETY: as above.
unsafe impl Send for Mapped {}

fn visits(
    mut visitor: Visitor,
    times: usize,
    doors: [Door; 2],
    memory: &Arc<Mapped>,
) -> thread::JoinHandle<()> {
    let memory = Arc::clone(memory);
    thread::spawn(move || {
        for _ in 0..times {
            if let Some(_reach) = visitor.reach(doors) {
                memory.touch();
            }
        }
    })
}

fn wait_for(hand: &Hand, door: u32) {
    while hand.is_in(door) {
        thread::yield_now();
    }
}

/// Whichever of its two doors is closed, and however often a visitor comes.
#[test]
fn from_the_moment_in_which_no_hand_is_in_a_closed_door_the_memory_is_the_owners() {
    for closed in [REGION, PAIR] {
        explore(3, move || {
            let (doors, [(visitor, hand)]) = model::doors();
            let memory = Arc::new(Mapped::default());
            // The owner wrote there before.
            memory.touch();
            doors.open(REGION);
            doors.open(PAIR);
            let visitor = visits(visitor, 2, [REGION, PAIR], &memory);
            doors.close(closed.number);
            wait_for(&hand, closed.number);
            memory.touch();
            memory.touch();
            visitor.join().unwrap();
        });
    }
}

#[test]
fn two_visitors_are_both_waited_for() {
    explore(2, || {
        let (doors, [(one, ones), (other, others)]) = model::doors();
        let memories = [Arc::new(Mapped::default()), Arc::new(Mapped::default())];
        doors.open(REGION);
        doors.open(PAIR);
        let [one, other] = [(one, &memories[0]), (other, &memories[1])]
            .map(|(visitor, memory)| visits(visitor, 1, [REGION, PAIR], memory));
        doors.close(REGION.number);
        for hand in [&ones, &others] {
            wait_for(hand, REGION.number);
        }
        memories.iter().for_each(|memory| memory.touch());
        one.join().unwrap();
        other.join().unwrap();
    });
}

/// What a visitor was told of a door does not open what is behind it now.
#[test]
fn a_door_that_was_opened_anew_lets_no_old_key_in() {
    explore(3, || {
        let (doors, [(visitor, hand)]) = model::doors();
        let memory = Arc::new(Mapped::default());
        doors.open(REGION);
        doors.open(PAIR);
        let visitor = visits(visitor, 2, [REGION, PAIR], &memory);
        doors.close(REGION.number);
        wait_for(&hand, REGION.number);
        doors.open(Door { key: REGION.key + 1, ..REGION });
        memory.touch();
        visitor.join().unwrap();
    });
}

/// It is killed behind the doors. The owner hears from the system that it is gone, and does not look at its hand.
#[test]
fn a_visitor_that_dies_behind_a_door_leaves_its_hand_there_and_keeps_no_owner_waiting() {
    explore(3, || {
        let (doors, [(mut visitor, hand)]) = model::doors();
        let memory = Arc::new(Mapped::default());
        doors.open(REGION);
        doors.open(PAIR);
        let dies = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let reach = visitor.reach([REGION, PAIR]);
                let was_inside = reach.is_some();
                if was_inside {
                    memory.touch();
                }
                std::mem::forget(reach);
                was_inside
            })
        };
        doors.close(REGION.number);
        let was_inside = dies.join().unwrap();
        assert_eq!(hand.is_in(REGION.number), was_inside, "its hand stays where it was");
        memory.touch();
    });
}
