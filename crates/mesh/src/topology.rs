//! The wiring as it is described: switches with their tiers, RNICs with their hosts and ToRs, and links.
//!
//! A description may be wrong: [`Paths`](crate::Paths) learns from traces what it lacks. What cannot be meant
//! (doubles, circles, names that nothing has) is refused with a reason of its own.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::quick::QuickMap;

/// The wiring of a network. Everything in it has a small number, given in the order of the description.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    switches: Vec<Switch>,
    rnics: Vec<Rnic>,
    hosts: Vec<Host>,
    links: Vec<(Node, Node)>,
    by_ends: QuickMap<(Node, Node), LinkId>,
    by_address: HashMap<IpAddr, Node>,
}

/// A card, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RnicId(pub u32);

/// A switch, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchId(pub u32);

/// A host, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// One direction of a link, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A card.
    Rnic(RnicId),
    /// A switch.
    Switch(SwitchId),
}

/// How high a switch stands. Packets go up, and then down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Above cards.
    Tor,
    /// Above ToRs.
    Aggregation,
    /// Above aggregations.
    Core,
}

/// A switch of the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// How high it stands.
    pub tier: Tier,
    /// Neighbours in higher tiers.
    pub above: Vec<SwitchId>,
}

/// A card of the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rnic {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its host.
    pub host: HostId,
    /// The switch above it.
    pub tor: SwitchId,
}

/// A host of the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its cards.
    pub rnics: Vec<RnicId>,
}

/// Why a description is none of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// Two things have one name.
    #[error("{name} is described twice; every switch and every RNIC needs a name of its own")]
    DoubleName {
        /// The name.
        name: String,
    },
    /// Two things have one address.
    #[error("{address} belongs to {name} and to another one; an address has one owner")]
    DoubleAddress {
        /// The address.
        address: IpAddr,
        /// The second owner.
        name: String,
    },
    /// A cable is described twice.
    #[error("the cable from {from} to {to} is described twice; leave one out")]
    DoubleCable {
        /// One end.
        from: String,
        /// The other end.
        to: String,
    },
    /// A name that nothing has.
    #[error("{name} is named and not described; describe it, or correct the name")]
    UnknownName {
        /// The name.
        name: String,
    },
    /// A card without a ToR.
    #[error("the RNIC {rnic} hangs on {above}, which is no ToR; name the ToR that it is cabled to")]
    RnicWithoutTor {
        /// The card.
        rnic: String,
        /// What it hangs on.
        above: String,
    },
    /// A cable that leads back to where it came from, or to a switch of the same tier.
    #[error(
        "the cable from {from} to {to} makes a circle: both ends are of one tier, so packets could go round"
    )]
    Circle {
        /// One end.
        from: String,
        /// The other end.
        to: String,
    },
    /// More than numbers of 32 bits can tell apart.
    #[error("the description has more than {most} parts of one kind")]
    TooLarge {
        /// The limit.
        most: u32,
    },
}

/// No more of one kind: switches, cards or links.
const MOST: u32 = 1 << 24;

/// A description that is not complete yet.
#[derive(Clone, Debug, Default)]
pub struct TopologyBuilder {
    topology: Topology,
    names: HashMap<String, Node>,
    hosts: HashMap<String, HostId>,
}

