//! Work for a send queue, described step by step.

use ferroce_device::Qp;
use ferroce_device::memory::WindowKind;
use ferroce_system::{Bytes as CardBytes, Destination, Operation as CardOperation, Piece, SendWork};
use ferroce_transport::{
    Data, DatagramDest, Load, MaskedAdd, MaskedSwap, Message, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use ferroce_wire::{Imm, QKey, Qpn, Rkey};

use crate::address_handle::AddressHandle;
use crate::capability::Capability;
use crate::card;
use crate::error::{PostError, PostTarget};
use crate::local_slice::Pieces;
use crate::memory_window::Bound;
use crate::queue_pair::{Of, QueuePair};
use crate::remote::RemoteSlice;

/// Work that is being described; [`post`](Self::post) posts it, or it goes into a
/// [`Batch`](crate::Batch).
///
/// It borrows the memory that it names only until it is posted; from then on the device holds it.
#[derive(Clone, Copy, Debug)]
#[must_use = "work is not done until `post`, or until its batch is posted"]
pub struct Work<'a> {
    queue_pair: &'a QueuePair,
    id: u64,
    operation: Operation<'a>,
    /// The peer's memory, for operations on some.
    remote: RemoteSlice,
    bytes: Bytes<'a>,
    extra: Extra,
    flags: SendFlags,
    dest: Option<Dest<'a>>,
    /// What was found wrong while it was described.
    wrong: Option<PostError>,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dest<'a> {
    pub(crate) address: &'a AddressHandle,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: QKey,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<'a> {
    Send,
    Write,
    Read,
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
    MaskedCompareSwap { swap: MaskedSwap },
    MaskedFetchAdd { add: MaskedAdd },
    AtomicWrite,
    LocalInvalidate(Rkey),
    Bind(Bound<'a>),
}

/// The bytes that go, or where they come to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes<'a> {
    Pieces(Pieces<'a>),
    Inline(&'a [u8]),
}

/// Bytes of a request of which nothing is special.
#[derive(Clone, Copy)]
pub(crate) enum Plain<'a> {
    Piece(Piece<'a>),
    Inline(&'a [u8]),
}

/// What goes along.
#[derive(Clone, Copy, Debug)]
enum Extra {
    Nothing,
    Imm(u32),
    Invalidate(Rkey),
}

impl<'a> Work<'a> {
    #[inline]
    pub(crate) const fn new(queue_pair: &'a QueuePair, operation: Operation<'a>, bytes: Bytes<'a>) -> Self {
        Self::at(queue_pair, operation, RemoteSlice::NONE, bytes)
    }

    /// The same with memory of the peer.
    #[inline]
    pub(crate) const fn at(
        queue_pair: &'a QueuePair,
        operation: Operation<'a>,
        remote: RemoteSlice,
        bytes: Bytes<'a>,
    ) -> Self {
        Self {
            queue_pair,
            id: 0,
            operation,
            remote,
            bytes,
            extra: Extra::Nothing,
            flags: SendFlags::empty(),
            dest: None,
            wrong: None,
        }
    }

    #[inline]
    pub(crate) const fn to(mut self, dest: Dest<'a>) -> Self {
        self.dest = Some(dest);
        self
    }

    #[inline]
    pub(crate) const fn refuse(mut self, error: PostError) -> Self {
        self.wrong = Some(error);
        self
    }

    /// The program's name for it, given back in the completion. 0 if nothing is said.
    #[inline]
    pub const fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// Sends four bytes along, which appear in the peer's completion. A WRITE with immediate data takes
    /// a receive of the peer.
    #[inline]
    pub const fn imm(mut self, imm: u32) -> Self {
        self.extra = Extra::Imm(imm);
        self
    }

    /// Has the peer take this key of its own out of use when the message arrives.
    #[inline]
    pub const fn invalidate(mut self, rkey: Rkey) -> Self {
        self.extra = Extra::Invalidate(rkey);
        self
    }

    /// Asks for a completion also on success, on a queue pair that was made without
    /// [`signal_all`](crate::QueuePairBuilder::signal_all).
    #[inline]
    pub const fn signaled(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::SIGNALED);
        self
    }

    /// Has the peer's completion raise an event even if only solicited ones do.
    #[inline]
    pub const fn solicited(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::SOLICITED);
        self
    }

    /// Begins it only when earlier READs and atomics of this queue pair are done.
    #[inline]
    pub const fn fence(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::FENCE);
        self
    }

    /// Posts it.
    ///
    /// # Errors
    /// Why it was not taken; nothing has changed.
    #[inline]
    pub fn post(self) -> Result<(), PostError> {
        match self.queue_pair.of() {
            Of::Soft(qp) => self.post_soft(qp),
            Of::Card(qp) => card::post::send(qp, &self),
        }
    }

    fn post_soft(&self, qp: &Qp) -> Result<(), PostError> {
        let by = self.target();
        self.with_request(|request| {
            let posted = qp.post_send(&[*request]);
            posted.map_err(|refused| PostError::Refused { by, error: refused.error })
        })
    }

    #[inline]
    pub(crate) const fn queue_pair(&self) -> &'a QueuePair {
        self.queue_pair
    }

    pub(crate) fn target(&self) -> PostTarget {
        PostTarget::QueuePair(self.queue_pair.qpn())
    }

    /// The bytes, if they are given with the request itself.
    pub(crate) const fn inline(&self) -> Option<&'a [u8]> {
        match self.bytes {
            Bytes::Inline(bytes) => Some(bytes),
            Bytes::Pieces(_) => None,
        }
    }

    /// Hands it to `use_it` as the device wants it.
    pub(crate) fn with_request<R>(
        &self,
        use_it: impl FnOnce(&SendRequest<'_>) -> Result<R, PostError>,
    ) -> Result<R, PostError> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        match self.bytes {
            Bytes::Inline(bytes) => use_it(&self.request(Data::Inline(bytes), bytes.len() as u64)?),
            Bytes::Pieces(pieces) => pieces.with_sges(self.queue_pair.domain(), self.target(), |sges| {
                use_it(&self.request(Data::Gather(sges), total(sges))?)
            }),
        }
    }

    fn request<'b>(&self, data: Data<'b>, len: u64) -> Result<SendRequest<'b>, PostError> {
        let op = self.operation.with_extra(self.extra, self.remote, len)?;
        let to = |Dest { address, qpn, qkey }| DatagramDest { handle: address.number(), qpn, qkey };
        Ok(SendRequest { id: self.id, op, data, flags: self.flags, dest: self.dest.map(to) })
    }
}

