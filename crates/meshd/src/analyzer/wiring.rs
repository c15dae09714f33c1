//! The wiring as far as agents tell it: RNICs below ToRs, and above them one fabric.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_mesh::{HostId, RnicId, Tier, Topology, TopologyBuilder, Tuple};

use crate::proto::v1;

/// The name of all that is above ToRs; no registered name has these signs and this length.
const FABRIC: &str = "(all above ToRs)";

/// An RNIC, as its agent registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) agent: String,
    pub(super) host: String,
    pub(super) tor: Arc<str>,
    pub(super) qpn: u32,
}

/// RNICs by their addresses.
pub(super) type Members = BTreeMap<IpAddr, Member>;

/// RNICs as the controller tells them; what is no address is left out.
pub(super) fn members(state: &v1::RosterState) -> Members {
    let mut tors: BTreeSet<Arc<str>> = BTreeSet::new();
    let member = |member: &v1::Member| {
        let rnic = member.rnic.as_ref()?;
        let address: IpAddr = rnic.address.parse().ok()?;
        // Many RNICs share the name of a ToR.
        let tor = tors.get(rnic.tor.as_str()).cloned().unwrap_or_else(|| Arc::from(rnic.tor.as_str()));
        tors.insert(Arc::clone(&tor));
        let (agent, host) = (member.agent.clone(), member.host.clone());
        Some((address.to_canonical(), Member { agent, host, tor, qpn: rnic.qpn }))
    };
    state.members.iter().filter_map(member).collect()
}

/// A wiring, and where everything is in it.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    /// The host and the ToR of each RNIC that was looked at.
    places: HashMap<IpAddr, (String, Arc<str>)>,
    pub(super) rnics: HashMap<IpAddr, RnicId>,
    hosts: HashMap<String, HostId>,
    /// RNICs whose names collide with others, or whose ToR is not in the topology file.
    pub(super) misplaced: u64,
}

impl Wiring {
    /// The wiring of these RNICs, below the switches of a topology file if there is one.
    pub(super) fn new(members: &Members, switches: Option<&TopologyBuilder>) -> (Self, Topology) {
        let mut builder = switches.cloned().unwrap_or_else(|| described_by_agents(members));
        let mut misplaced = 0;
        let (mut rnics, mut hosts) = (HashMap::new(), HashMap::new());
        for (address, member) in members {
            match builder.rnic(&address.to_string(), *address, &member.host, &member.tor) {
                Ok(id) => drop(rnics.insert(*address, id)),
                Err(_) => misplaced += 1,
            }
        }
        let topology = builder.build();
        for (number, host) in (0..).zip(topology.hosts()) {
            hosts.insert(host.name.clone(), HostId(number));
        }
        let place = |(address, member): (&IpAddr, &Member)| {
            (*address, (member.host.clone(), Arc::clone(&member.tor)))
        };
        let places = members.iter().map(place).collect();
        (Self { places, rnics, hosts, misplaced }, topology)
    }

    /// Whether all of these RNICs are in it, in the same places.
    pub(super) fn has(&self, members: &Members) -> bool {
        members.iter().all(|(address, member)| {
            let known = self.places.get(address);
            known.is_some_and(|(host, tor)| (host, tor) == (&member.host, &member.tor))
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
fn described_by_agents(members: &Members) -> TopologyBuilder {
    let mut builder = Topology::builder();
    let tors: BTreeSet<&str> = members.values().map(|member| &*member.tor).collect();
    let has_fabric = builder.switch(FABRIC, Tier::Aggregation, []).is_ok();
    for tor in tors {
        if builder.switch(tor, Tier::Tor, []).is_ok() && has_fabric {
            // Both are there, and no cable was between them.
            let _ = builder.cable(tor, FABRIC);
        }
    }
    builder
}
