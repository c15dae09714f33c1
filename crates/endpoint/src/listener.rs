//! Waiting for connections.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use ferroce_verbs::Context;
use ferroce_verbs::cm::{self, CmError, CmOptions, ConnectRequest, Connecting, Established, ListenError};

use crate::call::block_on;
use crate::connection::Connection;
use crate::core::{Waiters, Wakes};
use crate::device;
use crate::error::{AcceptError, BindError, Refusal, SetupError};
use crate::half::Half;
use crate::hello::Hello;
use crate::line::Managed;
use crate::options::{Options, Polling};

/// Waits for connections on an address and a port.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce_endpoint::{Connection, Listener};
///
/// let listener = Listener::bind("127.0.43.1:7471")?;
/// let client = std::thread::spawn(|| {
///     let connection = Connection::connect("127.0.43.1:7471").wait()?;
///     connection.send(b"hello").wait()?;
///     connection.close().wait()?;
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// });
/// let connection = listener.accept().wait()?;
/// assert_eq!(connection.recv().wait()?.unwrap(), b"hello");
/// client.join().unwrap().unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    /// Only this address, unless it is unspecified.
    address: IpAddr,
    port: u16,
    options: Options,
    inside: Mutex<Inside>,
}

struct Inside {
    /// One for each device that has a part of the addresses; none when it is closed.
    doors: Vec<Door>,
    /// Calls that wait for a connection, and how many there may be before those that were given up are forgotten.
    waiting: Waiters,
    most_waiting: usize,
    /// Accepted, and not confirmed by their peers.
    coming: Vec<Coming>,
    counters: ListenerCounters,
}

/// A device on which connections are waited for.
struct Door {
    cm: cm::Listener,
    context: Context,
}

struct Coming {
    from: IpAddr,
    half: Half,
    connecting: Connecting,
}

/// Calls that may wait for a connection before those that were given up are forgotten, at the least.
const MOST_WAITING: usize = 64;

/// Those that are coming, when there is no room for more: each address has a share in it.
struct Crowd {
    of: HashMap<IpAddr, usize>,
    /// How many the address with the most has, and the place of its newest.
    most: usize,
    newest: usize,
}

impl Crowd {
    /// Whether one of the address with the most makes room for this one.
    fn makes_room_for(&self, from: IpAddr) -> bool {
        self.most > self.of.get(&from).copied().unwrap_or(0) + 1
    }
}

/// What a listener has to do.
enum Next {
    Nothing,
    /// A peer asks for a connection, at this device.
    Request(ConnectRequest, Context),
    /// A connection has come about, or none will.
    Ended(Result<Connection, AcceptError>),
}

impl Inside {
    /// Has `waker` called when the listener is closed.
    fn wait(&mut self, waker: &Waker, wakes: &mut Wakes) {
        if self.waiting.len() >= self.most_waiting {
            // Calls that wait still will be back; those that were given up are forgotten. If so many do wait, there is more room
            // for them.
            self.most_waiting = (self.waiting.len() * 2).max(MOST_WAITING);
            self.waiting.wake(wakes);
        }
        self.waiting.add(waker);
    }

    fn next(&mut self, backlog: usize, context: &mut TaskContext<'_>) -> Next {
        if self.doors.is_empty() {
            return Next::Ended(Err(AcceptError::Closed));
        }
        loop {
            for door in 0..self.doors.len() {
                let crowd = self.crowd(backlog);
                let wanted = |from| crowd.as_ref().is_none_or(|crowd| crowd.makes_room_for(from));
                let Door { cm, context: device } = &self.doors[door];
                if let Poll::Ready(request) = cm.poll_accept_from(context, wanted) {
                    let next = Next::Request(request, device.clone());
                    if let Some(crowd) = crowd {
                        self.coming.remove(crowd.newest);
                        self.counters.crowded_out += 1;
                    }
                    return next;
                }
            }
            let Some((half, outcome)) = self.next_outcome(context) else { return Next::Nothing };
            // A peer that has given up makes room for another.
            let Ok(established) = outcome else {
                self.counters.given_up += 1;
                continue;
            };
            let (local, peer) = (established.local(), established.peer());
            let hello = established.private_data().to_vec();
            let opened = half.open(&hello, Box::new(Managed(established)), local, peer);
            self.counters.accepted += u64::from(opened.is_ok());
            return Next::Ended(opened.map_err(AcceptError::from));
        }
    }

