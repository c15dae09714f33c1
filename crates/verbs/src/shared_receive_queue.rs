//! Receives for several queue pairs.

use std::sync::Arc;

use ferroce_device::SharedQueue;
use ferroce_transport::{Level, SharedQueueId};

use crate::error::CreateError;
use crate::local_slice::Pieces;
use crate::protection_domain::Domain;
use crate::receive::{Receive, ReceiveBatch};

/// A queue of receives that several queue pairs of one domain take from. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    device: Arc<SharedQueue>,
    domain: Arc<Domain>,
}

impl SharedReceiveQueue {
    pub(crate) fn new(domain: &Arc<Domain>, depth: u32, max_sge: u32) -> Result<Self, CreateError> {
        let device = SharedQueue::new(&domain.nic, domain.id, depth, max_sge)?;
        Ok(Self { device, domain: Arc::clone(domain) })
    }

    /// Its number on the device: what [`AsyncEvent`](crate::AsyncEvent) calls it.
    #[must_use]
    pub fn id(&self) -> SharedQueueId {
        self.device.id()
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
        self.device.depth()
    }

    /// Makes it take another number of requests. What is posted stays posted.
    ///
    /// # Errors
    /// More requests wait than it would take, its limit is larger, or what is allowed; nothing has changed.
    pub fn resize(&self, depth: u32) -> Result<(), CreateError> {
        self.device.resize(depth)
    }

    /// How many requests wait for messages, and waited at most so far.
    #[must_use]
    pub fn level(&self) -> Level {
        self.device.level()
    }

    /// Requests that wait for messages.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.device.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.device.is_empty()
    }

    /// Has an [event](crate::Events) raised, once, when fewer than `limit` requests wait; 0 for never.
    ///
    /// # Errors
    /// The limit is larger than the queue.
    pub fn set_limit(&self, limit: u32) -> Result<(), CreateError> {
        self.device.set_limit(limit)
    }

    pub(crate) const fn as_device(&self) -> &Arc<SharedQueue> {
        &self.device
    }

    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}
