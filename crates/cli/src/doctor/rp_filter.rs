//! Several interfaces in one subnet: whether the kernel drops what arrives at the other one than it would answer from,
//! and whether interfaces answer for each other's addresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::facts::{Facts, Uses, joined};
use super::finding::{Finding, Level};

/// Where the settings are.
const CONF: &str = "/proc/sys/net/ipv4/conf";

/// Only what comes from where the answer would go is taken.
const STRICT: u64 = 1;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let path = "/proc/net/route";
    let shared: Vec<(String, Vec<String>)> = match facts.text(path) {
        Ok(text) => shared_subnets(&text),
        Err(why) => {
            return vec![
                Finding::unknown("which interfaces are in one subnet").seen(format!("{path}: {why}")),
            ];
        }
    };
    if shared.is_empty() {
        return vec![Finding::ok(
            "no two interfaces are in one IPv4 subnet, so no packet comes to the wrong one",
        )];
    }
    shared.iter().flat_map(|(subnet, interfaces)| of_subnet(facts, subnet, interfaces)).collect()
}

fn of_subnet(facts: &Facts, subnet: &str, interfaces: &[String]) -> Vec<Finding> {
    let names = joined(interfaces);
    // The stronger of both settings holds.
    let setting = |option: &str, of: &str| facts.number(&format!("{CONF}/{of}/{option}"));
    let effective = |option: &str, interface: &str| {
        setting(option, "all").zip(setting(option, interface)).map(|(all, own)| all.max(own))
    };
    let strict: Vec<&String> =
        interfaces.iter().filter(|name| effective("rp_filter", name) == Some(STRICT)).collect();
    let unread: Vec<&String> =
        interfaces.iter().filter(|name| effective("rp_filter", name).is_none()).collect();
    let mut findings = Vec::new();
    if !strict.is_empty() {
        let text = format!(
            "{names} are in one subnet, and rp_filter is strict: packets that come to the other interface than the \
             route back are dropped"
        );
        let all = setting("rp_filter", "all").unwrap_or_default();
        let mut finding = Finding::new(harm(facts, interfaces), text).about(joined(&strict));
        for name in &strict {
            let own = setting("rp_filter", name).unwrap_or_default();
            finding =
                finding.seen(format!("{CONF}: all/rp_filter {all}, {name}/rp_filter {own}; subnet {subnet}"));
        }
        finding = finding.remedy("make it loose (2 wins over 1), and keep that in /etc/sysctl.d:");
        for name in &strict {
            finding = finding.command(format!("sysctl -w net.ipv4.conf.{}.rp_filter=2", key(name)));
        }
        findings.push(finding);
    } else if unread.is_empty() {
        findings.push(
            Finding::ok(format!("{names} are in one subnet, and rp_filter is not strict")).seen(subnet),
        );
    }
    for name in unread {
        findings.push(
            Finding::unknown(format!("rp_filter of {name}")).about(name).seen(format!("{CONF}/{name}")),
        );
    }
    let talkative: Vec<&String> =
        interfaces.iter().filter(|name| effective("arp_ignore", name) == Some(0)).collect();
    if !talkative.is_empty() && harm(facts, interfaces) > Level::Note {
        let text = format!("{names} are in one subnet, and answer ARP for each other's addresses");
        let finding = Finding::warning(text).about(joined(&talkative));
        findings.push(
            finding
                .seen(format!("{CONF}: arp_ignore 0; subnet {subnet}"))
                .remedy("let each interface answer for itself, or put them into subnets of their own:")
                .command("sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"),
        );
    }
    findings
}

/// How bad it is if these interfaces drop packets: cards carry RDMA past the kernel, but not ARP and connections.
fn harm(facts: &Facts, interfaces: &[String]) -> Level {
    let uses = |wanted| interfaces.iter().any(|name| facts.uses(name) == wanted);
    match () {
        () if uses(Uses::Software) => Level::Fault,
        () if uses(Uses::Hardware) => Level::Warning,
        () => Level::Note,
    }
}

/// The name of an interface as a part of a key of sysctl.
fn key(interface: &str) -> String {
    interface.replace('.', "/")
}

