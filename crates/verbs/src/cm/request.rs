//! Requests for connections.

use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_device::Nic;
use ferroce_device::cm::ConnectionManager;
use ferroce_transport::cm::{Accept, Request};
use ferroce_wire::mad::{Opaque, RejectReason, Rep, Timeout};
use ferroce_wire::{PathMtu, Service};

use super::connecting::{Attempt, Connecting, check_new, soft_qp};
use super::error::CmError;
use super::established::Established;
use super::link::Link;
use super::options::CmOptions;
use super::steps::{Peer, Steps};
use crate::connect::ConnectOptions;
use crate::device::Device;
use crate::queue_pair::QueuePair;

/// How long we may take to acknowledge a packet, as others are told: 134 ms, as the Linux kernel says of
/// itself.
const ACK_DELAY: Timeout = Timeout::new(15);

/// A peer's request for a connection. Dropping this rejects it.
///
/// The peer waits as long as it likes, and is told that we think about it when it asks again.
#[must_use = "dropping it rejects the connection"]
#[derive(Debug)]
pub struct ConnectRequest {
    nic: Nic,
    manager: Arc<ConnectionManager>,
    request: Box<Request>,
    link: Arc<Link>,
    answered: bool,
}

impl ConnectRequest {
    pub(crate) const fn new(
        nic: Nic,
        manager: Arc<ConnectionManager>,
        request: Box<Request>,
        link: Arc<Link>,
    ) -> Self {
        Self { nic, manager, request, link, answered: false }
    }

    /// The peer that asks.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.request.peer()
    }

    /// Which of our addresses is asked, and the port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.request.local()
    }

    /// What the program on the other side sent along, zeros at the end included: 56 bytes for a port, 92 for
    /// another service.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.request.private_data()
    }

    /// The kind of queue pair that it takes: RC or UC.
    #[must_use]
    pub const fn service(&self) -> Service {
        self.request.transport()
    }

    /// READs and atomics that the peer wants to have under way.
    #[must_use]
    pub const fn initiator_depth(&self) -> u8 {
        self.request.req.initiator_depth
    }

    /// READs and atomics of ours that the peer can serve at a time.
    #[must_use]
    pub const fn responder_resources(&self) -> u8 {
        self.request.req.responder_resources
    }

    /// The payload of a full packet.
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        // Others are rejected before a program sees them.
        self.request.req.mtu().unwrap_or(PathMtu::B256)
    }

    /// Whether the peer still waits.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.manager.is_pending(self.request.id)
    }

    /// Connects a new queue pair of the same device and waits until the peer has confirmed.
    ///
    /// # Errors
    /// What is in the way. It returns within [`CmOptions::timeout`].
    pub fn accept(self, qp: &QueuePair, options: &CmOptions) -> Result<Established, CmError> {
        self.start_accept(qp, options)?.wait()
    }

    /// The same without waiting. The queue pair is in RTS when this returns, and may be used.
    ///
    /// # Errors
    /// What can be seen at once; the request is rejected then, unless the peer has given it up.
    pub fn start_accept(mut self, qp: &QueuePair, options: &CmOptions) -> Result<Connecting, CmError> {
        let req = &self.request.req;
        let qpn = qp.qpn();
        if !qp.domain().is_of(&Device::Soft(self.nic.clone())) {
            return Err(CmError::OtherDevice { qpn });
        }
        let (given, needed) = (qp.service(), self.service());
        if given != needed {
            return Err(CmError::WrongService { qpn, given, needed });
        }
        check_new(qp)?;
        let too_long = |_| CmError::PrivateDataTooLong {
            given: options.private_data.len(),
            allowed: Opaque::<196>::LEN,
        };
        let private_data = Opaque::new(&options.private_data).map_err(too_long)?;
        let ends = self.request.ends;
        // Packets come from the address that was asked, whichever the queue pair had in mind.
        let sgid_index = self.nic.gid_index(ends.local).unwrap_or(qp.gid_index);
        let psn = qp.local_address().psn;
        // What is not of a partition of ours was rejected before.
        let pkey_index = self.nic.pkeys().index_for(req.pkey).and_then(|index| u16::try_from(index).ok());
        let works = ConnectOptions {
            traffic_class: req.primary.traffic_class,
            retry_count: req.retry_count,
            pkey_index,
            ..options.qp
        };
        let steps = Steps::new(soft_qp(qp)?, psn, works, (ends.remote, sgid_index), self.path_mtu());
        let peer = Peer::from(req);
        let depths = steps.take(&peer).map_err(|error| CmError::QueuePair { qpn, error })?;
        let rep = Rep {
            local_qpn: qpn,
            starting_psn: psn,
            responder_resources: depths.responder,
            initiator_depth: depths.initiator,
            target_ack_delay: ACK_DELAY,
            end_to_end_flow_control: true,
            rnr_retry_count: options.qp.rnr_retry,
            srq: qp.has_shared_queue(),
            local_ca_guid: self.nic.info().node_guid(),
            private_data,
            ..Rep::default()
        };
        self.link.answer_with(qpn, steps, depths);
        let accept = Accept { rep, patience: options.patience() };
        let peer = self.peer();
        self.answered = true;
        if self.manager.accept(self.request.id, &accept).is_err() {
            self.link.flush();
            return Err(CmError::Withdrawn { peer });
        }
        let (nic, manager) = (self.nic.clone(), Arc::clone(&self.manager));
        let (id, link, limit) = (self.request.id, Arc::clone(&self.link), options.limit());
        Ok(Connecting::new(Attempt { nic, manager, id, link, limit }))
    }

    /// Rejects it, with at most 148 bytes for the program on the other side.
    ///
    /// # Errors
    /// The bytes are too many, or the peer has given up.
    pub fn reject(self, private_data: &[u8]) -> Result<(), CmError> {
        self.reject_with(RejectReason::CONSUMER, private_data)
    }

    /// The same for another reason than the program's own.
    ///
    /// # Errors
    /// The bytes are too many, or the peer has given up.
    pub fn reject_with(mut self, reason: RejectReason, private_data: &[u8]) -> Result<(), CmError> {
        let (given, allowed) = (private_data.len(), Opaque::<148>::LEN);
        if given > allowed {
            return Err(CmError::PrivateDataTooLong { given, allowed });
        }
        self.answered = true;
        let withdrawn = CmError::Withdrawn { peer: self.peer() };
        self.manager.reject(self.request.id, reason, private_data).map_err(|_| withdrawn)
    }
}

impl Drop for ConnectRequest {
    fn drop(&mut self) {
        if !self.answered {
            self.manager.abandon(self.request.id);
        }
    }
}