impl TopologyBuilder {
    /// Adds a switch with all its addresses.
    ///
    /// # Errors
    /// If its name or an address of it is taken.
    pub fn switch(
        &mut self,
        name: &str,
        tier: Tier,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<SwitchId, TopologyError> {
        let id = SwitchId(number(self.topology.switches.len())?);
        self.name(name, Node::Switch(id))?;
        for address in addresses {
            self.address(address, name, Node::Switch(id))?;
        }
        self.topology.switches.push(Switch { name: name.to_owned(), tier, above: Vec::new() });
        Ok(id)
    }

    /// Adds a card below a ToR that was added before, with the links of both directions.
    ///
    /// # Errors
    /// If its name or its address is taken, or what it hangs on is no ToR.
    pub fn rnic(
        &mut self,
        name: &str,
        address: IpAddr,
        host: &str,
        tor: &str,
    ) -> Result<RnicId, TopologyError> {
        let above = match self.names.get(tor) {
            Some(Node::Switch(id)) if self.topology.switch(*id).tier == Tier::Tor => *id,
            Some(_) => {
                return Err(TopologyError::RnicWithoutTor { rnic: name.to_owned(), above: tor.to_owned() });
            }
            None => return Err(TopologyError::UnknownName { name: tor.to_owned() }),
        };
        let id = RnicId(number(self.topology.rnics.len())?);
        let host_id = HostId(number(self.topology.hosts.len())?);
        self.name(name, Node::Rnic(id))?;
        self.address(address, name, Node::Rnic(id))?;
        let host_id = *self.hosts.entry(host.to_owned()).or_insert_with(|| {
            self.topology.hosts.push(Host { name: host.to_owned(), rnics: Vec::new() });
            host_id
        });
        self.topology.hosts[host_id.0 as usize].rnics.push(id);
        self.topology.rnics.push(Rnic { name: name.to_owned(), address, host: host_id, tor: above });
        self.both_ways(Node::Rnic(id), Node::Switch(above))?;
        Ok(id)
    }

    /// Adds a cable between two switches that were added before: a link for each direction.
    ///
    /// # Errors
    /// If an end is unknown or no switch, both are of one tier, or the cable is there already.
    pub fn cable(&mut self, one: &str, other: &str) -> Result<(), TopologyError> {
        let ends = [one, other].map(|name| match self.names.get(name) {
            Some(Node::Switch(id)) => Ok(*id),
            _ => Err(TopologyError::UnknownName { name: name.to_owned() }),
        });
        let [Ok(first), Ok(second)] = ends else {
            return Err(ends
                .into_iter()
                .find_map(Result::err)
                .unwrap_or(TopologyError::TooLarge { most: MOST }));
        };
        let (low, high) = match self.topology.switch(first).tier.cmp(&self.topology.switch(second).tier) {
            std::cmp::Ordering::Less => (first, second),
            std::cmp::Ordering::Greater => (second, first),
            std::cmp::Ordering::Equal => {
                return Err(TopologyError::Circle { from: one.to_owned(), to: other.to_owned() });
            }
        };
        if self.topology.link(Node::Switch(low), Node::Switch(high)).is_some() {
            return Err(TopologyError::DoubleCable { from: one.to_owned(), to: other.to_owned() });
        }
        self.topology.switches[low.0 as usize].above.push(high);
        self.both_ways(Node::Switch(low), Node::Switch(high))
    }

    /// The topology.
    #[must_use]
    pub fn build(self) -> Topology {
        self.topology
    }

    fn name(&mut self, name: &str, node: Node) -> Result<(), TopologyError> {
        if self.names.contains_key(name) {
            return Err(TopologyError::DoubleName { name: name.to_owned() });
        }
        self.names.insert(name.to_owned(), node);
        Ok(())
    }

    fn address(&mut self, address: IpAddr, name: &str, node: Node) -> Result<(), TopologyError> {
        if self.topology.by_address.contains_key(&address) {
            self.names.remove(name);
            self.topology.by_address.retain(|_, owner| *owner != node);
            return Err(TopologyError::DoubleAddress { address, name: name.to_owned() });
        }
        self.topology.by_address.insert(address, node);
        Ok(())
    }

    fn both_ways(&mut self, one: Node, other: Node) -> Result<(), TopologyError> {
        number(self.topology.links.len() + 2)?;
        self.topology.learn_link(one, other);
        self.topology.learn_link(other, one);
        Ok(())
    }
}

impl Topology {
    /// An empty description.
    #[must_use]
    pub fn builder() -> TopologyBuilder {
        TopologyBuilder::default()
    }

    /// All switches.
    #[must_use]
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// All cards.
    #[must_use]
    pub fn rnics(&self) -> &[Rnic] {
        &self.rnics
    }

    /// All hosts.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// All links, by their two ends: from, to.
    #[must_use]
    pub fn links(&self) -> &[(Node, Node)] {
        &self.links
    }

    /// A switch.
    ///
    /// # Panics
    /// If there is none with this number.
    #[must_use]
    pub fn switch(&self, id: SwitchId) -> &Switch {
        &self.switches[id.0 as usize]
    }

    /// A card.
    ///
    /// # Panics
    /// If there is none with this number.
    #[must_use]
    pub fn rnic(&self, id: RnicId) -> &Rnic {
        &self.rnics[id.0 as usize]
    }

    /// The two ends of a link: from, to.
    ///
    /// # Panics
    /// If there is none with this number.
    #[must_use]
    pub fn ends(&self, id: LinkId) -> (Node, Node) {
        self.links[id.0 as usize]
    }

    /// The link from one node to another.
    #[must_use]
    pub fn link(&self, from: Node, to: Node) -> Option<LinkId> {
        self.by_ends.get(&(from, to)).copied()
    }

