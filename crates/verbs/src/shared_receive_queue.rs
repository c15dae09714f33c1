//! Receives for several queue pairs.

use std::sync::Arc;

use ferroce_device::SharedQueue;
use ferroce_transport::{Level, SharedQueueId};

use crate::card::CardSharedQueue;
use crate::error::CreateError;
use crate::local_slice::Pieces;
use crate::protection_domain::Domain;
use crate::receive::{Receive, ReceiveBatch};

/// A queue of receives that several queue pairs of one domain take from. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    of: Of,
    domain: Arc<Domain>,
}

/// The queue of the device.
#[derive(Clone, Debug)]
pub(crate) enum Of {
    Soft(Arc<SharedQueue>),
    Card(Arc<CardSharedQueue>),
}

impl SharedReceiveQueue {
    pub(crate) fn new(domain: &Arc<Domain>, depth: u32, max_sge: u32) -> Result<Self, CreateError> {
        let of = match &**domain {
            Domain::Soft { nic, id } => Of::Soft(SharedQueue::new(nic, *id, depth, max_sge)?),
            Domain::Card { domain, .. } => {
                let queue = domain.shared_receive_queue(depth, max_sge)?;
                Of::Card(Arc::new(CardSharedQueue { queue }))
            }
        };
        Ok(Self { of, domain: Arc::clone(domain) })
    }

    /// Its number on the device: what [`AsyncEvent`](crate::AsyncEvent) calls it.
    #[must_use]
    pub fn id(&self) -> SharedQueueId {
        match &self.of {
            Of::Soft(queue) => queue.id(),
            Of::Card(shared) => SharedQueueId(shared.queue.number()),
        }
    }

    /// A receive, to be posted: a message of any of the queue pairs goes into these pieces.
    pub fn receive<'a>(&'a self, into: impl Into<Pieces<'a>>) -> Receive<'a> {
        Receive::on_shared_queue(self, into.into())
    }

    /// Several receives at once.
    pub const fn receive_batch(&self) -> ReceiveBatch<'_> {
        ReceiveBatch::on_shared_queue(self)
    }

    /// Requests that it takes.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match &self.of {
            Of::Soft(queue) => queue.depth(),
            Of::Card(shared) => shared.queue.depth(),
        }
    }

    /// Makes it take another number of requests. What is posted stays posted.
    ///
    /// # Errors
    /// More requests wait than it would take, its limit is larger, or what is allowed; nothing has changed.
    pub fn resize(&self, depth: u32) -> Result<(), CreateError> {
        match &self.of {
            Of::Soft(queue) => Ok(queue.resize(depth)?),
            Of::Card(shared) => shared.resize(depth, self.most()),
        }
    }

    /// How many requests wait for messages, and waited at most so far; on a card, the first of the two alone.
    #[must_use]
    pub fn level(&self) -> Level {
        match &self.of {
            Of::Soft(queue) => queue.level(),
            Of::Card(shared) => Level::new(shared.len(), shared.len(), shared.queue.depth()),
        }
    }

    /// Requests that wait for messages; on a card, also those whose completions were not polled yet.
    #[must_use]
    pub fn len(&self) -> u32 {
        match &self.of {
            Of::Soft(queue) => queue.len(),
            Of::Card(shared) => shared.len(),
        }
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Has an [event](crate::Events) raised, once, when fewer than `limit` requests wait; 0 for never.
    ///
    /// # Errors
    /// The limit is larger than the queue.
    pub fn set_limit(&self, limit: u32) -> Result<(), CreateError> {
        match &self.of {
            Of::Soft(queue) => Ok(queue.set_limit(limit)?),
            Of::Card(shared) => Ok(shared.queue.set_limit(limit)?),
        }
    }

    /// Requests that a queue of its card can take.
    fn most(&self) -> u32 {
        match &*self.domain {
            Domain::Card { card, .. } => card.attributes().max_queue_depth,
            Domain::Soft { .. } => u32::MAX,
        }
    }

    pub(crate) const fn of(&self) -> &Of {
        &self.of
    }

    /// Whether it is a clone of the other.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.of, &other.of) {
            (Of::Soft(one), Of::Soft(other)) => Arc::ptr_eq(one, other),
            (Of::Card(one), Of::Card(other)) => Arc::ptr_eq(one, other),
            (Of::Soft(_), Of::Card(_)) | (Of::Card(_), Of::Soft(_)) => false,
        }
    }

    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}
