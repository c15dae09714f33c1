//! The extended way to post: a request is put together call by call, and several are posted at once.

use ferroce_cabi::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_WRITE,
    IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge,
};
use ferroce_device::Limits;
use ferroce_transport::{Data, DatagramDest, PostError, Remote, SendFlags, SendOp, SendRequest, Sge};
use ferroce_wire::{Imm, Rkey, Service};
use libc::{c_int, c_void};

use crate::post::{copy_inline, dest_of, flags_of, sge_of};
use crate::qp::Qp;
use crate::refusal::{Answer, Refused};
use crate::window;

/// Requests that are being put together. The memory is kept for the next time.
#[derive(Default)]
pub(crate) struct Building {
    requests: Vec<Pending>,
    pieces: Vec<Sge>,
    bytes: Vec<u8>,
    /// The first mistake: then nothing is posted.
    mistake: Option<Refused>,
}

struct Pending {
    id: u64,
    op: SendOp,
    flags: SendFlags,
    dest: Option<DatagramDest>,
    contents: Contents,
}

enum Contents {
    Pieces(usize, usize),
    Inline(usize, usize),
}

/// What UC and UD know beside what they share; RC knows everything.
const UD: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
const UC: u64 = UD | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
const RC: u64 = UC
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_ATOMIC_WRITE;

/// Whether a queue pair of this service can have these operations.
pub(crate) fn check_operations(service: Service, wanted: u64) -> Answer<()> {
    let known = match service {
        Service::Ud => UD,
        Service::Uc => UC,
        _ => RC,
    };
    match wanted & !known {
        0 => Ok(()),
        unknown => Err(Refused::unsupported(format_args!("operations 0x{unknown:x} on {}", service.name()))),
    }
}

/// Inline bytes that these operations need by themselves: the value of an atomic write travels in its
/// request.
pub(crate) fn inline_for(operations: Option<u64>) -> u32 {
    if operations.is_some_and(|wanted| wanted & IBV_QP_EX_WITH_ATOMIC_WRITE != 0) { 8 } else { 0 }
}

pub(crate) fn fill(c: &mut ibv_qp_ex) {
    c.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(atomic_fetch_add);
    c.wr_bind_mw = Some(bind_mw);
    c.wr_local_inv = Some(local_inv);
    c.wr_rdma_read = Some(rdma_read);
    c.wr_rdma_write = Some(rdma_write);
    c.wr_rdma_write_imm = Some(rdma_write_imm);
    c.wr_send = Some(send);
    c.wr_send_imm = Some(send_imm);
    c.wr_send_inv = Some(send_inv);
    c.wr_send_tso = Some(send_tso);
    c.wr_set_ud_addr = Some(set_ud_addr);
    c.wr_set_xrc_srqn = Some(set_xrc_srqn);
    c.wr_set_inline_data = Some(set_inline_data);
    c.wr_set_inline_data_list = Some(set_inline_data_list);
    c.wr_set_sge = Some(set_sge);
    c.wr_set_sge_list = Some(set_sge_list);
    c.wr_start = Some(start);
    c.wr_complete = Some(complete);
    c.wr_abort = Some(abort);
    c.wr_atomic_write = Some(atomic_write);
}

/// The queue pair that a program posts to, and what it has put together so far.
///
/// # Safety
/// `c` is a live extended queue pair, and this thread has called `wr_start` on it.
unsafe fn at_work<'a>(c: *mut ibv_qp_ex) -> (&'a Qp, &'a mut Building) {
    // SAFETY: the caller vouches for it.
    let qp = unsafe { &*c.cast::<Qp>() };
    // SAFETY: it belongs to the thread that holds `posting`, which `wr_start` took.
    let building = unsafe { &mut *qp.building.get() };
    (qp, building)
}

unsafe extern "C" fn start(c: *mut ibv_qp_ex) {
    // SAFETY: the caller passes a live queue pair.
    let qp = unsafe { &*c.cast::<Qp>() };
    // SAFETY: a lock of a live object, which `wr_complete` or `wr_abort` releases.
    unsafe { libc::pthread_mutex_lock(qp.posting.get()) };
    // SAFETY: from here on it belongs to this thread.
    unsafe { &mut *qp.building.get() }.clear();
}

unsafe extern "C" fn abort(c: *mut ibv_qp_ex) {
    // SAFETY: the caller passes a live queue pair that it has called `wr_start` on.
    let (qp, building) = unsafe { at_work(c) };
    building.clear();
    // SAFETY: this thread has held it since `wr_start`.
    unsafe { libc::pthread_mutex_unlock(qp.posting.get()) };
}