    /// What has this address.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<Node> {
        self.by_address.get(&address).copied()
    }

    /// The name of a node.
    #[must_use]
    pub fn name(&self, node: Node) -> &str {
        match node {
            Node::Rnic(id) => &self.rnic(id).name,
            Node::Switch(id) => &self.switch(id).name,
        }
    }

    /// The link between two nodes, which is there from now on if it was not.
    pub(crate) fn learn_link(&mut self, from: Node, to: Node) -> LinkId {
        if let Some(id) = self.link(from, to) {
            return id;
        }
        let id = LinkId(u32::try_from(self.links.len()).unwrap_or(u32::MAX));
        self.links.push((from, to));
        self.by_ends.insert((from, to), id);
        if let (Node::Switch(one), Node::Switch(other)) = (from, to) {
            let (low, high) =
                if self.switch(one).tier < self.switch(other).tier { (one, other) } else { (other, one) };
            let above = &mut self.switches[low.0 as usize].above;
            if !above.contains(&high) {
                above.push(high);
            }
        }
        id
    }

    /// A card hangs on another ToR than the description says.
    pub(crate) fn move_rnic(&mut self, rnic: RnicId, tor: SwitchId) {
        self.learn_link(Node::Rnic(rnic), Node::Switch(tor));
        self.learn_link(Node::Switch(tor), Node::Rnic(rnic));
        self.rnics[rnic.0 as usize].tor = tor;
    }
}

fn number(count: usize) -> Result<u32, TopologyError> {
    u32::try_from(count).ok().filter(|count| *count < MOST).ok_or(TopologyError::TooLarge { most: MOST })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn small() -> TopologyBuilder {
        let mut builder = Topology::builder();
        builder.switch("tor-1", Tier::Tor, [address(1), address(2)]).unwrap();
        builder.switch("tor-2", Tier::Tor, [address(3)]).unwrap();
        builder.switch("agg-1", Tier::Aggregation, [address(4)]).unwrap();
        builder.rnic("a0", address(10), "a", "tor-1").unwrap();
        builder.rnic("a1", address(11), "a", "tor-2").unwrap();
        builder.cable("agg-1", "tor-1").unwrap();
        builder.cable("tor-2", "agg-1").unwrap();
        builder
    }

    #[test]
    fn a_description_becomes_a_topology() {
        let topology = small().build();
        assert_eq!((topology.switches().len(), topology.rnics().len(), topology.links().len()), (3, 2, 8));
        assert_eq!(topology.hosts(), [Host { name: "a".into(), rnics: vec![RnicId(0), RnicId(1)] }]);
        assert_eq!(topology.owner(address(2)), Some(Node::Switch(SwitchId(0))));
        assert_eq!(topology.switch(SwitchId(0)).above, [SwitchId(2)], "whichever end is named first");
        for (number, (from, to)) in (0..).zip(topology.links()) {
            assert_eq!(topology.link(*from, *to), Some(LinkId(number)));
            assert!(topology.link(*to, *from).is_some(), "both directions");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_reason() {
        let name = |name: &str| name.to_owned();
        let mut builder = small();
        assert_eq!(builder.switch("a0", Tier::Core, []), Err(TopologyError::DoubleName { name: name("a0") }));
        assert_eq!(
            builder.rnic("b0", address(3), "b", "tor-1"),
            Err(TopologyError::DoubleAddress { address: address(3), name: name("b0") })
        );
        assert_eq!(
            builder.rnic("b0", address(20), "b", "agg-1"),
            Err(TopologyError::RnicWithoutTor { rnic: name("b0"), above: name("agg-1") })
        );
        assert_eq!(
            builder.rnic("b0", address(20), "b", "tor-9"),
            Err(TopologyError::UnknownName { name: name("tor-9") })
        );
        for (one, other) in [("tor-1", "tor-2"), ("agg-1", "agg-1")] {
            let circle = TopologyError::Circle { from: name(one), to: name(other) };
            assert_eq!(builder.cable(one, other), Err(circle));
        }
        assert_eq!(
            builder.cable("tor-1", "agg-1"),
            Err(TopologyError::DoubleCable { from: name("tor-1"), to: name("agg-1") })
        );
        assert_eq!(builder.cable("tor-1", "a0"), Err(TopologyError::UnknownName { name: name("a0") }));
        assert!(builder.rnic("b0", address(20), "b", "tor-1").is_ok(), "a refusal changes nothing");
    }
}