    /// Those that are coming, if there is no room for more.
    fn crowd(&self, room: usize) -> Option<Crowd> {
        if self.coming.len() < room {
            return None;
        }
        let mut of = HashMap::new();
        for coming in &self.coming {
            *of.entry(coming.from).or_default() += 1;
        }
        let (heaviest, most) =
            of.iter().max_by_key(|(_, count)| **count).map(|(from, count)| (*from, *count))?;
        let newest = self.coming.iter().rposition(|coming| coming.from == heaviest)?;
        Some(Crowd { of, most, newest })
    }

    /// One of those that are coming and has come, or has not.
    fn next_outcome(
        &mut self,
        context: &mut TaskContext<'_>,
    ) -> Option<(Half, Result<Established, CmError>)> {
        for index in 0..self.coming.len() {
            if let Poll::Ready(outcome) = self.coming[index].connecting.poll_established(context) {
                return Some((self.coming.remove(index).half, outcome));
            }
        }
        None
    }
}

/// What happened to a listener so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerCounters {
    /// Connections handed to the program.
    pub accepted: u64,
    /// Requests of peers that do not speak our protocol, or another version of it.
    pub foreign: u64,
    /// Requests of peers that the program does not admit.
    pub not_admitted: u64,
    /// Requests for which there was no room.
    pub no_room: u64,
    /// Peers that did not go through with it.
    pub given_up: u64,
    /// Accepted requests that were taken back before their peer confirmed, for an address with fewer of them.
    pub crowded_out: u64,
}

impl Listener {
    /// Listens. Port 0 takes a free one, which [`local_addr`](Self::local_addr) tells.
    ///
    /// An unspecified address (`0.0.0.0`, `::`) means all addresses of the first device. If this process, or another one of this
    /// user, has some of them as devices of their own, it means the interface's own addresses, and all that this process
    /// has open by now.
    ///
    /// # Errors
    /// There is no device with this address, or another listener has the port.
    pub fn bind(address: impl std::net::ToSocketAddrs) -> Result<Self, BindError> {
        Self::bind_with(address, &Options::default())
    }

    /// Listens for connections that behave like this.
    ///
    /// # Errors
    /// There is no device with this address, another listener has the port, or an option is wrong.
    pub fn bind_with(address: impl std::net::ToSocketAddrs, options: &Options) -> Result<Self, BindError> {
        options.check()?;
        let address = device::first(address)?;
        let contexts = match &options.context {
            Some(context) => vec![context.clone()],
            None => device::open_own(address.ip())?,
        };
        let (doors, port) = open_doors(&contexts, address.port(), options.backlog)?;
        let (coming, counters, waiting) = (Vec::new(), ListenerCounters::default(), Waiters::default());
        let most_waiting = MOST_WAITING;
        let inside = Mutex::new(Inside { doors, waiting, most_waiting, coming, counters });
        Ok(Self { address: address.ip(), port, options: options.clone(), inside })
    }

