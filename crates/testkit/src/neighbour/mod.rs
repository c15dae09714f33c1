//! A hostile neighbour: a process of another user on the same machine, and all that it can say.
//!
//! [`Target`] is a live queue pair with everything that can be known of it. A [`Knowledge`] takes away what a
//! neighbour does not know, and a [`Lie`] makes the packet. [`user`] starts this program again as another
//! user.

mod lie;
mod mads;
mod target;
pub mod user;

pub use lie::Lie;
pub use target::{Knowledge, Target};

/// Bytes that no honest program of the tests writes.
pub const FALSE_BYTE: u8 = 0xbd;
