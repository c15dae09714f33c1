//! Completion queues.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferroce_cabi::{
    IBV_CQ_ATTR_MODERATE, IBV_WC_GRH, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, ibv_comp_channel, ibv_context,
    ibv_cq, ibv_cq_ex, ibv_modify_cq_attr, ibv_wc,
};
use ferroce_device::{CompletionQueue, Notify, Uncancelled};
use ferroce_transport::{Completion, WorkKind};
use ferroce_wire::Qpn;
use libc::{c_int, c_uint, c_void};

use crate::channel::CompChannel;
use crate::context::{Context, object};
use crate::events::{self, Subject};
use crate::fork;
use crate::object::{Acknowledged, Zero, given, seen, taken};
use crate::refusal::{Answer, Refused, number, pointer};

/// A completion queue; all have the extended form.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) c: UnsafeCell<ibv_cq_ex>,
    pub(crate) context: &'static Context,
    pub(crate) generation: u32,
    pub(crate) queue: Arc<CompletionQueue>,
    channel: Option<&'static CompChannel>,
    /// Queue pairs that complete here.
    pub(crate) users: AtomicU32,
    /// Events on the channel.
    pub(crate) completions_told: Acknowledged,
    /// Other events.
    pub(crate) told: Arc<Acknowledged>,
    /// Held between the beginning and the end of extended polling.
    pub(crate) polling: UnsafeCell<libc::pthread_mutex_t>,
    pub(crate) single_threaded: bool,
    /// The completion that extended polling is at; belongs to the thread that polls.
    pub(crate) current: UnsafeCell<Completion>,
}

object!(Cq, ibv_cq, "completion queue");

// SAFETY: the cells belong to the thread that polls, which holds `polling` or has said that it is the only
// one; everything else has locks of its own.
unsafe impl Sync for Cq {}

impl Cq {
    pub(crate) fn as_c(&self) -> *mut ibv_cq {
        self.c.get().cast()
    }

    pub(crate) fn cq_context(&self) -> *mut c_void {
        // SAFETY: a field of a live object, which programs set before they wait for events.
        unsafe { (*self.c.get()).cq_context }
    }
}

/// What a completion queue is made from.
pub(crate) struct Wanted {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) vector: u32,
    pub(crate) single_threaded: bool,
}

/// # Safety
/// `context` and the channel are null, or live objects of this library.
pub(crate) unsafe fn make(context: *mut ibv_context, wanted: &Wanted) -> Answer<&'static Cq> {
    // SAFETY: the caller vouches for it.
    let context = unsafe { Context::of(context) }?;
    let vectors = 1;
    if wanted.vector >= vectors {
        return Err(Refused::invalid(format_args!(
            "vector {}: there is one, with the number 0",
            wanted.vector
        )));
    }
    let channel = if wanted.channel.is_null() {
        None
    } else {
        // SAFETY: the caller vouches for it.
        Some(unsafe { CompChannel::of(wanted.channel) }?)
    };
    let queue = CompletionQueue::new(&context.nic, wanted.cqe, channel.map(|channel| &channel.channel))?;
    context.made_one();
    let mut c = ibv_cq_ex::zero();
    c.context = context.as_c();
    c.channel = wanted.channel;
    c.cq_context = wanted.cq_context;
    c.handle = queue.id().0;
    c.cqe = c_int::try_from(queue.capacity()).unwrap_or(c_int::MAX);
    let cq = given(Cq {
        c: UnsafeCell::new(c),
        context,
        generation: fork::generation(),
        queue,
        channel,
        users: AtomicU32::new(0),
        completions_told: Acknowledged::default(),
        told: Arc::default(),
        polling: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        single_threaded: wanted.single_threaded,
        current: UnsafeCell::new(Completion::EMPTY),
    });
    // SAFETY: it was made just now, and lives until `destroy` takes it back.
    let cq: &'static Cq = unsafe { &*cq };
    let number = cq.queue.id().0;
    events::enroll(&context.nic, Subject::Cq(number), &context.inbox, cq.as_c().addr(), Some(&cq.told));
    if let Some(channel) = channel {
        channel.enroll(number, cq);
        // SAFETY: a field of a live object that only we write.
        unsafe { (*channel.as_c()).refcnt += 1 };
    }
    Ok(cq)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let _whole = Uncancelled::new();
    let wanted = Wanted {
        cqe: u32::try_from(cqe).unwrap_or(0),
        cq_context,
        channel,
        vector: u32::try_from(vector).unwrap_or(u32::MAX),
        single_threaded: false,
    };
    // SAFETY: the caller passes live objects, or null.
    pointer("ibv_create_cq", unsafe { make(context, &wanted) }.map(Cq::as_c))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a queue that it gives up, or null.
    number("ibv_destroy_cq", unsafe { destroy(cq) })
}

