//! Time-lines of work requests: from the record of a device to what became of each request.
//!
//! A [record](ferroce_record) is a list of events. [`Assembler`] puts those of one work request together: the
//! call that posted it, the doorbell, its packets, its end, and the call that took its completion. It holds only
//! what is not over yet, so that a record of any length can be read through. What does not fit together is an
//! [`Oddity`]: in the record of a device that works there is none.
#![forbid(unsafe_code)]

mod align;
mod assemble;
mod check;
mod explain;
pub mod export;
mod fast;
mod filter;
mod glance;
mod json;
mod quiet;
mod read;
#[cfg(test)]
mod scene;
mod show;
mod stats;
mod timeline;
mod work;

pub use self::assemble::{Assembler, Oddity};
pub use self::check::{Check, Checker, Violation, check};
pub use self::explain::{Evidence, Explainer, Explanation, Finding, Severity};
pub use self::filter::{Filter, OpKind, Slowest, status_name};
pub use self::json::Line;
pub use self::read::{End, Told, read};
pub use self::show::{Block, Nanos, Span};
pub use self::stats::{Stage, Stats};
pub use self::timeline::{Alignment, Basis, Merged, Seen, Source, Timeline};
pub use self::work::{Arrival, CompletionState, PacketAt, Work, WorkState};
