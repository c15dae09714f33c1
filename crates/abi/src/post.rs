//! Posting work: C's linked lists into requests of the device, a few at a time and without allocating.

use std::ptr::null_mut;

use ferroce_cabi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
    ibv_ah, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq,
};
use ferroce_device::Limits;
use ferroce_device::memory::copy_in;
use ferroce_transport::{
    Data, DatagramDest, PostError, PostListError, ReceiveRequest, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use ferroce_wire::{Imm, Lkey, QKey, Qpn, Rkey, Service};
use libc::{c_int, c_uint};

use crate::address::Ah;
use crate::qp::Qp;
use crate::refusal::{Answer, Refused};
use crate::srq::Srq;
use crate::window;

/// Requests that are handed to the device at once.
const BATCH: usize = 8;
/// Pieces that they may have together; one request alone may have as many.
const PIECES: usize = Limits::SGE as usize;
/// Inline bytes that they may have together; one request alone may have as many.
const INLINE: usize = Limits::INLINE as usize;

const NO_REQUEST: SendRequest<'static> =
    SendRequest { id: 0, op: SendOp::Send, data: Data::Gather(&[]), flags: SendFlags::empty(), dest: None };

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller passes a live queue pair, or null.
    let known = unsafe { Qp::of(qp) };
    // SAFETY: the caller passes a list of its own.
    match known.map_err(|refused| (wr, refused)).and_then(|qp| unsafe { post_list(qp, wr) }) {
        Ok(()) => 0,
        Err((bad, refused)) => {
            // SAFETY: the caller passes a place of its own to fill, or null.
            if let Some(place) = unsafe { bad_wr.as_mut() } {
                *place = bad;
            }
            refused.tell("ibv_post_send")
        }
    }
}

/// Posts a list, and says at which request it failed.
///
/// # Safety
/// `wr` is null or a list as the manual page describes it.
unsafe fn post_list(qp: &Qp, mut wr: *mut ibv_send_wr) -> Result<(), (*mut ibv_send_wr, Refused)> {
    while !wr.is_null() {
        // SAFETY: the caller vouches for the list.
        wr = unsafe { post_some(qp, wr) }?;
    }
    Ok(())
}

/// Posts the beginning of a list, and returns its rest. Whatever stands before a request that cannot be is
/// posted, as the manual page says: programs count on everything before `bad_wr`.
///
/// # Safety
/// `first` is a list as the manual page describes it.
unsafe fn post_some(
    qp: &Qp,
    first: *mut ibv_send_wr,
) -> Result<*mut ibv_send_wr, (*mut ibv_send_wr, Refused)> {
    let mut places = [null_mut(); BATCH];
    let mut wr = first;
    let mut count = 0;
    let (mut pieces, mut used) = ([Sge::default(); PIECES], 0);
    let mut ends = [0; BATCH];
    let mut any_inline = false;
    let mut refused = None;
    while count < BATCH && !wr.is_null() {
        // SAFETY: the caller vouches for the list.
        let work = unsafe { &*wr };
        // SAFETY: the caller vouches for the pieces.
        let sges = match unsafe { pieces_of(work.sg_list, work.num_sge) } {
            Ok(sges) => sges,
            Err(why) => {
                refused = Some(why);
                break;
            }
        };
        if used + sges.len() > PIECES {
            break;
        }
        for (to, sge) in pieces[used..].iter_mut().zip(sges) {
            *to = sge_of(sge);
        }
        used += sges.len();
        any_inline |= work.send_flags & IBV_SEND_INLINE != 0;
        (places[count], ends[count]) = (wr, used);
        count += 1;
        wr = work.next;
    }
    let mut batch = Batch { qp, places: &places[..count], ends: &ends, pieces: &pieces[..used] };
    let posted = if any_inline {
        // SAFETY: the caller vouches for the memory of inline requests.
        unsafe { batch.post_with_inline() }
    } else {
        // SAFETY: the caller vouches for the list.
        unsafe { batch.post(None) }
    }?;
    match refused {
        // Those before it had no room together: it is come to again.
        _ if posted < count => Ok(places[posted]),
        Some(refused) => Err((wr, refused)),
        None => Ok(wr),
    }
}

/// The pieces of a request, if there are as many as there may be.
///
/// # Safety
/// `list` points to `count` pieces.
unsafe fn pieces_of<'a>(list: *const ibv_sge, count: c_int) -> Answer<&'a [ibv_sge]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= PIECES && !list.is_null() => {
            // SAFETY: the caller vouches for it.
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        _ => Err(Refused::invalid(format_args!("{count} pieces at {list:p}: at most {PIECES} are possible"))),
    }
}

pub(crate) const fn sge_of(sge: &ibv_sge) -> Sge {
    Sge { address: sge.addr, length: sge.length, lkey: Lkey(sge.lkey) }
}

/// Some requests of a list, with their pieces.
struct Batch<'a> {
    qp: &'a Qp,
    places: &'a [*mut ibv_send_wr],
    /// Where the pieces of each end.
    ends: &'a [usize; BATCH],
    pieces: &'a [Sge],
}

