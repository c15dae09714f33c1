//! Connecting, and answering peers that connect.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_cabi::IBV_EVENT_COMM_EST;
use ferroce_cabi::cm::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, RDMA_UDP_QKEY, rdma_cm_id, rdma_conn_param};
use ferroce_device::{Limits, Uncancelled, now};
use ferroce_transport::cm::{Accept, Connect, Ends, Patience, Query};
use ferroce_wire::mad::{
    IpCmHeader, IpPair, Opaque, RejectReason, Rep, Req, ReqPath, SidrRep, SidrReq, SidrStatus, Timeout,
    TransportService,
};
use ferroce_wire::{QKey, Qpn};

use super::attr::{self, ACK_TIMEOUT, Terms};
use super::devices::CmDevice;
use super::event::no_connection;
use super::handles;
use super::id::{Id, Stage, State};
use super::ports::service;
use super::sync::complete;
use super::watch::Watch;
use crate::object::{lock, seen};
use crate::qp::Qp;
use crate::refusal::{Answer, Refused, minus_one};

/// The most bytes that go with a request for a queue pair, a question for a datagram service, an acceptance, an
/// answer to a question, and a rejection.
const WITH_ACCEPTANCE: usize = 196;
const WITH_ANSWER: usize = 136;
const WITH_REJECTION: usize = 148;

/// How long an attempt waits for the peer: 500 ms for each message, and two minutes for a program that thinks about
/// it.
fn patience(timeout: u8) -> Patience {
    let silence = Timeout::new(timeout).duration();
    Patience {
        response: Duration::from_millis(500),
        retries: 15,
        deadline: now() + Duration::from_secs(120),
        time_wait: silence.clamp(Duration::from_millis(100), Duration::from_secs(10)),
        tell_end: true,
        watched: true,
    }
}

/// What a program gives along with a call, and the bytes in it.
///
/// # Safety
/// `param` is null, or to parameters whose private data are as long as they say.
unsafe fn given<'a>(param: *const rdma_conn_param) -> Answer<(Option<rdma_conn_param>, &'a [u8])> {
    if param.is_null() {
        return Ok((None, &[]));
    }
    // SAFETY: the caller vouches for it.
    let param = *unsafe { seen(param, "parameters") }?;
    // SAFETY: as above.
    Ok((Some(param), unsafe { bytes(param.private_data, param.private_data_len) }))
}

/// # Safety
/// `data` is null, or to so many bytes.
unsafe fn bytes<'a>(data: *const c_void, len: u8) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for it.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len.into()) }
}

/// READs and atomics under way: as the program says, or as many as there may be.
fn depth(given: u8, any: u8, at_most: u8) -> Answer<u8> {
    if given == any {
        return Ok(at_most.min(Limits::READ_DEPTH));
    }
    if given > Limits::READ_DEPTH {
        let most = Limits::READ_DEPTH;
        return Err(Refused::invalid(format_args!("{given} READs and atomics at a time: at most {most}")));
    }
    Ok(given)
}

/// The number of the queue pair, and whether it takes its receives from a shared queue. Its packets are looked at
/// from now on.
fn queue_pair(id: &Id, param: &rdma_conn_param) -> Answer<(Qpn, bool)> {
    if id.qp().is_null() {
        return Ok((Qpn::new(param.qp_num), param.srq != 0));
    }
    // SAFETY: the program answers for the queue pair that it gave to the id.
    let qp = unsafe { Qp::of(id.qp()) }?;
    *lock(&id.queue_pair) = Arc::downgrade(&qp.qp);
    Ok((qp.qp.qpn(), qp.qp.shared_queue().is_some()))
}

fn too_long(given: usize, most: usize) -> Refused {
    Refused::invalid(format_args!("{given} bytes of private data: at most {most}"))
}

/// The device and the two ends of an id whose route is known.
fn ends(state: &State) -> Answer<(&'static CmDevice, SocketAddr, SocketAddr)> {
    match (state.device, state.source, state.destination) {
        (Some(device), Some(source), Some(destination)) => Ok((device, source, destination)),
        _ => Err(Refused::invalid("the id has no route yet")),
    }
}

