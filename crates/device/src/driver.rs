//! The driver: a thread that turns the engine while no other thread does.
//!
//! It sleeps in epoll on the sockets (edge-triggered) and on its own bell. Programs that poll do its work
//! better than it can: then it is *parked*, which means that the sockets no longer wake it, and looks once a
//! tick whether the program still polls. When to change between the two is the policy of `ferroce-progress`;
//! here is what makes the system calls. If the engine is taken when the driver wakes, it rings and sleeps
//! again: the thread inside looks at the bell when it leaves.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use ferroce_progress::{Duty, Event, Plan, Program, Sleepers, Sockets, due, table};
use ferroce_sys::SignalsBlocked;
use ferroce_sys::clock;
use ferroce_sys::descriptor::{AlarmClock, EventFd};
use ferroce_sys::epoll::{Epoll, Watch};
use ferroce_sys::sync::{Calls, Doze};
use ferroce_transport::Time;

use crate::engine::Reason;
use crate::engines::{Engines, Station};
use crate::event::AsyncEvent;
use crate::lookout::Lookout;
use crate::mail::Parcel;
use crate::neighbours::Look;

/// What other threads see of the driver.
#[derive(Debug)]
pub(crate) struct Driver {
    duty: Duty<Watched>,
    doze: Doze<EventFd>,
    /// How often a thread rose from the driver's place.
    rises: AtomicU64,
    /// Goes off when work has waited for company long enough.
    alarm: AlarmClock,
    /// When the alarm goes off that no thread has answered yet, in nanoseconds; 0 if there is none.
    alarmed_at: AtomicU64,
}

/// The sockets of an engine, and the set that the driver sleeps on.
#[derive(Debug)]
struct Watched {
    epoll: Epoll,
    /// With the bell, if there is one.
    sockets: Vec<RawFd>,
    /// What other processes ring that share memory with this one, if any may.
    bell: Option<EventFd>,
    /// Some do.
    is_rung: AtomicBool,
    /// A thread woke from its sleep on the bell since the engine last said that it sleeps.
    woken: AtomicBool,
}

impl Sockets for Watched {
    /// Sockets are taken out of the set, not only silenced: one that no thread waits for wakes none when a
    /// packet comes, and the thread that sent it is done sooner.
    fn watch(&self, arrivals: bool) {
        for socket in &self.sockets {
            // Cannot fail: the descriptors live as long as the driver.
            drop(match arrivals {
                true => self.epoll.add(*socket, Watch::EachArrival),
                false => self.epoll.remove(*socket),
            });
        }
        // Others take this engine for awake, and do not ring: it has to be turned once, to tell them.
        if arrivals
            && self.is_rung.load(Ordering::Relaxed)
            && let Some(bell) = &self.bell
        {
            bell.signal();
        }
    }
}

impl Driver {
    /// An armed driver of an engine with these sockets. `sleepers` are those of the whole device.
    pub(crate) fn new(sockets: &[RawFd], sleepers: Arc<Sleepers>, has_bell: bool) -> io::Result<Self> {
        let bell = has_bell.then(EventFd::new).transpose()?;
        let mut sockets = sockets.to_vec();
        sockets.extend(bell.as_ref().map(|bell| bell.as_fd().as_raw_fd()));
        let (is_rung, woken) = Default::default();
        let watched = Watched { epoll: Epoll::new()?, sockets, bell, is_rung, woken };
        let doze = Doze::new(EventFd::new()?);
        watched.epoll.add(doze.alarm().as_fd().as_raw_fd(), Watch::WhileReadable)?;
        let alarm = AlarmClock::new()?;
        watched.epoll.add(alarm.as_fd().as_raw_fd(), Watch::EachArrival)?;
        for socket in &watched.sockets {
            watched.epoll.add(*socket, Watch::EachArrival)?;
        }
        let duty = Duty::new(watched, sleepers);
        Ok(Self { duty, doze, rises: AtomicU64::new(0), alarm, alarmed_at: AtomicU64::new(0) })
    }

    /// Wakes the driver, if it sleeps.
    pub(crate) fn wake(&self) {
        self.doze.wake_if_asleep();
    }

    /// Ends the driver.
    pub(crate) fn stop(&self) {
        self.duty.note(Event::Stop);
        self.wake();
    }

    /// The engine was left and has to be turned at this time: sees to it that a thread does so.
    #[inline]
    pub(crate) fn needed_at(&self, time: Option<Time>) {
        if let Some(time) = time
            && time.nanos() < self.doze.until()
        {
            self.needed_sooner(time);
        }
    }

    /// As [`needed_at`](Self::needed_at), with the time in nanoseconds, of which the last is never.
    #[inline(always)]
    pub(crate) fn needed_at_nanos(&self, time: u64) {
        if time < self.doze.until() {
            self.needed_sooner(Time::from_nanos(time));
        }
    }

