//! RC, UC and UD as pure machines.
//!
//! A [`QueuePair`] never touches a socket, a clock, a thread or a random number. Its device
//! feeds it and empties it:
//!
//! - **In**: [`post_send`](QueuePair::post_send) and [`post_receive`](QueuePair::post_receive)
//!   with work, [`handle_packet`](QueuePair::handle_packet) with a packet whose ICRC is right,
//!   [`handle_timeout`](QueuePair::handle_timeout) when the time has come,
//!   [`modify`](QueuePair::modify) with attributes.
//! - **Out**: after each of these, [`poll_transmit`](QueuePair::poll_transmit) until it has no
//!   more packets, then [`poll_timeout`](QueuePair::poll_timeout) for when to come back.
//!   Completions, events and every access to memory go to the [`Host`] during the call,
//!   because a bad key must become a NAK in the same step.
//!
//! What the device promises: time never runs backwards; a packet from
//! [`poll_transmit`](QueuePair::poll_transmit) is put together, payload included, before the
//! next call; all queue pairs that send to the same receiver share one [`Window`], and one that
//! found it full is asked for packets again when another has made room; it calls
//! with packets before it calls with time, so that an answer that waits in a socket is seen
//! before its absence is judged.
//!
//! What the machine promises: no call blocks, panics or allocates once the queue pair is in
//! RTS; whatever a peer sends is counted by name in [`Counters`], answered where the IBA asks
//! for it, and never touches memory that the [`Host`] did not allow; each posted request
//! completes at most once, in the order of posting within its queue; state per queue pair is
//! bounded by its [`Caps`].
//!
//! The same machines run under UDP, inside one process, and in the seeded simulator.
#![forbid(unsafe_code)]

mod arrival;
pub mod cm;
mod completion;
mod connection;
mod counters;
mod figures;
mod host;
mod inbound;
mod pacing;
pub mod planted;
mod posting;
mod qp;
mod queue;
mod rc;
pub mod state;
mod status;
mod time;
mod transmit;
mod unreliable;
mod vendor;
mod window;
mod work;

pub use completion::{Classified, Completion, Envelope, Event, PlainCompletion, TimeSource, WorkError};
pub use counters::Counters;
pub use figures::{Completions, Level, QpTotals};
pub use host::{Accessor, AtomicOp, Denied, DomainId, Host, SharedQueueId};
pub use posting::{Load, Message, PostError, PostListError, PostRules, ShortRules};
pub use qp::{Alarm, Caps, Due, Hold, Obstacle, PostedSend, QpConfig, QueuePair, Waiting};
pub use queue::{Receive, ReceiveQueue};
pub use rc::direct::{Direct, Spot};
pub use rc::last_ack::LastAck;
pub use rc::resources::MAX_RESOURCES;
pub use state::check as check_attributes;
pub use state::{AttributeMask, Attributes, Limits, ModifyError, State};
pub use status::{Status, WorkKind};
pub use time::{Time, sooner};
pub use transmit::{Acks, Burst, DataSink, Destination, Gather, PayloadSource, Transmit};
pub use vendor::VendorCode;
pub use window::{Window, true_size};
pub use work::{
    Access, Bind, Data, DatagramDest, MaskedAdd, MaskedSwap, ReceiveRequest, Remote, SendFlags, SendOp,
    SendRequest, Sge,
};