/// Private data that begin with the addresses, as both sides have them for a port.
fn addressed<const N: usize>(source: SocketAddr, destination: SocketAddr, data: &[u8]) -> Answer<Opaque<N>> {
    let pair = IpPair::new(source.ip(), destination.ip());
    let pair = pair.ok_or_else(|| Refused::invalid("the two addresses are not of one family"))?;
    let whole = IpCmHeader::new(source.port(), pair).private_data(data);
    whole.map_err(|_| too_long(data.len(), N.saturating_sub(IpCmHeader::LEN)))
}

/// # Safety
/// As for [`given`].
unsafe fn begin_connecting(named: *mut rdma_cm_id, param: *const rdma_conn_param) -> Answer<()> {
    let _whole = Uncancelled::new();
    let id = handles::id(named)?;
    // SAFETY: the caller vouches for it.
    let (param, data) = unsafe { given(param) }?;
    let mut state = lock(&id.state);
    if !matches!(state.stage, Stage::Routed) {
        return Err(Refused::invalid("the route is not resolved, or the id is connected"));
    }
    // What `rdma_create_ep` was given goes first.
    let data = [&state.endpoint.connect, data].concat();
    if id.is_datagram() { ask(&id, &mut state, &data) } else { connect(&id, &mut state, param, &data) }
}

/// Asks for the queue pair of a datagram service.
fn ask(id: &Arc<Id>, state: &mut State, data: &[u8]) -> Answer<()> {
    let (device, source, destination) = ends(state)?;
    let req = SidrReq {
        pkey: device.context.nic.pkey(0).unwrap_or_default(),
        service_id: service(id.space, destination.port()),
        private_data: addressed(source, destination, data)?,
        ..SidrReq::default()
    };
    let ends = Ends { local: source.ip(), remote: destination.ip() };
    let query = Query { ends, req, patience: patience(ACK_TIMEOUT) };
    let comm = device.manager.resolve(&query, Watch::of(id));
    state.comm = Some(comm.map_err(|error| Refused::because(libc::ENOMEM, &error))?);
    state.stage = Stage::Connecting;
    Ok(())
}

fn connect(id: &Arc<Id>, state: &mut State, param: Option<rdma_conn_param>, data: &[u8]) -> Answer<()> {
    if param.is_none() && id.qp().is_null() {
        return Err(Refused::invalid("neither a queue pair nor parameters that name one"));
    }
    let usual = rdma_conn_param {
        responder_resources: RDMA_MAX_RESP_RES,
        initiator_depth: RDMA_MAX_INIT_DEPTH,
        retry_count: 7,
        rnr_retry_count: 7,
        ..no_connection()
    };
    let param = param.unwrap_or(usual);
    let (device, source, destination) = ends(state)?;
    let most = Limits::READ_DEPTH;
    let responder_resources = depth(param.responder_resources, RDMA_MAX_RESP_RES, most)?;
    let initiator_depth = depth(param.initiator_depth, RDMA_MAX_INIT_DEPTH, most)?;
    let private_data = addressed(source, destination, data)?;
    let (local_qpn, srq) = queue_pair(id, &param)?;
    let timeout = state.options.ack_timeout.unwrap_or(ACK_TIMEOUT);
    let primary = ReqPath {
        local_lid: ReqPath::ROCE_LID,
        remote_lid: ReqPath::ROCE_LID,
        local_gid: source.ip().into(),
        remote_gid: destination.ip().into(),
        traffic_class: state.options.tos,
        hop_limit: 64,
        local_ack_timeout: Timeout::new(timeout),
        ..ReqPath::default()
    };
    let nic = &device.context.nic;
    let req = Req {
        local_ca_guid: nic.info().node_guid(),
        local_qpn,
        starting_psn: id.psn,
        responder_resources,
        initiator_depth,
        transport_service: TransportService::Rc,
        end_to_end_flow_control: param.flow_control != 0,
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        pkey: nic.pkey(0).unwrap_or_default(),
        path_mtu: nic.active_mtu().code(),
        srq,
        primary,
        private_data,
        ..Req::default()
    };
    let ends = Ends { local: source.ip(), remote: destination.ip() };
    state.terms = Some(Terms::of_wish(ends.local, ends.remote, &req));
    let service = service(id.space, destination.port());
    let wish = Connect { ends, req, service, patience: patience(timeout) };
    // Our lock is held: an answer that is faster than this waits for it.
    let comm = device.manager.connect(&wish, Watch::of(id));
    state.comm = Some(comm.map_err(|error| Refused::because(libc::ENOMEM, &error))?);
    state.stage = Stage::Connecting;
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the caller passes parameters, or null.
    match unsafe { begin_connecting(id, param) } {
        Ok(()) => minus_one("rdma_connect", complete(id)),
        Err(refused) => minus_one("rdma_connect", Err(refused)),
    }
}

