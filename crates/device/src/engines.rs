//! The engines of a device: how a thread enters one, or all of them, and what it does after leaving.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_memory::MemoryTable;
use ferroce_switchboard::Membership;
use ferroce_switchboard::slot_of;
use ferroce_sys::clock;
use ferroce_sys::sync::lock;
use ferroce_sys::sync::{Calls, Inside, Share, Turnstile};
use ferroce_transport::Time;
use ferroce_wire::Qpn;
use slab::Slab;

use crate::completion::Wake;
use crate::driver::Driver;
use crate::engine::freight::Freight;
use crate::engine::{Engine, Reason, Turned};
use crate::event::EventQueue;
use crate::groups::Groups;
use crate::mail::{MAIL, Mail, Parcel};

/// Times that a thread which leaves the engine goes round again because others have rung.
const ROUNDS: usize = 3;

/// Milliseconds that the end of a process waits for an engine.
const PATIENCE: u32 = 50;

/// Engines that a thread calls on after leaving its own, before it sends the drivers.
const ERRANDS: usize = 16;

/// Polls between two looks at a socket whose packets concern no queue pair.
const LOOKS_ALOOF: u64 = 256;

/// Polls that find nothing to do, and are done soon, until one makes a whole turn.
const GLANCES: u64 = 32;

/// Polls that find an engine taken before the thread lets others have its processor: about as long as a turn.
const SHUT_OUT: u32 = 64;

/// An engine, and what others can reach of it without being inside.
pub(crate) struct Station {
    pub(crate) turnstile: Turnstile<Engine>,
    pub(crate) mail: Mail,
    /// Packets from other engines of this process.
    pub(crate) freight: Freight,
    pub(crate) driver: Driver,
    /// Looks that programs took at the sockets: the driver steps back while they go on.
    pub(crate) looks: AtomicU64,
    slot: u8,
    /// Polls that found another thread inside.
    shut_out: AtomicU32,
    /// A queue pair here has had a peer that it reaches by packets.
    by_packets: AtomicBool,
    /// Queue pairs and shared receive queues that live here.
    load: AtomicUsize,
}

impl Station {
    pub(crate) fn new(engine: Engine, driver: Driver) -> Self {
        Self {
            slot: engine.qps.slot(),
            turnstile: Turnstile::new(engine),
            mail: Mail::with_capacity(MAIL),
            freight: Freight::new(),
            driver,
            looks: AtomicU64::new(0),
            shut_out: AtomicU32::new(0),
            by_packets: AtomicBool::new(false),
            load: AtomicUsize::new(0),
        }
    }

    /// A program found completions without having to look at the sockets. That is no look: a program whose work
    /// completes as soon as it is posted may never need one, and then the driver has to.
    #[inline]
    pub(crate) fn found_at_once(&self) {
        if self.expects_packets() {
            self.driver.found_something();
        }
    }

    /// Another thread is inside. If that goes on, it may wait for this very processor.
    fn shut_out(&self) {
        let times = self.shut_out.load(Ordering::Relaxed).wrapping_add(1);
        self.shut_out.store(times, Ordering::Relaxed);
        if times.is_multiple_of(SHUT_OUT) {
            std::thread::yield_now();
        }
    }

    /// Whether packets of the network concern a queue pair here.
    pub(crate) fn expects_packets(&self) -> bool {
        self.by_packets.load(Ordering::Relaxed)
    }

    /// From now on they do.
    pub(crate) fn expect_packets(&self) {
        self.by_packets.store(true, Ordering::Relaxed);
    }