/// For cards.
impl<'a> Work<'a> {
    #[inline]
    pub(crate) const fn name(&self) -> u64 {
        self.id
    }

    #[inline]
    pub(crate) const fn flags(&self) -> SendFlags {
        self.flags
    }

    /// The binding of a window of type 1, which a card takes by a call of its own.
    pub(crate) const fn binding_at_once(&self) -> Option<ferroce_system::Binding<'a>> {
        match self.operation {
            Operation::Bind(Bound::Card(binding, WindowKind::Type1)) => Some(binding),
            _ => None,
        }
    }

    /// Its bytes, if they are inline or in one piece and nothing is special about it: neither an address, nor what was found wrong. What it
    /// names is looked at when it is posted.
    #[inline(always)]
    pub(crate) fn plain_bytes(&self) -> Option<Plain<'a>> {
        if self.dest.is_some() || self.wrong.is_some() {
            return None;
        }
        match &self.bytes {
            Bytes::Inline(bytes) => Some(Plain::Inline(bytes)),
            Bytes::Pieces(pieces) => pieces.the_only_one()?.as_piece().map(Plain::Piece),
        }
    }

    /// What a card is to do, and how the rules call it, if it is one of the requests that are posted most and its memory at the peer has
    /// room for so many bytes.
    #[inline(always)]
    pub(crate) fn plain_operation(&self, len: u64) -> Option<(CardOperation<'static>, Message)> {
        let to = || self.remote.remote(len);
        Some(match (&self.operation, self.extra) {
            (Operation::Write, Extra::Nothing) => (CardOperation::Write(to()?), Message::Write),
            (Operation::Write, Extra::Imm(imm)) => (CardOperation::WriteImm(to()?, imm), Message::Write),
            (Operation::Read, Extra::Nothing) => (CardOperation::Read(to()?), Message::Read),
            (Operation::Send, Extra::Nothing) => (CardOperation::Send, Message::Send),
            (Operation::Send, Extra::Imm(imm)) => (CardOperation::SendImm(imm), Message::Send),
            _ => return None,
        })
    }

    /// Whether it has an address to go to.
    pub(crate) const fn has_dest(&self) -> bool {
        self.dest.is_some()
    }

    /// Hands its pieces to `use_them` as a card wants them; none if its bytes are given with it.
    #[inline]
    pub(crate) fn with_card_pieces<R>(
        &self,
        use_them: impl FnOnce(&[Piece<'a>]) -> Result<R, PostError>,
    ) -> Result<R, PostError> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        match self.bytes {
            Bytes::Inline(_) => use_them(&[]),
            Bytes::Pieces(pieces) => {
                pieces.with_card_pieces(self.queue_pair.domain(), self.target(), use_them)
            }
        }
    }

    /// As a card wants it, with these pieces of it, if `check` has nothing against what it does and brings.
    #[inline]
    pub(crate) fn card_work<'b>(
        &self,
        pieces: &'b [Piece<'b>],
        check: impl FnOnce(&SendOp, Load) -> Result<(), PostError>,
    ) -> Result<SendWork<'b>, PostError>
    where
        'a: 'b,
    {
        let (bytes, load, len) = match self.bytes {
            Bytes::Inline(bytes) => (CardBytes::Inline(bytes), Load::Inline(bytes.len()), bytes.len() as u64),
            Bytes::Pieces(_) => {
                let bytes = pieces.iter().map(Piece::len).sum();
                (CardBytes::Pieces(pieces), Load::Pieces { count: pieces.len(), bytes }, bytes)
            }
        };
        let op = self.operation.with_extra(self.extra, self.remote, len)?;
        check(&op, load)?;
        let operation = match self.operation {
            Operation::Bind(Bound::Card(binding, _)) => CardOperation::Bind(binding),
            _ => {
                if let SendOp::AtomicWrite(_) = op {
                    self.queue_pair.require(Capability::AtomicWrites).map_err(PostError::Unsupported)?;
                }
                to_card(op)?
            }
        };
        let destination = match self.dest {
            None => None,
            Some(Dest { address, qpn, qkey }) => {
                let ours = PostError::OtherDevice { qpn: self.queue_pair.qpn() };
                let qkey = match self.queue_pair.of() {
                    Of::Card(qp) => qp.shown_qkey(qkey),
                    Of::Soft(_) => qkey,
                };
                Some(Destination { address: address.as_card().ok_or(ours)?, qpn, qkey })
            }
        };
        Ok(SendWork { id: self.id, operation, bytes, flags: self.flags, destination })
    }
}

