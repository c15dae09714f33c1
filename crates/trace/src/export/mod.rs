//! Time-lines in the forms of other tools.
//!
//! | function | what it writes | what reads it |
//! |---|---|---|
//! | [`pcapng()`] | every packet, with the work request that it belongs to as its comment | Wireshark, tshark, `ferroce decode` |
//! | [`perfetto()`] | a track for each queue, slices for work, flows from work over packets to the peer | ui.perfetto.dev |
//! | [`html()`] | a sequence diagram in one page that needs no network | a browser |
//! | [`svg()`], [`mermaid()`] | one operation, for documents | people |
//!
//! All of them read the time-line once, from its beginning to its end, and hold only what is not over: a record may
//! have any length. A packet that both of its ends recorded is told once for each end: it left one process, and came
//! to another. Which packets are the same is found by addresses, queue pairs, packet sequence number and opcode; of
//! several that fit, it is the one that is nearest in time.

mod follow;
mod hash;
mod html;
mod mermaid;
mod operation;
mod pcapng;
mod perfetto;
mod proto;
mod svg;
mod words;

use std::io;

use ferroce_record::Header;
use ferroce_wire::Qpn;
use thiserror::Error;

pub use self::html::{HtmlOptions, MOST_PACKETS, html};
pub use self::mermaid::mermaid;
pub use self::operation::Choice;
pub use self::pcapng::pcapng;
pub use self::perfetto::perfetto;
pub use self::svg::svg;
use crate::timeline::Timeline;

/// Why there is no export, or only a part of one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// What was made could not be written.
    #[error("cannot write the export")]
    Write(#[from] io::Error),
    /// A record could not be read to its end.
    #[error("cannot read a record to its end")]
    Read(#[source] io::Error),
    /// No work request of the time-line is the one that was asked for.
    #[error("no work request in the record is the one that was asked for")]
    NoSuchWork,
}

/// Which part of a time-line is exported; without a limit, all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Nothing before this time of the time-line, in nanoseconds.
    pub from: Option<u64>,
    /// Nothing after this one.
    pub to: Option<u64>,
    /// Only what has to do with queue pairs of this number, at either end.
    pub queue_pair: Option<Qpn>,
}

impl Selection {
    fn has_time(&self, first: u64, last: u64) -> bool {
        self.from.is_none_or(|from| from <= last) && self.to.is_none_or(|to| first <= to)
    }

    fn has(&self, qpn: Option<Qpn>) -> bool {
        self.queue_pair.is_none_or(|wanted| qpn == Some(wanted))
    }
}

/// What an export holds, and what it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that were read.
    pub events: u64,
    /// Packets that were written; one that both ends recorded counts twice.
    pub packets: u64,
    /// Packets among them that came, and whose sender is in the time-line, too.
    pub joined: u64,
    /// Packets that were not written: they are outside of the selection, or too many.
    pub left_out: u64,
    /// Work requests that were written, or whose packets were.
    pub works: u64,
    /// Work requests that stayed in their process: they have no packets, and no capture shows them.
    pub local: u64,
}

/// After how many events the caller is told.
const TELL: u64 = 1 << 16;

/// What the clock of the wall showed at time 0 of a time-line, in nanoseconds since 1970.
fn wall_start(timeline: &Timeline) -> u64 {
    let first = timeline.sources().first();
    first.map_or(0, |source| source.trace().header().wall_start.saturating_sub(source.offset()))
}

/// A process, as people name it: its program without path and arguments, and its number.
fn process_name(header: &Header) -> String {
    let word = header.program.split_whitespace().next().unwrap_or_default();
    let name = word.rsplit('/').next().unwrap_or_default();
    let name = if name.is_empty() { "process" } else { name };
    format!("{name} ({})", header.pid)
}

/// The names of all processes of a time-line.
fn process_names(timeline: &Timeline) -> Vec<String> {
    timeline.sources().iter().map(|source| process_name(source.trace().header())).collect()
}
