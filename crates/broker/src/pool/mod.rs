//! Registered memory in pieces: a slab allocator over one region.
//!
//! ```
//! # use ferroce_broker::pool::Pool;
//! # use ferroce_verbs::{Access, Context};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let context = Context::builder("ferroce_lo").address([127, 0, 151, 1]).open()?;
//! let domain = context.protection_domain()?;
//! let pool = Pool::builder().slab_size(1 << 16).allocate(&domain, 1 << 20, Access::LOCAL_WRITE)?;
//! let customers = 1;
//! let item = pool.alloc(customers, 100)?;
//! item.write_at(0, b"in registered memory")?;
//! println!("{} bytes at {:#x}\n{}", item.len(), item.address(), pool.usage());
//! # Ok(())
//! # }
//! ```
//!
//! The region is cut into slabs of one size. A slab that is in use belongs to one partition and holds items
//! of one size class; when its last item goes, it returns to the free slabs, and any partition and any class
//! may have it. So nothing is lost for good to a size that was once popular.
//!
//! - **Partitions by key.** Items of different keys never share a slab, nor a lock. One key per thread, per
//!   table or per customer: as the program likes. [`Pool::free_kept`] frees a whole partition.
//! - **Owned items.** An [`Item`] frees itself. One that has no owner in the program, because a table or a
//!   peer refers to it, is [kept](Item::keep) and taken back later.
//! - **Posted work holds its items.** Work gets at an item through a [`Ledger`], or through a broker
//!   ([`Piece`](crate::Piece)). Both hold the item until the work is done, also if its owner has dropped it.
//! - **Locks.** Each class of each partition has a lock of its own, which is held for a few instructions. The
//!   free slabs have another, taken when a slab is claimed or returned. There is nothing cleverer than that:
//!   no step is without a lock.

mod builder;
mod classes;
mod error;
mod item;
mod ledger;
mod partition;
mod shelf;
mod shelves;
mod usage;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ferroce_verbs::MemoryRegion;

pub use builder::PoolBuilder;
pub use error::{AllocError, PoolError};
pub use item::{Item, KeptItem};
pub use ledger::Ledger;
pub use partition::Partition;
pub use usage::{ClassUsage, Freed, PartitionUsage, Usage};

use classes::Classes;
use item::Hold;
use shelf::Slab;
use shelves::Shelves;

/// A slab allocator over one registered region. Clones are the same pool, and many threads may use it.
///
/// The region lives as long as the pool or one of its items.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    partitions: RwLock<HashMap<u64, Arc<Shelves>>>,
    /// How many partitions there may be.
    limit: usize,
}

/// What partitions share.
struct Core {
    region: Arc<MemoryRegion>,
    classes: Classes,
    slab_size: usize,
    /// How many slabs the region has.
    slabs: usize,
    free: Mutex<Vec<Slab>>,
}

