//! Events in C's words. What an event does to its id and its queue pair happens when the program fetches it, in
//! the program's thread.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_cabi::cm::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_TIMEWAIT_EXIT,
    RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event, rdma_conn_param, rdma_ud_param,
};
use ferroce_device::{AddressVector, Uncancelled};
use ferroce_transport::cm::Resolved;
use ferroce_wire::Gid;
use ferroce_wire::mad::{CommId, Rep, Req};

use super::attr;
use super::channel::{Channel, Pending, Raw};
use super::handles;
use super::id::{self, Id, Stage};
use super::multicast::Join;
use crate::address::attr_of;
use crate::object::lock;
use crate::refusal::{Answer, minus_one};

/// An event that the program has fetched and not acknowledged.
#[repr(C)]
pub(crate) struct CmEvent {
    c: UnsafeCell<rdma_cm_event>,
    private_data: [u8; 256],
    /// The id whose destruction waits for the acknowledgement.
    counted: Arc<Id>,
    join: Option<Arc<Join>>,
}

// SAFETY: the program alone reads the C part, which is written before it knows the event.
unsafe impl Send for CmEvent {}
// SAFETY: as above.
unsafe impl Sync for CmEvent {}

impl CmEvent {
    pub(crate) const fn as_c(&self) -> *mut rdma_cm_event {
        self.c.get()
    }
}

/// An event in the making.
struct Draft {
    kind: c_int,
    status: c_int,
    param: Param,
}

enum Param {
    None,
    Connection(rdma_conn_param, Vec<u8>),
    Datagram(rdma_ud_param, Vec<u8>),
}

impl Draft {
    const fn new(kind: c_int, status: c_int) -> Self {
        Self { kind, status, param: Param::None }
    }
}

pub(crate) const fn no_connection() -> rdma_conn_param {
    rdma_conn_param {
        private_data: std::ptr::null(),
        private_data_len: 0,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    }
}

/// An event that the program is told; nothing if it is none of its business. Then it counts as acknowledged.
pub(crate) fn converted(pending: Pending, channel: &Arc<Channel>) -> Option<Arc<CmEvent>> {
    let counted = Arc::clone(pending.counted());
    let Pending { id, listener, raw } = pending;
    let join = if let Raw::Joined(join) = &raw { Some(Arc::clone(join)) } else { None };
    if let Some(listener) = &listener {
        listener.one_waits_less();
        id.set_context(listener.context());
        id.moves_in(channel);
        handles::show_id(&id);
        if listener.sync.load(Ordering::Relaxed) {
            // Without a channel of its own it stays where the listener is.
            let _ = id::migrate(&id, std::ptr::null_mut());
        }
    }
    let Some(draft) = drafted(&id, raw) else {
        counted.told.acknowledge(1);
        return None;
    };
    let event = Arc::new_cyclic(|_: &std::sync::Weak<CmEvent>| CmEvent {
        // SAFETY: a structure of numbers and pointers, all of which may be zero.
        c: UnsafeCell::new(unsafe { std::mem::zeroed() }),
        private_data: [0; 256],
        counted,
        join,
    });
    Some(filled_in(event, &id, listener.as_ref(), &draft))
}

fn filled_in(mut event: Arc<CmEvent>, id: &Id, listener: Option<&Arc<Id>>, draft: &Draft) -> Arc<CmEvent> {
    if let Some(whole) = Arc::get_mut(&mut event) {
        let bytes: &[u8] = match &draft.param {
            Param::None => &[],
            Param::Connection(_, bytes) | Param::Datagram(_, bytes) => bytes,
        };
        let len = bytes.len().min(255);
        whole.private_data[..len].copy_from_slice(&bytes[..len]);
        let len = u8::try_from(len).unwrap_or(u8::MAX);
        let data = if len == 0 { std::ptr::null() } else { whole.private_data.as_ptr().cast::<c_void>() };
        let c = whole.c.get_mut();
        c.id = id.as_c();
        c.listen_id = listener.map_or(std::ptr::null_mut(), |listener| listener.as_c());
        (c.event, c.status) = (draft.kind, draft.status);
        match draft.param {
            Param::None => {}
            Param::Connection(conn, _) => {
                c.param.conn = rdma_conn_param { private_data: data, private_data_len: len, ..conn };
            }
            Param::Datagram(ud, _) => {
                // What a join brings is the program's own pointer.
                let data = if len == 0 { ud.private_data } else { data };
                c.param.ud = rdma_ud_param { private_data: data, private_data_len: len, ..ud };
            }
        }
    }
    event
}

