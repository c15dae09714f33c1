//! The namespaces, links and routes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use crate::namespaces::{LabError, Room, answer_to, enter};
use crate::node::{AGGREGATIONS, CORES, Family, HOSTS, Node, PODS, TORS, host_link, link};

/// The network. It is gone with the process.
#[derive(Debug)]
pub struct Clos {
    /// Which router has this address.
    owners: BTreeMap<IpAddr, Node>,
}

/// What every router is told: to forward, to choose by ports, and to answer every packet that ends there.
const ROUTER: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/fib_multipath_hash_policy", "1"),
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv4/icmp_msgs_per_sec", "1000000"),
    ("net/ipv4/icmp_msgs_burst", "1000000"),
    ("net/ipv4/icmp_errors_use_inbound_ifaddr", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/fib_multipath_hash_policy", "1"),
    ("net/ipv6/icmp/ratelimit", "0"),
];

/// What every host is told. A label that the kernel makes up comes with a hash that routers on this machine see, and take
/// instead of their own.
const HOST: &[(&str, &str)] = &[("net/ipv6/auto_flowlabels", "0")];

/// Where a router keeps the seed of its choice between equal routes.
const SEED: &str = "net/ipv4/fib_multipath_hash_seed";

/// Two routers that are connected: the lower and the upper one, and the number of the link.
struct Trunk {
    lower: Node,
    upper: Node,
    number: u8,
}

impl Clos {
    /// Builds it, with choices at the routers that this seed decides.
    ///
    /// # Errors
    /// The kernel cannot do it, or this process may not: with the reason.
    pub fn build(seed: u32) -> Result<Self, LabError> {
        if !Path::new("/proc/sys").join(SEED).exists() {
            return Err(LabError::Kernel { option: SEED });
        }
        let room = Room::make()?;
        let nodes = || Node::hosts().chain(Node::routers());
        let trunks = trunks();
        for node in nodes() {
            room.namespace(&node.to_string())?;
        }
        // Links are made from inside: the network that this process is in may be another's.
        let mut links: BTreeMap<Node, String> = BTreeMap::new();
        let pairs = Node::hosts().map(|host| (host, tor_of(host)));
        for (one, other) in pairs.chain(trunks.iter().map(|trunk| (trunk.lower, trunk.upper))) {
            // Each end has the name of the node that it leads to.
            let line = links.entry(one).or_default();
            let _ = writeln!(line, "link add {other} type veth peer name {one} netns {other}");
        }
        for (node, lines) in links {
            answer_to(&format!("ip -n {node} -batch -"), &lines)?;
        }
        for node in nodes() {
            answer_to(&format!("ip -n {node} -batch -"), &configuration(node, &trunks))?;
        }
        for (router, number) in Node::routers().zip(1_u32..) {
            let seed = seed.wrapping_mul(0x9e37_79b9).wrapping_add(number.wrapping_mul(0x85eb_ca6b)) | 1;
            let seed = seed.to_string();
            configure(router, ROUTER.iter().copied().chain([(SEED, &seed[..])]))?;
        }
        for host in Node::hosts() {
            configure(host, HOST.iter().copied())?;
        }
        Ok(Self { owners: owners(&trunks) })
    }

    /// Which router has this address.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<Node> {
        self.owners.get(&address).copied()
    }

    /// Gives a node rules of its packet filter, in the words of `nft`, beside those it has.
    ///
    /// # Errors
    /// They are none, or the system refuses.
    pub fn filter(&self, node: Node, rules: &str) -> Result<(), LabError> {
        answer_to(&format!("ip netns exec {node} nft -f -"), rules).map(drop)
    }

    /// Takes all rules of its packet filter from a node.
    ///
    /// # Errors
    /// The system refuses.
    pub fn clear_filter(&self, node: Node) -> Result<(), LabError> {
        answer_to(&format!("ip netns exec {node} nft flush ruleset"), "").map(drop)
    }
}

/// The network as a topology file: switches with their tiers, addresses and cables.
#[must_use]
pub fn wiring() -> String {
    let trunks = trunks();
    let owners = owners(&trunks);
    let mut text = String::new();
    for router in Node::routers() {
        let tier = match router {
            Node::Tor(..) => "tor",
            Node::Aggregation(..) => "aggregation",
            Node::Core(_) => "core",
            Node::Host(..) => continue,
        };
        let addresses = owners.iter().filter(|(_, owner)| **owner == router);
        let addresses: Vec<String> = addresses.map(|(address, _)| format!("\"{address}\"")).collect();
        let above = trunks.iter().filter(|trunk| trunk.lower == router);
        let above: Vec<String> = above.map(|trunk| format!("\"{}\"", trunk.upper)).collect();
        let _ = writeln!(
            text,
            "[[switch]]\nname = \"{router}\"\ntier = \"{tier}\"\naddresses = [{}]\nabove = [{}]\n",
            addresses.join(", "),
            above.join(", ")
        );
    }
    text
}

