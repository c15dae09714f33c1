//! A mesh of servers: every member talks to every other over reliable connections of its own, with registered
//! buffers, batched doorbells and functions that are called when something happens.
//!
//! ```
//! use std::time::Duration;
//! use ferroce_broker::{Broker, Members, Post};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let members: Members = "127.0.150.1:7471,127.0.150.2:7471".parse()?;
//! let other = {
//!     let members = members.clone();
//!     std::thread::spawn(move || {
//!         let broker = Broker::builder(1, members).start().unwrap();
//!         let mut answered = false;
//!         while !answered {
//!             broker.wait_receives(Duration::from_secs(5), |message| {
//!                 answered = broker.send(message.peer(), &message.to_vec(), Post::new()).is_ok();
//!             }).unwrap();
//!         }
//!         broker.leave(Duration::from_secs(5)).unwrap();
//!     })
//! };
//! let broker = Broker::builder(0, members).start()?;
//! broker.send(1, b"how are you?", Post::new())?;
//! let mut answer = Vec::new();
//! while answer.is_empty() {
//!     broker.wait_receives(Duration::from_secs(5), |message| answer = message.to_vec())?;
//! }
//! assert_eq!(answer, b"how are you?");
//! # other.join().unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! What it promises, and how it is used, is in docs/broker.md. In short:
//!
//! - Work is posted to a peer and **gathered**; a full batch, [`Broker::flush`] or a poll that finds nothing
//!   hands it to the device as one list.
//! - **Nothing waits unless it says so.** A full ring is [`BrokerError::WouldBlock`]; what waits has a time
//!   limit.
//! - **Messages** of a member arrive once and in order within one of its lives (its incarnation). Receivers
//!   are never overrun: a sender knows how much room there is.
//! - **One member's failure is its own.** Work to it ends with an error, the others go on, and the broker
//!   connects again when it is back.
//! - **Functions of the program** run inside of polls, one at a time for each peer. They may post and poll.
//!   One that panics is contained.
#![forbid(unsafe_code)]

mod broker;
mod buffer;
mod builder;
mod conn;
mod datagrams;
mod error;
mod handshake;
mod hello;
mod keeper;
mod members;
mod pause;
mod peer;
pub mod pool;
mod proof;
mod receiving;
mod refusals;
mod secret;
mod sending;
mod settings;
mod waiting;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use broker::{Broker, MemberStatus};
pub use buffer::{At, Local, Piece, Post, SendBuf};
pub use builder::Builder;
pub use datagrams::Datagram;
pub use error::{Absent, BrokerError, BrokerSetupError, Full, MemberRefusal, StartError, Why, WorkFailure};
pub use hello::Exposed;
pub use members::{Member, MemberListError, Members};
pub use receiving::{Change, Message};
pub use refusals::Refusals;
pub use secret::{Secret, SecretError};
pub use sending::Done;

/// What a thread that panicked has left is still whole: changes are made in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
