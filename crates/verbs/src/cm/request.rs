//! Requests for connections.

use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_device::cm::ConnectionManager;
use ferroce_device::{Nic, Qp};
use ferroce_transport::cm::{Accept, Request};
use ferroce_wire::mad::{Opaque, RejectReason, Rep, Timeout};
use ferroce_wire::{PathMtu, Service};

use super::connecting::{Attempt, Connecting, Hold, check_new};
use super::error::CmError;
use super::established::Established;
use super::link::Link;
use super::options::CmOptions;
use super::steps::{Peer, Steps};
use crate::card::connector::{CardConnection, CardRequest};
use crate::connect::ConnectOptions;
use crate::queue_pair::{Of as QpOf, QueuePair};

/// How long we may take to acknowledge a packet, as others are told: 134 ms, as the Linux kernel says of
/// itself.
const ACK_DELAY: Timeout = Timeout::new(15);

/// A peer's request for a connection. Dropping this rejects it.
///
/// The peer waits as long as it likes, and is told that we think about it when it asks again.
#[must_use = "dropping it rejects the connection"]
#[derive(Debug)]
pub struct ConnectRequest {
    of: Of,
}

#[derive(Debug)]
enum Of {
    Soft(Soft),
    Card(CardRequest),
}

#[derive(Debug)]
struct Soft {
    nic: Nic,
    manager: Arc<ConnectionManager>,
    request: Box<Request>,
    link: Arc<Link>,
    answered: bool,
}

impl ConnectRequest {
    pub(crate) const fn soft(
        nic: Nic,
        manager: Arc<ConnectionManager>,
        request: Box<Request>,
        link: Arc<Link>,
    ) -> Self {
        Self { of: Of::Soft(Soft { nic, manager, request, link, answered: false }) }
    }

    pub(crate) const fn card(request: CardRequest) -> Self {
        Self { of: Of::Card(request) }
    }

    /// The peer that asks.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        match &self.of {
            Of::Soft(Soft { request, .. }) => request.peer(),
            Of::Card(card) => card.link.peer,
        }
    }

    /// Which of our addresses is asked, and the port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        match &self.of {
            Of::Soft(Soft { request, .. }) => request.local(),
            Of::Card(card) => card.link.local,
        }
    }

    /// What the program on the other side sent along, zeros at the end included: 56 bytes for a port, 92 for
    /// another service.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        match &self.of {
            Of::Soft(Soft { request, .. }) => request.private_data(),
            Of::Card(card) => &card.private_data,
        }
    }

    /// The kind of queue pair that it takes: RC or UC.
    #[must_use]
    pub const fn service(&self) -> Service {
        match &self.of {
            Of::Soft(Soft { request, .. }) => request.transport(),
            Of::Card(_) => Service::Rc,
        }
    }

    /// READs and atomics that the peer wants to have under way.
    #[must_use]
    pub const fn initiator_depth(&self) -> u8 {
        match &self.of {
            Of::Soft(Soft { request, .. }) => request.req.initiator_depth,
            Of::Card(card) => card.parameters.responder_resources,
        }
    }

    /// READs and atomics of ours that the peer can serve at a time.
    #[must_use]
    pub const fn responder_resources(&self) -> u8 {
        match &self.of {
            Of::Soft(Soft { request, .. }) => request.req.responder_resources,
            Of::Card(card) => card.parameters.initiator_depth,
        }
    }

    /// The payload of a full packet; on a card, that of its port.
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        match &self.of {
            // Others are rejected before a program sees them.
            Of::Soft(Soft { request, .. }) => request.req.mtu().unwrap_or(PathMtu::B256),
            Of::Card(card) => card.card.active_mtu(),
        }
    }

    /// Whether the peer still waits.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        match &self.of {
            Of::Soft(Soft { manager, request, .. }) => manager.is_pending(request.id),
            Of::Card(card) => card.is_pending(),
        }
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
    pub fn start_accept(self, qp: &QueuePair, options: &CmOptions) -> Result<Connecting, CmError> {
        let qpn = qp.qpn();
        let is_same = match (&self.of, qp.of()) {
            (Of::Soft(Soft { nic, .. }), QpOf::Soft(qp)) => qp.nic().is_same(nic),
            (Of::Card(request), QpOf::Card(qp)) => Arc::ptr_eq(&qp.card, &request.card),
            _ => false,
        };
        if !is_same {
            return Err(CmError::OtherDevice { qpn });
        }
        let (given, needed) = (qp.service(), self.service());
        if given != needed {
            return Err(CmError::WrongService { qpn, given, needed });
        }
        check_new(qp)?;
        match (self.of, qp.of()) {
            (Of::Card(request), QpOf::Card(qp)) => {
                let connection = CardConnection::accept(request, qp, options)?;
                let link = Arc::clone(&connection.link);
                Ok(Connecting::new(Attempt { hold: Hold::Card(connection), link, limit: options.limit() }))
            }
            (Of::Soft(mut soft), QpOf::Soft(device)) => {
                let rep = soft.prepare(qp, device, options)?;
                soft.accept(rep, options)
            }
            _ => Err(CmError::OtherDevice { qpn }),
        }
    }

    /// Rejects it, with at most 148 bytes for the program on the other side.
    ///
    /// # Errors
    /// The bytes are too many, or the peer has given up.
    pub fn reject(self, private_data: &[u8]) -> Result<(), CmError> {
        self.reject_with(RejectReason::CONSUMER, private_data)
    }

    /// The same for another reason than the program's own. A card knows no other: there the peer hears of
    /// [`CONSUMER`](RejectReason::CONSUMER).
    ///
    /// # Errors
    /// The bytes are too many, or the peer has given up.
    pub fn reject_with(self, reason: RejectReason, private_data: &[u8]) -> Result<(), CmError> {
        let (given, allowed) = (private_data.len(), Opaque::<148>::LEN);
        if given > allowed {
            return Err(CmError::PrivateDataTooLong { given, allowed });
        }
        let withdrawn = CmError::Withdrawn { peer: self.peer() };
        match self.of {
            Of::Soft(mut soft) => {
                soft.answered = true;
                let Soft { manager, request, .. } = &soft;
                manager.reject(request.id, reason, private_data).map_err(|_| withdrawn)
            }
            Of::Card(request) => request.reject(private_data).map_err(|_| withdrawn),
        }
    }
}

impl Soft {
    /// Takes the queue pair to RTS; what the peer is told.
    fn prepare(&self, qp: &QueuePair, device: &Arc<Qp>, options: &CmOptions) -> Result<Rep, CmError> {
        let req = &self.request.req;
        let qpn = qp.qpn();
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
        let steps =
            Steps::new(device, psn, works, (ends.remote, sgid_index), req.mtu().unwrap_or(PathMtu::B256));
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
        Ok(rep)
    }

    fn accept(&mut self, rep: Rep, options: &CmOptions) -> Result<Connecting, CmError> {
        self.answered = true;
        let Self { nic, manager, request, link, .. } = self;
        let accept = Accept { rep, patience: options.patience() };
        if manager.accept(request.id, &accept).is_err() {
            link.flush();
            return Err(CmError::Withdrawn { peer: request.peer() });
        }
        let hold = Hold::Soft { nic: nic.clone(), manager: Arc::clone(manager), id: request.id };
        Ok(Connecting::new(Attempt { hold, link: Arc::clone(link), limit: options.limit() }))
    }
}

/// That of a card is rejected as it is dropped.
impl Drop for Soft {
    fn drop(&mut self) {
        if !self.answered {
            self.manager.abandon(self.request.id);
        }
    }
}
