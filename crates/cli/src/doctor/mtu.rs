//! What the MTU of interfaces leaves for RDMA: the path MTU of each port, and MTUs that do not fit together.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ferroce_wire::PathMtu;

use super::facts::{Facts, SMALLEST_MTU, joined};
use super::finding::{Finding, Level};
use super::rdma::{Port, roce_ports};

/// The MTU of every Ethernet, if nothing was changed.
const USUAL: u32 = 1500;

/// What carries the largest path MTU, and a little more, as switches are set.
const JUMBO: u32 = 9000;

/// A port, its interface, and the MTU of that.
struct Seen<'a> {
    port: &'a Port,
    netdev: &'a str,
    mtu: u32,
}

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut all = Vec::new();
    for port in roce_ports(facts) {
        let Some(netdev) = port.netdev() else {
            findings.push(Finding::unknown("the interface of the port is not told").about(&port.name));
            continue;
        };
        match mtu_of(facts, netdev) {
            Some(mtu) => all.push(Seen { port, netdev, mtu }),
            None => {
                let path = format!("/sys/class/net/{netdev}/mtu cannot be read");
                findings.push(Finding::unknown(format!("the MTU of {netdev}")).about(&port.name).seen(path));
            }
        }
    }
    for seen in &all {
        findings.push(of_port(seen));
        findings.extend(of_lower(facts, seen));
    }
    findings.extend(unlike(&all));
    if findings.is_empty() {
        findings.push(Finding::ok("no port speaks RoCE, so the MTU of Ethernet does not matter"));
    }
    findings
}

fn mtu_of(facts: &Facts, netdev: &str) -> Option<u32> {
    facts.value(&format!("/sys/class/net/{netdev}/mtu"))?.parse().ok()
}

fn of_port(seen: &Seen<'_>) -> Finding {
    let Seen { port, netdev, mtu } = seen;
    let path_mtu = PathMtu::fitting(usize::try_from(*mtu).unwrap_or(usize::MAX));
    let fact = format!("/sys/class/net/{netdev}/mtu: {mtu}");
    let raise = |finding: Finding, to: u32| {
        finding
            .remedy("raise it here, on all switches between and on all peers; then try a long packet to one of them:")
            .command(format!("ip link set {netdev} mtu {to}"))
            .command(format!("ping -M do -c 3 -s {} PEER", to - 28))
    };
    let finding = match path_mtu {
        None => raise(
            Finding::fault(format!("{netdev} carries {mtu} bytes, and RoCE needs {SMALLEST_MTU} at least")),
            USUAL,
        ),
        Some(path_mtu) if *mtu < USUAL => {
            let text = format!(
                "{netdev} carries {mtu} bytes, less than Ethernet's {USUAL}: the path MTU is {path_mtu}"
            );
            raise(Finding::warning(text), USUAL)
        }
        Some(PathMtu::B4096) => Finding::ok(format!("{netdev} carries {mtu} bytes: the path MTU is 4096")),
        Some(path_mtu) => {
            let text = format!("{netdev} carries {mtu} bytes: the path MTU is {path_mtu}, and could be 4096");
            raise(Finding::note(text), JUMBO)
        }
    };
    finding.about(&port.name).seen(fact)
}

/// Interfaces that stand on another one, such as a VLAN, may be made larger than what carries them.
fn of_lower(facts: &Facts, seen: &Seen<'_>) -> Vec<Finding> {
    let at = format!("/sys/class/net/{}", seen.netdev);
    let lower =
        facts.names(&at).into_iter().filter_map(|name| name.strip_prefix("lower_").map(str::to_owned));
    let smaller =
        lower.filter_map(|name| Some((mtu_of(facts, &name)?, name))).filter(|(mtu, _)| *mtu < seen.mtu);
    smaller
        .map(|(mtu, name)| {
            let text = format!(
                "{} carries {} bytes, and {name} below it only {mtu}: longer packets are lost",
                seen.netdev, seen.mtu
            );
            Finding::fault(text)
                .about(&seen.port.name)
                .seen(format!("{at}/lower_{name}/mtu: {mtu}"))
                .remedy("make them alike:")
                .command(format!("ip link set {name} mtu {}", seen.mtu))
        })
        .collect()
}

