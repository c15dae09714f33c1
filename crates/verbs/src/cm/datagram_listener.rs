//! Where questions for a datagram service come in, for a program that answers each of them itself.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use ferroce_device::cm::{Asked, ConnectionManager, Hearer, ListeningTo, Notice};
use ferroce_device::{EventFd, Nic};
use ferroce_wire::mad::{Opaque, PortSpace, ServiceId, SidrRep, SidrStatus};
use ferroce_wire::{QKey, Qpn, Service};

use super::error::{CmError, ListenError};
use super::listener::free_port;
use crate::capability::Capability;
use crate::context::Context;
use crate::device::Device;
use crate::error::WaitError;
use crate::queue_pair::QueuePair;

/// Where questions for a datagram service come in, as requests for connections come in at a
/// [`Listener`](super::Listener): waited for, awaited, or polled by a descriptor. Several threads may take
/// from one.
///
/// A program that gives every peer the same answer offers a [`DatagramService`](super::DatagramService)
/// instead.
///
/// Questions that wait when it is dropped are not answered; peers that ask again hear that there is no such
/// service.
#[derive(Debug)]
pub struct DatagramListener {
    nic: Nic,
    manager: Arc<ConnectionManager>,
    queue: Arc<Queue>,
    service: ServiceId,
    _listening: ListeningTo,
}

/// Questions that the program has not answered.
#[derive(Debug)]
struct Queue {
    inside: Notice<Inside>,
    /// Readable while some wait.
    readable: EventFd,
    backlog: usize,
}

#[derive(Debug, Default)]
struct Inside {
    waiting: VecDeque<Box<Asked>>,
    /// Those that the program has taken and not answered. A peer that asks again is not heard twice.
    taken: BTreeSet<Name>,
}

/// A question, as its peer names it.
type Name = (IpAddr, u32);

/// Questions that may wait, whatever the program asks for.
const MOST: usize = 1024;

/// How long a question waits before it makes way for others: by then, peers have given up or asked again.
const KEPT: Duration = Duration::from_secs(10);

impl DatagramListener {
    /// Listens on a port; on a free one if it is 0. So many questions may wait to be answered, up to 1024;
    /// peers that ask more hear nothing, and ask again.
    ///
    /// # Errors
    /// The port is taken.
    pub fn bind(context: &Context, port: u16, backlog: usize) -> Result<Self, ListenError> {
        free_port(context, PortSpace::Udp, port, |service| Self::bind_service(context, service, backlog))
    }

    /// Listens for a service that is no port.
    ///
    /// # Errors
    /// The service is taken.
    pub fn bind_service(context: &Context, service: ServiceId, backlog: usize) -> Result<Self, ListenError> {
        let nic = context.device().soft(Capability::DatagramPorts)?;
        let system = |error: io::Error| ListenError::System(error.kind());
        let readable = EventFd::new().map_err(system)?;
        let inside = Notice::new(Inside::default());
        let queue = Arc::new(Queue { inside, readable, backlog: backlog.clamp(1, MOST) });
        let manager = nic.connections().map_err(system)?;
        let hearer = Arc::clone(&queue);
        let listening = manager.hear(nic, service, hearer);
        let listening = listening.map_err(|error| ListenError::from_device(service, error))?;
        Ok(Self { nic: nic.clone(), manager, queue, service, _listening: listening })
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

    /// The oldest question, waiting for one until the time is over; for ever with `None`.
    ///
    /// # Errors
    /// The time is over.
    pub fn accept(&self, timeout: impl Into<Option<Duration>>) -> Result<DatagramRequest, WaitError> {
        if !self.nic.is_ours() {
            return Err(WaitError::Forked);
        }
        let timeout = timeout.into();
        let found = self.queue.inside.wait(timeout, |inside| self.queue.pop(inside));
        let found = found.ok_or(WaitError::TimedOut(timeout.unwrap_or(Duration::MAX)))?;
        Ok(self.request(found))
    }

    /// The oldest question, if there is one.
    #[must_use]
    pub fn try_accept(&self) -> Option<DatagramRequest> {
        if !self.nic.is_ours() {
            return None;
        }
        let found = self.queue.inside.look(|inside| self.queue.pop(inside));
        found.map(|found| self.request(found))
    }

    /// The oldest question; if there is none, the task is woken when one comes. In a child of the process
    /// that opened the device none ever does.
    pub fn poll_accept(&self, cx: &mut TaskContext<'_>) -> Poll<DatagramRequest> {
        if !self.nic.is_ours() {
            return Poll::Pending;
        }
        match self.queue.inside.poll(cx.waker(), |inside| self.queue.pop(inside)) {
            Some(found) => Poll::Ready(self.request(found)),
            None => Poll::Pending,
        }
    }

    /// The next question, for a program that awaits. Dropping the future loses no question.
    pub fn next(&self) -> impl Future<Output = DatagramRequest> + Send + '_ {
        std::future::poll_fn(|cx| self.poll_accept(cx))
    }

