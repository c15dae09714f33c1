//! Posting: requests into C's linked lists, a few at a time and without allocating, each with its place in the shadow.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use ferroce_cabi::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use ferroce_sys::sync::{Biased, Guard};
use ferroce_wire::Service;
use libc::c_int;

use crate::domain::Domain;
use crate::error::{CallError, PostWorkError, PostWorkListError};
use crate::handle::{Handle, answered, error_number};
use crate::held::{Held, Queue};
use crate::region::{Piece, Registration};
use crate::shadow::{Pool, Posted, Ring, Tag};

/// Pieces that a request may have, whatever its queue would take.
pub(crate) const MOST_PIECES: u32 = 64;

/// Requests of a list, and the pieces that they have together, that are handed over at once; and how many pieces a single
/// request has at most to take the short way.
const LIST: usize = 16;
const LIST_PIECES: usize = MOST_PIECES as usize;
const ONE_PIECES: usize = 4;

/// The function of a library that takes a list of requests for a queue, and says which it did not take.
pub(crate) type Give<Q, R> = unsafe extern "C" fn(*mut Q, *mut R, *mut *mut R) -> c_int;

/// Where requests are handed over.
pub(crate) struct Door<'a, Q, R> {
    /// What programs know the function by.
    pub(crate) call: &'static str,
    /// That of the context of the queue.
    pub(crate) give: Give<Q, R>,
    pub(crate) queue: &'a Handle<Q>,
}

impl<Q, R> Door<'_, Q, R> {
    /// Hands over a list, whose last request has none after it; if one was not taken: why, and which, if that was said.
    ///
    /// # Safety
    /// The list and its pieces live during the call, and the memory that they name until their work is done.
    #[inline]
    unsafe fn hand_over(&self, first: *mut R) -> Result<(), (CallError, *mut R)> {
        let mut bad = null_mut();
        // SAFETY: a live queue, and a function of its context; the caller answers for the list.
        let answer = unsafe { (self.give)(self.queue.as_ptr(), first, &raw mut bad) };
        answered(self.call, answer).map_err(|error| (error, bad))
    }
}

/// What a queue allows.
#[derive(Clone, Copy)]
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
    /// Says its number, and how many pieces it has.
    fn number(&mut self, id: u64, pieces: c_int);
    /// Puts it into its list: where its pieces are, and which request comes after it. How many pieces it has.
    fn link(&mut self, pieces: *mut ibv_sge, next: *mut Self) -> usize;
}

macro_rules! request {
    ($name:ident) => {
        impl Request for $name {
            #[inline]
            fn number(&mut self, id: u64, pieces: c_int) {
                (self.wr_id, self.num_sge) = (id, pieces);
            }

            #[inline]
            fn link(&mut self, pieces: *mut ibv_sge, next: *mut Self) -> usize {
                (self.sg_list, self.next) = (pieces, next);
                usize::try_from(self.num_sge).unwrap_or(0)
            }
        }
    };
}

request!(ibv_send_wr);
request!(ibv_recv_wr);

/// Where posted work stands until it is done.
pub(crate) trait Shadow {
    /// Gives a request its place; nothing if there is none.
    fn put(&mut self, posted: Posted) -> Option<u32>;
    /// Gives a place to a request that names only what has this key, or nothing, if that is held already; else nothing, and nothing has
    /// changed.
    fn put_known(&mut self, posted: Posted, key: Option<usize>) -> Option<u32>;
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

