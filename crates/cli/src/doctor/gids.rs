//! Whether ports have a RoCEv2 GID that peers can reach: the entries of their tables, which come from IP addresses.

use super::facts::Facts;
use super::finding::{Finding, Level};
use super::rdma::{GidEntry, Port, roce_ports};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let is_good = |port: &Port| port.gids.iter().any(|entry| entry.is_v2() && entry.is_routable());
    // One port that works is what most machines want; the others may be spare.
    let level = if roce_ports(facts).any(is_good) { Level::Warning } else { Level::Fault };
    let mut findings = Vec::new();
    for port in roce_ports(facts) {
        findings.push(of_port(port, level));
        findings.extend(by_default(facts, port));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("no port speaks RoCE, so no table of GIDs matters"));
    }
    findings
}

fn of_port(port: &Port, level: Level) -> Finding {
    let netdev = port.netdev().unwrap_or("DEV");
    let mut finding = judge(port, level, netdev).about(&port.name);
    finding.seen = port.gids.iter().map(|entry| shown(port, entry)).collect();
    if port.gids.is_empty() {
        finding.seen = vec![format!("{}/gids has no entry", port.path)];
    }
    finding
}

fn judge(port: &Port, level: Level, netdev: &str) -> Finding {
    let address = || format!("ip address add 192.0.2.1/24 dev {netdev}");
    let v2: Vec<&GidEntry> = port.gids.iter().filter(|entry| entry.is_v2()).collect();
    let routable: Vec<String> = v2
        .iter()
        .filter(|entry| entry.is_routable())
        .map(|entry| format!("{} ({})", entry.index, address_of(entry)))
        .collect();
    if !routable.is_empty() {
        let word = if routable.len() == 1 { "GID index" } else { "GID indexes" };
        return Finding::ok(format!("RoCEv2 at {word} {}", routable.join(", ")));
    }
    if !v2.is_empty() {
        return Finding::new(level, format!("{netdev} has no IP address: RoCEv2 has a link-local GID only"))
            .remedy("give it one (this is an example):")
            .command(address());
    }
    if port.gids.is_empty() {
        return Finding::new(level, "the table of GIDs is empty")
            .remedy(format!("switch {netdev} on and give it an address (this is an example):"))
            .command(format!("ip link set {netdev} up"))
            .command(address());
    }
    if port.gids.iter().all(|entry| entry.kind.is_none()) {
        return Finding::unknown("which GIDs are RoCEv2: their types cannot be read")
            .command("rdma link show");
    }
    Finding::new(
        level,
        "no GID is RoCEv2: the table has RoCEv1 only, which no router and no card of Ferroce understands",
    )
    .remedy(
        "let the driver speak RoCEv2; a card may need it switched on, or newer firmware. See what it has:",
    )
    .command(format!("grep -r . {}/gid_attrs/types 2>/dev/null", port.path))
}

fn address_of(entry: &GidEntry) -> String {
    entry.gid.to_ipv4_mapped().map_or_else(|| entry.gid.to_string(), |address| address.to_string())
}

fn shown(port: &Port, entry: &GidEntry) -> String {
    let kind = entry.kind.as_deref().unwrap_or("type not told");
    format!("{}/gids/{}: {} {kind}", port.path, entry.index, entry.gid)
}

/// Which version connections by address take, where the kernel has been told.
fn by_default(facts: &Facts, port: &Port) -> Option<Finding> {
    let (device, number) = port.name.rsplit_once('/')?;
    let path = format!("/sys/kernel/config/rdma_cm/{device}/ports/{number}/default_roce_mode");
    let mode = facts.value(&path)?;
    if mode == "RoCE v2" {
        return None;
    }
    Some(
        Finding::warning("connections by address (rdma_cm) take RoCEv1 on this port")
            .about(&port.name)
            .seen(format!("{path}: {mode}"))
            .remedy("let them take RoCEv2:")
            .command(format!("echo 'RoCE v2' > {path}")),
    )
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;

    const PORT: &str = "/sys/class/infiniband/rxe0/ports/1";

    fn only(planted: &Planted) -> Finding {
        let said = check(&planted.facts());
        assert_eq!(said.len(), 1, "{said:?}");
        said[0].clone()
    }

    #[test]
    fn indexes_of_rocev2_are_told() {
        let said = only(&Planted::rxe());
        assert_eq!((said.level, said.what.as_str()), (Level::Ok, "RoCEv2 at GID index 1 (192.0.2.1)"));
        assert_eq!(said.seen.len(), 2);
    }

    #[test]
    fn tables_without_rocev2_are_faults() {
        let planted = Planted::rxe();
        for index in [0, 1] {
            planted.file(&format!("{PORT}/gid_attrs/types/{index}"), "IB/RoCE v1\n");
        }
        let said = only(&planted);
        assert!(said.level == Level::Fault && said.what.contains("RoCEv1 only"), "{said:?}");

        let planted = Planted::rxe();
        planted.remove(&format!("{PORT}/gids/1"));
        let said = only(&planted);
        assert!(said.level == Level::Fault && said.what.contains("eth0 has no IP address"), "{said:?}");
        assert_eq!(said.commands, ["ip address add 192.0.2.1/24 dev eth0"]);
        planted.remove(&format!("{PORT}/gids"));
        let said = only(&planted);
        assert!(said.level == Level::Fault && said.what.contains("is empty"), "{said:?}");
    }

    #[test]
    fn a_spare_port_without_address_is_a_warning() {
        let planted = Planted::rxe();
        planted.remove(&format!("{PORT}/gids/1"));
        planted.card("mlx5_0", "ens1", "mlx5_core");
        let said = check(&planted.facts());
        assert_eq!((said[0].level, said[1].level), (Level::Ok, Level::Warning));
    }

    #[test]
    fn types_that_cannot_be_read_are_not_guessed() {
        let planted = Planted::rxe();
        planted.remove(&format!("{PORT}/gid_attrs/types"));
        assert_eq!(only(&planted).level, Level::Unknown);
    }

    #[test]
    fn connections_by_rocev1_are_a_warning() {
        let planted = Planted::rxe();
        let path = "/sys/kernel/config/rdma_cm/rxe0/ports/1/default_roce_mode";
        planted.file(path, "RoCE v2\n");
        assert_eq!(only(&planted).level, Level::Ok);
        planted.file(path, "IB/RoCE v1\n");
        let said = check(&planted.facts());
        assert_eq!((said[1].level, said[1].about.as_deref()), (Level::Warning, Some("rxe0/1")));
    }
}
