//! Queue pairs: where work is posted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ferroce_device::{AddressVector, PathChoice, PathReport, Qp, QpReport, QpState};
use ferroce_transport::{Attributes, Counters, MaskedAdd, MaskedSwap, State};
use ferroce_wire::{Gid, QKey, Qpn, Rkey, Service};

use crate::abort_handle::AbortHandle;
use crate::address_handle::AddressHandle;
use crate::batch::Batch;
use crate::capability::{Capability, Unsupported};
use crate::card::CardQueuePair;
use crate::completion_queue::CompletionQueue;
use crate::error::{CreateError, PostError, PostTarget, QpError};
use crate::local_slice::Pieces;
use crate::memory_window::Binding;
use crate::protection_domain::Domain;
use crate::receive::{Receive, ReceiveBatch};
use crate::remote::RemoteSlice;
use crate::work::{Bytes, Dest, Operation, Work};

/// A queue pair: a send queue, a receive queue, and the protocol between it and its peer.
///
/// It holds its completion queues, its domain and its shared receive queue, so these may be dropped in
/// any order. Dropping it ends it: work under way is forgotten without completions.
///
/// Work is described and then posted: `qp.write(local, remote).id(5).post()?`. Nothing waits; what
/// became of the work is told by the completion queue.
pub struct QueuePair {
    of: Of,
    domain: Arc<Domain>,
    /// The first PSN that it sends.
    pub(crate) psn: AtomicU32,
    pub(crate) gid_index: usize,
    pub(crate) gid: Gid,
}

/// The queue pair of the device.
pub(crate) enum Of {
    Soft(Arc<Qp>),
    Card(Arc<CardQueuePair>),
}

impl QueuePair {
    pub(crate) const fn new(of: Of, domain: Arc<Domain>, psn: u32, (gid_index, gid): (usize, Gid)) -> Self {
        Self { of, domain, psn: AtomicU32::new(psn), gid_index, gid }
    }

