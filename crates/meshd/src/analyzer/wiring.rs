//! The wiring as far as agents tell it: RNICs below ToRs, and above them one fabric.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ferroce_mesh::{HostId, RnicId, Tier, Topology, TopologyBuilder, Tuple};

use crate::proto::v1;

/// The name of all that is above ToRs; no registered name has these signs and this length.
const FABRIC: &str = "(all above ToRs)";

/// An RNIC, as its agent registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) agent: String,
    pub(super) host: String,
    pub(super) tor: String,
    pub(super) qpn: u32,
}

/// RNICs by their addresses; what is no address is left out.
pub(super) fn members(state: &v1::RosterState) -> BTreeMap<IpAddr, Member> {
    let member = |member: &v1::Member| {
        let rnic = member.rnic.as_ref()?;
        let address: IpAddr = rnic.address.parse().ok()?;
        let (agent, host, tor) = (member.agent.clone(), member.host.clone(), rnic.tor.clone());
        Some((address.to_canonical(), Member { agent, host, tor, qpn: rnic.qpn }))
    };
    state.members.iter().filter_map(member).collect()
}

/// A wiring, and where everything is in it.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    pub(super) members: BTreeMap<IpAddr, Member>,
    pub(super) rnics: HashMap<IpAddr, RnicId>,
    hosts: HashMap<String, HostId>,
    /// RNICs whose names collide with others, or whose ToR is not in the topology file.
    pub(super) misplaced: u64,
}

impl Wiring {
    /// The wiring of these RNICs, below the switches of a topology file if there is one.
    pub(super) fn new(
        members: BTreeMap<IpAddr, Member>,
        switches: Option<&TopologyBuilder>,
    ) -> (Self, Topology) {
        let mut builder = switches.cloned().unwrap_or_else(|| described_by_agents(&members));
        let mut misplaced = 0;
        let (mut rnics, mut hosts) = (HashMap::new(), HashMap::new());
        for (address, member) in &members {
            match builder.rnic(&address.to_string(), *address, &member.host, &member.tor) {
                Ok(id) => drop(rnics.insert(*address, id)),
                Err(_) => misplaced += 1,
            }
        }
        let topology = builder.build();
        for (number, host) in (0..).zip(topology.hosts()) {
            hosts.insert(host.name.clone(), HostId(number));
        }
        (Self { members, rnics, hosts, misplaced }, topology)
    }

    /// Whether all of these RNICs are in it, in the same places.
    pub(super) fn has(&self, members: &BTreeMap<IpAddr, Member>) -> bool {
        members.iter().all(|(address, member)| {
            let known = self.members.get(address);
            known.is_some_and(|known| (&known.host, &known.tor) == (&member.host, &member.tor))
        })
    }

    /// A tuple of these addresses; none if an RNIC is not in it.
    pub(super) fn tuple(&self, from: IpAddr, to: IpAddr, port: u16) -> Option<Tuple> {
        Some(Tuple { from: *self.rnics.get(&from)?, to: *self.rnics.get(&to)?, port })
    }

    pub(super) fn host(&self, name: &str) -> Option<HostId> {
        self.hosts.get(name).copied()
    }
}

/// ToRs as agents name them, below one fabric.
fn described_by_agents(members: &BTreeMap<IpAddr, Member>) -> TopologyBuilder {
    let mut builder = Topology::builder();
    let tors: BTreeSet<&str> = members.values().map(|member| member.tor.as_str()).collect();
    let has_fabric = builder.switch(FABRIC, Tier::Aggregation, []).is_ok();
    for tor in tors {
        if builder.switch(tor, Tier::Tor, []).is_ok() && has_fabric {
            // Both are there, and no cable was between them.
            let _ = builder.cable(tor, FABRIC);
        }
    }
    builder
}
