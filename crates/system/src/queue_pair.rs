//! Queue pairs: where work is posted.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_cabi::{
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_WR_ATOMIC_FETCH_AND_ADD, ibv_gid, ibv_mw_bind, ibv_qp,
    ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, send_wr_atomic, send_wr_to,
};
use ferroce_memory::WindowKind;
use ferroce_sys::sync::Biased;
use ferroce_transport::{AttributeMask, Attributes, Caps, SendFlags, State, WorkKind};
use ferroce_wire::{Gid, Qpn, Rkey, Service};
use libc::c_int;

use crate::address::Address;
use crate::attributes::{self, QueuePairState, cap_of, caps_of};
use crate::completion_queue::{CompletionQueue, Cq};
use crate::domain::Domain;
use crate::error::{CallError, MakeError, PostWorkError, PostWorkListError};
use crate::handle::{Handle, Zero, answered};
use crate::held::{Held, Queue, Source};
use crate::post::{self, Door, Give, MOST_PIECES, Posting, Rules};
use crate::region::Piece;
use crate::shadow::{Posted, Ring, Tag};
use crate::shared_receive_queue::{SharedReceiveQueue, Srq};
use crate::window::Binding;
use crate::work::{Bytes, ReceiveWork, SendWork};

/// A queue pair: a send queue, a receive queue, and the protocol between it and its peer.
///
/// It holds its completion queues, its domain and its shared receive queue, so these may be dropped in any order. Dropping it
/// ends it: work under way is forgotten without completions, and lets go of its memory.
pub struct QueuePair {
    domain: Arc<Domain>,
    c: Handle<ibv_qp>,
    qpn: Qpn,
    service: Service,
    caps: Caps,
    sends: Arc<Queue>,
    receives: Receives,
    send_cq: Arc<Cq>,
    receive_cq: Arc<Cq>,
    /// It is in a state that takes no sends, and its library takes them all the same, says that it did not, and sends them later: that
    /// of the kernel's soft device.
    holds_sends: AtomicBool,
    /// The functions of its context, whose table never changes.
    give_send: Option<Give<ibv_qp, ibv_send_wr>>,
    give_receive: Option<Give<ibv_qp, ibv_recv_wr>>,
}

const POST_SEND: &str = "ibv_post_send";

/// Sends that are described one after the other; their inline bytes live for `'a`.
pub struct Sends<'q, 'a> {
    posting: Posting<'q, ibv_qp, ibv_send_wr, Ring<Held>>,
    inline: PhantomData<&'a [u8]>,
}

impl<'a> Sends<'_, 'a> {
    /// Adds a request. After an error nothing more is to be added.
    ///
    /// # Errors
    /// Why it was not taken, or one before it.
    #[inline(always)]
    pub fn add(&mut self, work: &SendWork<'a>) -> Result<(), PostWorkError> {
        // SAFETY: its bytes live for `'a`, and that is longer than the call that this is made in.
        unsafe { self.posting.add(work) }
    }

    /// Adds a request with these pieces instead of its own bytes. They may go as soon as this has returned.
    ///
    /// # Errors
    /// As above.
    #[inline(always)]
    pub fn add_gathered(&mut self, work: &SendWork<'_>, pieces: &[Piece<'_>]) -> Result<(), PostWorkError> {
        // SAFETY: it has no inline bytes.
        unsafe { self.posting.add(&SendWork { bytes: Bytes::Pieces(pieces), ..*work }) }
    }
}

impl fmt::Debug for Sends<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sends").finish_non_exhaustive()
    }
}

/// Where its receives are.
enum Receives {
    Own(Arc<Queue>),
    Shared(Arc<Srq>),
}

