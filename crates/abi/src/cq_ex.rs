//! Extended completion queues: one completion after the other, and only the fields that are asked for.

use ferroce_cabi::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_STANDARD_FLAGS, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc_tm_info,
};
use ferroce_device::Uncancelled;
use ferroce_transport::Completion;
use ferroce_wire::Qpn;
use libc::{ENOENT, c_int, c_uint};

use crate::cq::{Cq, Wanted, flags_of, immediate_of, kind_of_packet, make};
use crate::object::seen;
use crate::refusal::{Answer, Refused, pointer};

/// What can be asked of a completion here.
const KNOWN: u64 = IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

pub(crate) unsafe extern "C" fn create(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes live objects and attributes of its own, or null.
    pointer("ibv_create_cq_ex", unsafe { create_from(context, attr) })
}

/// # Safety
/// As for [`make`], and `attr` is null or the caller's own.
unsafe fn create_from(context: *mut ibv_context, attr: *const ibv_cq_init_attr_ex) -> Answer<*mut ibv_cq_ex> {
    // SAFETY: the caller vouches for it.
    let attr = unsafe { seen(attr, "attributes") }?;
    if attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 {
        return Err(Refused::unsupported(format_args!("attributes 0x{:x}", attr.comp_mask)));
    }
    if attr.wc_flags & !KNOWN != 0 {
        return Err(Refused::unsupported(format_args!(
            "fields 0x{:x} of completions",
            attr.wc_flags & !KNOWN
        )));
    }
    let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
    let known = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if flags & !known != 0 {
        return Err(Refused::invalid(format_args!("unknown flags 0x{flags:x}")));
    }
    if flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0 {
        return Err(Refused::unsupported("a completion queue that may overrun"));
    }
    let wanted = Wanted {
        cqe: attr.cqe,
        cq_context: attr.cq_context,
        channel: attr.channel,
        vector: attr.comp_vector,
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
    };
    // SAFETY: the caller vouches for it.
    let cq = unsafe { make(context, &wanted) }?;
    let c = cq.c.get();
    // SAFETY: it was made just now, and no other thread knows it.
    fill(unsafe { &mut *c });
    Ok(c)
}

fn fill(c: &mut ibv_cq_ex) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
    c.end_poll = Some(end_poll);
    c.read_opcode = Some(read_opcode);
    c.read_vendor_err = Some(read_vendor_err);
    c.read_byte_len = Some(read_byte_len);
    c.read_imm_data = Some(read_imm_data);
    c.read_qp_num = Some(read_qp_num);
    c.read_src_qp = Some(read_src_qp);
    c.read_wc_flags = Some(read_wc_flags);
    c.read_slid = Some(read_slid);
    c.read_sl = Some(read_sl);
    c.read_dlid_path_bits = Some(read_dlid_path_bits);
    c.read_completion_ts = Some(read_completion_ts);
    c.read_cvlan = Some(read_cvlan);
    c.read_flow_tag = Some(read_flow_tag);
    c.read_tm_info = Some(read_tm_info);
    c.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

unsafe extern "C" fn start_poll(c: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller passes a live queue, or null.
    let Ok(cq) = (unsafe { Cq::of(c.cast()) }) else { return libc::EINVAL };
    // SAFETY: the caller passes attributes of its own, or null.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    if !cq.single_threaded {
        // SAFETY: a lock of a live object; it is released by `end_poll`, or below.
        unsafe { libc::pthread_mutex_lock(cq.polling.get()) };
    }
    let found = advance(cq);
    if found != 0 && !cq.single_threaded {
        // SAFETY: this thread has taken it just now.
        unsafe { libc::pthread_mutex_unlock(cq.polling.get()) };
    }
    found
}

unsafe extern "C" fn next_poll(c: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller passes a live queue, or null.
    unsafe { Cq::of(c.cast()) }.map_or(libc::EINVAL, advance)
}

/// Goes to the next completion, if there is one.
fn advance(cq: &Cq) -> c_int {
    let mut one = [Completion::EMPTY; 1];
    if cq.queue.poll(&mut one) == 0 {
        return ENOENT;
    }
    let completion = &one[0];
    let c = cq.c.get();
    // SAFETY: a field of a live object that belongs to the thread that polls.
    unsafe { (*c).status = c_int::from(completion.status.code()) };
    // SAFETY: as above.
    unsafe { (*c).wr_id = completion.id };
    // SAFETY: as above.
    unsafe { cq.current.get().write(one[0]) };
    0
}

unsafe extern "C" fn end_poll(c: *mut ibv_cq_ex) {
    // SAFETY: the caller passes a live queue, or null.
    if let Ok(cq) = unsafe { Cq::of(c.cast()) }
        && !cq.single_threaded
    {
        // SAFETY: this thread has held it since `start_poll`.
        unsafe { libc::pthread_mutex_unlock(cq.polling.get()) };
    }
}

/// The completion that polling is at.
///
/// # Safety
/// `c` is a live queue that this thread polls.
unsafe fn current(c: *mut ibv_cq_ex) -> Completion {
    // SAFETY: the caller vouches for it.
    let cq = unsafe { &*c.cast::<Cq>() };
    // SAFETY: it belongs to the thread that polls.
    unsafe { *cq.current.get() }
}

/// Functions that read one field.
macro_rules! fields {
    ($($name:ident: $type:ty = $read:expr;)*) => {$(
        unsafe extern "C" fn $name(c: *mut ibv_cq_ex) -> $type {
            let read: fn(&Completion) -> $type = $read;
            // SAFETY: programs call this between the beginning and the end of polling.
            read(&unsafe { current(c) })
        }
    )*};
}

fields! {
    read_opcode: c_int = |completion| c_int::from(completion.kind.code());
    read_vendor_err: u32 = |completion| crate::cq::vendor_error_of(completion);
    read_byte_len: u32 = |completion| completion.byte_len;
    read_imm_data: u32 = immediate_of;
    read_qp_num: u32 = |completion| completion.qpn.get();
    read_src_qp: u32 = |completion| completion.source_qp.map_or(0, Qpn::get);
    read_wc_flags: c_uint = flags_of;
    read_slid: u32 = |_| 0;
    read_sl: u8 = kind_of_packet;
    read_dlid_path_bits: u8 = |_| 0;
    read_cvlan: u16 = |_| 0;
    read_flow_tag: u32 = |_| 0;
}

unsafe extern "C" fn read_completion_ts(c: *mut ibv_cq_ex) -> u64 {
    // SAFETY: programs call this between the beginning and the end of polling.
    unsafe { current(c) }.time.nanos()
}

/// The time of day of a completion: now, less how long ago it was.
unsafe extern "C" fn read_completion_wallclock_ns(c: *mut ibv_cq_ex) -> u64 {
    // SAFETY: programs call this between the beginning and the end of polling.
    let ago = ferroce_device::now().since(unsafe { current(c) }.time);
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a place that lives during the call.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    let now =
        u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0);
    now.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX))
}

/// No tags are matched here.
unsafe extern "C" fn read_tm_info(_: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the caller passes a structure of its own to fill, or null.
    if let Some(info) = unsafe { info.as_mut() } {
        (info.tag, info.r#priv) = (0, 0);
    }
}
