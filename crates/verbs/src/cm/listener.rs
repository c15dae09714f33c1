//! Where requests for connections come in.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use ferroce_device::cm::{Acceptor, ConnectionManager, ListeningTo, Notice, Watcher};
use ferroce_device::{EventFd, Nic};
use ferroce_transport::cm::Request;
use ferroce_wire::mad::{PortSpace, ServiceId};

use super::error::ListenError;
use super::in_turn::InTurn;
use super::link::Link;
use super::request::ConnectRequest;
use crate::capability::{Capability, Unsupported};
use crate::card::OpenCard;
use crate::card::connector::{CardListening, CardRequest};
use crate::context::Context;
use crate::device::Device;
use crate::error::WaitError;

/// Requests that may wait on a card, whatever the program asks for.
const MOST: usize = 1024;

/// Ports that are tried when the program has no wish.
const TRIES: u32 = 64;

/// Where requests for a service come in. Several threads may accept from one.
///
/// Each address that asks has its turn: requests of one address come in their order, and no address has to
/// wait until all requests of another were taken.
///
/// All processes with this address share its ports: each port is listened to by one of them. Requests that
/// wait when it is dropped are rejected; connections that were accepted stay.
#[derive(Debug)]
pub struct Listener {
    of: Of,
    queue: Arc<Queue>,
    service: ServiceId,
}

#[derive(Debug)]
enum Of {
    Soft { nic: Nic, manager: Arc<ConnectionManager>, _listening: ListeningTo },
    Card { card: Arc<OpenCard>, _listening: CardListening },
}

/// Requests that the program has not taken.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Nothing once the listener is gone.
    waiting: Notice<Option<InTurn<Waiting>>>,
    /// Readable while some wait.
    readable: EventFd,
    /// For a card: which, and how many may wait. The soft device counts itself.
    card: Option<(Weak<OpenCard>, usize)>,
}

#[derive(Debug)]
enum Waiting {
    Soft { request: Box<Request>, link: Arc<Link> },
    Card(CardRequest),
}

impl Listener {
    /// Listens on a port; on a free one if it is 0. So many requests may wait to be answered, up to 1024;
    /// peers that ask beyond that are told that we are busy.
    ///
    /// # Errors
    /// The port is taken.
    pub fn bind(context: &Context, port: u16, backlog: usize) -> Result<Self, ListenError> {
        free_port(context, PortSpace::Tcp, port, |service| Self::bind_service(context, service, backlog))
    }

    /// Listens for a service that is no port.
    ///
    /// # Errors
    /// There is a listener for it already.
    pub fn bind_service(context: &Context, service: ServiceId, backlog: usize) -> Result<Self, ListenError> {
        let system = |error: std::io::Error| ListenError::System(error.kind());
        let readable = EventFd::new().map_err(system)?;
        let waiting = Notice::new(Some(InTurn::default()));
        match context.device() {
            Device::Soft(nic) => {
                let queue = Arc::new(Queue { waiting, readable, card: None });
                let manager = nic.connections().map_err(system)?;
                let acceptor = Arc::clone(&queue);
                let listening = manager.listen(nic, service, backlog, acceptor);
                let listening = listening.map_err(|error| ListenError::from_device(service, error))?;
                let of = Of::Soft { nic: nic.clone(), manager, _listening: listening };
                Ok(Self { of, queue, service })
            }
            Device::Card(card) => {
                let named = Unsupported::from(Capability::NamedServices);
                let Some((PortSpace::Tcp, port)) = service.as_rdma_ip() else { return Err(named.into()) };
                context.require(Capability::Connections)?;
                let backlog = backlog.clamp(1, MOST);
                let known = Some((Arc::downgrade(card), backlog));
                let queue = Arc::new(Queue { waiting, readable, card: known });
                let listening = CardListening::new(card, port, backlog, &queue);
                let listening = listening.map_err(|error| ListenError::on_card(port, error))?;
                let of = Of::Card { card: Arc::clone(card), _listening: listening };
                Ok(Self { of, queue, service })
            }
        }
    }

