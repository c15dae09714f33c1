//! Connections of a card: a thread that hears of them, and takes each one step by step.
//!
//! The machine's own connection management finds peers and carries messages; the queue pairs are the program's. What a
//! program sees of a connection is a [`Link`], as on the soft device.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ferroce_device::{Epoll, EventFd, Watch, now};
use ferroce_system::{
    CallError, ConnectionChannel, ConnectionError, ConnectionEvent, ConnectionEventKind, ConnectionId,
    ConnectionParameters, Preparation,
};
use ferroce_transport::cm::Failure;
use ferroce_transport::{State, Time};
use ferroce_wire::Qpn;
use ferroce_wire::mad::{Opaque, RejectReason};

use super::{CardQueuePair, OpenCard, PORT, lock};
use crate::cm::error::CmError;
use crate::cm::established::Disconnected;
use crate::cm::link::{Facts, Link, Stage};
use crate::cm::listener::Queue;
use crate::cm::options::CmOptions;
use crate::cm::steps::Depths;

/// The connections of a card. Its thread begins with the first.
#[derive(Default)]
pub(crate) struct Connector {
    shared: Mutex<Option<Arc<Shared>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread and the program have in common.
pub(crate) struct Shared {
    channel: ConnectionChannel,
    bell: EventFd,
    /// The name of the card, by which the library of connections knows it.
    card: String,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    known: HashMap<u32, Known>,
    /// When attempts are over that have no outcome by then.
    ends: Vec<(Time, Weak<CardConnection>)>,
    is_over: bool,
}

/// What an id is of.
#[derive(Clone)]
enum Known {
    Connection(Weak<CardConnection>),
    Listener(Weak<Queue>),
}

impl Connector {
    pub(crate) fn shared(&self, card: &OpenCard) -> Result<Arc<Shared>, CmError> {
        let mut shared = lock(&self.shared);
        if let Some(shared) = &*shared {
            return Ok(Arc::clone(shared));
        }
        let channel = card.system.library().connection_channel().map_err(refused)?;
        let system = |error: io::Error| CmError::system(&error);
        let bell = EventFd::new().map_err(system)?;
        let epoll = Epoll::new().map_err(system)?;
        epoll.add(bell.as_fd().as_raw_fd(), Watch::WhileReadable).map_err(system)?;
        epoll.add(channel.as_fd().as_raw_fd(), Watch::WhileReadable).map_err(system)?;
        let name = card.name().to_owned();
        let made = Arc::new(Shared { channel, bell, card: name, inside: Mutex::default() });
        let kept = Arc::clone(&made);
        let begun = thread::Builder::new()
            .name("ferroce-connect".to_owned())
            .spawn(move || run(&kept, &epoll))
            .map_err(system)?;
        *lock(&self.thread) = Some(begun);
        *shared = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Ends the thread. In a child of the process that began it there is none.
    pub(crate) fn end(&mut self, is_ours: bool) {
        let Some(shared) = lock(&self.shared).take() else { return };
        let thread = lock(&self.thread).take();
        if !is_ours {
            std::mem::forget(thread);
            return;
        }
        lock(&shared.inside).is_over = true;
        shared.bell.signal();
        // What the thread let go of may have been the last to hold the card.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

/// One end of a connection. The program holds it; the thread knows it as long as it does.
pub(crate) struct CardConnection {
    id: ConnectionId,
    qp: Weak<CardQueuePair>,
    qpn: Qpn,
    pub(crate) link: Arc<Link>,
    options: CmOptions,
    parameters: ConnectionParameters,
    shared: Arc<Shared>,
    /// The card stays open as long as its connections.
    card: Arc<OpenCard>,
    /// The program has ended it.
    ends_here: AtomicBool,
}

/// What is asked for.
pub(crate) struct Wish<'a> {
    pub(crate) qp: &'a Arc<CardQueuePair>,
    pub(crate) local: IpAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) options: &'a CmOptions,
}

impl CardConnection {
    /// Asks a peer for a connection.
    pub(crate) fn ask(wish: &Wish<'_>) -> Result<Arc<Self>, CmError> {
        let Wish { qp, local, peer, options } = wish;
        let card = &qp.card;
        let (given, allowed) = (options.private_data.len(), Opaque::<56>::LEN);
        if given > allowed {
            return Err(CmError::PrivateDataTooLong { given, allowed });
        }
        if local.is_ipv4() != peer.is_ipv4() {
            return Err(CmError::Family { local: *local, peer: peer.ip() });
        }
        let shared = card.connector.shared(card)?;
        let id = shared.channel.id()?;
        id.bind(SocketAddr::new(*local, 0))?;
        let here = id.local().unwrap_or(SocketAddr::new(*local, 0));
        let link = Link::on_card(*peer, here, Facts::default(), Some(qp));
        let made = Self::new(id, qp, link, options, shared);
        made.known();
        let end = now() + options.timeout;
        lock(&made.shared.inside).ends.push((end, Arc::downgrade(&made)));
        made.shared.bell.signal();
        made.id.resolve_address(*peer, options.timeout)?;
        Ok(made)
    }

