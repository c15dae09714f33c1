//! The RDMA devices of the kernel, as `/sys/class/infiniband` shows them.

use std::net::Ipv6Addr;

use super::facts::Facts;

/// Where they are.
pub(super) const CLASS: &str = "/sys/class/infiniband";

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    /// The driver of the card: `rxe` and `siw` for devices made of software.
    pub(super) driver: Option<String>,
    /// The network stack of the kernel carries its packets.
    pub(super) software: bool,
    /// It speaks iWARP, and has nothing to do with RoCE.
    pub(super) iwarp: bool,
    pub(super) ports: Vec<Port>,
}

/// A port of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    /// The device and the number: `mlx5_0/1`.
    pub(super) name: String,
    /// Its folder.
    pub(super) path: String,
    /// As `4: ACTIVE`.
    pub(super) state: Option<String>,
    /// As `5: LinkUp`.
    pub(super) physical: Option<String>,
    /// Ethernet, and so RoCE; else InfiniBand.
    pub(super) ethernet: bool,
    /// The entries of its table that are not empty.
    pub(super) gids: Vec<GidEntry>,
    netdev: Option<String>,
}

/// An entry of a table of GIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GidEntry {
    pub(super) index: u32,
    pub(super) gid: Ipv6Addr,
    /// `RoCE v2`, `IB/RoCE v1`; nothing if it cannot be read.
    pub(super) kind: Option<String>,
}

impl Port {
    /// The interface that carries its packets.
    pub(super) fn netdev(&self) -> Option<&str> {
        self.netdev.as_deref()
    }

    pub(super) fn is_active(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.contains("ACTIVE"))
    }
}

impl GidEntry {
    pub(super) fn is_v2(&self) -> bool {
        self.kind.as_deref() == Some("RoCE v2")
    }

    /// Made from an IP address that reaches beyond the link.
    pub(super) fn is_routable(&self) -> bool {
        !self.gid.is_unicast_link_local()
    }
}

/// All of them, by name.
pub(super) fn devices(facts: &Facts) -> Vec<Device> {
    facts.names(CLASS).into_iter().map(|name| device(facts, name)).collect()
}

/// All ports of all devices that speak RoCE.
pub(super) fn roce_ports(facts: &Facts) -> impl Iterator<Item = &Port> {
    let devices = facts.devices().iter().filter(|device| !device.iwarp);
    devices.flat_map(|device| &device.ports).filter(|port| port.ethernet)
}

fn device(facts: &Facts, name: String) -> Device {
    let at = format!("{CLASS}/{name}");
    let iwarp = facts.value(&format!("{at}/node_type")).is_some_and(|kind| kind.contains("RNIC"));
    // Only devices made of software say whose they are.
    let parent = facts.value(&format!("{at}/parent"));
    let is_virtual = facts.link(&at).is_some_and(|link| link.contains("/virtual/"));
    let software = parent.is_some() || is_virtual;
    let driver = match (software, iwarp) {
        (true, true) => Some("siw".to_owned()),
        (true, false) => Some("rxe".to_owned()),
        _ => facts.link_name(&format!("{at}/device/driver")),
    };
    let own = facts.names(&format!("{at}/device/net"));
    let numbers = facts.names(&format!("{at}/ports"));
    let netdev = parent.or_else(|| match own.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    });
    let ports = numbers.iter().map(|number| port(facts, &name, number, netdev.as_ref())).collect();
    Device { name, driver, software, iwarp, ports }
}

fn port(facts: &Facts, device: &str, number: &str, netdev: Option<&String>) -> Port {
    let path = format!("{CLASS}/{device}/ports/{number}");
    let gids = facts.names(&format!("{path}/gids"));
    let gids: Vec<GidEntry> = gids.iter().filter_map(|index| entry(facts, &path, index)).collect();
    // The interface of an entry; one that is in another namespace is not told.
    let of_entry =
        gids.iter().find_map(|entry| facts.value(&format!("{path}/gid_attrs/ndevs/{}", entry.index)));
    Port {
        name: format!("{device}/{number}"),
        state: facts.value(&format!("{path}/state")),
        physical: facts.value(&format!("{path}/phys_state")),
        ethernet: facts.value(&format!("{path}/link_layer")).is_none_or(|layer| layer == "Ethernet"),
        gids,
        netdev: of_entry.or_else(|| netdev.cloned()),
        path,
    }
}

fn entry(facts: &Facts, port: &str, index: &str) -> Option<GidEntry> {
    let gid: Ipv6Addr = facts.value(&format!("{port}/gids/{index}"))?.parse().ok()?;
    if gid.is_unspecified() || gid == EMPTY {
        return None;
    }
    let kind = facts.value(&format!("{port}/gid_attrs/types/{index}"));
    Some(GidEntry { index: index.parse().ok()?, gid, kind })
}

/// What some kernels show for an entry that is not in use: a prefix alone.
const EMPTY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;

    #[test]
    fn a_card_and_soft_roce_are_read() {
        let planted = Planted::rxe();
        planted.card("mlx5_0", "ens1", "mlx5_core");
        let facts = planted.facts();
        let [card, rxe] = facts.devices() else { panic!("{:?}", facts.devices()) };
        assert_eq!((card.name.as_str(), card.driver.as_deref()), ("mlx5_0", Some("mlx5_core")));
        assert!(!card.software && !card.iwarp);
        assert_eq!((card.ports[0].name.as_str(), card.ports[0].netdev()), ("mlx5_0/1", Some("ens1")));
        assert_eq!((rxe.driver.as_deref(), rxe.software), (Some("rxe"), true));
        let port = &rxe.ports[0];
        assert!(port.is_active() && port.ethernet);
        assert_eq!(port.netdev(), Some("eth0"));
        let seen: Vec<(u32, bool, bool)> =
            port.gids.iter().map(|entry| (entry.index, entry.is_v2(), entry.is_routable())).collect();
        assert_eq!(seen, [(0, true, false), (1, true, true)], "the empty one is left out");
    }

    #[test]
    fn iwarp_and_infiniband_are_no_roce() {
        let planted = Planted::rxe();
        planted.file("/sys/class/infiniband/rxe0/node_type", "4: RNIC\n");
        assert_eq!(roce_ports(&planted.facts()).count(), 0);
        planted.file("/sys/class/infiniband/rxe0/node_type", "1: CA\n");
        assert_eq!(roce_ports(&planted.facts()).count(), 1);
        planted.file("/sys/class/infiniband/rxe0/ports/1/link_layer", "InfiniBand\n");
        assert_eq!(roce_ports(&planted.facts()).count(), 0);
    }
}
