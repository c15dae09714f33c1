//! The meeting places of `ferroce_sys::sync` under every interleaving:
//! `RUSTFLAGS="--cfg loom" cargo test -p ferroce-sys --test loom --release`
#![cfg(loom)]
#![allow(unsafe_code, reason = "a watched cell is read and written by pointer")]
#![expect(clippy::unwrap_used, reason = "a test may end so, in its helpers too")]

use std::cell::Cell;
use std::collections::VecDeque;

use ferroce_sys::sync::{Alarm, Biased, Calls, Doze, Errands, Inside, Mailbox, Share, Turnstile, ring};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Runs a model with at most so many pre-emptions in one run, which keeps it short. The environment
/// (`LOOM_MAX_PREEMPTIONS`) has the last word.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

/// A count that loom watches: two hands on it at once end the model.
#[derive(Default)]
struct Watched {
    count: Cell<u32>,
    watch: UnsafeCell<()>,
}

impl Watched {
    fn add(&self) {
        self.watch.with_mut(|_| self.count.set(self.count.get() + 1));
    }

    fn get(&self) -> u32 {
        self.watch.with(|_| self.count.get())
    }
}

/// Stands in for the eventfd: a thread that sleeps on it for ever is a deadlock, which loom reports.
#[derive(Default)]
struct Gong {
    sounding: Mutex<bool>,
    changed: Condvar,
}

impl Gong {
    fn sleep(&self) {
        let mut sounding = self.sounding.lock().unwrap();
        while !*sounding {
            sounding = self.changed.wait(sounding).unwrap();
        }
    }
}

impl Alarm for Gong {
    fn sound(&self) {
        *self.sounding.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn silence(&self) {
        *self.sounding.lock().unwrap() = false;
    }
}

/// The engine of these models: how often each item was worked on.
struct Engine {
    queue: VecDeque<usize>,
    done: [Watched; 2],
}

struct World {
    turnstile: Turnstile<Engine>,
    mailbox: Mailbox<usize>,
    doze: Doze<Gong>,
    all_done: Gong,
    over: AtomicBool,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turnstile: Turnstile::new(Engine { queue: VecDeque::new(), done: Default::default() }),
            mailbox: Mailbox::with_capacity(2),
            doze: Doze::new(Gong::default()),
            all_done: Gong::default(),
            over: AtomicBool::new(false),
        })
    }

    /// What a poster does. True if it has left work behind and the driver has to come.
    fn post(&self, item: usize, rounds: usize) -> bool {
        self.mailbox.push(item);
        self.turnstile.ring(Calls::POSTED);
        match self.turnstile.try_enter() {
            Some(inside) => self.work(inside, rounds),
            None => false,
        }
    }

    fn work<'a>(&'a self, mut inside: Inside<'a, Engine>, rounds: usize) -> bool {
        for _ in 0..rounds {
            self.turn(&mut inside);
            match inside.leave() {
                Ok(()) => return false,
                Err(still) => inside = still,
            }
        }
        !inside.leave_ringing().is_empty()
    }

    fn turn(&self, inside: &mut Inside<'_, Engine>) {
        if !inside.take_calls().contains(Calls::POSTED) {
            return;
        }
        let engine = &mut **inside;
        self.mailbox.take(&mut engine.queue);
        let mut any = false;
        for item in engine.queue.drain(..) {
            engine.done[item].add();
            any = true;
        }
        if any && engine.done.iter().all(|done| done.get() > 0) {
            self.all_done.sound();
        }
    }

    /// What the driver does until it is told to stop.
    fn drive(&self) {
        loop {
            self.doze.going_to_sleep();
            if self.over.load(Relaxed) {
                return;
            }
            if !self.turnstile.is_ringing().is_empty()
                && let Some(inside) = self.turnstile.try_enter()
            {
                self.doze.awake(false);
                if self.work(inside, 2) {
                    self.doze.wake_if_asleep();
                }
                continue;
            }
            self.doze.alarm().sleep();
            self.doze.awake(true);
        }
    }

    fn check_all_done_once(&self) {
        assert!(self.mailbox.is_empty(), "a post was left behind");
        let inside = self.turnstile.try_enter().expect("every thread has left");
        assert_eq!([inside.done[0].get(), inside.done[1].get()], [1, 1]);
    }
}

/// Two posters come while a thread is inside; a thread that leaves calls behind says so.
fn posters_with_one_inside(rounds: usize) {
    let world = World::new();
    let holder = world.turnstile.try_enter().expect("no other thread is there");
    let posters = [0, 1].map(|item| {
        let world = Arc::clone(&world);
        thread::spawn(move || world.post(item, rounds))
    });
    let mut owed = world.work(holder, rounds);
    for poster in posters {
        owed |= poster.join().unwrap();
    }
    if owed && let Some(inside) = world.turnstile.try_enter() {
        assert!(!world.work(inside, 1), "no thread is left to ring");
    }
    world.check_all_done_once();
}

#[test]
fn no_post_is_lost_while_a_thread_is_inside() {
    model(5, || posters_with_one_inside(2));
}

