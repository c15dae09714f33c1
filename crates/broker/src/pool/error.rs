//! Why there is no pool, or no item.

use ferroce_verbs::CreateError;
use thiserror::Error;

use super::usage::Usage;

/// Why a pool could not be made.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Not even one slab fits.
    #[error(
        "a region of {region} bytes is too small for a slab of {slab}; give more memory, or choose smaller slabs"
    )]
    RegionTooSmall {
        /// Bytes of the region.
        region: usize,
        /// Bytes of a slab.
        slab: usize,
    },
    /// Items in it would not be aligned.
    #[error("the region begins at {address:#x}, which is no multiple of the alignment of {alignment} bytes")]
    Unaligned {
        /// Where the region begins.
        address: u64,
        /// What was asked for.
        alignment: usize,
    },
    /// No such alignment is possible.
    #[error("an alignment of {alignment} bytes; it must be a power of two from 8 to 4096")]
    Alignment {
        /// What was asked for.
        alignment: usize,
    },
    /// No such slabs are possible.
    #[error(
        "slabs of {slab} bytes; they must be multiples of the alignment of {alignment}, and at most {largest}"
    )]
    SlabSize {
        /// What was asked for.
        slab: usize,
        /// Of items.
        alignment: usize,
        /// Bytes of the largest slab.
        largest: usize,
    },
    /// The smallest items are empty, or larger than a slab.
    #[error("smallest items of {first} bytes; they must have at least 1 and at most the {slab} of a slab")]
    FirstSize {
        /// What was asked for.
        first: usize,
        /// Bytes of a slab.
        slab: usize,
    },
    /// Items would not grow from class to class, or too fast.
    #[error("a factor of {factor} between size classes; it must be from 1.001 to 1024")]
    Factor {
        /// What was asked for.
        factor: f64,
    },
    /// The first size and the factor give too many classes.
    #[error(
        "from {first} to {slab} bytes by a factor of {factor} are more than {limit} size classes; \
         choose a larger factor or first size"
    )]
    TooManyClasses {
        /// Bytes of the smallest items.
        first: usize,
        /// Between classes.
        factor: f64,
        /// Bytes of a slab.
        slab: usize,
        /// Classes that are possible.
        limit: usize,
    },
    /// The device refused the region.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// Why there was no item.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No class has items of this size.
    #[error("{size} bytes; the largest item has the {largest} of a slab")]
    TooLarge {
        /// What was asked for.
        size: usize,
        /// Bytes of the largest items.
        largest: usize,
    },
    /// No slab is free, and the slabs of this partition and class are full.
    #[error("no room for {size} bytes (class of {class}) in partition {key}: no slab is free\n{usage}")]
    Exhausted {
        /// The partition.
        key: u64,
        /// What was asked for.
        size: usize,
        /// Bytes of items of its class.
        class: usize,
        /// What each partition has.
        usage: Box<Usage>,
    },
    /// There are too many partitions with items in them.
    #[error("no partition for key {key}: {limit} are in use, which is the limit; allow more, or free one")]
    TooManyPartitions {
        /// What was asked for.
        key: u64,
        /// How many there may be.
        limit: usize,
    },
}
