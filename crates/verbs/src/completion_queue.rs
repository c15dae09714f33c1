//! Completion queues.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use ferroce_device::{CqId, Notify, park, this_thread};
use ferroce_transport::{Completion, Level};

use crate::card::CardQueue;
use crate::error::{CreateError, WaitError};

/// Where work is reported when it is done. Clones are the same queue.
///
/// Make it at least as large as all queues that complete into it together: a queue that
/// overflows loses completions, and its queue pairs go into error.
#[derive(Clone)]
pub struct CompletionQueue {
    of: Of,
}

/// The queue of the device.
#[derive(Clone)]
pub(crate) enum Of {
    Soft(Arc<ferroce_device::CompletionQueue>),
    Card(Arc<CardQueue>),
}

/// How soon a waker must be called when something completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// At once: the device's own thread keeps watch.
    AtOnce,
    /// A millisecond does not matter, and the device's own thread may be parked meanwhile: for a program that
    /// polls all the time anyway, and leaves a waker only in case it stops.
    InTime,
}

impl CompletionQueue {
    pub(crate) const fn soft(queue: Arc<ferroce_device::CompletionQueue>) -> Self {
        Self { of: Of::Soft(queue) }
    }

    pub(crate) const fn card(queue: Arc<CardQueue>) -> Self {
        Self { of: Of::Card(queue) }
    }

    pub(crate) const fn of(&self) -> &Of {
        &self.of
    }

    /// Its number on the device: what [`AsyncEvent`](crate::AsyncEvent) calls it.
    #[must_use]
    pub fn id(&self) -> CqId {
        match &self.of {
            Of::Soft(queue) => queue.id(),
            Of::Card(queue) => CqId(queue.number()),
        }
    }

