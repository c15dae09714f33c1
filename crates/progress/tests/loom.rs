//! The state of a driver under every interleaving:
//! `RUSTFLAGS="--cfg loom" cargo test -p ferroce-progress --test loom --release`
#![cfg(loom)]

use ferroce_progress::{Duty, Event, Sleepers, Sockets, table};
use ferroce_transport::Time;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

/// Stands in for the epoll set.
struct Set(AtomicBool);

impl Sockets for Set {
    fn watch(&self, arrivals: bool) {
        let before = self.0.swap(arrivals, Ordering::SeqCst);
        assert_ne!(before, arrivals, "a socket is added once, and taken out once");
    }
}

struct World {
    duty: Duty<Set>,
    sleepers: std::sync::Arc<Sleepers>,
}

impl World {
    fn new() -> Arc<Self> {
        let sleepers = std::sync::Arc::new(Sleepers::default());
        let duty = Duty::new(Set(AtomicBool::new(true)), std::sync::Arc::clone(&sleepers));
        Arc::new(Self { duty, sleepers })
    }

    /// So many polls that find nothing as park a driver on which no thread relies.
    fn poll_in_vain(&self) {
        for _ in 0..table::PARK_AFTER {
            self.duty.polled(false, || Time::ZERO);
        }
    }

    fn go_to_sleep(&self) {
        self.sleepers.add();
        self.duty.note(Event::Sleep);
    }

    fn is_watched(&self) -> bool {
        self.duty.sockets().0.load(Ordering::SeqCst)
    }

    /// When no thread is at it, the set is as the word says.
    fn check(&self) {
        assert_eq!(self.is_watched(), self.duty.state().armed, "the set follows the word");
    }
}

#[test]
fn a_thread_that_goes_to_sleep_beside_one_that_polls_has_an_armed_driver() {
    model(3, || {
        let world = World::new();
        // One poll is left until it is parked.
        for _ in 1..table::PARK_AFTER {
            world.duty.polled(false, || Time::ZERO);
        }
        let poller = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.duty.polled(false, || Time::ZERO);
                // To a parked driver this one is no news.
                world.duty.polled(false, || Time::ZERO);
            })
        };
        world.go_to_sleep();
        poller.join().unwrap();
        assert!(world.duty.state().armed, "no thread polls any more, and one sleeps");
        world.check();
    });
}

#[test]
fn a_thread_that_goes_to_sleep_beside_one_that_sits_down_has_an_armed_driver() {
    model(3, || {
        let world = World::new();
        let sitter = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.duty.sit().is_some())
        };
        world.go_to_sleep();
        let sat = sitter.join().unwrap();
        let state = world.duty.state();
        assert!(state.armed);
        assert_eq!(state.seated, sat);
        world.check();
    });
}

#[test]
fn a_thread_that_asks_for_an_event_beside_one_that_polls_has_an_armed_driver() {
    model(3, || {
        let world = World::new();
        for _ in 1..table::PARK_AFTER {
            world.duty.polled(false, || Time::ZERO);
        }
        let poller = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.duty.polled(false, || Time::ZERO);
                world.duty.polled(false, || Time::ZERO);
            })
        };
        world.sleepers.ask();
        world.duty.note(Event::Sleep);
        poller.join().unwrap();
        assert!(world.duty.state().armed, "no thread polls any more, and one may sleep for its event");
        world.check();
    });
}

#[test]
fn two_threads_do_not_sit_in_one_place() {
    model(3, || {
        let world = World::new();
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.duty.sit().is_some())
        };
        let one = world.duty.sit().is_some();
        assert_eq!(u8::from(one) + u8::from(other.join().unwrap()), 1);
        world.duty.note(Event::Rise);
        assert!(world.duty.state().is_parked());
        world.check();
    });
}

#[test]
fn the_set_follows_the_word_whatever_the_order() {
    model(2, || {
        let world = World::new();
        let driver = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.duty.note(Event::Gone))
        };
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.duty.note(Event::Sleep))
        };
        world.poll_in_vain();
        driver.join().unwrap();
        other.join().unwrap();
        world.check();
    });
}

#[test]
fn a_driver_that_is_stopped_stays_so() {
    model(3, || {
        let world = World::new();
        let stops = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.duty.note(Event::Stop))
        };
        world.poll_in_vain();
        stops.join().unwrap();
        assert!(world.duty.state().stopped && world.duty.state().is_parked());
        world.check();
    });
}
