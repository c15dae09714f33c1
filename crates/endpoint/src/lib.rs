//! Connections for people: messages of any size, one-sided memory and streams over RDMA.
//!
//! ```
//! use ferroce_endpoint::{Connection, Listener};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Listener::bind("127.0.43.2:7471")?;
//! let client = std::thread::spawn(|| {
//!     let connection = Connection::connect("127.0.43.2:7471").wait().unwrap();
//!     connection.send(b"hello").wait().unwrap();
//! });
//! let connection = listener.accept().wait()?;
//! assert_eq!(connection.recv().wait()?.unwrap(), b"hello");
//! # client.join().unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! A [`Listener`] waits for connections, [`Connection::connect`] asks for one. A [`Connection`] sends and receives
//! messages, uses memory that its peer has exposed, and turns into a [`Stream`]. What may have to wait is a [`Call`]:
//! `.wait()` or `.await`. A [`Reactor`] calls functions of a [`Handler`] instead.
#![forbid(unsafe_code)]

mod buffer;
mod call;
mod calls;
mod connect;
mod connection;
mod core;
mod device;
mod done;
mod error;
mod exposed;
mod frame;
mod half;
mod hello;
mod hub;
mod keeper;
mod line;
mod listener;
mod looking;
mod one_sided;
mod options;
mod physical;
mod pieces;
mod place;
mod pool;
mod reactor;
mod shared;
mod stream;
#[cfg(test)]
mod tests;

pub use buffer::{Buffer, Message};
pub use call::{Attempt, Call};
pub use connect::Connect;
pub use connection::{Connection, Delivery, MemoryUse, Received};
pub use core::{Counters, State};
pub use done::{Done, DoneKind};
pub use error::{
    AcceptError, AddressError, BindError, Cause, ConnectError, Error, HelloError, Names, Refusal, SetupError,
    Violation,
};
pub use exposed::{Exposed, RemoteMemory};
pub use hub::CompletionHub;
pub use listener::{Accept, Listener, ListenerCounters};
pub use options::{Options, Polling, Priority};
pub use physical::PhysicalWindow;
pub use place::Place;
pub use reactor::{
    Acceptor, Handler, ListenServeError, Listening, Reactor, ReactorCounters, ReactorOptions, ServeError,
};
pub use stream::Stream;

pub use ferroce_verbs::{Access, Context, Memory, MemoryError};
