//! Ferroce's own card: whether it can be opened here, and how many descriptors it may have.

use ferroce_device::discovery::DeviceInfo;
use ferroce_device::switchboard::SLOTS;

use super::facts::Facts;
use super::finding::Finding;

/// Whether the interfaces that are to be cards can be.
pub(super) fn card(facts: &Facts) -> Vec<Finding> {
    if let Err(why) = facts.interfaces() {
        return vec![Finding::unknown("the interfaces of this machine").seen(why)];
    }
    let setting = facts.live.variable("FERROCE_NETDEV").filter(|text| !text.is_empty());
    match facts.opened() {
        Ok(opened) => opened.iter().map(opened_card).collect(),
        // The loopback interface of a new network namespace is down and has no address.
        Err(why) if setting.is_none() => vec![
            Finding::fault(
                "Ferroce's own card needs the loopback interface, which is down or has no address",
            )
            .about("lo")
            .seen(why)
            .remedy("switch it on:")
            .command("ip link set lo up"),
        ],
        Err(why) => vec![
            Finding::fault("FERROCE_NETDEV names what cannot be a card")
                .seen(format!("FERROCE_NETDEV={}", setting.unwrap_or_default()))
                .seen(why)
                .remedy("name interfaces that are there, or let the loopback interface be the card:")
                .command("ferroce devices")
                .command("unset FERROCE_NETDEV"),
        ],
    }
}

fn opened_card(info: &DeviceInfo) -> Finding {
    let DeviceInfo { name, interface, mtu, .. } = info;
    let seen = format!("{interface} has MTU {mtu} and {} addresses", info.addresses.len());
    if !info.up {
        return Finding::fault(format!("{name} is down: {interface} is switched off or has no carrier"))
            .about(interface)
            .seen(seen)
            .remedy("switch it on, and see whether a cable is in it:")
            .command(format!("ip link set {interface} up"))
            .command(format!("ip -br link show dev {interface}"));
    }
    let reach = if info.loopback { ", reaches this machine" } else { "" };
    let path_mtu = info.active_mtu();
    Finding::ok(format!("{name} is active{reach}, path MTU {path_mtu}")).about(interface).seen(seen)
}

/// Descriptors that a process with one card needs, with some for itself.
const DESCRIPTORS: u64 = SLOTS as u64 + 64;

/// Whether a process may have the descriptors that a card needs.
pub(super) fn descriptors(facts: &Facts) -> Vec<Finding> {
    let (soft, hard) = match facts.limit("Max open files") {
        Ok(limits) => limits,
        Err(why) => return vec![Finding::unknown("how many files a process may open").seen(why)],
    };
    let words = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let seen = format!("/proc/self/limits: Max open files {} {}", words(soft), words(hard));
    if hard.is_some_and(|hard| hard < DESCRIPTORS) {
        let text =
            format!("a process may open {} files, and a card of Ferroce needs {DESCRIPTORS}", words(hard));
        return vec![
            Finding::fault(text)
                .seen(seen)
                .remedy("raise the limit where it was lowered; as root, for this shell:")
                .command("ulimit -Hn 4096"),
        ];
    }
    vec![Finding::ok(format!("a process may open the {DESCRIPTORS} files that a card needs")).seen(seen)]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::planted::{Planted, interface};
    use super::*;

    #[test]
    fn the_loopback_interface_is_the_card() {
        let planted = Planted::rxe();
        let [said] = &card(&planted.facts())[..] else { panic!() };
        assert_eq!((said.level, said.about.as_deref()), (Level::Ok, Some("lo")));
        assert_eq!(said.what, "ferroce_lo is active, reaches this machine, path MTU 4096");
    }

    #[test]
    fn a_loopback_interface_without_address_is_a_fault() {
        let mut planted = Planted::rxe();
        planted.answers.interfaces = Ok(vec![interface("lo", &[]), interface("eth0", &["192.0.2.1"])]);
        let [said] = &card(&planted.facts())[..] else { panic!() };
        assert_eq!((said.level, &said.commands[..]), (Level::Fault, &["ip link set lo up".to_owned()][..]));
    }

    #[test]
    fn a_named_interface_is_checked() {
        let mut planted = Planted::rxe();
        let level = |planted: &Planted| card(&planted.facts())[0].level;
        planted.answers.set("FERROCE_NETDEV", "eth0");
        assert_eq!(level(&planted), Level::Ok);
        planted.answers.interfaces.as_mut().unwrap()[1].up = false;
        assert_eq!(level(&planted), Level::Fault);
        for wrong in ["eth7", "eth0,", "all,eth0"] {
            planted.answers.set("FERROCE_NETDEV", wrong);
            assert!(card(&planted.facts())[0].what.contains("FERROCE_NETDEV"), "{wrong}");
        }
    }

    #[test]
    fn too_few_descriptors_are_a_fault() {
        let planted = Planted::rxe();
        assert_eq!(descriptors(&planted.facts())[0].level, Level::Ok);
        for (hard, level) in [("unlimited", Level::Ok), ("192", Level::Ok), ("191", Level::Fault)] {
            planted.file("/proc/self/limits", &format!("Max open files   64   {hard}   files\n"));
            assert_eq!(descriptors(&planted.facts())[0].level, level, "{hard}");
        }
        planted.remove("/proc/self/limits");
        assert_eq!(descriptors(&planted.facts())[0].level, Level::Unknown);
    }
}