/// What a queue pair is made from.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is made until a domain makes it"]
pub struct QueuePairOptions<'a> {
    /// RC, UC or UD.
    pub service: Service,
    /// Where sends complete.
    pub send_cq: &'a CompletionQueue,
    /// Where receives complete.
    pub receive_cq: &'a CompletionQueue,
    /// Where receives are taken from, instead of a queue of its own.
    pub shared_queue: Option<&'a SharedReceiveQueue>,
    /// How large its queues are to be, at least.
    pub caps: Caps,
    /// Whether every send completes, or only those that ask for it.
    pub signal_all: bool,
}

impl<'a> QueuePairOptions<'a> {
    /// Both queues complete into one, and hold 128 requests of 4 pieces.
    pub const fn new(service: Service, completions: &'a CompletionQueue) -> Self {
        let caps =
            Caps { max_send: 128, max_receive: 128, max_send_sge: 4, max_receive_sge: 4, max_inline: 64 };
        let (send_cq, receive_cq) = (completions, completions);
        Self { service, send_cq, receive_cq, shared_queue: None, caps, signal_all: false }
    }
}

impl QueuePair {
    pub(crate) fn new(domain: &Arc<Domain>, options: &QueuePairOptions<'_>) -> Result<Self, MakeError> {
        let open = &domain.open;
        let same = |what, of: &Arc<_>| {
            if Arc::ptr_eq(of, open) { Ok(()) } else { Err(MakeError::OtherCard { what }) }
        };
        domain.c.check("ibv_create_qp")?;
        same("completion queue for sends", &options.send_cq.cq.open)?;
        same("completion queue for receives", &options.receive_cq.cq.open)?;
        let srq = options.shared_queue.map(|queue| &queue.srq);
        if let Some(srq) = srq {
            same("shared receive queue", &srq.domain.open)?;
        }
        let mut init = ibv_qp_init_attr::zero();
        init.send_cq = options.send_cq.cq.c.as_ptr();
        init.recv_cq = options.receive_cq.cq.c.as_ptr();
        init.srq = srq.map_or(std::ptr::null_mut(), |srq| srq.c.as_ptr());
        init.cap = cap_of(&options.caps);
        init.qp_type = match options.service {
            Service::Rc => IBV_QPT_RC,
            Service::Uc => IBV_QPT_UC,
            Service::Ud => IBV_QPT_UD,
            service => return Err(MakeError::OtherService { service }),
        };
        init.sq_sig_all = c_int::from(options.signal_all);
        // SAFETY: a live domain and attributes that live during the call, with live queues of the same context.
        let c = unsafe { (open.library.verbs().ibv_create_qp)(domain.c.as_ptr(), &raw mut init) };
        let c = Handle::made("ibv_create_qp", c)?;
        // What it has is written there, and is at least what was asked for.
        let caps = at_most(caps_of(&init.cap), options.caps);
        // SAFETY: a live queue pair, whose field never changes.
        let qpn = Qpn::new(unsafe { (*c.as_ptr()).qp_num });
        let service = options.service;
        let queue = |depth, pieces: u32| {
            // Beside its pieces, work names an address handle, or a window.
            let ring = Biased::new(Ring::new(depth, pieces.max(1) + 1));
            Arc::new(Queue { number: open.number(), service, ring, has_failed: AtomicBool::new(false) })
        };
        let receives = match srq {
            Some(srq) => Receives::Shared(Arc::clone(srq)),
            None => Receives::Own(queue(caps.max_receive, caps.max_receive_sge)),
        };
        // SAFETY: a live context.
        let ops = unsafe { &raw const (*open.c.as_ptr()).ops };
        // SAFETY: as above.
        let give_send = unsafe { (*ops).post_send };
        // SAFETY: as above.
        let give_receive = unsafe { (*ops).post_recv };
        let made = Self {
            domain: Arc::clone(domain),
            c,
            qpn,
            service,
            caps,
            sends: queue(caps.max_send, caps.max_send_sge),
            receives,
            send_cq: Arc::clone(&options.send_cq.cq),
            receive_cq: Arc::clone(&options.receive_cq.cq),
            holds_sends: AtomicBool::new(open.is_soft),
            give_send,
            give_receive,
        };
        made.attach();
        Ok(made)
    }

