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

/// What the name of every leader begins with; the user follows.
const PREFIX: &str = "ferroce/switch/";

impl Group {
    /// The abstract name that the group's leader listens at. It carries the user, so that one
    /// user's processes never meet another's by accident.
    pub(super) fn leader_name(&self, uid: u32) -> String {
        let Self { interface, address } = self;
        match address {
            None => format!("{PREFIX}{uid}/{interface}"),
            Some(address) => format!("{PREFIX}{uid}/{interface}/{address}"),
        }
    }

    /// The user and the group of a leader's name.
    pub(super) fn of_leader(name: &str) -> Option<(u32, Self)> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '/');
        let uid = parts.next()?.parse().ok()?;
        // Others may have made the name up.
        let interface = parts.next().filter(|name| is_interface(name))?.to_owned();
        let address = match parts.next() {
            None => None,
            Some(text) => Some(text.parse().ok()?),
        };
        Some((uid, Self { interface, address }))
    }
}

/// Whether an interface can have this name.
fn is_interface(name: &str) -> bool {
    !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.contains(char::is_control)
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => write!(f, "interface {}", self.interface),
            Some(address) => write!(f, "{address} on {}", self.interface),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_it_was_written() {
        for address in [None, Some("127.0.0.2"), Some("fe80::1")] {
            let address = address.map(|text| text.parse().unwrap());
            let group = Group { interface: "lo".to_owned(), address };
            assert_eq!(Group::of_leader(&group.leader_name(65_534)), Some((65_534, group)));
        }
        for other in [
            "ferroce/switch/",
            "ferroce/switch/x/lo",
            "ferroce/switch/1",
            "ferroce/switch/1/",
            "ferroce/switch/1/lo/x",
            "ferroce/switch/1/\x1b[2J",
            "ferroce/switch/1/longer-than-any-interface",
        ] {
            assert_eq!(Group::of_leader(other), None, "{other}");
        }
    }
}
