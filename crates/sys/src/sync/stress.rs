//! What `tests/loom.rs` proves for a few steps, run with real threads for many.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::doze::tests::sounds;
use super::ring;
use super::{Calls, Doze, Inside, Mailbox, Turnstile};
use crate::descriptor::EventFd;

const POSTERS: usize = 3;
const EACH: u64 = 20_000;
/// How long a sleep may last before it counts as a lost wake-up.
const LOST: Duration = Duration::from_secs(60);

/// The engine of this test: remembers how far it has come with every poster.
struct Engine {
    queue: VecDeque<(usize, u64)>,
    next: [u64; POSTERS],
}

struct World {
    turnstile: Turnstile<Engine>,
    mailbox: Mailbox<(usize, u64)>,
    doze: Doze,
    finished: AtomicBool,
}

impl World {
    fn new() -> Self {
        Self {
            turnstile: Turnstile::new(Engine { queue: VecDeque::new(), next: [0; POSTERS] }),
            mailbox: Mailbox::with_capacity(16),
            doze: Doze::new(EventFd::new().expect("an eventfd")),
            finished: AtomicBool::new(false),
        }
    }

    fn post(&self, poster: usize, item: u64) {
        self.mailbox.push((poster, item));
        self.turnstile.ring(Calls::POSTED);
        if let Some(inside) = self.turnstile.try_enter() {
            self.work(inside);
        }
    }

    /// At most two rounds; what is left is for the driver.
    fn work<'a>(&'a self, mut inside: Inside<'a, Engine>) {
        for _ in 0..2 {
            self.turn(&mut inside);
            match inside.leave() {
                Ok(()) => return,
                Err(still) => inside = still,
            }
        }
        if !inside.leave_ringing().is_empty() {
            self.doze.wake_if_asleep();
        }
    }

    fn turn(&self, inside: &mut Inside<'_, Engine>) {
        if !inside.take_calls().contains(Calls::POSTED) {
            return;
        }
        let engine = &mut **inside;
        self.mailbox.take(&mut engine.queue);
        for (poster, item) in engine.queue.drain(..) {
            assert_eq!(item, engine.next[poster], "once each, and in order");
            engine.next[poster] += 1;
        }
        if engine.next == [EACH; POSTERS] {
            self.finished.store(true, Ordering::SeqCst);
        }
    }

    /// Sleeps whenever there is nothing to do.
    fn drive(&self) {
        while !self.finished.load(Ordering::SeqCst) {
            self.doze.going_to_sleep();
            if !self.turnstile.is_ringing().is_empty()
                && let Some(inside) = self.turnstile.try_enter()
            {
                self.doze.awake(false);
                self.work(inside);
                continue;
            }
            // No thread hides a lost wake-up by waking the driver once more before everything is done.
            let sounded = self.finished.load(Ordering::SeqCst) || sounds(self.doze.alarm(), LOST);
            assert!(sounded, "no thread woke the driver: {:?}", self.turnstile);
            self.doze.awake(true);
        }
    }
}

#[test]
fn every_post_is_worked_on_once_and_the_driver_hears_what_is_left() {
    let world = World::new();
    thread::scope(|scope| {
        let driver = scope.spawn(|| world.drive());
        for poster in 0..POSTERS {
            let world = &world;
            scope.spawn(move || (0..EACH).for_each(|item| world.post(poster, item)));
        }
        while !world.finished.load(Ordering::SeqCst) && !driver.is_finished() {
            thread::yield_now();
        }
        world.doze.wake_if_asleep();
    });
    assert!(world.mailbox.is_empty());
    assert_eq!(world.turnstile.enter().next, [EACH; POSTERS]);
}

#[test]
fn threads_that_wait_to_enter_all_get_in() {
    let turnstile = Turnstile::new(0_u64);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..5_000 {
                    let mut inside = turnstile.enter();
                    let before = *inside;
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    *inside = before + 1;
                    if round % 2 == 0 {
                        inside.leave().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(*turnstile.enter(), 20_000);
}

#[test]
fn records_cross_the_ring_whole_and_in_order() {
    const RECORDS: u64 = 200_000;
    let (mut producer, mut consumer) = ring::channel::<4>(5);
    let gauge = consumer.gauge();
    let record = |index: u64| [index, !index, index.rotate_left(17), index ^ 0x5555];
    thread::scope(|scope| {
        scope.spawn(move || {
            for index in 0..RECORDS {
                while producer.push(record(index)).is_err() {
                    thread::yield_now();
                }
            }
        });
        let mut next = 0;
        let mut batch = [[0; 4]; 3];
        while next < RECORDS {
            let taken = consumer.pop_into(&mut batch);
            assert!(gauge.len() <= gauge.capacity());
            for got in &batch[..taken] {
                assert_eq!(*got, record(next));
                next += 1;
            }
            if taken == 0 {
                thread::yield_now();
            }
        }
    });
    assert!(gauge.is_empty());
}
