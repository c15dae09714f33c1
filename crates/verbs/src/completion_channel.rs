//! Completion channels: one place to sleep for many completion queues.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ferroce_device::{Channel, CqId, Nic};

use crate::completion_queue::CompletionQueue;
use crate::error::{CreateError, WaitError};
use crate::wait::Deadline;

/// Where events of several completion queues arrive, with a descriptor for a poll loop.
/// Clones are the same channel.
///
/// A queue reports once after each [`arm`](CompletionQueue::arm). The pattern is: arm, poll what
/// came before, [`wait`](Self::wait), and again.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    nic: Nic,
    device: Arc<Channel>,
    queues: Arc<Mutex<HashMap<CqId, Weak<ferroce_device::CompletionQueue>>>>,
}

impl CompletionChannel {
    pub(crate) fn new(nic: &Nic) -> Result<Self, CreateError> {
        let device = Channel::new().map_err(|error| CreateError::Descriptor(error.kind()))?;
        Ok(Self { nic: nic.clone(), device, queues: Arc::default() })
    }

    /// A completion queue that reports here.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, CreateError> {
        let queue = ferroce_device::CompletionQueue::new(&self.nic, capacity, Some(&self.device))?;
        let mut queues = self.queues();
        queues.retain(|_, queue| queue.strong_count() > 0);
        queues.insert(queue.id(), Arc::downgrade(&queue));
        Ok(CompletionQueue::new(queue))
    }

    /// The queue of the oldest event, if there is one. It reports again when it is armed again.
    #[must_use]
    pub fn poll(&self) -> Option<CompletionQueue> {
        loop {
            let id = self.device.pop()?;
            // An event of a queue that was dropped meanwhile is skipped.
            if let Some(queue) = self.queues().get(&id).and_then(Weak::upgrade) {
                return Some(CompletionQueue::new(queue));
            }
        }
    }

    /// The queue of the oldest event, waiting for one until the time is over; for ever with `None`.
    ///
    /// # Errors
    /// The time is over.
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<CompletionQueue, WaitError> {
        Deadline::after(timeout.into()).wait_for(self.device.as_fd(), || self.poll())
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<CqId, Weak<ferroce_device::CompletionQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readable while events wait.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
