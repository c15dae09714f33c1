//! Queue pairs and shared receive queues of ids, and the completion queues that go with them.

use std::ffi::c_int;

use ferroce_cabi::cm::rdma_cm_id;
use ferroce_cabi::{
    IBV_QP_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, ibv_comp_channel, ibv_cq, ibv_pd,
    ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use ferroce_device::Uncancelled;
use ferroce_transport::State as QpState;

use super::attr;
use super::handles;
use super::id::Id;
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::domain::Pd;
use crate::object::{filled, lock};
use crate::qp::{self, ibv_create_qp, ibv_destroy_qp};
use crate::refusal::{Answer, Refused, last_errno, minus_one};
use crate::srq::{self, ibv_create_srq, ibv_destroy_srq};

/// The domain of what is made for an id: the one that the program names, or the id's own.
fn domain(id: &Id, named: *mut ibv_pd) -> Answer<*mut ibv_pd> {
    let pd = if named.is_null() { id.pd() } else { named };
    // SAFETY: the program answers for the domains that it names.
    let known = unsafe { Pd::of(pd) }?;
    if known.context.as_c() == id.verbs() {
        Ok(pd)
    } else {
        Err(Refused::invalid("the protection domain was made from another context than the id's"))
    }
}

/// A completion queue of so many entries that reports to the id, with a channel of its own.
fn queue_for(id: &Id, entries: u32) -> Answer<(*mut ibv_cq, *mut ibv_comp_channel)> {
    // SAFETY: the context of an id is an open one.
    let channel = unsafe { ibv_create_comp_channel(id.verbs()) };
    if channel.is_null() {
        return Err(last_errno("no completion channel"));
    }
    let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
    // SAFETY: both are live; the inline functions of C find the id in the queue's context.
    let cq = unsafe { ibv_create_cq(id.verbs(), entries, id.as_c().cast(), channel, 0) };
    if cq.is_null() {
        let refused = last_errno("no completion queue");
        // SAFETY: it was made just now, and no queue reports to it.
        unsafe { ibv_destroy_comp_channel(channel) };
        return Err(refused);
    }
    Ok((cq, channel))
}

/// Makes the completion queues that a queue pair needs and the program has not given.
fn make_queues(id: &Id, attr: &mut ibv_qp_init_attr) -> Answer<()> {
    let clash = |own: *mut ibv_cq, given: *mut ibv_cq| !own.is_null() && !given.is_null() && own != given;
    if clash(id.recv_cq(), attr.recv_cq) || clash(id.send_cq(), attr.send_cq) {
        return Err(Refused::invalid("the id has other completion queues"));
    }
    if attr.recv_cq.is_null() && id.recv_cq().is_null() && attr.cap.max_recv_wr > 0 {
        let (cq, channel) = queue_for(id, attr.cap.max_recv_wr)?;
        id.set_recv_cq(cq);
        id.set_recv_cq_channel(channel);
    }
    if attr.send_cq.is_null() && id.send_cq().is_null() && attr.cap.max_send_wr > 0 {
        let (cq, channel) = queue_for(id, attr.cap.max_send_wr)?;
        id.set_send_cq(cq);
        id.set_send_cq_channel(channel);
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = id.recv_cq();
    }
    if attr.send_cq.is_null() {
        attr.send_cq = id.send_cq();
    }
    // A queue pair has two, also if it never completes into one of them.
    if attr.recv_cq.is_null() {
        attr.recv_cq = attr.send_cq;
    }
    if attr.send_cq.is_null() {
        attr.send_cq = attr.recv_cq;
    }
    Ok(())
}

/// Destroys the completion queues that were made for an id.
fn destroy_queues(id: &Id) {
    let (receive, send) = (id.recv_cq(), id.send_cq());
    id.set_recv_cq(std::ptr::null_mut());
    id.set_send_cq(std::ptr::null_mut());
    for cq in [receive, if send == receive { std::ptr::null_mut() } else { send }] {
        if !cq.is_null() {
            // SAFETY: the program gives up what the id has.
            unsafe { ibv_destroy_cq(cq) };
        }
    }
    let (receive, send) = (id.recv_cq_channel(), id.send_cq_channel());
    id.set_recv_cq_channel(std::ptr::null_mut());
    id.set_send_cq_channel(std::ptr::null_mut());
    for channel in [receive, if send == receive { std::ptr::null_mut() } else { send }] {
        if !channel.is_null() {
            // SAFETY: as above; no queue reports to it any more.
            unsafe { ibv_destroy_comp_channel(channel) };
        }
    }
}

/// Takes a new queue pair to where it can be given receives, and a datagram queue pair to where it works.
fn begin(id: &Id, qp: *mut ibv_qp) -> Answer<()> {
    id.set_qp(qp);
    let state = lock(&id.state);
    if id.is_datagram() {
        attr::to_datagram_rts(id, &state)
    } else {
        attr::to_state(id, &state, QpState::Init)
    }
}

/// Makes the queue pair of an id.
pub(crate) fn create(
    id: &Id,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    make: impl FnOnce(*mut ibv_pd, &mut ibv_qp_init_attr) -> *mut ibv_qp,
) -> Answer<()> {
    if !id.qp().is_null() {
        return Err(Refused::invalid("the id has a queue pair already"));
    }
    if id.verbs().is_null() {
        return Err(Refused::invalid("the id has no device yet"));
    }
    let pd = domain(id, pd)?;
    let fresh = id.recv_cq().is_null() && id.send_cq().is_null();
    if attr.srq.is_null() {
        attr.srq = id.srq();
    }
    let made = make_queues(id, attr).and_then(|()| {
        let qp = make(pd, attr);
        if qp.is_null() {
            return Err(last_errno("no queue pair"));
        }
        begin(id, qp).inspect_err(|_| {
            id.set_qp(std::ptr::null_mut());
            // SAFETY: it was made just now.
            unsafe { ibv_destroy_qp(qp) };
        })
    });
    if made.is_err() && fresh {
        destroy_queues(id);
    }
    made?;
    id.set_pd(pd);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = handles::id(id).and_then(|id| {
        let attr = attr?;
        // The program sees what was made for it only if all went well: queues that were are gone otherwise.
        let mut tried = *attr;
        create(&id, pd, &mut tried, |pd, attr| {
            // SAFETY: the program answers for what it put into the attributes.
            unsafe { ibv_create_qp(pd, attr) }
        })?;
        *attr = tried;
        Ok(())
    });
    minus_one("rdma_create_qp", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = handles::id(id).and_then(|id| {
        let attr = attr?;
        let mut tried = *attr;
        let whole = &mut tried;
        let named = if whole.comp_mask & IBV_QP_INIT_ATTR_PD == 0 { std::ptr::null_mut() } else { whole.pd };
        let mut plain = ibv_qp_init_attr {
            qp_context: whole.qp_context,
            send_cq: whole.send_cq,
            recv_cq: whole.recv_cq,
            srq: whole.srq,
            cap: whole.cap,
            qp_type: whole.qp_type,
            sq_sig_all: whole.sq_sig_all,
        };
        create(&id, named, &mut plain, |pd, plain| {
            whole.comp_mask |= IBV_QP_INIT_ATTR_PD;
            (whole.pd, whole.srq) = (pd, plain.srq);
            (whole.send_cq, whole.recv_cq) = (plain.send_cq, plain.recv_cq);
            // SAFETY: as for `rdma_create_qp`.
            unsafe { qp::create_extended(id.verbs(), whole) }
        })?;
        *attr = tried;
        Ok(())
    });
    minus_one("rdma_create_qp_ex", answer)
}

/// Destroys the queue pair of an id.
pub(crate) fn destroy(id: &Id) {
    let qp = id.qp();
    if !qp.is_null() {
        id.set_qp(std::ptr::null_mut());
        // SAFETY: the program gives up what the id has.
        unsafe { ibv_destroy_qp(qp) };
    }
    destroy_queues(id);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    let _whole = Uncancelled::new();
    match handles::any_id(id) {
        Ok(id) => destroy(&id),
        Err(refused) => {
            refused.tell("rdma_destroy_qp");
        }
    }
}

fn has_srq(id: &Id, srq: *mut ibv_srq, pd: *mut ibv_pd) -> Answer<()> {
    if srq.is_null() {
        return Err(last_errno("no shared receive queue"));
    }
    id.set_srq(srq);
    id.set_pd(pd);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    let _whole = Uncancelled::new();
    let answer = handles::id(id).and_then(|id| {
        let pd = domain(&id, pd)?;
        // SAFETY: the caller passes attributes of its own, or null; the domain is live.
        has_srq(&id, unsafe { ibv_create_srq(pd, attr) }, pd)
    });
    minus_one("rdma_create_srq", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = handles::id(id).and_then(|id| {
        let attr = attr?;
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
            return Err(Refused::invalid("the type of the shared receive queue is not given"));
        }
        let named = if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 { std::ptr::null_mut() } else { attr.pd };
        attr.pd = domain(&id, named)?;
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        let pd = attr.pd;
        // SAFETY: the domain is live, and the attributes are the program's.
        has_srq(&id, unsafe { srq::create_extended(id.verbs(), attr) }, pd)
    });
    minus_one("rdma_create_srq_ex", answer)
}

/// Destroys the shared receive queue of an id.
pub(crate) fn destroy_srq(id: &Id) {
    let srq = id.srq();
    if !srq.is_null() {
        id.set_srq(std::ptr::null_mut());
        // SAFETY: the program gives up what the id has.
        unsafe { ibv_destroy_srq(srq) };
    }
    if id.qp().is_null() {
        destroy_queues(id);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    let _whole = Uncancelled::new();
    match handles::any_id(id) {
        Ok(id) => destroy_srq(&id),
        Err(refused) => {
            refused.tell("rdma_destroy_srq");
        }
    }
}
