//! Completion queues as programs hold them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::sync::lock;
use ferroce_sys::sync::ring::{self, Consumer, Producer};
use ferroce_transport::Completion;
use ferroce_wire::Qpn;

use crate::completion::{Channel, CqId, CqShared, CqSide, Notify, WORDS, resize};
use crate::deputy::{Bell, Seat};
use crate::eager::Eager;
use crate::engine::Engine;
use crate::engine::qp_shared::QpShared;
use crate::error::CreateError;
use crate::limits::Limits;
use crate::nic::Nic;

/// Looks between two looks at the clock.
const LOOKS: usize = 8;

/// Both ends of a ring.
type Ends = (Producer<WORDS>, Consumer<WORDS>);

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    nic: Nic,
    shared: Arc<CqShared>,
}

impl CompletionQueue {
    /// A queue for `capacity` completions, reporting to `channel` if there is one.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn new(nic: &Nic, capacity: u32, channel: Option<&Arc<Channel>>) -> Result<Arc<Self>, CreateError> {
        nic.check_ours()?;
        CreateError::check("completions of a completion queue", capacity, 1_u32, Limits::COMPLETIONS)?;
        let id = {
            let mut ids = lock(&nic.engines().cq_ids);
            if ids.len() >= Limits::COMPLETION_QUEUES {
                let allowed = Limits::COMPLETION_QUEUES;
                return Err(CreateError::TooMany { what: "completion queues", allowed });
            }
            CqId(u32::try_from(ids.insert(())).unwrap_or(u32::MAX))
        };
        // Engines get their rings with their first queue pairs.
        let shared = Arc::new(CqShared::new(id, capacity, channel.cloned(), nic.slept_for()));
        if let Some(channel) = channel {
            channel.users.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Arc::new(Self { nic: nic.clone(), shared }))
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> CqId {
        self.shared.id
    }

