//! Reliable connections.
//!
//! The [requester](requester) owns everything about sending; the [responder](responder)
//! everything about answering. They share nothing but the attributes of the connection.

pub(crate) mod acknowledge;
mod atomic;
pub(crate) mod burst;
pub(crate) mod direct;
pub(crate) mod last_ack;
pub(crate) mod requester;
pub(crate) mod resources;
pub(crate) mod responder;
pub(crate) mod retry;
