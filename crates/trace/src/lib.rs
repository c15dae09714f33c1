//! Time-lines of work requests: from the record of a device to what became of each request.
//!
//! A [record](ferroce_record) is a list of events. [`Assembler`] puts those of one work request together: the
//! call that posted it, the doorbell, its packets, its end, and the call that took its completion. It holds only
//! what is not over yet, so that a record of any length can be read through. What does not fit together is an
//! [`Oddity`]: in the record of a device that works there is none.
#![forbid(unsafe_code)]

mod assemble;
pub mod export;
mod show;
mod timeline;
mod work;

pub use self::assemble::{Assembler, Oddity};
pub use self::show::{Block, Nanos};
pub use self::timeline::{Merged, Seen, Source, Timeline};
pub use self::work::{Arrival, CompletionState, PacketAt, Work, WorkState};