#[test]
fn no_post_is_lost_when_everybody_leaves_at_once() {
    model(5, || posters_with_one_inside(1));
}

/// Nothing but the protocol wakes the driver before everything is done: a call that is lost leaves
/// all threads asleep.
fn posters_with_a_driver(rounds: usize) {
    let world = World::new();
    let driver = thread::spawn({
        let world = Arc::clone(&world);
        move || world.drive()
    });
    let post = move |world: &World, item| {
        if world.post(item, rounds) {
            world.doze.wake_if_asleep();
        }
    };
    let poster = thread::spawn({
        let world = Arc::clone(&world);
        move || post(&world, 0)
    });
    post(&world, 1);
    world.all_done.sleep();
    poster.join().unwrap();
    world.over.store(true, Relaxed);
    world.doze.wake_if_asleep();
    driver.join().unwrap();
    world.check_all_done_once();
}

#[test]
fn a_driver_that_dozes_hears_what_posters_leave() {
    model(3, || posters_with_a_driver(1));
}

#[test]
fn a_driver_that_dozes_hears_what_patient_posters_leave() {
    model(3, || posters_with_a_driver(2));
}

/// A poster that never enters itself: only the announcement of sleep and the bell meet.
#[test]
fn a_driver_that_falls_asleep_hears_the_bell() {
    model(5, || {
        let world = World::new();
        let driver = thread::spawn({
            let world = Arc::clone(&world);
            move || world.drive()
        });
        for item in [0, 1] {
            world.mailbox.push(item);
            world.turnstile.ring(Calls::POSTED);
            world.doze.wake_if_asleep();
        }
        world.all_done.sleep();
        world.over.store(true, Relaxed);
        world.doze.wake_if_asleep();
        driver.join().unwrap();
        world.check_all_done_once();
    });
}

/// A thread sets a time while the driver looks around and falls asleep: the driver has it, or is woken.
#[test]
fn a_driver_that_falls_asleep_knows_the_time_that_was_set() {
    model(3, || {
        let doze = Arc::new(Doze::new(Gong::default()));
        let setter = {
            let doze = Arc::clone(&doze);
            thread::spawn(move || {
                if doze.no_later_than(7) {
                    doze.wake_if_asleep();
                }
            })
        };
        doze.going_to_sleep();
        if doze.until() == Doze::<Gong>::NEVER {
            doze.alarm().sleep();
        }
        doze.awake(true);
        assert_eq!(doze.until(), 7);
        setter.join().unwrap();
    });
}

#[test]
fn one_at_a_time_is_inside() {
    model(4, || {
        let turnstile = Arc::new(Turnstile::new(Watched::default()));
        let others = [0, 1].map(|_| {
            let turnstile = Arc::clone(&turnstile);
            thread::spawn(move || {
                let inside = turnstile.enter();
                inside.add();
                inside.leave().expect("no thread rings");
            })
        });
        let tried = turnstile.try_enter().is_some_and(|inside| {
            inside.add();
            true
        });
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(turnstile.enter().get(), 2 + u32::from(tried));
    });
}