/// Accepts a request; false if there is nothing to wait for.
///
/// # Safety
/// As for [`given`].
unsafe fn begin_accepting(named: *mut rdma_cm_id, param: *const rdma_conn_param) -> Answer<bool> {
    let _whole = Uncancelled::new();
    let id = handles::id(named)?;
    // SAFETY: the caller vouches for it.
    let (param, data) = unsafe { given(param) }?;
    let mut state = lock(&id.state);
    match &state.stage {
        Stage::Requested => {
            accept(&id, &mut state, param, data)?;
            Ok(true)
        }
        Stage::Asked(_) => {
            answer(&id, &mut state, param, data)?;
            Ok(false)
        }
        _ => Err(Refused::invalid("the id is not one of a request")),
    }
}

/// Tells a peer which queue pair serves it.
fn answer(id: &Id, state: &mut State, param: Option<rdma_conn_param>, data: &[u8]) -> Answer<()> {
    let private_data = Opaque::new(data).map_err(|_| too_long(data.len(), WITH_ANSWER))?;
    let (qpn, _) = queue_pair(id, &param.unwrap_or(no_connection()))?;
    let qkey = QKey(RDMA_UDP_QKEY);
    let reply = SidrRep { status: SidrStatus::VALID, qpn, qkey, private_data, ..SidrRep::default() };
    tell_asker(state, reply)
}

/// Answers a question, and remembers how: it may come again.
fn tell_asker(state: &mut State, reply: SidrRep) -> Answer<()> {
    let (Some(device), Stage::Asked(asked)) = (state.device, &state.stage) else {
        return Err(Refused::invalid("the id is not one of a question"));
    };
    // What is lost is asked for again.
    let _ = device.manager.answer(asked, &reply);
    state.answer = Some(reply);
    state.stage = Stage::Connected;
    Ok(())
}

