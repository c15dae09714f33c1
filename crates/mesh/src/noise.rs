//! Hosts first: what a host says of itself explains trouble before the network is suspected.
//!
//! A host without an agent answers nothing, so flows from and to it are taken out. A host that stood still or
//! dropped packets may have lost any probe that reached it: it is a suspect from the beginning, with a guilt
//! that is fitted like that of others, and the network is suspected only of what that leaves.

use std::collections::BTreeMap;

use crate::observation::HostReport;
use crate::topology::{HostId, RnicId, Topology};

/// What hosts said of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noise {
    hosts: BTreeMap<HostId, HostReport>,
    /// By card: whether its host says nothing.
    silent: Vec<bool>,
}

/// Why a host explains trouble.
#[derive(Clone, Debug, PartialEq)]
pub struct HostNote {
    /// What the host said, over all windows that were looked at.
    pub report: HostReport,
    /// Flows that were taken out, since the host answers nothing.
    pub taken_out: u32,
    /// Lost packets that are put down to it.
    pub losses: f64,
}

impl Noise {
    /// Puts the reports of several windows together.
    pub(crate) fn of<'a>(topology: &Topology, reports: impl Iterator<Item = &'a HostReport>) -> Self {
        let mut hosts: BTreeMap<HostId, HostReport> = BTreeMap::new();
        for report in reports.filter(|report| (report.host.0 as usize) < topology.hosts().len()) {
            let sum = hosts.entry(report.host).or_insert(HostReport::of(report.host));
            sum.stalls = sum.stalls.saturating_add(report.stalls);
            sum.longest = sum.longest.max(report.longest);
            sum.receive_drops = sum.receive_drops.saturating_add(report.receive_drops);
            sum.lapsed |= report.lapsed;
            sum.changed_qpn |= report.changed_qpn;
        }
        let mut silent = vec![false; topology.rnics().len()];
        for report in hosts.values().filter(|report| report.lapsed || report.changed_qpn) {
            for rnic in &topology.hosts()[report.host.0 as usize].rnics {
                silent[rnic.0 as usize] = true;
            }
        }
        Self { hosts, silent }
    }

    /// Whether nothing is to be learnt from flows of this card.
    pub(crate) fn is_silent(&self, rnic: RnicId) -> bool {
        self.silent[rnic.0 as usize]
    }

    /// Hosts that may have lost packets that reached them.
    pub(crate) fn uneasy(&self) -> Vec<HostId> {
        let uneasy = |report: &&HostReport| report.stalls > 0 || report.receive_drops > 0;
        self.hosts.values().filter(uneasy).map(|report| report.host).collect()
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = &HostReport> {
        self.hosts.values()
    }
}
