//! What the tests of several crates share.
//!
//! - [`captures`]: golden frames of the Linux kernel, from `testdata/captures`.
//! - [`samples`]: packets of every opcode, from numbers or from proptest.
//! - [`figure`]: a figure of a benchmark, as a line that a program reads.
//! - [`fuzz`]: what a fuzz target does with its bytes; `cargo test` replays the corpora through it.
//! - [`postgres`]: a PostgreSQL server that a test may kill.
//! - [`process`]: the other process of a benchmark.
//! - [`processor`]: on which one a benchmark runs.
//! - [`shared_port`]: a socket beside those of a device.
//! - [`judge`]: whether a missing foreign program skips a test or fails it.
//! - [`namespaces`]: network namespaces of a test's own.
//! - [`dropin`]: tests over our own drop-in library as a card.
//! - [`over_both!`]: tests over the network and through memory.
//! - [`clos`]: a Clos network of real kernel routers.
//! - [`neighbour`]: a process of another user that means no good, and all that it can say.
#![forbid(unsafe_code)]

pub mod captures;
pub mod clos;
pub mod dropin;
pub mod figure;
pub mod fuzz;
pub mod judge;
pub mod namespaces;
pub mod neighbour;
mod over_both;
pub mod postgres;
pub mod process;
pub mod processor;
pub mod samples;
pub mod shared_port;
pub mod stub;

use std::path::PathBuf;

/// The root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
