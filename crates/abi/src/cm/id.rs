//! Ids: what a program calls one end of a connection, or a listener.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ferroce_cabi::cm::{
    RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, ibv_sa_path_rec, rdma_cm_event, rdma_cm_id,
    rdma_event_channel, rdma_ib_addr,
};
use ferroce_cabi::{
    IBV_QPT_RC, IBV_QPT_UD, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_srq,
};
use ferroce_device::Uncancelled;
use ferroce_device::cm::Asked;
use ferroce_transport::cm::Request;
use ferroce_wire::mad::{CommId, SidrRep, SidrStatus};
use ferroce_wire::{Gid, Psn};
use libc::sockaddr_storage;

use super::address::written;
use super::attr::Terms;
use super::channel::{Channel, Pending, Raw};
use super::devices::CmDevice;
use super::ep::Endpoint;
use super::handles;
use super::multicast::Join;
use super::ports::{Binding, MOST_WAITING};
use super::questions::Questions;
use super::route;
use super::sync;
use crate::fork;
use crate::object::{Acknowledged, filled, lock};
use crate::refusal::{Answer, Refused, minus_one};

/// An id. The program's part comes first; the rest is reached through the table of what lives.
#[repr(C)]
pub(crate) struct Id {
    c: UnsafeCell<rdma_cm_id>,
    pub(crate) space: c_int,
    pub(crate) qp_type: c_int,
    /// A peer asked for it.
    pub(crate) passive: bool,
    /// What we expect first, as the peer is told.
    pub(crate) psn: Psn,
    pub(crate) state: Mutex<State>,
    /// The channel that hears of it. Held while something is put into the channel, so that it can move.
    home: Mutex<Arc<Channel>>,
    /// Its channel is its own, and calls wait for what comes of them.
    pub(crate) sync: AtomicBool,
    pub(crate) told: Acknowledged,
    /// A leaf: the connection manager takes it under its own lock.
    pub(crate) queue_pair: Mutex<Weak<ferroce_device::Qp>>,
    /// A leaf: what requests that come to it have for options. The thread of the connection manager must not wait for a
    /// call of the program, as the lock of the state would have it.
    pub(crate) inherited: Mutex<Options>,
    /// The program has accepted the request: what happens from now on is told.
    pub(crate) accepted: AtomicBool,
    /// It is destroyed: nothing is told of it any more. Changed while `home` is held.
    dead: AtomicBool,
    /// Taking the queue pair to RTS failed: that the connection ends then is no news.
    pub(crate) failed: AtomicBool,
    /// Of a listener: requests that wait to be fetched, and how many may.
    waiting: AtomicU32,
    backlog: AtomicU32,
    /// Of a listener: the last questions for its service.
    pub(crate) questions: Questions,
}

/// What changes about an id by calls of the program and by what it fetches.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) options: Options,
    pub(crate) device: Option<&'static CmDevice>,
    pub(crate) binding: Option<Binding>,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) comm: Option<CommId>,
    pub(crate) terms: Option<Terms>,
    /// What was answered to a question, which may come again.
    pub(crate) answer: Option<SidrRep>,
    pub(crate) joins: Vec<Arc<Join>>,
    /// What `rdma_create_ep` was given.
    pub(crate) endpoint: Endpoint,
}

impl State {
    /// Options have changed that say which other ids may have the port.
    pub(crate) fn tell_options(&self) {
        if let (Some(binding), Some(source)) = (&self.binding, self.source) {
            binding.has_options(self.options.reuse, self.options.family_only.unwrap_or(source.is_ipv4()));
        }
    }
}

/// How far an id has come.
#[derive(Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Bound,
    Resolved,
    Routed,
    Listening,
    /// A peer asks, and waits.
    Requested,
    Asked(Box<Asked>),
    Connecting,
    /// The peer has accepted, and the program has to confirm.
    Replied,
    Connected,
    Ended,
    /// Destroyed.
    Gone,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) tos: u8,
    pub(crate) reuse: bool,
    /// None: as the family has it.
    pub(crate) family_only: Option<bool>,
    pub(crate) ack_timeout: Option<u8>,
}

// SAFETY: the program's part is read and written in calls of the program alone, which answers for them as with
// every library of C; all else has locks of its own.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

/// Reads and writes fields that the program sees.
macro_rules! fields {
    ($($get:ident $set:ident $type:ty = $($field:ident).+;)*) => {$(
        #[allow(dead_code, reason = "some are only read, others only written")]
        pub(crate) fn $get(&self) -> $type {
            // SAFETY: a field of our own memory, which lives as long as the id.
            unsafe { (*self.c.get()).$($field).+ }
        }

        #[allow(dead_code, reason = "as above")]
        pub(crate) fn $set(&self, value: $type) {
            // SAFETY: as above.
            unsafe { (*self.c.get()).$($field).+ = value };
        }
    )*};
}