    fn request(&self, asked: Box<Asked>) -> DatagramRequest {
        let (nic, manager, queue) = (self.nic.clone(), Arc::clone(&self.manager), Arc::clone(&self.queue));
        DatagramRequest { nic, manager, queue, asked, answered: false }
    }
}

/// Readable while questions wait.
impl AsFd for DatagramListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.readable.as_fd()
    }
}

impl Queue {
    fn pop(&self, inside: &mut Inside) -> Option<Box<Asked>> {
        let found = inside.waiting.pop_front();
        if let Some(asked) = &found {
            inside.taken.insert(name(asked));
        }
        if inside.waiting.is_empty() {
            self.readable.clear();
        }
        found
    }
}

impl Hearer for Queue {
    fn asked(&self, question: Box<Asked>) -> bool {
        let this = name(&question);
        self.inside.change(|inside| {
            if inside.taken.contains(&this) || inside.waiting.iter().any(|waiting| name(waiting) == this) {
                return true;
            }
            while inside.waiting.front().is_some_and(|oldest| question.time.since(oldest.time) > KEPT) {
                inside.waiting.pop_front();
            }
            if inside.waiting.len() >= self.backlog {
                return false;
            }
            inside.waiting.push_back(question);
            self.readable.signal();
            true
        })
    }
}

fn name(asked: &Asked) -> Name {
    (asked.ends.remote, asked.req.request_id)
}

/// A peer asks which queue pair takes datagrams for a service. Dropping this refuses to tell.
#[must_use = "dropping it refuses to answer"]
#[derive(Debug)]
pub struct DatagramRequest {
    nic: Nic,
    manager: Arc<ConnectionManager>,
    queue: Arc<Queue>,
    asked: Box<Asked>,
    answered: bool,
}

impl DatagramRequest {
    /// The peer: its address, and the port that it asks from.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.asked.peer()
    }

    /// Which of our addresses is asked, and the port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.asked.local()
    }

    /// What the program on the other side sent along, zeros at the end included: 180 bytes for a port, 216
    /// for another service.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.asked.private_data()
    }

    /// Tells the peer of a queue pair of the same device, which takes datagrams that show this Q_Key, with at
    /// most 136 bytes for the program on the other side.
    ///
    /// # Errors
    /// The queue pair is not one for datagrams or of another device, the bytes are too many, or the peer
    /// cannot be reached. In the first cases it is refused.
    pub fn accept(mut self, qp: &QueuePair, qkey: QKey, private_data: &[u8]) -> Result<(), CmError> {
        let (qpn, given) = (qp.qpn(), qp.service());
        if !qp.domain().is_of(&Device::Soft(self.nic.clone())) {
            return Err(CmError::OtherDevice { qpn });
        }
        if given != Service::Ud {
            return Err(CmError::WrongService { qpn, given, needed: Service::Ud });
        }
        self.answer(SidrStatus::VALID, (qpn, qkey), private_data)
    }

    /// Refuses, with at most 136 bytes for the program on the other side.
    ///
    /// # Errors
    /// The bytes are too many, or the peer cannot be reached.
    pub fn reject(self, private_data: &[u8]) -> Result<(), CmError> {
        self.reject_with(SidrStatus::REJECTED, private_data)
    }

    /// The same for another reason than the program's own.
    ///
    /// # Errors
    /// The bytes are too many, or the peer cannot be reached.
    pub fn reject_with(mut self, status: SidrStatus, private_data: &[u8]) -> Result<(), CmError> {
        self.answer(status, (Qpn::SMI, QKey(0)), private_data)
    }

    fn answer(
        &mut self,
        status: SidrStatus,
        (qpn, qkey): (Qpn, QKey),
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let (given, allowed) = (private_data.len(), Opaque::<136>::LEN);
        let too_long = |_| CmError::PrivateDataTooLong { given, allowed };
        let private_data = Opaque::new(private_data).map_err(too_long)?;
        self.answered = true;
        let rep = SidrRep { status, qpn, qkey, private_data, ..SidrRep::default() };
        let sent = self.manager.answer(&self.asked, &rep);
        let peer = self.peer();
        sent.map_err(|error| CmError::Unreachable { peer, error: error.kind() })
    }
}

impl Drop for DatagramRequest {
    fn drop(&mut self) {
        if !self.nic.is_ours() {
            return;
        }
        if !self.answered {
            // If the peer cannot be reached, it hears as little as from one that is gone.
            let _ = self.answer(SidrStatus::REJECTED, (Qpn::SMI, QKey(0)), &[]);
        }
        // From now on it is heard if it asks again: the answer may have been lost.
        self.queue.inside.look(|inside| inside.taken.remove(&name(&self.asked)));
    }
}
