//! Memory through which two processes of one machine hand packets to each other.
//!
//! A *lane* is a ring of records from one process to another, in a file in memory that both have mapped ([`LaneFile`]): one
//! of them is its [`Producer`], the other its [`Consumer`]. A *line* ([`LineFile`]) is where a slot is called: a bit for each
//! of 256 callers, and whether the owner sleeps and needs to be woken ([`Line`], [`Caller`]).
//!
//! No system call is on the way of a record. The other process may be broken or mean no good: what it writes is read once and
//! checked, and a lie breaks the lane for good ([`Lie`]); [`Record`] says what may be believed of the bytes themselves. This
//! crate knows no packets, and not how descriptors come from one process to another.
//!
//! With `--cfg loom` the words are on the heap, and a model looks at every order of threads (`tests/loom.rs`).
#![allow(unsafe_code, reason = "a home of unsafe code: memory that another process maps and writes")]

mod consumer;
mod doors;
mod exchange;
#[cfg(not(loom))]
mod files;
mod layout;
mod lie;
mod line;
mod memory;
#[cfg(loom)]
pub mod model;
mod producer;
#[cfg(not(loom))]
mod sealed;

pub use consumer::{Consumer, Record};
pub use doors::{Door, Doors, Hand, Reach, Visitor};
#[cfg(not(loom))]
pub use files::{DoorsFile, ForeignDoors, LaneFile, LineFile};
pub use layout::LONGEST;
pub use lie::Lie;
pub use line::{Caller, Line, Taken};
pub use producer::Producer;
#[cfg(not(loom))]
pub use sealed::LaneError;
