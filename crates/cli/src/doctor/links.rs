//! Whether the ports of RDMA devices are active, and if not, why.

use super::facts::Facts;
use super::finding::{Finding, Level};
use super::rdma::{Device, Port};

/// The interface is switched on.
const IFF_UP: u64 = 1;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let ports = facts.devices().iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    // A card with two ports and one cable is as it should be.
    let level = if ports.clone().any(|(_, port)| port.is_active()) { Level::Warning } else { Level::Fault };
    let mut findings: Vec<Finding> =
        ports.map(|(device, port)| of_port(facts, device, port, level)).collect();
    for device in facts.devices().iter().filter(|device| device.ports.is_empty()) {
        findings.push(Finding::unknown("the device shows no port").about(&device.name));
    }
    findings
}

fn of_port(facts: &Facts, device: &Device, port: &Port, level: Level) -> Finding {
    let Some(state) = &port.state else {
        let path = format!("{}/state cannot be read", port.path);
        return Finding::unknown("the state of the port").about(&port.name).seen(path);
    };
    let physical = port.physical.as_deref().unwrap_or("not told");
    let seen = format!("{}: state {state}, phys_state {physical}", port.path);
    if port.is_active() {
        let rate = facts.value(&format!("{}/rate", port.path)).filter(|_| !device.software);
        let rate = rate.map_or_else(String::new, |rate| format!(", {rate}"));
        return Finding::ok(format!("active{rate}")).about(&port.name).seen(seen);
    }
    let finding = Finding::new(level, "the port is down").about(&port.name).seen(seen);
    if !port.ethernet {
        return Finding { what: "the InfiniBand port is not active".to_owned(), ..finding }
            .remedy("it needs a cable and a subnet manager in its network, such as opensm:")
            .command("systemctl status opensm");
    }
    match port.netdev() {
        Some(name) => of_interface(facts, finding, name),
        None => finding.remedy("see which interface it has, and switch that on:").command("rdma link show"),
    }
}

/// Why the interface of a port is down.
fn of_interface(facts: &Facts, finding: Finding, name: &str) -> Finding {
    let at = format!("/sys/class/net/{name}");
    let flags = facts.value(&format!("{at}/flags"));
    let flags = flags.and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let state = facts.value(&format!("{at}/operstate")).unwrap_or_else(|| "not told".to_owned());
    let finding = finding.seen(format!("{at}: operstate {state}"));
    match flags.map(|flags| flags & IFF_UP != 0) {
        Some(false) => {
            Finding { what: format!("the port is down, because {name} is switched off"), ..finding }
                .remedy("switch it on:")
                .command(format!("ip link set {name} up"))
        }
        Some(true) => Finding { what: format!("the port is down: {name} is on and has no link"), ..finding }
            .remedy("look at cable, transceiver and the port of the switch:")
            .command(format!("ethtool {name}")),
        None => finding.remedy("switch its interface on:").command(format!("ip link set {name} up")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;

    const PORT: &str = "/sys/class/infiniband/rxe0/ports/1";

    fn down(flags: &str) -> Planted {
        let planted = Planted::rxe();
        planted
            .file(&format!("{PORT}/state"), "1: DOWN\n")
            .file(&format!("{PORT}/phys_state"), "3: Disabled\n");
        planted.file("/sys/class/net/eth0/flags", flags).file("/sys/class/net/eth0/operstate", "down\n");
        planted
    }

    #[test]
    fn an_active_port_is_fine() {
        let planted = Planted::rxe();
        planted.card("mlx5_0", "ens1", "mlx5_core");
        let said = check(&planted.facts());
        assert_eq!((said[0].level, said[0].what.as_str()), (Level::Ok, "active, 100 Gb/sec (4X EDR)"));
        assert_eq!((said[1].level, said[1].what.as_str()), (Level::Ok, "active"));
    }

    #[test]
    fn a_port_that_is_down_says_why() {
        for (flags, command) in [("0x1002\n", "ip link set eth0 up"), ("0x1003\n", "ethtool eth0")] {
            let said = &check(&down(flags).facts())[0];
            assert_eq!((said.level, said.commands[0].as_str()), (Level::Fault, command));
            assert!(said.seen[0].contains("state 1: DOWN, phys_state 3: Disabled"), "{:?}", said.seen);
        }
    }

    #[test]
    fn a_second_port_without_a_cable_is_a_warning() {
        let planted = down("0x1003\n");
        planted.card("mlx5_0", "ens1", "mlx5_core");
        assert_eq!(check(&planted.facts())[1].level, Level::Warning);
    }

    #[test]
    fn infiniband_needs_a_subnet_manager() {
        let planted = down("0x1003\n");
        planted
            .file(&format!("{PORT}/link_layer"), "InfiniBand\n")
            .file(&format!("{PORT}/state"), "2: INIT\n");
        assert!(check(&planted.facts())[0].remedy.as_deref().unwrap().contains("subnet manager"));
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        let planted = Planted::rxe();
        planted.remove(&format!("{PORT}/state"));
        assert_eq!(check(&planted.facts())[0].level, Level::Unknown);
        planted.remove(PORT);
        assert_eq!(check(&planted.facts())[0].level, Level::Unknown);
    }
}