unsafe extern "C" fn complete(c: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller passes a live queue pair that it has called `wr_start` on.
    let (qp, building) = unsafe { at_work(c) };
    let answer = crate::fork::check(qp.generation).and_then(|()| building.post(qp));
    building.clear();
    // SAFETY: this thread has held it since `wr_start`.
    unsafe { libc::pthread_mutex_unlock(qp.posting.get()) };
    crate::refusal::number("ibv_wr_complete", answer)
}

impl Building {
    fn clear(&mut self) {
        self.requests.clear();
        self.pieces.clear();
        self.bytes.clear();
        self.mistake = None;
    }

    fn fail(&mut self, refused: Refused) {
        self.mistake.get_or_insert(refused);
    }

    /// Posts all of it, or nothing.
    fn post(&mut self, qp: &Qp) -> Answer<()> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        let requests = self.requests.iter().map(|pending| SendRequest {
            id: pending.id,
            op: pending.op,
            data: match pending.contents {
                Contents::Pieces(start, end) => Data::Gather(&self.pieces[start..end]),
                Contents::Inline(start, end) => Data::Inline(&self.bytes[start..end]),
            },
            flags: pending.flags,
            dest: pending.dest,
        });
        qp.qp.post_all_sends(requests).map_err(|refused| refused.error)?;
        Ok(())
    }
}

/// Begins a request.
///
/// # Safety
/// As for [`at_work`].
unsafe fn begin<'a>(c: *mut ibv_qp_ex, op: SendOp) -> &'a mut Building {
    // SAFETY: the caller vouches for it.
    let (_, building) = unsafe { at_work(c) };
    // SAFETY: a field that the program sets before it begins a request, in the same thread.
    let id = unsafe { (*c).wr_id };
    // SAFETY: as above.
    let flags = flags_of(unsafe { (*c).wr_flags });
    let at = building.pieces.len();
    let contents = Contents::Pieces(at, at);
    building.requests.push(Pending { id, op, flags, dest: None, contents });
    building
}

unsafe extern "C" fn atomic_cmp_swp(c: *mut ibv_qp_ex, rkey: u32, address: u64, compare: u64, swap: u64) {
    let remote = Remote { address, rkey: Rkey(rkey) };
    // SAFETY: programs call this between `wr_start` and `wr_complete`.
    unsafe { begin(c, SendOp::CompareSwap { remote, compare, swap }) };
}

unsafe extern "C" fn atomic_fetch_add(c: *mut ibv_qp_ex, rkey: u32, address: u64, add: u64) {
    let remote = Remote { address, rkey: Rkey(rkey) };
    // SAFETY: as above.
    unsafe { begin(c, SendOp::FetchAdd { remote, add }) };
}

unsafe extern "C" fn bind_mw(c: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: the caller passes a structure of its own.
    let info = unsafe { crate::object::seen(info, "bind information") };
    // SAFETY: the caller passes live objects.
    match info.and_then(|info| unsafe { window::bind_of(mw, rkey, info) }) {
        Ok(op) => {
            // SAFETY: as above.
            unsafe { begin(c, op) };
        }
        Err(refused) => {
            // SAFETY: as above.
            unsafe { at_work(c) }.1.fail(refused);
        }
    }
}

unsafe extern "C" fn local_inv(c: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: as above.
    unsafe { begin(c, SendOp::LocalInvalidate(Rkey(rkey))) };
}

unsafe extern "C" fn rdma_read(c: *mut ibv_qp_ex, rkey: u32, address: u64) {
    // SAFETY: as above.
    unsafe { begin(c, SendOp::Read(Remote { address, rkey: Rkey(rkey) })) };
}

unsafe extern "C" fn rdma_write(c: *mut ibv_qp_ex, rkey: u32, address: u64) {
    // SAFETY: as above.
    unsafe { begin(c, SendOp::Write(Remote { address, rkey: Rkey(rkey) })) };
}

unsafe extern "C" fn rdma_write_imm(c: *mut ibv_qp_ex, rkey: u32, address: u64, imm: u32) {
    let remote = Remote { address, rkey: Rkey(rkey) };
    // SAFETY: as above.
    unsafe { begin(c, SendOp::WriteImm(remote, Imm(u32::from_be(imm)))) };
}

unsafe extern "C" fn send(c: *mut ibv_qp_ex) {
    // SAFETY: as above.
    unsafe { begin(c, SendOp::Send) };
}

unsafe extern "C" fn send_imm(c: *mut ibv_qp_ex, imm: u32) {
    // SAFETY: as above.
    unsafe { begin(c, SendOp::SendImm(Imm(u32::from_be(imm)))) };
}

