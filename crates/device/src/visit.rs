//! A visit to an engine: how a thread enters, turns it and leaves.

use std::mem;
use std::ops::{Deref, DerefMut};

use ferroce_progress::table::ROUNDS;
use ferroce_sys::clock;
use ferroce_sys::sync::{Calls, Inside};
use ferroce_transport::{Completion, SendRequest, Time};
use ferroce_wire::Qpn;

use crate::completion::{CqId, Wake};
use crate::driver::Driver;
use crate::engine::host::Tables;
use crate::engine::{Engine, Reason, Turned};
use crate::engines::{Engines, Station};

/// A thread inside an engine.
///
/// It turns the engine as often as it has to, and then leaves: [`leave`](Self::leave) if it can do what is to
/// be done outside, [`leave_ringing`](Self::leave_ringing) if another thread has to,
/// [`step_out`](Self::step_out) if it is inside of others too. If it is dropped instead, because the thread
/// panics, the driver is woken: the turn after one that panicked fails all work of the engine, and threads
/// that wait for that work should not wait for ever.
#[must_use = "a thread inside an engine has to leave it"]
pub(crate) struct Visit<'a> {
    engines: &'a Engines,
    station: &'a Station,
    // In this order: the engine is left, and then the driver is sent.
    inside: Inside<'a, Engine>,
    driver: SendOnDrop<'a>,
}

/// Sends the driver to an engine that a thread left without a word.
struct SendOnDrop<'a>(&'a Driver);

impl Drop for SendOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// What is left to do for a thread that has left an engine.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    pub(crate) wakes: Vec<Wake>,
    /// Engines to call on, a bit each: they were left something.
    pub(crate) errands: u32,
    /// A region may be free that was to be deregistered as soon as it is.
    pub(crate) let_go: bool,
}

impl Engines {
    /// Enters an engine, waiting for it if need be: for control, never for posting or polling.
    pub(crate) fn enter(&self, index: usize) -> Visit<'_> {
        let station = self.station(index);
        let mut visit = Visit::new(self, station, station.turnstile.enter());
        visit.tables.now = clock::now().max(visit.tables.now);
        // Whatever is done in here, a whole turn has to look at.
        visit.not_plain();
        // Work that met a busy engine was posted before this.
        visit.take_mail();
        visit
    }

    /// Enters an engine if no thread is inside.
    #[inline]
    pub(crate) fn try_enter(&self, index: usize) -> Option<Visit<'_>> {
        let station = self.station(index);
        Some(Visit::new(self, station, station.turnstile.try_enter()?))
    }
}

impl<'a> Visit<'a> {
    #[inline]
    fn new(engines: &'a Engines, station: &'a Station, inside: Inside<'a, Engine>) -> Self {
        Self { engines, station, inside, driver: SendOnDrop(&station.driver) }
    }

    /// Takes in what was posted while the engine was busy.
    #[inline]
    pub(crate) fn take_mail(&mut self) {
        let mail = &self.station.mail;
        self.inside.take_mail(mail);
    }

    /// Turns the engine.
    #[inline]
    pub(crate) fn turn(&mut self, reason: Reason) -> Turned {
        self.turn_at(clock::now(), reason)
    }

    /// Turns the engine, for a thread that has just read the clock. What the turn could not finish rings for
    /// the next one.
    #[inline]
    pub(crate) fn turn_at(&mut self, now: Time, reason: Reason) -> Turned {
        let calls = self.inside.take_calls();
        let (reason, left) = reason.on_hearing(calls);
        // What was posted while the engine was busy, or an alarm that found it so, does not wait again.
        self.inside.called = calls.contains(Calls::POSTED);
        let turned = self.inside.turn(now, reason, self.engines);
        self.after_turn(turned, reason.is_poll(), left);
        turned
    }

    /// Takes in what has come to an engine at rest, for a thread that polls this queue: how many packets, and how many
    /// completions it was handed past the queue. `None` if that takes a whole turn.
    #[inline]
    pub(crate) fn take_what_came(&mut self, cq: CqId, into: &mut [Completion]) -> Option<(usize, usize)> {
        if !self.inside.is_plain() || self.inside.is_called() {
            return None;
        }
        self.inside.tables.open_hand(cq, into.len());
        let turned = self.inside.take_what_came(clock::now(), self.engines);
        let Tables { hand, now, .. } = &mut self.inside.tables;
        let handed = hand.give(into, *now);
        self.after_turn(turned, true, Calls::empty());
        Some((turned.received, handed))
    }

    /// What a turn could not finish rings for the next one, beside what is left of the calls that it has heard.
    #[inline]
    fn after_turn(&mut self, turned: Turned, is_poll: bool, mut left: Calls) {
        let station = self.station;
        // A thread that polls comes back for the rest, and wants to see first what is there.
        let mut comes_back = false;
        if is_poll {
            if station.expects_anything() {
                station.driver.polled(turned.received > 0);
            }
            comes_back = station.driver.is_disarmed();
        }
        left.set(Calls::POSTED, turned.unsent);
        if turned.more && !comes_back {
            left |= Calls::ARRIVED;
        }
        self.inside.ring(left);
    }

