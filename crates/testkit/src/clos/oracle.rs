//! What the kernel itself says of the way that packets take.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::Value;

use super::{Clos, Family, Node};
use crate::namespaces::answer_to;

/// Two hosts and a source port: what a router chooses by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// The host that sends.
    pub from: Node,
    /// The host that it sends to.
    pub to: Node,
    /// The UDP source port.
    pub port: u16,
}

/// How many packets of each tuple each router has seen come in from each neighbour.
pub type Crossings = BTreeMap<(Tuple, Node, Node), u64>;

/// The UDP port of RoCEv2.
const PORT: u16 = 4791;

/// More hops than any path has.
const MOST_HOPS: usize = 8;

impl Clos {
    /// The way that the kernel of each router says packets of each tuple take: all routers, in order.
    ///
    /// # Panics
    /// A router has no route, or the way does not end.
    #[must_use]
    pub fn paths(&self, tuples: &[Tuple], family: Family) -> Vec<Vec<Node>> {
        let mut paths: Vec<Vec<Node>> = vec![Vec::new(); tuples.len()];
        // Where each tuple is, and from where it came there.
        let mut at: Vec<(Node, Node)> = tuples.iter().map(|tuple| (tor(tuple.from), tuple.from)).collect();
        for _ in 0..MOST_HOPS {
            let mut asked: BTreeMap<Node, Vec<usize>> = BTreeMap::new();
            for (index, tuple) in tuples.iter().enumerate() {
                if at[index].0 != tuple.to {
                    paths[index].push(at[index].0);
                    asked.entry(at[index].0).or_default().push(index);
                }
            }
            if asked.is_empty() {
                return paths;
            }
            for (router, indices) in asked {
                let questions = indices.iter().map(|&index| (tuples[index], at[index].1));
                for (&index, next) in indices.iter().zip(ask(router, questions, family)) {
                    at[index] = (next, router);
                }
            }
        }
        panic!("a way has no end: {paths:?}")
    }

    /// Has every router count packets of RoCEv2 by tuple and by the link that they come in on.
    pub fn count(&self) {
        for router in Node::routers() {
            self.filter(
                router,
                "table inet count {\n\
                 set v4 { typeof ip saddr . ip daddr . udp sport . iifname; flags dynamic; size 65535; counter; }\n\
                 set v6 { typeof ip6 saddr . ip6 daddr . udp sport . iifname; flags dynamic; size 65535; counter; }\n\
                 chain c { type filter hook prerouting priority -300;\n\
                 udp dport 4791 add @v4 { ip saddr . ip daddr . udp sport . iifname }\n\
                 udp dport 4791 add @v6 { ip6 saddr . ip6 daddr . udp sport . iifname }\n\
                 }\n}\n",
            );
        }
    }

    /// What the routers have counted since [`count`](Self::count) was called.
    ///
    /// # Panics
    /// They were not told to count, or count something that is none of this network.
    #[must_use]
    pub fn counted(&self, family: Family) -> Crossings {
        let set = if family == Family::V4 { "v4" } else { "v6" };
        let nodes: BTreeMap<String, Node> =
            Node::hosts().chain(Node::routers()).map(|node| (node.to_string(), node)).collect();
        let mut crossings = Crossings::new();
        for router in Node::routers() {
            let text = answer_to(&format!("ip netns exec {router} nft -j list set inet count {set}"), "");
            for element in elements(&text) {
                let (tuple, from) = self.element(&element, &nodes);
                let packets = element["counter"]["packets"].as_u64().unwrap_or(0);
                crossings.insert((tuple, router, from), packets);
            }
        }
        crossings
    }

    /// The tuple and the neighbour that an element of a set names.
    fn element(&self, element: &Value, nodes: &BTreeMap<String, Node>) -> (Tuple, Node) {
        let parts = &element["val"]["concat"];
        let node = |at: usize| {
            let address = parts[at].as_str().and_then(|address| address.parse::<IpAddr>().ok());
            address.and_then(|address| self.owner(address)).unwrap_or_else(|| panic!("no node: {element}"))
        };
        let port = parts[2].as_u64().and_then(|port| u16::try_from(port).ok());
        let from = parts[3].as_str().and_then(|name| nodes.get(name)).copied();
        match (port, from) {
            (Some(port), Some(from)) => (Tuple { from: node(0), to: node(1), port }, from),
            _ => panic!("not an element of ours: {element}"),
        }
    }

    /// The routers that packets of a tuple have crossed, as the counters say; without an order.
    #[must_use]
    pub fn crossed(crossings: &Crossings, tuple: Tuple) -> BTreeSet<Node> {
        let of_it = crossings.iter().filter(|((counted, ..), packets)| *counted == tuple && **packets > 0);
        of_it.map(|((_, router, _), _)| *router).collect()
    }
}

fn tor(host: Node) -> Node {
    match host {
        Node::Host(pod, tor, _) => Node::Tor(pod, tor),
        router => router,
    }
}

/// The node that a router gives each of these to.
fn ask(router: Node, questions: impl Iterator<Item = (Tuple, Node)>, family: Family) -> Vec<Node> {
    let mut lines = String::new();
    for (Tuple { from, to, port }, came_from) in questions {
        let (source, target) = (from.address(family), to.address(family));
        let _ = writeln!(
            lines,
            "route get {target} from {source} iif {came_from} ipproto udp sport {port} dport {PORT}"
        );
    }
    let text = answer_to(&format!("ip -n {router} -batch -"), &lines);
    let names: BTreeMap<String, Node> =
        Node::hosts().chain(Node::routers()).map(|node| (node.to_string(), node)).collect();
    text.lines()
        .filter_map(|line| line.split_once(" dev ").map(|(_, rest)| rest))
        .map(|rest| {
            let name = rest.split_whitespace().next().unwrap_or_default();
            *names.get(name).unwrap_or_else(|| panic!("{router} sends it to {name:?}"))
        })
        .collect()
}

/// The elements of the set that `nft -j` listed.
fn elements(text: &str) -> Vec<Value> {
    let listed: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("nft said {text}: {error}"));
    let entries = listed["nftables"].as_array().into_iter().flatten();
    let sets = entries.filter_map(|entry| entry["set"]["elem"].as_array());
    sets.flatten().map(|element| element["elem"].clone()).collect()
}
