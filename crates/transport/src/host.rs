//! What the machines need from the device around them.

use ferroce_wire::{Lkey, Qpn, Rkey};
use thiserror::Error;

use crate::completion::{Completion, Event, PlainCompletion};
use crate::queue::Receive;
use crate::work::{Access, Bind, MaskedAdd, MaskedSwap, Sge};

/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DomainId(pub u32);

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedQueueId(pub u32);

/// Why memory is not given: a closed list, as a responder needs an answer to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Denied {
    /// No region or window has this key.
    #[error("no memory has this key")]
    UnknownKey,
    /// The range is not inside the region or window.
    #[error("the range is not inside the memory of this key")]
    OutOfRange,
    /// The key does not give this kind of access.
    #[error("this key does not give this access")]
    NotPermitted,
    /// The memory belongs to another protection domain, or the window to another queue pair.
    #[error("the memory of this key belongs to another protection domain or queue pair")]
    WrongDomain,
    /// The eight bytes of an atomic do not lie on a multiple of eight.
    #[error("an atomic needs an address that is a multiple of 8")]
    Misaligned,
}

/// The queue pair that reaches for memory by a remote key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The queue pair's protection domain.
    pub domain: DomainId,
    /// The queue pair: type 2 windows belong to one.
    pub qpn: Qpn,
}

/// An atomic on eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Store `swap` if `compare` is found.
    CompareSwap {
        /// What must be found.
        compare: u64,
        /// What is stored then.
        swap: u64,
    },
    /// Add, wrapping around.
    FetchAdd(u64),
    /// Store some bits if some others are found.
    MaskedCompareSwap(MaskedSwap),
    /// Add to several fields, each wrapping around.
    MaskedFetchAdd(MaskedAdd),
    /// Store these bytes in this order, at once.
    Store([u8; 8]),
}

impl AtomicOp {
    /// What it leaves where it found `original`.
    #[must_use]
    pub const fn applied(&self, original: u64) -> u64 {
        match *self {
            Self::CompareSwap { compare, swap } if compare == original => swap,
            Self::CompareSwap { .. } => original,
            Self::FetchAdd(add) => original.wrapping_add(add),
            Self::MaskedCompareSwap(swap) => swap.applied(original),
            Self::MaskedFetchAdd(add) => add.applied(original),
            Self::Store(bytes) => u64::from_ne_bytes(bytes),
        }
    }

    /// What a peer must be allowed to do it.
    #[must_use]
    pub const fn access(&self) -> Access {
        match self {
            Self::Store(_) => Access::REMOTE_WRITE,
            Self::CompareSwap { .. }
            | Self::FetchAdd(_)
            | Self::MaskedCompareSwap(_)
            | Self::MaskedFetchAdd(_) => Access::REMOTE_ATOMIC,
        }
    }
}

/// The device around a queue pair: its memory, where completions and events go, and
/// shared receive queues. Every call is answered at once.
pub trait Host {
    /// Whether the owner of `domain` may have these bytes read, or written.
    ///
    /// # Errors
    /// Why not.
    fn check_local(&mut self, domain: DomainId, sge: Sge, write: bool) -> Result<(), Denied>;

    /// Writes into the program's own memory, which [`check_local`](Self::check_local) allowed in this call.
    /// Bytes are stored in ascending order, the last one last.
    ///
    /// # Errors
    /// Why nothing was written.
    fn write_local(&mut self, lkey: Lkey, address: u64, bytes: &[u8]) -> Result<(), Denied>;

    /// Checks and writes at once: [`check_local`](Self::check_local) and [`write_local`](Self::write_local).
    ///
    /// # Errors
    /// Why nothing was written.
    #[inline]
    fn place_local(&mut self, domain: DomainId, sge: Sge, bytes: &[u8]) -> Result<(), Denied> {
        self.check_local(domain, sge, true)?;
        self.write_local(sge.lkey, sge.address, bytes)
    }

    /// A send request ended well, with nothing to tell but that: as [`complete_send`](Self::complete_send).
    #[inline]
    fn complete_plain_send(&mut self, number: u32, plain: &PlainCompletion) {
        self.complete_send(number, plain.whole());
    }

    /// The same of a receive request.
    #[inline]
    fn complete_plain_receive(&mut self, number: u32, plain: &PlainCompletion) {
        self.complete_receive(number, plain.whole());
    }

    /// Reads from the program's own memory.
    ///
    /// # Errors
    /// Why nothing was read.
    fn read_local(&mut self, lkey: Lkey, address: u64, bytes: &mut [u8]) -> Result<(), Denied>;

    /// Whether a peer may do this to `len` bytes.
    ///
    /// # Errors
    /// Why not.
    fn check_remote(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), Denied>;

    /// Writes what a peer sent. Checks again: the memory may be gone since the message began.
    ///
    /// # Errors
    /// Why nothing was written.
    fn write_remote(&mut self, by: Accessor, rkey: Rkey, address: u64, bytes: &[u8]) -> Result<(), Denied>;

    /// Does an atomic and returns what was there before, as a number of this machine.
    ///
    /// # Errors
    /// Why nothing was done.
    fn atomic(&mut self, by: Accessor, rkey: Rkey, address: u64, op: AtomicOp) -> Result<u64, Denied>;

    /// Takes a key out of use, on a peer's or on the program's own demand.
    ///
    /// # Errors
    /// The key cannot be invalidated.
    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), Denied>;

    /// Binds a memory window.
    ///
    /// # Errors
    /// Why it was not bound.
    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied>;

    /// Moves the oldest receive of a shared queue into `receive`; false if there is none.
    fn take_shared(&mut self, queue: SharedQueueId, receive: &mut Receive) -> bool;

    /// Copies the oldest receive of a shared queue into `receive`, and leaves it there; false if there is
    /// none.
    fn peek_shared(&mut self, queue: SharedQueueId, receive: &mut Receive) -> bool;

    /// A send request ended: the one of this number in its queue.
    fn complete_send(&mut self, number: u32, completion: Completion);

    /// A receive request ended: the one of this number in its queue, which may be a shared one.
    fn complete_receive(&mut self, number: u32, completion: Completion);

    /// Something else happened to this queue pair.
    fn event(&mut self, qpn: Qpn, event: Event);
}
