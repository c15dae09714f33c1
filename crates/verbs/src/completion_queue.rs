//! Completion queues.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use ferroce_device::{CqId, Notify, WorkCompletion};

use crate::completion::Completion;
use crate::error::{CreateError, WaitError};

/// Where work is reported when it is done. Clones are the same queue.
///
/// Make it at least as large as all queues that complete into it together: a queue that
/// overflows loses completions, and its queue pairs go into error.
#[derive(Clone)]
pub struct CompletionQueue {
    device: Arc<ferroce_device::CompletionQueue>,
}

/// Completions that one look takes off.
const CHUNK: usize = 16;

impl CompletionQueue {
    pub(crate) const fn new(device: Arc<ferroce_device::CompletionQueue>) -> Self {
        Self { device }
    }

    /// Its number on the device: what [`AsyncEvent`](crate::AsyncEvent) calls it.
    #[must_use]
    pub fn id(&self) -> CqId {
        self.device.id()
    }

    /// Completions that it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.device.capacity()
    }

    /// Makes it hold another number of completions. Those that it has stay.
    ///
    /// # Errors
    /// It holds more than that, or what is allowed; nothing has changed.
    pub fn resize(&self, capacity: u32) -> Result<(), CreateError> {
        self.device.resize(capacity)
    }

    /// Has an event on its channel wait until `count` completions were added, but no longer than `period` (at
    /// most 65 ms) after the first of them. A count of 0 or 1 takes that back. Polling is not affected.
    ///
    /// # Errors
    /// So many completions never come, because the queue does not hold them, or what is allowed.
    pub fn moderate(&self, count: u32, period: Duration) -> Result<(), CreateError> {
        self.device.moderate(count, period)
    }

    /// Whether completions were lost because it was full.
    #[must_use]
    pub fn is_overrun(&self) -> bool {
        self.device.is_overrun()
    }

    /// Takes completions off, oldest first, and returns how many. It never waits; finding none,
    /// it lets the device work for a moment, so that a loop around it makes progress.
    pub fn poll(&self, into: &mut [Completion]) -> usize {
        let mut found = [WorkCompletion::EMPTY; CHUNK];
        let mut done = 0;
        while done < into.len() {
            let room = CHUNK.min(into.len() - done);
            let taken = self.device.poll(&mut found[..room]);
            for (place, found) in into[done..].iter_mut().zip(&found[..taken]) {
                *place = (*found).into();
            }
            done += taken;
            if taken < room {
                break;
            }
        }
        done
    }

    /// Takes off the oldest completion, if there is one.
    #[must_use]
    pub fn poll_one(&self) -> Option<Completion> {
        let mut found = [WorkCompletion::EMPTY];
        (self.device.poll(&mut found) > 0).then(|| found[0].into())
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
        let mut found = [WorkCompletion::EMPTY; CHUNK];
        let room = CHUNK.min(into.len());
        let taken = self.device.wait(&mut found[..room], timeout);
        for (place, found) in into.iter_mut().zip(&found[..taken]) {
            *place = (*found).into();
        }
        match (taken, timeout) {
            (0, timeout) => Err(WaitError::TimedOut(timeout.unwrap_or(Duration::MAX))),
            (taken, _) => Ok(taken),
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
        self.device.arm(notify);
    }

    /// The queue as the device knows it, for what this API does not have.
    #[must_use]
    pub const fn as_device(&self) -> &Arc<ferroce_device::CompletionQueue> {
        &self.device
    }

    fn check_overrun(&self) -> Result<(), WaitError> {
        if !self.device.nic().is_ours() {
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
        Arc::ptr_eq(&self.device, &other.device)
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
        let mut found = [WorkCompletion::EMPTY];
        if self.queue.device.poll_or_wake(&mut found, context.waker()) > 0 {
            return Poll::Ready(Ok(found[0].into()));
        }
        match self.queue.check_overrun() {
            Ok(()) => Poll::Pending,
            Err(lost) => Poll::Ready(Err(lost)),
        }
    }
}
