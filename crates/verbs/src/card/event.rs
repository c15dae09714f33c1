//! Events of any device, as programs of verbs know them.

use ferroce_device::CqId;
use ferroce_system::{CardEvent, PortEvent, QueuePairEvent};
use ferroce_transport::{Event, SharedQueueId};
use ferroce_wire::Qpn;

/// Something that happened to a device or to an object of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// To a queue pair.
    QueuePair(Qpn, Event),
    /// A queue pair is broken: it is in error. Only cards tell.
    QueuePairFailed(Qpn),
    /// A completion queue was full when something completed. What did not fit is lost, and the
    /// queue pairs that completed into it are in error.
    CompletionQueueOverrun(CqId),
    /// A shared receive queue has fewer requests than its limit.
    SharedQueueLimit(SharedQueueId),
    /// A shared receive queue is broken. Only cards tell.
    SharedQueueFailed(SharedQueueId),
    /// To a port, by its number. Only cards tell.
    Port(u8, PortEvent),
    /// The device cannot go on: its socket failed, or the card is broken or gone.
    DeviceFatal,
    /// Something that has no name here, by its number in the library of the card.
    Other(i32),
}

impl From<ferroce_device::AsyncEvent> for AsyncEvent {
    fn from(event: ferroce_device::AsyncEvent) -> Self {
        use ferroce_device::AsyncEvent as Nic;
        match event {
            Nic::QueuePair(qpn, event) => Self::QueuePair(qpn, event),
            Nic::CompletionQueueOverrun(id) => Self::CompletionQueueOverrun(id),
            Nic::SharedQueueLimit(id) => Self::SharedQueueLimit(id),
            Nic::DeviceFatal => Self::DeviceFatal,
        }
    }
}

/// What a card has told.
pub(crate) const fn told(event: CardEvent) -> AsyncEvent {
    match event {
        CardEvent::QueuePair(qpn, what) => of_queue_pair(qpn, what),
        CardEvent::CompletionQueueOverrun(number) => AsyncEvent::CompletionQueueOverrun(CqId(number)),
        CardEvent::SharedQueueLimit(number) => AsyncEvent::SharedQueueLimit(SharedQueueId(number)),
        CardEvent::SharedQueueError(number) => AsyncEvent::SharedQueueFailed(SharedQueueId(number)),
        CardEvent::Port(port, what) => AsyncEvent::Port(port, what),
        CardEvent::CardFailed => AsyncEvent::DeviceFatal,
        CardEvent::Other(number) => AsyncEvent::Other(number),
        // A list that may grow.
        _ => AsyncEvent::Other(-1),
    }
}

const fn of_queue_pair(qpn: Qpn, what: QueuePairEvent) -> AsyncEvent {
    match what {
        QueuePairEvent::Failed => AsyncEvent::QueuePairFailed(qpn),
        QueuePairEvent::RequestError => AsyncEvent::QueuePair(qpn, Event::RequestError),
        QueuePairEvent::AccessError => AsyncEvent::QueuePair(qpn, Event::AccessError),
        QueuePairEvent::Established => AsyncEvent::QueuePair(qpn, Event::Established),
        QueuePairEvent::SendQueueDrained => AsyncEvent::QueuePair(qpn, Event::SendQueueDrained),
        QueuePairEvent::LastReceiveReached => AsyncEvent::QueuePair(qpn, Event::LastWorkRequestReached),
        // Queue pairs of verbs have one path.
        QueuePairEvent::PathMigrated | QueuePairEvent::PathMigrationFailed => AsyncEvent::Other(-1),
    }
}