    #[inline(always)]
    fn put_known(&mut self, posted: Posted, key: Option<usize>) -> Option<u32> {
        self.push_known(posted, key)
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
    fn put_known(&mut self, _: Posted, _: Option<usize>) -> Option<u32> {
        None
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
pub(crate) trait Work: Copy {
    type Request: Request;

    /// The pieces of memory that it names.
    fn pieces(&self) -> &[Piece<'_>];
    /// The bytes that it brings along instead.
    fn inline(&self) -> Option<&[u8]>;
    /// Whether nothing is special about it, but perhaps where it goes.
    fn is_common(&self) -> bool;
    /// Whether it says where it goes.
    fn has_destination(&self) -> bool;
    /// What its completion is to say.
    fn posted(&self) -> Posted;
    /// A request with nothing in it.
    fn empty() -> Self::Request;
    /// Fills it, all but its place in a list, if the queue takes it.
    fn fill(&self, rules: &Rules<'_>, request: &mut Self::Request) -> Result<(), PostWorkError>;
    /// What it keeps alive beside its pieces.
    fn other(&self) -> Option<Held>;
    /// It was taken.
    fn taken(&self);
    /// Whether what follows it goes into another list, and only then it is known whether it was taken.
    fn ends_list(&self) -> bool;
}

/// Nothing is taken, because the call is not made.
#[cold]
pub(crate) fn refused(error: CallError, given: usize) -> PostWorkListError {
    PostWorkListError { taken: 0, given, error: error.into() }
}

/// Posts a request that is like nearly all: of one piece, or inline, of a region that the queue holds already, by the thread that has the
/// habit of the queue. The error number with which the card did not take it, or 0. Any other gets nothing, and nothing has changed then: it
/// goes the [long way](post).
#[inline(always)]
pub(crate) fn post_quickly<W: Work, Q>(
    rules: &Rules<'_>,
    ring: &Biased<Ring<Held>>,
    work: &W,
    door: &Door<'_, Q, W::Request>,
) -> Option<c_int> {
    let (mut sge, count, key) = rules.gather_quickly(work)?;
    let mut request = W::empty();
    work.fill(rules, &mut request).ok()?;
    let mut ring = ring.lock_by_habit()?;
    let place = ring.push_known(work.posted(), key)?;
    request.number(Tag { queue: rules.queue, place }.to_wr_id(), count);
    request.link(&raw mut sge, null_mut());
    let (first, mut bad) = (&raw mut request, null_mut());
    // SAFETY: a live queue and a function of its context, and a list of one, which lives here as its piece does. Inline bytes are
    // borrowed as long; the memory that it names is registered, and stays so until the shadow lets go of it.
    let answer = unsafe { (door.give)(door.queue.as_ptr(), first, &raw mut bad) };
    if answer == 0 {
        return Some(0);
    }
    Some(not_taken(&mut ring, answer, std::ptr::eq(first, bad)))
}

/// What comes of a code that is the whole answer: on the way to here it is a small one.
#[inline(always)]
pub(crate) fn outcome(call: &'static str, code: c_int) -> Result<(), PostWorkError> {
    if code == 0 { Ok(()) } else { Err(CallError { call, code }.into()) }
}

/// The card did not take the last request, or, if it does not say that it was this one, may have taken it. Its error number.
#[cold]
fn not_taken(ring: &mut Ring<Held>, answer: c_int, is_it: bool) -> c_int {
    let code = error_number(answer);
    if is_it {
        ring.take_back(1);
    }
    code
}

/// Posts work in its order. The shadow is locked meanwhile, so that no other work comes between.
#[inline(never)]
pub(crate) fn post<W: Work, Q, S: Shadow>(
    rules: Rules<'_>,
    shadow: &Biased<S>,
    work: &[W],
    door: Door<'_, Q, W::Request>,
) -> Result<(), PostWorkListError> {
    if let [one] = work
        && one.is_common()
        && one.pieces().len() <= ONE_PIECES
    {
        let posted = post_one(&rules, shadow, one, &door);
        return posted.map_err(|error| PostWorkListError { taken: 0, given: 1, error });
    }
    let mut posting = Posting::new(rules, shadow.lock(), door);
    let refused = work.iter().try_for_each(|one| {
        // SAFETY: the inline bytes are borrowed until `finish` has handed the list over.
        unsafe { posting.add(one) }
    });
    let given = work.len();
    posting.finish(refused).map_err(|(taken, error)| PostWorkListError { taken, given, error })
}

/// One request of few pieces of which nothing is special.
#[inline]
fn post_one<W: Work, Q, S: Shadow>(
    rules: &Rules<'_>,
    shadow: &Biased<S>,
    work: &W,
    door: &Door<'_, Q, W::Request>,
) -> Result<(), PostWorkError> {
    // It is filled where it is: work is posted often, and a request is long.
    let mut sges = [const { MaybeUninit::<ibv_sge>::uninit() }; ONE_PIECES];
    let count = rules.gather(work, &mut sges)?;
    let mut request = W::empty();
    work.fill(rules, &mut request)?;
    let mut shadow = shadow.lock();
    let Some(place) = shadow.put(work.posted()) else {
        return Err(PostWorkError::Full { depth: rules.depth });
    };
    hold_all(rules, &mut *shadow, place, work);
    request.number(Tag { queue: rules.queue, place }.to_wr_id(), count);
    request.link(sges.as_mut_ptr().cast(), null_mut());
    let first = &raw mut request;
    // SAFETY: a list of one, which lives here as its pieces do. Inline bytes are borrowed as long; the memory that it names is
    // registered, and stays so until the shadow lets go of it, as do other objects.
    if let Err((error, bad)) = unsafe { door.hand_over(first) } {
        // If it does not say that it was this one, the card may have taken it.
        if std::ptr::eq(first, bad) {
            shadow.undo(&[place]);
        }
        return Err(error.into());
    }
    Ok(())
}

/// Requests that are posted one after the other, many of them at once: lists of C that are put together, each of which is handed over when
/// it is full. Its queue is locked until it is gone.
pub(crate) struct Posting<'a, Q, R: Request, S: Shadow> {
    rules: Rules<'a>,
    shadow: Guard<'a, S>,
    door: Door<'a, Q, R>,
    requests: [MaybeUninit<R>; LIST],
    pieces: [MaybeUninit<ibv_sge>; LIST_PIECES],
    /// The places of the requests in their shadow.
    places: [MaybeUninit<u32>; LIST],
    /// Requests and pieces that are written and not handed over.
    count: usize,
    used: usize,
    /// Requests of the lists before.
    taken: usize,
}

impl<'a, Q, R: Request, S: Shadow> Posting<'a, Q, R, S> {
    #[inline(always)]
    pub(crate) const fn new(rules: Rules<'a>, shadow: Guard<'a, S>, door: Door<'a, Q, R>) -> Self {
        Self {
            rules,
            shadow,
            door,
            requests: [const { MaybeUninit::uninit() }; LIST],
            pieces: [const { MaybeUninit::uninit() }; LIST_PIECES],
            places: [const { MaybeUninit::uninit() }; LIST],
            count: 0,
            used: 0,
            taken: 0,
        }
    }

    /// Adds a request. If it is refused, or a list is that had to go before it, nothing is added any more.
    ///
    /// # Safety
    /// Its inline bytes live until [`finish`](Self::finish) has returned, or this was dropped.
    #[inline(always)]
    pub(crate) unsafe fn add<W: Work<Request = R>>(&mut self, work: &W) -> Result<(), PostWorkError> {
        // By value: so it need not be anywhere on the short way.
        // SAFETY: as the caller says.
        self.add_quickly(work).map_or_else(|| unsafe { self.add_slowly(*work) }, Ok)
    }

    /// The same of one like nearly all; any other gets nothing, and nothing has changed.
    #[inline(always)]
    fn add_quickly<W: Work<Request = R>>(&mut self, work: &W) -> Option<()> {
        let request = self.requests.get_mut(self.count)?;
        let room = self.pieces.get_mut(self.used)?;
        let place_room = self.places.get_mut(self.count)?;
        let (sge, count, key) = self.rules.gather_quickly(work)?;
        room.write(sge);
        let request = request.write(W::empty());
        work.fill(&self.rules, request).ok()?;
        let place = self.shadow.put_known(work.posted(), key)?;
        place_room.write(place);
        request.number(Tag { queue: self.rules.queue, place }.to_wr_id(), count);
        self.used += usize::from(count > 0);
        self.count += 1;
        Some(())
    }

    /// # Safety
    /// As for [`add`](Self::add).
    #[inline(never)]
    unsafe fn add_slowly<W: Work<Request = R>>(&mut self, work: W) -> Result<(), PostWorkError> {
        let work = &work;
        // Inline bytes are one piece, too.
        if self.count == LIST || work.pieces().len() >= LIST_PIECES - self.used {
            self.hand_over()?;
        }
        let count = self.rules.gather(work, &mut self.pieces[self.used..])?;
        let request = self.requests[self.count].write(W::empty());
        work.fill(&self.rules, request)?;
        let Some(place) = self.shadow.put(work.posted()) else {
            return Err(PostWorkError::Full { depth: self.rules.depth });
        };
        self.places[self.count].write(place);
        hold_all(&self.rules, &mut *self.shadow, place, work);
        request.number(Tag { queue: self.rules.queue, place }.to_wr_id(), count);
        self.used += usize::try_from(count).unwrap_or(0);
        self.count += 1;
        if work.ends_list() {
            self.hand_over()?;
            work.taken();
        }
        Ok(())
    }

    /// Hands over what is left, and says how much was taken if not all was: for what reason, or for that which is given.
    pub(crate) fn finish<E: From<PostWorkError>>(
        &mut self,
        refused: Result<(), E>,
    ) -> Result<(), (usize, E)> {
        let left = self.hand_over();
        match (left, refused) {
            (Ok(()), Ok(())) => Ok(()),
            (Ok(()), Err(refused)) => Err((self.taken, refused)),
            (Err(error), _) => Err((self.taken, error.into())),
        }
    }

    /// Hands the list over, if there is one, and begins another.
    fn hand_over(&mut self) -> Result<(), PostWorkError> {
        let count = std::mem::take(&mut self.count);
        self.used = 0;
        if count == 0 {
            return Ok(());
        }
        let first = self.requests.as_mut_ptr().cast::<R>();
        let mut pieces = self.pieces.as_mut_ptr().cast::<ibv_sge>();
        for index in 0..count {
            let at = first.wrapping_add(index);
            let next = if index + 1 < count { at.wrapping_add(1) } else { null_mut() };
            // SAFETY: `add` has written so many requests, and nothing else refers to them.
            let request = unsafe { &mut *at };
            pieces = pieces.wrapping_add(request.link(pieces, next));
        }
        // SAFETY: the requests are linked, and stand here with their pieces. Inline bytes live as long; the memory that they name is
        // registered, and stays so until the shadow lets go of it, as do other objects.
        let Err((error, bad)) = (unsafe { self.door.hand_over(first) }) else {
            self.taken += count;
            return Ok(());
        };
        // Which were taken may not be known: then they keep their places, and what they name, until later work is done.
        if let Some(taken) = (0..count).find(|index| std::ptr::eq(first.wrapping_add(*index), bad)) {
            self.undo(taken, count);
            self.taken += taken;
        }
        Err(error.into())
    }

    /// Takes back these requests of the list, which were put last.
    #[cold]
    fn undo(&mut self, from: usize, to: usize) {
        for place in self.places[from..to].iter().rev() {
            // SAFETY: `add` has written so many.
            let place = unsafe { place.assume_init() };
            self.shadow.undo(&[place]);
        }
    }
}

impl<Q, R: Request, S: Shadow> Drop for Posting<'_, Q, R, S> {
    fn drop(&mut self) {
        // What was not handed over is done by nothing: a panic came between.
        if self.count > 0 {
            self.undo(0, self.count);
        }
    }
}

/// Has a request keep alive what it names: regions once in a row.
#[inline(always)]
fn hold_all<W: Work>(rules: &Rules<'_>, shadow: &mut impl Shadow, place: u32, work: &W) {
    match work.pieces() {
        [] => {}
        [one] => shadow.name(place, &one.region.registration, rules.home),
        more => {
            let mut last = std::ptr::null();
            for piece in more {
                if !std::ptr::eq(piece.region, last) {
                    last = piece.region;
                    shadow.name(place, &piece.region.registration, rules.home);
                }
            }
        }
    }
    if let Some(other) = work.other() {
        shadow.hold(place, other);
    }
}

impl Rules<'_> {
    /// The memory of a request that is like nearly all: its only piece, how many that is, and the key of what is to be kept alive. Any other
    /// gets nothing.
    #[inline(always)]
    fn gather_quickly(&self, work: &impl Work) -> Option<(ibv_sge, c_int, Option<usize>)> {
        if !work.is_common() || work.has_destination() || self.max_pieces == 0 {
            return None;
        }
        match (work.inline(), work.pieces()) {
            (None, [piece]) => {
                let key = Arc::as_ptr(&piece.region.registration).addr();
                Some((self.sge_of(piece).ok()?, 1, Some(key)))
            }
            (Some(bytes), _) => Some((sge_of_bytes(bytes), c_int::from(!bytes.is_empty()), None)),
            (None, _) => None,
        }
    }

    /// The memory of a request, as the library wants it: registered pieces, or inline bytes. How many pieces that is, if the queue
    /// takes so many, and if there is room for them.
    #[inline(always)]
    fn gather(&self, work: &impl Work, to: &mut [MaybeUninit<ibv_sge>]) -> Result<c_int, PostWorkError> {
        let pieces = work.pieces();
        if pieces.len() > self.max_pieces as usize || pieces.len() > to.len() {
            return Err(PostWorkError::ManyPieces { given: pieces.len(), allowed: self.max_pieces });
        }
        if let ([piece], [to, ..]) = (pieces, &mut *to) {
            to.write(self.sge_of(piece)?);
            return Ok(1);
        }
        for (to, piece) in to.iter_mut().zip(pieces) {
            to.write(self.sge_of(piece)?);
        }
        if let Some(bytes) = work.inline()
            && let Some(to) = to.first_mut()
        {
            to.write(sge_of_bytes(bytes));
            return Ok(c_int::from(!bytes.is_empty()));
        }
        Ok(c_int::try_from(pieces.len()).unwrap_or(0))
    }

    /// A piece, if it is one of its region, and that one of the domain of the queue.
    #[inline(always)]
    fn sge_of(&self, piece: &Piece<'_>) -> Result<ibv_sge, PostWorkError> {
        let Piece { region, start, end } = *piece;
        let Registration { domain, lkey, address, len: size, .. } = &*region.registration;
        let (size, length) = (*size, end.wrapping_sub(start));
        match u32::try_from(length) {
            Ok(length) if start <= end && end <= size => {
                if !std::ptr::eq(Arc::as_ptr(domain), Arc::as_ptr(self.domain)) {
                    return Err(PostWorkError::OtherDomain { what: "memory region" });
                }
                Ok(ibv_sge { addr: address.wrapping_add(start as u64), length, lkey: lkey.0 })
            }
            _ => Err(PostWorkError::Outside { start, end, size }),
        }
    }
}

/// Inline bytes, which are not longer than a queue takes.
#[inline(always)]
fn sge_of_bytes(bytes: &[u8]) -> ibv_sge {
    let addr = bytes.as_ptr().expose_provenance() as u64;
    ibv_sge { addr, length: u32::try_from(bytes.len()).unwrap_or(u32::MAX), lkey: 0 }
}
