//! Completion channels.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};

use ferroce_cabi::{ibv_comp_channel, ibv_context, ibv_cq};
use ferroce_device::{Channel, Uncancelled};
use libc::{c_int, c_uint, c_void};

use crate::context::{Context, object};
use crate::cq::Cq;
use crate::events::{make_blocking, wait_for};
use crate::fork;
use crate::object::{filled, given, lock, taken};
use crate::refusal::{Answer, Refused, minus_one, number, pointer};

/// A completion channel.
#[repr(C)]
pub(crate) struct CompChannel {
    c: ibv_comp_channel,
    context: &'static Context,
    pub(crate) generation: u32,
    pub(crate) channel: Arc<Channel>,
    /// The queues that report here, by the device's number. A thread that holds this knows that none goes
    /// away.
    queues: Mutex<HashMap<u32, &'static Cq>>,
}

object!(CompChannel, ibv_comp_channel, "completion channel");

impl CompChannel {
    pub(crate) fn as_c(&self) -> *mut ibv_comp_channel {
        (&raw const self.c).cast_mut()
    }

    /// From now on the queue's events are told.
    pub(crate) fn enroll(&self, number: u32, cq: &'static Cq) {
        lock(&self.queues).insert(number, cq);
    }

    /// The queue goes away: none of its events is told any more.
    pub(crate) fn strike(&self, number: u32) {
        lock(&self.queues).remove(&number);
    }

    /// The queue of the oldest event. It cannot be destroyed until the event is acknowledged.
    fn next(&self) -> Answer<&'static Cq> {
        loop {
            let queues = lock(&self.queues);
            while let Some(number) = self.channel.pop() {
                if let Some(cq) = queues.get(&number.0) {
                    cq.completions_told.told();
                    return Ok(cq);
                }
            }
            drop(queues);
            wait_for(self.channel.as_fd().as_raw_fd())?;
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an open context, or null.
    let context = unsafe { Context::of(context) };
    let answer = context.and_then(|context| {
        let channel = Channel::new().map_err(|error| Refused::new(libc::EMFILE, error))?;
        let fd = channel.as_fd().as_raw_fd();
        make_blocking(fd);
        context.made_one();
        let c = ibv_comp_channel { context: context.as_c(), fd, refcnt: 0 };
        let generation = fork::generation();
        Ok(given(CompChannel { c, context, generation, channel, queues: Mutex::default() }).cast())
    });
    pointer("ibv_create_comp_channel", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a channel that it gives up, or null.
    number("ibv_destroy_comp_channel", unsafe { destroy(channel) })
}

/// # Safety
/// As for [`CompChannel::of`], and no thread uses the channel any more.
unsafe fn destroy(channel: *mut ibv_comp_channel) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let known = unsafe { CompChannel::of(channel) }?;
    if !lock(&known.queues).is_empty() {
        return Err(Refused::busy("completion queues still report to the channel"));
    }
    known.context.lost_one();
    // SAFETY: the caller gives it up, and no queue reports to it.
    drop(unsafe { taken(channel.cast::<CompChannel>()) });
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller passes a live channel, or null.
    let channel = unsafe { CompChannel::of(channel) };
    // SAFETY: the caller passes places of its own to fill, or null.
    let to = unsafe { filled(cq, "place for the queue") };
    // SAFETY: as above.
    let context_to = unsafe { filled(cq_context, "place for the queue's context") };
    let answer = channel.and_then(|channel| {
        let (to, context_to) = (to?, context_to?);
        let cq = channel.next()?;
        *to = cq.as_c();
        *context_to = cq.cq_context();
        Ok(())
    });
    minus_one("ibv_get_cq_event", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    // SAFETY: the caller passes a live queue, or null.
    if let Ok(cq) = unsafe { Cq::of(cq) } {
        cq.completions_told.acknowledge(count);
    }
}
