//! Event channels: what happens to ids, in order, until the program fetches it.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex};

use ferroce_cabi::cm::{rdma_cm_event, rdma_event_channel};
use ferroce_device::cm::Asked;
use ferroce_device::{EventFd, Uncancelled};
use ferroce_transport::cm::{Request, Resolved};
use ferroce_wire::mad::{CommId, Opaque, RejectReason, Rep};

use super::event;
use super::handles;
use super::id::Id;
use super::multicast::Join;
use crate::devices;
use crate::events::{make_blocking, wait_for};
use crate::fork;
use crate::object::{filled, lock};
use crate::refusal::{Answer, Refused, minus_one, pointer};

/// An event channel. Ids that are left on one that is gone have nothing told of them any more.
#[repr(C)]
pub(crate) struct Channel {
    c: UnsafeCell<rdma_event_channel>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Pending>,
    /// Readable while there is something to fetch; none when the program has destroyed the channel.
    ready: Option<EventFd>,
}

// SAFETY: the C part is written before any thread knows the channel, and only read afterwards.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// Something that happened, and to which id.
pub(crate) struct Pending {
    pub(crate) id: Arc<Id>,
    /// For a request: the id that listens. The event counts as one of that id.
    pub(crate) listener: Option<Arc<Id>>,
    pub(crate) raw: Raw,
}

/// What happened.
pub(crate) enum Raw {
    AddressResolved,
    AddressError(c_int),
    RouteResolved,
    Request(Box<Request>),
    Question(Box<Asked>),
    Reply(CommId, Box<Rep>),
    Stands,
    Rejected(RejectReason, Box<Opaque<148>>),
    Unreachable(c_int),
    Found(Box<Resolved>),
    NotFound(c_int, Box<Opaque<136>>),
    Ended(c_int),
    TimeWaitOver,
    Joined(Arc<Join>),
}

impl Pending {
    /// The id whose destruction waits until the event is acknowledged.
    pub(crate) fn counted(&self) -> &Arc<Id> {
        self.listener.as_ref().unwrap_or(&self.id)
    }

    fn is_of(&self, id: &Arc<Id>) -> bool {
        Arc::ptr_eq(&self.id, id) || self.listener.as_ref().is_some_and(|listener| Arc::ptr_eq(listener, id))
    }

    /// It will not be told: a request is refused.
    pub(crate) fn discard(self) {
        if let Some(listener) = &self.listener {
            listener.one_waits_less();
            self.id.refuse_unseen();
        }
    }
}

impl Channel {
    pub(crate) fn new() -> Answer<Arc<Self>> {
        let ready = EventFd::new().map_err(|error| Refused::new(libc::EMFILE, error))?;
        let fd = ready.as_fd().as_raw_fd();
        make_blocking(fd);
        let inner = Mutex::new(Inner { queue: VecDeque::new(), ready: Some(ready) });
        Ok(Arc::new(Self { c: UnsafeCell::new(rdma_event_channel { fd }), inner }))
    }

    pub(crate) const fn as_c(&self) -> *mut rdma_event_channel {
        self.c.get()
    }

    /// The descriptor to wait on.
    pub(crate) fn descriptor(&self) -> Answer<RawFd> {
        let inner = lock(&self.inner);
        let ready = inner.ready.as_ref();
        ready
            .map(|ready| ready.as_fd().as_raw_fd())
            .ok_or_else(|| Refused::new(libc::EBADF, "the event channel is gone"))
    }

    pub(crate) fn push(&self, pending: Pending) {
        let mut inner = lock(&self.inner);
        match &inner.ready {
            Some(ready) => {
                ready.signal();
                inner.queue.push_back(pending);
            }
            None => {
                drop(inner);
                pending.discard();
            }
        }
    }

    /// The oldest event. What it is about cannot be destroyed until it is acknowledged.
    pub(crate) fn pop(&self) -> Option<Pending> {
        let mut inner = lock(&self.inner);
        let pending = inner.queue.pop_front();
        if let Some(pending) = &pending {
            pending.counted().told.told();
            if let Raw::Joined(join) = &pending.raw {
                join.told.told();
            }
        }
        inner.settle();
        pending
    }

    /// Takes out what matches.
    fn take_where(&self, matches: impl Fn(&Pending) -> bool) -> VecDeque<Pending> {
        let mut inner = lock(&self.inner);
        let (taken, left) = std::mem::take(&mut inner.queue).into_iter().partition(matches);
        inner.queue = left;
        inner.settle();
        taken
    }