/// # Safety
/// As for [`Cq::of`], and no thread uses the queue any more, but to acknowledge events.
unsafe fn destroy(cq: *mut ibv_cq) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let known = unsafe { Cq::of(cq) }?;
    if known.users.load(Ordering::Relaxed) > 0 {
        return Err(Refused::busy("queue pairs still complete into the queue"));
    }
    let number = known.queue.id().0;
    events::strike(&known.context.nic, Subject::Cq(number));
    if let Some(channel) = known.channel {
        channel.strike(number);
        // SAFETY: a field of a live object that only we write.
        unsafe { (*channel.as_c()).refcnt -= 1 };
    }
    known.completions_told.wait();
    known.told.wait();
    known.context.lost_one();
    // SAFETY: the caller gives it up, and all its events are acknowledged.
    drop(unsafe { taken(cq.cast::<Cq>()) });
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live queue, or null.
    let known = unsafe { Cq::of(cq) };
    let answer = known.and_then(|known| {
        known.queue.resize(u32::try_from(cqe).unwrap_or(0))?;
        // SAFETY: a field of a live object; programs resize from one thread at a time.
        unsafe { (*cq).cqe = c_int::try_from(known.queue.capacity()).unwrap_or(c_int::MAX) };
        Ok(())
    });
    number("ibv_resize_cq", answer)
}

/// Puts events off until there are several completions, or some time has passed.
pub(crate) unsafe extern "C" fn modify(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live queue, or null.
    let cq = unsafe { Cq::of(cq) };
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { seen(attr, "attributes") };
    let answer = cq.and_then(|cq| {
        let attr = attr?;
        if attr.attr_mask != IBV_CQ_ATTR_MODERATE {
            return Err(Refused::invalid(format_args!("unknown attributes in 0x{:x}", attr.attr_mask)));
        }
        let period = Duration::from_micros(u64::from(attr.moderate.cq_period));
        Ok(cq.queue.moderate(u32::from(attr.moderate.cq_count), period)?)
    });
    number("ibv_modify_cq", answer)
}

pub(crate) unsafe extern "C" fn request_notification(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller passes a live queue, or null.
    let cq = unsafe { Cq::of(cq) };
    let answer = cq.map(|cq| {
        cq.queue.arm_for_untold(if solicited_only == 0 { Notify::Any } else { Notify::Solicited });
    });
    number("ibv_req_notify_cq", answer)
}

/// Completions that are taken off at once.
const BATCH: usize = 16;

pub(crate) unsafe extern "C" fn poll(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller passes a live queue, or null.
    let Ok(cq) = (unsafe { Cq::of(cq) }) else { return -libc::EINVAL };
    let Ok(wanted) = usize::try_from(count) else { return -libc::EINVAL };
    if wanted == 1 {
        // Programs that poll one at a time poll often.
        let mut one = [Completion::EMPTY; 1];
        let taken = cq.queue.poll(&mut one);
        // SAFETY: the caller vouches for room for `count` completions.
        return unsafe { write_all(&one[..taken], wc) };
    }
    let mut batch = [Completion::EMPTY; BATCH];
    let mut done = 0;
    while done < wanted {
        let room = BATCH.min(wanted - done);
        let taken = cq.queue.poll(&mut batch[..room]);
        // SAFETY: as above; `done` + `taken` <= `count`.
        unsafe { write_all(&batch[..taken], wc.wrapping_add(done)) };
        done += taken;
        if taken < room {
            break;
        }
    }
    c_int::try_from(done).unwrap_or(c_int::MAX)
}

/// Writes completions as C knows them; how many.
///
/// # Safety
/// `to` is valid for writes of that many.
unsafe fn write_all(completions: &[Completion], to: *mut ibv_wc) -> c_int {
    for (index, completion) in completions.iter().enumerate() {
        // SAFETY: the caller vouches for it.
        unsafe { to.wrapping_add(index).write(wc_of(completion)) };
    }
    c_int::try_from(completions.len()).unwrap_or(c_int::MAX)
}

fn wc_of(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.id,
        status: c_int::from(completion.status.code()),
        opcode: c_int::from(completion.kind.code()),
        vendor_err: vendor_error_of(completion),
        byte_len: completion.byte_len,
        imm_data: immediate_of(completion),
        qp_num: completion.qpn.get(),
        src_qp: completion.source_qp.map_or(0, Qpn::get),
        wc_flags: flags_of(completion),
        pkey_index: 0,
        slid: 0,
        sl: kind_of_packet(completion),
        dlid_path_bits: 0,
    }
}

/// Immediate data in network byte order, or the key that was invalidated.
pub(crate) fn immediate_of(completion: &Completion) -> u32 {
    match (completion.imm, completion.invalidated) {
        (Some(imm), _) => imm.to_be(),
        (None, Some(key)) => key.0,
        (None, None) => 0,
    }
}

/// What came with a datagram, in the place of the service level, which Ethernet does not have: as the drivers of cards say
/// it, from whom some programs take it (UCX before 1.19). 0 is a packet of RoCEv1, which never comes.
pub(crate) const fn kind_of_packet(completion: &Completion) -> u8 {
    match (completion.source_qp.is_some(), completion.over_ipv6) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    }
}

/// Which of its fields mean something. All that is received came with a global address, as cards and the kernel's
/// device say; only before a datagram it stands in the buffer too.
pub(crate) const fn flags_of(completion: &Completion) -> c_uint {
    let mut flags = 0;
    if completion.imm.is_some() {
        flags |= IBV_WC_WITH_IMM;
    }
    if completion.invalidated.is_some() {
        flags |= IBV_WC_WITH_INV;
    }
    if completion.is_success() && matches!(completion.kind, WorkKind::Receive | WorkKind::ReceiveWithImm) {
        flags |= IBV_WC_GRH;
    }
    flags
}

/// The code that is behind the status of failed work, 0 if there is none.
pub(crate) fn vendor_error_of(completion: &Completion) -> u32 {
    completion.vendor_code.map_or(0, |code| code.code().into())
}
