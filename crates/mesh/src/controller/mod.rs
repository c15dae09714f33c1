//! The controller of the mesh: which agents there are, and which RNIC probes which, from which ports.
//!
//! - [`Registry`]: agents with leases, and their RNICs. Whatever changes gets a version, so that agents can be
//!   told what is new instead of everything.
//! - [`Roster`]: the RNICs of one version, by ToR; it gives each RNIC its [`Pinglist`].
//! - [`ports`]: the UDP source ports of a pair, a fifth of them new every hour.
//!
//! Nothing here reads a clock or a socket: times are passed in, and services stand on it.

mod pinglist;
pub mod ports;
mod registry;
mod roster;

pub use pinglist::{Pinglist, PinglistConfig, PinglistDelta, Target};
pub use registry::{
    Change, LeaseLost, RegisterRefusal, Registration, Registry, RegistryConfig, Restored, Rnic,
};
pub use roster::Roster;