    /// Its number.
    #[must_use]
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Its service.
    #[must_use]
    pub const fn service(&self) -> Service {
        self.service
    }

    /// How large its queues are.
    #[must_use]
    pub const fn caps(&self) -> Caps {
        self.caps
    }

    /// Sends that were posted and are not done, as far as this process has polled. Those that asked for no completion are
    /// done with the next one that did.
    #[must_use]
    pub fn sends_under_way(&self) -> usize {
        self.sends.ring.lock().len()
    }

    /// Posts work to the send queue, in its order and with one doorbell for every few of it. Memory that it names stays
    /// registered until it is done. Nothing is allocated.
    ///
    /// # Errors
    /// How much was taken, and why the next was not.
    #[inline]
    pub fn post_send(&self, work: &[SendWork<'_>]) -> Result<(), PostWorkListError> {
        if let [one] = work
            && let Some(code) = self.post_quickly(one)
        {
            let posted = post::outcome(POST_SEND, code);
            return posted.map_err(|error| PostWorkListError { taken: 0, given: 1, error });
        }
        self.post_all(work)
    }

    /// The same of one request.
    ///
    /// # Errors
    /// Why it was not taken.
    #[inline(always)]
    pub fn post_one(&self, work: &SendWork<'_>) -> Result<(), PostWorkError> {
        // By value: so it need not be anywhere on the short way.
        match self.post_quickly(work) {
            Some(code) => post::outcome(POST_SEND, code),
            None => self.post_slowly(*work),
        }
    }

    #[inline(always)]
    fn post_quickly(&self, work: &SendWork<'_>) -> Option<c_int> {
        post::post_quickly(&self.send_rules(), &self.sends.ring, work, &self.send_door().ok()?)
    }

    #[inline(never)]
    fn post_slowly(&self, work: SendWork<'_>) -> Result<(), PostWorkError> {
        self.post_all(&[work]).map_err(|refused| refused.error)
    }

    #[inline(never)]
    fn post_all(&self, work: &[SendWork<'_>]) -> Result<(), PostWorkListError> {
        let door = self.send_door().map_err(|error| post::refused(error, work.len()))?;
        post::post(self.send_rules(), &self.sends.ring, work, door)
    }

    /// Posts work that is described as it is posted, with one doorbell for every few of it. Other threads that post to this queue wait until
    /// `describe` has come back, and it must not use the queue itself.
    ///
    /// # Errors
    /// How much was taken, and why the next was not: what `describe` says, or why the card did not take what was described.
    #[inline]
    pub fn post_described<'a, E: From<PostWorkError>>(
        &self,
        describe: impl FnOnce(&mut Sends<'_, 'a>) -> Result<(), E>,
    ) -> Result<(), (usize, E)> {
        let door = self.send_door().map_err(|error| (0, PostWorkError::from(error).into()))?;
        let posting = Posting::new(self.send_rules(), self.sends.ring.lock(), door);
        let mut sends = Sends { posting, inline: PhantomData };
        let described = describe(&mut sends);
        sends.posting.finish(described)
    }

    /// Where sends are handed over, if they can be.
    #[inline(always)]
    fn send_door(&self) -> Result<Door<'_, ibv_qp, ibv_send_wr>, CallError> {
        let give = self.give_send.ok_or(CallError::unsupported(POST_SEND))?;
        self.c.check(POST_SEND)?;
        if self.holds_sends.load(Ordering::Relaxed) {
            return Err(CallError { call: POST_SEND, code: libc::EINVAL });
        }
        Ok(Door { call: POST_SEND, give, queue: &self.c })
    }