    fn needed_sooner(&self, time: Time) {
        // A parked driver wakes a tick later at least: mostly it does so anyway, and the clock need not be asked.
        if self.duty.state().is_parked() && (time + table::TICK).nanos() >= self.doze.until() {
            return;
        }
        if self.doze.no_later_than(due(self.duty.state(), time, clock::now).nanos()) {
            self.wake();
        }
    }

    /// Has the driver wake at this time, and send what waits for company by then. To be called inside of the engine: other
    /// threads that find their work waiting there count on it.
    pub(crate) fn set_alarm(&self, time: Time) {
        // Before it can go off.
        self.alarmed_at.store(time.nanos(), Ordering::Release);
        self.alarm.set(time);
    }

    #[cfg(test)]
    pub(crate) const fn alarm(&self) -> &AlarmClock {
        &self.alarm
    }

    /// The sockets that the driver watches, and the bell.
    pub(crate) fn sockets(&self) -> &[RawFd] {
        &self.duty.sockets().sockets
    }

    /// What other processes ring that share memory with this one.
    pub(crate) fn bell(&self) -> Option<&EventFd> {
        self.duty.sockets().bell.as_ref()
    }

    /// Others may ring from now on.
    pub(crate) fn expect_rings(&self) {
        self.duty.sockets().is_rung.store(true, Ordering::Relaxed);
    }

    /// Whether others may ring.
    pub(crate) fn is_rung(&self) -> bool {
        self.duty.sockets().is_rung.load(Ordering::Relaxed)
    }

    /// A thread wakes that has slept on the bell: a signal may be used up with it. A turn has to follow, in which others are told that
    /// the engine sleeps once more.
    pub(crate) fn note_woken(&self) {
        self.duty.sockets().woken.store(true, Ordering::Relaxed);
    }

    /// Whether that was so since the last time.
    pub(crate) fn take_woken(&self) -> bool {
        let woken = &self.duty.sockets().woken;
        woken.load(Ordering::Relaxed) && woken.swap(false, Ordering::Relaxed)
    }

    /// Has the driver wake when another process is gone. The descriptor leaves the set when it is closed.
    pub(crate) fn watch_lifeline(&self, lifeline: RawFd) {
        // Without it the end of that process is seen later.
        let _ = self.duty.sockets().epoll.add(lifeline, Watch::EachArrival);
    }

    /// Whether a thread sleeps on the sockets, or is about to: the driver, or one in its place.
    #[inline]
    pub(crate) fn is_slept_on(&self) -> bool {
        let state = self.duty.state();
        state.armed || state.seated
    }

    /// Lets a thread that is going to sleep watch the sockets; false if another thread does so already, or
    /// others rely on the driver.
    pub(crate) fn give_place(&self) -> bool {
        let sat = self.duty.sit();
        self.after(sat == Some(true));
        sat.is_some()
    }

    /// Takes the place back from a thread that is awake. Should it never call again, this has to be noticed
    /// soon.
    pub(crate) fn take_place_back(&self) {
        self.duty.note(Event::Rise);
        // The driver that is woken here must not take this thread for gone before it has had its tick.
        self.rises.fetch_add(1, Ordering::Relaxed);
        let now = clock::now();
        if self.doze.until() > (now + table::TICK).nanos() {
            self.needed_at(Some(now));
        }
    }

    /// Whether the driver leaves the sockets to threads of the program.
    #[inline]
    pub(crate) fn is_disarmed(&self) -> bool {
        !self.duty.state().armed
    }

    /// Whether no thread of the program watches the sockets, or sleeps and relies on the driver.
    pub(crate) fn is_alone(&self) -> bool {
        let state = self.duty.state();
        state.armed && !state.stopped && !self.duty.is_relied_on()
    }

    /// A poll found completions without looking at the sockets.
    #[inline]
    pub(crate) fn found(&self) {
        self.after(self.duty.found(clock::now));
    }

    /// A poll looked at the sockets.
    #[inline]
    pub(crate) fn polled(&self, received: bool) {
        self.after(self.duty.polled(received, clock::now));
    }

    /// The program is going to sleep until something completes: no thread will poll.
    pub(crate) fn expect_sleep(&self) {
        self.duty.note(Event::Sleep);
    }

    /// Has a driver that was parked just now look at the program by itself.
    #[inline]
    fn after(&self, is_parked: bool) {
        if is_parked {
            self.needed_sooner(clock::now());
        }
    }
}

/// Starts the driver thread of an engine. It takes no signals: they are the program's.
pub(crate) fn spawn(engines: Arc<Engines>, index: usize) -> io::Result<JoinHandle<()>> {
    let _blocked = SignalsBlocked::new();
    std::thread::Builder::new().name("ferroce-driver".to_owned()).spawn(move || {
        // A panic has said why, and the next turn fails all work of the engine. Should that panic too,
        // it is left alone.
        for _ in 0..2 {
            if catch_unwind(AssertUnwindSafe(|| drive(&engines, index))).is_ok() {
                return;
            }
            engines.events.push(AsyncEvent::DeviceFatal);
        }
    })
}