    /// Completions that it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.shared.capacity()
    }

    /// Makes it hold another number of completions. Those that it has stay.
    ///
    /// # Errors
    /// It holds more than that, or what is allowed; nothing has changed.
    pub fn resize(&self, capacity: u32) -> Result<(), CreateError> {
        self.nic.check_ours()?;
        let what = "completions of a completion queue";
        CreateError::check(what, capacity, 1_u32, Limits::COMPLETIONS)?;
        let engines = self.nic.engines();
        let id = self.shared.id;
        let resized = loop {
            let completing = self.shared.engines();
            // Made outside of the engines, for those that complete here: they may be large.
            let ring =
                |engine: usize| (completing & 1 << engine != 0).then(|| ring::channel(capacity as usize));
            let mut rings: Vec<_> = (0..engines.len()).map(ring).collect();
            let resized = engines.control_all(|all| {
                // One more may have begun to since.
                let is_known = self.shared.engines() == completing;
                is_known.then(|| {
                    let sides = all.inside.iter_mut().enumerate();
                    let sides = sides.filter_map(|(engine, inside)| Some((engine, inside.tables.cq(id)?)));
                    resize(&self.shared, capacity, sides, &mut rings)
                })
            });
            if let Some(resized) = resized {
                break resized;
            }
        };
        resized.or_else(|held| CreateError::check(what, capacity, held, Limits::COMPLETIONS))
    }

    /// Has an event on the channel wait until so many completions were added, but no longer than `period` after
    /// the first of them. A count of 0 or 1 takes that back.
    ///
    /// # Errors
    /// More completions than the queue holds would never come, or what is allowed.
    pub fn moderate(&self, count: u32, period: Duration) -> Result<(), CreateError> {
        self.nic.check_ours()?;
        CreateError::check("completions for an event", count, 0_u32, self.capacity())?;
        let most = u64::from(u16::MAX);
        let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        CreateError::check("microseconds until an event", micros, 0_u32, most)?;
        self.shared.moderate(count, period);
        // An event that is put off already waits by the new rule, which may mean: no longer.
        for engine in self.engines() {
            self.nic.engines().control(engine, |inside| inside.tables.reconsider(self.shared.id));
        }
        Ok(())
    }

    /// The channel that it reports to.
    #[must_use]
    pub fn channel(&self) -> Option<&Arc<Channel>> {
        self.shared.channel()
    }

    /// The device.
    #[must_use]
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Whether completions were lost because it was full.
    #[must_use]
    pub fn is_overrun(&self) -> bool {
        self.shared.is_overrun()
    }

    /// Counts what the program takes of this queue pair's completions.
    pub(crate) fn enroll(&self, qpn: Qpn, shared: &Arc<QpShared>) {
        self.shared.enroll(qpn, shared);
    }

    /// The queue pair is gone.
    pub(crate) fn strike(&self, qpn: Qpn) {
        self.shared.strike(qpn);
    }

    /// Has an engine complete into it: to be called before the first queue pair of that engine does.
    pub(crate) fn attach(&self, engine: usize) {
        while let Some(ring) = self.shared.ring_for(engine) {
            if self.attach_ring(engine, ring) {
                return;
            }
        }
    }

    /// Has it complete into this ring; false if the queue was resized since the ring was made.
    fn attach_ring(&self, engine: usize, (producer, consumer): Ends) -> bool {
        let is_slept_for = self.nic.engines().control(engine, |inside| {
            // Resizing is done inside of all engines: from here on it finds this ring.
            if consumer.gauge().capacity() != self.capacity() as usize {
                return None;
            }
            let side = || CqSide::new(producer, Arc::clone(&self.shared));
            // Another thread may have done it since.
            Some(inside.tables.add_cq(self.shared.id, side) && self.shared.attach(engine, consumer))
        });
        if is_slept_for == Some(true) {
            self.nic.engines().station(engine).driver.expect_sleep();
        }
        is_slept_for.is_some()
    }

    /// The engines that complete into it; without one, the first, which then has little to do.
    fn engines(&self) -> impl Iterator<Item = usize> {
        let mut bits = self.shared.engines().max(1);
        std::iter::from_fn(move || {
            let next = (bits != 0).then(|| bits.trailing_zeros() as usize);
            bits &= bits.wrapping_sub(1);
            next
        })
    }

    /// The program is going to sleep until something completes.
    fn expect_sleep(&self) {
        for engine in self.engines() {
            self.nic.engines().station(engine).driver.expect_sleep();
        }
    }

    /// Takes completions off, oldest first; how many. Finding none, it lets the device work for a moment.
    ///
    /// Completions of one queue pair come in order. So do those of all queue pairs of one engine; between
    /// engines there is none.
    pub fn poll(&self, into: &mut [Completion]) -> usize {
        if !self.nic.is_ours() {
            return 0;
        }
        let taken = self.take(into);
        if taken > 0 || into.is_empty() {
            return taken;
        }
        let mut turned = false;
        for engine in self.engines() {
            turned |= self.nic.engines().poll_turn(engine);
        }
        if turned { self.shared.take(into) } else { 0 }
    }

    /// Takes off completions that are there, oldest first; how many. Unlike [`poll`](Self::poll) it leaves the device
    /// alone, and so costs next to nothing; a program that only ever calls this may wait for the driver.
    pub fn take(&self, into: &mut [Completion]) -> usize {
        if !self.nic.is_ours() {
            return 0;
        }
        let taken = self.shared.take(into);
        if taken > 0 || into.is_empty() {
            for engine in self.engines() {
                self.nic.engines().station(engine).found_at_once();
            }
        }
        taken
    }

    /// Forgets the completions of a queue pair that are not taken off yet, as C programs expect it of one
    /// that they reset or destroy. What other queue pairs have completed stays.
    pub fn forget(&self, qpn: Qpn) {
        self.shared.forget(qpn);
    }

    /// Asks for an event on the channel when a completion is added from now on.
    pub fn arm(&self, notify: Notify) {
        if !self.nic.is_ours() {
            return;
        }
        self.shared.arm(notify);
        self.expect_sleep();
    }

    /// Takes completions off, waiting for the first until the time is over; for ever without one.
    pub fn wait(&self, into: &mut [Completion], timeout: Option<Duration>) -> usize {
        let deadline = timeout.map(|timeout| clock::now() + timeout);
        let waker = THIS_THREAD.with(Waker::clone);
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
            if self.shared.eager.looks_first() {
                let taken = self.look_for_a_moment(into, left);
                self.shared.eager.has_looked(taken > 0);
                if taken > 0 {
                    return taken;
                }
            }
            if let Some(taken) = self.wait_for_packets(into, left) {
                if taken > 0 {
                    return taken;
                }
                continue;
            }
            let taken = self.wake_on_completion(into, &waker);
            if taken > 0 {
                return taken;
            }
            clock::park(left);
        }
    }

    /// Looks again and again, for a moment.
    fn look_for_a_moment(&self, into: &mut [Completion], left: Option<Duration>) -> usize {
        let end = clock::now() + left.map_or(Eager::MOMENT, |left| left.min(Eager::MOMENT));
        let by_packets = self.engines().any(|engine| self.nic.engines().station(engine).expects_packets());
        loop {
            for _ in 0..LOOKS {
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

    /// Sleeps in the driver's place until a packet arrives or something completes; what has completed meanwhile,
    /// which may be nothing. `None` if the driver is needed, or no packets are expected.
    fn wait_for_packets(&self, into: &mut [Completion], left: Option<Duration>) -> Option<usize> {
        let mut engines = self.engines();
        let (engine, None) = (engines.next()?, engines.next()) else { return None };
        let station = self.nic.engines().station(engine);
        if !station.expects_packets() {
            return None;
        }
        let waited = BELL.try_with(|bell| {
            let bell = bell.as_ref()?;
            let seat = Seat::take(&station.driver)?;
            self.shared.wake_deputy_on_completion(&bell.waker);
            let taken = self.shared.take(into);
            if taken == 0 {
                seat.sleep(bell, left);
            }
            self.shared.forget_deputy(&bell.waker);
            Some(taken)
        });
        // A thread that is about to end has none.
        waited.ok().flatten()
    }

    /// Sleeps until one of these queues has completions, the waker is called that `begin` gets, or the time
    /// is over; for ever without one. It takes nothing off, and may wake for nothing. The caller has just
    /// polled; `begin` says whether there still is nothing else to do.
    pub fn sleep_for_any<'a>(
        queues: impl Iterator<Item = &'a Self> + Clone,
        limit: Option<Duration>,
        begin: impl FnOnce(&Waker) -> bool,
    ) {
        let mut begin = Some(begin);
        let is_foreign = |queue: &Self| !queue.nic.is_ours();
        if queues.clone().any(is_foreign) || Self::watch_for_any(queues.clone(), limit, &mut begin) {
            return;
        }
        let Some(begin) = begin else { return };
        let waker = THIS_THREAD.with(Waker::clone);
        for queue in queues.clone() {
            queue.shared.wake_on_completion(&waker);
            queue.expect_sleep();
        }
        if begin(&waker) && !queues.clone().any(|queue| queue.shared.has_some()) {
            clock::park(limit);
        }
        for queue in queues {
            queue.shared.forget_sleeper(&waker);
        }
    }

    /// The same in the driver's place; false if that is not possible.
    fn watch_for_any<'a>(
        queues: impl Iterator<Item = &'a Self> + Clone,
        limit: Option<Duration>,
        begin: &mut Option<impl FnOnce(&Waker) -> bool>,
    ) -> bool {
        let Some(first) = queues.clone().next() else { return false };
        let engines = queues.clone().fold(0, |engines, queue| engines | queue.shared.engines());
        let of_one = queues.clone().all(|queue| queue.nic.is_same(&first.nic));
        if engines.count_ones() != 1 || !of_one {
            return false;
        }
        let station = first.nic.engines().station(engines.trailing_zeros() as usize);
        if !station.expects_packets() {
            return false;
        }
        let watched = BELL.try_with(|bell| {
            let bell = bell.as_ref()?;
            let seat = Seat::take(&station.driver)?;
            for queue in queues.clone() {
                queue.shared.wake_deputy_on_completion(&bell.waker);
            }
            let sleeps = begin.take().is_some_and(|begin| begin(&bell.waker));
            if sleeps && !queues.clone().any(|queue| queue.shared.has_some()) {
                seat.sleep(bell, limit);
            }
            for queue in queues {
                queue.shared.forget_deputy(&bell.waker);
            }
            Some(())
        });
        // A thread that is about to end has none.
        watched.ok().flatten().is_some()
    }

    /// Takes completions off; if there are none, has `waker` called when there are.
    pub fn poll_or_wake(&self, into: &mut [Completion], waker: &Waker) -> usize {
        let taken = self.poll(into);
        if taken > 0 || !self.nic.is_ours() {
            return taken;
        }
        self.wake_on_completion(into, waker)
    }

    /// The same for a waker that has time. The driver may be parked meanwhile: if the program then stops polling, it
    /// takes a millisecond until packets are taken in again.
    pub fn poll_or_wake_in_time(&self, into: &mut [Completion], waker: &Waker) -> usize {
        let taken = self.poll(into);
        if taken > 0 || !self.nic.is_ours() {
            return taken;
        }
        self.shared.wake_in_time_on_completion(waker);
        self.shared.take(into)
    }

    /// All wakers that were left here have time from now on, as if left by
    /// [`poll_or_wake_in_time`](Self::poll_or_wake_in_time).
    pub fn relax(&self) {
        if self.nic.is_ours() {
            self.shared.relax();
        }
    }

    /// Has `waker` called when something completes; takes off what has completed meanwhile.
    fn wake_on_completion(&self, into: &mut [Completion], waker: &Waker) -> usize {
        self.shared.wake_on_completion(waker);
        self.expect_sleep();
        self.shared.take(into)
    }
}