impl Id {
    fields! {
        verbs set_verbs *mut ibv_context = verbs;
        channel set_channel *mut rdma_event_channel = channel;
        context set_context *mut c_void = context;
        qp set_qp *mut ibv_qp = qp;
        port_num set_port_num u8 = port_num;
        event set_event *mut rdma_cm_event = event;
        send_cq_channel set_send_cq_channel *mut ibv_comp_channel = send_cq_channel;
        send_cq set_send_cq *mut ibv_cq = send_cq;
        recv_cq_channel set_recv_cq_channel *mut ibv_comp_channel = recv_cq_channel;
        recv_cq set_recv_cq *mut ibv_cq = recv_cq;
        srq set_srq *mut ibv_srq = srq;
        pd set_pd *mut ibv_pd = pd;
        path_rec set_path_rec *mut ibv_sa_path_rec = route.path_rec;
        num_paths set_num_paths c_int = route.num_paths;
        src_storage set_src_storage sockaddr_storage = route.addr.src_storage;
        dst_storage set_dst_storage sockaddr_storage = route.addr.dst_storage;
        ib_addr set_ib_addr rdma_ib_addr = route.addr.addr;
    }

    fn new(channel: Arc<Channel>, space: c_int, qp_type: c_int, passive: bool, state: State) -> Arc<Self> {
        // SAFETY: a structure of numbers and pointers, all of which may be zero.
        let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
        c.channel = channel.as_c();
        (c.ps, c.qp_type) = (space, qp_type);
        let chance = state.device.map_or_else(draw, |device| device.context.nic.random_u32());
        Arc::new(Self {
            c: UnsafeCell::new(c),
            space,
            qp_type,
            passive,
            psn: Psn::new(chance & 0xff_ffff),
            state: Mutex::new(state),
            home: Mutex::new(channel),
            sync: AtomicBool::new(false),
            told: Acknowledged::default(),
            queue_pair: Mutex::default(),
            inherited: Mutex::default(),
            accepted: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            backlog: AtomicU32::new(0),
            questions: Questions::default(),
        })
    }

    /// For a request that has come to a listener. The program does not know it yet.
    pub(crate) fn requested(listener: &Self, device: &'static CmDevice, request: &Request) -> Arc<Self> {
        let state = State {
            stage: Stage::Requested,
            source: Some(request.local()),
            destination: Some(request.peer()),
            comm: Some(request.id),
            terms: Some(Terms::of_request(request)),
            ..State::default()
        };
        Self::born(listener, device, state)
    }

    /// For a question for the listener's datagram service.
    pub(crate) fn asked(listener: &Self, device: &'static CmDevice, asked: &Asked) -> Arc<Self> {
        let state = State {
            stage: Stage::Asked(Box::new(*asked)),
            source: Some(asked.local()),
            destination: Some(asked.peer()),
            ..State::default()
        };
        Self::born(listener, device, state)
    }

    fn born(listener: &Self, device: &'static CmDevice, state: State) -> Arc<Self> {
        let options = *lock(&listener.inherited);
        let state = State { device: Some(device), options, ..state };
        let home = lock(&listener.home).clone();
        let id = Self::new(home, listener.space, listener.qp_type, true, state);
        let ends = {
            let state = lock(&id.state);
            (state.source, state.destination)
        };
        id.has_device(device);
        if let (Some(source), Some(destination)) = ends {
            id.has_source(source);
            id.has_destination(destination);
            route::write(&id, source, destination, 0);
        }
        id
    }

    pub(crate) const fn as_c(&self) -> *mut rdma_cm_id {
        self.c.get()
    }

    pub(crate) const fn is_datagram(&self) -> bool {
        self.qp_type == IBV_QPT_UD
    }

    /// It belongs to a device from now on.
    pub(crate) fn has_device(&self, device: &'static CmDevice) {
        self.set_verbs(device.context.as_c());
        self.set_port_num(1);
        if self.pd().is_null() {
            self.set_pd(device.pd);
        }
    }

    pub(crate) fn has_source(&self, source: SocketAddr) {
        self.set_src_storage(written(source).0);
        let mut addr = self.ib_addr();
        addr.sgid = ibv_gid { raw: Gid::from(source.ip()).0 };
        addr.pkey = 0xffff_u16.to_be();
        self.set_ib_addr(addr);
    }

    pub(crate) fn has_destination(&self, destination: SocketAddr) {
        self.set_dst_storage(written(destination).0);
        let mut addr = self.ib_addr();
        addr.dgid = ibv_gid { raw: Gid::from(destination.ip()).0 };
        self.set_ib_addr(addr);
    }

    /// Tells what happened to it.
    pub(crate) fn tell(self: &Arc<Self>, raw: Raw) {
        self.tell_of(Pending { id: Arc::clone(self), listener: None, raw });
    }

    /// Tells what happened, in the channel of this id.
    pub(crate) fn tell_of(&self, pending: Pending) {
        let home = lock(&self.home);
        if self.is_dead() {
            // The program may have freed what its context is.
            drop(home);
            return pending.discard();
        }
        home.push(pending);
    }

    /// Nothing is told of it from now on.
    fn dies(&self) {
        let _home = lock(&self.home);
        self.dead.store(true, Ordering::Relaxed);
    }

