//! Why there is no connection: lists of reasons.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ferroce_device::switchboard::SwitchError;
use ferroce_transport::cm::{Failure, Refused};
use ferroce_wire::mad::{RejectReason, ServiceId, SidrStatus};
use ferroce_wire::{Qpn, Service};
use thiserror::Error;

use crate::capability::Unsupported;
use crate::card::connector::EADDRINUSE;
use crate::error::{CallError, LibraryError, QpError};

/// Why a connection was not established, or a datagram service not found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CmError {
    /// The peer refused.
    #[error("{peer} refused the connection: {reason}")]
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// Why; [`RejectReason::CONSUMER`] if its program did.
        reason: RejectReason,
        /// What its program added, zeros at the end included.
        private_data: Vec<u8>,
    },
    /// The peer has a device, but no program listens on this port.
    #[error("no program listens on {peer}; start the server, or look at the port")]
    NotListening {
        /// Where.
        peer: SocketAddr,
    },
    /// Too many requests wait there. Trying again later helps.
    #[error("{peer} has more requests than it takes; try again in a moment")]
    Busy {
        /// The peer.
        peer: SocketAddr,
    },
    /// The queue pair is connected to the peer already, or was a moment ago.
    #[error("{peer} still knows an older connection of this queue pair; wait a moment, or use another one")]
    Stale {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer did not answer.
    #[error(
        "{peer} did not answer {sent}, sent {attempts} times; see whether a device is open there, and nothing in \
         between drops UDP port 4791"
    )]
    TimedOut {
        /// The peer.
        peer: SocketAddr,
        /// The message: `REQ` to ask for a connection, `REP` to accept one, `SIDR_REQ` for datagrams.
        sent: &'static str,
        /// How often it was sent.
        attempts: u32,
    },
    /// The peer gave its request up before it was answered.
    #[error("{peer} does not want the connection any more")]
    Withdrawn {
        /// The peer.
        peer: SocketAddr,
    },
    /// The system does not send to the peer.
    #[error("{peer} cannot be reached: {error}")]
    Unreachable {
        /// The peer.
        peer: SocketAddr,
        /// What the system says.
        error: io::ErrorKind,
    },
    /// The peer does not tell which queue pair serves a datagram port.
    #[error("{peer} serves no datagrams there: {status}")]
    Unresolved {
        /// The peer.
        peer: SocketAddr,
        /// Why.
        status: SidrStatus,
        /// What its program added, zeros at the end included.
        private_data: Vec<u8>,
    },
    /// One address is IPv4, the other IPv6.
    #[error(
        "{local} cannot talk to {peer}: one is IPv4, the other IPv6; give the queue pair another address"
    )]
    Family {
        /// Ours.
        local: IpAddr,
        /// The peer's.
        peer: IpAddr,
    },
    /// More private data than the message holds.
    #[error("{given} bytes of private data, {allowed} fit into this message")]
    PrivateDataTooLong {
        /// Bytes given.
        given: usize,
        /// Bytes allowed.
        allowed: usize,
    },
    /// The queue pair is of another service than the connection, or of one that has no connections.
    #[error("queue pair {qpn} is {}, {} is needed", given.name(), needed.name())]
    WrongService {
        /// The queue pair.
        qpn: Qpn,
        /// Its service.
        given: Service,
        /// The service of the connection.
        needed: Service,
    },
    /// The queue pair belongs to another device than the request came to.
    #[error("queue pair {qpn} belongs to another device than the request; make one from its context")]
    OtherDevice {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The queue pair does not go along.
    #[error("queue pair {qpn} cannot be connected")]
    QueuePair {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        #[source]
        error: QpError,
    },
    /// There is no such P_Key.
    #[error("P_Key index {given} does not exist; the port has {len}, from index 0 on")]
    NoSuchPKey {
        /// What was given.
        given: u16,
        /// How many there are.
        len: usize,
    },
    /// The device has no room for another connection.
    #[error(transparent)]
    NoRoom(Refused),
    /// The device was opened before a fork, or the system refuses what connections need.
    #[error("this process cannot connect: {0}; a device that was opened before a fork must be opened anew")]
    System(io::ErrorKind),
    /// The card, or its library of connections, refused.
    #[error(transparent)]
    Card(#[from] CallError),
    /// There is no library of connections on this machine, or it cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The device cannot do this.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

impl CmError {
    /// Whether the same attempt may succeed a moment later.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Stale { .. } | Self::TimedOut { .. })
    }

    pub(crate) fn from_failure(peer: SocketAddr, failure: Failure) -> Self {
        match failure {
            Failure::Rejected { reason: RejectReason::INVALID_SERVICE_ID, .. } => Self::NotListening { peer },
            Failure::Rejected { reason: RejectReason::NO_RESOURCES, .. } => Self::Busy { peer },
            Failure::Rejected { reason: RejectReason::STALE_CONNECTION, .. } => Self::Stale { peer },
            Failure::Rejected { reason, private_data } => {
                Self::Refused { peer, reason, private_data: private_data.0.to_vec() }
            }
            Failure::TimedOut { sent, attempts } => Self::TimedOut { peer, sent, attempts },
            Failure::Withdrawn => Self::Withdrawn { peer },
            Failure::Unresolved { status: SidrStatus::SERVICE_ID_NOT_SUPPORTED, .. } => {
                Self::NotListening { peer }
            }
            Failure::Unresolved { status, private_data } => {
                Self::Unresolved { peer, status, private_data: private_data.0.to_vec() }
            }
        }
    }

    pub(crate) fn system(error: &io::Error) -> Self {
        Self::System(error.kind())
    }
}

/// Why a program cannot listen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The port has a listener, in this process or another one.
    #[error("port {port} (service {service}) is listened to already, by process {pid}; use another port")]
    Taken {
        /// The port, or 0 if the service is no port.
        port: u16,
        /// The service.
        service: ServiceId,
        /// The process that listens.
        pid: u32,
    },
    /// The port has a listener, as the card's connection management says.
    #[error("port {port} is listened to already; use another port")]
    TakenOnCard {
        /// The port.
        port: u16,
    },
    /// No port was free.
    #[error("all ports that were tried are taken; say which one to use")]
    NoPort,
    /// The queue pair is not one for datagrams.
    #[error("queue pair {qpn} is {}, UD is needed", given.name())]
    WrongService {
        /// The queue pair.
        qpn: Qpn,
        /// Its service.
        given: Service,
    },
    /// More private data than the message holds.
    #[error("{given} bytes of private data, {allowed} fit into this message")]
    PrivateDataTooLong {
        /// Bytes given.
        given: usize,
        /// Bytes allowed.
        allowed: usize,
    },
    /// The switchboard refused.
    #[error(transparent)]
    Switch(SwitchError),
    /// The system refuses what connections need, or the device was opened before a fork.
    #[error("the operating system refused what connections need: {0}")]
    System(io::ErrorKind),
    /// The card, or its library of connections, refused.
    #[error(transparent)]
    Card(#[from] CallError),
    /// There is no library of connections on this machine, or it cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The device cannot do this.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

impl ListenError {
    pub(crate) fn on_card(port: u16, error: CmError) -> Self {
        match error {
            CmError::Card(error) if error.code == EADDRINUSE => Self::TakenOnCard { port },
            CmError::Card(error) => Self::Card(error),
            CmError::Library(error) => Self::Library(error),
            CmError::System(kind) => Self::System(kind),
            _ => Self::System(io::ErrorKind::Other),
        }
    }

    pub(crate) fn from_device(service: ServiceId, error: ferroce_device::cm::ServiceError) -> Self {
        let port = service.as_rdma_ip().map_or(0, |(_, port)| port);
        match error {
            ferroce_device::cm::ServiceError::Refused(_) => {
                Self::Taken { port, service, pid: std::process::id() }
            }
            ferroce_device::cm::ServiceError::Switch(SwitchError::ServiceClaimed { pid, .. }) => {
                Self::Taken { port, service, pid }
            }
            ferroce_device::cm::ServiceError::Switch(error) => Self::Switch(error),
            ferroce_device::cm::ServiceError::System(error) => Self::System(error.kind()),
        }
    }
}