impl Pool {
    /// A pool, to be described further.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    fn new(region: Arc<MemoryRegion>, classes: Classes, slab_size: usize, limit: usize) -> Self {
        let slabs = region.len() / slab_size;
        // The first slab lies on top.
        let free = Mutex::new((0..slabs).rev().map(|index| Slab::new(index * slab_size)).collect());
        let core = Arc::new(Core { region, classes, slab_size, slabs, free });
        Self { shared: Arc::new(Shared { core, partitions: RwLock::default(), limit }) }
    }

    /// An item of `size` bytes in the partition of this key, with anything in it. It has room for its whole
    /// size class, but only `size` bytes can be reached.
    ///
    /// # Errors
    /// The size is larger than a slab, no slab is free, or there are too many partitions. The error of a full
    /// pool carries its whole usage, so it costs more than an item would have.
    pub fn alloc(&self, key: u64, size: usize) -> Result<Item, AllocError> {
        let class = self.class_of(size)?;
        let shelves = self.shelves(key)?;
        self.alloc_from(shelves, class, size)
    }

    /// The same with zeros in it.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&self, key: u64, size: usize) -> Result<Item, AllocError> {
        let item = self.alloc(key, size)?;
        item.zero();
        Ok(item)
    }

    /// A handle of the partition with this key, for a thread that takes many items from it. The partition
    /// counts as in use as long as the handle is there.
    ///
    /// # Errors
    /// There are too many partitions.
    pub fn partition(&self, key: u64) -> Result<Partition, AllocError> {
        Ok(Partition::new(self.clone(), self.shelves(key)?))
    }

    /// Takes a kept item back into the hands of the program. `None` if it was taken back before, or was
    /// freed.
    #[must_use]
    pub fn take(&self, kept: KeptItem) -> Option<Item> {
        let shelves = self.known(kept.key)?;
        let place = shelves.take(&kept)?;
        Some(Item::new(Hold::new(shelves, place)))
    }

    /// Frees all kept items of a partition. Items that the program owns stay, and so do items that posted
    /// work still needs: those go when the work is done.
    pub fn free_kept(&self, key: u64) -> Freed {
        let freed = self.known(key).map(|partition| partition.free_kept()).unwrap_or_default();
        let mut partitions = self.shared.partitions.write().unwrap_or_else(PoisonError::into_inner);
        if partitions.get(&key).is_some_and(is_unused) {
            partitions.remove(&key);
        }
        freed
    }

    /// What is in use, and by which partition. Each class is counted at one moment, but not all of them at
    /// the same.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut partitions: Vec<Arc<Shelves>> = {
            let known = self.shared.partitions.read().unwrap_or_else(PoisonError::into_inner);
            known.values().map(Arc::clone).collect()
        };
        partitions.sort_by_key(|partition| partition.key());
        let core = &self.shared.core;
        let free_slabs = core.free().len();
        Usage {
            region_bytes: core.region.len(),
            slab_bytes: core.slab_size,
            slabs: core.slabs,
            free_slabs,
            partitions: partitions.iter().map(|partition| partition.usage()).collect(),
        }
    }

    /// The sizes of items, from the smallest class to the largest.
    #[must_use]
    pub fn class_sizes(&self) -> &[usize] {
        self.shared.core.classes.sizes()
    }

    /// The memory that items come from.
    #[must_use]
    pub fn region(&self) -> &MemoryRegion {
        &self.shared.core.region
    }

    fn known(&self, key: u64) -> Option<Arc<Shelves>> {
        let partitions = self.shared.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions.get(&key).map(Arc::clone)
    }

    fn class_of(&self, size: usize) -> Result<usize, AllocError> {
        let classes = &self.shared.core.classes;
        classes.of(size).ok_or_else(|| AllocError::TooLarge { size, largest: classes.largest() })
    }

    fn alloc_from(&self, shelves: Arc<Shelves>, class: usize, size: usize) -> Result<Item, AllocError> {
        match shelves.alloc(class, size) {
            Some(place) => Ok(Item::new(Hold::new(shelves, place))),
            None => {
                let (key, class) = (shelves.key(), self.shared.core.classes.size(class));
                Err(AllocError::Exhausted { key, size, class, usage: Box::new(self.usage()) })
            }
        }
    }

    fn shelves(&self, key: u64) -> Result<Arc<Shelves>, AllocError> {
        if let Some(known) = self.known(key) {
            return Ok(known);
        }
        let Shared { core, limit, .. } = &*self.shared;
        let mut partitions = self.shared.partitions.write().unwrap_or_else(PoisonError::into_inner);
        if !partitions.contains_key(&key) && partitions.len() >= *limit {
            partitions.retain(|_, partition| !is_unused(partition));
            if partitions.len() >= *limit {
                return Err(AllocError::TooManyPartitions { key, limit: *limit });
            }
        }
        let partition = partitions.entry(key).or_insert_with(|| Arc::new(Shelves::new(key, core)));
        Ok(Arc::clone(partition))
    }
}

/// Whether a partition can be forgotten. Items and handles hold their partition, and so does a thread that
/// makes one; a partition that only the list holds can have kept items and nothing else. The list is locked
/// for writing.
fn is_unused(partition: &Arc<Shelves>) -> bool {
    Arc::strong_count(partition) == 1 && partition.is_empty()
}

impl Core {
    fn free(&self) -> MutexGuard<'_, Vec<Slab>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self) -> Option<Slab> {
        self.free().pop()
    }

    fn give_back(&self, slab: Slab) {
        self.free().push(slab);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core { region, slab_size, slabs, .. } = &*self.shared.core;
        write!(f, "Pool({slabs} slabs of {slab_size} bytes in {region:?})")
    }
}
