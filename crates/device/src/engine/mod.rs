//! The engine: everything that happens, happens in a turn of it, and one thread at a time is in it.
//!
//! ```text
//! turn:  mail (work that met a busy engine) -> receive -> timers -> transmit -> tell threads that wait
//! ```
//!
//! A thread that posts work or looks for completions turns the engine; while none does so, the driver
//! thread does ([`crate::driver`]). A device may have several ([`crate::engines`]): each has queue pairs
//! of its own, and what one wants of another it does if that one is free, or leaves it in its freight.

mod alone;
mod departed;
mod direct;
mod farewell;
pub(crate) mod follow;
pub(crate) mod freight;
mod from_lanes;
mod hand;
pub(crate) mod handles;
pub(crate) mod host;
mod idle_poll;
mod incoming;
pub(crate) mod lanes;
mod leaving;
mod outgoing;
pub(crate) mod path_report;
mod port;
pub(crate) mod qp_shared;
pub(crate) mod qps;
mod recorded;
pub(crate) mod recording;
mod release;
mod report;
pub(crate) mod sender;
pub(crate) mod srq_side;
pub(crate) mod stamps;
mod state;
mod timers;
mod turn;
pub(crate) mod watch;
pub(crate) mod windows;

pub(crate) use state::{Engine, Reason, Turned};
