//! What a program hears of its connections.

use std::net::{IpAddr, SocketAddr};

use ferroce_wire::mad::{CommId, Opaque, RejectReason, Rep, Req, ServiceId, SidrStatus};
use ferroce_wire::{QKey, Qpn, Service};

use super::Ends;

/// Something that happened to a connection, named by our communication id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer asks for a connection to a service that we listen for. It waits for
    /// [`accept`](super::Manager::accept) or [`reject`](super::Manager::reject).
    Requested(Box<Request>),
    /// Our request was accepted: the queue pair is to be taken to RTS, then
    /// [`ready`](super::Manager::ready) is to be called, or [`abandon`](super::Manager::abandon).
    Replied(Box<Rep>),
    /// Both sides know that the connection stands.
    Established,
    /// Its peer's queue pair seems to have asked for another connection. The peer is to be asked by a packet whether it
    /// still knows of this one; if it answers, [`vouched`](super::Manager::vouched) is to be called. If it does not,
    /// this comes a few times more, and then the end.
    Doubted,
    /// It came to nothing. Nothing follows.
    Failed(Failure),
    /// It stood, and is over. Nothing follows, but for [`Event::Forgotten`] if that was asked for.
    Ended(End),
    /// No message or packet of it is under way any more: it is not remembered any longer.
    Forgotten,
    /// A question for a datagram service was answered.
    Resolved(Box<Resolved>),
}

/// Why a connection was not established, or a service not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer refused.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// What its program adds.
        private_data: Box<Opaque<148>>,
    },
    /// The peer did not answer.
    TimedOut {
        /// The message that was sent, such as `REQ`.
        sent: &'static str,
        /// How often.
        attempts: u32,
    },
    /// The peer gave up before we answered, or asked anew from the same queue pair.
    Withdrawn,
    /// The peer does not tell which queue pair serves it.
    Unresolved {
        /// Why.
        status: SidrStatus,
        /// What its program adds.
        private_data: Box<Opaque<136>>,
    },
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// We ended it, and the peer confirmed.
    Here,
    /// The peer ended it.
    Peer,
    /// We ended it, and the peer did not answer.
    Unanswered,
    /// The peer knows nothing of it any more: its process is gone, or its queue pair asked for a new connection and did
    /// not answer on this one.
    Stale,
}

/// A request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Our name for the connection.
    pub id: CommId,
    /// Which of our addresses it came to, and from where.
    pub ends: Ends,
    /// What it asks for, as it came. Everything in it that must be right has been checked.
    pub req: Req,
}

impl Request {
    /// The service.
    #[must_use]
    pub const fn service_id(&self) -> ServiceId {
        self.req.service_id
    }

    /// The kind of queue pair that it needs.
    #[must_use]
    pub const fn transport(&self) -> Service {
        match self.req.transport_service {
            ferroce_wire::mad::TransportService::Uc => Service::Uc,
            // Others are rejected before.
            _ => Service::Rc,
        }
    }

    /// The peer that asks: the address that packets come from, with the port of its IP service, or 0.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        let port = self.req.ip().map_or(0, |(header, _)| header.source_port);
        SocketAddr::new(self.ends.remote, port)
    }

    /// Which of our addresses is asked, with the port of its IP service, or 0.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        let port = self.req.service_id.as_rdma_ip().map_or(0, |(_, port)| port);
        SocketAddr::new(self.ends.local, port)
    }

    /// What the program on the other side added, zeros at the end included: the wire has no length for it.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        match self.req.ip() {
            Some((_, consumer)) => consumer,
            None => &self.req.private_data.0,
        }
    }
}

/// Where the datagrams for a service go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The address of the device.
    pub address: IpAddr,
    /// The queue pair.
    pub qpn: Qpn,
    /// The key that datagrams must show.
    pub qkey: QKey,
    /// What its program adds.
    pub private_data: Opaque<136>,
}