    /// One more object lives here.
    pub(crate) fn settle_in(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub(crate) fn move_out(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All engines of a device: what its driver threads and its objects share.
pub(crate) struct Engines {
    stations: Box<[Station]>,
    /// Which engine a slot belongs to: its place plus 1, or 0 for none.
    by_slot: [u8; 256],
    pub(crate) events: Arc<EventQueue>,
    /// Queue pairs that must not meet their peers directly, although these are in this process.
    on_wire: Mutex<HashSet<Qpn>>,
    pub(crate) groups: Groups,
    /// The numbers of completion queues, which are the same in all engines.
    pub(crate) cq_ids: Mutex<Slab<()>>,
    /// The processes that the port is shared with.
    pub(crate) member: Arc<Membership>,
}

/// What is left to do for a thread that has left an engine.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    wakes: Vec<Wake>,
    /// Engines to call on, a bit each: they were left something.
    errands: u32,
    /// A region may be free that was to be deregistered as soon as it is.
    let_go: bool,
}

/// A thread is inside of all engines of a device.
pub(crate) struct Everywhere<'a> {
    pub(crate) inside: Vec<Inside<'a, Engine>>,
}

impl Everywhere<'_> {
    /// The memory table, to be changed.
    pub(crate) fn memory(&mut self) -> &mut MemoryTable {
        let shares = self.inside.iter_mut().map(|engine| &mut engine.tables.memory);
        Share::all(shares).expect("each engine has a share, and all engines are in here")
    }
}

impl Engines {
    pub(crate) fn new(stations: Vec<Station>, events: Arc<EventQueue>, member: Arc<Membership>) -> Self {
        let mut by_slot = [0; 256];
        for (place, station) in (1..).zip(&stations) {
            by_slot[usize::from(station.slot)] = place;
        }
        let (on_wire, groups, cq_ids) = (Mutex::default(), Groups::default(), Mutex::default());
        Self { stations: stations.into(), by_slot, events, on_wire, groups, cq_ids, member }
    }

    pub(crate) fn len(&self) -> usize {
        self.stations.len()
    }

