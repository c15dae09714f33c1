//! A simulated Clos network whose truth is known, for probes and for what judges them.
//!
//! - [`Shape`]: pods, ToRs, aggregations, cores, hosts and RNICs, and the links between them. It is all that
//!   programs under test know of the network; it holds neither faults nor hashes.
//! - [`Fabric`]: a shape with the seeds of its hashes and its [faults](Fault), which are the truth. Programs
//!   under test never get it; they get what follows from it: [`Observation`]s and traces.
//! - [`Plan`]: which RNIC probes which, from which port, when.
//! - [`packets`]: the machines of `ferroce-probe` run over it, packet by packet, in virtual time.
//! - [`flows`]: how each probe ends is drawn from the faults on its way, for 10,240 RNICs at once.
//!
//! One seed is a whole run. Both levels say the same of the same plan, up to chance (`tests/agreement.rs`).
#![forbid(unsafe_code)]

mod clock;
mod fabric;
mod fault;
pub mod flows;
mod hash;
mod observation;
pub mod packets;
mod plan;
mod scenario;
mod shape;

pub use clock::Clock;
pub use fabric::{Fabric, Route};
pub use fault::{Fault, Place, Stall, Trouble};
pub use hash::Tuple;
pub use observation::Observation;
pub use plan::{Flow, Plan, PlanConfig};
pub use scenario::ScenarioConfig;
pub use shape::{Link, Node, Shape};
