//! Completion channels: one place to sleep for many completion queues.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_device::{Channel, CqId, Nic};

use crate::card::{CardQueue, OpenCard, lock};
use crate::completion_queue::CompletionQueue;
use crate::device::Device;
use crate::error::{CreateError, WaitError};
use crate::wait::Deadline;

/// Where events of several completion queues arrive, with a descriptor for a poll loop.
/// Clones are the same channel.
///
/// A queue reports once after each [`arm`](CompletionQueue::arm). The pattern is: arm, poll what
/// came before, [`wait`](Self::wait), and again.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    of: Of,
}

#[derive(Clone, Debug)]
enum Of {
    Soft { nic: Nic, channel: Arc<Channel>, queues: Queues<ferroce_device::CompletionQueue> },
    Card { card: Arc<OpenCard>, channel: ferroce_system::CompletionChannel, queues: Queues<CardQueue> },
}

/// The queues that report to a channel, by their numbers.
type Queues<Q> = Arc<Mutex<HashMap<CqId, Weak<Q>>>>;

impl CompletionChannel {
    pub(crate) fn new(device: &Device) -> Result<Self, CreateError> {
        let of = match device {
            Device::Soft(nic) => {
                let channel = Channel::new().map_err(|error| CreateError::Descriptor(error.kind()))?;
                Of::Soft { nic: nic.clone(), channel, queues: Arc::default() }
            }
            Device::Card(card) => {
                let channel = card.system.completion_channel()?;
                Of::Card { card: Arc::clone(card), channel, queues: Arc::default() }
            }
        };
        Ok(Self { of })
    }

    /// A completion queue that reports here.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, CreateError> {
        match &self.of {
            Of::Soft { nic, channel, queues } => {
                let queue = ferroce_device::CompletionQueue::new(nic, capacity, Some(channel))?;
                enroll(queues, queue.id(), &queue);
                Ok(CompletionQueue::soft(queue))
            }
            Of::Card { card, channel, queues } => {
                let queue = CardQueue::new(card, capacity, Some(channel), false)?;
                enroll(queues, CqId(queue.number()), &queue);
                Ok(CompletionQueue::card(queue))
            }
        }
    }

    /// The queue of the oldest event, if there is one. It reports again when it is armed again.
    #[must_use]
    pub fn poll(&self) -> Option<CompletionQueue> {
        loop {
            // An event of a queue that was dropped meanwhile is skipped.
            match &self.of {
                Of::Soft { channel, queues, .. } => {
                    if let Some(queue) = find(queues, channel.pop()?) {
                        return Some(CompletionQueue::soft(queue));
                    }
                }
                Of::Card { channel, queues, .. } => {
                    // A channel that cannot be asked any more tells nothing.
                    let told = channel.poll().ok()??;
                    if let Some(queue) = find(queues, CqId(told.number())) {
                        return Some(CompletionQueue::card(queue));
                    }
                }
            }
        }
    }

    /// The queue of the oldest event, waiting for one until the time is over; for ever with `None`.
    ///
    /// # Errors
    /// The time is over.
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<CompletionQueue, WaitError> {
        Deadline::after(timeout.into()).wait_for(self.as_fd(), || self.poll())
    }
}

fn enroll<Q>(queues: &Queues<Q>, id: CqId, queue: &Arc<Q>) {
    let mut queues = lock(queues);
    queues.retain(|_, queue| queue.strong_count() > 0);
    queues.insert(id, Arc::downgrade(queue));
}

fn find<Q>(queues: &Queues<Q>, id: CqId) -> Option<Arc<Q>> {
    lock(queues).get(&id).and_then(Weak::upgrade)
}

/// Readable while events wait.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.of {
            Of::Soft { channel, .. } => channel.as_fd(),
            Of::Card { channel, .. } => channel.as_fd(),
        }
    }
}
