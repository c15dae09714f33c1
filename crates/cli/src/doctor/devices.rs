//! The RDMA devices of the kernel: which there are, which cards have none, and which modules programs need for them.

use super::facts::Facts;
use super::finding::Finding;

/// Drivers of network cards that can do RDMA, with the module that makes them RDMA devices.
const DRIVERS: &[(&str, &str)] = &[
    ("bnxt_en", "bnxt_re"),
    ("cxgb4", "iw_cxgb4"),
    ("hns3", "hns_roce_hw_v2"),
    ("ice", "irdma"),
    ("mana", "mana_ib"),
    ("mlx4_core", "mlx4_ib"),
    ("mlx5_core", "mlx5_ib"),
    ("qede", "qedr"),
];

/// Which devices there are.
pub(super) fn devices(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts
        .devices()
        .iter()
        .map(|device| {
            let driver = device.driver.as_deref().unwrap_or("not known");
            let kind = match (device.software, device.iwarp) {
                (true, false) => "the kernel's soft-RoCE".to_owned(),
                (true, true) => "the kernel's soft-iWARP".to_owned(),
                (false, true) => format!("an iWARP card, driver {driver}"),
                (false, false) => format!("a card, driver {driver}"),
            };
            let on: Vec<&str> = device.ports.iter().filter_map(|port| port.netdev()).collect();
            let on = if on.is_empty() { String::new() } else { format!(", on {}", on.join(", ")) };
            Finding::ok(format!("{kind}{on}"))
                .about(&device.name)
                .seen(format!("/sys/class/infiniband/{}", device.name))
        })
        .collect();
    findings.extend(cards_without_device(facts));
    if facts.devices().is_empty() {
        let soft = match facts.can_load("rdma_rxe") {
            _ if facts.has_module("rdma_rxe") == Some(true) => {
                soft_roce("soft-RoCE is loaded, and has no device yet; make one:").command(ADD)
            }
            Some(true) => {
                soft_roce("the kernel's soft-RoCE can be tried without a card (as root, on an interface):")
                    .command("modprobe rdma_rxe")
                    .command(ADD)
            }
            Some(false) => {
                soft_roce("this kernel has no soft-RoCE either (module rdma_rxe); use Ferroce's own card:")
                    .command("ferroce demo")
            }
            None => soft_roce("put in a card, or use Ferroce's own:").command("ferroce demo"),
        };
        findings.push(soft.seen("/sys/class/infiniband is empty or not there"));
    }
    findings
}

const ADD: &str = "rdma link add rxe0 type rxe netdev eth0";

fn soft_roce(remedy: &str) -> Finding {
    Finding::note("the kernel has no RDMA device; programs can use Ferroce's own card instead").remedy(remedy)
}

/// Cards whose driver could do RDMA, and does not.
fn cards_without_device(facts: &Facts) -> Vec<Finding> {
    let bus = "/sys/bus/pci/devices";
    let without = facts.names(bus).into_iter().filter_map(|card| {
        let driver = facts.link_name(&format!("{bus}/{card}/driver"))?;
        let (_, module) = DRIVERS.iter().find(|(name, _)| *name == driver)?;
        let device = facts.names(&format!("{bus}/{card}/infiniband"));
        device.is_empty().then_some((card, driver, *module))
    });
    without.map(|(card, driver, module)| {
        let finding = Finding::warning(format!("the card {card} ({driver}) could do RDMA, and has no RDMA device"));
        let finding = finding.about(&card).seen(format!("{bus}/{card}/infiniband is not there"));
        match facts.has_module(module) {
            Some(true) => finding
                .seen(format!("the module {module} is loaded"))
                .remedy("RoCE may be switched off for the card, or its firmware refuse it; see what the kernel says:")
                .command(format!("devlink dev param show pci/{card} name enable_roce"))
                .command(format!("dmesg | grep -e {card} -e {module}")),
            _ => finding.remedy("load the module that makes it one:").command(format!("modprobe {module}")),
        }
    }).collect()
}

