//! Ids without a channel of the program: calls wait for what comes of them.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_cabi::cm::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_REJECTED, rdma_cm_event, rdma_cm_id, rdma_event_channel,
};
use ferroce_device::Uncancelled;

use super::channel;
use super::ep;
use super::event;
use super::handles;
use super::id::{self, Id};
use crate::object::{filled, seen};
use crate::refusal::{Answer, Refused, minus_one};

/// Acknowledges the event that an id still shows.
pub(crate) fn acknowledge(id: &Id) {
    let event = id.event();
    if !event.is_null() {
        id.set_event(std::ptr::null_mut());
        // One that the program has acknowledged itself is no more.
        let _ = event::acknowledge(event);
    }
}

/// Whether calls with this id wait, and on which channel.
fn own_channel(id: *mut rdma_cm_id) -> Answer<Option<*mut rdma_event_channel>> {
    let id = handles::id(id)?;
    if !id.sync.load(Ordering::Relaxed) {
        return Ok(None);
    }
    acknowledge(&id);
    Ok(Some(id.home().as_c()))
}

/// Keeps an event that a call waited for, and says what it means for the call.
///
/// # Safety
/// The event is a live one.
unsafe fn keep(id: *mut rdma_cm_id, event: *mut rdma_cm_event) -> Answer<()> {
    let id = match handles::any_id(id) {
        Ok(id) => id,
        Err(refused) => {
            // Another thread destroys the id, and waits for this.
            let _ = event::acknowledge(event);
            return Err(refused);
        }
    };
    id.set_event(event);
    // SAFETY: the caller vouches for it.
    let event = unsafe { seen(event, "event") }?;
    match (event.status, event.event) {
        (0, _) => Ok(()),
        (_, RDMA_CM_EVENT_REJECTED) => Err(Refused::new(libc::ECONNREFUSED, "the peer rejected it")),
        (status, _) => Err(Refused::new(status.saturating_abs(), event::name(event.event))),
    }
}

/// If calls with this id wait, waits for the next event; the id shows it until the next call. It owns nothing
/// while it waits: the thread may be cancelled there.
pub(crate) fn complete(id: *mut rdma_cm_id) -> Answer<()> {
    let Some(channel) = own_channel(id)? else { return Ok(()) };
    let event = channel::next(channel)?;
    // SAFETY: it came from the channel just now, and was not acknowledged.
    unsafe { keep(id, event) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller passes a place of its own to fill, or null.
    let to = match unsafe { filled(id, "place for the id") } {
        Ok(to) => to,
        Err(refused) => return minus_one("rdma_get_request", Err(refused)),
    };
    let channel = match own_channel(listen) {
        Ok(Some(channel)) => channel,
        Ok(None) => {
            let refused = Refused::invalid("the listener has a channel: its requests are events there");
            return minus_one("rdma_get_request", Err(refused));
        }
        Err(refused) => return minus_one("rdma_get_request", Err(refused)),
    };
    let event = match channel::next(channel) {
        Ok(event) => event,
        Err(refused) => return minus_one("rdma_get_request", Err(refused)),
    };
    // SAFETY: it came from the channel just now.
    let answer = unsafe { taken(listen, event) }.map(|id| *to = id.as_c());
    minus_one("rdma_get_request", answer)
}

/// The id of a request that was fetched.
///
/// # Safety
/// The event is a live one of the listener.
unsafe fn taken(listen: *mut rdma_cm_id, event: *mut rdma_cm_event) -> Answer<Arc<Id>> {
    let _whole = Uncancelled::new();
    // SAFETY: the caller vouches for it.
    let told = unsafe { seen(event, "event") }?;
    let refused = |code, why| {
        let _ = event::acknowledge(event);
        Err(Refused::new(code, why))
    };
    match (told.status, told.event) {
        (0, RDMA_CM_EVENT_CONNECT_REQUEST) => {}
        (0, _) => return refused(libc::EINVAL, "another event than a request"),
        (_, RDMA_CM_EVENT_REJECTED) => return refused(libc::ECONNREFUSED, "rejected"),
        (status, _) => return refused(status.saturating_abs(), "the request failed"),
    }
    let Ok(id) = handles::id(told.id) else {
        return refused(libc::EINVAL, "another thread has destroyed the id of the request");
    };
    let made = handles::id(listen).and_then(|listener| ep::make_queue_pair(&listener, &id));
    if let Err(refused) = made {
        let _ = event::acknowledge(event);
        let _ = id::destroy(&id);
        return Err(refused);
    }
    id.set_event(event);
    Ok(id)
}
