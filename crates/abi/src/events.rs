//! Events that are not completions: each goes to the context that its object was made from.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex};

use ferroce_cabi::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED, IBV_EVENT_SRQ_LIMIT_REACHED,
    ibv_async_event, ibv_context,
};
use ferroce_device::{AsyncEvent, EventFd, Nic};
use ferroce_transport::Event;
use libc::{c_int, c_void};

use crate::context::Context;
use crate::cq::Cq;
use crate::object::{Acknowledged, filled, lock, seen};
use crate::qp::Qp;
use crate::refusal::{Answer, Refused, minus_one};
use crate::srq::Srq;

/// Events that wait for the program, and a descriptor that is readable while some do.
#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Mutex<VecDeque<Waiting>>,
    ready: EventFd,
}

#[derive(Debug)]
struct Waiting {
    kind: c_int,
    /// The address of the object, or 0.
    element: usize,
    told: Option<Arc<Acknowledged>>,
}

/// The most that wait; the oldest go first. A program that never looks must not cost memory.
const MOST: usize = 4096;

impl Inbox {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        let ready = EventFd::new()?;
        make_blocking(ready.as_fd().as_raw_fd());
        Ok(Arc::new(Self { waiting: Mutex::default(), ready }))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.ready.as_fd().as_raw_fd()
    }

    fn push(&self, event: Waiting) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() == MOST {
            waiting.pop_front();
        }
        waiting.push_back(event);
        self.ready.signal();
    }

    /// The oldest event. What it is about cannot be destroyed until it is acknowledged.
    fn pop(&self) -> Option<Waiting> {
        let mut waiting = lock(&self.waiting);
        let event = waiting.pop_front();
        if let Some(told) = event.as_ref().and_then(|event| event.told.as_ref()) {
            told.told();
        }
        if waiting.is_empty() {
            self.ready.clear();
        } else {
            // The thread that waited has read it.
            self.ready.signal();
        }
        event
    }

    fn forget(&self, element: usize) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|event| event.element != element);
        if waiting.is_empty() {
            self.ready.clear();
        }
    }
}

/// Something that has events, by the number that the device calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Qp(u32),
    Cq(u32),
    Srq(u32),
    /// A context, by the address of its inbox.
    Context(usize),
}

#[derive(Clone, Debug)]
struct Owner {
    inbox: Arc<Inbox>,
    element: usize,
    told: Option<Arc<Acknowledged>>,
}

/// Which inbox hears of what, by device. The engine looks here when something happens, so a thread that holds
/// this lock must not call the device.
static OWNERS: Mutex<Option<HashMap<(usize, Subject), Owner>>> = Mutex::new(None);

/// From now on, events about `subject` go to `inbox`.
pub(crate) fn enroll(
    nic: &Nic,
    subject: Subject,
    inbox: &Arc<Inbox>,
    element: usize,
    told: Option<&Arc<Acknowledged>>,
) {
    let device = device_of(nic);
    let owner = Owner { inbox: Arc::clone(inbox), element, told: told.cloned() };
    lock(&OWNERS).get_or_insert_default().insert((device, subject), owner);
    nic.events().route(move |event| deliver(device, event));
}

/// Nothing more is told about `subject`, and what waits is forgotten.
pub(crate) fn strike(nic: &Nic, subject: Subject) {
    let owner = lock(&OWNERS).as_mut().and_then(|owners| owners.remove(&(device_of(nic), subject)));
    if let Some(owner) = owner {
        owner.inbox.forget(owner.element);
    }
}

/// Devices are told apart by where their queue of events is.
fn device_of(nic: &Nic) -> usize {
    std::ptr::from_ref(nic.events()).addr()
}

/// Hands an event of the device to the inboxes that it concerns.
fn deliver(device: usize, event: AsyncEvent) {
    let (subject, kind) = match event {
        AsyncEvent::QueuePair(qpn, event) => (Subject::Qp(qpn.get()), kind_of(event)),
        AsyncEvent::CompletionQueueOverrun(cq) => (Subject::Cq(cq.0), IBV_EVENT_CQ_ERR),
        AsyncEvent::SharedQueueLimit(srq) => (Subject::Srq(srq.0), IBV_EVENT_SRQ_LIMIT_REACHED),
        _ => return fatal(device),
    };
    let owners = lock(&OWNERS);
    let Some(owner) = owners.as_ref().and_then(|owners| owners.get(&(device, subject))) else { return };
    owner.inbox.push(Waiting { kind, element: owner.element, told: owner.told.clone() });
}

