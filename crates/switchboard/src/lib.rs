//! The switchboard: several processes on one interface share the port of RoCEv2, with no daemon.
//!
//! All sockets of a group are bound to the same port. A filter in the kernel looks at the top byte of the
//! destination queue pair of each datagram, the *slot*, and hands it to the socket of that number. Every
//! process of the group holds all sockets, so that none of them disappears with a process; which process
//! *owns* a slot is said by a record lock on a shared file in memory, which the kernel releases
//! whatever way a process ends.
//!
//! ```text
//! newcomer -- greets --> leader (listens at a name) -- all sockets, the shared file --> newcomer
//! newcomer: locks a free slot, drops what lies in its socket, counts its incarnation up, publishes itself
//! every member keeps its connection; when the leader is gone, the first to lock its byte of the file leads
//! ```
//!
//! On a loopback interface the filter looks at the source port too: what comes from another port than that of the
//! devices was sent by some other program, perhaps of another user, and goes to a socket that drops everything.
//!
//! Slot 0 has no owner: it gets what is for queue pair 1 and what is for no slot at all. The leader
//! reads it and hands connection management to the process that it is for. A packet that came to a wrong
//! slot, as part of a run that was steered by its first packet, is forwarded to its owner.
//!
//! All members of a group are of one user. What members write into the shared file is looked at with
//! suspicion all the same: nothing in it can make another member do more than lose packets.
#![allow(unsafe_code, reason = "a home of unsafe code: a file that processes share, and their sockets")]

mod bpf;
#[cfg(test)]
mod churn;
mod claim;
mod connections;
mod error;
mod forward;
mod group;
mod heard;
mod inner;
mod join;
mod lane;
mod lanes;
mod late;
mod lead;
mod locals;
mod mad_queue;
mod mads;
mod membership;
mod multicast;
mod names;
mod no_lane;
mod nofile;
mod owners;
mod ports;
mod post;
mod protocol;
mod recording;
mod refusals;
mod rows;
mod service_name;
mod sockets;
mod stats;
mod survey;
mod suspects;
mod table;
#[cfg(test)]
mod tests;

use ferroce_wire::Qpn;

pub use claim::Scope;
pub use error::{Holder, SwitchError};
pub use forward::Arrival;
pub use group::Group;
pub use heard::Spread;
pub use inner::{Refuses, Sink};
pub use lane::{LaneOffer, Lifeline, MOST_ANSWERED, MOST_OFFERED, Reached};
pub use locals::{Distant, Locals};
pub use mad_queue::{Mad, Sealed};
pub use mads::{communication_id, route, seal};
pub use membership::{Membership, ServiceClaim, Slot, Traffic};
pub use no_lane::{LaneRefusal, NoLane};
pub use recording::{RecordReply, RecordRequest, Recorded, Records, record};
pub use refusals::Refusals;
pub use rows::{ProcessStats, QpStats, QueueStats, Report, WorkStats};
pub use service_name::{MOST_SERVICE, ServiceNameError, check_service_name};
pub use stats::{MOST_TOLD, Told, stats};
pub use survey::{Row, Survey, survey};

/// Slots of a group; slot 0 has no owner.
pub const SLOTS: usize = 128;

/// Sockets of a group: one for each slot, and a last one that hears nothing. On a loopback interface it gets what
/// no device has sent.
const SOCKETS: usize = SLOTS + 1;

/// The slot of a queue pair number.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a QPN has 24 bits")]
pub const fn slot_of(qpn: Qpn) -> u8 {
    (qpn.get() >> 16) as u8
}

/// Whether a process of a test is to do this one thing wrong.
fn planted(bug: &str) -> bool {
    std::env::var("FERROCE_TEST_PLANTED").is_ok_and(|planted| planted == bug)
}