    /// Nothing of an id is told any more, and its requests are refused.
    pub(crate) fn forget(&self, id: &Arc<Id>) {
        for pending in self.take_where(|pending| pending.is_of(id)) {
            pending.discard();
        }
    }

    /// That a group was joined is not told any more.
    pub(crate) fn forget_join(&self, join: &Arc<Join>) {
        drop(self.take_where(|pending| matches!(&pending.raw, Raw::Joined(it) if Arc::ptr_eq(it, join))));
    }

    /// What there is of an id goes to another channel, in order.
    pub(crate) fn hand_over(&self, id: &Arc<Id>, to: &Self) {
        for pending in self.take_where(|pending| pending.is_of(id)) {
            to.push(pending);
        }
    }

    /// The program has no use for it any more: its descriptor is closed.
    pub(crate) fn close(&self) {
        let inner = std::mem::take(&mut *lock(&self.inner));
        for pending in inner.queue {
            pending.discard();
        }
    }
}

impl Inner {
    /// Makes the descriptor readable if there is something to fetch, and only then.
    fn settle(&self) {
        let Some(ready) = &self.ready else { return };
        if self.queue.is_empty() {
            ready.clear();
        } else {
            // A thread that waited has read it.
            ready.signal();
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let _whole = Uncancelled::new();
    fork::watch();
    let answer = devices::chosen().and_then(|devices| {
        if devices.is_empty() {
            return Err(Refused::new(libc::ENODEV, "there is no device"));
        }
        Ok(handles::show_channel(&Channel::new()?))
    });
    pointer("rdma_create_event_channel", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let _whole = Uncancelled::new();
    match handles::channel(channel) {
        Ok(channel) => {
            handles::take_channel(&channel);
            channel.close();
        }
        Err(refused) => {
            refused.tell("rdma_destroy_event_channel");
        }
    }
}

/// Fetches what there is, or says where to wait for it. It owns nothing when it returns: a thread may be
/// cancelled while it waits.
fn fetch(channel: *mut rdma_event_channel) -> Answer<Result<*mut rdma_cm_event, RawFd>> {
    let _whole = Uncancelled::new();
    let channel = handles::channel(channel)?;
    while let Some(pending) = channel.pop() {
        if let Some(event) = event::converted(pending, &channel) {
            return Ok(Ok(handles::show_event(event)));
        }
    }
    channel.descriptor().map(Err)
}

/// Waits for the next event of a channel.
pub(crate) fn next(channel: *mut rdma_event_channel) -> Answer<*mut rdma_cm_event> {
    loop {
        match fetch(channel)? {
            Ok(event) => return Ok(event),
            Err(fd) => wait_for(fd)?,
        }
    }
}

/// The same for a thread of the program. One that waits while another destroys the channel waits for ever, as it does in the
/// kernel: rping destroys its channel under such a thread, which would take an answer for a failure and end the process.
fn next_or_never(channel: *mut rdma_event_channel) -> Answer<*mut rdma_cm_event> {
    let mut fetched = fetch(channel)?;
    loop {
        let fd = match fetched {
            Ok(event) => return Ok(event),
            Err(fd) => fd,
        };
        fetched = match wait_for(fd).and_then(|()| fetch(channel)) {
            Ok(fetched) => fetched,
            Err(refused) if is_there(channel) => return Err(refused),
            Err(_) => loop {
                // SAFETY: a system call without pointers. It is a cancellation point: a thread that ends here is unwound
                // through frames that hold no lock and own nothing.
                unsafe { pause() };
            },
        };
    }
}

fn is_there(channel: *mut rdma_event_channel) -> bool {
    let _whole = Uncancelled::new();
    // In the child of a fork nothing is there, but its one thread never waited.
    handles::channel(channel).is_ok()
}

unsafe extern "C-unwind" {
    /// The C library's, which unwinds the thread if it is cancelled while it waits.
    unsafe fn pause() -> c_int;
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the caller passes a place of its own to fill, or null.
    let to = match unsafe { filled(event, "place for the event") } {
        Ok(to) => to,
        Err(refused) => return minus_one("rdma_get_cm_event", Err(refused)),
    };
    minus_one("rdma_get_cm_event", next_or_never(channel).map(|event| *to = event))
}