thread_local! {
    /// Wakes this thread in the place of a driver; none if the process has too many descriptors.
    static BELL: Option<Bell> = Bell::new().ok();

    /// Wakes this thread. Always the same one, so that a queue keeps one of it at most.
    static THIS_THREAD: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
}

/// A waker that wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if !self.nic.is_ours() {
            return;
        }
        let id = self.shared.id;
        let mut engines = self.shared.engines();
        while engines != 0 {
            let engine = engines.trailing_zeros() as usize;
            engines &= engines - 1;
            let take = |inside: &mut Engine| inside.tables.cqs.get_mut(id.0 as usize).and_then(Option::take);
            // It may be large, and is given back outside of the engine.
            drop(self.nic.engines().control(engine, take));
        }
        // Only now may another have its number.
        lock(&self.nic.engines().cq_ids).try_remove(id.0 as usize);
        self.shared.close();
        if let Some(channel) = self.shared.channel() {
            channel.users.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn an_event_that_was_put_off_obeys_the_new_moderation() {
        let address = Some([127, 0, 48, 201].into());
        let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
        let channel = Channel::new().unwrap();
        let cq = CompletionQueue::new(&nic, 16, Some(&channel)).unwrap();
        cq.attach(0);
        cq.arm(Notify::Any);
        cq.moderate(10, Duration::from_micros(65_535)).unwrap();
        let waits = nic.engines().control(0, |engine| {
            let completion = Completion::EMPTY;
            assert!(engine.tables.cq(cq.id()).unwrap().push(&completion, clock::now()));
            engine.tables.reconsider(cq.id());
            engine.tables.settle();
            engine.tables.next_put_off().is_some()
        });
        assert!(waits || channel.pop().is_some(), "it waits for more, unless this thread slept for long");
        cq.moderate(0, Duration::ZERO).unwrap();
        assert!(!waits || channel.pop() == Some(cq.id()), "it does not wait for the old moment");
        assert_eq!(nic.engines().control(0, |engine| engine.tables.next_put_off()), None);
    }

    #[test]
    fn whoever_sleeps_for_several_queues_wakes_for_each_of_them_and_leaves_no_trace() {
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
                assert_eq!(nic.slept_for().load(Ordering::SeqCst), 0, "nobody sleeps any more");
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

    #[test]
    fn a_ring_made_before_a_resize_is_not_the_one_that_is_used() {
        let address = Some([127, 0, 48, 200].into());
        let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
        let cq = CompletionQueue::new(&nic, 4, None).unwrap();
        // What a thread has made that creates the first queue pair, when another resizes the queue.
        let small = cq.shared.ring_for(0).unwrap();
        cq.resize(64).unwrap();
        assert!(!cq.attach_ring(0, small), "it holds less than the queue says");
        cq.attach(0);
        assert_eq!(cq.shared.engines(), 1);
        assert!(cq.shared.ring_for(0).is_none());
    }
}