    /// The channel that hears of it.
    pub(crate) fn home(&self) -> Arc<Channel> {
        lock(&self.home).clone()
    }

    /// A request that the program fetched lives on in the channel that it was fetched from.
    pub(crate) fn moves_in(&self, channel: &Arc<Channel>) {
        *lock(&self.home) = Arc::clone(channel);
        self.set_channel(channel.as_c());
    }

    pub(crate) fn listens(&self, backlog: c_int) {
        let most = u32::try_from(backlog).unwrap_or(0);
        let most = if (1..=MOST_WAITING).contains(&most) { most } else { MOST_WAITING };
        self.backlog.store(most, Ordering::Relaxed);
    }

    /// Whether one more request may wait for the program.
    pub(crate) fn one_waits_more(&self) -> bool {
        let most = self.backlog.load(Ordering::Relaxed);
        let more = |count: u32| (count < most).then_some(count + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn one_waits_less(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// The program will never see this request.
    pub(crate) fn refuse_unseen(&self) {
        let state = std::mem::take(&mut *lock(&self.state));
        give_up(state);
    }
}

/// Ends what an id was about, as far as the peer is concerned.
fn give_up(state: State) {
    let Some(device) = state.device else { return };
    match &state.stage {
        Stage::Asked(asked) => {
            let refusal = SidrRep { status: SidrStatus::REJECTED, ..SidrRep::default() };
            let _ = device.manager.answer(asked, &refusal);
        }
        _ => {
            // Of one that has ended nothing is to be heard any more.
            if let Some(comm) = state.comm {
                device.manager.abandon(comm);
            }
        }
    }
}

/// A number that others cannot guess easily; ids without a device have no better source.
fn draw() -> u32 {
    use std::hash::{BuildHasher as _, RandomState};
    u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(0)
}

impl Drop for Id {
    fn drop(&mut self) {
        route::free(self.path_rec());
    }
}

/// Makes an id.
pub(crate) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    space: c_int,
    qp_type: c_int,
) -> Answer<Arc<Id>> {
    fork::watch();
    let sync = channel.is_null();
    let home = if sync { Channel::new()? } else { handles::channel(channel)? };
    if sync {
        handles::show_channel(&home);
    }
    let id = Id::new(home, space, qp_type, false, State::default());
    id.set_context(context);
    id.sync.store(sync, Ordering::Relaxed);
    Ok(id)
}

/// The kind of queue pair that goes with a port space.
pub(crate) fn qp_type_of(space: c_int) -> Answer<c_int> {
    match space {
        RDMA_PS_TCP | RDMA_PS_IB => Ok(IBV_QPT_RC),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(IBV_QPT_UD),
        _ => Err(Refused::invalid(format_args!("port space 0x{space:x}"))),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a place of its own to fill, or null.
    let to = unsafe { filled(id, "place for the id") };
    let answer = to.and_then(|to| {
        *to = handles::show_id(&create(channel, context, ps, qp_type_of(ps)?)?);
        Ok(())
    });
    minus_one("rdma_create_id", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let _whole = Uncancelled::new();
    minus_one("rdma_destroy_id", handles::any_id(id).and_then(|id| destroy(&id)))
}

/// Ends an id. It returns when all events that were told of it are acknowledged.
pub(crate) fn destroy(id: &Arc<Id>) -> Answer<()> {
    sync::acknowledge(id);
    if !handles::take_id(id) {
        return Err(Refused::invalid("the id is being destroyed"));
    }
    id.dies();
    let mut state =
        std::mem::replace(&mut *lock(&id.state), State { stage: Stage::Gone, ..State::default() });
    // First of all: no more requests.
    drop(state.binding.take());
    for join in std::mem::take(&mut state.joins) {
        join.leave(id);
    }
    give_up(state);
    let home = id.home();
    home.forget(id);
    id.told.wait();
    if id.sync.load(Ordering::Relaxed) {
        handles::take_channel(&home);
        home.close();
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let _whole = Uncancelled::new();
    minus_one("rdma_migrate_id", handles::id(id).and_then(|id| migrate(&id, channel)))
}

/// Moves an id to another channel, or to one of its own.
pub(crate) fn migrate(id: &Arc<Id>, channel: *mut rdma_event_channel) -> Answer<()> {
    let was_sync = id.sync.load(Ordering::Relaxed);
    let to = if channel.is_null() {
        if was_sync {
            return Err(Refused::invalid("the id has a channel of its own already"));
        }
        let own = Channel::new()?;
        handles::show_channel(&own);
        own
    } else {
        handles::channel(channel)?
    };
    sync::acknowledge(id);
    let mut home = lock(&id.home);
    let from = std::mem::replace(&mut *home, Arc::clone(&to));
    if !Arc::ptr_eq(&from, &to) {
        from.hand_over(id, &to);
    }
    drop(home);
    id.set_channel(to.as_c());
    id.sync.store(channel.is_null(), Ordering::Relaxed);
    if was_sync {
        handles::take_channel(&from);
        from.close();
    }
    id.told.wait();
    Ok(())
}