    /// The port; 0 if it listens for a service that is none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.service.as_rdma_ip().map_or(0, |(_, port)| port)
    }

    /// The service.
    #[must_use]
    pub const fn service(&self) -> ServiceId {
        self.service
    }

    /// The next request, waiting for one until the time is over; for ever with `None`.
    ///
    /// # Errors
    /// The time is over.
    pub fn accept(&self, timeout: impl Into<Option<Duration>>) -> Result<ConnectRequest, WaitError> {
        if !self.is_ours() {
            return Err(WaitError::Forked);
        }
        let timeout = timeout.into();
        let found = self.queue.waiting.wait(timeout, |waiting| self.pop(waiting));
        found.ok_or(WaitError::TimedOut(timeout.unwrap_or(Duration::MAX)))
    }

    /// The next request, if there is one.
    #[must_use]
    pub fn try_accept(&self) -> Option<ConnectRequest> {
        if !self.is_ours() {
            return None;
        }
        self.queue.waiting.look(|waiting| self.pop(waiting))
    }

    /// The next request; if there is none, the task is woken when one comes. In a child of the process that
    /// opened the device none ever does.
    pub fn poll_accept(&self, cx: &mut TaskContext<'_>) -> Poll<ConnectRequest> {
        self.poll_accept_from(cx, |_| true)
    }

    /// The same, of addresses only that are wanted now. The others go on waiting, each in its turn.
    pub fn poll_accept_from(
        &self,
        cx: &mut TaskContext<'_>,
        mut wanted: impl FnMut(IpAddr) -> bool,
    ) -> Poll<ConnectRequest> {
        if !self.is_ours() {
            return Poll::Pending;
        }
        let pop = |waiting: &mut _| self.pop_from(waiting, &mut wanted);
        match self.queue.waiting.poll(cx.waker(), pop) {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        }
    }

    /// The next request, for a program that awaits. Dropping the future loses no request.
    pub fn next(&self) -> impl Future<Output = ConnectRequest> + Send + '_ {
        std::future::poll_fn(|cx| self.poll_accept(cx))
    }

    /// A queue is of the device of its listener.
    fn request(&self, found: Waiting) -> Option<ConnectRequest> {
        match (found, &self.of) {
            (Waiting::Soft { request, link }, Of::Soft { nic, manager, .. }) => {
                Some(ConnectRequest::soft(nic.clone(), Arc::clone(manager), request, link))
            }
            (Waiting::Card(request), _) => Some(ConnectRequest::card(request)),
            (Waiting::Soft { .. }, Of::Card { .. }) => None,
        }
    }

    fn is_ours(&self) -> bool {
        match &self.of {
            Of::Soft { nic, .. } => nic.is_ours(),
            Of::Card { card, .. } => card.is_ours(),
        }
    }

    /// Whether the peer has not given it up.
    fn is_pending(&self, waiting: &Waiting) -> bool {
        match (waiting, &self.of) {
            (Waiting::Soft { request, .. }, Of::Soft { manager, .. }) => manager.is_pending(request.id),
            (Waiting::Card(request), _) => request.is_pending(),
            (Waiting::Soft { .. }, Of::Card { .. }) => false,
        }
    }

    fn pop(&self, waiting: &mut Option<InTurn<Waiting>>) -> Option<ConnectRequest> {
        self.pop_from(waiting, |_| true)
    }

    fn pop_from(
        &self,
        waiting: &mut Option<InTurn<Waiting>>,
        wanted: impl FnMut(IpAddr) -> bool,
    ) -> Option<ConnectRequest> {
        let found = self.queue.pop_from(|one| self.is_pending(one), waiting, wanted)?;
        self.request(found)
    }
}

/// Readable while requests wait.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.readable.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        let mut left = self.queue.waiting.look(Option::take);
        while let Some(waiting) = left.as_mut().and_then(InTurn::pop) {
            // That of a card is rejected as it is dropped.
            if let (Waiting::Soft { request, .. }, Of::Soft { manager, .. }) = (waiting, &self.of) {
                manager.abandon(request.id);
            }
        }
    }
}

impl Queue {
    /// The next request of a wanted address that its peer has not given up.
    fn pop_from(
        &self,
        is_pending: impl Fn(&Waiting) -> bool,
        waiting: &mut Option<InTurn<Waiting>>,
        mut wanted: impl FnMut(IpAddr) -> bool,
    ) -> Option<Waiting> {
        let waiting = waiting.as_mut()?;
        let mut found = None;
        while let Some(next) = waiting.pop_from(&mut wanted) {
            if is_pending(&next) {
                found = Some(next);
                break;
            }
        }
        if waiting.is_empty() {
            self.readable.clear();
        }
        found
    }
}

impl Queue {
    /// The card that requests come from.
    pub(crate) fn card(&self) -> Option<Arc<OpenCard>> {
        self.card.as_ref().and_then(|(card, _)| card.upgrade())
    }

    /// A request of a card waits; if too many do, or the listener is gone, it is rejected.
    pub(crate) fn push_card(&self, request: CardRequest) {
        let most = self.card.as_ref().map_or(0, |(_, backlog)| *backlog);
        let from = request.link.peer.ip();
        let mut left = Some(request);
        self.waiting.change(|waiting| {
            let Some(waiting) = waiting.as_mut().filter(|waiting| waiting.len() < most) else { return };
            if let Some(request) = left.take() {
                waiting.push(from, Waiting::Card(request));
                self.readable.signal();
            }
        });
        // What is left is rejected here, outside of the lock.
        drop(left);
    }
}

impl Acceptor for Queue {
    fn requested(&self, manager: &ConnectionManager, request: Box<Request>) -> Arc<dyn Watcher> {
        let (id, link) = (request.id, Link::asked(&request));
        let watcher = Arc::clone(&link);
        let taken = self.waiting.change(|waiting| {
            let waiting = waiting.as_mut()?;
            waiting.push(request.ends.remote, Waiting::Soft { request, link });
            self.readable.signal();
            Some(())
        });
        if taken.is_none() {
            manager.abandon(id);
        }
        watcher
    }
}

/// Binds to this port of a space; to a free one if it is 0.
pub(crate) fn free_port<T>(
    context: &Context,
    space: PortSpace,
    port: u16,
    bind: impl Fn(ServiceId) -> Result<T, ListenError>,
) -> Result<T, ListenError> {
    if port != 0 {
        return bind(ServiceId::rdma_ip(space, port));
    }
    for _ in 0..TRIES {
        let random = context.device().random_u32() & 0x3fff;
        let port = 0xc000 | u16::try_from(random).unwrap_or(0);
        match bind(ServiceId::rdma_ip(space, port)) {
            Err(ListenError::Taken { .. } | ListenError::TakenOnCard { .. }) => {}
            other => return other,
        }
    }
    Err(ListenError::NoPort)
}