    /// Posts receives, in their order.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    #[inline]
    pub fn post_receive(&self, work: &[ReceiveWork<'_>]) -> Result<(), PostWorkListError> {
        const CALL: &str = "ibv_post_recv";
        let Receives::Own(queue) = &self.receives else {
            return Err(PostWorkListError { taken: 0, given: work.len(), error: PostWorkError::Shared });
        };
        let give =
            self.give_receive.ok_or_else(|| post::refused(CallError::unsupported(CALL), work.len()))?;
        self.c.check(CALL).map_err(|error| post::refused(error, work.len()))?;
        let rules = Rules {
            home: Some(queue),
            queue: queue.number,
            depth: self.caps.max_receive,
            max_pieces: self.caps.max_receive_sge,
            ..self.send_rules()
        };
        let door = Door { call: CALL, give, queue: &self.c };
        let quick = match work {
            [one] => post::post_quickly(&rules, &queue.ring, one, &door),
            _ => None,
        };
        let posted = match quick {
            Some(code) => {
                post::outcome(CALL, code).map_err(|error| PostWorkListError { taken: 0, given: 1, error })
            }
            None => post::post(rules, &queue.ring, work, door),
        };
        if self.domain.open.is_soft
            && [&self.sends, queue].iter().any(|queue| queue.has_failed.load(Ordering::Relaxed))
        {
            self.flush_late();
        }
        posted
    }

    /// Has the kernel's soft device flush receives that were posted in the error state: its library tells it nothing of receives, and it
    /// looks for them when it is put into that state, also when it is in it already.
    #[cold]
    fn flush_late(&self) {
        if self.query().is_ok_and(|known| known.attributes.state == State::Err) {
            // It cannot refuse that; and if it did, it would be as it is without.
            let _ = self.modify_c(&Attributes::to(State::Err), None);
        }
    }

    /// Binds a window of type 1, or closes it, in order with other work, and says the key that it has then. A window of type
    /// 2 is bound by [`post_send`](Self::post_send).
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn bind_window(
        &self,
        id: u64,
        binding: &Binding<'_>,
        flags: SendFlags,
    ) -> Result<Rkey, PostWorkError> {
        const CALL: &str = "ibv_bind_mw";
        // SAFETY: a live context, whose table never changes.
        let bind = unsafe { (*self.domain.open.c.as_ptr()).ops.bind_mw };
        let bind = bind.ok_or(CallError::unsupported(CALL))?;
        self.c.check(CALL)?;
        let rules = self.send_rules();
        rules.check_binding(binding, WindowKind::Type1)?;
        let mut ring = self.sends.ring.lock();
        let posted = Posted { id, kind: WorkKind::BindWindow };
        let full = PostWorkError::Full { depth: rules.depth };
        let place = ring.push(posted).ok_or(full)?;
        ring.hold(binding.to_held());
        let mut c = ibv_mw_bind::zero();
        c.wr_id = Tag { queue: rules.queue, place }.to_wr_id();
        c.send_flags = u32::from(flags.bits());
        c.bind_info = binding.to_c();
        let window = &binding.window.window;
        let bound = window.bound_by(|| {
            // SAFETY: live objects of one domain, which the shadow holds until the work is done, and a structure that lives
            // during the call.
            answered(CALL, unsafe { bind(self.c.as_ptr(), window.c.as_ptr(), &raw mut c) })
        });
        if bound.is_err() {
            ring.take_back(1);
        }
        Ok(bound?)
    }

    /// Changes attributes and state; `address` goes with [`AttributeMask::AV`], whose bit it sets. A queue pair of the
    /// kernel's soft device never tries for ever: seven tries become six. READs under way become a power of two there, and no
    /// more than are given.
    ///
    /// # Errors
    /// What the library says.
    pub fn modify(&self, attributes: &Attributes, address: Option<&Address>) -> Result<(), CallError> {
        let resets = attributes.mask.contains(AttributeMask::STATE) && attributes.state == State::Reset;
        if !resets {
            return self.modify_c(attributes, address);
        }
        self.c.check("ibv_modify_qp")?;
        // The card forgets all work, and no other comes between.
        let mut sends = self.sends.ring.lock();
        let own = if let Receives::Own(queue) = &self.receives { Some(queue.ring.lock()) } else { None };
        self.modify_c(attributes, address)?;
        sends.clear();
        if let Some(mut receives) = own {
            receives.clear();
        }
        Ok(())
    }

    /// Everything that is known of it.
    ///
    /// # Errors
    /// What the library says.
    pub fn query(&self) -> Result<QueuePairState, CallError> {
        self.c.check("ibv_query_qp")?;
        let (mut attr, mut init) = (ibv_qp_attr::zero(), ibv_qp_init_attr::zero());
        let query = self.domain.open.library.verbs().ibv_query_qp;
        // SAFETY: a live queue pair, and structures that live during the call.
        let answer = unsafe { query(self.c.as_ptr(), &raw mut attr, attributes::all(), &raw mut init) };
        answered("ibv_query_qp", answer)?;
        Ok(QueuePairState { caps: self.caps, ..attributes::of_c(&attr) })
    }

    /// Has it get datagrams that are sent to a multicast group, beside its own; `lid` is the group's address in an InfiniBand
    /// network, 0 on Ethernet.
    ///
    /// # Errors
    /// What the library says.
    pub fn attach_to_group(&self, group: Gid, lid: u16) -> Result<(), CallError> {
        self.c.check("ibv_attach_mcast")?;
        let group = ibv_gid { raw: group.0 };
        let attach = self.domain.open.library.verbs().ibv_attach_mcast;
        // SAFETY: a live queue pair, and an address that lives during the call.
        answered("ibv_attach_mcast", unsafe { attach(self.c.as_ptr(), &raw const group, lid) })
    }

    /// Ends that.
    ///
    /// # Errors
    /// What the library says.
    pub fn detach_from_group(&self, group: Gid, lid: u16) -> Result<(), CallError> {
        self.c.check("ibv_detach_mcast")?;
        let group = ibv_gid { raw: group.0 };
        let detach = self.domain.open.library.verbs().ibv_detach_mcast;
        // SAFETY: as above.
        answered("ibv_detach_mcast", unsafe { detach(self.c.as_ptr(), &raw const group, lid) })
    }

    #[inline(always)]
    fn send_rules(&self) -> Rules<'_> {
        Rules {
            domain: &self.domain,
            home: Some(&self.sends),
            service: self.service,
            queue: self.sends.number,
            depth: self.caps.max_send,
            max_pieces: self.caps.max_send_sge,
            max_inline: self.caps.max_inline,
        }
    }