    pub(crate) fn station(&self, index: usize) -> &Station {
        &self.stations[index]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Station> {
        self.stations.iter()
    }

    /// The engine that a queue pair number is of, if it is one of this process.
    pub(crate) fn of(&self, qpn: Qpn) -> Option<usize> {
        usize::from(self.by_slot[usize::from(slot_of(qpn))]).checked_sub(1)
    }

    /// Whether a queue pair of this process sends over the network what its peer here could have directly.
    pub(crate) fn has_to_use_wire(&self, qpn: Qpn) -> bool {
        lock(&self.on_wire).contains(&qpn)
    }

    /// Takes note of it.
    pub(crate) fn set_uses_wire(&self, qpn: Qpn, uses: bool) {
        let mut on_wire = lock(&self.on_wire);
        if uses {
            on_wire.insert(qpn);
        } else {
            on_wire.remove(&qpn);
        }
    }

    /// The engine with the least on it.
    pub(crate) fn emptiest(&self) -> usize {
        let load = |(_, station): &(usize, &Station)| station.load.load(Ordering::Relaxed);
        self.stations.iter().enumerate().min_by_key(load).map_or(0, |(index, _)| index)
    }

    /// Does something in an engine, waiting for it if need be.
    pub(crate) fn control<R>(&self, index: usize, action: impl FnOnce(&mut Engine) -> R) -> R {
        let mut inside = self.enter(index);
        let result = action(&mut inside);
        self.turn_and_leave(index, inside, Reason::Posted);
        result
    }

    /// A queue pair is about to go: sends the acknowledgement that it owes.
    pub(crate) fn send_owed(&self, index: usize, qpn: Qpn) {
        let mut inside = self.enter(index);
        if inside.qps.get(qpn).is_some_and(|entry| entry.machine.owes_ack()) {
            inside = self.turn_leaving(index, inside);
        }
        if inside.repeat_acks(Some(qpn)) {
            inside = self.turn_leaving(index, inside);
        }
        self.leave(index, inside);
    }

    fn turn_leaving<'a>(&self, index: usize, inside: Inside<'a, Engine>) -> Inside<'a, Engine> {
        let (inside, turned) = self.turn(index, inside, Reason::Leaving);
        inside.ring(left_over(turned));
        inside
    }

    /// The process is about to end: takes in what has come, acknowledges it, and has captures written. An
    /// engine that a thread does not leave is left alone, since that may be the very thread that ends the
    /// process.
    pub(crate) fn say_farewell(&self) {
        for (index, station) in self.stations.iter().enumerate() {
            let mut tries = 0..PATIENCE;
            let inside = loop {
                match station.turnstile.try_enter() {
                    Some(inside) => break Some(inside),
                    None if tries.next().is_none() => break None,
                    None => clock::pause(Duration::from_millis(1)),
                }
            };
            let Some(mut inside) = inside else { continue };
            // The last look finds nothing, and then a capture is brought up to date.
            for reason in [Reason::Driver, Reason::Leaving] {
                inside = self.turn(index, inside, reason).0;
            }
            if inside.repeat_acks(None) {
                inside = self.turn(index, inside, Reason::Leaving).0;
            }
            inside = self.turn(index, inside, Reason::Driver).0;
            self.leave(index, inside);
        }
    }

    /// Takes in what has arrived for an engine, and sends what it owes.
    pub(crate) fn settle(&self, index: usize) {
        let inside = self.enter(index);
        self.turn_and_leave(index, inside, Reason::Driver);
    }

    /// Does something in all engines at once. They are entered in order, and by no thread that is inside one:
    /// so threads that wait here never wait for each other.
    pub(crate) fn control_all<R>(&self, action: impl FnOnce(&mut Everywhere<'_>) -> R) -> R {
        let mut after = Aftermath::default();
        let result = self.visit_all(action, &mut after);
        self.finish(after);
        result
    }

    /// The same, but what is to be done outside is only noted.
    fn visit_all<R>(&self, action: impl FnOnce(&mut Everywhere<'_>) -> R, after: &mut Aftermath) -> R {
        let mut all = Everywhere { inside: (0..self.len()).map(|index| self.enter(index)).collect() };
        let result = action(&mut all);
        for (index, inside) in all.inside.into_iter().enumerate() {
            self.turn_and_step_out(clock::now(), index, inside, Reason::Posted, after);
        }
        result
    }

    /// Enters an engine from outside, waiting if need be.
    fn enter(&self, index: usize) -> Inside<'_, Engine> {
        let station = &self.stations[index];
        let mut inside = station.turnstile.enter();
        inside.tables.now = clock::now();
        // Work that met a busy engine was posted before this.
        inside.take_mail(&station.mail);
        inside
    }

    /// Posts work that needs no turn: does it in the engine if it is free, else leaves parcels.
    pub(crate) fn post(
        &self,
        index: usize,
        direct: impl FnOnce(&mut Engine),
        parcels: impl Iterator<Item = Parcel>,
    ) {
        let station = &self.stations[index];
        match station.turnstile.try_enter() {
            Some(mut inside) => {
                inside.take_mail(&station.mail);
                direct(&mut inside);
                self.leave(index, inside);
            }
            None => {
                parcels.for_each(|parcel| station.mail.push(parcel));
                self.bell_posted(index);
            }
        }
    }

    /// Mail was left because the engine was busy: the one inside sees the bell when leaving,
    /// and if it has just left, this thread goes in itself.
    pub(crate) fn bell_posted(&self, index: usize) {
        let turnstile = &self.stations[index].turnstile;
        turnstile.ring(Calls::POSTED);
        if let Some(inside) = turnstile.try_enter() {
            self.turn_and_leave(index, inside, Reason::Posted);
        }
    }

    /// Turns an engine for a thread that looked for completions and found none. Whether there may be some
    /// now.
    #[inline]
    pub(crate) fn poll_turn(&self, index: usize) -> bool {
        let station = &self.stations[index];
        let Some(mut inside) = station.turnstile.try_enter() else {
            station.shut_out();
            return true;
        };
        let looks = station.looks.load(Ordering::Relaxed).wrapping_add(1);
        station.looks.store(looks, Ordering::Relaxed);
        // What comes to no queue pair is counted and thrown away now and then.
        let reason = if !station.expects_packets() && !looks.is_multiple_of(LOOKS_ALOOF) {
            Reason::Aloof
        } else if station.driver.is_parked() {
            Reason::Watched
        } else {
            Reason::Polled
        };
        let is_quiet =
            !looks.is_multiple_of(GLANCES) && inside.is_at_rest(station) && !inside.has_timer_due();
        if reason == Reason::Polled || !is_quiet {
            return self.poll_whole(index, inside, reason, looks);
        }
        if reason == Reason::Watched && !inside.sees_nothing() {
            return self.poll_whole(index, inside, Reason::Glanced, looks);
        }
        match inside.leave() {
            Ok(()) => false,
            // The bell has rung.
            Err(inside) => self.poll_whole(index, inside, Reason::Aloof, looks),
        }
    }

    /// The same with a whole turn.
    fn poll_whole(&self, index: usize, mut inside: Inside<'_, Engine>, reason: Reason, looks: u64) -> bool {
        let station = &self.stations[index];
        let arrived = inside.take_calls().contains(Calls::ARRIVED);
        let reason = if arrived && reason == Reason::Aloof { Reason::Polled } else { reason };
        let (inside, mut turned) = self.turn(index, inside, reason);
        if station.expects_packets() {
            station.driver.polled(turned.received == 0, looks);
        }
        // A thread that polls comes back for the rest, and wants to see first what is there.
        turned.more &= !station.driver.is_parked();
        inside.ring(left_over(turned));
        self.leave(index, inside);
        true
    }

    pub(crate) fn turn_and_leave(&self, index: usize, inside: Inside<'_, Engine>, reason: Reason) {
        self.turn_and_leave_at(clock::now(), index, inside, reason);
    }

    /// Turns an engine and leaves it, for a thread that has just read the clock.
    pub(crate) fn turn_and_leave_at(
        &self,
        now: Time,
        index: usize,
        inside: Inside<'_, Engine>,
        reason: Reason,
    ) {
        let mut after = Aftermath::default();
        self.turn_and_step_out(now, index, inside, reason, &mut after);
        self.finish(after);
    }

    /// Leaves an engine, going round again if the bell rang, and wakes what has to be woken.
    pub(crate) fn leave(&self, index: usize, inside: Inside<'_, Engine>) {
        let mut after = Aftermath::default();
        self.step_out(index, inside, &mut after);
        self.finish(after);
    }

    #[inline]
    fn turn_and_step_out(
        &self,
        now: Time,
        index: usize,
        mut inside: Inside<'_, Engine>,
        reason: Reason,
        after: &mut Aftermath,
    ) {
        // What the driver rang for must not be lost because work was posted.
        let arrived = inside.take_calls().contains(Calls::ARRIVED);
        let reason = if arrived { Reason::Driver } else { reason };
        let (inside, turned) = self.turn_at(now, index, inside, reason);
        inside.ring(left_over(turned));
        self.step_out(index, inside, after);
    }

    /// Turns an engine.
    #[inline]
    pub(crate) fn turn<'a>(
        &self,
        index: usize,
        inside: Inside<'a, Engine>,
        reason: Reason,
    ) -> (Inside<'a, Engine>, Turned) {
        self.turn_at(clock::now(), index, inside, reason)
    }

    #[inline]
    fn turn_at<'a>(
        &self,
        now: Time,
        index: usize,
        inside: Inside<'a, Engine>,
        reason: Reason,
    ) -> (Inside<'a, Engine>, Turned) {
        let guard = WakeOnPanic(&self.stations[index].driver);
        // Of a panic the driver hears when the engine was left.
        let mut inside = inside;
        let turned = inside.turn(now, reason, self);
        std::mem::forget(guard);
        (inside, turned)
    }

    /// Leaves an engine, going round again if the bell rang. What is to be done outside is noted.
    fn step_out(&self, index: usize, mut inside: Inside<'_, Engine>, after: &mut Aftermath) {
        let driver = &self.stations[index].driver;
        for _ in 0..ROUNDS {
            inside.hand_over(after);
            let next = inside.wants_to_run_at();
            match inside.leave() {
                Ok(()) => {
                    driver.needed_at(next);
                    return;
                }
                Err(mut again) => {
                    let calls = again.take_calls();
                    let reason = if calls.contains(Calls::ARRIVED) { Reason::Driver } else { Reason::Posted };
                    let (turned_inside, turned) = self.turn(index, again, reason);
                    inside = turned_inside;
                    inside.ring(left_over(turned));
                }
            }
        }
        inside.hand_over(after);
        let next = inside.wants_to_run_at();
        if !inside.leave_ringing().is_empty() {
            driver.wake();
        }
        driver.needed_at(next);
    }

    /// Does what was noted, outside of all engines.
    #[inline]
    fn finish(&self, mut after: Aftermath) {
        loop {
            if after.errands != 0 {
                self.run_errands(&mut after);
            }
            for wake in std::mem::take(&mut after.wakes) {
                wake.run();
            }
            if !std::mem::take(&mut after.let_go) {
                return;
            }
            // That leaves something to do in turn: a loop, so that it never goes deeper.
            self.visit_all(
                |all| {
                    all.release_regions();
                },
                &mut after,
            );
        }
    }

    /// Deregisters those leaving regions that no posted work names any more.
    pub(crate) fn release_regions(&self) {
        self.control_all(|all| {
            all.release_regions();
        });
    }

    /// Another process has left packets for an engine: sees to it that a thread takes them. Never waits.
    pub(crate) fn send_for(&self, index: usize) {
        let station = &self.stations[index];
        station.turnstile.ring(Calls::POSTED);
        station.driver.wake();
    }

    /// Calls on the engines that were left something. They may have something for others in turn: that
    /// goes on for a while, and then the drivers do the rest.
    #[cold]
    fn run_errands(&self, after: &mut Aftermath) {
        let next = |errands: &mut u32| {
            let index = errands.trailing_zeros() as usize;
            *errands &= errands.wrapping_sub(1);
            &self.stations[index]
        };
        for _ in 0..ERRANDS {
            if after.errands == 0 {
                return;
            }
            let index = after.errands.trailing_zeros() as usize;
            let turnstile = &next(&mut after.errands).turnstile;
            turnstile.ring(Calls::POSTED);
            // If another thread is inside, that one hears the bell.
            if let Some(inside) = turnstile.try_enter() {
                self.turn_and_step_out(clock::now(), index, inside, Reason::Posted, after);
            }
        }
        while after.errands != 0 {
            let station = next(&mut after.errands);
            station.turnstile.ring(Calls::POSTED);
            station.driver.wake();
        }
    }
}

/// Sends the driver if this thread panics in an engine: the thread that turns it next fails all its work,
/// and threads that wait for that work should not wait for ever.
pub(crate) struct WakeOnPanic<'a>(pub(crate) &'a Driver);

impl Drop for WakeOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.wake();
        }
    }
}

impl Engine {
    /// Hands over what is to be done outside.
    #[inline]
    fn hand_over(&mut self, after: &mut Aftermath) {
        if after.wakes.is_empty() {
            std::mem::swap(&mut after.wakes, &mut self.tables.wakes);
        } else {
            after.wakes.append(&mut self.tables.wakes);
        }
        after.errands |= std::mem::take(&mut self.errands);
        after.let_go |= std::mem::take(&mut self.let_go);
    }
}

/// What a turn has left for the next one.
pub(crate) fn left_over(turned: Turned) -> Calls {
    let mut calls = Calls::empty();
    calls.set(Calls::ARRIVED, turned.more);
    calls.set(Calls::POSTED, turned.unsent);
    calls
}
