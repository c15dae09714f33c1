//! Queue pairs.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_cabi::{
    IBV_MIG_MIGRATED, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_PATH_MTU, IBV_QP_STATE, IBV_QPT_DRIVER, IBV_QPT_RAW_PACKET,
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_context, ibv_cq, ibv_pd,
    ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq,
};
use ferroce_device::{AddressVector, QpSpec, Uncancelled};
use ferroce_transport::{Access, AttributeMask, Attributes, Caps, State};
use ferroce_wire::{PathMtu, Psn, QKey, Qpn, Service};
use libc::{c_int, c_void};

use crate::address::{attr_of, vector_of};
use crate::context::object;
use crate::cq::Cq;
use crate::domain::Pd;
use crate::events::{self, Subject};
use crate::fork;
use crate::object::{Acknowledged, Zero, filled, given, seen, taken};
use crate::qp_ex::{self, Building};
use crate::refusal::{Answer, Refused, number, pointer};
use crate::srq::Srq;

/// A queue pair; all have the extended form, but only those that asked for it may use it.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) c: UnsafeCell<ibv_qp_ex>,
    pd: &'static Pd,
    pub(crate) generation: u32,
    pub(crate) qp: Arc<ferroce_device::Qp>,
    send_cq: &'static Cq,
    receive_cq: &'static Cq,
    srq: Option<&'static Srq>,
    pub(crate) caps: Caps,
    signal_all: bool,
    extended: bool,
    pub(crate) told: Arc<Acknowledged>,
    /// Held between `wr_start` and `wr_complete` or `wr_abort`.
    pub(crate) posting: UnsafeCell<libc::pthread_mutex_t>,
    pub(crate) building: UnsafeCell<Building>,
}

object!(Qp, ibv_qp, "queue pair");

// SAFETY: `building` and the extended fields belong to the thread that holds `posting`; everything else never
// changes, or has locks of its own.
unsafe impl Sync for Qp {}

impl Qp {
    /// What it has completed and the program has not polled is not told any more.
    fn forget_completions(&self) {
        for cq in [self.send_cq, self.receive_cq] {
            cq.queue.forget(self.qp.qpn());
        }
    }
}

/// What a queue pair is made from, in both forms.
struct Wanted {
    pd: *mut ibv_pd,
    context: *mut c_void,
    send_cq: *mut ibv_cq,
    receive_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    cap: ibv_qp_cap,
    kind: c_int,
    signal_all: bool,
    /// The operations of the extended form that it is to have.
    operations: Option<u64>,
}

fn service_of(kind: c_int) -> Answer<Service> {
    match kind {
        IBV_QPT_RC => Ok(Service::Rc),
        IBV_QPT_UC => Ok(Service::Uc),
        IBV_QPT_UD => Ok(Service::Ud),
        IBV_QPT_RAW_PACKET | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV | IBV_QPT_DRIVER => {
            Err(Refused::unsupported(format_args!("queue pairs of type {kind}")))
        }
        _ => Err(Refused::invalid(format_args!("queue pair type {kind}"))),
    }
}

/// Bytes of a piece of a gather list, as cards write it.
const PIECE: u32 = 16;

/// Inline bytes that a queue pair takes at most although its program asked for none.
const UNASKED: u32 = 64;

/// Inline bytes of a queue pair. Cards and the kernel put them where the gather list would be, so they take as many as that has
/// room for, and programs rely on it: `rdma_xclient` asks for none and sends 16.
fn inline_for(cap: &ibv_qp_cap) -> u32 {
    cap.max_inline_data.max(cap.max_send_sge.saturating_mul(PIECE).min(UNASKED))
}