    fn modify_c(&self, attributes: &Attributes, address: Option<&Address>) -> Result<(), CallError> {
        let (mut attr, mask) = attributes::to_c(attributes, address);
        self.modify_as(&mut attr, mask)
    }

    /// Changes what the library of connections wants changed, which is never a reset.
    pub(crate) fn modify_as(&self, attr: &mut ibv_qp_attr, mask: c_int) -> Result<(), CallError> {
        self.c.check("ibv_modify_qp")?;
        let is_soft = self.domain.open.is_soft;
        attributes::for_soft(attr, is_soft);
        let modify = self.domain.open.library.verbs().ibv_modify_qp;
        // SAFETY: a live queue pair, and attributes that live during the call.
        answered("ibv_modify_qp", unsafe { modify(self.c.as_ptr(), attr, mask) })?;
        let mask = AttributeMask::from_bits_truncate(mask.cast_unsigned());
        if mask.contains(AttributeMask::STATE) {
            let state = u8::try_from(attr.qp_state).ok().and_then(State::from_code).unwrap_or_default();
            self.holds_sends.store(is_soft && !state.takes_sends(), Ordering::Relaxed);
            self.sends.has_failed.store(attr.qp_state == c_int::from(State::Err.code()), Ordering::Relaxed);
            if let Receives::Own(queue) = &self.receives {
                queue.has_failed.store(false, Ordering::Relaxed);
            }
        }
        // From RTR it brings its PSN along.
        let goes_on = mask.contains(AttributeMask::STATE) && !mask.contains(AttributeMask::SQ_PSN);
        if is_soft && goes_on && attr.qp_state == c_int::from(State::Rts.code()) {
            self.ring_the_bell();
        }
        Ok(())
    }

