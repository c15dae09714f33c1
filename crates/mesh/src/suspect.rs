//! What may be bad, and small numbers for it.

use crate::topology::{HostId, LinkId, Node, RnicId, SwitchId, Topology};

/// What may be bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suspect {
    /// A card: what it sends and what it receives.
    Rnic(RnicId),
    /// A switch: all that passes it.
    Switch(SwitchId),
    /// One direction of a link.
    Link(LinkId),
    /// A host: probes that reach its cards are not answered. It is never the network.
    Host(HostId),
}

impl Suspect {
    /// Everything of a topology that may be bad.
    pub fn all(topology: &Topology) -> impl Iterator<Item = Self> {
        let count = |count: usize| 0..u32::try_from(count).unwrap_or(u32::MAX);
        let rnics = count(topology.rnics().len()).map(|id| Self::Rnic(RnicId(id)));
        let switches = count(topology.switches().len()).map(|id| Self::Switch(SwitchId(id)));
        let links = count(topology.links().len()).map(|id| Self::Link(LinkId(id)));
        let hosts = count(topology.hosts().len()).map(|id| Self::Host(HostId(id)));
        rnics.chain(switches).chain(links).chain(hosts)
    }

    /// Its name in the words of the topology.
    #[must_use]
    pub fn name(&self, topology: &Topology) -> String {
        match *self {
            Self::Rnic(id) => format!("RNIC {}", topology.rnic(id).name),
            Self::Switch(id) => {
                let switch = topology.switch(id);
                format!("{:?} {}", switch.tier, switch.name)
            }
            Self::Link(id) => {
                let (from, to) = topology.ends(id);
                format!("link {} -> {}", topology.name(from), topology.name(to))
            }
            Self::Host(id) => format!("host {}", topology.hosts()[id.0 as usize].name),
        }
    }
}

/// Suspects in a row: cards, switches, hosts, links. Links come last, since traces may add some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    switches: u32,
    hosts: u32,
    links: u32,
}

impl Row {
    pub(crate) fn new(topology: &Topology) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let switches = count(topology.rnics().len());
        let hosts = switches + count(topology.switches().len());
        Self { switches, hosts, links: hosts + count(topology.hosts().len()) }
    }

    pub(crate) const fn place(&self, suspect: Suspect) -> u32 {
        match suspect {
            Suspect::Rnic(id) => id.0,
            Suspect::Switch(id) => self.switches + id.0,
            Suspect::Host(id) => self.hosts + id.0,
            Suspect::Link(id) => self.links + id.0,
        }
    }

    pub(crate) const fn node(&self, node: Node) -> u32 {
        match node {
            Node::Rnic(id) => self.place(Suspect::Rnic(id)),
            Node::Switch(id) => self.place(Suspect::Switch(id)),
        }
    }

    pub(crate) const fn suspect(&self, place: u32) -> Suspect {
        if place < self.switches {
            Suspect::Rnic(RnicId(place))
        } else if place < self.hosts {
            Suspect::Switch(SwitchId(place - self.switches))
        } else if place < self.links {
            Suspect::Host(HostId(place - self.hosts))
        } else {
            Suspect::Link(LinkId(place - self.links))
        }
    }

    /// How many there are.
    pub(crate) fn len(&self, topology: &Topology) -> usize {
        self.links as usize + topology.links().len()
    }
}