/// # Safety
/// All pointers are null, or to live objects of this library.
unsafe fn make(wanted: &Wanted) -> Answer<&'static Qp> {
    // SAFETY: the caller vouches for it.
    let pd = unsafe { Pd::of(wanted.pd) }?;
    let service = service_of(wanted.kind)?;
    // SAFETY: as above.
    let send_cq = unsafe { Cq::of(wanted.send_cq) }?;
    // SAFETY: as above.
    let receive_cq = unsafe { Cq::of(wanted.receive_cq) }?;
    let srq = if wanted.srq.is_null() {
        None
    } else {
        // SAFETY: as above.
        Some(unsafe { Srq::of(wanted.srq) }?)
    };
    if !std::ptr::eq(send_cq.context, pd.context) || !std::ptr::eq(receive_cq.context, pd.context) {
        return Err(Refused::invalid("the completion queues were made from another context"));
    }
    if let Some(operations) = wanted.operations {
        qp_ex::check_operations(service, operations)?;
    }
    let caps = Caps {
        max_send: wanted.cap.max_send_wr,
        max_receive: wanted.cap.max_recv_wr,
        max_send_sge: wanted.cap.max_send_sge,
        max_receive_sge: wanted.cap.max_recv_sge,
        max_inline: inline_for(&wanted.cap).max(qp_ex::inline_for(wanted.operations)),
    };
    let qp = ferroce_device::Qp::new(
        &pd.context.nic,
        &QpSpec {
            service,
            domain: pd.domain,
            send_cq: &send_cq.queue,
            receive_cq: &receive_cq.queue,
            shared_queue: srq.map(|srq| &srq.queue),
            caps,
            signal_all: wanted.signal_all,
            path: None,
            engine: None,
            stamps: false,
        },
    )?;
    let caps = qp.query()?.caps;
    pd.context.made_one();
    send_cq.users.fetch_add(1, Ordering::Relaxed);
    receive_cq.users.fetch_add(1, Ordering::Relaxed);
    if let Some(srq) = srq {
        srq.users.fetch_add(1, Ordering::Relaxed);
    }
    let mut c = ibv_qp_ex::zero();
    c.qp_base.context = pd.context.as_c();
    c.qp_base.qp_context = wanted.context;
    c.qp_base.pd = wanted.pd;
    c.qp_base.send_cq = wanted.send_cq;
    c.qp_base.recv_cq = wanted.receive_cq;
    c.qp_base.srq = wanted.srq;
    c.qp_base.handle = qp.qpn().get();
    c.qp_base.qp_num = qp.qpn().get();
    c.qp_base.qp_type = wanted.kind;
    if wanted.operations.is_some() {
        qp_ex::fill(&mut c);
    }
    let number = qp.qpn().get();
    let qp = given(Qp {
        c: UnsafeCell::new(c),
        pd,
        generation: fork::generation(),
        qp,
        send_cq,
        receive_cq,
        srq,
        caps,
        signal_all: wanted.signal_all,
        extended: wanted.operations.is_some(),
        told: Arc::default(),
        posting: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        building: UnsafeCell::default(),
    });
    // SAFETY: it was made just now, and lives until `destroy` takes it back.
    let qp: &'static Qp = unsafe { &*qp };
    events::enroll(
        &pd.context.nic,
        Subject::Qp(number),
        &pd.context.inbox,
        qp.c.get().addr(),
        Some(&qp.told),
    );
    Ok(qp)
}

const fn cap_of(caps: &Caps) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: caps.max_send,
        max_recv_wr: caps.max_receive,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: caps.max_receive_sge,
        max_inline_data: caps.max_inline,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = attr.and_then(|attr| {
        let wanted = Wanted {
            pd,
            context: attr.qp_context,
            send_cq: attr.send_cq,
            receive_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            kind: attr.qp_type,
            signal_all: attr.sq_sig_all != 0,
            operations: None,
        };
        // SAFETY: the caller passes live objects, or null.
        let qp = unsafe { make(&wanted) }?;
        attr.cap = cap_of(&qp.caps);
        Ok(qp.c.get().cast())
    });
    pointer("ibv_create_qp", answer)
}

