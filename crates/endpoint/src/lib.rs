//! Connections for people: messages of any size, one-sided memory and streams over RDMA.
#![forbid(unsafe_code)]

mod buffer;
mod call;
mod calls;
mod connect;
mod connection;
mod core;
mod device;
mod error;
mod exposed;
mod frame;
mod half;
mod hello;
mod hub;
mod keeper;
mod line;
mod listener;
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
pub use connect::Connect;
pub use connection::{Connection, MemoryUse, Received};
pub use core::{Counters, State};
pub use error::{
    AcceptError, AddressError, BindError, Cause, ConnectError, Error, HelloError, Refusal, SetupError,
    Violation,
};
pub use exposed::{Exposed, RemoteMemory};
pub use hub::CompletionHub;
pub use listener::{Accept, Listener, ListenerCounters};
pub use options::{Options, Polling};
pub use physical::PhysicalWindow;
pub use reactor::{Handler, Reactor, ReactorOptions};
pub use stream::Stream;

pub use ferroce_verbs::{Access, Context, Memory, MemoryError};
