//! Posting: requests into C's linked lists, a few at a time and without allocating, each with its place in the shadow.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use ferroce_cabi::{
    IBV_SEND_INLINE, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE,
    IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_recv_wr, ibv_send_wr, ibv_sge,
    send_wr_atomic, send_wr_bind, send_wr_rdma, send_wr_to, send_wr_ud,
};
use ferroce_memory::WindowKind;
use ferroce_transport::{Remote, WorkKind};
use ferroce_wire::Service;
use libc::c_int;

use crate::domain::Domain;
use crate::error::{CallError, PostWorkError, PostWorkListError};
use crate::handle::{Zero, answered};
use crate::held::{Held, Queue};
use crate::region::{Piece, Registration};
use crate::shadow::{Pool, Posted, Ring, Tag};
use crate::window::Binding;
use crate::work::{Bytes, Operation, ReceiveWork, SendWork};

/// Pieces that a request may have, whatever its queue would take.
pub(crate) const MOST_PIECES: u32 = 64;

/// Requests of a list, and the pieces that they have together, that are handed over at once; and how many pieces a single
/// request has at most to take the short way.
const LIST: usize = 16;
const LIST_PIECES: usize = MOST_PIECES as usize;
const ONE_PIECES: usize = 4;

/// What a queue allows.
pub(crate) struct Rules<'a> {
    pub(crate) domain: &'a Arc<Domain>,
    /// The queue, if it is one whose work ends in order.
    pub(crate) home: Option<&'a Arc<Queue>>,
    pub(crate) service: Service,
    pub(crate) queue: u32,
    pub(crate) depth: u32,
    pub(crate) max_pieces: u32,
    pub(crate) max_inline: u32,
}

/// A C request, which can stand in a list of such.
pub(crate) trait Request: Copy {
    /// How many pieces it has.
    fn pieces(&self) -> usize;
    /// Puts it into its list: where its pieces are, and which request comes after it.
    fn finish(&mut self, pieces: *mut ibv_sge, next: *mut Self);
}

macro_rules! request {
    ($name:ident) => {
        impl Request for $name {
            fn pieces(&self) -> usize {
                usize::try_from(self.num_sge).unwrap_or(0)
            }

            fn finish(&mut self, pieces: *mut ibv_sge, next: *mut Self) {
                (self.sg_list, self.next) = (pieces, next);
            }
        }
    };
}

request!(ibv_send_wr);
request!(ibv_recv_wr);

/// A list of C requests that is put together.
pub(crate) struct List<R> {
    requests: [MaybeUninit<R>; LIST],
    pieces: [MaybeUninit<ibv_sge>; LIST_PIECES],
    /// The places of the requests in their shadow.
    places: [u32; LIST],
    /// Requests and pieces that are written.
    count: usize,
    used: usize,
}

impl<R: Request> List<R> {
    #[inline]
    const fn new() -> Self {
        Self {
            requests: [const { MaybeUninit::uninit() }; LIST],
            pieces: [const { MaybeUninit::uninit() }; LIST_PIECES],
            places: [0; LIST],
            count: 0,
            used: 0,
        }
    }

    /// Whether another request with so many pieces fits.
    #[inline]
    const fn has_room(&self, pieces: usize) -> bool {
        self.count < LIST && pieces <= LIST_PIECES - self.used
    }

    /// Adds a request, for which there is room, with as many pieces as it says.
    #[inline]
    fn add(&mut self, place: u32, request: R, pieces: impl Iterator<Item = ibv_sge>) {
        for (to, piece) in self.pieces[self.used..].iter_mut().zip(pieces) {
            to.write(piece);
        }
        self.used += request.pieces();
        self.requests[self.count].write(request);
        self.places[self.count] = place;
        self.count += 1;
    }

