//! Registered memory: a place that others write, not a slice.
//!
//! An [`Allocation`] is the memory itself. The [`MemoryTable`] knows which parts of it are regions
//! and windows, and under which keys; it answers each request for memory with a [`Place`], which
//! lives no longer than the table stays as it is. How bytes move is in `copy`, the only code that
//! touches them.
#![allow(unsafe_code, reason = "a home of unsafe code: memory that peers and programs write at once")]

mod allocation;
mod copy;
mod crc;
mod error;
mod keys;
mod place;
mod probe;
mod table;
mod windows;

pub use allocation::Allocation;
pub use copy::{Fold, Passes, copy_in};
pub use crc::ShortCrc;
pub use error::{AccessError, MemoryError};
pub use place::{Opened, Place};
pub use probe::{is_readable, is_writable};
pub use table::{Counts, MAX_REGIONS, MAX_WINDOWS, MemoryTable, RegionKeys, RegionSpec};
pub use windows::WindowKind;
