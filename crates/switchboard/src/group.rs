//! Which processes share: those of one user on one interface, or on one address of it.

use std::fmt;
use std::net::IpAddr;

/// What a group shares: the port on all addresses of an interface, or on one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The interface.
    pub interface: String,
    /// One address of it instead of all.
    pub address: Option<IpAddr>,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => write!(f, "interface {}", self.interface),
            Some(address) => write!(f, "{address} on {}", self.interface),
        }
    }
}