fn drafted(id: &Arc<Id>, raw: Raw) -> Option<Draft> {
    let failed = || id.failed.load(Ordering::Relaxed);
    match raw {
        Raw::AddressResolved => Some(Draft::new(RDMA_CM_EVENT_ADDR_RESOLVED, 0)),
        Raw::AddressError(status) => Some(Draft::new(RDMA_CM_EVENT_ADDR_ERROR, status)),
        Raw::RouteResolved => Some(Draft::new(RDMA_CM_EVENT_ROUTE_RESOLVED, 0)),
        Raw::Request(request) => {
            let param = Param::Connection(of_request(&request.req), request.private_data().to_vec());
            Some(Draft { param, ..Draft::new(RDMA_CM_EVENT_CONNECT_REQUEST, 0) })
        }
        Raw::Question(asked) => {
            let param = Param::Connection(no_connection(), asked.private_data().to_vec());
            Some(Draft { param, ..Draft::new(RDMA_CM_EVENT_CONNECT_REQUEST, 0) })
        }
        Raw::Reply(comm, rep) => replied(id, comm, &rep),
        Raw::Stands => {
            lock(&id.state).stage = Stage::Connected;
            Some(Draft::new(RDMA_CM_EVENT_ESTABLISHED, 0))
        }
        Raw::Rejected(..) | Raw::Ended(_) if failed() => None,
        Raw::Rejected(reason, data) => {
            lock(&id.state).stage = Stage::Ended;
            // There is nothing to be done if it is not one of ours.
            let _ = attr::to_error(id);
            let param = Param::Connection(no_connection(), data.0.to_vec());
            Some(Draft { param, ..Draft::new(RDMA_CM_EVENT_REJECTED, reason.0.into()) })
        }
        Raw::Unreachable(status) => {
            lock(&id.state).stage = Stage::Ended;
            Some(Draft::new(RDMA_CM_EVENT_UNREACHABLE, status))
        }
        Raw::Found(found) => {
            lock(&id.state).stage = Stage::Connected;
            let param = Param::Datagram(of_found(id, &found), found.private_data.0.to_vec());
            Some(Draft { param, ..Draft::new(RDMA_CM_EVENT_ESTABLISHED, 0) })
        }
        Raw::NotFound(status, data) => {
            lock(&id.state).stage = Stage::Ended;
            let param = Param::Connection(no_connection(), data.0.to_vec());
            Some(Draft { param, ..Draft::new(RDMA_CM_EVENT_UNREACHABLE, status) })
        }
        Raw::Ended(status) => {
            lock(&id.state).stage = Stage::Ended;
            Some(Draft::new(RDMA_CM_EVENT_DISCONNECTED, status))
        }
        Raw::TimeWaitOver => Some(Draft::new(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0)),
        Raw::Joined(join) => {
            let (kind, status) = match join.attach(id) {
                Ok(()) => (RDMA_CM_EVENT_MULTICAST_JOIN, 0),
                Err(refused) => (RDMA_CM_EVENT_MULTICAST_ERROR, refused.tell("rdma_get_cm_event")),
            };
            Some(Draft { param: Param::Datagram(join.param(id), Vec::new()), ..Draft::new(kind, status) })
        }
    }
}

