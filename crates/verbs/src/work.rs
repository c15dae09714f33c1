//! Work for a send queue, described step by step.

use ferroce_transport::{
    Bind, Data, DatagramDest, MaskedAdd, MaskedSwap, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use ferroce_wire::{Imm, Rkey};

use crate::error::{PostError, PostTarget};
use crate::local_slice::Pieces;
use crate::queue_pair::QueuePair;
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
    operation: Operation,
    bytes: Bytes<'a>,
    extra: Extra,
    flags: SendFlags,
    dest: Option<DatagramDest>,
    /// What was found wrong while it was described.
    wrong: Option<PostError>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Send,
    Write(RemoteSlice),
    Read(RemoteSlice),
    CompareSwap { remote: RemoteSlice, compare: u64, swap: u64 },
    FetchAdd { remote: RemoteSlice, add: u64 },
    MaskedCompareSwap { remote: RemoteSlice, swap: MaskedSwap },
    MaskedFetchAdd { remote: RemoteSlice, add: MaskedAdd },
    AtomicWrite(RemoteSlice),
    LocalInvalidate(Rkey),
    Bind(Bind),
}

/// The bytes that go, or where they come to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes<'a> {
    Pieces(Pieces<'a>),
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
    pub(crate) const fn new(queue_pair: &'a QueuePair, operation: Operation, bytes: Bytes<'a>) -> Self {
        Self {
            queue_pair,
            id: 0,
            operation,
            bytes,
            extra: Extra::Nothing,
            flags: SendFlags::empty(),
            dest: None,
            wrong: None,
        }
    }

    pub(crate) const fn to(mut self, dest: DatagramDest) -> Self {
        self.dest = Some(dest);
        self
    }

    pub(crate) const fn refuse(mut self, error: PostError) -> Self {
        self.wrong = Some(error);
        self
    }

    /// The program's name for it, given back in the completion. 0 if nothing is said.
    pub const fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// Sends four bytes along, which appear in the peer's completion. A WRITE with immediate data takes
    /// a receive of the peer.
    pub const fn imm(mut self, imm: u32) -> Self {
        self.extra = Extra::Imm(imm);
        self
    }

    /// Has the peer take this key of its own out of use when the message arrives.
    pub const fn invalidate(mut self, rkey: Rkey) -> Self {
        self.extra = Extra::Invalidate(rkey);
        self
    }

    /// Asks for a completion also on success, on a queue pair that was made without
    /// [`signal_all`](crate::QueuePairBuilder::signal_all).
    pub const fn signaled(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::SIGNALED);
        self
    }

    /// Has the peer's completion raise an event even if only solicited ones do.
    pub const fn solicited(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::SOLICITED);
        self
    }

    /// Begins it only when earlier READs and atomics of this queue pair are done.
    pub const fn fence(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::FENCE);
        self
    }

    /// Posts it.
    ///
    /// # Errors
    /// Why it was not taken; nothing has changed.
    pub fn post(self) -> Result<(), PostError> {
        let by = self.target();
        self.with_request(|request| {
            let posted = self.queue_pair.as_device().post_send(&[*request]);
            posted.map_err(|refused| PostError::Refused { by, error: refused.error })
        })
    }

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
        let op = self.operation.with_extra(self.extra, len)?;
        Ok(SendRequest { id: self.id, op, data, flags: self.flags, dest: self.dest })
    }
}

impl Operation {
    fn with_extra(self, extra: Extra, len: u64) -> Result<SendOp, PostError> {
        let to = |remote: RemoteSlice| -> Result<Remote, PostError> { remote.to_remote(len) };
        Ok(match (self, extra) {
            (Self::Send, Extra::Nothing) => SendOp::Send,
            (Self::Send, Extra::Imm(imm)) => SendOp::SendImm(Imm(imm)),
            (Self::Send, Extra::Invalidate(rkey)) => SendOp::SendInvalidate(rkey),
            (Self::Write(remote), Extra::Nothing) => SendOp::Write(to(remote)?),
            (Self::Write(remote), Extra::Imm(imm)) => SendOp::WriteImm(to(remote)?, Imm(imm)),
            (Self::Read(remote), Extra::Nothing) => SendOp::Read(to(remote)?),
            (Self::CompareSwap { remote, compare, swap }, Extra::Nothing) => {
                SendOp::CompareSwap { remote: to(remote)?, compare, swap }
            }
            (Self::FetchAdd { remote, add }, Extra::Nothing) => SendOp::FetchAdd { remote: to(remote)?, add },
            (Self::MaskedCompareSwap { remote, swap }, Extra::Nothing) => {
                SendOp::MaskedCompareSwap { remote: to(remote)?, swap }
            }
            (Self::MaskedFetchAdd { remote, add }, Extra::Nothing) => {
                SendOp::MaskedFetchAdd { remote: to(remote)?, add }
            }
            (Self::AtomicWrite(remote), Extra::Nothing) => SendOp::AtomicWrite(to(remote)?),
            (Self::LocalInvalidate(rkey), Extra::Nothing) => SendOp::LocalInvalidate(rkey),
            (Self::Bind(bind), Extra::Nothing) => SendOp::BindWindow(bind),
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
            Self::Write(_) => "WRITE",
            Self::Read(_) => "READ",
            Self::CompareSwap { .. } => "COMPARE AND SWAP",
            Self::FetchAdd { .. } => "FETCH AND ADD",
            Self::MaskedCompareSwap { .. } => "MASKED COMPARE AND SWAP",
            Self::MaskedFetchAdd { .. } => "MASKED FETCH AND ADD",
            Self::AtomicWrite(_) => "ATOMIC WRITE",
            Self::LocalInvalidate(_) => "LOCAL INVALIDATE",
            Self::Bind(_) => "BIND WINDOW",
        }
    }
}

fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}
