//! What all agents tell of one stretch of time, and what is to be known when it is judged.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_mesh::Outcomes;

use super::wiring::Members;
use crate::board::Trips;
use crate::service_flow::ServiceFlowReport;
use crate::trace::TraceReport;
use crate::window::HostState;

/// From, to, port, port of answers.
pub(super) type FlowAddress = (IpAddr, IpAddr, u16, u16);

/// What all agents tell of one stretch of time.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) flows: HashMap<FlowAddress, FlowTold>,
    pub(super) hosts: BTreeMap<String, HostState>,
    /// Queue pairs of services, by address and number.
    pub(super) services: BTreeMap<(IpAddr, u32), ServiceFlowReport>,
}

/// What is told of a flow.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowTold {
    pub(super) outcomes: Outcomes,
    pub(super) trips: Trips,
}

/// A slot that is to be judged.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) slot: Slot,
    /// When it began and ended, in nanoseconds of the Unix clock.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Agents that told of it, and whether all did.
    pub(super) agents: u32,
    pub(super) is_complete: bool,
    /// All RNICs that were ever registered.
    pub(super) members: Arc<Members>,
    /// The agents whose leases run.
    pub(super) live: Arc<BTreeSet<String>>,
    /// RNICs whose queue pairs became others of late.
    pub(super) changed: HashSet<IpAddr>,
    /// What was traced since the slot before.
    pub(super) traces: Vec<TraceReport>,
}
