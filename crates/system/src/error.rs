//! Why the library or the card refused something.

use std::io;

use ferroce_transport::Access;
use ferroce_wire::Service;
use thiserror::Error;

use crate::library::LibraryError;

/// A call of the library failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{call} failed: {}", io::Error::from_raw_os_error(*code))]
pub struct CallError {
    /// The function.
    pub call: &'static str,
    /// Its error number.
    pub code: i32,
}

impl CallError {
    /// What is asked of an object of the parent after a fork.
    #[cold]
    pub(crate) const fn forked(call: &'static str) -> Self {
        Self { call, code: Self::FORKED }
    }

    /// The error number of calls that are not made because their object was made before a fork: open the card anew in the child.
    /// No call of the libraries has it.
    pub const FORKED: i32 = libc::ESTALE;

    /// Whether the call was not made because its object was made before a fork.
    #[must_use]
    pub const fn is_fork(&self) -> bool {
        self.code == Self::FORKED
    }

    /// The answer of a function that this library, or the driver of this card, does not have.
    pub(crate) const fn unsupported(call: &'static str) -> Self {
        Self { call, code: libc::EOPNOTSUPP }
    }
}

/// Why a card was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenCardError {
    /// The user may not use it.
    #[error("{name} may not be opened by this user: ask for the right to read and write {file}")]
    NoPermission {
        /// The card.
        name: String,
        /// The file of its driver.
        file: String,
        /// Why.
        #[source]
        error: CallError,
    },
    /// It is gone, or its driver is.
    #[error("{name} is not there any more")]
    Gone {
        /// The card.
        name: String,
        /// Why.
        #[source]
        error: CallError,
    },
    /// The library refused.
    #[error("{name} cannot be opened")]
    Refused {
        /// The card.
        name: String,
        /// Why.
        #[source]
        error: CallError,
    },
}

/// Why an object of a card was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MakeError {
    /// Two objects do not belong together.
    #[error("the {what} is of another device; make all of them from the same one")]
    OtherCard {
        /// The object that is foreign.
        what: &'static str,
    },
    /// Queue pairs are RC, UC or UD.
    #[error("there are no queue pairs of {}; choose RC, UC or UD", service.name())]
    OtherService {
        /// What was asked for.
        service: Service,
    },
    /// A number does not fit what the library takes.
    #[error("{given} is too much for the {what}; {allowed} is possible")]
    TooLarge {
        /// What it is the number of.
        what: &'static str,
        /// What was asked for.
        given: u64,
        /// What is possible.
        allowed: u64,
    },
    /// The library or the card refused.
    #[error(transparent)]
    Refused(#[from] CallError),
}

/// Why there are no connections.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The library of connections cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// It refused.
    #[error(transparent)]
    Refused(#[from] CallError),
}

/// Why memory was not registered with a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The part is not inside of the memory.
    #[error("bytes {start}..{end} are not inside of {size} bytes of memory; register what is inside")]
    Outside {
        /// First byte.
        start: usize,
        /// The byte after the last.
        end: usize,
        /// Bytes of the memory.
        size: usize,
    },
    /// Peers may write only what the owner may have written.
    #[error("access {access:?} lets peers write what the owner may not: add LOCAL_WRITE, or take it away")]
    NoLocalWrite {
        /// What was asked for.
        access: Access,
    },
    /// The memory can only be read.
    #[error("access {access:?} asks for writing, but the memory is read-only")]
    ReadOnly {
        /// What was asked for.
        access: Access,
    },
    /// An address of the program's choice needs a newer library.
    #[error("the library knows no addresses of the program's choice; it needs {needed}")]
    NoChosenAddress {
        /// What it would have to have.
        needed: &'static str,
    },
    /// The library takes the pages of registered memory from children of a fork, with what else lies in them.
    #[error(
        "the memory shares pages with other things, and the library keeps the pages of registered memory from forked \
         children: register memory of its own pages (`Allocation::zeroed`)"
    )]
    SharesPages,
    /// The system did not let the pages be locked in memory.
    #[error(
        "{len} bytes were not locked in memory, of which this process may lock {limit} in all: raise RLIMIT_MEMLOCK \
         (`ulimit -l`, LimitMEMLOCK= of a service), or register less"
    )]
    Locked {
        /// Bytes of the region.
        len: usize,
        /// The limit of the process, in bytes.
        limit: u64,
        /// Why.
        #[source]
        error: CallError,
    },
    /// The library or the card refused.
    #[error(transparent)]
    Refused(#[from] CallError),
}

impl RegisterError {
    /// Whether it may go well once other memory is not registered any more.
    #[must_use]
    pub const fn is_for_want_of_room(&self) -> bool {
        match self {
            Self::Locked { .. } => true,
            Self::Refused(error) => matches!(error.code, libc::ENOMEM | libc::EAGAIN | libc::ENOSPC),
            _ => false,
        }
    }
}

/// Why a card did not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostWorkError {
    /// As many requests wait as the queue was made for.
    #[error(
        "the queue is full: {depth} requests wait; poll for completions first, and sign one in so many sends"
    )]
    Full {
        /// How many it takes.
        depth: u32,
    },
    /// More pieces than the queue was made for.
    #[error("{given} pieces, at most {allowed} allowed")]
    ManyPieces {
        /// Pieces given.
        given: usize,
        /// Pieces allowed.
        allowed: u32,
    },
    /// More inline bytes than the queue pair was made for.
    #[error("{given} inline bytes, at most {allowed} allowed")]
    LongInline {
        /// Bytes given.
        given: usize,
        /// Bytes allowed.
        allowed: u32,
    },
    /// A piece that is not inside of its region, or longer than any message.
    #[error("bytes {start}..{end} are no piece of a region of {size} bytes")]
    Outside {
        /// First byte.
        start: usize,
        /// The byte after the last.
        end: usize,
        /// Bytes of the region.
        size: usize,
    },
    /// An object of the request belongs to another protection domain.
    #[error("the {what} is of another protection domain than the queue")]
    OtherDomain {
        /// The object that is foreign.
        what: &'static str,
    },
    /// The answer of the peer cannot go into inline bytes.
    #[error("a READ or atomic needs memory for its answer, not inline bytes")]
    InlineAnswer,
    /// A datagram needs a destination, and nothing else has one.
    #[error("a datagram needs a destination, and other messages have none")]
    Destination,
    /// A window is bound in the way of its type: type 1 at once, type 2 by posted work.
    #[error("a window of type 1 is bound by `bind_window`, and one of type 2 by posted work")]
    OtherWay,
    /// A queue pair that takes receives from a shared queue has none of its own.
    #[error("the queue pair takes its receives from a shared queue; post them there")]
    Shared,
    /// The library or the card refused.
    #[error(transparent)]
    Refused(#[from] CallError),
}

/// Why a list of requests was not taken whole: the first `taken` are posted, and the next was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{taken} of {given} requests were posted, and the next was refused")]
pub struct PostWorkListError {
    /// Requests that were posted.
    pub taken: usize,
    /// Requests given.
    pub given: usize,
    /// Why the next was refused.
    #[source]
    pub error: PostWorkError,
}
