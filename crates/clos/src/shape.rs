//! Pods, ToRs, aggregations and cores, and the links between them: the wiring, and nothing of what is wrong
//! with it.
//!
//! Each RNIC hangs on one ToR, each ToR on all aggregations of its pod. Aggregation `i` of every pod hangs
//! on the cores of plane `i`. So there are `aggregations` ways between ToRs of a pod and `aggregations *
//! cores` ways between pods; from the highest switch downward, no choice is left.

use std::net::{IpAddr, Ipv4Addr};

/// The numbers of a Clos network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Pods.
    pub pods: u32,
    /// ToRs in each pod.
    pub tors: u32,
    /// Aggregations in each pod, and so planes of cores.
    pub aggregations: u32,
    /// Cores in each plane.
    pub cores: u32,
    /// Hosts below each ToR.
    pub hosts: u32,
    /// RNICs in each host.
    pub rnics: u32,
}

/// A card or a switch, by its number among all of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A card.
    Rnic(u32),
    /// A switch above cards.
    Tor(u32),
    /// A switch above ToRs.
    Aggregation(u32),
    /// A switch above aggregations.
    Core(u32),
}

/// A link in one direction, by its number among all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub u32);

/// Where the addresses of each kind of node begin; there is room for 262,144 of each.
const RNICS: u32 = 0x0a00_0000;
const TORS: u32 = 0xac10_0000;
const AGGREGATIONS: u32 = 0xac14_0000;
const CORES: u32 = 0xac18_0000;
const ROOM: u32 = 0x0004_0000;

impl Shape {
    /// 10,240 RNICs below 320 ToRs: 64 ways between pods.
    pub const LARGE: Self = Self { pods: 20, tors: 16, aggregations: 8, cores: 8, hosts: 8, rnics: 4 };

    /// 32 RNICs below 8 ToRs: four ways between pods.
    pub const SMALL: Self = Self { pods: 2, tors: 4, aggregations: 2, cores: 2, hosts: 2, rnics: 2 };

    /// All RNICs.
    #[must_use]
    pub const fn all_rnics(&self) -> u32 {
        self.all_tors() * self.rnics_per_tor()
    }

    /// All hosts.
    #[must_use]
    pub const fn all_hosts(&self) -> u32 {
        self.all_tors() * self.hosts
    }

    /// All ToRs.
    #[must_use]
    pub const fn all_tors(&self) -> u32 {
        self.pods * self.tors
    }

    /// All aggregations.
    #[must_use]
    pub const fn all_aggregations(&self) -> u32 {
        self.pods * self.aggregations
    }

    /// All cores.
    #[must_use]
    pub const fn all_cores(&self) -> u32 {
        self.aggregations * self.cores
    }

    /// RNICs below each ToR.
    #[must_use]
    pub const fn rnics_per_tor(&self) -> u32 {
        self.hosts * self.rnics
    }

    /// The host of an RNIC.
    #[must_use]
    pub const fn host_of(&self, rnic: u32) -> u32 {
        rnic / self.rnics
    }

    /// The ToR of an RNIC.
    #[must_use]
    pub const fn tor_of(&self, rnic: u32) -> u32 {
        rnic / self.rnics_per_tor()
    }

    /// The pod of an RNIC.
    #[must_use]
    pub const fn pod_of(&self, rnic: u32) -> u32 {
        self.tor_of(rnic) / self.tors
    }

    /// How many ways lead from one RNIC to another.
    #[must_use]
    pub const fn ways(&self, from: u32, to: u32) -> u32 {
        if self.tor_of(from) == self.tor_of(to) {
            1
        } else if self.pod_of(from) == self.pod_of(to) {
            self.aggregations
        } else {
            self.aggregations * self.cores
        }
    }

    /// How many links a packet crosses from one RNIC to another.
    #[must_use]
    pub const fn hops(&self, from: u32, to: u32) -> u32 {
        if self.tor_of(from) == self.tor_of(to) {
            2
        } else if self.pod_of(from) == self.pod_of(to) {
            4
        } else {
            6
        }
    }

    /// All links, one direction each.
    #[must_use]
    pub const fn all_links(&self) -> u32 {
        2 * (self.all_rnics() + self.tor_links() + self.core_links())
    }

    /// The link from one node to another; none if there is no such link.
    #[must_use]
    pub fn link(&self, from: Node, to: Node) -> Option<Link> {
        let (upward, lower, upper) = match (from, to) {
            (Node::Rnic(_), Node::Tor(_))
            | (Node::Tor(_), Node::Aggregation(_))
            | (Node::Aggregation(_), Node::Core(_)) => (true, from, to),
            _ => (false, to, from),
        };
        let (rnics, tor_links, core_links) = (self.all_rnics(), self.tor_links(), self.core_links());
        let (base, number, count) = match (lower, upper) {
            (Node::Rnic(rnic), Node::Tor(tor)) if self.tor_of(rnic) == tor => (0, rnic, rnics),
            (Node::Tor(tor), Node::Aggregation(above)) if tor / self.tors == above / self.aggregations => {
                (2 * rnics, tor * self.aggregations + above % self.aggregations, tor_links)
            }
            (Node::Aggregation(below), Node::Core(core))
                if below % self.aggregations == core / self.cores =>
            {
                (2 * (rnics + tor_links), below * self.cores + core % self.cores, core_links)
            }
            _ => return None,
        };
        (number < count).then(|| Link(base + number + if upward { 0 } else { count }))
    }

