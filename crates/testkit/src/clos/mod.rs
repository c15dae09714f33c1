//! The Clos network of kernel routers, for tests: what fails ends the test, and what the kernel answers to
//! `ip route get` and what its packet filter counts are the judges of traces.

mod oracle;

use std::net::IpAddr;

pub use ferroce_lab::{AGGREGATIONS, CORES, Family, HOSTS, Node, PODS, TORS, wiring};
pub use oracle::{Crossings, Tuple};

use crate::namespaces;

/// The network. It is gone with the process.
#[derive(Debug)]
pub struct Clos(ferroce_lab::Clos);

impl Clos {
    /// Builds it, with choices at the routers that this seed decides.
    ///
    /// # Panics
    /// The kernel cannot do it: with the reason.
    #[must_use]
    pub fn build(seed: u32) -> Self {
        namespaces::run("ip link set lo up");
        Self(ferroce_lab::Clos::build(seed).unwrap_or_else(|error| panic!("{error}: {error:?}")))
    }

    /// Which router has this address.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<Node> {
        self.0.owner(address)
    }

    /// Gives a node rules of its packet filter, in the words of `nft`, beside those it has.
    ///
    /// # Panics
    /// They are none, or the system refuses.
    pub fn filter(&self, node: Node, rules: &str) {
        self.0.filter(node, rules).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Takes all rules of its packet filter from a node.
    ///
    /// # Panics
    /// The system refuses.
    pub fn clear_filter(&self, node: Node) {
        self.0.clear_filter(node).unwrap_or_else(|error| panic!("{error}"));
    }
}
