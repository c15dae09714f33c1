//! A pool, described step by step.

use std::sync::Arc;

use ferroce_verbs::{Access, MemoryRegion, ProtectionDomain};

use super::Pool;
use super::classes::Classes;
use super::error::PoolError;

/// A pool that is being described; see [`Pool::builder`].
#[derive(Clone, Copy, Debug)]
#[must_use = "there is no pool until it is built"]
pub struct PoolBuilder {
    slab_size: usize,
    first_size: usize,
    factor: f64,
    alignment: usize,
    max_partitions: usize,
}

impl Default for PoolBuilder {
    fn default() -> Self {
        Self { slab_size: 1 << 20, first_size: 64, factor: 2.0, alignment: 8, max_partitions: 4096 }
    }
}

impl PoolBuilder {
    /// Bytes of a slab, and so of the largest item. 1 MiB if nothing is said.
    pub const fn slab_size(mut self, bytes: usize) -> Self {
        self.slab_size = bytes;
        self
    }

    /// The size of the smallest items, rounded up to the alignment. 64 bytes if nothing is said.
    pub const fn first_size(mut self, bytes: usize) -> Self {
        self.first_size = bytes;
        self
    }

    /// How much larger the items of each class are than those of the one before, to a thousandth; the sizes
    /// are rounded up to the alignment. A small factor wastes less inside items, a large one spreads items
    /// over fewer slabs. 2 if nothing is said.
    pub const fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Items begin at multiples of this many bytes: 8, as remote atomics need it, if nothing is said.
    pub const fn alignment(mut self, bytes: usize) -> Self {
        self.alignment = bytes;
        self
    }

    /// How many partitions there may be at a time. 4096 if nothing is said.
    pub const fn max_partitions(mut self, partitions: usize) -> Self {
        self.max_partitions = partitions;
        self
    }

    /// The pool over a region of its own of this many bytes. On a card, one that no peer may reach is registered once for pools that follow
    /// each other ([`ProtectionDomain::allocate_or_reuse`]).
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn allocate(
        self,
        domain: &ProtectionDomain,
        bytes: usize,
        access: Access,
    ) -> Result<Pool, PoolError> {
        let classes = self.classes(bytes)?;
        self.over_region(Arc::new(domain.allocate_or_reuse(bytes, access)?), classes)
    }

    /// The pool over a region that is there already: the pool deals out all of it, so the program should not
    /// use any of it without asking the pool. Bytes behind the last whole slab are not used.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn over(self, region: impl Into<Arc<MemoryRegion>>) -> Result<Pool, PoolError> {
        let region = region.into();
        let classes = self.classes(region.len())?;
        self.over_region(region, classes)
    }

    fn over_region(self, region: Arc<MemoryRegion>, classes: Classes) -> Result<Pool, PoolError> {
        let (address, alignment) = (region.address(), self.alignment);
        if !address.is_multiple_of(alignment as u64) {
            return Err(PoolError::Unaligned { address, alignment });
        }
        Ok(Pool::new(region, classes, self.slab_size, self.max_partitions))
    }

    /// The size classes, if a region of so many bytes can be divided as was asked.
    fn classes(&self, region: usize) -> Result<Classes, PoolError> {
        let Self { slab_size, first_size, factor, alignment, .. } = *self;
        let classes = Classes::new(slab_size, first_size, factor, alignment)?;
        if region < slab_size {
            return Err(PoolError::RegionTooSmall { region, slab: slab_size });
        }
        Ok(classes)
    }
}
