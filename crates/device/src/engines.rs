//! The engines of a device: how a thread enters one, or all of them, and what it does after leaving.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_memory::MemoryTable;
use ferroce_progress::Courtesy;
use ferroce_progress::table::{
    ERRANDS, IDLE_POLLS, PATIENCE, POLLS_BETWEEN_CLOCKS, POLLS_BETWEEN_LOOKS, SHUT_OUT,
};
use ferroce_switchboard::Membership;
use ferroce_switchboard::slot_of;
use ferroce_sys::clock;
use ferroce_sys::sync::lock;
use ferroce_sys::sync::{Calls, Share, Turnstile};
use ferroce_transport::Completion;
use ferroce_wire::Qpn;
use slab::Slab;

use crate::completion::{CqId, Wake};
use crate::driver::Driver;
use crate::engine::freight::Freight;
use crate::engine::{Engine, Reason};
use crate::event::EventQueue;
use crate::groups::Groups;
use crate::mail::{MAIL, Mail, Parcel};
use crate::neighbours::Neighbours;
use crate::visit::{Aftermath, Visit};

const _: () = assert!(
    IDLE_POLLS.is_multiple_of(POLLS_BETWEEN_CLOCKS),
    "a whole turn is one of those that ask the clock"
);

/// Turns that a thread makes until it has taken in what had arrived before, however fast more comes.
const ARRIVALS: usize = 64;

/// An engine, and what others can reach of it without being inside.
pub(crate) struct Station {
    pub(crate) turnstile: Turnstile<Engine>,
    pub(crate) mail: Mail,
    /// Packets from other engines of this process.
    pub(crate) freight: Freight,
    pub(crate) driver: Driver,
    /// Polls of programs that found no completion and turned to the engine: the driver steps back while they
    /// go on.
    pub(crate) polls: AtomicU64,
    pub(crate) slot: u8,
    /// Polls that found another thread inside.
    shut_out: AtomicU32,
    /// Whether polls that find nothing let others run.
    courtesy: Courtesy,
    /// Processes that share memory with this engine.
    pub(crate) neighbours: Neighbours,
    /// A queue pair here has had a peer that it reaches by packets.
    by_packets: AtomicBool,
    /// Queue pairs and shared receive queues that live here.
    load: AtomicUsize,
}

impl Station {
    pub(crate) fn new(engine: Engine, driver: Driver, neighbours: Neighbours) -> Self {
        Self {
            slot: engine.qps.slot(),
            turnstile: Turnstile::new(engine),
            mail: Mail::with_capacity(MAIL),
            freight: Freight::new(),
            driver,
            polls: AtomicU64::new(0),
            shut_out: AtomicU32::new(0),
            courtesy: Courtesy::new(),
            neighbours,
            by_packets: AtomicBool::new(false),
            load: AtomicUsize::new(0),
        }
    }

    /// Notes that a program found completions without a look at the sockets. That is no look: a program whose
    /// work completes as soon as it is posted may never need one, and then the driver has to.
    #[inline]
    pub(crate) fn found_at_once(&self) {
        if self.expects_anything() {
            self.driver.found();
        }
    }

    /// Counts a poll that found another thread inside. If that goes on, it may wait for this very processor.
    fn shut_out(&self) {
        let times = self.shut_out.load(Ordering::Relaxed).wrapping_add(1);
        self.shut_out.store(times, Ordering::Relaxed);
        if times.is_multiple_of(SHUT_OUT) {
            std::thread::yield_now();
        }
    }

    /// Notes whether the poll of this number found something. If many did not, the peer may wait for this very processor.
    #[inline]
    fn has_polled(&self, poll: u64, found: bool) {
        if found {
            self.courtesy.found(poll);
        } else if self.expects_anything() && self.courtesy.is_due(poll, clock::now) {
            self.let_others_run();
        }
    }

    #[cold]
    fn let_others_run(&self) {
        let from = clock::now();
        std::thread::yield_now();
        self.courtesy.has_waited(from, clock::now());
    }

    /// Whether packets of the network concern a queue pair here.
    pub(crate) fn expects_packets(&self) -> bool {
        self.by_packets.load(Ordering::Relaxed)
    }

    /// Notes that packets of the network concern a queue pair here.
    pub(crate) fn expect_packets(&self) {
        self.by_packets.store(true, Ordering::Relaxed);
    }

    /// Whether packets may come from other processes, over the network or through memory.
    #[inline]
    pub(crate) fn expects_anything(&self) -> bool {
        self.expects_packets() || self.driver.is_rung()
    }

    /// Mail was left that is not posted work: sees to it that a thread takes it in. Never waits.
    pub(crate) fn ask_for_a_turn(&self) {
        self.turnstile.ring(Calls::POSTED);
        self.driver.wake();
    }

