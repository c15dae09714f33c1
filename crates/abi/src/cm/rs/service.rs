//! The thread that hears what happens to connections. It accepts for listeners: a peer's connection stands before the
//! program asks for it, as with sockets of the kernel.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use ferroce_cabi::cm::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, rdma_cm_event, rdma_cm_id, rdma_conn_param,
};
use ferroce_device::PerProcess;

use super::options::Options;
use super::proto::Introduction;
use super::socket::{Phase, Socket};
use super::stream::Stream;
use super::table;
use crate::cm::channel::{self, Channel};
use crate::cm::connect::{rdma_accept, rdma_reject};
use crate::cm::event::{self, no_connection};
use crate::cm::handles;
use crate::cm::id::{self, Id};
use crate::object::lock;
use crate::refusal::{Answer, Refused, last_errno};

/// The channel of all ids of sockets. A child of a fork begins with another.
static CHANNEL: PerProcess<Mutex<Option<Arc<Channel>>>> = PerProcess::new();

/// The channel that ids of sockets are told of in; its thread runs.
pub(super) fn channel() -> Answer<Arc<Channel>> {
    let mut known = lock(CHANNEL.get());
    if let Some(channel) = &*known {
        return Ok(Arc::clone(channel));
    }
    let channel = Channel::new()?;
    handles::show_channel(&channel);
    let heard = Arc::clone(&channel);
    let builder = std::thread::Builder::new().name("ferroce-rs".into());
    let started = without_signals(|| builder.spawn(move || hear(&heard)));
    started.map_err(|error| Refused::new(error.raw_os_error().unwrap_or(libc::EAGAIN), error))?;
    *known = Some(Arc::clone(&channel));
    Ok(channel)
}

/// Signals of the program are for threads of the program: one that is started here gets none.
pub(super) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: a set of signals is a structure of numbers.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut old = all;
    // SAFETY: the set is ours.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are ours.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) };
    let started = start();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut()) };
    started
}

fn hear(channel: &Channel) {
    while let Ok(event) = channel::next(channel.as_c()) {
        // SAFETY: it was fetched just now, and is acknowledged below.
        let told = unsafe { Told::of(event) };
        // Before anything is done about it: a thread that closes the socket waits for this.
        let _ = event::acknowledge(event);
        told.happens();
    }
}

/// An event, after it was acknowledged.
struct Told {
    kind: c_int,
    status: c_int,
    id: *mut rdma_cm_id,
    listener: *mut rdma_cm_id,
    introduction: Option<Introduction>,
}

impl Told {
    /// # Safety
    /// The event was fetched and not acknowledged.
    unsafe fn of(event: *const rdma_cm_event) -> Self {
        // SAFETY: the caller vouches for it.
        let event = unsafe { &*event };
        let has_data = matches!(event.event, RDMA_CM_EVENT_CONNECT_REQUEST | RDMA_CM_EVENT_ESTABLISHED);
        // SAFETY: events of connections have this form, or zeros.
        let conn = unsafe { event.param.conn };
        let data = if has_data && !conn.private_data.is_null() {
            // SAFETY: the bytes live as long as the event.
            unsafe {
                std::slice::from_raw_parts(conn.private_data.cast::<u8>(), conn.private_data_len.into())
            }
        } else {
            &[]
        };
        Self {
            kind: event.event,
            status: event.status,
            id: event.id,
            listener: event.listen_id,
            introduction: Introduction::parse(data),
        }
    }

