//! How threads and futures wait for completions.

use std::io;
use std::task::Waker;
use std::time::Duration;

use ferroce_progress::table::{POLLS_PER_CLOCK, SPIN};
use ferroce_sys::clock;
use ferroce_sys::sync::this_thread;
use ferroce_transport::Completion;

use crate::cq::CompletionQueue;
use crate::sleeper::{Bell, Seat};
use crate::waiters::Reliance;

impl CompletionQueue {
    /// Takes completions off, waiting for the first until the time is over; for ever without one.
    pub fn wait(&self, into: &mut [Completion], timeout: Option<Duration>) -> usize {
        let deadline = timeout.map(|timeout| clock::now() + timeout);
        loop {
            let taken = self.poll(into);
            // In a forked child nothing will ever come.
            if taken > 0 || into.is_empty() || !self.nic.is_ours() {
                return taken;
            }
            let left = deadline.map(clock::until);
            if left == Some(Duration::ZERO) {
                return 0;
            }
            if self.shared.spin.looks_first() {
                let taken = self.look_for_a_moment(into, left);
                self.shared.spin.has_looked(taken > 0);
                if taken > 0 {
                    return taken;
                }
            }
            Self::sleep_for_any(std::iter::once(self), left, |_| true);
        }
    }

    /// Looks again and again, for a moment.
    fn look_for_a_moment(&self, into: &mut [Completion], left: Option<Duration>) -> usize {
        let end = clock::now() + left.map_or(SPIN, |left| left.min(SPIN));
        let by_packets = self.engines().any(|engine| self.nic.engines().station(engine).expects_anything());
        loop {
            for _ in 0..POLLS_PER_CLOCK {
                // Where no packets come, another thread completes what is waited for, and needs the engine.
                let taken = if by_packets { self.poll(into) } else { self.take(into) };
                if taken > 0 {
                    return taken;
                }
                std::hint::spin_loop();
            }
            if clock::now() >= end {
                return 0;
            }
        }
    }

    /// Sleeps until one of these queues has completions, the waker is called that `begin` gets, or the time
    /// is over; for ever without one. It takes nothing off, and may wake for nothing. The caller has just
    /// polled; `begin` says whether there still is nothing else to do.
    pub fn sleep_for_any<'a>(
        queues: impl Iterator<Item = &'a Self> + Clone,
        limit: Option<Duration>,
        begin: impl FnOnce(&Waker) -> bool,
    ) {
        if queues.clone().any(|queue| !queue.nic.is_ours()) {
            return;
        }
        let mut begin = Some(begin);
        let slept = BELL.try_with(|bell| {
            let bell = bell.as_ref().ok()?;
            let (seat, station) = Self::seat_for(queues.clone())?;
            let engines = queues.clone().next()?.nic.engines();
            let sleep = || seat.sleep(bell, limit, || engines.take_in(station));
            Self::sleep_as(queues.clone(), &bell.waker, Reliance::None, begin.take()?, sleep);
            Some(())
        });
        // A thread that is about to end has no bell.
        if slept.ok().flatten().is_none()
            && let Some(begin) = begin
        {
            let sleep = || clock::park(limit);
            Self::sleep_as(queues, &this_thread(), Reliance::Driver, begin, sleep);
        }
    }

    /// The place of the driver whose engine all of these queues are of, if packets are expected there and no
    /// thread relies on that driver.
    fn seat_for<'a>(queues: impl Iterator<Item = &'a Self> + Clone) -> Option<(Seat<'a>, usize)> {
        let first = queues.clone().next()?;
        let engines = queues.clone().fold(0, |engines, queue| engines | queue.shared.engines());
        if engines.count_ones() != 1 || !queues.clone().all(|queue| queue.nic.is_same(&first.nic)) {
            return None;
        }
        let index = engines.trailing_zeros() as usize;
        let station = first.nic.engines().station(index);
        if station.expects_anything() { Some((Seat::take(&station.driver)?, index)) } else { None }
    }

    /// Leaves this waker with the queues, and sleeps if there still is nothing to do.
    fn sleep_as<'a>(
        queues: impl Iterator<Item = &'a Self> + Clone,
        waker: &Waker,
        reliance: Reliance,
        begin: impl FnOnce(&Waker) -> bool,
        sleep: impl FnOnce(),
    ) {
        for queue in queues.clone() {
            queue.leave_waker(waker, reliance);
        }
        if begin(waker) && !queues.clone().any(|queue| queue.shared.has_some()) {
            sleep();
        }
        for queue in queues {
            queue.shared.waiters.remove(waker);
        }
    }

    /// Has a waker called when something completes.
    fn leave_waker(&self, waker: &Waker, reliance: Reliance) {
        self.shared.waiters.add(waker, reliance);
        if reliance == Reliance::Driver {
            self.expect_sleep();
        }
    }

    /// Takes completions off; if there are none, has `waker` called when there are.
    pub fn poll_or_wake(&self, into: &mut [Completion], waker: &Waker) -> usize {
        self.poll_or_leave(into, waker, Reliance::Driver)
    }

    /// Takes completions off; if there are none, has a waker called that has time. The driver may be parked
    /// meanwhile: if the program then stops polling, it takes a millisecond until packets are taken in again.
    pub fn poll_or_wake_in_time(&self, into: &mut [Completion], waker: &Waker) -> usize {
        self.poll_or_leave(into, waker, Reliance::None)
    }

    fn poll_or_leave(&self, into: &mut [Completion], waker: &Waker, reliance: Reliance) -> usize {
        let taken = self.poll(into);
        if taken > 0 || !self.nic.is_ours() {
            return taken;
        }
        self.leave_waker(waker, reliance);
        self.shared.take(into)
    }

    /// All wakers that were left here have time from now on, as if left by
    /// [`poll_or_wake_in_time`](Self::poll_or_wake_in_time).
    pub fn relax(&self) {
        if self.nic.is_ours() {
            self.shared.waiters.relax();
        }
    }
}

