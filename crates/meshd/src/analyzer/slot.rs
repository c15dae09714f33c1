//! What all agents tell of one stretch of time, and what is to be known when it is judged.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_mesh::Outcomes;

use super::wiring::Members;
use crate::clock;
use crate::histogram::Histogram;
use crate::trace::TraceReport;
use crate::window::HostState;

/// From, to, port, port of answers.
pub(super) type FlowAddress = (IpAddr, IpAddr, u16, u16);

/// What all agents tell of one stretch of time.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) flows: HashMap<FlowAddress, FlowTold>,
    /// The round trips from one ToR to another.
    pub(super) pairs: HashMap<(Arc<str>, Arc<str>), Histogram>,
    pub(super) hosts: BTreeMap<String, HostState>,
}

/// What is told of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowTold {
    pub(super) outcomes: Outcomes,
    pub(super) round_trips: RoundTrips,
}

/// The round trips of a flow in short, in nanoseconds; all are 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundTrips {
    pub(super) median: u64,
    pub(super) p99: u64,
}

impl RoundTrips {
    pub(super) fn of(histogram: &Histogram) -> Self {
        let at = |part| histogram.percentile(part).map_or(0, clock::nanos);
        Self { median: at(0.5), p99: at(0.99) }
    }
}

/// A slot that is to be judged.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) slot: Slot,
    /// When it began and ended, in nanoseconds of the Unix clock.
    pub(super) start: u64,
    pub(super) end: u64,
    /// All RNICs that were ever registered.
    pub(super) members: Arc<Members>,
    /// The agents whose leases run.
    pub(super) live: Arc<BTreeSet<String>>,
    /// RNICs whose queue pairs became others of late.
    pub(super) changed: HashSet<IpAddr>,
    /// What was traced since the slot before.
    pub(super) traces: Vec<TraceReport>,
}