/// What a card is to do.
#[inline]
fn to_card(op: SendOp) -> Result<CardOperation<'static>, PostError> {
    Ok(match op {
        SendOp::Send => CardOperation::Send,
        SendOp::SendImm(Imm(imm)) => CardOperation::SendImm(imm),
        SendOp::SendInvalidate(rkey) => CardOperation::SendInvalidate(rkey),
        SendOp::Write(to) => CardOperation::Write(to),
        SendOp::WriteImm(to, Imm(imm)) => CardOperation::WriteImm(to, imm),
        SendOp::Read(from) => CardOperation::Read(from),
        SendOp::CompareSwap { remote, compare, swap } => CardOperation::CompareSwap { remote, compare, swap },
        SendOp::FetchAdd { remote, add } => CardOperation::FetchAdd { remote, add },
        SendOp::AtomicWrite(to) => CardOperation::AtomicWrite(to),
        SendOp::LocalInvalidate(rkey) => CardOperation::LocalInvalidate(rkey),
        SendOp::MaskedCompareSwap { .. } | SendOp::MaskedFetchAdd { .. } => {
            return Err(PostError::Unsupported(Capability::MaskedAtomics.into()));
        }
        // A window of the soft device, which is of another domain.
        SendOp::BindWindow(_) => return Err(PostError::Unsupported(Capability::Windows.into())),
    })
}

impl Operation<'_> {
    fn with_extra(self, extra: Extra, remote: RemoteSlice, len: u64) -> Result<SendOp, PostError> {
        let to = || -> Result<Remote, PostError> { remote.to_remote(len) };
        Ok(match (self, extra) {
            (Self::Send, Extra::Nothing) => SendOp::Send,
            (Self::Send, Extra::Imm(imm)) => SendOp::SendImm(Imm(imm)),
            (Self::Send, Extra::Invalidate(rkey)) => SendOp::SendInvalidate(rkey),
            (Self::Write, Extra::Nothing) => SendOp::Write(to()?),
            (Self::Write, Extra::Imm(imm)) => SendOp::WriteImm(to()?, Imm(imm)),
            (Self::Read, Extra::Nothing) => SendOp::Read(to()?),
            (Self::CompareSwap { compare, swap }, Extra::Nothing) => {
                SendOp::CompareSwap { remote: to()?, compare, swap }
            }
            (Self::FetchAdd { add }, Extra::Nothing) => SendOp::FetchAdd { remote: to()?, add },
            (Self::MaskedCompareSwap { swap }, Extra::Nothing) => {
                SendOp::MaskedCompareSwap { remote: to()?, swap }
            }
            (Self::MaskedFetchAdd { add }, Extra::Nothing) => SendOp::MaskedFetchAdd { remote: to()?, add },
            (Self::AtomicWrite, Extra::Nothing) => SendOp::AtomicWrite(to()?),
            (Self::LocalInvalidate(rkey), Extra::Nothing) => SendOp::LocalInvalidate(rkey),
            (Self::Bind(bound), Extra::Nothing) => SendOp::BindWindow(bound.to_bind()),
            (operation, Extra::Imm(_)) => {
                let (what, allowed) = ("immediate data", "SEND and WRITE");
                return Err(PostError::NotCarried { what, allowed, operation: operation.name() });
            }
            (operation, Extra::Invalidate(_)) => {
                let (what, allowed) = ("a key to invalidate", "SEND");
                return Err(PostError::NotCarried { what, allowed, operation: operation.name() });
            }
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::CompareSwap { .. } => "COMPARE AND SWAP",
            Self::FetchAdd { .. } => "FETCH AND ADD",
            Self::MaskedCompareSwap { .. } => "MASKED COMPARE AND SWAP",
            Self::MaskedFetchAdd { .. } => "MASKED FETCH AND ADD",
            Self::AtomicWrite => "ATOMIC WRITE",
            Self::LocalInvalidate(_) => "LOCAL INVALIDATE",
            Self::Bind(_) => "BIND WINDOW",
        }
    }
}

fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}