    /// Hands the list to `post`, which gets its beginning and a place for the request that was not taken. If one was not:
    /// why, and which, if that was said in a way that can be trusted.
    #[inline]
    fn hand_over(
        &mut self,
        call: &'static str,
        post: impl FnOnce(*mut R, *mut *mut R) -> c_int,
    ) -> Result<(), (CallError, Option<usize>)> {
        if self.count == 0 {
            return Ok(());
        }
        let first = self.requests.as_mut_ptr().cast::<R>();
        let mut pieces = self.pieces.as_mut_ptr().cast::<ibv_sge>();
        for index in 0..self.count {
            let at = first.wrapping_add(index);
            let next = if index + 1 < self.count { at.wrapping_add(1) } else { null_mut() };
            // SAFETY: `add` has written so many requests, and nothing else refers to them.
            let request = unsafe { &mut *at };
            request.finish(pieces, next);
            pieces = pieces.wrapping_add(request.pieces());
        }
        let mut bad = null_mut();
        answered(call, post(first, &raw mut bad)).map_err(|error| {
            let index = (0..self.count).find(|index| std::ptr::eq(first.wrapping_add(*index), bad));
            (error, index)
        })
    }
}

/// Where posted work stands until it is done.
pub(crate) trait Shadow {
    /// Gives a request its place; nothing if there is none.
    fn put(&mut self, posted: Posted) -> Option<u32>;
    /// Has the request that was put last, at this place, keep a region alive. `home` is the queue that this is the shadow of.
    fn name(&mut self, place: u32, region: &Arc<Registration>, home: Option<&Arc<Queue>>);
    /// Has the request that was put last, at this place, keep an object alive.
    fn hold(&mut self, place: u32, hold: Held);
    /// Takes back the requests that were put last, which are at these places.
    fn undo(&mut self, places: &[u32]);
}

impl Shadow for Ring<Held> {
    #[inline]
    fn put(&mut self, posted: Posted) -> Option<u32> {
        self.push(posted)
    }

    #[inline]
    fn name(&mut self, _: u32, region: &Arc<Registration>, home: Option<&Arc<Queue>>) {
        let is_new = Self::name(self, Arc::as_ptr(region).addr(), || Held::Region(Arc::clone(region)));
        if is_new {
            region.is_named_in(home);
        }
    }

    #[inline]
    fn hold(&mut self, _: u32, hold: Held) {
        Self::hold(self, hold);
    }

    fn undo(&mut self, places: &[u32]) {
        self.take_back(places.len());
    }
}

impl Shadow for Pool<Held> {
    #[inline]
    fn put(&mut self, posted: Posted) -> Option<u32> {
        self.insert(posted)
    }

    #[inline]
    fn name(&mut self, place: u32, region: &Arc<Registration>, _: Option<&Arc<Queue>>) {
        Self::hold(self, place, Held::Region(Arc::clone(region)));
    }

    #[inline]
    fn hold(&mut self, place: u32, hold: Held) {
        Self::hold(self, place, hold);
    }

    fn undo(&mut self, places: &[u32]) {
        for place in places {
            self.remove(*place, drop);
        }
    }
}

/// A request of a program, which becomes one of C.
pub(crate) trait Work {
    type Request: Request;