    /// Its address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// The next connection.
    pub const fn accept(&self) -> Accept<'_> {
        Accept { listener: self }
    }

    /// Ends it, from any thread: no more peers are let in, the port is free again, and calls that wait for a connection
    /// give [`AcceptError::Closed`]. Connections that were accepted go on. Calling it again does nothing.
    pub fn close(&self) {
        let (doors, coming, wakes) = {
            let mut inside = self.inside();
            let mut wakes = Wakes::new();
            inside.waiting.wake(&mut wakes);
            (std::mem::take(&mut inside.doors), std::mem::take(&mut inside.coming), wakes)
        };
        // Outside of the lock, for it tells peers, and calls wakers.
        drop((doors, coming));
        wakes.into_iter().for_each(Waker::wake);
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> ListenerCounters {
        self.inside().counters
    }

    /// The next connection, if there is one; the task is woken when there may be.
    ///
    /// # Errors
    /// The device has no room for one more, or the listener is closed.
    pub fn poll_accept(&self, context: &mut TaskContext<'_>) -> Poll<Result<Connection, AcceptError>> {
        let mut wakes = Wakes::new();
        self.inside().wait(context.waker(), &mut wakes);
        wakes.into_iter().for_each(Waker::wake);
        let accepted = loop {
            let next = self.inside().next(self.options.backlog, context);
            match next {
                Next::Nothing => return Poll::Pending,
                Next::Ended(accepted) => break accepted,
                // Outside of the lock, since functions of the program judge the peer.
                Next::Request(request, device) => {
                    if let Err(error) = self.take_in(request, &device) {
                        break Err(error.into());
                    }
                }
            }
        };
        self.inside().waiting.remove(context.waker());
        Poll::Ready(accepted)
    }

    fn take_in(&self, request: ConnectRequest, device: &Context) -> Result<(), SetupError> {
        let coming = self.answer(request, device)?;
        let mut inside = self.inside();
        // It may have been closed meanwhile; then the peer is told by dropping it, outside of the lock.
        if inside.doors.is_empty() {
            drop(inside);
            return Ok(());
        }
        inside.coming.extend(coming);
        Ok(())
    }

    /// Accepts a request, or refuses it with a reason.
    fn answer(&self, request: ConnectRequest, context: &Context) -> Result<Option<Coming>, SetupError> {
        let (local, peer) = (request.local(), request.peer());
        // Counted before the peer hears of it, so that one that asks then finds it counted.
        let refuse = |request: ConnectRequest, why: Refusal, count: fn(&mut ListenerCounters)| {
            count(&mut self.inside().counters);
            // If the peer is gone, it needs no answer.
            let _ = request.reject(&[why as u8]);
            Ok(None)
        };
        if !self.address.is_unspecified() && local.ip() != self.address {
            return refuse(request, Refusal::NotAdmitted, |counters| counters.not_admitted += 1);
        }
        if Hello::parse(request.private_data()).is_err() {
            return refuse(request, Refusal::Foreign, |counters| counters.foreign += 1);
        }
        if self.options.admit.as_ref().is_some_and(|admit| !admit(peer)) {
            return refuse(request, Refusal::NotAdmitted, |counters| counters.not_admitted += 1);
        }
        let half = match Half::new(context, Some(local.ip()), peer, &self.options) {
            Ok(half) => half,
            Err(error) => {
                let _ = refuse(request, Refusal::NoRoom, |counters| counters.no_room += 1);
                return Err(error);
            }
        };
        let options = cm_options(&self.options, &half.hello());
        match request.start_accept(half.queue_pair(), &options) {
            Ok(connecting) => Ok(Some(Coming { from: peer.ip(), half, connecting })),
            // The peer gave up, or lies about what it wants.
            Err(_) => {
                self.inside().counters.given_up += 1;
                Ok(None)
            }
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often another free port is tried, if the first is not free on all devices.
const PORTS: usize = 16;

/// Listens on all of these devices, on the same port; which one it is.
fn open_doors(contexts: &[Context], port: u16, backlog: usize) -> Result<(Vec<Door>, u16), ListenError> {
    let mut tries = 0;
    loop {
        let (mut doors, mut chosen) = (Vec::with_capacity(contexts.len()), port);
        let mut open = |context: &Context| {
            let cm = cm::Listener::bind(context, chosen, backlog)?;
            chosen = cm.port();
            doors.push(Door { cm, context: context.clone() });
            Ok(())
        };
        match contexts.iter().try_for_each(&mut open) {
            Ok(()) => return Ok((doors, chosen)),
            Err(_) if port == 0 && !doors.is_empty() && tries < PORTS => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}

/// The next connection of a [`Listener`]: waited for, or awaited. Dropping it loses no connection.
#[must_use = "nothing is accepted until it is waited for: `.wait()?` or `.await?`"]
#[derive(Debug)]
pub struct Accept<'a> {
    listener: &'a Listener,
}

impl Accept<'_> {
    /// Blocks this thread until there is one.
    ///
    /// # Errors
    /// The device has no room for one more, or the listener is closed.
    pub fn wait(self) -> Result<Connection, AcceptError> {
        self.block(None)
    }

    /// The same, but not for longer than this.
    ///
    /// # Errors
    /// The device has no room for one more, the listener is closed, or the time is over.
    pub fn wait_for(self, limit: Duration) -> Result<Connection, AcceptError> {
        self.block(Some(limit))
    }

    fn block(self, limit: Option<Duration>) -> Result<Connection, AcceptError> {
        let poll = |waker: Option<&Waker>| {
            let waker = waker.unwrap_or(Waker::noop());
            self.listener.poll_accept(&mut TaskContext::from_waker(waker))
        };
        let accepted = block_on(Polling::Event, limit, poll);
        accepted.unwrap_or(Err(AcceptError::TimedOut(limit.unwrap_or_default())))
    }
}

impl Future for Accept<'_> {
    type Output = Result<Connection, AcceptError>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.listener.poll_accept(context)
    }
}

/// How connection management is asked for what the program wants.
pub(crate) fn cm_options(options: &Options, hello: &[u8]) -> CmOptions {
    CmOptions {
        private_data: hello.to_vec(),
        timeout: options.connect_timeout,
        retries: options.connect_retries,
        qp: options.connect_options(),
        ..CmOptions::default()
    }
}

/// Why a peer refused, if its program said so in our language.
pub(crate) fn refusal(error: &CmError) -> Option<Refusal> {
    match error {
        CmError::Refused { private_data, .. } => Refusal::from_code(*private_data.first()?),
        _ => None,
    }
}
