//! One-sided work that was begun, when it is done.

use crate::error::Error;

/// One-sided work that is done: what [`Connection::next_done`](crate::Connection::next_done) gives, and what the functions of a
/// [`Handler`](crate::Handler) are called with.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Done {
    /// The number that the program gave it.
    pub tag: u64,
    /// What it was.
    pub kind: DoneKind,
    /// Bytes that were to be written or read.
    pub len: usize,
    /// How it went. Work that fails ends its connection, so an error here is the end of all.
    pub result: Result<(), Error>,
}

/// Which one-sided work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DoneKind {
    /// [`Connection::begin_write`](crate::Connection::begin_write): the bytes are in the peer's memory.
    Written,
    /// [`Connection::begin_read`](crate::Connection::begin_read): the bytes are here.
    Read,
}