    /// The pieces of memory that it names.
    fn pieces(&self) -> &[Piece<'_>];
    /// What its completion is to say.
    fn posted(&self) -> Posted;
    /// A request with nothing in it.
    fn empty() -> Self::Request;
    /// Fills it, all but its number and its links, if the queue takes it.
    fn fill(&self, rules: &Rules<'_>, request: &mut Self::Request) -> Result<(), PostWorkError>;
    fn set_id(request: &mut Self::Request, id: u64);
    /// What it keeps alive beside its pieces.
    fn other(&self) -> Option<Held>;
    /// The memory that goes with it: registered pieces, or inline bytes.
    fn sges(&self) -> impl Iterator<Item = ibv_sge>;
    /// It was taken.
    fn taken(&self);
    /// Whether what follows it goes into another list.
    fn ends_list(&self) -> bool;
}

/// Nothing is taken, because the call is not made.
#[cold]
pub(crate) fn refused(error: CallError, given: usize) -> PostWorkListError {
    PostWorkListError { taken: 0, given, error: error.into() }
}

/// Posts work in its order by `call`. The shadow is locked meanwhile, so that no other work comes between.
#[inline]
pub(crate) fn post<W: Work>(
    rules: &Rules<'_>,
    shadow: &mut impl Shadow,
    work: &[W],
    call: &'static str,
    mut hand: impl FnMut(*mut W::Request, *mut *mut W::Request) -> c_int,
) -> Result<(), PostWorkListError> {
    if let [one] = work
        && one.pieces().len() <= ONE_PIECES
    {
        let posted = post_one(rules, shadow, one, call, hand);
        return posted.map_err(|error| PostWorkListError { taken: 0, given: 1, error });
    }
    let given = work.len();
    let mut taken = 0;
    while taken < given {
        let (posted, refused) = post_some(rules, shadow, &work[taken..], call, &mut hand);
        taken += posted;
        if let Some(error) = refused {
            return Err(PostWorkListError { taken, given, error });
        }
    }
    Ok(())
}

/// The short way for one request of a few pieces.
#[inline]
fn post_one<W: Work>(
    rules: &Rules<'_>,
    shadow: &mut impl Shadow,
    work: &W,
    call: &'static str,
    hand: impl FnOnce(*mut W::Request, *mut *mut W::Request) -> c_int,
) -> Result<(), PostWorkError> {
    let pieces = work.pieces();
    rules.check(pieces)?;
    // It is filled where it is: work is posted often, and a request is long.
    let mut request = W::empty();
    work.fill(rules, &mut request)?;
    let full = PostWorkError::Full { depth: rules.depth };
    let place = shadow.put(work.posted()).ok_or(full)?;
    hold_all(rules, shadow, place, work);
    W::set_id(&mut request, Tag { queue: rules.queue, place }.to_wr_id());
    let mut sges = [const { MaybeUninit::<ibv_sge>::uninit() }; ONE_PIECES];
    for (to, sge) in sges.iter_mut().zip(work.sges()) {
        to.write(sge);
    }
    request.finish(sges.as_mut_ptr().cast(), null_mut());
    let (first, mut bad) = (&raw mut request, null_mut());
    if let Err(error) = answered(call, hand(first, &raw mut bad)) {
        // If it does not say that it was this one, the card may have taken it.
        if std::ptr::eq(first, bad) {
            shadow.undo(&[place]);
        }
        return Err(error.into());
    }
    work.taken();
    Ok(())
}

/// Posts as much of some work as fits one list: how much was taken, and why the next was not, if it was refused.
fn post_some<W: Work>(
    rules: &Rules<'_>,
    shadow: &mut impl Shadow,
    work: &[W],
    call: &'static str,
    hand: &mut impl FnMut(*mut W::Request, *mut *mut W::Request) -> c_int,
) -> (usize, Option<PostWorkError>) {
    let mut list = List::<W::Request>::new();
    let mut refused = None;
    for one in work.iter().take(LIST) {
        let mut request = W::empty();
        if let Err(error) = rules.check(one.pieces()).and_then(|()| one.fill(rules, &mut request)) {
            refused = Some(error);
            break;
        }
        if !list.has_room(request.pieces()) {
            break;
        }
        let Some(place) = shadow.put(one.posted()) else {
            refused = Some(PostWorkError::Full { depth: rules.depth });
            break;
        };
        hold_all(rules, shadow, place, one);
        W::set_id(&mut request, Tag { queue: rules.queue, place }.to_wr_id());
        list.add(place, request, one.sges());
        if one.ends_list() {
            break;
        }
    }
    let count = list.count;
    let (taken, error) = match list.hand_over(call, hand) {
        Ok(()) => (count, refused),
        Err((error, Some(taken))) => {
            shadow.undo(&list.places[taken..count]);
            (taken, Some(error.into()))
        }
        // Which were taken is not known: they keep their places, and what they name, until later work is done.
        Err((error, None)) => (0, Some(error.into())),
    };
    work.iter().take(taken).for_each(W::taken);
    (taken, error)
}

/// Has a request keep alive what it names: regions once in a row.
#[inline]
fn hold_all<W: Work>(rules: &Rules<'_>, shadow: &mut impl Shadow, place: u32, work: &W) {
    let mut last = std::ptr::null();
    for piece in work.pieces() {
        if !std::ptr::eq(piece.region, last) {
            last = piece.region;
            shadow.name(place, &piece.region.registration, rules.home);
        }
    }
    if let Some(other) = work.other() {
        shadow.hold(place, other);
    }
}

impl Rules<'_> {
    /// Whether the queue takes these pieces.
    #[inline]
    fn check(&self, pieces: &[Piece<'_>]) -> Result<(), PostWorkError> {
        if pieces.len() > self.max_pieces as usize {
            return Err(PostWorkError::ManyPieces { given: pieces.len(), allowed: self.max_pieces });
        }
        for Piece { region, start, end } in pieces {
            let (start, end, size) = (*start, *end, region.len());
            if start > end || end > size || u32::try_from(end - start).is_err() {
                return Err(PostWorkError::Outside { start, end, size });
            }
            if !Arc::ptr_eq(&region.registration.domain, self.domain) {
                return Err(PostWorkError::OtherDomain { what: "memory region" });
            }
        }
        Ok(())
    }
}

/// A piece as the library wants it. Its length was checked.
#[inline]
fn sge_of(piece: &Piece<'_>) -> ibv_sge {
    ibv_sge {
        addr: piece.region.address().wrapping_add(piece.start as u64),
        length: u32::try_from(piece.end.saturating_sub(piece.start)).unwrap_or(u32::MAX),
        lkey: piece.region.lkey().0,
    }
}

impl Work for SendWork<'_> {
    type Request = ibv_send_wr;

    #[inline]
    fn pieces(&self) -> &[Piece<'_>] {
        match self.bytes {
            Bytes::Pieces(pieces) if !self.operation.is_local() => pieces,
            _ => &[],
        }
    }

    #[inline]
    fn posted(&self) -> Posted {
        Posted { id: self.id, kind: self.operation.kind() }
    }

    #[inline]
    fn empty() -> ibv_send_wr {
        ibv_send_wr::zero()
    }

    #[inline]
    fn fill(&self, rules: &Rules<'_>, request: &mut ibv_send_wr) -> Result<(), PostWorkError> {
        request.send_flags = u32::from(self.flags.bits());
        if self.operation.is_local() {
            return self.fill_local(rules, request);
        }
        match self.bytes {
            Bytes::Pieces(pieces) => request.num_sge = c_int::try_from(pieces.len()).unwrap_or(0),
            Bytes::Inline(_) if self.operation.has_answer() => return Err(PostWorkError::InlineAnswer),
            Bytes::Inline(bytes) => {
                let (given, allowed) = (bytes.len(), rules.max_inline);
                if given > allowed as usize {
                    return Err(PostWorkError::LongInline { given, allowed });
                }
                request.num_sge = c_int::from(given > 0);
                request.send_flags |= IBV_SEND_INLINE;
            }
        }
        self.fill_operation(request);
        match (self.destination, rules.service) {
            (Some(to), Service::Ud) => {
                if !Arc::ptr_eq(&to.address.ah.domain, rules.domain) {
                    return Err(PostWorkError::OtherDomain { what: "address handle" });
                }
                let (ah, remote_qpn) = (to.address.ah.c.as_ptr(), to.qpn.get());
                request.wr = send_wr_to { ud: send_wr_ud { ah, remote_qpn, remote_qkey: to.qkey.0 } };
            }
            (None, Service::Ud) | (Some(_), _) => return Err(PostWorkError::Destination),
            (None, _) => {}
        }
        Ok(())
    }

    #[inline]
    fn set_id(request: &mut ibv_send_wr, id: u64) {
        request.wr_id = id;
    }

    #[inline]
    fn other(&self) -> Option<Held> {
        match (self.operation, self.destination) {
            (Operation::Bind(binding), _) => Some(binding.to_held()),
            (_, Some(to)) => Some(Held::Address(Arc::clone(&to.address.ah))),
            _ => None,
        }
    }

    #[inline]
    fn sges(&self) -> impl Iterator<Item = ibv_sge> {
        let inline = match self.bytes {
            Bytes::Inline(bytes) if !bytes.is_empty() => Some(ibv_sge {
                addr: bytes.as_ptr().expose_provenance() as u64,
                length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                lkey: 0,
            }),
            _ => None,
        };
        Work::pieces(self).iter().map(sge_of).chain(inline)
    }

    #[inline]
    fn taken(&self) {
        if let Operation::Bind(binding) = self.operation {
            binding.window.window.posted(binding.key);
        }
    }

    /// What follows the binding of a window may name the window again, by the key that it has then.
    #[inline]
    fn ends_list(&self) -> bool {
        matches!(self.operation, Operation::Bind(_))
    }
}

impl SendWork<'_> {
    /// The operation, but for where a datagram goes.
    #[inline]
    fn fill_operation(&self, request: &mut ibv_send_wr) {
        let to = |remote: Remote| send_wr_to {
            rdma: send_wr_rdma { remote_addr: remote.address, rkey: remote.rkey.0 },
        };
        let at = |remote: Remote, compare_add, swap| send_wr_to {
            atomic: send_wr_atomic { remote_addr: remote.address, compare_add, swap, rkey: remote.rkey.0 },
        };
        match self.operation {
            Operation::Send => request.opcode = IBV_WR_SEND,
            Operation::SendImm(imm) => {
                (request.opcode, request.imm_data) = (IBV_WR_SEND_WITH_IMM, imm.to_be());
            }
            Operation::SendInvalidate(key) => {
                (request.opcode, request.imm_data) = (IBV_WR_SEND_WITH_INV, key.0);
            }
            Operation::Write(remote) => (request.opcode, request.wr) = (IBV_WR_RDMA_WRITE, to(remote)),
            Operation::WriteImm(remote, imm) => {
                (request.opcode, request.wr) = (IBV_WR_RDMA_WRITE_WITH_IMM, to(remote));
                request.imm_data = imm.to_be();
            }
            Operation::Read(remote) => (request.opcode, request.wr) = (IBV_WR_RDMA_READ, to(remote)),
            Operation::CompareSwap { remote, compare, swap } => {
                (request.opcode, request.wr) = (IBV_WR_ATOMIC_CMP_AND_SWP, at(remote, compare, swap));
            }
            Operation::FetchAdd { remote, add } => {
                (request.opcode, request.wr) = (IBV_WR_ATOMIC_FETCH_AND_ADD, at(remote, add, 0));
            }
            Operation::AtomicWrite(remote) => {
                (request.opcode, request.wr) = (IBV_WR_ATOMIC_WRITE, to(remote));
            }
            Operation::LocalInvalidate(key) => (request.opcode, request.imm_data) = (IBV_WR_LOCAL_INV, key.0),
            Operation::Bind(_) => request.opcode = IBV_WR_BIND_MW,
        }
    }

