//! Connection management as a pure machine: how two queue pairs are brought together and taken apart
//! (IBA 12.9), and how the queue pair of a datagram service is found (IBA 12.11).
//!
//! A [`Manager`] holds everything that a device knows of connections that come, stand and go. As the queue
//! pairs of this crate it touches no socket, clock, thread or random number:
//!
//! - **In**: what the program wants ([`listen`](Manager::listen), [`connect`](Manager::connect),
//!   [`accept`](Manager::accept), [`disconnect`](Manager::disconnect) and so on), messages that arrived
//!   ([`handle_message`](Manager::handle_message)) and the time
//!   ([`handle_timeout`](Manager::handle_timeout)).
//! - **Out**: after each of these, [`poll_transmit`](Manager::poll_transmit) until there are no more
//!   messages, [`poll_event`](Manager::poll_event) until nothing more has happened, and
//!   [`poll_timeout`](Manager::poll_timeout) for when to come back.
//!
//! Queue pairs are moved by the caller: on [`Event::Replied`] the side that asked takes its queue pair
//! to RTS and calls [`ready`](Manager::ready); the other side takes its own there before it calls
//! [`accept`](Manager::accept).
//!
//! One rule explains most of the rest: every connection keeps the last message that it sent. If the answer does
//! not come, it is sent again, a limited number of times; if the question comes again, so does the answer.
//!
//! What a peer can make us keep is limited by [`Limits`]. Messages for connections that do not exist are answered
//! out of nothing ([`answer_unknown`]).

mod active;
mod connection;
mod counters;
mod ending;
mod event;
mod ids;
mod limits;
mod manager;
mod passive;
mod receive;
mod sidr;
mod unknown;
mod waiting;
mod watching;

pub use active::Connect;
pub use connection::{Ends, Patience};
pub use counters::CmCounters;
pub use event::{End, Event, Failure, Request, Resolved};
pub use ids::Chance;
pub use limits::Limits;
pub use manager::{Config, Manager, Outgoing, Refused};
pub use passive::Accept;
pub use sidr::{DatagramService, Query};
pub use unknown::answer_unknown;
pub use watching::Standing;