impl Batch<'_> {
    fn pieces_of(&self, index: usize) -> &[Sge] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.pieces[start..self.ends[index]]
    }

    /// Copies inline data together, then posts. How many were posted: those whose data had room.
    ///
    /// # Safety
    /// The list is as the manual page describes it, and the memory of inline requests can be read.
    unsafe fn post_with_inline(&mut self) -> Result<usize, (*mut ibv_send_wr, Refused)> {
        let mut bytes = [0; INLINE];
        let mut used = 0;
        let mut ends = [0; BATCH];
        let mut refused = None;
        for (index, &place) in self.places.iter().enumerate() {
            // SAFETY: the caller vouches for the list.
            let inline = unsafe { (*place).send_flags } & IBV_SEND_INLINE != 0;
            let pieces = if inline { self.pieces_of(index) } else { &[] };
            let len: usize = pieces.iter().map(|piece| piece.length as usize).sum();
            // A queue pair without pieces of its own has room for one, as cards do.
            let allowed = self.qp.caps.max_send_sge.max(1);
            if pieces.len() > allowed as usize {
                let error = PostError::TooManyPieces { given: pieces.len(), allowed };
                refused = Some((place, error.into()));
                self.places = &self.places[..index];
                break;
            }
            if len > self.qp.caps.max_inline as usize {
                let error = PostError::InlineTooLong { given: len, allowed: self.qp.caps.max_inline };
                refused = Some((place, error.into()));
                self.places = &self.places[..index];
                break;
            }
            if used + len > INLINE {
                self.places = &self.places[..index];
                break;
            }
            for piece in pieces {
                // SAFETY: the caller vouches for the memory.
                used += unsafe { copy_inline(&mut bytes[used..], piece.address, piece.length as usize) };
            }
            ends[index] = used;
        }
        // SAFETY: the caller vouches for the list.
        let posted = unsafe { self.post(Some((&bytes, &ends))) }?;
        refused.map_or(Ok(posted), Err)
    }

    /// Posts; how many.
    ///
    /// # Safety
    /// The list is as the manual page describes it.
    unsafe fn post(
        &self,
        inline: Option<(&[u8; INLINE], &[usize; BATCH])>,
    ) -> Result<usize, (*mut ibv_send_wr, Refused)> {
        let mut requests = [NO_REQUEST; BATCH];
        for (index, &place) in self.places.iter().enumerate() {
            // SAFETY: the caller vouches for the list.
            let work = unsafe { &*place };
            let data = match inline {
                Some((bytes, ends)) if work.send_flags & IBV_SEND_INLINE != 0 => {
                    let start = if index == 0 { 0 } else { ends[index - 1] };
                    Data::Inline(&bytes[start..ends[index]])
                }
                _ => Data::Gather(self.pieces_of(index)),
            };
            // SAFETY: as above.
            let request = unsafe { request_of(self.qp.qp.service(), work, data) };
            match request {
                Ok(request) => requests[index] = request,
                Err(refused) => return self.hand_over(&requests[..index]).and(Err((place, refused))),
            }
        }
        self.hand_over(&requests[..self.places.len()])
    }

    fn hand_over(&self, requests: &[SendRequest<'_>]) -> Result<usize, (*mut ibv_send_wr, Refused)> {
        match self.qp.qp.post_send(requests) {
            Ok(()) => Ok(requests.len()),
            Err(refused) => Err((self.places[refused.taken], refused.error.into())),
        }
    }
}

/// Copies bytes of the program; how many.
///
/// # Safety
/// `len` bytes can be read at `address`, unless there are none.
pub(crate) unsafe fn copy_inline(to: &mut [u8], address: u64, len: usize) -> usize {
    let from = std::ptr::with_exposed_provenance::<u8>(usize::try_from(address).unwrap_or(0));
    // It may be registered, and a peer may write it just now.
    // SAFETY: the caller vouches for the source.
    unsafe { copy_in(from, &mut to[..len]) };
    len
}

pub(crate) fn flags_of(flags: c_uint) -> SendFlags {
    let mut known = SendFlags::empty();
    known.set(SendFlags::FENCE, flags & IBV_SEND_FENCE != 0);
    known.set(SendFlags::SIGNALED, flags & IBV_SEND_SIGNALED != 0);
    known.set(SendFlags::SOLICITED, flags & IBV_SEND_SOLICITED != 0);
    known
}

