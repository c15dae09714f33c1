//! A mesh of probes: which RNIC probes which, and which RNIC, switch, directed link or host is bad.
//!
//! It is pure: registrations, windows, traces and a topology are passed in, pinglists and findings come out.
//!
//! - [`agent`]: which paths an agent traces, and when.
//! - [`controller`]: agents with leases, and what each of their RNICs probes.
//! - [`Topology`]: the wiring as it is described.
//! - [`Paths`]: what packets cross, from traces; what traces do not tell is a mixture.
//! - [`Window`]: how the probes of each flow ended, and how the hosts were.
//! - [`Analyzer`]: takes a window at a time, and keeps the [findings](Finding).
#![forbid(unsafe_code)]

pub mod agent;
mod analyzer;
mod climbs;
pub mod controller;
mod finding;
mod impact;
mod localise;
mod mixture;
mod noise;
mod observation;
mod paths;
mod quick;
mod renaming;
mod suspect;
mod topology;
mod wiring;

pub use analyzer::{Analyzer, AnalyzerConfig, Verdict};
pub use finding::{Evidence, Finding, FindingId, Severity, State};
pub use impact::{Affected, Impact, Priority, ServiceFlow};
pub use localise::{Guilt, LocaliseConfig, Named, Trouble};
pub use noise::{HostNote, Noise};
pub use observation::{FlowKey, HostReport, Observation, Outcomes, Tuple, Window};
pub use paths::Paths;
pub use suspect::Suspect;
pub use topology::{
    Host, HostId, LinkId, Node, Rnic, RnicId, Switch, SwitchId, Tier, Topology, TopologyBuilder,
    TopologyError,
};
pub use wiring::WiringError;