fn fatal(device: usize) {
    for ((of, subject), owner) in lock(&OWNERS).iter().flatten() {
        if *of == device && matches!(subject, Subject::Context(_)) {
            owner.inbox.push(Waiting { kind: IBV_EVENT_DEVICE_FATAL, element: 0, told: None });
        }
    }
}

const fn kind_of(event: Event) -> c_int {
    match event {
        Event::Established => IBV_EVENT_COMM_EST,
        Event::SendQueueDrained => IBV_EVENT_SQ_DRAINED,
        Event::LastWorkRequestReached => IBV_EVENT_QP_LAST_WQE_REACHED,
        Event::RequestError => IBV_EVENT_QP_REQ_ERR,
        Event::AccessError => IBV_EVENT_QP_ACCESS_ERR,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller passes a context of this library.
    let context = unsafe { Context::of(context) };
    // SAFETY: the caller passes a structure of its own to fill, or null.
    let event = unsafe { filled(event, "event") };
    minus_one("ibv_get_async_event", context.and_then(|context| next(&context.inbox, event?)))
}

fn next(inbox: &Inbox, event: &mut ibv_async_event) -> Answer<()> {
    loop {
        if let Some(waiting) = inbox.pop() {
            event.element = std::ptr::with_exposed_provenance_mut(waiting.element);
            event.event_type = waiting.kind;
            return Ok(());
        }
        wait_for(inbox.descriptor())?;
    }
}

/// Waits until a descriptor is readable, by reading it: so what a signal does to the wait, and what a
/// descriptor does that the program has made non-blocking, is what happens with the kernel's own descriptors.
/// The program may cancel its thread here. What is read says only that there is something to look for: a
/// thread that takes one thing out and leaves others makes the descriptor readable again.
pub(crate) fn wait_for(fd: RawFd) -> Answer<()> {
    let mut count = 0_u64;
    // SAFETY: the pointer is to eight bytes that live during the call. It is a cancellation point: a thread
    // that ends here is unwound through frames that hold no lock and own nothing.
    match unsafe { read(fd, (&raw mut count).cast(), size_of::<u64>()) } {
        -1 => {
            let error = std::io::Error::last_os_error();
            // A program that made the descriptor non-blocking asks whether there is something.
            if error.kind() == std::io::ErrorKind::WouldBlock {
                return Err(Refused::quiet(libc::EAGAIN));
            }
            Err(Refused::new(error.raw_os_error().unwrap_or(libc::EINTR), error))
        }
        _ => Ok(()),
    }
}

unsafe extern "C-unwind" {
    /// The C library's, which unwinds the thread if it is cancelled while it waits.
    unsafe fn read(fd: c_int, into: *mut c_void, len: usize) -> libc::ssize_t;
}

/// Descriptors that C programs see block unless the program says otherwise.
pub(crate) fn make_blocking(fd: RawFd) {
    // SAFETY: a system call without pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above; the descriptor is ours.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller passes an event that it got from us, or null.
    let Ok(event) = (unsafe { seen(event, "event") }) else { return };
    // SAFETY: the element of an event is a live object of its type until the event is acknowledged.
    if let Some(told) = unsafe { told_of(event.event_type, event.element) } {
        told.acknowledge(1);
    }
}

/// Where the events of an object are counted.
///
/// # Safety
/// `element` is null or the live object that an event of this type is about.
unsafe fn told_of<'a>(kind: c_int, element: *mut c_void) -> Option<&'a Acknowledged> {
    match kind {
        IBV_EVENT_CQ_ERR => {
            // SAFETY: the caller vouches for the object.
            unsafe { element.cast::<Cq>().as_ref() }.map(|cq| &*cq.told)
        }
        IBV_EVENT_SRQ_LIMIT_REACHED => {
            // SAFETY: as above.
            unsafe { element.cast::<Srq>().as_ref() }.map(|srq| &*srq.told)
        }
        IBV_EVENT_DEVICE_FATAL => None,
        _ => {
            // SAFETY: as above.
            unsafe { element.cast::<Qp>().as_ref() }.map(|qp| &*qp.told)
        }
    }
}