unsafe extern "C" fn send_inv(c: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: as above.
    unsafe { begin(c, SendOp::SendInvalidate(Rkey(rkey))) };
}

unsafe extern "C" fn send_tso(c: *mut ibv_qp_ex, _: *mut c_void, _: u16, _: u16) {
    // SAFETY: as above.
    unsafe { at_work(c) }.1.fail(Refused::unsupported("segmentation offload"));
}

/// The eight bytes are given by their address and taken along.
unsafe extern "C" fn atomic_write(c: *mut ibv_qp_ex, rkey: u32, address: u64, value: *const c_void) {
    // SAFETY: as above.
    let building = unsafe { begin(c, SendOp::AtomicWrite(Remote { address, rkey: Rkey(rkey) })) };
    // SAFETY: the caller passes eight bytes of its own.
    unsafe { building.add_inline(&[(value.addr() as u64, 8)], 8) };
}

unsafe extern "C" fn set_ud_addr(c: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: as above.
    let (_, building) = unsafe { at_work(c) };
    // SAFETY: the caller passes a live handle, or null.
    match unsafe { dest_of(ah, qpn, qkey) } {
        Ok(dest) => {
            if let Some(pending) = building.requests.last_mut() {
                pending.dest = Some(dest);
            }
        }
        Err(refused) => building.fail(refused),
    }
}

unsafe extern "C" fn set_xrc_srqn(c: *mut ibv_qp_ex, _: u32) {
    // SAFETY: as above.
    unsafe { at_work(c) }.1.fail(Refused::unsupported("XRC"));
}

impl Building {
    fn add_pieces(&mut self, pieces: &[ibv_sge]) {
        let start = self.pieces.len();
        self.pieces.extend(pieces.iter().map(sge_of));
        let end = self.pieces.len();
        if let Some(pending) = self.requests.last_mut() {
            pending.contents = Contents::Pieces(start, end);
        }
    }

    /// Copies inline data together.
    ///
    /// # Safety
    /// The ranges, by address and length, can be read.
    unsafe fn add_inline(&mut self, ranges: &[(u64, usize)], allowed: usize) {
        let len = ranges.iter().fold(0_usize, |sum, (_, len)| sum.saturating_add(*len));
        if len > allowed {
            let allowed = u32::try_from(allowed).unwrap_or(u32::MAX);
            return self.fail(PostError::InlineTooLong { given: len, allowed }.into());
        }
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        let mut at = start;
        for &(address, len) in ranges {
            // SAFETY: the caller vouches for the memory.
            at += unsafe { copy_inline(&mut self.bytes[at..], address, len) };
        }
        if let Some(pending) = self.requests.last_mut() {
            pending.contents = Contents::Inline(start, at);
        }
    }
}

unsafe extern "C" fn set_inline_data(c: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: programs call this between `wr_start` and `wr_complete`.
    let (qp, building) = unsafe { at_work(c) };
    // SAFETY: the caller passes memory of its own.
    unsafe { building.add_inline(&[(addr.addr() as u64, length)], qp.caps.max_inline as usize) };
}

unsafe extern "C" fn set_inline_data_list(c: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    // SAFETY: as above.
    let (qp, building) = unsafe { at_work(c) };
    let allowed = qp.caps.max_inline as usize;
    if count > Limits::INLINE as usize || (count > 0 && list.is_null()) {
        return building.fail(Refused::invalid(format_args!("{count} inline buffers at {list:p}")));
    }
    let list = if count == 0 {
        &[]
    } else {
        // SAFETY: the caller passes a list of its own of this length.
        unsafe { std::slice::from_raw_parts(list, count) }
    };
    let ranges: Vec<(u64, usize)> = list.iter().map(|buf| (buf.addr.addr() as u64, buf.length)).collect();
    // SAFETY: the caller passes memory of its own.
    unsafe { building.add_inline(&ranges, allowed) };
}

unsafe extern "C" fn set_sge(c: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: as above.
    let (_, building) = unsafe { at_work(c) };
    building.add_pieces(&[ibv_sge { addr, length, lkey }]);
}

unsafe extern "C" fn set_sge_list(c: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: as above.
    let (qp, building) = unsafe { at_work(c) };
    if count > qp.caps.max_send_sge as usize || (count > 0 && list.is_null()) {
        let allowed = qp.caps.max_send_sge;
        return building.fail(PostError::TooManyPieces { given: count, allowed }.into());
    }
    if count > 0 {
        // SAFETY: the caller passes a list of its own of this length.
        building.add_pieces(unsafe { std::slice::from_raw_parts(list, count) });
    }
}