fn accept(id: &Arc<Id>, state: &mut State, param: Option<rdma_conn_param>, data: &[u8]) -> Answer<()> {
    let (Some(device), Some(comm), Some(mut terms)) = (state.device, state.comm, state.terms) else {
        return Err(Refused::invalid("the id is not one of a request"));
    };
    let Ok(private_data) = Opaque::new(data) else {
        let _ = device.manager.reject(comm, RejectReason::CONSUMER, &[]);
        state.stage = Stage::Ended;
        let _ = attr::to_error(id);
        return Err(too_long(data.len(), WITH_ACCEPTANCE));
    };
    let usual = rdma_conn_param {
        responder_resources: RDMA_MAX_RESP_RES,
        initiator_depth: RDMA_MAX_INIT_DEPTH,
        rnr_retry_count: 7,
        ..no_connection()
    };
    let param = param.unwrap_or(usual);
    terms.responder_resources =
        depth(param.responder_resources, RDMA_MAX_RESP_RES, terms.responder_resources)?;
    terms.initiator_depth = depth(param.initiator_depth, RDMA_MAX_INIT_DEPTH, terms.initiator_depth)?;
    if !device.manager.is_pending(comm) {
        return Err(Refused::invalid("the peer has given up"));
    }
    let (local_qpn, srq) = queue_pair(id, &param)?;
    state.terms = Some(terms);
    if !id.qp().is_null() {
        attr::to_rts(id, state)?;
    }
    let rep = Rep {
        local_qpn,
        starting_psn: id.psn,
        responder_resources: terms.responder_resources,
        initiator_depth: terms.initiator_depth,
        target_ack_delay: Timeout::new(ACK_TIMEOUT),
        end_to_end_flow_control: param.flow_control != 0,
        rnr_retry_count: param.rnr_retry_count.min(7),
        srq,
        local_ca_guid: device.context.nic.info().node_guid(),
        private_data,
        ..Rep::default()
    };
    id.accepted.store(true, Ordering::Release);
    state.stage = Stage::Connecting;
    if device.manager.accept(comm, &Accept { rep, patience: patience(terms.timeout) }).is_err() {
        let _ = attr::to_error(id);
        return Err(Refused::invalid("the peer has given up"));
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the caller passes parameters, or null.
    match unsafe { begin_accepting(id, param) } {
        Ok(true) => minus_one("rdma_accept", complete(id)),
        Ok(false) => 0,
        Err(refused) => minus_one("rdma_accept", Err(refused)),
    }
}

/// The peer's vendor options are not acceptable.
const VENDOR_OPTIONS: RejectReason = RejectReason(35);

fn reject(id: &Id, reason: RejectReason, data: &[u8]) -> Answer<()> {
    let mut state = lock(&id.state);
    if let Stage::Asked(_) = state.stage {
        let private_data = Opaque::new(data).map_err(|_| too_long(data.len(), WITH_ANSWER))?;
        let refusal = SidrRep { status: SidrStatus::REJECTED, private_data, ..SidrRep::default() };
        return tell_asker(&mut state, refusal);
    }
    if data.len() > WITH_REJECTION {
        return Err(too_long(data.len(), WITH_REJECTION));
    }
    let (Some(device), Some(comm)) = (state.device, state.comm) else {
        return Err(Refused::invalid("there is no request to reject"));
    };
    match state.stage {
        Stage::Requested | Stage::Replied => {
            device.manager.reject(comm, reason, data).map_err(Refused::gone)?;
        }
        _ => return Err(Refused::invalid("there is no request to reject")),
    }
    state.stage = Stage::Ended;
    Ok(())
}

impl Refused {
    fn gone(_: ferroce_transport::cm::Refused) -> Self {
        Self::invalid("the peer has given up")
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes so many bytes, or null.
    let data = unsafe { bytes(data, len) };
    minus_one("rdma_reject", handles::id(id).and_then(|id| reject(&id, RejectReason::CONSUMER, data)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes so many bytes, or null.
    let data = unsafe { bytes(data, len) };
    minus_one("rdma_reject_ece", handles::id(id).and_then(|id| reject(&id, VENDOR_OPTIONS, data)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let _whole = Uncancelled::new();
    let answer = handles::id(id).and_then(|id| {
        let mut state = lock(&id.state);
        if !id.qp().is_null() {
            return Err(Refused::invalid("the id has a queue pair: its connection is confirmed by itself"));
        }
        let (Some(device), Some(comm), Stage::Replied) = (state.device, state.comm, &state.stage) else {
            return Err(Refused::invalid("there is no acceptance to confirm"));
        };
        device.manager.ready(comm).map_err(Refused::gone)?;
        state.stage = Stage::Connected;
        Ok(())
    });
    minus_one("rdma_establish", answer)
}

fn begin_parting(named: *mut rdma_cm_id) -> Answer<()> {
    let _whole = Uncancelled::new();
    let id = handles::id(named)?;
    if id.verbs().is_null() {
        return Err(Refused::invalid("the id has no device"));
    }
    attr::to_error(&id)?;
    let state = lock(&id.state);
    let (Some(device), Some(comm)) = (state.device, state.comm) else {
        return Err(Refused::invalid("the id was never connected"));
    };
    if id.is_datagram() {
        return Err(Refused::invalid("datagrams have no connection to end"));
    }
    let manager = &device.manager;
    // The peer may not have confirmed yet; if it is over already, there is nothing to do.
    if manager.disconnect(comm).is_err() && manager.data_arrived(comm).is_ok() {
        let _ = manager.disconnect(comm);
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    match begin_parting(id) {
        Ok(()) => minus_one("rdma_disconnect", complete(id)),
        Err(refused) => minus_one("rdma_disconnect", Err(refused)),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    let _whole = Uncancelled::new();
    let answer = handles::id(id).and_then(|id| {
        if event != IBV_EVENT_COMM_EST {
            return Err(Refused::invalid(format_args!(
                "event {event}: only IBV_EVENT_COMM_EST says something"
            )));
        }
        let state = lock(&id.state);
        let (Some(device), Some(comm)) = (state.device, state.comm) else {
            return Err(Refused::invalid("the id has no connection"));
        };
        match device.manager.data_arrived(comm).map_err(Refused::gone)? {
            true => Ok(()),
            false => Err(Refused::new(libc::EISCONN, "the connection stands already")),
        }
    });
    minus_one("rdma_notify", answer)
}