thread_local! {
    /// Wakes this thread in the place of a driver; none if the process has too many descriptors.
    static BELL: io::Result<Bell> = Bell::new();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::nic::Nic;

    #[test]
    fn a_thread_that_sleeps_for_several_queues_wakes_for_each_and_leaves_no_trace() {
        let address = Some([127, 0, 48, 202].into());
        let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
        let queues = [0; 3].map(|_| CompletionQueue::new(&nic, 16, None).unwrap());
        let all = || queues.iter().map(|queue| &**queue);
        for queue in &queues {
            queue.attach(0);
        }
        for is_seated in [false, true] {
            if is_seated {
                // As if a queue pair were connected over the network.
                nic.engines().station(0).expect_packets();
            }
            for queue in &queues {
                let push = || {
                    nic.engines().control(0, |engine| {
                        let completion = Completion::EMPTY;
                        assert!(engine.tables.cq(queue.id()).unwrap().push(&completion, clock::now()));
                        engine.tables.reconsider(queue.id());
                        engine.tables.settle();
                    });
                };
                std::thread::scope(|scope| {
                    let begun = |_: &Waker| {
                        scope.spawn(push);
                        true
                    };
                    let mut begun = Some(begun);
                    while !queue.shared.has_some() {
                        let begin = begun.take();
                        CompletionQueue::sleep_for_any(all(), None, |waker| {
                            begin.is_none_or(|begin| begin(waker))
                        });
                    }
                });
                assert_eq!(queue.take(&mut [Completion::EMPTY; 2]), 1);
                assert_eq!(nic.sleepers().count(), 0, "no thread sleeps any more");
            }
            // Whatever `begin` registers its waker with can end the sleep too.
            CompletionQueue::sleep_for_any(all(), None, |waker| {
                waker.wake_by_ref();
                true
            });
            CompletionQueue::sleep_for_any(all(), None, |_| false);
            CompletionQueue::sleep_for_any(all(), Some(Duration::from_millis(1)), |_| true);
        }
    }
}
