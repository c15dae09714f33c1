//! Why an end of probes does not work.

use std::net::IpAddr;

use ferroce_verbs::cm::{CmError, ListenError};
use ferroce_verbs::{BuildError, CreateError, PostError, QKey, QpConnectError, Status};
use thiserror::Error;

use super::QKEY;
use crate::prober::ProbeStartError;

/// Why a prober or a responder does not work over queue pairs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeEndError {
    /// The card did not give memory or queues.
    #[error("the card does not give what probes need")]
    Objects(#[from] CreateError),
    /// The card did not give a queue pair.
    #[error("the card does not give a queue pair for probes")]
    QueuePair(#[from] BuildError),
    /// The queue pair was not brought to work.
    #[error("the queue pair for probes was not brought to work")]
    Activate(#[from] QpConnectError),
    /// A receive was not taken.
    #[error("the queue pair for probes takes no receives")]
    Receive(#[source] PostError),
    /// A probe was not taken.
    #[error("the queue pair for probes took no probe")]
    Send(#[source] PostError),
    /// The responder was not found.
    #[error("no responder was found")]
    Find(#[from] CmError),
    /// What was found is no responder.
    #[error("{host} serves datagrams there, but with Q_Key {found:?}: responders have {QKEY:?}")]
    OtherKey {
        /// Where.
        host: IpAddr,
        /// The key that it told.
        found: QKey,
    },
    /// The queue pair of a responder cannot be offered to probers.
    #[error("the responder cannot be found by probers")]
    Offer(#[from] ListenError),
    /// Packets cannot go there from this port.
    #[error("no probe can leave from port {port} to {target}")]
    Port {
        /// The UDP source port, 0 for any.
        port: u16,
        /// Where to.
        target: IpAddr,
        /// Why.
        #[source]
        error: CreateError,
    },
    /// Too many probes are pending.
    #[error(transparent)]
    Start(#[from] ProbeStartError),
    /// So many sends wait for their stamps that no other one is taken.
    #[error("{under_way} probes wait for the time of their send, and no more may; turn, and try again")]
    Busy {
        /// How many.
        under_way: u32,
    },
    /// Work of the queue pair failed, and it does not work any more.
    #[error("the queue pair for probes does not work any more: {status:?}")]
    Broken {
        /// How the work ended.
        status: Status,
    },
}