/// Subnets that more than one interface is in, from the kernel's table of routes.
fn shared_subnets(table: &str) -> Vec<(String, Vec<String>)> {
    let mut subnets: BTreeMap<(Ipv4Addr, u32), Vec<String>> = BTreeMap::new();
    for line in table.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [interface, destination, gateway, flags, _, _, _, mask, ..] = words.as_slice() else { continue };
        let number = |word: &str| u32::from_str_radix(word, 16).ok();
        let (Some(destination), Some(flags), Some(mask)) = (number(destination), number(flags), number(mask))
        else {
            continue;
        };
        // A route that is up, to no gateway, to more than one address.
        if number(gateway) == Some(0) && flags & 1 == 1 && mask != 0 && mask != u32::MAX {
            let subnet = (Ipv4Addr::from(destination.to_ne_bytes()), mask.count_ones());
            let interfaces = subnets.entry(subnet).or_default();
            if !interfaces.iter().any(|name| name == interface) {
                interfaces.push((*interface).to_owned());
            }
        }
    }
    let shared = subnets.into_iter().filter(|(_, interfaces)| interfaces.len() > 1);
    shared.map(|((address, bits), interfaces)| (format!("{address}/{bits}"), interfaces)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::planted::{Planted, route};
    use super::*;

    fn two_in_a_subnet(all: u32, first: u32, second: u32) -> Planted {
        let planted = Planted::rxe();
        planted.file("/proc/net/route", &[route(""), route("eth0"), route("eth1")].concat());
        for (name, rp_filter) in [("all", all), ("eth0", first), ("eth1", second)] {
            planted.file(&format!("{CONF}/{name}/rp_filter"), &format!("{rp_filter}\n"));
            planted.file(&format!("{CONF}/{name}/arp_ignore"), "1\n");
        }
        planted
    }

    #[test]
    fn one_interface_for_each_subnet_is_fine() {
        let planted = Planted::rxe();
        assert_eq!(check(&planted.facts())[0].level, Level::Ok);
        planted.remove("/proc/net/route");
        assert_eq!(check(&planted.facts())[0].level, Level::Unknown);
    }

    #[test]
    fn strict_is_what_the_stronger_setting_says() {
        for (all, first, second, strict) in
            [(0, 0, 0, ""), (2, 1, 1, ""), (1, 2, 2, ""), (1, 0, 2, "eth0"), (0, 1, 1, "eth0, eth1")]
        {
            let said = &check(&two_in_a_subnet(all, first, second).facts())[0];
            let expected = if strict.is_empty() { Level::Ok } else { Level::Fault };
            assert_eq!(said.level, expected, "{all} {first} {second}");
            assert_eq!(said.about.as_deref().unwrap_or_default(), strict, "{all} {first} {second}");
        }
        let said = &check(&two_in_a_subnet(0, 1, 0).facts())[0];
        assert_eq!(said.commands, ["sysctl -w net.ipv4.conf.eth0.rp_filter=2"]);
    }

    #[test]
    fn it_matters_as_much_as_the_interfaces_do() {
        let planted = two_in_a_subnet(1, 0, 0);
        planted.remove("/sys/class/infiniband/rxe0");
        assert_eq!(check(&planted.facts())[0].level, Level::Note);
        planted.card("mlx5_0", "eth1", "mlx5_core");
        assert_eq!(check(&planted.facts())[0].level, Level::Warning);
    }

    #[test]
    fn interfaces_that_answer_for_each_other_are_a_warning() {
        let planted = two_in_a_subnet(0, 0, 0);
        assert_eq!(check(&planted.facts()).len(), 1);
        planted
            .file(&format!("{CONF}/all/arp_ignore"), "0\n")
            .file(&format!("{CONF}/eth1/arp_ignore"), "0\n");
        let said = &check(&planted.facts())[1];
        assert_eq!((said.level, said.about.as_deref()), (Level::Warning, Some("eth1")));
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_not_known() {
        let planted = two_in_a_subnet(0, 0, 0);
        planted.remove(&format!("{CONF}/eth1/rp_filter"));
        let said = check(&planted.facts());
        assert_eq!((said.len(), said[0].level, said[0].about.as_deref()), (1, Level::Unknown, Some("eth1")));
    }
}