pub(crate) unsafe extern "C" fn create_extended(
    _: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = attr.and_then(|attr| {
        let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if attr.comp_mask & !known != 0 {
            return Err(Refused::unsupported(format_args!("attributes 0x{:x}", attr.comp_mask & !known)));
        }
        if attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && attr.create_flags != 0 {
            return Err(Refused::unsupported(format_args!("creation flags 0x{:x}", attr.create_flags)));
        }
        let has = |bit| attr.comp_mask & bit != 0;
        let wanted = Wanted {
            pd: if has(IBV_QP_INIT_ATTR_PD) { attr.pd } else { std::ptr::null_mut() },
            context: attr.qp_context,
            send_cq: attr.send_cq,
            receive_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            kind: attr.qp_type,
            signal_all: attr.sq_sig_all != 0,
            operations: has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags),
        };
        // SAFETY: the caller passes live objects, or null.
        let qp = unsafe { make(&wanted) }?;
        attr.cap = cap_of(&qp.caps);
        Ok(qp.c.get().cast())
    });
    pointer("ibv_create_qp_ex", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller passes a live queue pair, or null.
    match unsafe { Qp::of(qp) } {
        Ok(known) if known.extended => known.c.get(),
        _ => std::ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a queue pair that it gives up, or null.
    number("ibv_destroy_qp", unsafe { destroy(qp) })
}

/// How often a thread lets others run that look at a queue pair which it ends.
const LOOKS: u32 = 100_000;

/// Ends a queue pair in this thread. The thread of connections may be looking at it for a moment: if that one ended it later, the
/// program would find its protection domain still in use.
fn end(mut machine: Arc<ferroce_device::Qp>) {
    for _ in 0..LOOKS {
        match Arc::try_unwrap(machine) {
            Ok(last) => return drop(last),
            Err(shared) => machine = shared,
        }
        std::thread::yield_now();
    }
}

/// # Safety
/// As for [`Qp::of`], and no thread uses the queue pair any more, but to acknowledge events.
unsafe fn destroy(qp: *mut ibv_qp) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let known = unsafe { Qp::of(qp) }?;
    events::strike(&known.pd.context.nic, Subject::Qp(known.qp.qpn().get()));
    known.told.wait();
    let (queues, srq, context) = ([known.send_cq, known.receive_cq], known.srq, known.pd.context);
    let (number, machine) = (known.qp.qpn(), Arc::clone(&known.qp));
    // SAFETY: the caller gives it up, and all its events are acknowledged.
    drop(unsafe { taken(qp.cast::<Qp>()) });
    end(machine);
    // They live as long as queue pairs complete into them, which is counted here.
    for cq in queues {
        cq.queue.forget(number);
        cq.users.fetch_sub(1, Ordering::Relaxed);
    }
    if let Some(srq) = srq {
        srq.users.fetch_sub(1, Ordering::Relaxed);
    }
    context.lost_one();
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live queue pair, or null.
    let known = unsafe { Qp::of(qp) };
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { seen(attr, "attributes") };
    let answer = known.and_then(|known| {
        let (attributes, address) = attributes_of(attr?, mask.cast_unsigned())?;
        known.qp.modify(&attributes, address.as_ref())?;
        if mask.cast_unsigned() & IBV_QP_STATE != 0 {
            if attributes.state == State::Reset {
                known.forget_completions();
            }
            // SAFETY: a field of a live object; programs change the state from one thread at a time.
            unsafe { (*qp).state = c_int::from(attributes.state.code()) };
        }
        Ok(())
    });
    number("ibv_modify_qp", answer)
}

/// The attributes in the device's words. Those that are not given are not looked at.
fn attributes_of(attr: &ibv_qp_attr, mask: u32) -> Answer<(Attributes, Option<AddressVector>)> {
    let given = AttributeMask::from_bits(mask)
        .ok_or_else(|| Refused::invalid(format_args!("unknown attributes in 0x{mask:x}")))?;
    if mask & IBV_QP_ALT_PATH != 0 {
        return Err(Refused::unsupported("alternate paths"));
    }
    let mut attributes = Attributes::new();
    attributes.mask = given;
    if given.contains(AttributeMask::STATE) {
        attributes.state = state_of(attr.qp_state)?;
    }
    if given.contains(AttributeMask::CUR_STATE) {
        attributes.current_state = state_of(attr.cur_qp_state)?;
    }
    if given.contains(AttributeMask::ACCESS_FLAGS) {
        attributes.access = Access::from_bits_truncate(attr.qp_access_flags);
    }
    if mask & IBV_QP_PATH_MTU != 0 {
        let code = u8::try_from(attr.path_mtu).ok();
        attributes.path_mtu = code.and_then(PathMtu::from_code).ok_or_else(|| {
            Refused::invalid(format_args!("path MTU {}: 1 (256) to 5 (4096)", attr.path_mtu))
        })?;
    }
    if given.contains(AttributeMask::PORT) && attr.port_num != 1 {
        return Err(Refused::invalid(format_args!("port {}: the device has one, number 1", attr.port_num)));
    }
    attributes.pkey_index = attr.pkey_index;
    attributes.port = 1;
    attributes.qkey = QKey(attr.qkey);
    attributes.timeout = attr.timeout;
    attributes.retry_count = attr.retry_cnt;
    attributes.rnr_retry = attr.rnr_retry;
    attributes.rq_psn = Psn::new(attr.rq_psn);
    attributes.sq_psn = Psn::new(attr.sq_psn);
    attributes.max_rd_atomic = attr.max_rd_atomic;
    attributes.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    attributes.min_rnr_timer = attr.min_rnr_timer;
    attributes.dest_qpn = Qpn::new(attr.dest_qp_num);
    attributes.notify_drained = attr.en_sqd_async_notify != 0;
    attributes.rate_limit = attr.rate_limit;
    let address = if mask & IBV_QP_AV != 0 { Some(vector_of(&attr.ah_attr)?) } else { None };
    Ok((attributes, address))
}

