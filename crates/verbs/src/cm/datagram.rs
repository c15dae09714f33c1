//! Datagram services: from a port to a queue pair.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use ferroce_device::cm::{ConnectionManager, Inquiry, ListeningTo, Notice, Watcher};
use ferroce_transport::cm::{DatagramService as Offer, Ends, Event, Query};
use ferroce_wire::mad::{CommId, Opaque, PortSpace, ServiceId, SidrReq};
use ferroce_wire::{Gid, QKey, Qpn, Service};

use super::connecting::ip_private_data;
use super::error::{CmError, ListenError};
use super::options::CmOptions;
use crate::capability::Capability;
use crate::context::Context;
use crate::queue_pair::QueuePair;

/// A datagram queue pair that is offered under a port, until this is dropped. A peer that asks is told its
/// number and its Q_Key; nothing is kept of the peers that ask.
#[derive(Debug)]
pub struct DatagramService {
    port: u16,
    _listening: ListeningTo,
}

impl DatagramService {
    /// Offers a queue pair, which takes datagrams that show this Q_Key
    /// ([`activate`](QueuePair::activate)), with at most 136 bytes for the peers that ask.
    ///
    /// # Errors
    /// The port is taken, or the queue pair is not one for datagrams.
    pub fn bind(qp: &QueuePair, port: u16, qkey: QKey, private_data: &[u8]) -> Result<Self, ListenError> {
        let (qpn, given) = (qp.qpn(), qp.service());
        if given != Service::Ud {
            return Err(ListenError::WrongService { qpn, given });
        }
        let (given, allowed) = (private_data.len(), Opaque::<136>::LEN);
        let too_long = |_| ListenError::PrivateDataTooLong { given, allowed };
        let private_data = Opaque::new(private_data).map_err(too_long)?;
        let device = qp.domain().device();
        let nic = device.soft(Capability::DatagramPorts)?;
        let service = ServiceId::rdma_ip(PortSpace::Udp, port);
        let manager = nic.connections().map_err(|error| ListenError::System(error.kind()))?;
        let listening = manager.serve(nic, service, Offer { qpn, qkey, private_data });
        let listening = listening.map_err(|error| ListenError::from_device(service, error))?;
        Ok(Self { port, _listening: listening })
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

/// Where datagrams for a port go: [`QueuePair::send_to`] takes number and key, and an address handle of the
/// GID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramPeer {
    /// The queue pair.
    pub qpn: Qpn,
    /// The key that datagrams must show.
    pub qkey: QKey,
    /// Its device.
    pub gid: Gid,
    /// What its program sent along, zeros at the end included.
    pub private_data: Vec<u8>,
}

/// Asks a peer which queue pair takes datagrams for a port, from one of our addresses. Of the options, the
/// private data (at most 180 bytes), the limits and the P_Key count.
///
/// # Errors
/// What is in the way. It returns within [`CmOptions::timeout`].
pub fn resolve(
    context: &Context,
    from: IpAddr,
    peer: SocketAddr,
    options: &CmOptions,
) -> Result<DatagramPeer, CmError> {
    start_resolve(context, from, peer, options)?.wait()
}

/// The same without waiting.
///
/// # Errors
/// What can be seen at once.
pub fn start_resolve(
    context: &Context,
    from: IpAddr,
    peer: SocketAddr,
    options: &CmOptions,
) -> Result<Resolving, CmError> {
    let nic = context.device().soft(Capability::DatagramPorts)?;
    let (_, private_data) = ip_private_data(nic, (from, peer.ip()), &options.private_data)?;
    let service_id = ServiceId::rdma_ip(PortSpace::Udp, peer.port());
    let index = options.qp.pkey_index.unwrap_or(0);
    let pkey = nic.pkey(index.into()).ok_or(CmError::NoSuchPKey { given: index, len: nic.pkeys().len() })?;
    let req = SidrReq { pkey, service_id, private_data, ..SidrReq::default() };
    let ends = Ends { local: from, remote: peer.ip() };
    let manager = nic.connections().map_err(|error| CmError::system(&error))?;
    let question = Arc::new(Question { peer, answer: Notice::new(None) });
    let query = Query { ends, req, patience: options.patience() };
    let watcher = Arc::clone(&question);
    let id = manager.resolve(&query, watcher).map_err(CmError::NoRoom)?;
    Ok(Resolving { context: context.clone(), manager, id, question })
}

/// A question under way: wait for its answer, await it, or poll it. Dropping it gives the question up.
#[must_use = "dropping it gives the question up"]
#[derive(Debug)]
pub struct Resolving {
    context: Context,
    manager: Arc<ConnectionManager>,
    id: CommId,
    question: Arc<Question>,
}

#[derive(Debug)]
struct Question {
    peer: SocketAddr,
    answer: Notice<Option<Result<DatagramPeer, CmError>>>,
}

impl Resolving {
    /// Waits for the answer. It ends by itself within [`CmOptions::timeout`].
    ///
    /// # Errors
    /// Why there is none.
    pub fn wait(self) -> Result<DatagramPeer, CmError> {
        if !self.context.device().is_ours() {
            return Err(CmError::System(io::ErrorKind::NotConnected));
        }
        let answer = self.question.answer.wait(None, |answer| answer.clone());
        answer.unwrap_or(Err(CmError::System(io::ErrorKind::NotConnected)))
    }
}

impl Future for Resolving {
    type Output = Result<DatagramPeer, CmError>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match self.question.answer.poll(cx.waker(), |answer| answer.clone()) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

impl Drop for Resolving {
    fn drop(&mut self) {
        if self.question.answer.look(|answer| answer.is_none()) {
            self.manager.abandon(self.id);
        }
    }
}

impl Watcher for Question {
    fn happened(&self, _: &ConnectionManager, _: CommId, event: Event) {
        let answer = match event {
            Event::Resolved(found) => Ok(DatagramPeer {
                qpn: found.qpn,
                qkey: found.qkey,
                gid: found.address.into(),
                private_data: found.private_data.0.to_vec(),
            }),
            Event::Failed(failure) => Err(CmError::from_failure(self.peer, failure)),
            // Not of a question.
            Event::Requested(_)
            | Event::Replied(_)
            | Event::Established
            | Event::Doubted
            | Event::Ended(_)
            | Event::Forgotten => return,
        };
        self.answer.change(|place| *place = Some(answer));
    }

    fn unreachable(&self, error: io::Error) {
        let error = CmError::Unreachable { peer: self.peer, error: error.kind() };
        self.answer.change(|place| *place = Some(Err(error)));
    }

    fn has_data(&self) -> bool {
        false
    }

    fn ask(&self) -> Inquiry {
        Inquiry::Cannot
    }

    fn signs_of_life(&self) -> u64 {
        0
    }
}
