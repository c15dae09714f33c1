//! The driver: a thread that turns the engine while nobody else does.
//!
//! It sleeps in epoll on the sockets (edge-triggered) and on its own bell. Programs that poll do
//! its work better than it can: after a few polls that found nothing it is *parked*, which means
//! that the sockets no longer wake it; it looks once a millisecond whether the program still
//! calls, and takes over when it does not. If the engine is taken when it wakes, it rings and
//! sleeps again: whoever is inside looks at the bell when leaving.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ferroce_sys::SignalsBlocked;
use ferroce_sys::clock;
use ferroce_sys::descriptor::EventFd;
use ferroce_sys::epoll::{Epoll, Watch as Arrivals};
use ferroce_sys::sync::lock;
use ferroce_sys::sync::{Calls, Doze};
use ferroce_transport::Time;

use crate::engine::Reason;
use crate::engines::{Engines, left_over};
use crate::event::AsyncEvent;

/// Polls that found nothing before the driver is parked.
const PARK_AFTER: u32 = 4;

/// Polls that found something before it is parked: a program that keeps coming needs nobody to go before
/// it, although it never has to wait.
const PARK_AFTER_FINDING: u32 = 64;

/// How long only polls that found nothing count, once a program was found to look elsewhere than in its
/// completion queue: it may be one that waits for its memory to change.
const CAUGHT: Duration = Duration::from_secs(1);

/// How often a parked driver looks whether the program still calls.
const TICK: Duration = Duration::from_millis(1);

/// Looks without a call before the driver stops looking and waits for packets only.
const QUIET_TICKS: u32 = 16;

/// Completions after which the driver is armed at once, when a program was found gone.
const PERMISSIONS: u32 = 16;

/// What other threads see of the driver.
#[derive(Debug)]
pub(crate) struct Driver {
    epoll: Epoll,
    sockets: Vec<RawFd>,
    doze: Doze<EventFd>,
    stop: AtomicBool,
    /// The sockets wake it. Changed only together with what epoll knows, under the lock.
    armed: AtomicBool,
    arming: Mutex<()>,
    /// When it wakes by itself, in nanoseconds; `u64::MAX` for never.
    wakes_at: AtomicU64,
    /// Polls that found nothing since it was last armed.
    empty_polls: AtomicU32,
    /// Polls that found something since it was last armed.
    finding_polls: AtomicU32,
    /// Until when these do not count, in nanoseconds.
    caught_until: AtomicU64,
    /// Completions at which it may be armed again.
    permissions: AtomicU32,
    /// How many completion queues of the device somebody sleeps for: then it must not be parked.
    slept_for: Arc<AtomicU32>,
    /// A thread that waits for a completion sits in its place: sockets are for that one to watch.
    seated: AtomicBool,
    /// How often programs had looked when it was last armed at a completion.
    armed_at: AtomicU64,
}

impl Driver {
    /// `slept_for` is shared by the drivers of a device.
    pub(crate) fn new(sockets: &[RawFd], slept_for: Arc<AtomicU32>) -> io::Result<Self> {
        let driver = Self {
            epoll: Epoll::new()?,
            sockets: sockets.to_vec(),
            doze: Doze::new(EventFd::new()?),
            stop: AtomicBool::new(false),
            armed: AtomicBool::new(true),
            arming: Mutex::new(()),
            armed_at: AtomicU64::new(0),
            slept_for,
            seated: AtomicBool::new(false),
            wakes_at: AtomicU64::new(u64::MAX),
            empty_polls: AtomicU32::new(0),
            finding_polls: AtomicU32::new(0),
            caught_until: AtomicU64::new(0),
            permissions: AtomicU32::new(0),
        };
        driver.epoll.add(driver.doze.alarm().as_fd().as_raw_fd(), Arrivals::WhileReadable)?;
        for socket in &driver.sockets {
            driver.epoll.add(*socket, Arrivals::EachArrival)?;
        }
        Ok(driver)
    }

    /// Wakes it, if it sleeps.
    pub(crate) fn wake(&self) {
        self.doze.wake_if_asleep();
    }

    /// Ends it.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// The engine was left and has to be turned at this time: sees to it that somebody will.
    pub(crate) fn needed_at(&self, time: Option<Time>) {
        let Some(mut time) = time else { return };
        let parked = !self.armed.load(Ordering::SeqCst) && !self.seated.load(Ordering::SeqCst);
        let wakes_at = Time::from_nanos(self.wakes_at.load(Ordering::SeqCst));
        if parked && time < wakes_at {
            // A parked driver looks once a tick anyway, and the program that polls runs the timers itself, if late.
            time = time.max(clock::now()) + TICK;
        }
        if time < wakes_at && self.wakes_at.fetch_min(time.nanos(), Ordering::SeqCst) > time.nanos() {
            self.wake();
        }
    }

    /// What it watches.
    pub(crate) fn sockets(&self) -> &[RawFd] {
        &self.sockets
    }

