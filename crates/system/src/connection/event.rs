//! What is told of connections.

use std::sync::Arc;

use ferroce_cabi::cm::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event, rdma_conn_param,
};
use ferroce_wire::Qpn;

use super::channel::Channel;
use super::id::ConnectionId;
use crate::events::number;

/// Something that happened to an id.
#[derive(Debug)]
pub struct ConnectionEvent {
    /// The number of the id; of a request, that of the id that listens.
    pub id: u32,
    /// What happened.
    pub kind: ConnectionEventKind,
    /// Why, as the library numbers it: an error number with a minus, or the reason of a rejection.
    pub status: i32,
    /// What the peer said of itself, if it did.
    pub parameters: ConnectionParameters,
    /// What the peer's program said. It may be longer than what that gave, filled with zeros.
    pub private_data: Vec<u8>,
}

/// What can happen to an id.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionEventKind {
    /// It has a card that leads to the peer.
    AddressResolved,
    /// There is none.
    AddressError,
    /// The way to the peer is known.
    RouteResolved,
    /// There is none.
    RouteError,
    /// A peer wants a connection: accept or reject it with this id.
    Request(ConnectionId),
    /// The peer has accepted: prepare the queue pair, and establish the connection.
    Response,
    /// It cannot be had.
    ConnectError,
    /// The peer does not answer.
    Unreachable,
    /// The peer has rejected it.
    Rejected,
    /// The connection stands.
    Established,
    /// The peer has ended it.
    Disconnected,
    /// The card is gone.
    CardGone,
    /// The address of the card is another.
    AddressChanged,
    /// The queue pair's number may be used anew.
    TimeWaitOver,
    /// An event that is not known here, by its number.
    Other(i32),
}

/// What the two sides of a connection tell each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// The queue pair.
    pub qpn: Qpn,
    /// READs and atomics that may be under way to it.
    pub responder_resources: u8,
    /// READs and atomics that may be under way from it.
    pub initiator_depth: u8,
    /// How often to try again after silence.
    pub retry_count: u8,
    /// How often to try again when there is no receive; 7 is for ever.
    pub rnr_retry_count: u8,
    /// Whether its receives are those of a shared queue.
    pub shared_queue: bool,
}

impl ConnectionParameters {
    pub(super) fn to_c(self, private_data: &[u8]) -> rdma_conn_param {
        rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: u8::try_from(private_data.len()).unwrap_or(u8::MAX),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 0,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: u8::from(self.shared_queue),
            qp_num: self.qpn.get(),
        }
    }

    const fn of(c: &rdma_conn_param) -> Self {
        Self {
            qpn: Qpn::new(c.qp_num),
            responder_resources: c.responder_resources,
            initiator_depth: c.initiator_depth,
            retry_count: c.retry_count,
            rnr_retry_count: c.rnr_retry_count,
            shared_queue: c.srq != 0,
        }
    }
}

/// A copy of what an event says.
///
/// # Safety
/// The event was taken from this channel and is not acknowledged yet.
pub(super) unsafe fn told(channel: &Arc<Channel>, event: &rdma_cm_event) -> ConnectionEvent {
    let is_request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
    let about = if is_request { event.listen_id } else { event.id };
    // SAFETY: an id lives until its events are acknowledged. The number stands where C programs have a pointer.
    let id = number(unsafe { (*about).context });
    let kind = match event.event {
        RDMA_CM_EVENT_ADDR_RESOLVED => ConnectionEventKind::AddressResolved,
        RDMA_CM_EVENT_ADDR_ERROR => ConnectionEventKind::AddressError,
        RDMA_CM_EVENT_ROUTE_RESOLVED => ConnectionEventKind::RouteResolved,
        RDMA_CM_EVENT_ROUTE_ERROR => ConnectionEventKind::RouteError,
        RDMA_CM_EVENT_CONNECT_REQUEST => {
            // SAFETY: the id came with this event, which is told once, and belongs to the program from now on.
            let taken = unsafe { ConnectionId::taken(channel, event.id) };
            taken.map_or(ConnectionEventKind::Other(event.event), ConnectionEventKind::Request)
        }
        RDMA_CM_EVENT_CONNECT_RESPONSE => ConnectionEventKind::Response,
        RDMA_CM_EVENT_CONNECT_ERROR => ConnectionEventKind::ConnectError,
        RDMA_CM_EVENT_UNREACHABLE => ConnectionEventKind::Unreachable,
        RDMA_CM_EVENT_REJECTED => ConnectionEventKind::Rejected,
        RDMA_CM_EVENT_ESTABLISHED => ConnectionEventKind::Established,
        RDMA_CM_EVENT_DISCONNECTED => ConnectionEventKind::Disconnected,
        RDMA_CM_EVENT_DEVICE_REMOVAL => ConnectionEventKind::CardGone,
        RDMA_CM_EVENT_ADDR_CHANGE => ConnectionEventKind::AddressChanged,
        RDMA_CM_EVENT_TIMEWAIT_EXIT => ConnectionEventKind::TimeWaitOver,
        other => ConnectionEventKind::Other(other),
    };
    let says = matches!(
        kind,
        ConnectionEventKind::Request(_)
            | ConnectionEventKind::Response
            | ConnectionEventKind::Rejected
            | ConnectionEventKind::Established
    );
    let (mut parameters, mut private_data) = (ConnectionParameters::default(), Vec::new());
    if says {
        // SAFETY: ids here are of connections, and events of these kinds fill this form.
        let c = unsafe { event.param.conn };
        parameters = ConnectionParameters::of(&c);
        if !c.private_data.is_null() {
            let (first, len) = (c.private_data.cast::<u8>(), usize::from(c.private_data_len));
            // SAFETY: so many bytes are there until the event is acknowledged.
            private_data = unsafe { std::slice::from_raw_parts(first, len) }.to_vec();
        }
    }
    ConnectionEvent { id, kind, status: event.status, parameters, private_data }
}
