//! Connections by the machine's `librdmacm.so.1`, for queue pairs that a program makes itself.
//!
//! The library of connections opens cards for itself; here it only finds peers, and tells both sides what the other needs to
//! know. [`ConnectionId::prepare`] moves a queue pair to the states that a connection wants.

mod address;
mod channel;
mod event;
mod id;

pub use channel::ConnectionChannel;
pub use event::{ConnectionEvent, ConnectionEventKind, ConnectionParameters};
pub use id::{ConnectionId, Preparation};