    /// Lets a thread watch the sockets that is going to sleep; false if somebody does so already, or others
    /// rely on the driver.
    pub(crate) fn give_place(&self) -> bool {
        if self.slept_for.load(Ordering::SeqCst) > 0 || self.seated.swap(true, Ordering::SeqCst) {
            return false;
        }
        if self.armed.load(Ordering::Relaxed) {
            self.park();
        }
        true
    }

    /// That thread is awake. Should it never call again, this has to be noticed soon.
    pub(crate) fn take_place_back(&self) {
        self.seated.store(false, Ordering::SeqCst);
        let soon = clock::now() + TICK;
        if self.wakes_at.load(Ordering::SeqCst) > (soon + TICK).nanos() {
            self.needed_at(Some(soon));
        }
    }

    /// Whether it leaves the sockets to programs that poll.
    pub(crate) fn is_parked(&self) -> bool {
        !self.armed.load(Ordering::Relaxed)
    }

    /// A poll found completions or packets. Only an estimate: threads that do this at once may count as one.
    #[inline]
    pub(crate) fn found_something(&self) {
        if self.armed.load(Ordering::Relaxed) {
            let polls = self.finding_polls.load(Ordering::Relaxed) + 1;
            self.finding_polls.store(polls, Ordering::Relaxed);
            if polls >= PARK_AFTER_FINDING {
                self.park_if_not_caught();
            }
        }
    }

    #[cold]
    fn park_if_not_caught(&self) {
        self.finding_polls.store(0, Ordering::Relaxed);
        let caught = clock::now().nanos() < self.caught_until.load(Ordering::Relaxed);
        if !caught && self.slept_for.load(Ordering::SeqCst) == 0 {
            self.park();
        }
    }

    /// A poll found nothing, or something.
    pub(crate) fn polled(&self, empty: bool, looks: u64) {
        if !empty {
            if !self.armed.load(Ordering::Relaxed) && self.permissions.load(Ordering::Relaxed) > 0 {
                self.permissions.fetch_sub(1, Ordering::Relaxed);
                self.armed_at.store(looks, Ordering::Relaxed);
                self.arm();
            } else {
                self.found_something();
            }
            return;
        }
        let empty = self.empty_polls.load(Ordering::Relaxed) + 1;
        self.empty_polls.store(empty, Ordering::Relaxed);
        let nobody_sleeps = self.slept_for.load(Ordering::SeqCst) == 0;
        if empty >= PARK_AFTER && self.armed.load(Ordering::Relaxed) && nobody_sleeps {
            self.park();
        }
    }

    fn park(&self) {
        self.set_armed(false);
        // From now on it has to look by itself.
        self.needed_at(Some(clock::now()));
    }

    fn arm(&self) {
        self.empty_polls.store(0, Ordering::Relaxed);
        self.finding_polls.store(0, Ordering::Relaxed);
        // Whatever is in the socket already is reported as if it had just come.
        self.set_armed(true);
    }

    fn set_armed(&self, armed: bool) {
        let _both = lock(&self.arming);
        if self.armed.swap(armed, Ordering::SeqCst) != armed {
            // Taken out, not only silenced: a socket that nobody waits for tells nobody of a packet, and
            // whoever sent it is done sooner.
            for socket in &self.sockets {
                // Cannot fail: the descriptors live as long as the driver.
                drop(match armed {
                    true => self.epoll.add(*socket, Arrivals::EachArrival),
                    false => self.epoll.remove(*socket),
                });
            }
        }
    }

