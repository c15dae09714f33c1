//! Connections for people: messages of any size, one-sided memory and streams over RDMA.
#![forbid(unsafe_code)]

mod buffer;
mod call;
mod calls;
mod connection;
mod core;
mod error;
mod exposed;
mod frame;
mod half;
mod hello;
mod hub;
mod keeper;
mod line;
mod options;
mod physical;
mod pool;
mod reactor;
mod shared;
mod stream;
#[cfg(test)]
mod tests;

pub use buffer::{Buffer, Message};
pub use call::Call;
pub use connection::{Connection, MemoryUse, Received};
pub use core::{Counters, State};
pub use error::{Cause, Error, HelloError, SetupError, Violation};
pub use exposed::{Exposed, RemoteMemory};
pub use hub::CompletionHub;
pub use options::{Options, Polling};
pub use physical::PhysicalWindow;
pub use reactor::{Handler, Reactor, ReactorOptions};
pub use stream::Stream;

pub use ferroce_verbs::{Access, Context, Memory, MemoryError};