    /// Accepts what a peer has asked for by this id.
    pub(crate) fn accept(
        request: CardRequest,
        qp: &Arc<CardQueuePair>,
        options: &CmOptions,
    ) -> Result<Arc<Self>, CmError> {
        let (given, allowed) = (options.private_data.len(), Opaque::<196>::LEN);
        if given > allowed {
            return Err(CmError::PrivateDataTooLong { given, allowed });
        }
        let CardRequest { id, parameters: told, link, shared, .. } = request;
        let made = Self::new(id, qp, link, options, shared);
        let depths = made.depths(&told);
        made.take_to_rts().map_err(|error| made.refuse(error))?;
        made.link.answer_on_card(qp, depths);
        made.known();
        let end = now() + options.timeout;
        lock(&made.shared.inside).ends.push((end, Arc::downgrade(&made)));
        made.shared.bell.signal();
        let parameters = ConnectionParameters {
            responder_resources: depths.responder,
            initiator_depth: depths.initiator,
            ..made.parameters
        };
        if let Err(error) = made.id.accept(parameters, &options.private_data) {
            made.link.flush();
            return Err(match error.code {
                // The peer has given up meanwhile.
                EINVAL | ECONNABORTED => CmError::Withdrawn { peer: made.link.peer },
                _ => error.into(),
            });
        }
        Ok(made)
    }

    fn new(
        id: ConnectionId,
        qp: &Arc<CardQueuePair>,
        link: Arc<Link>,
        options: &CmOptions,
        shared: Arc<Shared>,
    ) -> Arc<Self> {
        let most = qp.card.attributes();
        let parameters = ConnectionParameters {
            qpn: qp.qp.qpn(),
            responder_resources: options.qp.max_dest_rd_atomic.min(most.max_read_depth),
            initiator_depth: options.qp.max_rd_atomic.min(most.max_initiator_depth),
            retry_count: options.qp.retry_count,
            rnr_retry_count: options.qp.rnr_retry,
            shared_queue: qp.shared_queue.is_some(),
        };
        Arc::new(Self {
            id,
            qp: Arc::downgrade(qp),
            qpn: qp.qp.qpn(),
            link,
            options: options.clone(),
            parameters,
            shared,
            card: Arc::clone(&qp.card),
            ends_here: AtomicBool::new(false),
        })
    }

    /// Its events are for it from now on.
    fn known(self: &Arc<Self>) {
        let known = Known::Connection(Arc::downgrade(self));
        lock(&self.shared.inside).known.insert(self.id.number(), known);
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.card.is_ours()
    }

    /// Ends it, and does not wait.
    pub(crate) fn disconnect(&self) {
        self.ends_here.store(true, Ordering::Relaxed);
        self.link.flush();
        // If the peer was faster, that is as good.
        let _ = self.id.disconnect();
    }

    /// READs and atomics under way, given what the peer has told.
    fn depths(&self, told: &ConnectionParameters) -> Depths {
        Depths {
            initiator: self.parameters.initiator_depth.min(told.initiator_depth),
            responder: self.parameters.responder_resources.min(told.responder_resources),
        }
    }

    /// From INIT to RTS, as the connection wants it.
    fn take_to_rts(&self) -> Result<(), CallError> {
        // Without its queue pair there is nothing to move; the peer hears of it when it sends.
        let Some(qp) = self.qp.upgrade() else {
            return Err(CallError { call: "rdma_init_qp_attr", code: EINVAL });
        };
        let wishes = Preparation {
            access: Some(self.options.qp.access),
            min_rnr_timer: Some(self.options.qp.min_rnr_timer),
        };
        for state in [State::Init, State::Rtr, State::Rts] {
            self.id.prepare_with(&qp.qp, state, wishes)?;
        }
        Ok(())
    }

    fn refuse(&self, error: CallError) -> CmError {
        CmError::QueuePair { qpn: self.qpn, error: error.into() }
    }

