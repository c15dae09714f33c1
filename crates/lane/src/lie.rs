//! What the other process may not say.

use std::fmt;

/// What broke a lane: something in it that a process which follows the rules never writes.
///
/// Nothing that is read after a lie can be trusted, so that a side that has found one stays broken: it hands out nothing any
/// more. The remedy is a new lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lie {
    /// The producer says that it has published more than the ring holds, or less than before.
    Head {
        /// What was known before, in bytes since the beginning.
        known: u64,
        /// What the word says now.
        said: u64,
    },
    /// The consumer says that it has given back what was not published, or less than before.
    Tail {
        /// What was known before, in bytes since the beginning.
        known: u64,
        /// What the word says now.
        said: u64,
    },
    /// A position is not a multiple of 8.
    Alignment {
        /// What the word says.
        said: u64,
    },
    /// The word before a record has bits that mean nothing, or skips where nothing is to be skipped.
    Mark {
        /// The word.
        said: u64,
    },
    /// A record is longer than records may be, than what is published, or than the ring goes on.
    Length {
        /// Bytes of the record, by its word.
        said: usize,
        /// Bytes that it could have.
        most: usize,
    },
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head { known, said } => {
                write!(f, "the producer says {said} after {known}, which no ring holds")
            }
            Self::Tail { known, said } => {
                write!(f, "the consumer says {said} after {known}, which was not published")
            }
            Self::Alignment { said } => write!(f, "a position of {said} bytes is no multiple of 8"),
            Self::Mark { said } => write!(f, "the word {said:#018x} stands before no record"),
            Self::Length { said, most } => write!(f, "a record of {said} bytes stands where {most} can be"),
        }
    }
}
