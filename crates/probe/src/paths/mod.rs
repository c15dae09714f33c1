//! Which ways packets take: how many ports are needed to see all of them, and which ports these are.
//!
//! Switches choose among equal ways by a hash of addresses and ports. A RoCEv2 packet always goes to the same
//! port, so its source port is all that a prober can choose. Two ways lead to all paths: enough random ports
//! ([`ports_for`]), or ports whose paths were [traced](Tracer), one for each path ([`Steering`]).

mod coverage;
mod port;
mod steering;
mod trace;
mod tracer;

pub use coverage::{Occupancy, ports_for};
pub use port::{FIRST_PORT, label_for_port, port_of_label};
pub use steering::{Kept, Offer, Polarised, Steering};
pub use trace::{Path, Trace};
pub use tracer::{Ask, Tracer, TracerConfig};