    /// Takes the next step.
    fn happened(&self, event: ConnectionEvent) {
        let ConnectionEvent { kind, status, parameters, private_data, .. } = event;
        let peer = self.link.peer;
        let step = match kind {
            ConnectionEventKind::AddressResolved => self.address_known(),
            ConnectionEventKind::RouteResolved => self.way_known(),
            ConnectionEventKind::Response => self.answered(&parameters, private_data),
            ConnectionEventKind::Established => {
                self.link.stands();
                Ok(())
            }
            ConnectionEventKind::Unreachable if status == -ETIMEDOUT || status == 0 => {
                Err(CmError::TimedOut { peer, sent: "REQ", attempts: 1 })
            }
            ConnectionEventKind::AddressError
            | ConnectionEventKind::RouteError
            | ConnectionEventKind::Unreachable
            | ConnectionEventKind::ConnectError => Err(CmError::Unreachable { peer, error: kind_of(status) }),
            ConnectionEventKind::Rejected => {
                let reason = RejectReason(u16::try_from(status).unwrap_or(RejectReason::CONSUMER.0));
                let len = private_data.len().min(Opaque::<148>::LEN);
                let private_data = Box::new(Opaque::new(&private_data[..len]).unwrap_or_default());
                Err(CmError::from_failure(peer, Failure::Rejected { reason, private_data }))
            }
            ConnectionEventKind::Disconnected => {
                let here = self.ends_here.load(Ordering::Relaxed);
                // The peer waits for an answer.
                let _ = self.id.disconnect();
                self.link.end(if here { Disconnected::Here } else { Disconnected::Peer });
                Ok(())
            }
            ConnectionEventKind::CardGone => {
                self.link.end(Disconnected::Unanswered);
                Err(CmError::System(io::ErrorKind::NotConnected))
            }
            // Not of connections here, or without consequences.
            _ => Ok(()),
        };
        if let Err(error) = step {
            self.link.fail_if_waiting(error);
        }
    }

    fn address_known(&self) -> Result<(), CmError> {
        let leads = self.id.card();
        if leads != Some((self.shared.card.clone(), PORT)) {
            return Err(CmError::OtherDevice { qpn: self.qpn });
        }
        Ok(self.id.resolve_route(self.options.timeout)?)
    }

    fn way_known(&self) -> Result<(), CmError> {
        Ok(self.id.connect(self.parameters, &self.options.private_data)?)
    }

    fn answered(&self, told: &ConnectionParameters, private_data: Vec<u8>) -> Result<(), CmError> {
        let depths = self.depths(told);
        let ready = self.take_to_rts().and_then(|()| self.id.establish());
        if let Err(error) = ready {
            let _ = self.id.reject(&[]);
            return Err(self.refuse(error));
        }
        self.link.stage.look(|stage| *stage = Stage::Waiting(Facts { private_data, depths, moved: true }));
        self.link.stands();
        Ok(())
    }
}

impl Drop for CardConnection {
    fn drop(&mut self) {
        lock(&self.shared.inside).known.remove(&self.id.number());
    }
}

impl std::fmt::Debug for CardConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CardConnection({} to {})", self.qpn, self.link.peer)
    }
}

/// A peer's request, by the id that it came with. Dropping it rejects it.
pub(crate) struct CardRequest {
    id: ConnectionId,
    pub(crate) parameters: ConnectionParameters,
    pub(crate) private_data: Vec<u8>,
    pub(crate) link: Arc<Link>,
    shared: Arc<Shared>,
    pub(crate) card: Arc<OpenCard>,
}

impl CardRequest {
    pub(crate) fn reject(self, private_data: &[u8]) -> Result<(), CallError> {
        self.id.reject(private_data)
    }

    /// Whether the peer has not given it up, as far as is known.
    pub(crate) fn is_pending(&self) -> bool {
        self.link.stage.look(|stage| matches!(stage, Stage::Waiting(_)))
    }
}

impl std::fmt::Debug for CardRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CardRequest(of {})", self.link.peer)
    }
}

/// What listens on a card: an id for each of its addresses.
pub(crate) struct CardListening {
    ids: Vec<ConnectionId>,
    shared: Arc<Shared>,
}

impl CardListening {
    pub(crate) fn new(
        card: &Arc<OpenCard>,
        port: u16,
        backlog: usize,
        queue: &Arc<Queue>,
    ) -> Result<Self, CmError> {
        let shared = card.connector.shared(card)?;
        let mut made = Self { ids: Vec::new(), shared };
        for address in card.ips() {
            let id = made.shared.channel.id()?;
            id.bind(SocketAddr::new(address, port))?;
            let known = Known::Listener(Arc::downgrade(queue));
            lock(&made.shared.inside).known.insert(id.number(), known);
            // It is struck out with the others, also if it cannot listen.
            made.ids.push(id);
        }
        for id in &made.ids {
            id.listen(u16::try_from(backlog).unwrap_or(u16::MAX).max(1))?;
        }
        Ok(made)
    }
}

