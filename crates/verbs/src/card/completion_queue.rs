//! Completion queues of a card, and waiting for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use ferroce_device::{Notify, Spin, now, until};
use ferroce_system::{CardCompletion, CompletionChannel, CompletionQueueOptions};
use ferroce_transport::{Completion, Time, TimeSource};

use super::{OpenCard, lock};
use crate::capability::Capability;
use crate::error::CreateError;

/// A completion queue of a card.
pub(crate) struct CardQueue {
    pub(crate) queue: ferroce_system::CompletionQueue,
    pub(crate) card: Arc<OpenCard>,
    /// It reports to a channel of the program.
    has_channel: bool,
    /// It tells when work ended.
    is_timed: bool,
    /// Called when something completes.
    wakers: Mutex<Vec<Waker>>,
    /// It does not answer any more: completions were lost.
    broken: AtomicBool,
    spin: Spin,
}

/// How long a thread looks before it sleeps, if that has been of use of late.
const SPIN: Duration = Duration::from_micros(50);

/// Completions with times that are taken off at once.
const TIMED: usize = 16;

impl CardQueue {
    pub(crate) fn new(
        card: &Arc<OpenCard>,
        capacity: u32,
        channel: Option<&CompletionChannel>,
        is_timed: bool,
    ) -> Result<Arc<Self>, CreateError> {
        let own = match channel {
            Some(channel) => channel.clone(),
            None => card.lookout.channel(&card.system)?,
        };
        let mut options = CompletionQueueOptions::new(capacity).channel(&own);
        if is_timed {
            if card.clock.is_none() {
                return Err(CreateError::Unsupported(Capability::Timestamps.into()));
            }
            options = options.timestamps();
        }
        let queue = card.system.completion_queue_with(&options)?;
        let made = Arc::new(Self {
            queue,
            card: Arc::clone(card),
            has_channel: channel.is_some(),
            is_timed,
            wakers: Mutex::default(),
            broken: AtomicBool::new(false),
            spin: Spin::new(),
        });
        card.enroll(&made);
        Ok(made)
    }

