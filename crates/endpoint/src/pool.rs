//! Buffers for long messages, registered once and used again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_verbs::{Access, CreateError, MemoryRegion, ProtectionDomain};

use crate::buffer::Buffer;

/// Registered buffers of one connection and one direction, in sizes that are powers of two.
#[derive(Debug)]
pub(crate) struct Pool {
    domain: ProtectionDomain,
    access: Access,
    /// Bytes that may be kept for later.
    keep: usize,
    shelves: Mutex<Shelves>,
    gauge: Arc<Gauge>,
}

/// Bytes of memory that a connection holds.
#[derive(Debug, Default)]
pub(crate) struct Gauge(Mutex<(u64, u64)>);

#[derive(Debug, Default)]
struct Shelves {
    free: Vec<Vec<MemoryRegion>>,
    kept: usize,
}

/// The smallest buffer is 4 KiB.
const SMALLEST: u32 = 12;

impl Pool {
    pub(crate) fn new(domain: ProtectionDomain, access: Access, keep: u64, gauge: &Arc<Gauge>) -> Arc<Self> {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        Arc::new(Self { domain, access, keep, shelves: Mutex::default(), gauge: Arc::clone(gauge) })
    }

    /// A buffer of so many bytes, with anything in it.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Result<Buffer, CreateError> {
        Ok(Buffer::new(self.take_region(len)?, len, Arc::clone(self)))
    }

    fn take_region(&self, len: usize) -> Result<MemoryRegion, CreateError> {
        // What is longer than that cannot be had; a peer may say that it has opened so much.
        let size = len.max(1 << SMALLEST).checked_next_power_of_two().unwrap_or(usize::MAX);
        {
            let mut shelves = self.shelves();
            let found = shelves.free.get_mut(shelf(size)).and_then(Vec::pop);
            if let Some(region) = found {
                shelves.kept -= region.len();
                return Ok(region);
            }
        }
        let region = self.domain.allocate_or_reuse(size, self.access)?;
        self.gauge.add(size as u64);
        Ok(region)
    }

    /// Gives one back that no work names any more.
    pub(crate) fn give(&self, region: MemoryRegion) {
        let (size, mut shelves) = (region.len(), self.shelves());
        if shelves.kept + size > self.keep {
            drop(shelves);
            self.lose(region);
            return;
        }
        let at = shelf(size);
        if shelves.free.len() <= at {
            shelves.free.resize_with(at + 1, Vec::new);
        }
        shelves.kept += size;
        shelves.free[at].push(region);
    }

    /// Lets go of one that work may still name: the device keeps the memory for that long.
    pub(crate) fn lose(&self, region: MemoryRegion) {
        self.gauge.subtract(region.len() as u64);
        drop(region);
    }

    pub(crate) const fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const fn shelf(size: usize) -> usize {
    size.trailing_zeros().saturating_sub(SMALLEST) as usize
}

impl Gauge {
    pub(crate) fn add(&self, bytes: u64) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.0 += bytes;
        held.1 = held.1.max(held.0);
    }

    pub(crate) fn subtract(&self, bytes: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 -= bytes;
    }

    /// Bytes held now, and the most so far.
    pub(crate) fn read(&self) -> (u64, u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
