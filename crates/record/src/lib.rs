//! The record of a device: what happened to each work request, in events of fixed size.
//!
//! A device that records writes [events](Event) of 64 bytes into rings; a ring has one engine as its writer, or
//! all threads of the program. The rings lie in a shared mapping of a file, so that the record of a program
//! that was killed is whole to its last event: the kernel has all that was stored. No text is made, no lock is
//! taken and nothing is allocated while something is recorded; all that people look at is made afterwards, from
//! the file.
//!
//! ```text
//!   header | ring 0 | ring 1 | ... | what was kept of the rings, in chunks
//! ```
//!
//! A [flight recorder](Mode::Flight) has no chunks: its rings go round, and hold the last events of each. A
//! [whole](Mode::Whole) record has a thread that moves events from the rings into chunks; where it is too slow,
//! new events are [counted as lost](RingNote::lost) and not written.
//!
//! [`Trace`] reads such a file, whatever has become of it: while it is written, after its program was killed,
//! cut off, or written by something else.
#![forbid(unsafe_code)]

mod chunk;
mod event;
mod header;
mod layout;
mod merge;
mod names;
mod packing;
mod read;
mod recorder;
mod ring;
mod shadow;

pub use self::event::{
    Begun, Completed, CompletedFlags, Connection, ConnectionStep, Doorbell, EVENT_LEN, Ends, Event, HEADERS,
    Matched, MoreHeaders, Operands, Packet, PacketFlags, PacketHead, Piece, Polled, Posted, PostedFlags,
    Queue, QueuePair, Refusal, Region, RegionKind, StateChange, Step, Timer, TimerKind, Wait, WaitReason,
    Way, WorkOp,
};
pub use self::header::{Header, Mode};
pub use self::merge::Events;
pub use self::names::numbered;
pub use self::read::{RingNote, Stamped, Trace, TraceError};
pub use self::recorder::{RecordConfig, RecordError, Recorder};
pub use self::ring::{EngineRing, ProgramRing};
pub use self::shadow::{Belongs, Shade, Shadow};
