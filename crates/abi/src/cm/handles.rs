//! The ids, channels and events that live. What a program names is looked up here before it is believed, so that
//! an id after its end, an event that was acknowledged and a channel that is none are errors, not accidents.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use ferroce_cabi::cm::{rdma_cm_event, rdma_cm_id, rdma_event_channel};
use ferroce_device::PerProcess;

use super::channel::Channel;
use super::event::CmEvent;
use super::id::Id;
use crate::fork;
use crate::object::lock;
use crate::refusal::{Answer, Refused};

/// Objects that are over keep their places for so long that a program which still names one does not meet
/// another in it: the last so many of all kinds.
const QUARANTINE: usize = 1024;

/// What lives, by address. A child of a fork begins without any.
#[derive(Default)]
struct Live {
    ids: Mutex<HashMap<usize, Arc<Id>>>,
    channels: Mutex<HashMap<usize, Arc<Channel>>>,
    events: Mutex<HashMap<usize, Arc<CmEvent>>>,
    gone: Mutex<VecDeque<Arc<dyn Any + Send + Sync>>>,
}

static LIVE: PerProcess<Live> = PerProcess::new();

fn found<T>(map: &Mutex<HashMap<usize, Arc<T>>>, address: usize, what: &str) -> Answer<Arc<T>> {
    lock(map).get(&address).cloned().ok_or_else(|| unknown(address, what))
}

fn unknown(address: usize, what: &str) -> Refused {
    if address != 0 && fork::generation() > 0 {
        let why = format_args!("the {what} at 0x{address:x} is not of this process, or is no more");
        return Refused::new(libc::EPERM, why);
    }
    Refused::invalid(format_args!("the {what} at 0x{address:x} is none, or is no more"))
}

/// Keeps the place of something that is over for a while.
fn retire(object: Arc<dyn Any + Send + Sync>) {
    let mut gone = lock(&LIVE.get().gone);
    gone.push_back(object);
    let oldest = if gone.len() > QUARANTINE { gone.pop_front() } else { None };
    drop(gone);
    drop(oldest);
}

/// The id that a program means. If its channel was destroyed, nothing can be done with it any more, but for ending it.
pub(crate) fn id(named: *mut rdma_cm_id) -> Answer<Arc<Id>> {
    let id = any_id(named)?;
    id.home().descriptor()?;
    Ok(id)
}

/// The same, whatever became of its channel.
pub(crate) fn any_id(named: *mut rdma_cm_id) -> Answer<Arc<Id>> {
    found(&LIVE.get().ids, named.addr(), "id")
}

/// Gives an id to the program.
pub(crate) fn show_id(id: &Arc<Id>) -> *mut rdma_cm_id {
    lock(&LIVE.get().ids).insert(id.as_c().addr(), Arc::clone(id));
    id.as_c()
}

/// Takes an id from the program; false if it had been taken before.
pub(crate) fn take_id(id: &Arc<Id>) -> bool {
    let taken = lock(&LIVE.get().ids).remove(&id.as_c().addr());
    let was_there = taken.is_some();
    if let Some(taken) = taken {
        retire(taken);
    }
    was_there
}

/// The channel that a program means.
pub(crate) fn channel(named: *mut rdma_event_channel) -> Answer<Arc<Channel>> {
    found(&LIVE.get().channels, named.addr(), "event channel")
}

/// Gives a channel to the program.
pub(crate) fn show_channel(channel: &Arc<Channel>) -> *mut rdma_event_channel {
    lock(&LIVE.get().channels).insert(channel.as_c().addr(), Arc::clone(channel));
    channel.as_c()
}

/// Takes a channel from the program.
pub(crate) fn take_channel(channel: &Arc<Channel>) {
    let taken = lock(&LIVE.get().channels).remove(&channel.as_c().addr());
    if let Some(taken) = taken {
        retire(taken);
    }
}

/// Gives an event to the program.
pub(crate) fn show_event(event: Arc<CmEvent>) -> *mut rdma_cm_event {
    let c = event.as_c();
    lock(&LIVE.get().events).insert(c.addr(), event);
    c
}

/// Takes an event from the program, which has done with it.
pub(crate) fn take_event(named: *mut rdma_cm_event) -> Answer<Arc<CmEvent>> {
    let taken = lock(&LIVE.get().events).remove(&named.addr());
    let event = taken.ok_or_else(|| unknown(named.addr(), "event"))?;
    retire(Arc::clone(&event) as Arc<dyn Any + Send + Sync>);
    Ok(event)
}