    /// Leaves, going round again if the bell rang, and does what is to be done outside.
    #[inline]
    pub(crate) fn leave(mut self) {
        let (engines, driver) = (self.engines, &self.station.driver);
        // Mostly nothing is to be done outside, and no thread has rung.
        if self.inside.has_nothing_to_tell() {
            let next = self.inside.wants_to_run_at_nanos();
            match self.leave_at_rest() {
                Ok(()) => return driver.needed_at_nanos(next),
                Err(visit) => self = visit,
            }
        }
        let mut after = Aftermath::default();
        self.step_out(&mut after);
        engines.finish(after);
    }

    /// Posts a message and sends it, if it is alone. Else nothing has changed.
    #[inline(always)]
    pub(crate) fn send_alone(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> bool {
        !self.inside.is_called() && self.station.freight.is_empty() && self.inside.send_alone(qpn, request)
    }

    /// Leaves, if nothing has happened: for a thread that has not turned the engine.
    ///
    /// # Errors
    /// The bell has rung: the thread is still inside.
    #[inline]
    pub(crate) fn leave_at_rest(self) -> Result<(), Self> {
        let Self { engines, station, inside, driver } = self;
        match inside.leave() {
            Ok(()) => {
                mem::forget(driver);
                Ok(())
            }
            Err(inside) => Err(Self { engines, station, inside, driver }),
        }
    }

    /// Leaves work waiting for company, for a thread that has not turned the engine and leaves nothing else to
    /// do. The driver sends it when the alarm goes off, if no thread did so before.
    #[inline]
    pub(crate) fn leave_waiting(mut self, alarm: Option<Time>) {
        self.counters.posts_gathered += 1;
        // Inside: the next thread that has work wait in here counts on it.
        if let Some(time) = alarm {
            self.station.driver.set_alarm(time);
        }
        // The bell has rung.
        if let Err(mut visit) = self.leave_at_rest() {
            visit.turn(Reason::Posted);
            visit.leave();
        }
    }

    /// Leaves without going round again; whether the bell rings. Then the caller sees to it that a thread
    /// comes.
    pub(crate) fn leave_ringing(self) -> bool {
        let calls = self.inside.leave_ringing();
        mem::forget(self.driver);
        !calls.is_empty()
    }

    /// Leaves, going round again if the bell rang. What is to be done outside is noted.
    pub(crate) fn step_out(mut self, after: &mut Aftermath) {
        let driver = &self.station.driver;
        for _ in 0..ROUNDS {
            self.inside.hand_over(after);
            let next = self.inside.wants_to_run_at();
            match self.inside.leave() {
                Ok(()) => {
                    mem::forget(self.driver);
                    driver.needed_at(next);
                    return;
                }
                Err(inside) => {
                    self.inside = inside;
                    self.turn(Reason::Posted);
                }
            }
        }
        self.inside.hand_over(after);
        let next = self.inside.wants_to_run_at();
        if self.leave_ringing() {
            driver.wake();
        }
        driver.needed_at(next);
    }
}

impl Deref for Visit<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.inside
    }
}

impl DerefMut for Visit<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.inside
    }
}

impl Engine {
    /// Whether nothing is to be done outside.
    #[inline]
    pub(crate) fn has_nothing_to_tell(&self) -> bool {
        self.tables.is_settled() && self.errands == 0 && !self.let_go
    }

    /// Hands over what is to be done outside.
    #[inline]
    fn hand_over(&mut self, after: &mut Aftermath) {
        if after.wakes.is_empty() {
            mem::swap(&mut after.wakes, &mut self.tables.wakes);
        } else {
            after.wakes.append(&mut self.tables.wakes);
        }
        after.errands |= mem::take(&mut self.errands);
        after.let_go |= mem::take(&mut self.let_go);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use ferroce_sys::descriptor::wait_readable;

    use super::*;
    use crate::config::Config;
    use crate::nic::Nic;

    /// It was: a post that heard the bell left no alarm, but the next one that waited took it for set.
    #[test]
    fn an_alarm_is_set_although_the_bell_has_rung() {
        let address = Some([127, 0, 48, 215].into());
        let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
        let station = nic.engines().station(0);
        let visit = nic.engines().enter(0);
        station.turnstile.ring(Calls::POSTED);
        visit.leave_waiting(Some(clock::now()));
        // Nothing reads it, so it stays as it is once it has gone off.
        let alarm = station.driver.alarm().as_fd();
        assert!(wait_readable(alarm, Some(Duration::from_secs(60))).unwrap(), "it was never set");
    }
}
