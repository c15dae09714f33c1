//! What a queue pair needs to know of a connection, for the program's own moves and for ours.

use std::ffi::c_int;
use std::net::IpAddr;

use ferroce_cabi::cm::{RDMA_UDP_QKEY, rdma_cm_id};
use ferroce_cabi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, ibv_qp, ibv_qp_attr,
};
use ferroce_device::{AddressVector, Limits, Uncancelled};
use ferroce_transport::State as QpState;
use ferroce_transport::cm::Request;
use ferroce_wire::mad::{Rep, Req};
use ferroce_wire::{Gid, PKey};

use super::handles;
use super::id::{Id, State};
use crate::address::attr_of;
use crate::object::{Zero, filled, lock};
use crate::qp::{Qp, ibv_modify_qp};
use crate::refusal::{Answer, Refused, minus_one};

/// How long a queue pair waits for an acknowledgement if the program does not say: 4.096 us times 2 to this power,
/// 134 ms.
pub(crate) const ACK_TIMEOUT: u8 = 15;

/// What both sides of a connection agreed on so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) path_mtu: u8,
    pub(crate) peer_qpn: u32,
    /// What the peer expects first.
    pub(crate) peer_psn: u32,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    /// READs and atomics of the peer that we serve at a time, and of ours that the peer serves.
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) timeout: u8,
    pub(crate) traffic_class: u8,
    pub(crate) pkey: PKey,
    /// The peer's half is known.
    pub(crate) complete: bool,
}

impl Terms {
    /// What a peer asks for.
    pub(crate) fn of_request(request: &Request) -> Self {
        let req = &request.req;
        Self {
            local: request.ends.local,
            remote: request.ends.remote,
            path_mtu: req.path_mtu,
            peer_qpn: req.local_qpn.get(),
            peer_psn: req.starting_psn.get(),
            retry_count: req.retry_count,
            rnr_retry: req.rnr_retry_count,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            timeout: req.primary.local_ack_timeout.code(),
            traffic_class: req.primary.traffic_class,
            pkey: req.pkey,
            complete: true,
        }
    }

    /// What we ask for.
    pub(crate) fn of_wish(local: IpAddr, remote: IpAddr, req: &Req) -> Self {
        Self {
            local,
            remote,
            path_mtu: req.path_mtu,
            peer_qpn: 0,
            peer_psn: 0,
            retry_count: req.retry_count,
            rnr_retry: 0,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            timeout: req.primary.local_ack_timeout.code(),
            traffic_class: req.primary.traffic_class,
            pkey: req.pkey,
            complete: false,
        }
    }

    /// The peer has accepted.
    pub(crate) const fn accepted(&mut self, rep: &Rep) {
        self.peer_qpn = rep.local_qpn.get();
        self.peer_psn = rep.starting_psn.get();
        self.rnr_retry = rep.rnr_retry_count;
        self.responder_resources = rep.initiator_depth;
        self.initiator_depth = rep.responder_resources;
        self.complete = true;
    }
}

