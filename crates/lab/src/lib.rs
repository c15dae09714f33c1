//! A small Clos network of real kernel routers: hosts, top-of-rack switches, aggregations and cores, each a network
//! namespace, with links between them and routes of equal cost.
//!
//! Two pods; in each two ToRs and two aggregations, all connected with each other; two hosts below each ToR; two cores,
//! connected with all aggregations: 8 + 4 + 4 + 2. A ToR chooses between two aggregations, an aggregation between two
//! cores, a core between the two aggregations of the other pod. So there are 8 paths from one pod to the other, 2 between
//! the ToRs of a pod, and 1 below a ToR.
//!
//! It stands in a mount namespace of a process of its own ([`namespaces::Room`]), and is gone with that process,
//! whatever ends it. Threads of the process enter the namespaces of the nodes ([`namespaces::enter`]); the process
//! itself stays in the network that it began in.
#![forbid(unsafe_code)]

pub mod namespaces;
mod network;
mod node;

pub use namespaces::LabError;
pub use network::{Clos, wiring};
pub use node::{AGGREGATIONS, CORES, Family, HOSTS, Node, PODS, TORS};
