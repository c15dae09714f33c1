//! Work, as a program describes it.

use ferroce_transport::{Remote, SendFlags, WorkKind};
use ferroce_wire::{QKey, Qpn, Rkey};

use crate::address::AddressHandle;
use crate::region::Piece;
use crate::window::Binding;

/// A send request.
#[derive(Clone, Copy, Debug)]
pub struct SendWork<'a> {
    /// The program's name for it, given back in the completion.
    pub id: u64,
    /// What it does.
    pub operation: Operation<'a>,
    /// The bytes that go, or where they come to.
    pub bytes: Bytes<'a>,
    /// How it is treated.
    pub flags: SendFlags,
    /// Where it goes, on a queue pair for datagrams.
    pub destination: Option<Destination<'a>>,
}

impl<'a> SendWork<'a> {
    /// Work with a completion, and nothing special.
    #[must_use]
    pub const fn new(id: u64, operation: Operation<'a>, bytes: Bytes<'a>) -> Self {
        Self { id, operation, bytes, flags: SendFlags::SIGNALED, destination: None }
    }
}

/// A receive request.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWork<'a> {
    /// The program's name for it, given back in the completion.
    pub id: u64,
    /// Where a message goes, piece after piece.
    pub pieces: &'a [Piece<'a>],
}

/// What a send request does. Not every card can do all of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// A message into a receive of the peer.
    Send,
    /// The same, with immediate data.
    SendImm(u32),
    /// The same, and the peer takes this key of its own out of use.
    SendInvalidate(Rkey),
    /// Our memory into the peer's.
    Write(Remote),
    /// The same, with immediate data, which takes a receive of the peer.
    WriteImm(Remote, u32),
    /// The peer's memory into ours.
    Read(Remote),
    /// Stores `swap` into eight bytes of the peer if `compare` is there.
    CompareSwap {
        /// Where.
        remote: Remote,
        /// What must be there.
        compare: u64,
        /// What is stored then.
        swap: u64,
    },
    /// Adds to eight bytes of the peer.
    FetchAdd {
        /// Where.
        remote: Remote,
        /// What is added.
        add: u64,
    },
    /// Eight bytes into the peer's memory at once.
    AtomicWrite(Remote),
    /// Takes a key of our own out of use. No packet.
    LocalInvalidate(Rkey),
    /// Binds a window of type 2, or closes it. No packet.
    Bind(Binding<'a>),
}

impl Operation<'_> {
    pub(crate) const fn kind(&self) -> WorkKind {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) => WorkKind::Send,
            Self::Write(_) | Self::WriteImm(..) => WorkKind::Write,
            Self::Read(_) => WorkKind::Read,
            Self::CompareSwap { .. } => WorkKind::CompareSwap,
            Self::FetchAdd { .. } => WorkKind::FetchAdd,
            Self::AtomicWrite(_) => WorkKind::AtomicWrite,
            Self::LocalInvalidate(_) => WorkKind::LocalInvalidate,
            Self::Bind(_) => WorkKind::BindWindow,
        }
    }

    /// Whether it is done here, without a packet and without bytes.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::LocalInvalidate(_) | Self::Bind(_))
    }

    /// Whether the answer is bytes of the peer.
    pub(crate) const fn has_answer(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// The bytes of a send request.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// In registered memory, which the work keeps registered until it is done.
    Pieces(&'a [Piece<'a>]),
    /// Here: copied when the request is posted.
    Inline(&'a [u8]),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// Its address.
    pub address: &'a AddressHandle,
    /// The queue pair there.
    pub qpn: Qpn,
    /// The key to show.
    pub qkey: QKey,
}