/// A request in the words of the side that is asked: what the peer wants to start is what we serve.
fn of_request(req: &Req) -> rdma_conn_param {
    rdma_conn_param {
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        flow_control: u8::from(req.end_to_end_flow_control),
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: u8::from(req.srq),
        qp_num: req.local_qpn.get(),
        ..no_connection()
    }
}

/// The same for an acceptance.
fn of_reply(rep: &Rep) -> rdma_conn_param {
    rdma_conn_param {
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        flow_control: u8::from(rep.end_to_end_flow_control),
        rnr_retry_count: rep.rnr_retry_count,
        srq: u8::from(rep.srq),
        qp_num: rep.local_qpn.get(),
        ..no_connection()
    }
}

fn of_found(id: &Id, found: &Resolved) -> rdma_ud_param {
    let state = lock(&id.state);
    let source = state.source.map(|source| source.ip());
    let nic = state.device.map(|device| &device.context.nic);
    let index = nic.zip(source).and_then(|(nic, source)| nic.gid_index(source)).unwrap_or(0);
    let mut vector = AddressVector::new(Gid::from(found.address), index);
    vector.hop_limit = 64;
    vector.traffic_class = state.options.tos;
    rdma_ud_param {
        private_data: std::ptr::null(),
        private_data_len: 0,
        ah_attr: attr_of(&vector),
        qp_num: found.qpn.get(),
        qkey: found.qkey.0,
    }
}

/// The peer has accepted: a queue pair of the id goes to RTS, and the acceptance is confirmed.
fn replied(id: &Arc<Id>, comm: CommId, rep: &Rep) -> Option<Draft> {
    let mut state = lock(&id.state);
    let device = state.device?;
    if let Some(terms) = &mut state.terms {
        terms.accepted(rep);
    }
    let param = Param::Connection(of_reply(rep), rep.private_data.0.to_vec());
    if id.qp().is_null() {
        state.stage = Stage::Replied;
        return Some(Draft { param, ..Draft::new(RDMA_CM_EVENT_CONNECT_RESPONSE, 0) });
    }
    if let Err(refused) = attr::to_rts(id, &state) {
        refused.tell("rdma_get_cm_event");
        state.stage = Stage::Ended;
        drop(state);
        id.failed.store(true, Ordering::Relaxed);
        let _ = attr::to_error(id);
        device.manager.abandon(comm);
        return Some(Draft::new(RDMA_CM_EVENT_CONNECT_ERROR, -1));
    }
    // If the peer has given up meanwhile, that is told next.
    device.manager.ready(comm).ok()?;
    state.stage = Stage::Connected;
    Some(Draft { param, ..Draft::new(RDMA_CM_EVENT_ESTABLISHED, 0) })
}

/// The program has done with an event.
pub(crate) fn acknowledge(event: *mut rdma_cm_event) -> Answer<()> {
    let event = handles::take_event(event)?;
    if let Some(join) = &event.join {
        join.told.acknowledge(1);
    }
    event.counted.told.acknowledge(1);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    let _whole = Uncancelled::new();
    minus_one("rdma_ack_cm_event", acknowledge(event))
}

/// What C calls a kind of event.
pub(crate) fn name(kind: c_int) -> &'static str {
    c_name(kind).to_str().unwrap_or_default()
}

const fn c_name(kind: c_int) -> &'static std::ffi::CStr {
    match kind {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn rdma_event_str(kind: c_int) -> *const c_char {
    c_name(kind).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_has_a_name() {
        for kind in 0..16 {
            assert!(name(kind).starts_with("RDMA_CM_EVENT_"), "{kind}");
        }
        assert_eq!(name(16), "UNKNOWN EVENT");
    }

    #[test]
    fn what_one_side_starts_the_other_serves() {
        let req = Req { initiator_depth: 3, responder_resources: 5, ..Req::default() };
        let told = of_request(&req);
        assert_eq!((told.responder_resources, told.initiator_depth), (3, 5));
    }
}
