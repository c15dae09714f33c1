//! Probes over queue pairs: the machines of this crate with a card, a clock and packets.
//!
//! - [`ProberEnd`]: sends probes, and hands out how they ended; traces the paths of ports.
//! - [`ResponderEnd`]: answers probes.
//!
//! Both are queue pairs for datagrams whose packets always go over sockets, and whose completions carry the
//! kernel's times. A prober finds the queue pair of a responder by asking the responder's card for
//! [`SERVICE_PORT`] (SIDR), so the address of a host is all that has to be known.

mod clock;
mod end_error;
mod link;
mod prober_end;
mod responder_end;
mod tracing;

use ferroce_verbs::QKey;

pub use clock::{CardClock, ProbeClock};
pub use end_error::ProbeEndError;
pub use prober_end::{Complaint, Finder, ProberEnd, Tracings};
pub use responder_end::ResponderEnd;

use crate::stamp::Stamp;

/// The Q_Key of probers and responders, as the R-Pingmesh rebuild has it.
pub const QKEY: QKey = QKey(0x1111_1111);

/// The port under which a card tells the queue pair of its responder, if nothing else is said. No packet
/// goes to it: it is a name.
pub const SERVICE_PORT: u16 = 47_920;

/// The time now, on the clock of completions.
#[must_use]
pub fn stamp_now() -> Stamp {
    CardClock.now()
}
