//! Shared receive queues.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_cabi::{
    IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC, ibv_context,
    ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use ferroce_device::{SharedQueue, Uncancelled};
use libc::{c_int, c_void};

use crate::context::object;
use crate::domain::Pd;
use crate::events::{self, Subject};
use crate::fork;
use crate::object::{Acknowledged, Zero, filled, given, seen, taken};
use crate::refusal::{Answer, Refused, number, pointer};

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: UnsafeCell<ibv_srq>,
    pd: &'static Pd,
    pub(crate) generation: u32,
    pub(crate) queue: Arc<SharedQueue>,
    /// Queue pairs that take from it.
    pub(crate) users: AtomicU32,
    pub(crate) told: Arc<Acknowledged>,
    limit: AtomicU32,
}

object!(Srq, ibv_srq, "shared receive queue");

/// # Safety
/// `pd` is null or a live domain.
unsafe fn make(pd: *mut ibv_pd, context: *mut c_void, attr: &mut ibv_srq_attr) -> Answer<*mut ibv_srq> {
    // SAFETY: the caller vouches for it.
    let domain = unsafe { Pd::of(pd) }?;
    let nic = &domain.context.nic;
    // A queue without pieces takes messages without bytes; it has room for one all the same.
    let queue = SharedQueue::new(nic, domain.domain, attr.max_wr, attr.max_sge.max(1))?;
    domain.context.made_one();
    (attr.max_wr, attr.max_sge) = (queue.depth(), queue.max_sge());
    let mut c = ibv_srq::zero();
    c.context = domain.context.as_c();
    c.srq_context = context;
    c.pd = pd;
    c.handle = queue.id().0;
    let number = queue.id().0;
    let srq = given(Srq {
        c: UnsafeCell::new(c),
        pd: domain,
        generation: fork::generation(),
        queue,
        users: AtomicU32::new(0),
        told: Arc::default(),
        limit: AtomicU32::new(0),
    });
    // SAFETY: it was made just now.
    let made = unsafe { &*srq };
    let inbox = &domain.context.inbox;
    events::enroll(nic, Subject::Srq(number), inbox, srq.addr(), Some(&made.told));
    Ok(made.c.get())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { filled(attr, "attributes") };
    // SAFETY: the caller passes a live domain, or null.
    let answer = attr.and_then(|attr| unsafe { make(pd, attr.srq_context, &mut attr.attr) });
    pointer("ibv_create_srq", answer)
}

pub(crate) unsafe extern "C" fn create_extended(
    _: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = attr.and_then(|attr| {
        let typed = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0;
        if typed && attr.srq_type != IBV_SRQT_BASIC {
            return Err(Refused::unsupported(format_args!(
                "shared receive queues of type {}",
                attr.srq_type
            )));
        }
        if attr.comp_mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) != 0 {
            return Err(Refused::unsupported(format_args!("attributes 0x{:x}", attr.comp_mask)));
        }
        let has_pd = attr.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0;
        let pd = if has_pd { attr.pd } else { std::ptr::null_mut() };
        // SAFETY: the caller passes a live domain, or null.
        unsafe { make(pd, attr.srq_context, &mut attr.attr) }
    });
    pointer("ibv_create_srq_ex", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live queue, or null.
    let srq = unsafe { Srq::of(srq) };
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { seen(attr, "attributes") };
    let answer = srq.and_then(|srq| {
        let attr = attr?;
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(Refused::invalid(format_args!("unknown attributes in 0x{mask:x}")));
        }
        if mask & IBV_SRQ_MAX_WR != 0 {
            srq.queue.resize(attr.max_wr)?;
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            srq.queue.set_limit(attr.srq_limit)?;
            srq.limit.store(attr.srq_limit, Ordering::Relaxed);
        }
        Ok(())
    });
    number("ibv_modify_srq", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live queue, or null.
    let srq = unsafe { Srq::of(srq) };
    // SAFETY: the caller passes a structure of its own to fill, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = srq.and_then(|srq| {
        *attr? = ibv_srq_attr {
            max_wr: srq.queue.depth(),
            max_sge: srq.queue.max_sge(),
            srq_limit: srq.limit.load(Ordering::Relaxed),
        };
        Ok(())
    });
    number("ibv_query_srq", answer)
}

/// Only XRC gives shared queues numbers that peers use.
pub(crate) unsafe extern "C" fn number_of(srq: *mut ibv_srq, to: *mut u32) -> c_int {
    let _whole = Uncancelled::new();
    let _ = (srq, to);
    number("ibv_get_srq_num", Err(Refused::unsupported("numbers of shared receive queues")))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a queue that it gives up, or null.
    number("ibv_destroy_srq", unsafe { destroy(srq) })
}

/// # Safety
/// As for [`Srq::of`], and no thread uses the queue any more, but to acknowledge events.
unsafe fn destroy(srq: *mut ibv_srq) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let known = unsafe { Srq::of(srq) }?;
    if known.users.load(Ordering::Relaxed) > 0 {
        return Err(Refused::busy("queue pairs still take from the queue"));
    }
    events::strike(&known.pd.context.nic, Subject::Srq(known.queue.id().0));
    known.told.wait();
    known.pd.context.lost_one();
    // SAFETY: the caller gives it up, and all its events are acknowledged.
    drop(unsafe { taken(srq.cast::<Srq>()) });
    Ok(())
}