#[test]
fn records_cross_a_small_ring_whole_and_in_order() {
    model(3, || {
        let (mut producer, mut consumer) = ring::channel::<2>(2);
        let gauge = consumer.gauge();
        let writer = thread::spawn(move || {
            for index in 1..=3_u64 {
                while producer.push([index, !index]).is_err() {
                    thread::yield_now();
                }
            }
        });
        for index in 1..=3_u64 {
            let record = loop {
                match consumer.pop() {
                    Some(record) => break record,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(record, [index, !index], "in order and whole");
        }
        writer.join().unwrap();
        assert!(gauge.is_empty());
    });
}

#[test]
fn a_filled_mailbox_is_not_empty_to_the_thread_that_is_told() {
    model(5, || {
        let mailbox = Arc::new(Mailbox::with_capacity(2));
        let pusher = thread::spawn({
            let mailbox = Arc::clone(&mailbox);
            move || {
                mailbox.push(1);
                mailbox.push(2);
            }
        });
        let mut taken = VecDeque::new();
        mailbox.take(&mut taken);
        let early = taken.len();
        pusher.join().unwrap();
        assert_eq!(mailbox.is_empty(), early == 2);
        mailbox.take(&mut taken);
        assert_eq!(taken, [1, 2]);
    });
}

/// What two engines have in common. Loom ends a model in which a thread writes while others read or write.
#[derive(Default)]
struct Common(UnsafeCell<u32>);

// SAFETY: that no thread reads it while another one writes is what the models below find out.
unsafe impl Sync for Common {}

#[test]
fn what_engines_share_changes_only_inside_all_of_them() {
    model(3, || {
        let shares = Share::split(Common::default(), 2);
        let engines: Arc<Vec<_>> = Arc::new(shares.into_iter().map(Turnstile::new).collect());
        let readers = [0, 1].map(|index| {
            let engines = Arc::clone(&engines);
            thread::spawn(move || {
                let inside = engines[index].enter();
                // SAFETY: the pointer is good as long as the share is borrowed.
                let seen = inside.0.with(|value| unsafe { *value });
                inside.leave().expect("no thread rings");
                seen
            })
        });
        let mut all: Vec<_> = engines.iter().map(Turnstile::enter).collect();
        let common = Share::all(all.iter_mut().map(|inside| &mut **inside)).expect("both shares");
        // SAFETY: the pointer is good as long as all shares are borrowed.
        common.0.with_mut(|value| unsafe { *value += 1 });
        drop(all);
        for reader in readers {
            assert!(reader.join().unwrap() <= 1);
        }
        let inside = engines[1].try_enter().expect("every thread has left");
        // SAFETY: as above.
        assert_eq!(inside.0.with(|value| unsafe { *value }), 1);
    });
}

/// An engine of a device that has two, and what others leave for it.
struct Station {
    turnstile: Turnstile<Watched>,
    freight: Mailbox<()>,
}

/// Does in one engine what was left for it, until no thread has rung.
fn take_in<'a>(station: &'a Station, mut inside: Inside<'a, Watched>) {
    loop {
        inside.take_calls();
        let mut load = VecDeque::new();
        station.freight.take(&mut load);
        load.drain(..).for_each(|()| inside.add());
        match inside.leave() {
            Ok(()) => return,
            Err(again) => inside = again,
        }
    }
}

/// From inside one engine does something in the other if that is free, and else leaves it there and calls
/// on it afterwards.
fn work_across(here: &Station, there: &Station) {
    let inside = here.turnstile.enter();
    let errand = match there.turnstile.try_enter() {
        Some(mut other) => {
            let mut load = VecDeque::new();
            there.freight.take(&mut load);
            load.drain(..).for_each(|()| other.add());
            other.add();
            other.take_calls();
            !other.leave_ringing().is_empty()
        }
        None => {
            there.freight.push(());
            true
        }
    };
    take_in(here, inside);
    if errand {
        there.turnstile.ring(Calls::POSTED);
        if let Some(inside) = there.turnstile.try_enter() {
            take_in(there, inside);
        }
    }
}

#[test]
fn engines_that_want_something_of_each_other_neither_wait_nor_forget() {
    model(4, || {
        let station =
            || Station { turnstile: Turnstile::new(Watched::default()), freight: Mailbox::with_capacity(2) };
        let stations = Arc::new([station(), station()]);
        let other = thread::spawn({
            let stations = Arc::clone(&stations);
            move || work_across(&stations[1], &stations[0])
        });
        work_across(&stations[0], &stations[1]);
        other.join().unwrap();
        for station in &*stations {
            assert!(station.freight.is_empty(), "something was left behind");
            assert_eq!(station.turnstile.try_enter().expect("every thread has left").get(), 1);
        }
    });
}

/// Each of two senders gets the answer to its own errand, one at a time, and the thread that does them ends.
#[test]
fn errands_are_answered_to_their_senders() {
    model(2, || {
        let (errands, hands) = (Arc::new(Errands::new()), Arc::new(Watched::default()));
        let theirs = Arc::clone(&errands);
        let worker = thread::spawn(move || {
            theirs.work(|number: u32| {
                hands.add();
                number * 10 + hands.get()
            });
        });
        let other = Arc::clone(&errands);
        let sender = thread::spawn(move || other.send(1));
        let second = errands.send(2).unwrap();
        let first = sender.join().unwrap().unwrap();
        assert!((first, second) == (11, 22) || (first, second) == (12, 21), "{first} {second}");
        errands.end();
        worker.join().unwrap();
        assert_eq!(errands.send(3), None);
    });
}

/// An errand that comes when no more are wanted is done, or its sender is told that it is not.
#[test]
fn no_sender_waits_for_a_thread_that_has_gone() {
    model(2, || {
        let errands = Arc::new(Errands::new());
        let (theirs, other) = (Arc::clone(&errands), Arc::clone(&errands));
        let worker = thread::spawn(move || theirs.work(|number: u32| number + 1));
        let sender = thread::spawn(move || other.send(1));
        errands.end();
        assert!(matches!(sender.join().unwrap(), None | Some(2)));
        worker.join().unwrap();
    });
}

#[test]
fn one_thread_at_a_time_holds_a_biased_lock_also_as_habits_come_and_go() {
    model(3, || {
        let lock = Arc::new(Biased::new(Watched::default()));
        // From the second time on by habit.
        lock.lock().add();
        lock.lock().add();
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                lock.lock().add();
                lock.lock().add();
            })
        };
        lock.lock().add();
        lock.lock().add();
        other.join().unwrap();
        assert_eq!(lock.lock().get(), 6);
    });
}

#[test]
fn a_thread_that_is_late_in_seeing_that_its_habit_is_gone_disturbs_no_other() {
    model(3, || {
        let lock = Arc::new(Biased::new(Watched::default()));
        lock.lock().add();
        let others = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                lock.lock().add();
                lock.lock().add();
            })
        });
        lock.lock().add();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(lock.lock().get(), 6);
    });
}