    /// The program is going to sleep until something completes: nobody will poll.
    pub(crate) fn expect_sleep(&self) {
        self.empty_polls.store(0, Ordering::Relaxed);
        self.finding_polls.store(0, Ordering::Relaxed);
        if !self.armed.load(Ordering::SeqCst) {
            self.arm();
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

/// What the driver knows of a program that looks for completions itself.
#[derive(Debug)]
struct Watch {
    /// How often it had looked, and when that was seen to change.
    looks: u64,
    since: Time,
    /// Ticks without a look.
    quiet: u32,
}

/// What a driver sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// The program has looked since.
    Looking,
    /// It has not, but it had no tick to do so: a driver that is woken twice in a moment, perhaps on the program's own
    /// processor, learns nothing from the second time.
    TooEarly,
    /// It has not.
    Gone,
}

impl Watch {
    const fn new(now: Time) -> Self {
        Self { looks: 0, since: now, quiet: QUIET_TICKS }
    }

    /// What to think of a program that has looked so often by now.
    fn see(&mut self, looks: u64, now: Time) -> Seen {
        if looks != self.looks {
            *self = Self { looks, since: now, quiet: 0 };
            return Seen::Looking;
        }
        if now < self.since + TICK {
            return Seen::TooEarly;
        }
        self.since = now;
        self.quiet = self.quiet.saturating_add(1);
        Seen::Gone
    }

    /// When there is something to see again.
    fn next_tick(&self) -> Time {
        self.since + TICK
    }
}

fn drive(engines: &Engines, index: usize) {
    let station = engines.station(index);
    let driver = &station.driver;
    let mut watch = Watch::new(clock::now());
    while !driver.stop.load(Ordering::SeqCst) {
        // Whoever needs the engine turned from now on says so here, also while we look.
        driver.wakes_at.store(u64::MAX, Ordering::SeqCst);
        let next = look(engines, index, &mut watch);
        driver.wakes_at.fetch_min(next.map_or(u64::MAX, Time::nanos), Ordering::SeqCst);
        driver.doze.going_to_sleep();
        // Whoever rings, or needs us earlier, from now on finds us asleep and wakes us.
        let turned = !station.turnstile.is_ringing().is_empty() && turn(engines, index);
        if !turned && !driver.stop.load(Ordering::SeqCst) {
            let until = driver.wakes_at.load(Ordering::SeqCst);
            driver.epoll.sleep((until != u64::MAX).then(|| Time::from_nanos(until)));
        }
        driver.doze.awake(true);
    }
}

/// Sees whether the engine has to be turned, does it, and says when to look again.
fn look(engines: &Engines, index: usize, watch: &mut Watch) -> Option<Time> {
    let station = engines.station(index);
    let driver = &station.driver;
    let now = clock::now();
    let seen = watch.see(station.looks.load(Ordering::Relaxed), now);
    // Who was found gone a moment ago is not given the benefit of the doubt.
    let doubted = now.nanos() < driver.caught_until.load(Ordering::Relaxed);
    let gone = seen == Seen::Gone || (seen == Seen::TooEarly && doubted);
    let parked = !driver.armed.load(Ordering::SeqCst);
    let seated = driver.seated.load(Ordering::SeqCst);
    if parked && gone && !seated {
        driver.permissions.store(PERMISSIONS, Ordering::Relaxed);
        if seen == Seen::Gone {
            driver.caught_until.store((now + CAUGHT).nanos(), Ordering::Relaxed);
        }
        driver.arm();
    }
    // Who sits in its place sleeps, and sees to no timers.
    let wanted = if parked && !gone && !seated { None } else { turn_now(engines, index) };
    let parked = !driver.armed.load(Ordering::SeqCst) && !driver.seated.load(Ordering::SeqCst);
    let tick = (parked || watch.quiet < QUIET_TICKS).then(|| watch.next_tick());
    [wanted, tick].into_iter().flatten().min()
}

/// Turns the engine, or rings if somebody is inside. Says when it wants to be turned next.
fn turn_now(engines: &Engines, index: usize) -> Option<Time> {
    let station = engines.station(index);
    let Some(mut inside) = station.turnstile.try_enter() else {
        station.turnstile.ring(Calls::ARRIVED);
        return None;
    };
    inside.take_calls();
    // Only if no program has looked since is it right that the driver is armed.
    let gone = station.looks.load(Ordering::Relaxed) == station.driver.armed_at.load(Ordering::Relaxed);
    let (inside, turned) = engines.turn(index, inside, Reason::Driver);
    inside.ring(left_over(turned));
    if gone && turned.received > 0 && station.driver.permissions.load(Ordering::Relaxed) > 0 {
        station.driver.permissions.store(PERMISSIONS, Ordering::Relaxed);
    }
    let next = inside.wants_to_run_at();
    engines.leave(index, inside);
    next
}

/// Turns the engine because somebody left the bell ringing; false if somebody is inside by now.
fn turn(engines: &Engines, index: usize) -> bool {
    let Some(inside) = engines.station(index).turnstile.try_enter() else { return false };
    engines.turn_and_leave(index, inside, Reason::Driver);
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_wakes_twice_in_a_tick_does_not_take_the_program_for_gone() {
        let at = |micros: u64| Time::from_nanos(micros * 1000);
        let mut watch = Watch::new(at(0));
        assert_eq!(watch.see(5, at(1000)), Seen::Looking);
        assert_eq!(watch.see(5, at(1020)), Seen::TooEarly);
        assert_eq!(watch.see(5, at(1999)), Seen::TooEarly);
        assert_eq!(watch.next_tick(), at(2000));
        assert_eq!(watch.see(5, at(2000)), Seen::Gone);
        assert_eq!(watch.quiet, 1);
        assert_eq!(watch.see(6, at(2010)), Seen::Looking);
        assert_eq!((watch.quiet, watch.next_tick()), (0, at(3010)));
    }

    #[test]
    fn a_driver_stops_looking_after_some_quiet_ticks() {
        let mut watch = Watch::new(Time::ZERO);
        assert_eq!(watch.see(1, Time::ZERO), Seen::Looking);
        for tick in 1..=QUIET_TICKS {
            let now = watch.next_tick();
            assert_eq!(watch.see(1, now), Seen::Gone);
            assert_eq!(watch.quiet, tick);
        }
    }
}
