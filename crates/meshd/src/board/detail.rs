//! The flows of a window and its hosts: all of the newest windows, later only those with trouble.

use std::net::IpAddr;

use ferroce_mesh::Outcomes;

use super::input::BoardHost;
use super::trips::Trips;

/// A flow, by addresses: the wiring that gave it numbers may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFlow {
    /// The place of its pair of ToRs in the matrix.
    pub(super) place: u32,
    /// Where its probes come from.
    pub from: IpAddr,
    /// Where they go.
    pub to: IpAddr,
    /// The port of probes.
    pub port: u16,
    /// The port of answers.
    pub reply_port: u16,
    /// How its probes ended.
    pub outcomes: Outcomes,
    /// The round trips.
    pub trips: Trips,
}

impl KeptFlow {
    fn is_troubled(&self) -> bool {
        trouble(&self.outcomes) > 0
    }
}

/// How much is worth looking at in a flow: losses before delays.
pub(super) fn trouble(outcomes: &Outcomes) -> u64 {
    let delays = outcomes.slow.saturating_add(outcomes.late).saturating_add(outcomes.invalid);
    (u64::from(outcomes.lossy()) << 32) + u64::from(delays)
}

/// How much is known of the flows of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// As many flows of each pair as there is room for, those with trouble first.
    All,
    /// Flows with trouble only.
    Trouble,
}

/// Flows and hosts.
#[derive(Clone, Debug)]
pub struct Detail {
    depth: Depth,
    /// By pair; of each pair the most troubled first.
    flows: Vec<KeptFlow>,
    hosts: Vec<BoardHost>,
    /// Hosts that there were.
    all_hosts: usize,
}

impl Detail {
    pub(super) const fn new(flows: Vec<KeptFlow>, hosts: Vec<BoardHost>) -> Self {
        let all_hosts = hosts.len();
        Self { depth: Depth::All, flows, hosts, all_hosts }
    }

    /// How much is known.
    #[must_use]
    pub const fn depth(&self) -> Depth {
        self.depth
    }

    /// Hosts, and how many are left out.
    #[must_use]
    pub fn hosts(&self) -> (&[BoardHost], usize) {
        (&self.hosts, self.all_hosts.saturating_sub(self.hosts.len()))
    }

    /// The flows that are known.
    #[must_use]
    pub fn flows(&self) -> &[KeptFlow] {
        &self.flows
    }

    /// The flows of a pair that are known.
    pub(super) fn of_pair(&self, place: u32) -> &[KeptFlow] {
        let start = self.flows.partition_point(|flow| flow.place < place);
        let end = self.flows.partition_point(|flow| flow.place <= place);
        &self.flows[start..end]
    }

    /// Only what is troubled: so many flows and hosts at most, the worst of all.
    pub(super) fn troubled(&self, flows: usize, hosts: usize) -> Self {
        let mut places: Vec<usize> =
            (0..self.flows.len()).filter(|place| self.flows[*place].is_troubled()).collect();
        if places.len() > flows {
            places.sort_by_key(|place| std::cmp::Reverse(trouble(&self.flows[*place].outcomes)));
            places.truncate(flows);
            places.sort_unstable();
        }
        let troubled = self.hosts.iter().filter(|host| host.is_troubled()).take(hosts);
        Self {
            depth: Depth::Trouble,
            flows: places.into_iter().map(|place| self.flows[place].clone()).collect(),
            hosts: troubled.cloned().collect(),
            all_hosts: self.all_hosts,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let spilled: usize = self.flows.iter().map(|flow| flow.trips.heap()).sum();
        let names: usize = self.hosts.iter().map(|host| host.host.capacity()).sum();
        self.flows.capacity() * size_of::<KeptFlow>()
            + spilled
            + self.hosts.capacity() * size_of::<BoardHost>()
            + names
    }
}