/// Ports in one subnet whose MTUs differ: peers of the one are peers of the other.
fn unlike(all: &[Seen<'_>]) -> Vec<Finding> {
    let mut subnets: BTreeMap<[u8; 3], Vec<&Seen<'_>>> = BTreeMap::new();
    for seen in all {
        let v4 = seen.port.gids.iter().filter_map(|entry| entry.gid.to_ipv4_mapped());
        // A table of GIDs tells no length of the prefix: those that differ in the last byte alone are neighbours.
        for [a, b, c, _] in v4.map(|address| address.octets()) {
            let ports = subnets.entry([a, b, c]).or_default();
            if !ports.iter().any(|other| other.port.name == seen.port.name) {
                ports.push(seen);
            }
        }
    }
    let differ = |ports: &[&Seen<'_>]| ports.iter().any(|seen| seen.mtu != ports[0].mtu);
    let unlike = subnets.into_iter().filter(|(_, ports)| differ(ports));
    unlike
        .map(|([a, b, c], ports)| {
            let most = ports.iter().map(|seen| seen.mtu).max().unwrap_or(JUMBO);
            let names = joined(ports.iter().map(|seen| seen.netdev));
            let subnet = Ipv4Addr::new(a, b, c, 0);
            let mut finding =
                Finding::new(Level::Warning, format!("{names} are beside each other, and their MTUs differ"))
                    .about(joined(ports.iter().map(|seen| &seen.port.name)))
                    .seen(format!("addresses in {subnet}/24"))
                    .remedy("make them alike, and like their peers:");
            for seen in &ports {
                finding = finding.seen(format!("/sys/class/net/{}/mtu: {}", seen.netdev, seen.mtu));
                if seen.mtu < most {
                    finding = finding.command(format!("ip link set {} mtu {most}", seen.netdev));
                }
            }
            finding
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;

    fn first(planted: &Planted) -> Finding {
        check(&planted.facts())[0].clone()
    }

    #[test]
    fn the_mtu_decides_about_the_path_mtu() {
        let planted = Planted::rxe();
        for (mtu, level, words) in [
            (9000, Level::Ok, "path MTU is 4096"),
            (4192, Level::Ok, "path MTU is 4096"),
            (4191, Level::Note, "path MTU is 2048, and could be 4096"),
            (1500, Level::Note, "path MTU is 1024, and could be 4096"),
            (1400, Level::Warning, "less than Ethernet's 1500: the path MTU is 1024"),
            (352, Level::Warning, "the path MTU is 256"),
            (351, Level::Fault, "RoCE needs 352"),
        ] {
            planted.file("/sys/class/net/eth0/mtu", &format!("{mtu}\n"));
            let said = first(&planted);
            assert!(said.level == level && said.what.contains(words), "{mtu}: {said:?}");
        }
        planted.remove("/sys/class/net/eth0/mtu");
        assert_eq!(first(&planted).level, Level::Unknown);
    }

    #[test]
    fn an_interface_larger_than_the_one_below_is_a_fault() {
        let planted = Planted::rxe();
        planted.file("/sys/class/net/eth0/lower_ens1/mtu", "x").file("/sys/class/net/ens1/mtu", "1500\n");
        let said = check(&planted.facts());
        assert_eq!((said[1].level, &said[1].commands[0][..]), (Level::Fault, "ip link set ens1 mtu 9000"));
        planted.file("/sys/class/net/ens1/mtu", "9000\n");
        assert_eq!(check(&planted.facts()).len(), 1);
    }

    #[test]
    fn neighbours_with_other_mtus_are_a_warning() {
        let planted = Planted::rxe();
        planted.card("mlx5_0", "ens1", "mlx5_core");
        assert_eq!(check(&planted.facts()).len(), 2);
        planted.file("/sys/class/net/ens1/mtu", "1500\n");
        let said = check(&planted.facts()).pop().unwrap();
        assert_eq!((said.level, said.about.as_deref()), (Level::Warning, Some("mlx5_0/1, rxe0/1")));
        assert_eq!(said.commands, ["ip link set ens1 mtu 9000"]);
    }
}
