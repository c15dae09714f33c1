//! The connection manager of a device: drives the machine of [`ferroce_transport::cm`].
//!
//! A thread of its own, started with the first listener or connection and ended with the device. It sleeps
//! until a message arrives, a timer is due or the program wants something. Why a thread, and not the engines:
//! messages reach this process by way of the one that leads, not over the sockets of its engines; what
//! happens to connections runs code of the program's side (queue pairs are moved, wakers called), which must
//! not happen inside an engine; and a program that only listens has no thread of its own that turns an
//! engine. Why it stays until the device goes: connections that are over must be remembered for a while, and
//! late messages be answered.
//!
//! A thread that calls does the work of its call itself, under one lock: messages leave at once. What happens
//! is told by the manager's thread alone, outside of the lock and in order.

mod asked;
mod books;
mod heartbeat;
mod listening;
mod mailer;
mod notice;
mod parting;
mod recording;
mod service;

pub use asked::{Asked, Hearer};
pub use books::{Acceptor, Inquiry, Watcher};
pub use listening::{ListeningTo, ServiceError};
pub use notice::Notice;
pub use service::ConnectionManager;
pub(crate) use service::Managing;