    fn happens(self) {
        if self.kind == RDMA_CM_EVENT_CONNECT_REQUEST {
            if let Ok(id) = handles::id(self.id)
                && self.accept(&id).is_err()
            {
                // SAFETY: no bytes go along.
                unsafe { rdma_reject(self.id, std::ptr::null(), 0) };
                table::strike(self.id);
                let _ = id::destroy(&id);
            }
            return;
        }
        let Some(socket) = table::of_id(self.id) else { return };
        match self.kind {
            RDMA_CM_EVENT_ESTABLISHED => self.stands(&socket),
            RDMA_CM_EVENT_DISCONNECTED => {
                let mut inner = lock(&socket.inner);
                // What the peer sent before is there.
                inner.progress();
                inner.fails(libc::ECONNRESET);
                drop(inner);
                gives_up(&socket);
            }
            RDMA_CM_EVENT_ADDR_RESOLVED | RDMA_CM_EVENT_ROUTE_RESOLVED | RDMA_CM_EVENT_TIMEWAIT_EXIT => {}
            _ => {
                let is_refused = self.kind == RDMA_CM_EVENT_REJECTED || self.status == 0;
                let code = if is_refused { libc::ECONNREFUSED } else { self.status.saturating_abs() };
                lock(&socket.inner).fails(code);
                gives_up(&socket);
            }
        }
    }

    /// A peer asks a listener.
    fn accept(&self, id: &Arc<Id>) -> Answer<()> {
        let refused = |why| Refused::new(libc::EPROTO, why);
        let listener = table::of_id(self.listener).ok_or_else(|| refused("nobody listens any more"))?;
        let peer = self.introduction.ok_or_else(|| refused("the peer is no rsocket of this version"))?;
        let options = {
            let mut inner = lock(&listener.inner);
            // One more than the program asked for, as with sockets of the kernel.
            if inner.phase != Phase::Listening || inner.accepted.len() + inner.pending > inner.options.backlog
            {
                return Err(refused("too many wait to be accepted"));
            }
            inner.pending += 1;
            inner.options.for_accepted()
        };
        self.accept_with(id, &listener, peer, options).inspect_err(|_| is_pending_no_more(&listener))
    }

    fn accept_with(
        &self,
        id: &Arc<Id>,
        listener: &Arc<Socket>,
        peer: Introduction,
        options: Options,
    ) -> Answer<()> {
        let mut stream = Stream::new(id, options.sizes)?;
        stream.meet(peer);
        let data = stream.introduction().emit();
        let socket = Socket::new(listener.domain, Phase::Connecting, Some(Arc::clone(id)), options)?;
        {
            let mut inner = lock(&socket.inner);
            inner.stream = Some(Box::new(stream));
            inner.listener = Some(Arc::downgrade(listener));
        }
        table::enroll(id.as_c(), &socket);
        let mut param = parameters(&data);
        // SAFETY: the parameters and their data live during the call.
        if unsafe { rdma_accept(id.as_c(), &raw mut param) } != 0 {
            return Err(last_errno("the peer cannot be accepted"));
        }
        Ok(())
    }

    fn stands(&self, socket: &Arc<Socket>) {
        let mut inner = lock(&socket.inner);
        if inner.phase != Phase::Connecting {
            return;
        }
        let listener = inner.listener.take();
        let Some(stream) = &mut inner.stream else { return };
        if listener.is_none() {
            let Some(peer) = self.introduction else { return inner.fails(libc::EOPNOTSUPP) };
            stream.meet(peer);
        }
        stream.begin();
        inner.phase = Phase::Connected;
        inner.ring();
        drop(inner);
        let Some(listener) = listener else { return };
        if let Some(listener) = listener.upgrade() {
            is_pending_no_more(&listener);
            let mut inner = lock(&listener.inner);
            if inner.phase == Phase::Listening {
                inner.accepted.push_back(Arc::clone(socket));
                return inner.ring();
            }
        }
        socket.cut_connection();
    }
}

/// A connection that a peer asked for has failed before it stood: the program will never know of it.
fn gives_up(socket: &Socket) {
    let Some(listener) = lock(&socket.inner).listener.take() else { return };
    if let Some(listener) = listener.upgrade() {
        is_pending_no_more(&listener);
    }
    socket.cut_connection();
}

fn is_pending_no_more(listener: &Socket) {
    let mut inner = lock(&listener.inner);
    inner.pending = inner.pending.saturating_sub(1);
}

/// What goes with a request and with its acceptance.
pub(super) fn parameters(data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: u8::try_from(data.len()).unwrap_or(u8::MAX),
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        ..no_connection()
    }
}