fn state_of(code: c_int) -> Answer<State> {
    let state = u8::try_from(code).ok().and_then(State::from_code);
    state.ok_or_else(|| Refused::invalid(format_args!("queue pair state {code}")))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live queue pair, or null.
    let known = unsafe { Qp::of(qp) };
    // SAFETY: the caller passes structures of its own to fill, or null.
    let attr = unsafe { filled(attr, "attributes") };
    // SAFETY: as above.
    let init_attr = unsafe { filled(init_attr, "first attributes") };
    let answer = known.and_then(|known| {
        let (attr, init_attr) = (attr?, init_attr?);
        *attr = queried(known)?;
        *init_attr = ibv_qp_init_attr::zero();
        // SAFETY: a live object, whose fields here never change.
        let base = unsafe { &*qp };
        init_attr.qp_context = base.qp_context;
        init_attr.send_cq = base.send_cq;
        init_attr.recv_cq = base.recv_cq;
        init_attr.srq = base.srq;
        init_attr.cap = attr.cap;
        init_attr.qp_type = base.qp_type;
        init_attr.sq_sig_all = c_int::from(known.signal_all);
        // SAFETY: a field of a live object; programs change the state from one thread at a time.
        unsafe { (*qp).state = attr.qp_state };
        Ok(())
    });
    number("ibv_query_qp", answer)
}

fn queried(known: &Qp) -> Answer<ibv_qp_attr> {
    let now = known.qp.query()?;
    let attributes = &now.attributes;
    let mut attr = ibv_qp_attr::zero();
    attr.qp_state = c_int::from(attributes.state.code());
    attr.cur_qp_state = attr.qp_state;
    attr.path_mtu = c_int::from(attributes.path_mtu.code());
    attr.path_mig_state = IBV_MIG_MIGRATED;
    attr.qkey = attributes.qkey.0;
    attr.rq_psn = attributes.rq_psn.get();
    attr.sq_psn = attributes.sq_psn.get();
    attr.dest_qp_num = attributes.dest_qpn.get();
    attr.qp_access_flags = attributes.access.bits();
    attr.cap = cap_of(&now.caps);
    if let Some(address) = &now.address {
        attr.ah_attr = attr_of(address);
    }
    attr.pkey_index = attributes.pkey_index;
    attr.en_sqd_async_notify = u8::from(attributes.notify_drained);
    attr.max_rd_atomic = attributes.max_rd_atomic;
    attr.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
    attr.min_rnr_timer = attributes.min_rnr_timer;
    attr.port_num = 1;
    attr.timeout = attributes.timeout;
    attr.retry_cnt = attributes.retry_count;
    attr.rnr_retry = attributes.rnr_retry;
    attr.rate_limit = attributes.rate_limit;
    attr.sq_draining = u8::from(attributes.draining);
    Ok(attr)
}

/// Bytes of a message come in order, but those of a placement may be seen in any order before its end.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(_: *mut ibv_qp, _: c_int, _: u32) -> c_int {
    0
}