    /// Completions that it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        match &self.of {
            Of::Soft(queue) => queue.capacity(),
            Of::Card(queue) => queue.queue.capacity(),
        }
    }

    /// Makes it hold another number of completions. Those that it has stay.
    ///
    /// # Errors
    /// It holds more than that, or what is allowed; nothing has changed.
    pub fn resize(&self, capacity: u32) -> Result<(), CreateError> {
        match &self.of {
            Of::Soft(queue) => Ok(queue.resize(capacity)?),
            Of::Card(queue) => Ok(queue.queue.resize(capacity)?),
        }
    }

    /// Has an event on its channel wait until `count` completions were added, but no longer than `period` (at
    /// most 65 ms) after the first of them. A count of 0 or 1 takes that back. Polling is not affected.
    ///
    /// # Errors
    /// So many completions never come, because the queue does not hold them, or what is allowed; on a card that cannot,
    /// [`Moderation`](crate::Capability::Moderation).
    pub fn moderate(&self, count: u32, period: Duration) -> Result<(), CreateError> {
        match &self.of {
            Of::Soft(queue) => Ok(queue.moderate(count, period)?),
            Of::Card(queue) => queue.moderate(count, period),
        }
    }

    /// How many completions it holds, and held at most so far.
    ///
    /// On a device with several engines each of them has room for as many as the capacity says. A card does not tell
    /// ([`Levels`](crate::Capability::Levels)): there it is as if it held none.
    #[must_use]
    pub fn level(&self) -> Level {
        match &self.of {
            Of::Soft(queue) => queue.level(),
            Of::Card(queue) => Level::new(0, 0, queue.queue.capacity()),
        }
    }

    /// Whether completions were lost because it was full.
    #[must_use]
    pub fn is_overrun(&self) -> bool {
        match &self.of {
            Of::Soft(queue) => queue.is_overrun(),
            Of::Card(queue) => queue.is_broken(),
        }
    }

    /// Takes completions off, oldest first, and returns how many. It never waits; finding none,
    /// it lets the device work for a moment, so that a loop around it makes progress.
    ///
    /// Completions of one queue pair come in order.
    #[inline]
    pub fn poll(&self, into: &mut [Completion]) -> usize {
        match &self.of {
            Of::Soft(queue) => queue.poll(into),
            Of::Card(queue) => queue.poll(into),
        }
    }

    /// Takes off the oldest completion, if there is one.
    #[must_use]
    pub fn poll_one(&self) -> Option<Completion> {
        let mut found = [Completion::EMPTY];
        (self.poll(&mut found) > 0).then_some(found[0])
    }

    /// Whether [`take`](Self::take) may find completions: a look that costs nothing.
    #[must_use]
    #[inline]
    pub fn may_have_some(&self) -> bool {
        match &self.of {
            Of::Soft(queue) => queue.may_have_some(),
            // A card does not tell without taking them off.
            Of::Card(_) => true,
        }
    }

    /// Takes off completions that are there already, oldest first, and returns how many. Unlike
    /// [`poll`](Self::poll) it leaves the device alone, and so costs next to nothing: a program that looks at
    /// many queues polls one of them, and takes from the others. A loop around this alone waits for the
    /// device's own thread.
    #[inline]
    pub fn take(&self, into: &mut [Completion]) -> usize {
        match &self.of {
            Of::Soft(queue) => queue.take(into),
            Of::Card(queue) => queue.poll(into),
        }
    }

    /// Takes off the oldest completion, waiting for it until the time is over; for ever with `None`.
    ///
    /// # Errors
    /// The time is over, completions were lost and none are left, or the device was opened before a fork.
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<Completion, WaitError> {
        let mut found = [Completion::EMPTY];
        self.wait_into(&mut found, timeout)?;
        Ok(found[0])
    }

    /// Takes off as many completions as there are and fit, waiting for the first one; how many.
    ///
    /// # Errors
    /// The time is over, or completions were lost and none are left.
    pub fn wait_into(
        &self,
        into: &mut [Completion],
        timeout: impl Into<Option<Duration>>,
    ) -> Result<usize, WaitError> {
        let timeout = timeout.into();
        let done = self.poll(into);
        if done > 0 || into.is_empty() {
            return Ok(done);
        }
        self.check_overrun()?;
        let taken = match &self.of {
            Of::Soft(queue) => queue.wait(into, timeout),
            Of::Card(queue) => queue.wait(into, timeout),
        };
        if taken == 0 {
            if let Of::Card(_) = &self.of {
                self.check_overrun()?;
            }
            return Err(WaitError::TimedOut(timeout.unwrap_or(Duration::MAX)));
        }
        Ok(taken)
    }

    /// Sleeps until one of these queues has completions, or the time is over; for ever with `None`. It takes
    /// nothing off, and may wake for nothing, so the program polls before and after.
    ///
    /// Something else may end the sleep too. `begin` gets the waker that does, leaves it where it will be
    /// called, and says whether there still is nothing to do: only then does the thread sleep. A program that
    /// waits for completions alone says `|_| true`. The thread sleeps in the device's place, so that a packet
    /// wakes it without a detour.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ferroce_verbs::{CompletionQueue, Context, Service};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let context = Context::builder("ferroce_lo").address([127, 0, 41, 11]).open()?;
    /// # let pd = context.protection_domain()?;
    /// let queues = [context.completion_queue(16)?, context.completion_queue(16)?];
    /// # let ends: Vec<_> = queues.iter().map(|queue| {
    /// #     pd.queue_pair(Service::Rc).completion_queue(queue).build()
    /// # }).collect::<Result<_, _>>()?;
    /// # ends[0].connect(&ends[1].local_address())?;
    /// # ends[1].connect(&ends[0].local_address())?;
    /// # ends[1].receive(&[]).id(7).post()?;
    /// # ends[0].send(&[]).signaled().post()?;
    /// let mut done = Vec::new();
    /// while done.len() < 2 {
    ///     done.extend(queues.iter().filter_map(CompletionQueue::poll_one));
    ///     if done.is_empty() {
    ///         CompletionQueue::sleep_for_any(&queues, Duration::from_secs(1), |_| true);
    ///     }
    /// }
    /// # assert!(done.iter().any(|done| done.id == 7));
    /// # Ok(())
    /// # }
    /// ```
    pub fn sleep_for_any<'a, Q>(
        queues: Q,
        limit: impl Into<Option<Duration>>,
        begin: impl FnOnce(&Waker) -> bool,
    ) where
        Q: IntoIterator<Item = &'a Self, IntoIter: Clone>,
    {
        let (queues, limit) = (queues.into_iter(), limit.into());
        if queues.clone().all(|queue| matches!(queue.of, Of::Soft(_))) {
            let soft = queues.filter_map(|queue| match &queue.of {
                Of::Soft(queue) => Some(&**queue),
                Of::Card(_) => None,
            });
            return ferroce_device::CompletionQueue::sleep_for_any(soft, limit, begin);
        }
        let waker = this_thread();
        let mut found = false;
        for queue in queues.clone() {
            found |= match &queue.of {
                Of::Soft(soft) => {
                    soft.poll_or_wake(&mut [], &waker);
                    soft.may_have_some()
                }
                Of::Card(card) => card.leave(&waker),
            };
        }
        if begin(&waker) && !found {
            park(limit);
        }
        for queue in queues {
            if let Of::Card(card) = &queue.of {
                card.forget(&waker);
            }
        }
    }

    /// Takes completions off; if there are none, has `waker` called once when there are. For what is neither
    /// a thread that waits nor a task that awaits [`next`](Self::next), such as an executor of its own.
    pub fn poll_or_wake(&self, into: &mut [Completion], waker: &Waker, haste: Haste) -> usize {
        match (&self.of, haste) {
            (Of::Soft(queue), Haste::AtOnce) => queue.poll_or_wake(into, waker),
            (Of::Soft(queue), Haste::InTime) => queue.poll_or_wake_in_time(into, waker),
            (Of::Card(queue), _) => queue.poll_or_wake(into, waker),
        }
    }

    /// All wakers that were left by [`poll_or_wake`](Self::poll_or_wake) have time from now on, as if left
    /// with [`Haste::InTime`].
    pub fn relax(&self) {
        if let Of::Soft(queue) = &self.of {
            queue.relax();
        }
    }

    /// The next completion, for a program that awaits. It needs no particular runtime.
    #[must_use = "a future does nothing until it is awaited"]
    pub const fn next(&self) -> NextCompletion<'_> {
        NextCompletion { queue: self }
    }

    /// Asks for one event on the queue's channel when a completion is added from now on. Poll once
    /// more after arming: what was added before raises no event.
    pub fn arm(&self, notify: Notify) {
        match &self.of {
            Of::Soft(queue) => queue.arm(notify),
            Of::Card(queue) => queue.arm(notify),
        }
    }

    fn check_overrun(&self) -> Result<(), WaitError> {
        let is_ours = match &self.of {
            Of::Soft(queue) => queue.nic().is_ours(),
            Of::Card(queue) => queue.card.is_ours(),
        };
        if !is_ours {
            return Err(WaitError::Forked);
        }
        match self.is_overrun() {
            true => Err(WaitError::Overrun { capacity: self.capacity() }),
            false => Ok(()),
        }
    }
}

impl PartialEq for CompletionQueue {
    fn eq(&self, other: &Self) -> bool {
        match (&self.of, &other.of) {
            (Of::Soft(one), Of::Soft(other)) => Arc::ptr_eq(one, other),
            (Of::Card(one), Of::Card(other)) => Arc::ptr_eq(one, other),
            (Of::Soft(_), Of::Card(_)) | (Of::Card(_), Of::Soft(_)) => false,
        }
    }
}

impl Eq for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({}, {} completions)", self.id().0, self.capacity())
    }
}

/// The future of [`CompletionQueue::next`]. Dropping it loses no completion.
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct NextCompletion<'a> {
    queue: &'a CompletionQueue,
}

impl Future for NextCompletion<'_> {
    type Output = Result<Completion, WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut found = [Completion::EMPTY];
        if self.queue.poll_or_wake(&mut found, context.waker(), Haste::AtOnce) > 0 {
            return Poll::Ready(Ok(found[0]));
        }
        match self.queue.check_overrun() {
            Ok(()) => Poll::Pending,
            Err(lost) => Poll::Ready(Err(lost)),
        }
    }
}