/// # Safety
/// `ah` is null or a live handle.
pub(crate) unsafe fn dest_of(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Answer<DatagramDest> {
    // SAFETY: the caller vouches for it.
    let handle = unsafe { Ah::of(ah) }?;
    Ok(DatagramDest { handle: handle.handle.number(), qpn: Qpn::new(qpn), qkey: QKey(qkey) })
}

/// A request in the device's words.
///
/// # Safety
/// Pointers inside of it are to live objects.
unsafe fn request_of<'a>(service: Service, work: &ibv_send_wr, data: Data<'a>) -> Answer<SendRequest<'a>> {
    let imm = Imm(u32::from_be(work.imm_data));
    // SAFETY: every form is made of numbers and pointers; which one the program has filled is told by the
    // opcode.
    let rdma = unsafe { work.wr.rdma };
    let remote = Remote { address: rdma.remote_addr, rkey: Rkey(rdma.rkey) };
    // SAFETY: as above.
    let atomic = unsafe { work.wr.atomic };
    let word = Remote { address: atomic.remote_addr, rkey: Rkey(atomic.rkey) };
    let op = match work.opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm(imm),
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate(Rkey(work.imm_data)),
        IBV_WR_RDMA_WRITE => SendOp::Write(remote),
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm(remote, imm),
        IBV_WR_RDMA_READ => SendOp::Read(remote),
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            SendOp::CompareSwap { remote: word, compare: atomic.compare_add, swap: atomic.swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd { remote: word, add: atomic.compare_add },
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite(remote),
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate(Rkey(work.imm_data)),
        IBV_WR_BIND_MW => {
            // SAFETY: the caller vouches for the objects of a bind.
            unsafe { window::bind_of(work.bind_mw.mw, work.bind_mw.rkey, &work.bind_mw.bind_info) }?
        }
        other => return Err(Refused::invalid(format_args!("opcode {other} of a send request"))),
    };
    let data = if op.is_local() { Data::Gather(&[]) } else { data };
    let dest = if service == Service::Ud {
        // SAFETY: as above.
        let ud = unsafe { work.wr.ud };
        // SAFETY: the caller vouches for the handle.
        Some(unsafe { dest_of(ud.ah, ud.remote_qpn, ud.remote_qkey) }?)
    } else {
        None
    };
    Ok(SendRequest { id: work.wr_id, op, data, flags: flags_of(work.send_flags), dest })
}

pub(crate) unsafe extern "C" fn post_receive(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller passes a live queue pair, or null.
    let qp = unsafe { Qp::of(qp) };
    // SAFETY: the caller passes a list of its own.
    let answer = unsafe { post_receives(qp, wr, |qp, requests| qp.qp.post_receive(requests)) };
    // SAFETY: the caller passes a place of its own to fill, or null.
    unsafe { tell_receives("ibv_post_recv", answer, bad_wr) }
}

pub(crate) unsafe extern "C" fn post_shared(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller passes a live queue, or null.
    let srq = unsafe { Srq::of(srq) };
    // SAFETY: the caller passes a list of its own.
    let answer = unsafe { post_receives(srq, wr, |srq, requests| srq.queue.post(requests)) };
    // SAFETY: the caller passes a place of its own to fill, or null.
    unsafe { tell_receives("ibv_post_srq_recv", answer, bad_wr) }
}

/// # Safety
/// `bad_wr` is null or a place to fill.
unsafe fn tell_receives(
    function: &str,
    answer: Result<(), (*mut ibv_recv_wr, Refused)>,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    match answer {
        Ok(()) => 0,
        Err((bad, refused)) => {
            // SAFETY: the caller vouches for it.
            if let Some(place) = unsafe { bad_wr.as_mut() } {
                *place = bad;
            }
            refused.tell(function)
        }
    }
}

/// Posts a list of receives with `post`, and says at which it failed.
///
/// # Safety
/// `wr` is null or a list as the manual page describes it.
unsafe fn post_receives<T>(
    queue: Answer<&T>,
    mut wr: *mut ibv_recv_wr,
    post: impl Fn(&T, &[ReceiveRequest<'_>]) -> Result<(), PostListError>,
) -> Result<(), (*mut ibv_recv_wr, Refused)> {
    let queue = queue.map_err(|refused| (wr, refused))?;
    while !wr.is_null() {
        let mut places = [null_mut(); BATCH];
        let (mut pieces, mut used) = ([Sge::default(); PIECES], 0);
        let (mut ids, mut ends) = ([0; BATCH], [0; BATCH]);
        let mut count = 0;
        let mut refused = None;
        while count < BATCH && !wr.is_null() {
            // SAFETY: the caller vouches for the list.
            let work = unsafe { &*wr };
            // SAFETY: the caller vouches for the pieces.
            let sges = match unsafe { pieces_of(work.sg_list, work.num_sge) } {
                Ok(sges) => sges,
                Err(why) => {
                    refused = Some((wr, why));
                    break;
                }
            };
            if used + sges.len() > PIECES {
                break;
            }
            for (to, sge) in pieces[used..].iter_mut().zip(sges) {
                *to = sge_of(sge);
            }
            used += sges.len();
            (places[count], ids[count], ends[count]) = (wr, work.wr_id, used);
            count += 1;
            wr = work.next;
        }
        let mut requests = [ReceiveRequest { id: 0, sges: &[] }; BATCH];
        for index in 0..count {
            let start = if index == 0 { 0 } else { ends[index - 1] };
            requests[index] = ReceiveRequest { id: ids[index], sges: &pieces[start..ends[index]] };
        }
        // What stands before one that cannot be is posted, as for sends.
        post(queue, &requests[..count]).map_err(|refused| (places[refused.taken], refused.error.into()))?;
        if let Some(refused) = refused {
            return Err(refused);
        }
    }
    Ok(())
}
