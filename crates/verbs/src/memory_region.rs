//! Registered memory.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use ferroce_device::memory::{AccessError, MemoryError};
use ferroce_transport::Access;
use ferroce_wire::{Lkey, Rkey};
use thiserror::Error;

use crate::error::CreateError;
use crate::local_slice::LocalSlice;
use crate::memory::{Memory, resolve};
use crate::protection_domain::Domain;
use crate::remote::RemoteRegion;

/// Registered memory: the only kind that work can name, and that peers can be let into.
///
/// # When it ends
///
/// - **Dropping it is always safe.** Work that was posted holds its memory: if some names this
///   region, the device keeps it registered until the last of that work is done, and frees the
///   memory then. Posting costs nothing for this. Until then peers that know its key can use it too; a
///   receive that is never met holds it until its queue pair is gone.
/// - **[`deregister`](Self::deregister) takes it away at once**, and gives the memory back. Work under
///   way that names it fails with
///   [`LocalProtection`](crate::Status::LocalProtection), and peers are refused.
///
/// A [`slice`](Self::slice) borrows the region, so the compiler sees to it that work is posted while
/// the region is there.
///
/// # Its bytes
///
/// They may change at any moment, because peers write them. So they are copied in and out, and never
/// borrowed; [`load_u64`](Self::load_u64) and its friends are for words that both sides look at.
pub struct MemoryRegion {
    memory: Memory,
    start: usize,
    len: usize,
    address: u64,
    access: Access,
    rkey: Rkey,
    registration: Registration,
}

/// The region on the device, which goes when posted work lets it.
struct Registration {
    lkey: Lkey,
    /// It was ended already.
    ended: bool,
    domain: Arc<Domain>,
}

impl MemoryRegion {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        memory: Memory,
        (start, end): (usize, usize),
        address: u64,
        access: Access,
    ) -> Result<Self, CreateError> {
        let Some(len) = end.checked_sub(start) else {
            let size = memory.len();
            return Err(MemoryError::OutsideAllocation { offset: start, len: 0, size }.into());
        };
        let (lkey, rkey) =
            domain.nic.register(domain.id, memory.as_device(), (start, len), address, access)?;
        let registration = Registration { lkey, ended: false, domain: Arc::clone(domain) };
        Ok(Self { memory, start, len, address, access, rkey, registration })
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of its first byte, as work and peers use it.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// What work and peers may do with it.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The key by which work names it.
    #[must_use]
    pub const fn lkey(&self) -> Lkey {
        self.registration.lkey
    }

    /// The key by which a peer names it.
    #[must_use]
    pub const fn rkey(&self) -> Rkey {
        self.rkey
    }

    /// A part of it, for work. Whether the part is inside is checked when the work is posted.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> LocalSlice<'_> {
        let (start, end) = resolve(&range, self.len);
        LocalSlice::new(self, start, end)
    }

    /// What a peer must know to use it: to be sent there in any way.
    #[must_use]
    pub const fn remote(&self) -> RemoteRegion {
        RemoteRegion { address: self.address, length: self.len as u64, rkey: self.rkey }
    }

    /// Copies bytes into it, the last ones last.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        self.memory.as_device().write(self.inside(offset, bytes.len())?, bytes)
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        self.memory.as_device().read(self.inside(offset, bytes.len())?, bytes)
    }

    /// A copy of a part of it.
    ///
    /// # Errors
    /// The range is not inside.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>, AccessError> {
        let (start, end) = resolve(&range, self.len);
        let len = end.saturating_sub(start);
        self.inside(start, len)?;
        let mut bytes = vec![0; len];
        self.read_at(start, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets a part of it to one byte.
    ///
    /// # Errors
    /// The range is not inside; nothing was set.
    pub fn fill(&self, range: impl RangeBounds<usize>, byte: u8) -> Result<(), AccessError> {
        let (start, end) = resolve(&range, self.len);
        let len = end.saturating_sub(start);
        self.memory.as_device().fill(self.inside(start, len)?, len, byte)
    }

    /// One byte, to wait for: who sees it change sees what was placed before it (Acquire).
    ///
    /// # Errors
    /// The byte is not inside.
    pub fn load_u8(&self, offset: usize) -> Result<u8, AccessError> {
        self.memory.as_device().load_u8(self.inside(offset, 1)?)
    }

    /// A number of this machine at a multiple of 8, to wait for (Acquire).
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64, AccessError> {
        self.memory.as_device().load_u64(self.inside(offset, 8)?)
    }

    /// Stores a number at a multiple of 8, after all that was written before (Release).
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), AccessError> {
        self.memory.as_device().store_u64(self.inside(offset, 8)?, value)
    }

    /// Adds to a number at a multiple of 8, wrapping around, and returns what was there. It is atomic
    /// also with a peer's atomics.
    ///
    /// # Errors
    /// The eight bytes are not inside, or not aligned.
    pub fn fetch_add_u64(&self, offset: usize, value: u64) -> Result<u64, AccessError> {
        self.memory.as_device().fetch_add_u64(self.inside(offset, 8)?, value)
    }

    /// Deregisters it at once and gives the memory back. Work under way that names it fails, and
    /// nothing touches the memory any more.
    ///
    /// # Errors
    /// Memory windows are bound to it; the region comes back in the error.
    pub fn deregister(mut self) -> Result<Memory, DeregisterError> {
        let Registration { lkey, ended, domain } = &mut self.registration;
        match domain.nic.deregister(domain.id, *lkey) {
            Ok(()) => {
                *ended = true;
                Ok(self.memory)
            }
            Err(reason) => Err(DeregisterError { region: Box::new(self), reason }),
        }
    }

    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.registration.domain
    }

    /// The offset in the memory of a range of this region.
    fn inside(&self, offset: usize, len: usize) -> Result<usize, AccessError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.start + offset),
            _ => Err(AccessError::OutOfBounds { offset, len, size: self.len }),
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, len, rkey, access, .. } = self;
        write!(f, "MemoryRegion({len} bytes at 0x{address:x}, key {rkey}, {access:?})")
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.ended {
            self.domain.nic.release(self.domain.id, self.lkey);
        }
    }
}

/// Why a region is still registered.
#[derive(Debug, Error)]
#[error("the region with key {} stays registered: {reason}", region.rkey())]
pub struct DeregisterError {
    /// The region, as it was.
    pub region: Box<MemoryRegion>,
    /// Why.
    #[source]
    pub reason: CreateError,
}
