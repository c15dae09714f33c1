//! The thread of a driver: it turns the engine while no other thread does.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use ferroce_sys::SignalsBlocked;
use ferroce_sys::clock;
use ferroce_sys::sync::Calls;
use ferroce_transport::Time;

use super::{CAUGHT, PERMISSIONS, QUIET_TICKS, TICK};
use crate::engine::Reason;
use crate::engines::{Engines, left_over};
use crate::event::AsyncEvent;

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
        // A thread that needs the engine turned from now on says so here, also while we look.
        driver.wakes_at.store(u64::MAX, Ordering::SeqCst);
        let next = look(engines, index, &mut watch);
        driver.wakes_at.fetch_min(next.map_or(u64::MAX, Time::nanos), Ordering::SeqCst);
        driver.doze.going_to_sleep();
        // A thread that rings, or needs us earlier, from now on finds us asleep and wakes us.
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
    // A program that was found gone a moment ago is not given the benefit of the doubt.
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
    // A thread that sits in its place sleeps, and sees to no timers.
    let wanted = if parked && !gone && !seated { None } else { turn_now(engines, index) };
    let parked = !driver.armed.load(Ordering::SeqCst) && !driver.seated.load(Ordering::SeqCst);
    let tick = (parked || watch.quiet < QUIET_TICKS).then(|| watch.next_tick());
    [wanted, tick].into_iter().flatten().min()
}

/// Turns the engine, or rings if another thread is inside. Says when it wants to be turned next.
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

/// Turns the engine because a thread left the bell ringing; false if another thread is inside by now.
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
