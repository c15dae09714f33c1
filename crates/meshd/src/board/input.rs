//! What the analyzer tells the board after it has judged a window.

use std::sync::Arc;

use ferroce_mesh::{FlowKey, Outcomes, Topology};

use super::{BoardFinding, BoardService, Trips};

/// A window of all agents, after it was judged.
#[derive(Clone, Debug)]
pub struct BoardWindow {
    /// When it began, in nanoseconds of the Unix clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Agents that told of it.
    pub agents: u32,
    /// Whether all agents told of it.
    pub is_complete: bool,
    /// The wiring that it was judged by; what the numbers of RNICs mean.
    pub topology: Arc<Topology>,
    /// All flows.
    pub flows: Vec<BoardFlow>,
    /// Hosts with something to say of themselves.
    pub hosts: Vec<BoardHost>,
    /// What is bad.
    pub open: Vec<BoardFinding>,
    /// What ended with this window.
    pub over: Vec<BoardFinding>,
    /// Services, those in trouble first.
    pub services: Vec<BoardService>,
    /// Services beyond those.
    pub services_left_out: u32,
}

/// A flow of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardFlow {
    /// Which flow.
    pub key: FlowKey,
    /// How its probes ended.
    pub outcomes: Outcomes,
    /// The round trips of those that have one.
    pub trips: Trips,
}

/// How a host was in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoardHost {
    /// Its name.
    pub host: String,
    /// How often it stood still.
    pub stalls: u32,
    /// How long at most, in nanoseconds.
    pub longest: u64,
    /// Packets that it dropped since its buffers were full.
    pub receive_drops: u64,
    /// Its agent did not renew its lease.
    pub lapsed: bool,
    /// The queue pair of one of its RNICs became another one.
    pub changed_qpn: bool,
    /// Probes that it sent. The board counts them; what is told is not looked at.
    pub sent: u64,
    /// Of these, probes that were answered in time.
    pub ok: u64,
    /// Of these, probes of which something was lost.
    pub lost: u64,
}

impl BoardHost {
    /// Whether there is something to say of it.
    #[must_use]
    pub const fn is_troubled(&self) -> bool {
        self.stalls > 0 || self.receive_drops > 0 || self.lapsed || self.changed_qpn || self.lost > 0
    }
}
