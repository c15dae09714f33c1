//! Middleware of Debian, unmodified, under `ferroce run`: UCX, Open MPI over it, libfabric, and many programs at once.
//!
//! Programs are told which device and which transport of theirs to use, and nothing else. `cargo xtask soak --only
//! middleware` runs the long forms.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod fabric;
mod mixed;
mod mpi;
mod pair;
mod support;
mod ucx;