/// Whether programs get at devices.
pub(super) fn modules(facts: &Facts) -> Vec<Finding> {
    let has_devices = !facts.devices().is_empty();
    let parts = [
        ("ib_uverbs", "/sys/class/infiniband_verbs/abi_version", "no program can open a device"),
        ("rdma_ucm", "/sys/class/misc/rdma_cm", "programs cannot connect by address (librdmacm)"),
    ];
    let mut findings = Vec::new();
    for (module, trace, without) in parts {
        let is_there = match facts.has_module(module) {
            _ if facts.has(trace) => Some(true),
            // What it would show is not there.
            None if facts.has("/sys/class") => Some(false),
            told => told,
        };
        findings.push(match (is_there, has_devices) {
            (Some(true), _) => Finding::ok(format!("{module} is loaded")),
            (Some(false), false) => Finding::note(format!("{module} is not loaded; a card would need it")),
            (Some(false), true) => Finding::fault(format!("{module} is not loaded: {without}"))
                .seen(format!("neither /proc/modules nor {trace} has it"))
                .remedy("load it, now and at each start:")
                .command(format!("modprobe {module}"))
                .command(format!("echo {module} > /etc/modules-load.d/{module}.conf")),
            (None, _) => Finding::unknown(format!("whether {module} is loaded"))
                .seen(format!("neither /proc/modules nor {trace} tells")),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::planted::Planted;
    use super::*;

    #[test]
    fn devices_are_listed() {
        let planted = Planted::rxe();
        planted.card("mlx5_0", "ens1", "mlx5_core");
        let said: Vec<(String, Level)> =
            devices(&planted.facts()).into_iter().map(|finding| (finding.what, finding.level)).collect();
        assert_eq!(
            said,
            [
                ("a card, driver mlx5_core, on ens1".to_owned(), Level::Ok),
                ("the kernel's soft-RoCE, on eth0".to_owned(), Level::Ok),
            ]
        );
    }

    #[test]
    fn without_devices_it_says_what_there_could_be() {
        let planted = Planted::bare();
        let said = |planted: &Planted| devices(&planted.facts())[0].clone();
        assert_eq!(
            (said(&planted).level, said(&planted).commands),
            (Level::Note, vec!["ferroce demo".to_owned()])
        );
        planted.file("/lib/modules/6.1.0/modules.dep", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko: x\n");
        assert_eq!(said(&planted).commands, ["modprobe rdma_rxe", ADD]);
        planted.file("/proc/modules", "rdma_rxe 1 0 - Live 0x0\n");
        assert_eq!(said(&planted).commands, [ADD]);
    }

    #[test]
    fn a_card_without_its_module_is_named() {
        let planted = Planted::bare();
        planted.link("/sys/bus/pci/devices/0000:3b:00.0/driver", "../../../bus/pci/drivers/mlx5_core");
        planted.link("/sys/bus/pci/devices/0000:04:00.0/driver", "../../../bus/pci/drivers/virtio-pci");
        let said = &devices(&planted.facts())[0];
        assert_eq!((said.level, said.about.as_deref()), (Level::Warning, Some("0000:3b:00.0")));
        assert_eq!(said.commands, ["modprobe mlx5_ib"]);
        planted.file("/proc/modules", "mlx5_ib 1 0 - Live 0x0\n");
        assert!(devices(&planted.facts())[0].commands[0].contains("enable_roce"));
        planted.file("/sys/bus/pci/devices/0000:3b:00.0/infiniband/mlx5_0/node_type", "1: CA\n");
        assert_eq!(devices(&planted.facts())[0].level, Level::Note, "only that no device was seen");
    }

    #[test]
    fn modules_that_programs_need_are_named_when_there_is_a_device() {
        let planted = Planted::rxe();
        assert!(modules(&planted.facts()).iter().all(|finding| finding.level == Level::Ok));
        planted.remove("/sys/class/infiniband_verbs").remove("/sys/class/misc");
        planted.file("/proc/modules", "rdma_rxe 1 0 - Live 0x0\n");
        let said = modules(&planted.facts());
        assert!(said.iter().all(|finding| finding.level == Level::Fault), "{said:?}");
        assert_eq!(said[0].commands[0], "modprobe ib_uverbs");
        assert!(modules(&Planted::bare().facts()).iter().all(|finding| finding.level == Level::Note));
        planted.remove("/proc/modules");
        assert!(modules(&planted.facts()).iter().all(|finding| finding.level == Level::Fault));
        assert!(modules(&Planted::new().facts()).iter().all(|finding| finding.level == Level::Unknown));
    }
}