    fn fill_local(&self, rules: &Rules<'_>, request: &mut ibv_send_wr) -> Result<(), PostWorkError> {
        self.fill_operation(request);
        if let Operation::Bind(binding) = self.operation {
            rules.check_binding(&binding, WindowKind::Type2)?;
            let mw = binding.window.window.c.as_ptr();
            request.bind_mw = send_wr_bind { mw, rkey: binding.key.0, bind_info: binding.to_c() };
        }
        Ok(())
    }
}

impl Rules<'_> {
    /// Whether a binding of a window of this kind may be posted here.
    pub(crate) fn check_binding(&self, binding: &Binding<'_>, kind: WindowKind) -> Result<(), PostWorkError> {
        if binding.window.kind() != kind {
            return Err(PostWorkError::OtherWay);
        }
        if !Arc::ptr_eq(&binding.window.window.domain, self.domain) {
            return Err(PostWorkError::OtherDomain { what: "memory window" });
        }
        match binding.part {
            Some((region, ..)) if !Arc::ptr_eq(&region.registration.domain, self.domain) => {
                Err(PostWorkError::OtherDomain { what: "memory region" })
            }
            _ => Ok(()),
        }
    }
}

impl Work for ReceiveWork<'_> {
    type Request = ibv_recv_wr;

    #[inline]
    fn pieces(&self) -> &[Piece<'_>] {
        self.pieces
    }

    #[inline]
    fn posted(&self) -> Posted {
        Posted { id: self.id, kind: WorkKind::Receive }
    }

    #[inline]
    fn empty() -> ibv_recv_wr {
        ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 }
    }

    #[inline]
    fn fill(&self, _: &Rules<'_>, request: &mut ibv_recv_wr) -> Result<(), PostWorkError> {
        request.num_sge = c_int::try_from(self.pieces.len()).unwrap_or(0);
        Ok(())
    }

    #[inline]
    fn set_id(request: &mut ibv_recv_wr, id: u64) {
        request.wr_id = id;
    }

    fn other(&self) -> Option<Held> {
        None
    }

    #[inline]
    fn sges(&self) -> impl Iterator<Item = ibv_sge> {
        self.pieces.iter().map(sge_of)
    }

    fn taken(&self) {}

    fn ends_list(&self) -> bool {
        false
    }
}
