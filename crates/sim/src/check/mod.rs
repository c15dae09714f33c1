//! The checkers: what must hold at every step of every run.
//!
//! Each file checks one kind of promise against the [`Model`](model::Model) of what was posted:
//!
//! | file | checkers |
//! |---|---|
//! | `placement.rs` | `granted-range`, `placed-once-in-order`, `content` |
//! | `delivery.rs` | `receive-order`, `send-once-in-order`, `datagram` |
//! | `completion.rs` | `completion-order`, `unsignaled`, `success-means-done` |
//! | `atomic.rs` | `atomic-once` |
//! | `fate.rs` | `justified-status`, `justified-error` |
//! | `bounds.rs` | `bounded-state`, `icrc` |
//! | `witness.rs` | what of this holds where a liar speaks: `granted-range`, `nothing-twice`, `repeats-end-nothing`, `answers-what-was-asked`, `success-means-answered` |
//! | `rest.rs` | `comes-to-rest`, `all-completed`, `memory-at-rest`, `window-at-rest`, `no-needless-repeats`, `neighbours-undisturbed` |

pub mod atomic;
pub mod bounds;
pub mod completion;
pub mod delivery;
pub mod fate;
pub mod grants;
pub mod model;
pub mod placement;
pub mod rest;
pub mod witness;

use std::fmt;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that saw it.
    pub checker: &'static str,
    /// What it saw, and what it wanted to see.
    pub what: String,
}

impl Violation {
    /// A violation.
    pub fn new(checker: &'static str, what: impl Into<String>) -> Self {
        Self { checker, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

/// A violation as the result of a check.
pub(crate) fn broken<T>(checker: &'static str, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation::new(checker, what))
}