/// The attributes that take a queue pair to a state, and which of them count.
fn attributes(id: &Id, state: &State, to: QpState) -> Answer<(ibv_qp_attr, u32)> {
    let mut attr = ibv_qp_attr::zero();
    attr.qp_state = c_int::from(to.code());
    attr.port_num = 1;
    let nic = state.device.map(|device| &device.context.nic);
    let nic = nic.ok_or_else(|| Refused::invalid("the id has no device yet"))?;
    let first = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if id.is_datagram() {
        attr.qkey = RDMA_UDP_QKEY;
        return Ok((attr, first | IBV_QP_QKEY));
    }
    if let Some(terms) = &state.terms {
        let index = nic.pkeys().index_for(terms.pkey).and_then(|index| u16::try_from(index).ok());
        attr.pkey_index = index.unwrap_or(0);
    }
    let known = || {
        let terms = state.terms.as_ref().filter(|terms| terms.complete);
        terms.ok_or_else(|| Refused::invalid("the peer's queue pair is not known yet"))
    };
    match to {
        QpState::Init => {
            if let Some(terms) = &state.terms {
                attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
                if terms.responder_resources > 0 {
                    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
                }
            }
            Ok((attr, first | IBV_QP_ACCESS_FLAGS))
        }
        QpState::Rtr => {
            let terms = known()?;
            let index = nic.gid_index(terms.local).unwrap_or(0);
            let mut vector = AddressVector::new(Gid::from(terms.remote), index);
            vector.hop_limit = 64;
            vector.traffic_class = terms.traffic_class;
            attr.ah_attr = attr_of(&vector);
            attr.path_mtu = terms.path_mtu.into();
            attr.dest_qp_num = terms.peer_qpn;
            attr.rq_psn = id.psn.get();
            attr.max_dest_rd_atomic = terms.responder_resources.min(Limits::READ_DEPTH);
            let mask = IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER;
            Ok((attr, mask))
        }
        QpState::Rts => {
            let terms = known()?;
            attr.sq_psn = terms.peer_psn;
            attr.retry_cnt = terms.retry_count.min(7);
            attr.rnr_retry = terms.rnr_retry.min(7);
            attr.max_rd_atomic = terms.initiator_depth.min(Limits::READ_DEPTH);
            attr.timeout = state.options.ack_timeout.unwrap_or(terms.timeout);
            let mask = IBV_QP_STATE
                | IBV_QP_SQ_PSN
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_MAX_QP_RD_ATOMIC
                | IBV_QP_TIMEOUT;
            Ok((attr, mask))
        }
        _ => Err(Refused::invalid(format_args!("{to:?}: an id says how to get to INIT, RTR and RTS"))),
    }
}

/// Moves a queue pair.
fn modify(qp: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: u32) -> Answer<()> {
    // SAFETY: the program answers for the queue pair that it gave to the id.
    match unsafe { ibv_modify_qp(qp, attr, mask.cast_signed()) } {
        0 => Ok(()),
        code => Err(Refused::new(code, "the queue pair of the id did not move")),
    }
}

/// Takes the queue pair of an id to a state.
pub(crate) fn to_state(id: &Id, state: &State, to: QpState) -> Answer<()> {
    let (mut attr, mask) = attributes(id, state, to)?;
    modify(id.qp(), &mut attr, mask)
}

/// Takes the queue pair of an id from INIT to RTS.
pub(crate) fn to_rts(id: &Id, state: &State) -> Answer<()> {
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        to_state(id, state, to)?;
    }
    Ok(())
}

/// Takes a datagram queue pair to where it works; no peer is needed for it.
pub(crate) fn to_datagram_rts(id: &Id, state: &State) -> Answer<()> {
    to_state(id, state, QpState::Init)?;
    let mut attr = ibv_qp_attr::zero();
    attr.qp_state = c_int::from(QpState::Rtr.code());
    modify(id.qp(), &mut attr, IBV_QP_STATE)?;
    attr.qp_state = c_int::from(QpState::Rts.code());
    modify(id.qp(), &mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN)
}

/// Ends the work of the queue pair of an id, if it has one. What has arrived counts, and is acknowledged.
pub(crate) fn to_error(id: &Id) -> Answer<()> {
    let qp = id.qp();
    if qp.is_null() {
        return Ok(());
    }
    // SAFETY: the program answers for the queue pair that it gave to the id.
    unsafe { Qp::of(qp) }?.qp.settle();
    let mut attr = ibv_qp_attr::zero();
    attr.qp_state = c_int::from(QpState::Err.code());
    modify(qp, &mut attr, IBV_QP_STATE)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes attributes of its own to fill, or null.
    let attr = unsafe { filled(attr, "attributes") };
    // SAFETY: the same for the mask.
    let mask = unsafe { filled(mask, "mask") };
    let answer = handles::id(id).and_then(|id| {
        let (attr, mask) = (attr?, mask?);
        let to = u8::try_from(attr.qp_state).ok().and_then(QpState::from_code);
        let to = to.ok_or_else(|| Refused::invalid(format_args!("queue pair state {}", attr.qp_state)))?;
        let (known, bits) = attributes(&id, &lock(&id.state), to)?;
        *attr = known;
        *mask = bits.cast_signed();
        Ok(())
    });
    minus_one("rdma_init_qp_attr", answer)
}
