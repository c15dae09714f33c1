//! Memory that one end opens to the other.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_verbs::{Access, MemoryRegion, RemoteRegion, RemoteSlice};

use crate::core::Remote;
use crate::error::Error;
use crate::place::Place;
use crate::shared::Shared;

/// Memory that is open to the peer, as long as this is held: made by [`Connection::expose`](crate::Connection::expose).
///
/// It is a [`MemoryRegion`] for its owner: bytes are copied in and out, for the peer may be writing. When it is dropped,
/// the peer is told; its work that is under way is done in order, and only then the device closes the memory.
pub struct Exposed {
    pub(crate) region: Arc<MemoryRegion>,
    pub(crate) id: u32,
    pub(crate) shared: Arc<Shared>,
}

impl Deref for Exposed {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        &self.region
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        self.shared.enter(|core| {
            core.conceal(self.id);
            core.leave();
        });
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exposed({:?})", self.region)
    }
}

/// Memory that the peer has opened: found by [`Connection::remote`](crate::Connection::remote). Clones are the same.
#[derive(Clone)]
pub struct RemoteMemory {
    pub(crate) remote: Arc<Remote>,
}

impl RemoteMemory {
    /// The name that the peer gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.remote.exposure.name
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.remote.exposure.region.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What may be done with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.remote.exposure.access
    }

    /// Whether the peer still has it open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.remote.closed.load(Ordering::Acquire)
    }

    /// The place of this byte of it. Whether there is room behind it is looked at when it is used.
    #[must_use]
    pub fn at(&self, offset: u64) -> Place {
        Place::named(Arc::clone(&self.remote), offset)
    }

    /// A part of it, if that is open for this.
    pub(crate) fn part(&self, offset: u64, len: u64, needs: Access) -> Result<RemoteSlice, Error> {
        let exposure = &self.remote.exposure;
        let name = || exposure.name.clone();
        if !self.is_open() {
            return Err(Error::NotExposed { name: name() });
        }
        if !exposure.access.contains(needs) {
            let what = match needs {
                Access::REMOTE_READ => "reading",
                Access::REMOTE_WRITE => "writing",
                _ => "atomics",
            };
            return Err(Error::NotAllowed { name: name(), what });
        }
        let size = exposure.region.length;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(exposure.region.slice(offset..end)),
            _ => Err(Error::OutsideExposed { name: name(), offset, len, size }),
        }
    }

    /// Eight bytes of it.
    pub(crate) fn word(&self, offset: u64) -> Result<RemoteSlice, Error> {
        let part = self.part(offset, 8, Access::REMOTE_ATOMIC)?;
        let RemoteRegion { address, .. } = self.remote.exposure.region;
        match address + offset {
            address if address % 8 == 0 => Ok(part),
            address => Err(Error::Misaligned { offset, address }),
        }
    }
}

impl fmt::Debug for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteMemory({:?}, {} bytes, {:?})", self.name(), self.len(), self.access())
    }
}
