//! How queue pairs are made.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_device::{PathPolicy, Qp, QpSpec};
use ferroce_transport::Caps;
use ferroce_wire::{Gid, Service};

use crate::capability::Capability;
use crate::card::{CardQueuePair, Parts};
use crate::completion_queue::{self, CompletionQueue};
use crate::error::{BuildError, CreateError, RouteError};
use crate::protection_domain::Domain;
use crate::queue_pair::{Of, QueuePair};
use crate::shared_receive_queue::{self, SharedReceiveQueue};

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
    /// The usual one.
    Usual,
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
            from: From::Usual,
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

    /// Which entry of the GID table is its address; if nothing is said, the first, and on a card the first that is one of
    /// RoCEv2 and leads further than the next switch.
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
        let missing = |queue| BuildError::NoCompletionQueue { queue };
        let send_cq = self.send_cq.ok_or(missing("send"))?;
        let receive_cq = self.receive_cq.ok_or(missing("receive"))?;
        let gid = self.gid()?;
        if let Some(queue) = self.shared_queue
            && !Arc::ptr_eq(queue.domain(), self.domain)
        {
            return Err(CreateError::OtherDomain { what: "shared receive queue" }.into());
        }
        let of = self.make(send_cq, receive_cq)?;
        let psn = self.domain.device().random_u32();
        let queue_pair = QueuePair::new(of, Arc::clone(self.domain), psn, gid);
        if !self.in_reset {
            queue_pair.initialise()?;
        }
        Ok(queue_pair)
    }

    fn make(&self, send_cq: &CompletionQueue, receive_cq: &CompletionQueue) -> Result<Of, CreateError> {
        use completion_queue::Of as Cq;
        use shared_receive_queue::Of as Srq;
        let other = |what| Err(CreateError::OtherDevice { what });
        let (service, caps, signal_all) = (self.service, self.caps, self.signal_all);
        match &**self.domain {
            Domain::Soft { nic, id } => {
                let (Cq::Soft(send_cq), Cq::Soft(receive_cq)) = (send_cq.of(), receive_cq.of()) else {
                    return other("completion queue");
                };
                let shared_queue = match self.shared_queue.map(SharedReceiveQueue::of) {
                    None => None,
                    Some(Srq::Soft(queue)) => Some(queue),
                    Some(Srq::Card(_)) => return other("shared receive queue"),
                };
                let spec = QpSpec {
                    service,
                    domain: *id,
                    send_cq,
                    receive_cq,
                    shared_queue,
                    caps,
                    signal_all,
                    path: self.path,
                    engine: self.engine,
                    stamps: self.stamps,
                };
                Ok(Of::Soft(Qp::new(nic, &spec)?))
            }
            Domain::Card { card, domain, .. } => {
                for (asked, capability) in [
                    (self.path.is_some(), Capability::Paths),
                    (self.engine.is_some(), Capability::Engines),
                    (self.stamps, Capability::Stamps),
                ] {
                    if asked {
                        return Err(CreateError::Unsupported(capability.into()));
                    }
                }
                let (Cq::Card(send_cq), Cq::Card(receive_cq)) = (send_cq.of(), receive_cq.of()) else {
                    return other("completion queue");
                };
                let shared_queue = match self.shared_queue.map(SharedReceiveQueue::of) {
                    None => None,
                    Some(Srq::Card(queue)) => Some(queue),
                    Some(Srq::Soft(_)) => return other("shared receive queue"),
                };
                let parts = Parts { service, send_cq, receive_cq, shared_queue, caps, signal_all };
                Ok(Of::Card(CardQueuePair::new(card, domain, &parts)?))
            }
        }
    }

    fn gid(&self) -> Result<(usize, Gid), BuildError> {
        let device = self.domain.device();
        let given = match self.from {
            From::Usual => device.usual_gid(),
            From::Index(index) => index,
            From::Address(address) => device
                .gid_index(address)
                .ok_or_else(|| BuildError::ForeignAddress { address, has: device.gids() })?,
        };
        let len = device.gid_count();
        let gid = device.gid(given).ok_or(CreateError::Address(RouteError::NoSuchGid { given, len }))?;
        Ok((given, gid))
    }
}