    /// Has the kernel's soft device look at the send queue. It forgets to when it leaves SQD: work that was posted before would wait
    /// for work that is posted later. Its library rings the bell after each list, also after one that it refuses, such as an
    /// atomic of no bytes on an odd address.
    #[cold]
    fn ring_the_bell(&self) {
        let mut wrong = ibv_send_wr::zero();
        wrong.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        let atomic = send_wr_atomic { remote_addr: 1, compare_add: 0, swap: 0, rkey: 0 };
        wrong.wr = send_wr_to { atomic };
        let mut bad = std::ptr::null_mut();
        if let Some(give) = self.give_send {
            let _alone = self.sends.ring.lock();
            // SAFETY: a live queue pair, and a list of one without pieces that lives during the call.
            unsafe { give(self.c.as_ptr(), &raw mut wrong, &raw mut bad) };
        }
    }

    fn sources(&self) -> (Source, Source) {
        let receives = match &self.receives {
            Receives::Own(queue) => Source::Receives(Arc::clone(queue)),
            Receives::Shared(srq) => Source::Shared(Arc::clone(&srq.shadow)),
        };
        (Source::Sends(Arc::clone(&self.sends)), receives)
    }

    fn attach(&self) {
        let (sends, receives) = self.sources();
        self.send_cq.with_members(|members| members.add(&sends));
        self.receive_cq.with_members(|members| {
            members.add(&receives);
            if let Receives::Shared(_) = self.receives {
                members.add_service(self.qpn, self.service, self.sends.number);
            }
        });
    }

    fn detach(&self) {
        let (sends, receives) = self.sources();
        self.send_cq.with_members(|members| members.remove(&sends));
        self.receive_cq.with_members(|members| {
            members.remove(&receives);
            members.remove_service(self.qpn, self.sends.number);
        });
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({} {})", self.service.name(), self.qpn)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        if let Receives::Shared(_) = self.receives {
            // What the card has done with receives of the shared queue is told before its queue pair is forgotten.
            let _ = self.modify_c(&Attributes::to(State::Err), None);
        }
        let qpn = self.qpn;
        self.receive_cq.keep(matches!(self.receives, Receives::Shared(_)), qpn);
        self.send_cq.keep(false, qpn);
        let open = &self.domain.open;
        // SAFETY: the queue pair is live, and nothing uses it any more.
        let answer = unsafe { (open.library.verbs().ibv_destroy_qp)(self.c.as_ptr()) };
        let is_gone = answered("ibv_destroy_qp", answer).is_ok();
        self.detach();
        if !is_gone {
            // The card may still work on what it was given, so all of that stays for good.
            self.give_up();
            return;
        }
        // Nothing else has its queues any more, so what they kept alive goes with them.
        if let Receives::Own(queue) = &self.receives {
            open.give_back(queue.number);
        }
        open.give_back(self.sends.number);
    }
}

impl QueuePair {
    /// Keeps what the queue pair uses for the life of the process.
    fn give_up(&self) {
        std::mem::forget(self.sources());
        std::mem::forget([Arc::clone(&self.send_cq), Arc::clone(&self.receive_cq)]);
        std::mem::forget(Arc::clone(&self.domain));
        if let Receives::Shared(srq) = &self.receives {
            std::mem::forget(Arc::clone(srq));
        }
    }
}

/// What a card says that it has, where it says it, within what is possible here.
fn at_most(has: Caps, asked: Caps) -> Caps {
    Caps {
        max_send: has.max_send.max(asked.max_send),
        max_receive: has.max_receive.max(asked.max_receive),
        max_send_sge: has.max_send_sge.max(asked.max_send_sge).min(MOST_PIECES),
        max_receive_sge: has.max_receive_sge.max(asked.max_receive_sge).min(MOST_PIECES),
        max_inline: has.max_inline,
    }
}