impl Drop for CardListening {
    fn drop(&mut self) {
        let mut inside = lock(&self.shared.inside);
        for id in &self.ids {
            inside.known.remove(&id.number());
        }
    }
}

impl std::fmt::Debug for CardListening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CardListening({} addresses)", self.ids.len())
    }
}

fn run(shared: &Arc<Shared>, epoll: &Epoll) {
    loop {
        let next = {
            let mut inside = lock(&shared.inside);
            if inside.is_over {
                return;
            }
            inside.ends.retain(|(_, connection)| connection.strong_count() > 0);
            inside.ends.iter().map(|(end, _)| *end).min()
        };
        epoll.sleep(next);
        shared.bell.clear();
        // A channel that cannot be asked any more tells nothing.
        while let Ok(Some(event)) = shared.channel.poll() {
            let known = lock(&shared.inside).known.get(&event.id).cloned();
            match known {
                Some(Known::Connection(connection)) => {
                    if let Some(connection) = connection.upgrade() {
                        connection.happened(event);
                    }
                }
                Some(Known::Listener(queue)) => {
                    if let Some(queue) = queue.upgrade() {
                        requested(shared, &queue, event);
                    }
                }
                // Of an id that is gone meanwhile.
                None => {}
            }
        }
        let time = now();
        let late: Vec<Weak<CardConnection>> = {
            let mut inside = lock(&shared.inside);
            let (late, early) =
                std::mem::take(&mut inside.ends).into_iter().partition(|(end, _)| *end <= time);
            inside.ends = early;
            Vec::from_iter(Vec::into_iter(late).map(|(_, connection): (Time, _)| connection))
        };
        for connection in late.iter().filter_map(Weak::upgrade) {
            let late = CmError::TimedOut { peer: connection.link.peer, sent: "REQ", attempts: 1 };
            connection.link.fail_if_waiting(late);
        }
    }
}

/// A peer asks a listener.
fn requested(shared: &Arc<Shared>, queue: &Arc<Queue>, event: ConnectionEvent) {
    let ConnectionEvent { kind, parameters, private_data, .. } = event;
    let ConnectionEventKind::Request(id) = kind else { return };
    let (Some(local), Some(peer)) = (id.local(), id.peer()) else { return };
    let Some(card) = queue.card() else { return };
    let facts = Facts { private_data: private_data.clone(), ..Facts::default() };
    let link = Link::on_card(peer, local, facts, None);
    let shared = Arc::clone(shared);
    // If the listener is gone, dropping the request rejects it.
    queue.push_card(CardRequest { id, parameters, private_data, link, shared, card });
}

/// The limit of a question which card leads to an address.
const LOOKING: Duration = Duration::from_secs(2);

/// The card that leads to an address, by its name.
pub(crate) fn card_towards(
    library: ferroce_system::Library,
    peer: IpAddr,
) -> Result<Option<String>, CmError> {
    let channel = library.connection_channel().map_err(refused)?;
    let id = channel.id()?;
    if id.resolve_address(SocketAddr::new(peer, 1), LOOKING).is_err() {
        return Ok(None);
    }
    loop {
        match channel.poll()? {
            Some(event) if matches!(event.kind, ConnectionEventKind::AddressResolved) => {
                return Ok(id.card().filter(|(_, port)| *port == PORT).map(|(name, _)| name));
            }
            Some(_) => return Ok(None),
            None => {
                let readable = ferroce_device::wait_readable(channel.as_fd(), Some(LOOKING * 2));
                if !readable.is_ok_and(|readable| readable) {
                    return Ok(None);
                }
            }
        }
    }
}

fn refused(error: ConnectionError) -> CmError {
    match error {
        ConnectionError::Library(error) => error.into(),
        ConnectionError::Refused(error) => error.into(),
        _ => CmError::System(io::ErrorKind::Unsupported),
    }
}

/// What an event's status says: an error number with a minus.
fn kind_of(status: i32) -> io::ErrorKind {
    io::Error::from_raw_os_error(status.saturating_abs()).kind()
}

/// Error numbers of Linux.
const EINVAL: i32 = 22;
const ECONNABORTED: i32 = 103;
const ETIMEDOUT: i32 = 110;
/// The port is taken.
pub(crate) const EADDRINUSE: i32 = 98;
