//! Probes of a RoCE network: pure state machines, and the two ends that run them over queue pairs.
//!
//! The machines touch no socket, clock, thread or random number: times, numbers and packets are passed in, so
//! the same code runs over queue pairs and over a simulated network.
//!
//! - [`packet`]: the 40 bytes of a probe and of its two answers.
//! - [`Prober`]: which probes are pending, what their answers say, and how each of them ended.
//! - [`Responder`]: two answers to each probe, and a limit for each source.
//! - [`Watchdog`]: probing slows down while our own host is busy.
//! - [`paths`]: how many ports see all paths, and which ports these are.
//! - `net` (a feature, on by default): prober and responder over queue pairs.
#![forbid(unsafe_code)]

mod arrivals;
mod counters;
mod directions;
mod generations;
mod limit;
#[cfg(feature = "net")]
pub mod net;
pub mod packet;
pub mod paths;
mod prober;
mod report;
mod responder;
mod stalls;
mod stamp;
mod watchdog;

pub use arrivals::Arrivals;
pub use counters::{OutcomeCounters, ProberCounters, ResponderCounters};
pub use directions::Directions;
pub use packet::{Kind, Packet, Ports, ProbePacketError, Sequence};
pub use prober::{Arrival, MAX_PENDING, ProbeEvent, ProbeStartError, Prober, ProberConfig};
pub use report::{Delays, HostFault, Invalid, Outcome, Peer, Report, Times};
pub use responder::{Answer, Responder, ResponderConfig, Ticket};
pub use stamp::{Stamp, StampSource};
pub use watchdog::{Lateness, Pace, PaceChange, Watchdog, WatchdogConfig};