/// All links between routers.
fn trunks() -> Vec<Trunk> {
    let pods = 0..PODS;
    let up = pods.clone().flat_map(|pod| {
        (0..TORS).flat_map(move |tor| {
            (0..AGGREGATIONS).map(move |number| (Node::Tor(pod, tor), Node::Aggregation(pod, number)))
        })
    });
    let across = pods.flat_map(|pod| {
        (0..AGGREGATIONS).flat_map(move |number| {
            (0..CORES).map(move |core| (Node::Aggregation(pod, number), Node::Core(core)))
        })
    });
    up.chain(across).zip(0..).map(|((lower, upper), number)| Trunk { lower, upper, number }).collect()
}

fn tor_of(host: Node) -> Node {
    match host {
        Node::Host(pod, tor, _) => Node::Tor(pod, tor),
        router => router,
    }
}

/// Addresses and routes of a node, as `ip` reads them.
fn configuration(node: Node, trunks: &[Trunk]) -> String {
    let mut text = String::from("link set lo up\n");
    for family in [Family::V4, Family::V6] {
        let len = if family == Family::V4 { 31 } else { 127 };
        let mut attach = |address: IpAddr, link: Node| {
            let nodad = if family == Family::V6 { " nodad" } else { "" };
            let _ = writeln!(text, "addr add {address}/{len} dev {link}{nodad}");
            if family == Family::V4 {
                let _ = writeln!(text, "link set {link} up");
            }
        };
        match node {
            Node::Host(pod, tor, host) => attach(host_link(family, pod, tor, host)[0], tor_of(node)),
            Node::Tor(pod, tor) => {
                for host in 0..HOSTS {
                    attach(host_link(family, pod, tor, host)[1], Node::Host(pod, tor, host));
                }
            }
            _ => {}
        }
        for trunk in trunks {
            let ends = link(family, trunk.number);
            if trunk.lower == node {
                attach(ends[0], trunk.upper);
            } else if trunk.upper == node {
                attach(ends[1], trunk.lower);
            }
        }
        routes(node, trunks, family, &mut text);
    }
    text
}

/// The routes of a node: down to what is below it, and up by all ways.
fn routes(node: Node, trunks: &[Trunk], family: Family, text: &mut String) {
    let up: Vec<IpAddr> = match node {
        Node::Host(pod, tor, host) => vec![host_link(family, pod, tor, host)[1]],
        router => {
            let above = trunks.iter().filter(|trunk| trunk.lower == router);
            above.map(|trunk| link(family, trunk.number)[1]).collect()
        }
    };
    add_route("default", &up, text);
    let below = trunks.iter().filter(|trunk| trunk.upper == node);
    let mut by_prefix: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for trunk in below {
        let prefix = match (trunk.lower, family) {
            (Node::Tor(pod, tor), Family::V4) => format!("10.{pod}.{tor}.0/24"),
            (Node::Tor(pod, tor), Family::V6) => format!("fd00:0:{pod:x}:{tor:x}::/64"),
            (Node::Aggregation(pod, _), Family::V4) => format!("10.{pod}.0.0/16"),
            (Node::Aggregation(pod, _), Family::V6) => format!("fd00:0:{pod:x}::/48"),
            _ => continue,
        };
        by_prefix.entry(prefix).or_default().push(link(family, trunk.number)[0]);
    }
    for (prefix, ways) in by_prefix {
        add_route(&prefix, &ways, text);
    }
}

fn add_route(prefix: &str, ways: &[IpAddr], text: &mut String) {
    if ways.is_empty() {
        return;
    }
    let ways: Vec<String> = match ways {
        [way] => vec![format!("via {way}")],
        ways => ways.iter().map(|way| format!("nexthop via {way}")).collect(),
    };
    let _ = writeln!(text, "route add {prefix} {}", ways.join(" "));
}

/// Sets options of a node. They are files, which are those of the thread's own namespace.
fn configure<'a>(
    node: Node,
    mut options: impl Iterator<Item = (&'a str, &'a str)> + Send,
) -> Result<(), LabError> {
    enter(&node.to_string(), || {
        options.try_for_each(|(name, value)| {
            let refused = |source| LabError::Refused { what: format!("{name} of {node}"), source };
            std::fs::write(Path::new("/proc/sys").join(name), value).map_err(refused)
        })
    })?
}

fn owners(trunks: &[Trunk]) -> BTreeMap<IpAddr, Node> {
    let mut owners = BTreeMap::new();
    for family in [Family::V4, Family::V6] {
        for trunk in trunks {
            let [lower, upper] = link(family, trunk.number);
            owners.extend([(lower, trunk.lower), (upper, trunk.upper)]);
        }
        for host in Node::hosts() {
            if let Node::Host(pod, tor, number) = host {
                let [own, gateway] = host_link(family, pod, tor, number);
                owners.extend([(own, host), (gateway, tor_of(host))]);
            }
        }
    }
    owners
}
