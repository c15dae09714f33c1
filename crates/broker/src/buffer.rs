//! Memory that work names: buffers for messages, pieces of our own regions, places at a peer.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use ferroce_verbs::{AccessError, LocalSlice, MemoryRegion, RemoteRegion, RemoteSlice};

use crate::lock;
use crate::peer::Peer;

/// Memory that work can name, and that is held until the work is done: a [`MemoryRegion`], or whatever lies
/// in one.
pub trait Local: Send + Sync {
    /// The part of a region that it is.
    fn local_slice(&self) -> LocalSlice<'_>;
}

impl Local for MemoryRegion {
    fn local_slice(&self) -> LocalSlice<'_> {
        self.slice(..)
    }
}

/// A piece of our own memory, for work. It holds the memory until the work is done.
#[derive(Clone)]
pub struct Piece {
    memory: Arc<dyn Local>,
    start: usize,
    end: usize,
}

impl Piece {
    /// A part of some memory. Whether the part is inside is checked when the work reaches the device.
    pub fn new<M: Local + 'static>(memory: &Arc<M>, range: impl RangeBounds<usize>) -> Self {
        let len = memory.local_slice().len();
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => len.max(start),
        };
        let memory: Arc<dyn Local> = Arc::<M>::clone(memory);
        Self { memory, start, end }
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it begins and ends in its memory, and how large that is.
    pub(crate) fn range(&self) -> (usize, usize, usize) {
        (self.start, self.end, self.memory.local_slice().len())
    }

    pub(crate) fn slice(&self) -> LocalSlice<'_> {
        self.memory.local_slice().slice(self.start..self.end)
    }
}

impl<M: Local + 'static> From<&Arc<M>> for Piece {
    fn from(memory: &Arc<M>) -> Self {
        Self::new(memory, ..)
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({}..{})", self.start, self.end)
    }
}

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// So many bytes from the beginning of a region that the peer exposes.
    Offset {
        /// The region's number.
        region: u32,
        /// Bytes from its beginning.
        offset: u64,
    },
    /// An address of the peer inside of a region that it exposes.
    Address {
        /// The region's number.
        region: u32,
        /// The address, as the peer counts.
        address: u64,
    },
    /// A place that the peer has told about in its own way.
    Slice(RemoteSlice),
}

impl At {
    /// So many bytes from the beginning of a region of the peer.
    #[must_use]
    pub const fn offset(region: u32, offset: u64) -> Self {
        Self::Offset { region, offset }
    }

    /// An address of the peer, inside of one of its regions.
    #[must_use]
    pub const fn address(region: u32, address: u64) -> Self {
        Self::Address { region, address }
    }
}

impl From<RemoteSlice> for At {
    fn from(slice: RemoteSlice) -> Self {
        Self::Slice(slice)
    }
}

impl From<RemoteRegion> for At {
    fn from(region: RemoteRegion) -> Self {
        Self::Slice(region.into())
    }
}

/// What goes with work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "it does nothing until work is posted with it"]
pub struct Post {
    /// Four bytes for the peer's program; 0 is a value like any other. Only messages and WRITEs carry them.
    pub imm: Option<u32>,
    /// The program's name for the work: what is done under a name is told by `poll_sends`, and holds its
    /// place in the ring until then. Work without a name is not told of.
    pub id: Option<u64>,
    /// Begins only when earlier READs and atomics to this peer are done.
    pub fence: bool,
}

impl Post {
    /// Nothing goes with it.
    pub const fn new() -> Self {
        Self { imm: None, id: None, fence: false }
    }

    /// With four bytes for the peer's program.
    pub const fn imm(mut self, imm: u32) -> Self {
        self.imm = Some(imm);
        self
    }

    /// With a name, under which `poll_sends` tells what became of it.
    pub const fn id(mut self, id: u64) -> Self {
        self.id = Some(id);
        self
    }

    /// To begin only when earlier READs and atomics to this peer are done.
    pub const fn fence(mut self) -> Self {
        self.fence = true;
        self
    }
}

/// Registered memory for the messages to one peer, cut into slots.
pub(crate) struct Slots {
    region: MemoryRegion,
    stride: usize,
}

impl Slots {
    pub(crate) const fn new(region: MemoryRegion, stride: usize) -> Self {
        Self { region, stride }
    }

    /// Writes bytes into a slot, from some byte of it on.
    pub(crate) fn write(&self, slot: u32, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        self.region.write_at(self.start(slot) + offset, bytes)
    }

    pub(crate) fn slice(&self, slot: u32, len: usize) -> LocalSlice<'_> {
        let start = self.start(slot);
        self.region.slice(start..start + len)
    }

    const fn start(&self, slot: u32) -> usize {
        slot as usize * self.stride
    }
}

/// A place for one message to one peer, in registered memory, with a place in the ring and room at the peer:
/// posting it does not have to wait. Dropping it gives all of that back.
#[must_use = "a buffer is not sent until it is posted"]
pub struct SendBuf {
    pub(crate) peer: Arc<Peer>,
    pub(crate) slot: u32,
    pub(crate) connection: u64,
    pub(crate) capacity: usize,
    pub(crate) len: usize,
    pub(crate) posted: bool,
}

impl SendBuf {
    /// The member that will get it.
    #[must_use]
    pub fn peer(&self) -> u32 {
        self.peer.member.id
    }

    /// Bytes that it holds at most.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of the message so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the message has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes bytes of the message, which reaches at least as far then.
    ///
    /// # Errors
    /// They do not fit; nothing was written.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        let end = offset.saturating_add(bytes.len());
        if end > self.capacity {
            return Err(AccessError::OutOfBounds { offset, len: bytes.len(), size: self.capacity });
        }
        self.peer.slots.write(self.slot, offset, bytes)?;
        self.len = self.len.max(end);
        Ok(())
    }

    /// Appends bytes to the message.
    ///
    /// # Errors
    /// They do not fit; nothing was written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), AccessError> {
        self.write_at(self.len, bytes)
    }

    /// Says how many bytes the message has, whatever was written.
    ///
    /// # Errors
    /// So many do not fit.
    pub const fn set_len(&mut self, len: usize) -> Result<(), AccessError> {
        if len > self.capacity {
            return Err(AccessError::OutOfBounds { offset: 0, len, size: self.capacity });
        }
        self.len = len;
        Ok(())
    }
}

impl Drop for SendBuf {
    fn drop(&mut self) {
        if !self.posted {
            lock(&self.peer.sending).give_up(self.connection, self.slot);
        }
    }
}

impl fmt::Debug for SendBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBuf({} of {} bytes to member {})", self.len, self.capacity, self.peer())
    }
}
