//! Events that are not completions.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ferroce_cabi::{
    IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL,
    IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
    IBV_EVENT_PKEY_CHANGE, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SM_CHANGE,
    IBV_EVENT_SQ_DRAINED, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event, ibv_cq, ibv_qp,
    ibv_srq,
};
use ferroce_wire::Qpn;
use libc::c_int;

use crate::context::Open;
use crate::error::CallError;
use crate::handle::{Zero, answered};

/// The events of an open card. All handles see the same events, and each event is seen once.
///
/// An event is acknowledged as it is taken: the library does not let an object go while an event about it is not
/// acknowledged.
#[derive(Clone)]
pub struct Events {
    open: Arc<Open>,
}

/// Something that happened to a card or to an object of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CardEvent {
    /// Something about a queue pair.
    QueuePair(Qpn, QueuePairEvent),
    /// The completion queue of this number ran over: completions were lost.
    CompletionQueueOverrun(u32),
    /// The shared receive queue of this number has fewer receives than its limit.
    SharedQueueLimit(u32),
    /// The shared receive queue of this number is broken.
    SharedQueueError(u32),
    /// Something about a port.
    Port(u8, PortEvent),
    /// The card is broken or gone: nothing of it works any more.
    CardFailed,
    /// An event that is not known here, by its number in the library.
    Other(i32),
}

/// What may happen to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePairEvent {
    /// It is broken.
    Failed,
    /// The peer broke the protocol.
    RequestError,
    /// The peer reached for memory that it may not touch.
    AccessError,
    /// A first packet arrived before the program moved to RTS.
    Established,
    /// Everything sent before SQD is done.
    SendQueueDrained,
    /// A queue pair in error has taken its last receive from the shared queue.
    LastReceiveReached,
    /// It has gone over to its other path.
    PathMigrated,
    /// It could not go over to its other path.
    PathMigrationFailed,
}

/// What may happen to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// It carries packets now.
    Active,
    /// It carries none any more.
    Down,
    /// Its address in an InfiniBand network is another.
    LidChanged,
    /// Its partition keys are others.
    PKeysChanged,
    /// Its addresses are others.
    GidsChanged,
    /// What manages its InfiniBand network is another, or wants all to register anew.
    ManagerChanged,
}

impl Events {
    pub(crate) fn new(open: &Arc<Open>) -> Self {
        Self { open: Arc::clone(open) }
    }

    /// The oldest event, if there is one. It never waits.
    ///
    /// # Errors
    /// The card cannot be asked any more.
    pub fn poll(&self) -> Result<Option<CardEvent>, CallError> {
        self.open.c.check("ibv_get_async_event")?;
        let verbs = self.open.library.verbs();
        let mut event = ibv_async_event::zero();
        // SAFETY: a live context, and a structure that lives during the call. The descriptor does not block.
        let answer = unsafe { (verbs.ibv_get_async_event)(self.open.c.as_ptr(), &raw mut event) };
        match answered("ibv_get_async_event", answer) {
            Err(error) if error.code == libc::EAGAIN || error.code == libc::EINTR => return Ok(None),
            taken => taken?,
        }
        let known = named(&event);
        // SAFETY: it was taken just now, and is acknowledged once.
        unsafe { (verbs.ibv_ack_async_event)(&raw mut event) };
        Ok(Some(known))
    }
}

/// Readable while events wait.
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live context, whose field never changes.
        let fd = unsafe { (*self.open.c.as_ptr()).async_fd };
        // SAFETY: the descriptor is open as long as the context, which is held.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Events({})", self.open.name)
    }
}

/// What an event says that was taken and is not acknowledged yet: until then its object is there.
fn named(event: &ibv_async_event) -> CardEvent {
    let qp = |what| CardEvent::QueuePair(queue_pair_of(event), what);
    let port = |what| CardEvent::Port(u8::try_from(event.element.addr() & 0xff).unwrap_or(0), what);
    match event.event_type {
        IBV_EVENT_QP_FATAL => qp(QueuePairEvent::Failed),
        IBV_EVENT_QP_REQ_ERR => qp(QueuePairEvent::RequestError),
        IBV_EVENT_QP_ACCESS_ERR => qp(QueuePairEvent::AccessError),
        IBV_EVENT_COMM_EST => qp(QueuePairEvent::Established),
        IBV_EVENT_SQ_DRAINED => qp(QueuePairEvent::SendQueueDrained),
        IBV_EVENT_QP_LAST_WQE_REACHED => qp(QueuePairEvent::LastReceiveReached),
        IBV_EVENT_PATH_MIG => qp(QueuePairEvent::PathMigrated),
        IBV_EVENT_PATH_MIG_ERR => qp(QueuePairEvent::PathMigrationFailed),
        IBV_EVENT_CQ_ERR => {
            let cq = event.element.cast::<ibv_cq>();
            // SAFETY: events of this kind are about a completion queue, which lives until they are acknowledged.
            CardEvent::CompletionQueueOverrun(number(unsafe { (*cq).cq_context }))
        }
        IBV_EVENT_SRQ_LIMIT_REACHED => CardEvent::SharedQueueLimit(shared_queue_of(event)),
        IBV_EVENT_SRQ_ERR => CardEvent::SharedQueueError(shared_queue_of(event)),
        IBV_EVENT_PORT_ACTIVE => port(PortEvent::Active),
        IBV_EVENT_PORT_ERR => port(PortEvent::Down),
        IBV_EVENT_LID_CHANGE => port(PortEvent::LidChanged),
        IBV_EVENT_PKEY_CHANGE => port(PortEvent::PKeysChanged),
        IBV_EVENT_GID_CHANGE => port(PortEvent::GidsChanged),
        IBV_EVENT_SM_CHANGE | IBV_EVENT_CLIENT_REREGISTER => port(PortEvent::ManagerChanged),
        IBV_EVENT_DEVICE_FATAL => CardEvent::CardFailed,
        other => CardEvent::Other(other),
    }
}

fn queue_pair_of(event: &ibv_async_event) -> Qpn {
    let qp = event.element.cast::<ibv_qp>();
    // SAFETY: events of this kind are about a queue pair, which lives until they are acknowledged.
    Qpn::new(unsafe { (*qp).qp_num })
}

fn shared_queue_of(event: &ibv_async_event) -> u32 {
    let srq = event.element.cast::<ibv_srq>();
    // SAFETY: events of this kind are about a shared receive queue, which lives until they are acknowledged.
    number(unsafe { (*srq).srq_context })
}

/// The number that one of our objects gave to the library in the place of a pointer.
pub(crate) fn number(context: *mut libc::c_void) -> u32 {
    u32::try_from(context.addr()).unwrap_or(0)
}

/// The same the other way round.
pub(crate) const fn context_of(number: u32) -> *mut libc::c_void {
    std::ptr::without_provenance_mut(number as usize)
}

/// Has calls that take events from a descriptor never wait.
pub(crate) fn never_wait(fd: c_int) -> Result<(), CallError> {
    // SAFETY: a system call without pointers, on a descriptor of the library's.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return answered("fcntl", flags);
    }
    // SAFETY: as above.
    let set = unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    answered("fcntl", set.min(0))
}
