//! Items: memory that frees itself.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use ferroce_verbs::ranges::bounds;
use ferroce_verbs::{AccessError, Lkey, LocalSlice, MemoryRegion, RemoteRegion, Rkey};

use crate::buffer::Local;

use super::shelf::Place;
use super::shelves::Shelves;

/// Memory of a [`Pool`](super::Pool), which is free again when it is dropped.
///
/// Its bytes are copied in and out, because peers may change them at any moment. Work names it through a
/// [`Ledger`](super::Ledger) or a [broker](crate::Piece), which hold it until the work is done; what a peer
/// does with its [`remote`](Self::remote) description is for the program to know before it drops the item.
pub struct Item {
    hold: Hold,
}

/// An item that belongs to its partition, and not to a handle. It is a name only:
/// [`Pool::take`](super::Pool::take) makes an [`Item`] of it again, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeptItem {
    pub(super) key: u64,
    pub(super) class: usize,
    pub(super) at: u32,
    pub(super) slot: u32,
    pub(super) number: u64,
}

/// An owner's share in an item.
pub(super) struct Hold {
    shelves: Arc<Shelves>,
    place: Place,
    /// The item is kept, so it is not let go when this is dropped.
    kept: bool,
}

/// The share in an item of work that names it.
pub(super) struct Loan {
    shelves: Arc<Shelves>,
    place: Place,
}

impl Item {
    pub(super) const fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Bytes, as many as were asked for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.hold.place.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of its partition.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.hold.shelves.key()
    }

    /// Where it begins in the region of its pool.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.hold.place.offset
    }

    /// The address of its first byte, as work and peers use it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.region().address() + self.offset() as u64
    }

    /// The key by which work names it.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.region().lkey()
    }

    /// The key by which a peer names it. It opens the whole region, so a peer that has it must be trusted
    /// with all of the pool, or get a memory window instead.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.region().rkey()
    }

    /// What a peer must know to use it, to be sent there in any way; it has the bytes of this item and no
    /// more.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { address: self.address(), length: self.len() as u64, rkey: self.rkey() }
    }

    /// Copies bytes into it, the last ones last.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        self.region().write_at(self.inside(offset, bytes.len())?, bytes)
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        self.region().read_at(self.inside(offset, bytes.len())?, bytes)
    }

    /// A copy of a part of it.
    ///
    /// # Errors
    /// The range is not inside.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>, AccessError> {
        let (start, len) = self.part(&range)?;
        self.region().to_vec(start..start + len)
    }

    /// Sets a part of it to one byte.
    ///
    /// # Errors
    /// The range is not inside; nothing was set.
    pub fn fill(&self, range: impl RangeBounds<usize>, byte: u8) -> Result<(), AccessError> {
        let (start, len) = self.part(&range)?;
        self.region().fill(start..start + len, byte)
    }

    /// A number of this machine at a multiple of 8, to wait for (Acquire).
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64, AccessError> {
        self.region().load_u64(self.inside(offset, 8)?)
    }

    /// Stores a number at a multiple of 8, after all that was written before (Release).
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), AccessError> {
        self.region().store_u64(self.inside(offset, 8)?, value)
    }

    /// Adds to a number at a multiple of 8, and returns what was there; atomic also with a peer's atomics.
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn fetch_add_u64(&self, offset: usize, value: u64) -> Result<u64, AccessError> {
        self.region().fetch_add_u64(self.inside(offset, 8)?, value)
    }

    /// Leaves it in its partition without an owner, until it is [taken](super::Pool::take) back or the
    /// partition is [freed](super::Pool::free_kept).
    #[must_use = "without this name it can only be freed with its whole partition"]
    pub fn keep(mut self) -> KeptItem {
        self.hold.kept = true;
        self.hold.shelves.keep(&self.hold.place)
    }

    /// Sets all of it to 0.
    pub(super) fn zero(&self) {
        let start = self.offset();
        // It is inside: the pool dealt it out.
        let _ = self.region().fill(start..start + self.len(), 0);
    }

    pub(super) fn lend(&self) -> Loan {
        self.hold.shelves.lend(&self.hold.place);
        Loan { shelves: Arc::clone(&self.hold.shelves), place: self.hold.place }
    }

    fn region(&self) -> &MemoryRegion {
        self.hold.shelves.region()
    }

    /// The offset in the region of a range of this item.
    fn inside(&self, offset: usize, len: usize) -> Result<usize, AccessError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(self.offset() + offset),
            _ => Err(AccessError::OutOfBounds { offset, len, size: self.len() }),
        }
    }

    /// The offset in the region and the length of a range of this item.
    fn part(&self, range: &impl RangeBounds<usize>) -> Result<(usize, usize), AccessError> {
        let (start, end) = bounds(range, self.len());
        let len = end.saturating_sub(start);
        Ok((self.inside(start, len)?, len))
    }
}

/// For a broker, which holds the item until the work is done: `Piece::new(&Arc::new(item), ..)`. A program
/// that takes the slice and posts it otherwise has to see to that.
impl Local for Item {
    fn local_slice(&self) -> LocalSlice<'_> {
        let start = self.offset();
        self.region().slice(start..start + self.len())
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({} bytes at {} in partition {})", self.len(), self.offset(), self.key())
    }
}

impl Hold {
    pub(super) const fn new(shelves: Arc<Shelves>, place: Place) -> Self {
        Self { shelves, place, kept: false }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.kept {
            self.shelves.let_go(&self.place);
        }
    }
}

impl Loan {
    /// The item, as work names it.
    pub(super) fn slice(&self) -> LocalSlice<'_> {
        let Place { offset, len, .. } = self.place;
        self.shelves.region().slice(offset..offset + len)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.shelves.give_back(&self.place);
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({} bytes at {})", self.place.len, self.place.offset)
    }
}