    /// It ran over: completions are lost.
    pub(crate) fn overrun(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    pub(crate) fn number(&self) -> u32 {
        self.queue.number()
    }

    pub(crate) const fn reports_elsewhere(&self) -> bool {
        self.has_channel
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Takes completions off, oldest first; how many. Nothing comes from a queue that is broken.
    #[inline]
    pub(crate) fn poll(&self, into: &mut [Completion]) -> usize {
        if self.is_timed {
            return self.poll_timed(into);
        }
        match self.queue.poll(into) {
            Ok(taken) => taken,
            Err(error) => self.fail(error.is_fork()),
        }
    }

    /// The same, with the times at which work ended.
    fn poll_timed(&self, into: &mut [Completion]) -> usize {
        let mut done = 0;
        for room in into.chunks_mut(TIMED) {
            let mut told = [CardCompletion::EMPTY; TIMED];
            let taken = match self.queue.poll(&mut told[..room.len()]) {
                Ok(taken) => taken,
                Err(error) => self.fail(error.is_fork()),
            };
            let turner =
                (taken > 0).then(|| self.card.clock.as_ref()?.turner(|| self.card.system.clock())).flatten();
            for (to, from) in room.iter_mut().zip(&told[..taken]) {
                *to = Completion::from(*from);
                if let (Some(turner), Some(ticks)) = (&turner, from.ticks) {
                    (to.time, to.time_source) = (turner.time_of(ticks), TimeSource::Card);
                }
            }
            done += taken;
            if taken < room.len() {
                break;
            }
        }
        done
    }

    #[cold]
    fn fail(&self, forked: bool) -> usize {
        if !forked {
            self.broken.store(true, Ordering::Relaxed);
        }
        0
    }

    /// Whether it has some, or never will again. It takes nothing off.
    pub(crate) fn has_some(&self) -> bool {
        match self.queue.has_some() {
            Ok(some) => some,
            Err(error) => {
                self.fail(error.is_fork());
                true
            }
        }
    }

    /// Has events wait for several completions, if the card can.
    pub(crate) fn moderate(&self, count: u32, period: Duration) -> Result<(), CreateError> {
        let Some((most, longest)) = self.card.attributes().moderation else {
            return Err(CreateError::Unsupported(Capability::Moderation.into()));
        };
        let within = |what, given: u128, most: u64| {
            let given = u64::try_from(given).unwrap_or(u64::MAX);
            if given <= most {
                Ok(given)
            } else {
                Err(CreateError::OutOfBounds { what, given, least: 0, most })
            }
        };
        let held = u64::from(self.queue.capacity()).min(most.into());
        let count = within("completions before an event", count.into(), held)?;
        let micros = within("microseconds before an event", period.as_micros(), longest.into())?;
        let small = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        Ok(self.queue.moderate(small(count), small(micros))?)
    }

    pub(crate) fn arm(&self, notify: Notify) {
        if let Err(error) = self.queue.arm(notify == Notify::Solicited) {
            self.fail(error.is_fork());
        }
    }

    /// Has a waker called when something completes from now on. Whether there is something already: then the
    /// program takes it, and need not wait.
    pub(crate) fn leave(self: &Arc<Self>, waker: &Waker) -> bool {
        if !self.card.is_ours() || self.is_broken() {
            return true;
        }
        {
            let mut wakers = lock(&self.wakers);
            if !wakers.iter().any(|known| known.will_wake(waker)) {
                wakers.push(waker.clone());
            }
        }
        let watched = self.card.lookout.watch(self);
        if !self.has_channel {
            self.arm(Notify::Any);
        }
        // What came before raises no event. Without a lookout the program has to look itself.
        self.has_some() || watched.is_err()
    }

    /// The waker need not be called any more.
    pub(crate) fn forget(&self, waker: &Waker) {
        lock(&self.wakers).retain(|known| !known.will_wake(waker));
    }

    pub(crate) fn wake_all(&self) {
        let wakers = std::mem::take(&mut *lock(&self.wakers));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes if there is something; whether nothing waits any more.
    pub(crate) fn wake_if_any(&self) -> bool {
        if lock(&self.wakers).is_empty() {
            return true;
        }
        if self.has_some() {
            self.wake_all();
            return true;
        }
        false
    }

    /// Takes completions off; if there are none, has the waker called when there are.
    pub(crate) fn poll_or_wake(self: &Arc<Self>, into: &mut [Completion], waker: &Waker) -> usize {
        let taken = self.poll(into);
        if taken > 0 || into.is_empty() {
            return taken;
        }
        if self.leave(waker) {
            let taken = self.poll(into);
            if taken == 0 && self.card.is_ours() && !self.is_broken() {
                // Another thread was faster; or there is no lookout, and the task looks again at once.
                waker.wake_by_ref();
            }
            return taken;
        }
        0
    }

    /// Takes completions off, waiting for the first until the time is over; for ever without one. Nothing comes from
    /// a queue that is broken.
    pub(crate) fn wait(self: &Arc<Self>, into: &mut [Completion], timeout: Option<Duration>) -> usize {
        let deadline = timeout.map(|timeout| now() + timeout);
        loop {
            let taken = self.poll(into);
            if taken > 0 || into.is_empty() || !self.card.is_ours() || self.is_broken() {
                return taken;
            }
            let left = deadline.map(until);
            if left == Some(Duration::ZERO) {
                return 0;
            }
            if self.spin.looks_first() {
                let taken = self.look_for_a_moment(into, left);
                self.spin.has_looked(taken > 0);
                if taken > 0 {
                    return taken;
                }
            }
            let waker = ferroce_device::this_thread();
            if !self.leave(&waker) {
                ferroce_device::park(deadline.map(until));
            }
            self.forget(&waker);
        }
    }

    /// Looks again and again, for a moment.
    fn look_for_a_moment(&self, into: &mut [Completion], left: Option<Duration>) -> usize {
        let end: Time = now() + left.map_or(SPIN, |left| left.min(SPIN));
        loop {
            let taken = self.poll(into);
            if taken > 0 || now() >= end {
                return taken;
            }
            std::hint::spin_loop();
        }
    }
}

impl Drop for CardQueue {
    fn drop(&mut self) {
        self.card.strike(self.number());
    }
}
