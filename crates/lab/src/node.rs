//! The nodes of the network, and their addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Pods, and of each kind how many there are in a pod, or below a ToR.
pub const PODS: u8 = 2;
/// ToRs of a pod.
pub const TORS: u8 = 2;
/// Aggregations of a pod.
pub const AGGREGATIONS: u8 = 2;
/// Cores.
pub const CORES: u8 = 2;
/// Hosts below a ToR.
pub const HOSTS: u8 = 2;

/// A host or a router: also the name of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A host: pod, ToR, number.
    Host(u8, u8, u8),
    /// A top-of-rack switch: pod, number.
    Tor(u8, u8),
    /// An aggregation: pod, number.
    Aggregation(u8, u8),
    /// A core.
    Core(u8),
}

/// Which addresses are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(pod, tor, host) => write!(f, "h{pod}{tor}{host}"),
            Self::Tor(pod, tor) => write!(f, "t{pod}{tor}"),
            Self::Aggregation(pod, number) => write!(f, "a{pod}{number}"),
            Self::Core(number) => write!(f, "c{number}"),
        }
    }
}

impl Node {
    /// All hosts.
    pub fn hosts() -> impl Iterator<Item = Self> {
        let tors = (0..PODS).flat_map(|pod| (0..TORS).map(move |tor| (pod, tor)));
        tors.flat_map(|(pod, tor)| (0..HOSTS).map(move |host| Self::Host(pod, tor, host)))
    }

    /// All routers, the lowest first.
    pub fn routers() -> impl Iterator<Item = Self> {
        let tors = (0..PODS).flat_map(|pod| (0..TORS).map(move |tor| Self::Tor(pod, tor)));
        let aggregations =
            (0..PODS).flat_map(|pod| (0..AGGREGATIONS).map(move |number| Self::Aggregation(pod, number)));
        tors.chain(aggregations).chain((0..CORES).map(Self::Core))
    }

    /// The address of a host.
    ///
    /// # Panics
    /// It is a router: those have an address for each link.
    #[must_use]
    pub fn address(self, family: Family) -> IpAddr {
        let Self::Host(pod, tor, host) = self else { panic!("{self} has several addresses") };
        host_link(family, pod, tor, host)[0]
    }

    /// How many paths there must be from one host to another.
    ///
    /// # Panics
    /// One of them is a router.
    #[must_use]
    pub fn paths_to(self, other: Self) -> usize {
        let (Self::Host(pod, tor, _), Self::Host(other_pod, other_tor, _)) = (self, other) else {
            panic!("paths are counted between hosts, not from {self} to {other}")
        };
        let (aggregations, cores) = (usize::from(AGGREGATIONS), usize::from(CORES));
        match (pod == other_pod, tor == other_tor) {
            (true, true) => 1,
            (true, false) => aggregations,
            (false, _) => aggregations * cores * aggregations,
        }
    }
}

/// The addresses of a host and of its ToR on the link between them.
pub(crate) fn host_link(family: Family, pod: u8, tor: u8, host: u8) -> [IpAddr; 2] {
    [2 * host + 1, 2 * host].map(|last| match family {
        Family::V4 => Ipv4Addr::new(10, pod, tor, last).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, pod.into(), tor.into(), 0, 0, 0, last.into()).into(),
    })
}

/// The addresses of the lower and the upper end of a link between routers.
pub(crate) fn link(family: Family, number: u8) -> [IpAddr; 2] {
    [0_u8, 1].map(|end| match family {
        Family::V4 => Ipv4Addr::new(172, 16, number, end).into(),
        Family::V6 => Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, number.into(), end.into()).into(),
    })
}
