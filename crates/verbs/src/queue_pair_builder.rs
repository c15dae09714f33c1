//! How queue pairs are made.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_device::{CreateError, PathPolicy, Qp, QpSpec, RouteError};
use ferroce_transport::Caps;
use ferroce_wire::{Gid, Service};

use crate::completion_queue::CompletionQueue;
use crate::error::BuildError;
use crate::protection_domain::Domain;
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;

/// A queue pair that is being described. Only a completion queue must be named; the rest has
/// values that suit most programs: 128 requests in each queue, 4 pieces, 64 inline bytes.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is made until `build`"]
pub struct QueuePairBuilder<'a> {
    domain: &'a Arc<Domain>,
    service: Service,
    send_cq: Option<&'a CompletionQueue>,
    receive_cq: Option<&'a CompletionQueue>,
    shared_queue: Option<&'a SharedReceiveQueue>,
    caps: Caps,
    signal_all: bool,
    engine: Option<usize>,
    path: Option<PathPolicy>,
    stamps: bool,
    from: From,
    in_reset: bool,
}

/// Which of the device's addresses it has.
#[derive(Clone, Copy, Debug)]
enum From {
    Index(usize),
    Address(IpAddr),
}

impl<'a> QueuePairBuilder<'a> {
    pub(crate) const fn new(domain: &'a Arc<Domain>, service: Service) -> Self {
        let caps =
            Caps { max_send: 128, max_receive: 128, max_send_sge: 4, max_receive_sge: 4, max_inline: 64 };
        Self {
            domain,
            service,
            send_cq: None,
            receive_cq: None,
            shared_queue: None,
            caps,
            signal_all: true,
            engine: None,
            path: None,
            stamps: false,
            from: From::Index(0),
            in_reset: false,
        }
    }

    /// Where both queues complete.
    pub const fn completion_queue(mut self, queue: &'a CompletionQueue) -> Self {
        self.send_cq = Some(queue);
        self.receive_cq = Some(queue);
        self
    }

    /// Where sends complete, and how many may be under way.
    pub const fn send_queue(mut self, completions: &'a CompletionQueue, depth: u32) -> Self {
        self.send_cq = Some(completions);
        self.caps.max_send = depth;
        self
    }

    /// Where receives complete, and how many may wait.
    pub const fn receive_queue(mut self, completions: &'a CompletionQueue, depth: u32) -> Self {
        self.receive_cq = Some(completions);
        self.caps.max_receive = depth;
        self
    }

    /// Takes receives from here instead of a queue of its own, whose depth then means nothing.
    pub const fn shared_receive_queue(mut self, queue: &'a SharedReceiveQueue) -> Self {
        self.shared_queue = Some(queue);
        self
    }

    /// Pieces that a request may have.
    pub const fn max_sge(mut self, pieces: u32) -> Self {
        self.caps.max_send_sge = pieces;
        self.caps.max_receive_sge = pieces;
        self
    }

    /// Bytes that an inline request may have.
    pub const fn max_inline(mut self, bytes: u32) -> Self {
        self.caps.max_inline = bytes;
        self
    }

    /// Whether every send completes (so it is if nothing is said), or only those that are
    /// [`signaled`](crate::Work::signaled). Unsignaled sends free their place with the next
    /// signaled one that completes.
    pub const fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// Has completions of datagrams tell when the kernel saw their packets leave and come, as far as it says so
    /// ([`time_source`](crate::Completion::time_source)), and keeps what routers send back
    /// ([`path_reports`](QueuePair::path_reports)). A send completes when the kernel has said when it left, and every send
    /// completes.
    pub const fn stamps(mut self) -> Self {
        self.stamps = true;
        self
    }

    /// Whether it may meet a peer in this process directly.
    pub const fn path(mut self, policy: PathPolicy) -> Self {
        self.path = Some(policy);
        self
    }

    /// The engine that it lives in, of those that the device has; if nothing is said, the one with the least
    /// on it.
    pub const fn engine(mut self, index: usize) -> Self {
        self.engine = Some(index);
        self
    }

    /// Which entry of the GID table is its address; the first if nothing is said.
    pub const fn gid_index(mut self, index: usize) -> Self {
        self.from = From::Index(index);
        self
    }

    /// Which of the device's addresses it has.
    pub fn address(mut self, address: impl Into<IpAddr>) -> Self {
        self.from = From::Address(address.into());
        self
    }

    /// Leaves it in RESET, for a program that takes every step itself with
    /// [`modify`](QueuePair::modify). Otherwise it is made in INIT, where it takes receives.
    pub const fn in_reset(mut self) -> Self {
        self.in_reset = true;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn build(self) -> Result<QueuePair, BuildError> {
        let nic = &self.domain.nic;
        let missing = |queue| BuildError::NoCompletionQueue { queue };
        let send_cq = self.send_cq.ok_or(missing("send"))?;
        let receive_cq = self.receive_cq.ok_or(missing("receive"))?;
        let gid = self.gid()?;
        let spec = QpSpec {
            service: self.service,
            domain: self.domain.id,
            send_cq: send_cq.as_device(),
            receive_cq: receive_cq.as_device(),
            shared_queue: self.shared_queue.map(SharedReceiveQueue::as_device),
            caps: self.caps,
            signal_all: self.signal_all,
            path: self.path,
            engine: self.engine,
            stamps: self.stamps,
        };
        if let Some(queue) = self.shared_queue
            && !Arc::ptr_eq(queue.domain(), self.domain)
        {
            return Err(CreateError::OtherDomain { what: "shared receive queue" }.into());
        }
        let device = Qp::new(nic, &spec)?;
        let queue_pair = QueuePair::new(device, Arc::clone(self.domain), nic.random_u32(), gid);
        if !self.in_reset {
            queue_pair.initialise()?;
        }
        Ok(queue_pair)
    }

    fn gid(&self) -> Result<(usize, Gid), BuildError> {
        let nic = &self.domain.nic;
        let given = match self.from {
            From::Index(index) => index,
            From::Address(address) => nic
                .gid_index(address)
                .ok_or_else(|| BuildError::ForeignAddress { address, has: nic.gids() })?,
        };
        let len = nic.gid_count();
        let gid = nic.gid(given).ok_or(CreateError::Address(RouteError::NoSuchGid { given, len }))?;
        Ok((given, gid))
    }
}
