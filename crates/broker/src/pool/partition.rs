//! A handle of one partition.

use std::fmt;
use std::sync::Arc;

use super::Pool;
use super::error::AllocError;
use super::item::Item;
use super::shelves::Shelves;

/// One partition of a [`Pool`], without the way through the list of all of them: threads that have partitions
/// of their own meet nowhere until a slab is claimed or returned. See [`Pool::partition`]; clones are the
/// same partition.
#[derive(Clone)]
pub struct Partition {
    pool: Pool,
    shelves: Arc<Shelves>,
}

impl Partition {
    pub(super) const fn new(pool: Pool, shelves: Arc<Shelves>) -> Self {
        Self { pool, shelves }
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.shelves.key()
    }

    /// An item of `size` bytes, as [`Pool::alloc`] gives.
    ///
    /// # Errors
    /// The size is larger than a slab, or no slab is free.
    pub fn alloc(&self, size: usize) -> Result<Item, AllocError> {
        let class = self.pool.class_of(size)?;
        self.pool.alloc_from(Arc::clone(&self.shelves), class, size)
    }

    /// The pool that it belongs to.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Partition({} of {:?})", self.key(), self.pool)
    }
}
