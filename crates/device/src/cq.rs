//! Completion queues as programs hold them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_sys::sync::lock;
use ferroce_sys::sync::ring::{self, Consumer, Producer};
use ferroce_transport::{Completion, Level};
use ferroce_wire::Qpn;

use crate::completion::{Channel, CqId, CqShared, CqSide, Notify, resize};
use crate::cqe::WORDS;
use crate::engine::Engine;
use crate::engine::qp_shared::QpShared;
use crate::engines::Polled;
use crate::error::NicCreateError;
use crate::limits::Limits;
use crate::nic::Nic;
use crate::visit::Visit;

/// Both ends of a ring.
type Ends = (Producer<WORDS>, Consumer<WORDS>);

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(crate) nic: Nic,
    pub(crate) shared: Arc<CqShared>,
}

impl CompletionQueue {
    /// A queue for `capacity` completions, reporting to `channel` if there is one.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn new(
        nic: &Nic,
        capacity: u32,
        channel: Option<&Arc<Channel>>,
    ) -> Result<Arc<Self>, NicCreateError> {
        nic.check_ours()?;
        NicCreateError::check("completions of a completion queue", capacity, 1_u32, Limits::COMPLETIONS)?;
        let id = {
            let mut ids = lock(&nic.engines().cq_ids);
            if ids.len() >= Limits::COMPLETION_QUEUES {
                let allowed = Limits::COMPLETION_QUEUES;
                return Err(NicCreateError::TooMany { what: "completion queues", allowed });
            }
            CqId(u32::try_from(ids.insert(())).unwrap_or(u32::MAX))
        };
        // Engines get their rings with their first queue pairs.
        let shared = Arc::new(CqShared::new(id, capacity, channel.cloned(), nic.sleepers()));
        if let Some(channel) = channel {
            channel.users.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Arc::new(Self { nic: nic.clone(), shared }))
    }

    /// The number of the queue.
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
    pub fn resize(&self, capacity: u32) -> Result<(), NicCreateError> {
        self.nic.check_ours()?;
        let what = "completions of a completion queue";
        NicCreateError::check(what, capacity, 1_u32, Limits::COMPLETIONS)?;
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
                    let sides = all.visits.iter_mut().enumerate();
                    let sides = sides.filter_map(|(engine, inside)| Some((engine, inside.tables.cq(id)?)));
                    resize(&self.shared, capacity, sides, &mut rings)
                })
            });
            if let Some(resized) = resized {
                break resized;
            }
        };
        resized.or_else(|held| NicCreateError::check(what, capacity, held, Limits::COMPLETIONS))
    }

    /// Has an event on the channel wait until so many completions were added, but no longer than `period`
    /// after the first of them. A count of 0 or 1 takes that back.
    ///
    /// # Errors
    /// More completions than the queue holds would never come, or what is allowed.
    pub fn moderate(&self, count: u32, period: Duration) -> Result<(), NicCreateError> {
        self.nic.check_ours()?;
        NicCreateError::check("completions for an event", count, 0_u32, self.capacity())?;
        let most = u64::from(u16::MAX);
        let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        NicCreateError::check("microseconds until an event", micros, 0_u32, most)?;
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

    /// How many completions it holds, and held at most. With queue pairs of several engines, each of those
    /// has room for all of the capacity.
    #[must_use]
    pub fn level(&self) -> Level {
        self.shared.level()
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

    /// Has an engine complete into this ring; false if the queue was resized since the ring was made.
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
    pub(crate) fn engines(&self) -> impl Iterator<Item = usize> {
        let mut bits = self.shared.engines().max(1);
        std::iter::from_fn(move || {
            let next = (bits != 0).then(|| bits.trailing_zeros() as usize);
            bits &= bits.wrapping_sub(1);
            next
        })
    }

    /// The program is going to sleep until something completes.
    pub(crate) fn expect_sleep(&self) {
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
        // Most polls of a program that waits find nothing, and are to be over soon.
        if self.shared.is_filled() || into.is_empty() {
            let taken = self.take(into);
            if taken > 0 || into.is_empty() {
                return taken;
            }
        }
        let (mut turned, mut handed) = (false, 0);
        for engine in self.engines() {
            match self.nic.engines().poll(engine) {
                Polled::Nothing => {}
                Polled::Turned => turned = true,
                Polled::Came(visit, polls) => {
                    turned = true;
                    handed += self.take_in(visit, polls, &mut into[handed..]);
                }
            }
        }
        if turned { self.shared.take_beside(into, handed) } else { 0 }
    }

    /// Takes in what a poll of this number has found; how many completions there are of it already. Aside, so that a poll that
    /// finds nothing is short.
    #[inline(never)]
    fn take_in(&self, visit: Visit<'_>, polls: u64, into: &mut [Completion]) -> usize {
        self.nic.engines().take_in_for(visit, polls, self.shared.id, into)
    }

    /// Whether [`take`](Self::take) may find completions: a look that costs nothing.
    #[must_use]
    #[inline]
    pub fn may_have_some(&self) -> bool {
        self.shared.is_filled()
    }

    /// Takes off completions that are there, oldest first; how many. Unlike [`poll`](Self::poll) it leaves
    /// the device alone, and so costs next to nothing; a program that only ever calls this may wait for the
    /// driver.
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
        if !self.nic.is_ours() {
            return;
        }
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

    /// The same, but an event comes at once if there are completions that were not taken off and that no event has told of.
    ///
    /// The specification wants one for the next completion only, and a program that looks again after it has asked needs no
    /// more. UCX sleeps without another look: a completion that came between its last one and its question must wake it.
    /// perftest asks before it takes off what the last event was for, and counts events: these have no second one.
    pub fn arm_for_untold(&self, notify: Notify) {
        self.arm(notify);
        self.shared.tell_of_old(notify);
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
    use ferroce_sys::clock;

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

    /// A program that asks for an event and sleeps without another look (UCX does) slept for ever, if a completion had come
    /// between its last look and its question.
    #[test]
    fn a_completion_from_before_the_question_has_its_event_but_only_one() {
        let address = Some([127, 0, 48, 210].into());
        let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
        let channel = Channel::new().unwrap();
        let cq = CompletionQueue::new(&nic, 16, Some(&channel)).unwrap();
        cq.attach(0);
        cq.arm_for_untold(Notify::Any);
        assert_eq!(channel.pop(), None, "there is nothing to tell of");
        let complete = || {
            nic.engines().control(0, |engine| {
                assert!(engine.tables.cq(cq.id()).unwrap().push(&Completion::EMPTY, clock::now()));
                engine.tables.reconsider(cq.id());
                engine.tables.settle();
            });
        };
        complete();
        assert_eq!(channel.pop(), Some(cq.id()), "the next completion");
        cq.arm_for_untold(Notify::Any);
        assert_eq!(channel.pop(), None, "it had its event");
        complete();
        assert_eq!(channel.pop(), Some(cq.id()));
        complete();
        cq.arm(Notify::Any);
        assert_eq!(channel.pop(), None, "the specification wants the next one only");
        cq.arm_for_untold(Notify::Any);
        assert_eq!(channel.pop(), Some(cq.id()), "the third came before the question");
        assert_eq!(channel.pop(), None, "and has one event");
        assert_eq!(cq.poll(&mut [Completion::EMPTY; 4]), 3);
        complete();
        assert_eq!(cq.poll(&mut [Completion::EMPTY; 4]), 1);
        cq.arm_for_untold(Notify::Any);
        assert_eq!(channel.pop(), None, "the fourth was taken off");
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