    /// Counts one more object that lives here.
    pub(crate) fn settle_in(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one object less that lives here.
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
    /// What happens is written down.
    pub(crate) records: AtomicBool,
}

/// What became of a poll of an engine.
pub(crate) enum Polled<'a> {
    /// There was nothing to do.
    Nothing,
    /// There may be completions now.
    Turned,
    /// Something has come, and the thread is still inside: it has to be [taken in](Engines::take_in_for). And the number of the
    /// poll.
    Came(Visit<'a>, u64),
}

/// A thread is inside of all engines of a device.
pub(crate) struct Everywhere<'a> {
    pub(crate) visits: Vec<Visit<'a>>,
}

impl Everywhere<'_> {
    /// The memory table, to be changed.
    pub(crate) fn memory(&mut self) -> &mut MemoryTable {
        let shares = self.visits.iter_mut().map(|visit| &mut visit.tables.memory);
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
        let records = AtomicBool::new(false);
        Self { stations: stations.into(), by_slot, events, on_wire, groups, cq_ids, member, records }
    }

    pub(crate) fn len(&self) -> usize {
        self.stations.len()
    }

    /// The time, if a record asks when work was posted that is left for a busy engine.
    #[inline]
    pub(crate) fn time_of_posting(&self) -> Option<NonZeroU64> {
        let records = self.records.load(Ordering::Relaxed);
        if records { NonZeroU64::new(clock::now().nanos()) } else { None }
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

    /// Notes whether a queue pair sends over the network what its peer here could have directly.
    pub(crate) fn set_uses_wire(&self, qpn: Qpn, uses: bool) {
        let mut on_wire = lock(&self.on_wire);
        if uses {
            on_wire.insert(qpn);
        } else {
            on_wire.remove(&qpn);
        }
    }

    /// The place of the engine with the fewest objects.
    pub(crate) fn emptiest(&self) -> usize {
        let load = |(_, station): &(usize, &Station)| station.load.load(Ordering::Relaxed);
        self.stations.iter().enumerate().min_by_key(load).map_or(0, |(index, _)| index)
    }

    /// Does something in an engine, waiting for it if need be.
    pub(crate) fn control<R>(&self, index: usize, action: impl FnOnce(&mut Engine) -> R) -> R {
        let mut visit = self.enter(index);
        let result = action(&mut visit);
        visit.turn(Reason::Posted);
        visit.leave();
        result
    }

    /// Does something in all engines at once. They are entered in order, and by no thread that is inside one:
    /// so threads that wait here never wait for each other.
    pub(crate) fn control_all<R>(&self, action: impl FnOnce(&mut Everywhere<'_>) -> R) -> R {
        let mut after = Aftermath::default();
        let result = self.visit_all(action, &mut after);
        self.finish(after);
        result
    }

    /// Does something in all engines at once, and only notes what is to be done outside.
    fn visit_all<R>(&self, action: impl FnOnce(&mut Everywhere<'_>) -> R, after: &mut Aftermath) -> R {
        let mut all = Everywhere { visits: (0..self.len()).map(|index| self.enter(index)).collect() };
        let result = action(&mut all);
        for mut visit in all.visits {
            visit.turn(Reason::Posted);
            visit.step_out(after);
        }
        result
    }

    /// Sends what waits for company: what follows must not overtake it, or would end it.
    pub(crate) fn send_waiting(&self, index: usize) {
        let mut visit = self.enter(index);
        if visit.gather.is_waiting() {
            visit.turn(Reason::Posted);
        }
        visit.leave();
    }

    /// A queue pair is about to go: sends what it was given, and the acknowledgement that it owes.
    pub(crate) fn send_owed(&self, index: usize, qpn: Qpn) {
        let mut visit = self.enter(index);
        if visit.gather.is_waiting() {
            visit.turn(Reason::Posted);
        }
        if visit.qps.get(qpn).is_some_and(|entry| entry.machine.owes_ack()) {
            visit.turn(Reason::Leaving);
        }
        if visit.repeat_acks(Some(qpn)) {
            visit.turn(Reason::Leaving);
        }
        visit.leave();
    }

    /// Takes in all that has arrived for an engine.
    pub(crate) fn take_in(&self, index: usize) {
        let mut visit = self.enter(index);
        for _ in 0..ARRIVALS {
            if !visit.turn(Reason::Driver).more {
                break;
            }
        }
        visit.leave();
    }

    /// The process is about to end: takes in what has come, acknowledges it, and has captures written. An
    /// engine that a thread does not leave is left alone, since that may be the very thread that ends the
    /// process.
    pub(crate) fn say_farewell(&self) {
        for index in 0..self.len() {
            let visit = (0..=PATIENCE).find_map(|attempt| {
                if attempt > 0 {
                    clock::pause(Duration::from_millis(1));
                }
                self.try_enter(index)
            });
            let Some(mut visit) = visit else { continue };
            visit.turn(Reason::Driver);
            visit.turn(Reason::Leaving);
            if visit.repeat_acks(None) {
                visit.turn(Reason::Leaving);
            }
            // The last look finds nothing, and then a capture is brought up to date.
            visit.turn(Reason::Driver);
            visit.leave();
        }
    }

    /// Posts work that needs no turn: does it in the engine if it is free, else leaves parcels.
    pub(crate) fn post(
        &self,
        index: usize,
        direct: impl FnOnce(&mut Engine),
        parcels: impl Iterator<Item = Parcel>,
    ) {
        match self.try_enter(index) {
            Some(mut visit) => {
                visit.take_mail();
                direct(&mut visit);
                visit.leave();
            }
            None => {
                parcels.for_each(|parcel| self.stations[index].mail.push(parcel));
                self.bell_posted(index);
            }
        }
    }

    /// Mail was left because the engine was busy: the one inside sees the bell when leaving,
    /// and if it has just left, this thread goes in itself.
    pub(crate) fn bell_posted(&self, index: usize) {
        self.stations[index].turnstile.ring(Calls::POSTED);
        if let Some(mut visit) = self.try_enter(index) {
            visit.turn(Reason::Posted);
            visit.leave();
        }
    }

    /// Turns an engine for a thread that looked for completions and found none.
    #[inline]
    pub(crate) fn poll(&self, index: usize) -> Polled<'_> {
        let station = &self.stations[index];
        let Some(mut visit) = self.try_enter(index) else {
            station.shut_out();
            return Polled::Turned;
        };
        let polls = station.polls.load(Ordering::Relaxed).wrapping_add(1);
        station.polls.store(polls, Ordering::Relaxed);
        // What comes to no queue pair is counted and thrown away now and then.
        let looks = station.expects_packets() || polls.is_multiple_of(POLLS_BETWEEN_LOOKS);
        let whole = |visit, reason| {
            station.has_polled(polls, poll_whole(visit, reason));
            Polled::Turned
        };
        if (looks || station.driver.is_rung()) && !station.driver.is_disarmed() {
            return whole(visit, Reason::Polled);
        }
        let is_long = |visit: &Visit<'_>| polls.is_multiple_of(IDLE_POLLS) || visit.has_timer_due();
        if !visit.is_at_rest(station) || (polls.is_multiple_of(POLLS_BETWEEN_CLOCKS) && is_long(&visit)) {
            return whole(visit, if looks { Reason::Watched } else { Reason::SocketSkipped });
        }
        if looks && !visit.sees_nothing() {
            return Polled::Came(visit, polls);
        }
        match visit.leave_at_rest() {
            // Nothing was found. Others may run after a whole turn: these are often enough.
            Ok(()) => Polled::Nothing,
            // The bell has rung.
            Err(visit) => whole(visit, Reason::SocketSkipped),
        }
    }

    /// Takes in what has come, for a thread that polls this queue; how many completions it was handed past the queue.
    #[inline]
    pub(crate) fn take_in_for(
        &self,
        mut visit: Visit<'_>,
        polls: u64,
        cq: CqId,
        into: &mut [Completion],
    ) -> usize {
        let station = &self.stations[visit.index()];
        match visit.take_what_came(cq, into) {
            Some((received, handed)) => {
                visit.leave();
                station.has_polled(polls, received > 0);
                handed
            }
            None => {
                station.has_polled(polls, poll_whole(visit, Reason::InboxFilled));
                0
            }
        }
    }

    /// Does what was noted, outside of all engines.
    #[inline]
    pub(crate) fn finish(&self, mut after: Aftermath) {
        loop {
            if after.errands != 0 {
                self.run_errands(&mut after);
            }
            if !after.wakes.is_empty() {
                after.wakes.drain(..).for_each(Wake::run);
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
        self.stations[index].ask_for_a_turn();
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
            next(&mut after.errands).turnstile.ring(Calls::POSTED);
            // If another thread is inside, that one hears the bell.
            if let Some(mut visit) = self.try_enter(index) {
                visit.turn(Reason::Posted);
                visit.step_out(after);
            }
        }
        while after.errands != 0 {
            let station = next(&mut after.errands);
            station.turnstile.ring(Calls::POSTED);
            station.driver.wake();
        }
    }
}

/// A poll that turns the engine: there may be completions now. Whether packets had come.
fn poll_whole(mut visit: Visit<'_>, reason: Reason) -> bool {
    let received = visit.turn(reason).received;
    visit.leave();
    received > 0
}