    /// Its number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        match &self.of {
            Of::Soft(qp) => qp.qpn(),
            Of::Card(qp) => qp.qp.qpn(),
        }
    }

    /// Its service.
    #[must_use]
    pub fn service(&self) -> Service {
        match &self.of {
            Of::Soft(qp) => qp.service(),
            Of::Card(qp) => qp.qp.service(),
        }
    }

    /// Where its sends complete.
    #[must_use]
    pub fn send_completions(&self) -> CompletionQueue {
        match &self.of {
            Of::Soft(qp) => CompletionQueue::soft(Arc::clone(qp.send_cq())),
            Of::Card(qp) => CompletionQueue::card(Arc::clone(&qp.send_cq)),
        }
    }

    /// Where its receives complete.
    #[must_use]
    pub fn receive_completions(&self) -> CompletionQueue {
        match &self.of {
            Of::Soft(qp) => CompletionQueue::soft(Arc::clone(qp.receive_cq())),
            Of::Card(qp) => CompletionQueue::card(Arc::clone(&qp.receive_cq)),
        }
    }

    /// A message into a receive of the peer.
    #[inline]
    pub fn send<'a>(&'a self, from: impl Into<Pieces<'a>>) -> Work<'a> {
        Work::new(self, Operation::Send, Bytes::Pieces(from.into()))
    }

    /// The same with bytes that need not be registered: they are copied when posted. How many
    /// are possible was said when the queue pair was made.
    #[inline]
    pub const fn send_inline<'a>(&'a self, bytes: &'a [u8]) -> Work<'a> {
        Work::new(self, Operation::Send, Bytes::Inline(bytes))
    }

    /// A datagram to a queue pair elsewhere, which must show its Q_Key.
    pub fn send_to<'a>(
        &'a self,
        address: &'a AddressHandle,
        qpn: Qpn,
        qkey: QKey,
        from: impl Into<Pieces<'a>>,
    ) -> Work<'a> {
        self.addressed(self.send(from), address, qpn, qkey)
    }

    /// The same with bytes that need not be registered.
    pub fn send_inline_to<'a>(
        &'a self,
        address: &'a AddressHandle,
        qpn: Qpn,
        qkey: QKey,
        bytes: &'a [u8],
    ) -> Work<'a> {
        self.addressed(self.send_inline(bytes), address, qpn, qkey)
    }

    /// Our memory into the peer's.
    #[inline]
    pub fn write<'a>(&'a self, from: impl Into<Pieces<'a>>, to: impl Into<RemoteSlice>) -> Work<'a> {
        Work::at(self, Operation::Write, to.into(), Bytes::Pieces(from.into()))
    }

    /// Bytes that need not be registered into the peer's memory.
    #[inline]
    pub fn write_inline<'a>(&'a self, bytes: &'a [u8], to: impl Into<RemoteSlice>) -> Work<'a> {
        Work::at(self, Operation::Write, to.into(), Bytes::Inline(bytes))
    }

    /// The peer's memory into ours: as many bytes as our pieces have.
    #[inline]
    pub fn read<'a>(&'a self, into: impl Into<Pieces<'a>>, from: impl Into<RemoteSlice>) -> Work<'a> {
        Work::at(self, Operation::Read, from.into(), Bytes::Pieces(into.into()))
    }

    /// Stores `swap` into eight bytes of the peer if `compare` is there, all at once. What was there
    /// comes into our eight bytes, as a number of this machine.
    #[inline]
    pub fn compare_swap<'a>(
        &'a self,
        before: impl Into<Pieces<'a>>,
        at: impl Into<RemoteSlice>,
        compare: u64,
        swap: u64,
    ) -> Work<'a> {
        let operation = Operation::CompareSwap { compare, swap };
        Work::at(self, operation, at.into(), Bytes::Pieces(before.into()))
    }

    /// Adds to eight bytes of the peer, all at once. What was there comes into our eight bytes, as a
    /// number of this machine.
    #[inline]
    pub fn fetch_add<'a>(
        &'a self,
        before: impl Into<Pieces<'a>>,
        at: impl Into<RemoteSlice>,
        add: u64,
    ) -> Work<'a> {
        Work::at(self, Operation::FetchAdd { add }, at.into(), Bytes::Pieces(before.into()))
    }

    /// Stores some bits into eight bytes of the peer if some of theirs are as expected, all at once.
    /// What was there comes into our eight bytes, as a number of this machine.
    ///
    /// Masked atomics work between two of our own make: the IBA has none, and a peer that does not know
    /// them drops them, so that the work ends as [`Status::RetryExceeded`](crate::Status::RetryExceeded).
    pub fn masked_compare_swap<'a>(
        &'a self,
        before: impl Into<Pieces<'a>>,
        at: impl Into<RemoteSlice>,
        swap: MaskedSwap,
    ) -> Work<'a> {
        Work::at(self, Operation::MaskedCompareSwap { swap }, at.into(), Bytes::Pieces(before.into()))
    }

    /// Adds to several fields of eight bytes of the peer, all at once: no carry goes from one field to
    /// the next. What was there comes into our eight bytes. Only for peers of our own make, as
    /// [`masked_compare_swap`](Self::masked_compare_swap).
    pub fn masked_fetch_add<'a>(
        &'a self,
        before: impl Into<Pieces<'a>>,
        at: impl Into<RemoteSlice>,
        add: MaskedAdd,
    ) -> Work<'a> {
        Work::at(self, Operation::MaskedFetchAdd { add }, at.into(), Bytes::Pieces(before.into()))
    }

    /// Eight bytes into the peer's memory, all at once.
    pub fn atomic_write<'a>(&'a self, from: impl Into<Pieces<'a>>, to: impl Into<RemoteSlice>) -> Work<'a> {
        Work::at(self, Operation::AtomicWrite, to.into(), Bytes::Pieces(from.into()))
    }

    /// The same with bytes that need not be registered.
    pub fn atomic_write_inline<'a>(&'a self, bytes: &'a [u8; 8], to: impl Into<RemoteSlice>) -> Work<'a> {
        Work::at(self, Operation::AtomicWrite, to.into(), Bytes::Inline(bytes))
    }

    /// Takes a key of our own out of use, in order with other work. No packet is sent.
    pub const fn local_invalidate(&self, rkey: Rkey) -> Work<'_> {
        Work::new(self, Operation::LocalInvalidate(rkey), Bytes::Inline(&[]))
    }

    /// Binds a memory window to a part of a region, or unbinds it, in order with other work. No packet is
    /// sent; when it is done, a peer may be told of [`Binding::remote`](crate::Binding::remote).
    pub fn bind_window<'a>(&'a self, binding: Binding<'a>) -> Work<'a> {
        let by = PostTarget::QueuePair(self.qpn());
        let nothing = Bytes::Inline(&[]);
        match binding.to_bound(&self.domain, by) {
            Ok(bound) => Work::new(self, Operation::Bind(bound), nothing),
            Err(error) => Work::new(self, Operation::Send, nothing).refuse(error),
        }
    }

    /// Has it get datagrams that are sent to a multicast group, beside its own.
    ///
    /// On a loopback device these are the datagrams of all processes that share the device; on any other,
    /// those of the network. Its own are among them.
    ///
    /// # Errors
    /// It is not a datagram queue pair, the address is no group, or there are too many.
    pub fn attach_to_group(&self, group: Gid) -> Result<(), CreateError> {
        match &self.of {
            Of::Soft(qp) => Ok(qp.attach_to_group(group)?),
            Of::Card(qp) => qp.attach_to_group(group),
        }
    }

    /// Ends that.
    ///
    /// # Errors
    /// It is not attached.
    pub fn detach_from_group(&self, group: Gid) -> Result<(), CreateError> {
        match &self.of {
            Of::Soft(qp) => Ok(qp.detach_from_group(group)?),
            Of::Card(qp) => qp.detach_from_group(group),
        }
    }

    /// A datagram to all queue pairs that are attached to a multicast group; `group` is a handle of its
    /// address.
    pub fn send_to_group<'a>(
        &'a self,
        group: &'a AddressHandle,
        qkey: QKey,
        from: impl Into<Pieces<'a>>,
    ) -> Work<'a> {
        self.addressed(self.send(from), group, Qpn::MULTICAST, qkey)
    }

    /// Several requests with one doorbell.
    #[inline]
    pub const fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// A receive, to be posted: the next message goes into these pieces.
    pub fn receive<'a>(&'a self, into: impl Into<Pieces<'a>>) -> Receive<'a> {
        Receive::on_queue_pair(self, into.into())
    }

    /// Several receives at once.
    pub const fn receive_batch(&self) -> ReceiveBatch<'_> {
        ReceiveBatch::on_queue_pair(self)
    }

    /// Changes attributes and state as the program wants it; `address` goes with
    /// [`AttributeMask::AV`](crate::AttributeMask::AV).
    ///
    /// # Errors
    /// What was given and what is allowed; nothing has changed.
    pub fn modify(&self, attributes: &Attributes, address: Option<&AddressVector>) -> Result<(), QpError> {
        match &self.of {
            Of::Soft(qp) => Ok(qp.modify(attributes, address)?),
            Of::Card(qp) => qp.modify(attributes, address),
        }
    }

    /// Everything that is known of it.
    ///
    /// # Errors
    /// It is gone, which cannot be while this handle exists.
    pub fn query(&self) -> Result<QpState, QpError> {
        match &self.of {
            Of::Soft(qp) => Ok(qp.query()?),
            Of::Card(qp) => qp.query(),
        }
    }

    /// What routers and hosts have sent back of its datagrams since it was asked last, oldest first. Only a queue pair
    /// with [`stamps`](crate::QueuePairBuilder::stamps) is told, and only of datagrams that left from a
    /// [source port](crate::SourcePort) of their own: the port of RoCEv2 belongs to many sockets, and the kernel tells one of
    /// them.
    #[must_use]
    pub fn path_reports(&self) -> Vec<PathReport> {
        match &self.of {
            Of::Soft(qp) => qp.path_reports(),
            Of::Card(_) => Vec::new(),
        }
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.query().map_or(State::Err, |known| known.attributes.state)
    }

    /// Which way its packets take, and why; nothing before it is connected, and on a card.
    #[must_use]
    pub fn path(&self) -> Option<PathChoice> {
        self.query().ok().and_then(|known| known.path)
    }

    /// What happened to it so far; nothing on a card, which does not tell ([`Counters`](crate::Capability::Counters)).
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.query().map_or_else(|_| Counters::default(), |known| known.counters)
    }

    /// What it has done so far, and how full its queues are: completions by status, retries, time-outs, RNR
    /// NAKs and the rest.
    #[must_use]
    pub fn report(&self) -> QpReport {
        match &self.of {
            Of::Soft(qp) => qp.report().unwrap_or_default(),
            Of::Card(_) => QpReport::default(),
        }
    }

    /// A handle that can end this queue pair from elsewhere, and does not hold it.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(&self.of)
    }

    /// The queue pair as the device knows it, for the tests of this crate alone: it takes the bare requests
    /// of the IBA, also those that this API does not let a program make. Nothing on a card.
    #[doc(hidden)]
    #[must_use]
    pub const fn as_device(&self) -> Option<&Arc<Qp>> {
        match &self.of {
            Of::Soft(qp) => Some(qp),
            Of::Card(_) => None,
        }
    }

    #[inline]
    pub(crate) const fn of(&self) -> &Of {
        &self.of
    }

    /// How many READs and atomics a card lets be under way: ours, and the peer's here. The soft device says so itself.
    pub(crate) fn read_depths(&self) -> (u8, u8) {
        match &self.of {
            Of::Soft(_) => (u8::MAX, u8::MAX),
            Of::Card(qp) => qp.read_depths(),
        }
    }

    pub(crate) fn require(&self, capability: Capability) -> Result<(), Unsupported> {
        let can = match &self.of {
            Of::Soft(_) => true,
            Of::Card(qp) => qp.card.can(capability),
        };
        if can { Ok(()) } else { Err(capability.into()) }
    }

    /// Whether its receives are those of a shared queue.
    pub(crate) fn has_shared_queue(&self) -> bool {
        match &self.of {
            Of::Soft(qp) => qp.shared_queue().is_some(),
            Of::Card(qp) => qp.shared_queue.is_some(),
        }
    }

    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    fn addressed<'a>(&self, work: Work<'a>, address: &'a AddressHandle, qpn: Qpn, qkey: QKey) -> Work<'a> {
        if !address.is_of_domain(&self.domain) {
            return work.refuse(PostError::OtherDevice { qpn: self.qpn() });
        }
        let to_group = address.address().gid.ip().is_multicast();
        if to_group != (qpn == Qpn::MULTICAST) {
            return work.refuse(PostError::NotOfGroup { qpn });
        }
        work.to(Dest { address, qpn, qkey })
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({} {})", self.service().name(), self.qpn())
    }
}
