//! Why memory was not registered, or not touched.

use ferroce_transport::Access;
use thiserror::Error;

/// Why memory could not be made, registered or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system did not give memory.
    #[error("the system gave no {len} bytes of memory (errno {code}): ask for less, or free some")]
    NoMemory {
        /// Bytes asked for.
        len: usize,
        /// The system's error number.
        code: i32,
    },
    /// The region would reach beyond its memory.
    #[error(
        "{len} bytes at offset {offset} are not inside an allocation of {size} bytes: register what is inside"
    )]
    OutsideAllocation {
        /// First byte asked for.
        offset: usize,
        /// Bytes asked for.
        len: usize,
        /// Bytes of the allocation.
        size: usize,
    },
    /// The region's addresses would pass the end of all addresses.
    #[error("{len} bytes from address 0x{iova:x} pass the last 64-bit address: choose a lower one")]
    AddressWraps {
        /// The address that the first byte was to have.
        iova: u64,
        /// Bytes.
        len: usize,
    },
    /// Peers may write only what the owner may have written, as the IBA asks of a registration.
    #[error("access {access:?} lets peers write what the owner may not: add LOCAL_WRITE, or take it away")]
    NeedsLocalWrite {
        /// The access asked for.
        access: Access,
    },
    /// The memory can only be read.
    #[error("access {access:?} asks for writing, but the memory is read-only: register it without")]
    ReadOnly {
        /// The access asked for.
        access: Access,
    },
    /// The table is full.
    #[error("there are {limit} regions, as many as there may be: deregister one first")]
    TooManyRegions {
        /// How many there may be.
        limit: usize,
    },
    /// The table is full.
    #[error("there are {limit} memory windows, as many as there may be: free one first")]
    TooManyWindows {
        /// How many there may be.
        limit: usize,
    },
    /// There is no such region or window.
    #[error("no such memory has key 0x{key:08x}: it was taken back, bound anew, or is of another kind")]
    UnknownKey {
        /// The key.
        key: u32,
    },
    /// Windows are bound to the region.
    #[error("{windows} memory windows are bound to this region: unbind or free them first")]
    InUse {
        /// How many.
        windows: u32,
    },
}

/// Why a program's own access to an allocation was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The range is not inside.
    #[error("{len} bytes at offset {offset} are not inside {size} bytes: stay inside")]
    OutOfBounds {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes of the allocation.
        size: usize,
    },
    /// A number does not lie on a multiple of its size.
    #[error("address 0x{address:x} is no multiple of 8: choose an aligned offset")]
    Misaligned {
        /// Where it would be.
        address: u64,
    },
    /// The memory can only be read.
    #[error("the memory is read-only: bring memory that can be written")]
    ReadOnly,
}