    /// The nodes at the two ends of a link: from, to.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn ends(&self, link: Link) -> (Node, Node) {
        let (rnics, tor_links, core_links) = (self.all_rnics(), self.tor_links(), self.core_links());
        let mut number = link.0;
        for (count, kind) in [(rnics, 0), (tor_links, 1), (core_links, 2)] {
            if number < 2 * count {
                let (is_up, number) = (number < count, number % count);
                let (lower, upper) = match kind {
                    0 => (Node::Rnic(number), Node::Tor(self.tor_of(number))),
                    1 => self.tor_link(number),
                    _ => self.core_link(number),
                };
                return if is_up { (lower, upper) } else { (upper, lower) };
            }
            number -= 2 * count;
        }
        panic!("{link:?} of {} links", self.all_links());
    }

    /// All links that leave a node.
    #[must_use]
    pub fn links_from(&self, node: Node) -> Vec<Link> {
        let below = |count: u32, first: u32| first..first + count;
        let neighbours: Vec<Node> = match node {
            Node::Rnic(rnic) => vec![Node::Tor(self.tor_of(rnic))],
            Node::Tor(tor) => {
                let rnics = below(self.rnics_per_tor(), tor * self.rnics_per_tor()).map(Node::Rnic);
                let above = below(self.aggregations, tor / self.tors * self.aggregations);
                rnics.chain(above.map(Node::Aggregation)).collect()
            }
            Node::Aggregation(number) => {
                let tors = below(self.tors, number / self.aggregations * self.tors).map(Node::Tor);
                let above = below(self.cores, number % self.aggregations * self.cores);
                tors.chain(above.map(Node::Core)).collect()
            }
            Node::Core(core) => {
                let plane = core / self.cores;
                (0..self.pods).map(|pod| Node::Aggregation(pod * self.aggregations + plane)).collect()
            }
        };
        neighbours.into_iter().filter_map(|neighbour| self.link(node, neighbour)).collect()
    }

    /// The address of a node.
    #[must_use]
    pub fn address(&self, node: Node) -> IpAddr {
        let bits = match node {
            Node::Rnic(number) => RNICS + number,
            Node::Tor(number) => TORS + number,
            Node::Aggregation(number) => AGGREGATIONS + number,
            Node::Core(number) => CORES + number,
        };
        IpAddr::V4(Ipv4Addr::from_bits(bits))
    }

    /// The node with this address.
    #[must_use]
    pub fn node(&self, address: IpAddr) -> Option<Node> {
        let IpAddr::V4(address) = address else { return None };
        let number = |base: u32, count: u32| {
            address.to_bits().checked_sub(base).filter(|number| *number < count.min(ROOM))
        };
        number(RNICS, self.all_rnics())
            .map(Node::Rnic)
            .or_else(|| number(TORS, self.all_tors()).map(Node::Tor))
            .or_else(|| number(AGGREGATIONS, self.all_aggregations()).map(Node::Aggregation))
            .or_else(|| number(CORES, self.all_cores()).map(Node::Core))
    }

    const fn tor_links(&self) -> u32 {
        self.all_tors() * self.aggregations
    }

    const fn core_links(&self) -> u32 {
        self.all_aggregations() * self.cores
    }

    fn tor_link(&self, number: u32) -> (Node, Node) {
        let tor = number / self.aggregations;
        let above = tor / self.tors * self.aggregations + number % self.aggregations;
        (Node::Tor(tor), Node::Aggregation(above))
    }

    fn core_link(&self, number: u32) -> (Node, Node) {
        let below = number / self.cores;
        let core = below % self.aggregations * self.cores + number % self.cores;
        (Node::Aggregation(below), Node::Core(core))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_link_has_two_ends_and_is_found_by_them() {
        for shape in [Shape::SMALL, Shape { pods: 3, tors: 2, aggregations: 4, cores: 3, hosts: 1, rnics: 5 }]
        {
            let mut ends = BTreeSet::new();
            for number in 0..shape.all_links() {
                let (from, to) = shape.ends(Link(number));
                assert_eq!(shape.link(from, to), Some(Link(number)), "{from:?} to {to:?}");
                assert!(ends.insert((from, to)));
                assert!(shape.links_from(from).contains(&Link(number)));
            }
            assert!(ends.iter().all(|(from, to)| ends.contains(&(*to, *from))), "links go both ways");
        }
    }

    #[test]
    fn nodes_that_are_not_neighbours_have_no_link() {
        let shape = Shape::SMALL;
        for (from, to) in [
            (Node::Rnic(0), Node::Tor(1)),
            (Node::Rnic(0), Node::Rnic(1)),
            (Node::Tor(0), Node::Aggregation(2)),
            (Node::Aggregation(0), Node::Core(2)),
            (Node::Tor(0), Node::Core(0)),
            (Node::Rnic(999), Node::Tor(249)),
        ] {
            assert_eq!((shape.link(from, to), shape.link(to, from)), (None, None), "{from:?} and {to:?}");
        }
    }

    #[test]
    fn addresses_lead_back_to_their_nodes() {
        let shape = Shape::LARGE;
        assert_eq!((shape.all_rnics(), shape.all_tors(), shape.ways(0, 10_239)), (10_240, 320, 64));
        for node in [Node::Rnic(10_239), Node::Tor(0), Node::Aggregation(159), Node::Core(63)] {
            assert_eq!(shape.node(shape.address(node)), Some(node));
        }
        assert_eq!(shape.node(shape.address(Node::Core(64))), None);
        assert_eq!(shape.node("::1".parse().unwrap()), None);
    }

    #[test]
    fn links_from_a_node_are_all_of_them() {
        let shape = Shape::SMALL;
        let count = |node| shape.links_from(node).len();
        assert_eq!((count(Node::Rnic(3)), count(Node::Tor(2)), count(Node::Aggregation(1))), (1, 6, 6));
        assert_eq!(count(Node::Core(3)), 2);
    }
}