fn drive(engines: &Engines, index: usize) {
    let station = engines.station(index);
    let Driver { duty, doze, .. } = &station.driver;
    let mut program = Program::new(clock::now());
    let mut lookout = Lookout::new();
    while !duty.state().stopped {
        // A thread that needs the engine turned from now on says so here, also while this one looks.
        doze.look_around();
        if station.driver.is_rung() {
            lose_gone(station);
        }
        if look(engines, index, &mut program) {
            let may_look = || station.driver.is_alone() && station.turnstile.is_ringing().is_empty();
            lookout.look(may_look, || turn(engines, index));
        }
        doze.going_to_sleep();
        // A thread that rings, or needs it earlier, from now on finds it asleep and wakes it.
        let turned = !station.turnstile.is_ringing().is_empty() && turn(engines, index).is_some();
        if !turned && !duty.state().stopped {
            let until = doze.until();
            let until = (until != Doze::<EventFd>::NEVER).then(|| Time::from_nanos(until));
            duty.sockets().epoll.sleep(until);
            station.driver.note_woken();
        }
        doze.awake(true);
    }
}

/// Tells the engine of processes that shared memory with it and are gone, if it is time to look.
fn lose_gone(station: &Station) {
    let lost = |slot, incarnation| {
        station.mail.push(Parcel::Lost(slot, incarnation));
        station.turnstile.ring(Calls::POSTED);
    };
    match station.neighbours.forget_gone(clock::now(), lost) {
        Look::At(next) => drop(station.driver.doze.no_later_than(next)),
        Look::Done => {}
    }
}

/// Sees whether the engine has to be turned, does it, and sets the time to look again. Whether packets had come.
fn look(engines: &Engines, index: usize, program: &mut Program) -> bool {
    let station = engines.station(index);
    let Driver { duty, doze, rises, alarmed_at, .. } = &station.driver;
    let now = clock::now();
    // A driver that wakes for something else leaves what waits: the alarm is still to come.
    let alarm = alarmed_at.load(Ordering::Acquire);
    if alarm != 0 && now.nanos() >= alarm {
        // Unless another one was set meanwhile.
        let _ = alarmed_at.compare_exchange(alarm, 0, Ordering::Relaxed, Ordering::Relaxed);
        send_waiting(engines, index, now);
    }
    let calls = station.polls.load(Ordering::Relaxed).wrapping_add(rises.load(Ordering::Relaxed));
    let seen = program.see(calls, now);
    let plan = Plan::new(duty.state(), seen, duty.is_doubted(now));
    if plan.doubts {
        duty.doubt(now);
    }
    if plan.takes_over {
        duty.note(Event::Gone);
    }
    let mut has_received = false;
    if plan.turns {
        match turn(engines, index) {
            Some(received) => has_received = received > 0,
            None => station.turnstile.ring(Calls::ARRIVED),
        }
    }
    if let Some(next) = program.next_look(duty.state()) {
        doze.no_later_than(next.nanos());
    }
    has_received
}

/// Sends what waits for company, if no thread has done so. A thread that is inside hears the bell, and sends it.
fn send_waiting(engines: &Engines, index: usize, now: Time) {
    let Some(mut visit) = engines.try_enter(index) else {
        return engines.station(index).turnstile.ring(Calls::POSTED);
    };
    if visit.gather.is_waiting() {
        visit.gather.alarmed(now);
        visit.counters.gathered_by_driver += 1;
        visit.turn_at(now, Reason::Posted);
    }
    visit.leave();
}

/// Turns the engine, and says how many packets had come; `None` if another thread is inside.
fn turn(engines: &Engines, index: usize) -> Option<usize> {
    let mut visit = engines.try_enter(index)?;
    let received = visit.turn(Reason::Driver).received;
    if received > 0 {
        engines.station(index).driver.duty.note(Event::Received);
    }
    visit.leave();
    Some(received)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Config;
    use crate::nic::Nic;

    /// It was: a driver that woke for something else took the alarm for heard, and what waited then left a tick later.
    #[test]
    fn a_driver_that_wakes_too_soon_leaves_the_alarm_to_come() {
        let address = Some([127, 0, 48, 216].into());
        let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
        let engines = nic.engines();
        let driver = &engines.station(0).driver;
        let mut program = Program::new(clock::now());
        driver.set_alarm(clock::now() + Duration::from_secs(3600));
        look(engines, 0, &mut program);
        assert_ne!(driver.alarmed_at.load(Ordering::Relaxed), 0, "it is still to come");
        driver.set_alarm(clock::now());
        look(engines, 0, &mut program);
        assert_eq!(driver.alarmed_at.load(Ordering::Relaxed), 0, "this thread or the driver has heard it");
    }
}
