//! Buffers of the program's own, and messages that arrived.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use ferroce_verbs::{AccessError, MemoryRegion};

use crate::pool::Pool;

/// Registered memory of a connection, for messages that are sent without a copy. The program fills it and gives it
/// away with [`send_buffer`](crate::Connection::send_buffer); the connection uses it again later.
pub struct Buffer {
    /// There until it is given back.
    region: Option<MemoryRegion>,
    len: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    pub(crate) const fn new(region: MemoryRegion, len: usize, pool: Arc<Pool>) -> Self {
        Self { region: Some(region), len, pool }
    }

    /// Bytes that are sent.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that it has room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.region.as_ref().map_or(0, MemoryRegion::len)
    }

    /// Makes it shorter, or longer within its capacity; what was there stays.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }

    /// Copies bytes into it.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        inside(offset, bytes.len(), self.len)?;
        self.region.as_ref().map_or(Ok(()), |region| region.write_at(offset, bytes))
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        inside(offset, bytes.len(), self.len)?;
        self.region.as_ref().map_or(Ok(()), |region| region.read_at(offset, bytes))
    }

    /// A copy of a part of it.
    ///
    /// # Errors
    /// The range is not inside.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>, AccessError> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len.max(start),
        };
        inside(start, end.saturating_sub(start), self.len)?;
        self.region.as_ref().map_or(Ok(Vec::new()), |region| region.to_vec(start..end))
    }

    pub(crate) const fn region(&self) -> Option<&MemoryRegion> {
        self.region.as_ref()
    }

    pub(crate) const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Lets go of it while work may still name it: it is not used again.
    pub(crate) fn lose(mut self) {
        if let Some(region) = self.region.take() {
            self.pool.lose(region);
        }
    }
}

fn inside(offset: usize, len: usize, size: usize) -> Result<(), AccessError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(AccessError::OutOfBounds { offset, len, size }),
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            self.pool.give(region);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.len, self.capacity())
    }
}

/// A message that arrived.
///
/// A short one is plain bytes. A long one lies in registered memory, where the device has placed it: it can be
/// looked at in parts, and its memory is used for later messages once it is dropped.
#[derive(Debug)]
pub struct Message {
    pub(crate) body: Body,
    pub(crate) imm: Option<u32>,
}

#[derive(Debug)]
pub(crate) enum Body {
    Bytes(Vec<u8>),
    Placed(Buffer),
    /// The peer wrote so many bytes into exposed memory.
    Written(u32),
}

impl Message {
    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.body {
            Body::Bytes(bytes) => bytes.len(),
            Body::Placed(buffer) => buffer.len(),
            Body::Written(_) => 0,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number that the peer sent along.
    #[must_use]
    pub const fn imm(&self) -> Option<u32> {
        self.imm
    }

    /// How many bytes the peer wrote into memory that was exposed to it, if this tells of such a
    /// [`write_with_imm`](crate::Connection::write_with_imm) and is no message of bytes.
    #[must_use]
    pub const fn written(&self) -> Option<u32> {
        match self.body {
            Body::Written(len) => Some(len),
            _ => None,
        }
    }

    /// Copies a part of it out.
    ///
    /// # Errors
    /// The range is not inside; nothing was copied.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), AccessError> {
        match &self.body {
            Body::Bytes(bytes) => {
                inside(offset, into.len(), bytes.len())?;
                into.copy_from_slice(&bytes[offset..offset + into.len()]);
                Ok(())
            }
            Body::Placed(buffer) => buffer.read_at(offset, into),
            Body::Written(_) => inside(offset, into.len(), 0),
        }
    }

    /// All of it.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.body {
            Body::Bytes(bytes) => bytes.clone(),
            Body::Placed(buffer) => buffer.to_vec(..).unwrap_or_default(),
            Body::Written(_) => Vec::new(),
        }
    }

    /// All of it, without a copy if it is short.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.body {
            Body::Bytes(bytes) => bytes,
            Body::Placed(buffer) => buffer.to_vec(..).unwrap_or_default(),
            Body::Written(_) => Vec::new(),
        }
    }
}

impl PartialEq<[u8]> for Message {
    fn eq(&self, other: &[u8]) -> bool {
        match &self.body {
            Body::Bytes(bytes) => bytes == other,
            _ => self.to_vec() == other,
        }
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Message {
    fn eq(&self, other: &&[u8; N]) -> bool {
        *self == other[..]
    }
}
