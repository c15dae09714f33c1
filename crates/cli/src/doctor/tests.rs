//! The doctor as a whole: healthy machines, and one planted fault after the other.

use super::facts::{Board, Passage, Trouble};
use super::finding::Level;
use super::planted::{Planted, interface, route};
use super::*;

fn examined(planted: &Planted) -> Vec<Said> {
    examine(&planted.facts(), CHECKS.iter())
}

/// The checks that have found something wrong, with how bad it is at most.
fn wrong(planted: &Planted) -> Vec<(&'static str, Level)> {
    let worst = |said: &Said| said.findings.iter().map(|finding| finding.level).max();
    let all = examined(planted).into_iter().filter_map(|said| Some((said.check.name, worst(&said)?)));
    all.filter(|(_, level)| *level >= Level::Unknown).collect()
}

/// A planted fault: what it is called, what is done to a healthy machine with soft-RoCE, the check that is to name
/// it, and how bad it is.
type Plant = (&'static str, fn(&mut Planted), &'static str, Level);

const RXE: &str = "/sys/class/infiniband/rxe0/ports/1";

const PLANTS: &[Plant] = &[
    (
        "loopback down",
        |it| it.answers.interfaces = Ok(vec![interface("eth0", &["192.0.2.1"])]),
        "card",
        Level::Fault,
    ),
    ("a wrong name", |it| it.answers.set("FERROCE_NETDEV", "eth9"), "card", Level::Fault),
    (
        "a foreign socket",
        |it| {
            let line =
                " 1: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 1000 0 9 2 0 0\n";
            let line = if cfg!(target_endian = "little") {
                line.to_owned()
            } else {
                line.replace("0100007F", "7F000001")
            };
            it.file("/proc/net/udp", &line);
        },
        "port-4791",
        Level::Fault,
    ),
    (
        "a stopped leader",
        |it| {
            let trouble = Some(Trouble { what: "did not answer in 5 s".to_owned(), silent: Some(7) });
            it.answers.boards = Ok(vec![Board { group: "lo".to_owned(), members: vec![7], trouble }]);
        },
        "switchboard",
        Level::Fault,
    ),
    (
        "few descriptors",
        |it| {
            it.file(
                "/proc/self/limits",
                "Max open files 64 128 files\nMax locked memory unlimited unlimited bytes\n",
            );
        },
        "descriptors",
        Level::Fault,
    ),
    ("a firewall on loopback", |it| it.answers.passage = Passage::Lost, "firewall", Level::Fault),
    (
        "a rule of nftables",
        |it| {
            let chain = r#"{"chain": {"family": "ip", "table": "t", "name": "in", "hook": "input", "policy": "drop"}}"#;
            it.answers.say("nft -j list ruleset", &format!("{{\"nftables\": [{chain}]}}"));
        },
        "firewall",
        Level::Fault,
    ),
    (
        "a strict rp_filter",
        |it| {
            it.file("/proc/net/route", &[route(""), route("eth0"), route("eth1")].concat());
            it.file("/proc/sys/net/ipv4/conf/all/rp_filter", "1\n");
            it.file("/proc/sys/net/ipv4/conf/eth1/rp_filter", "0\n");
        },
        "rp-filter",
        Level::Fault,
    ),
    (
        "no ib_uverbs",
        |it| {
            it.remove("/sys/class/infiniband_verbs/abi_version");
            it.file("/proc/modules", "rdma_rxe 1 0 - Live 0x0\n");
        },
        "modules",
        Level::Fault,
    ),
    (
        "no rdma_ucm",
        |it| {
            it.remove("/sys/class/misc");
            it.file("/proc/modules", "rdma_rxe 1 0 - Live 0x0\n");
        },
        "modules",
        Level::Fault,
    ),
    (
        "an interface that is off",
        |it| {
            it.file(&format!("{RXE}/state"), "1: DOWN\n").file("/sys/class/net/eth0/flags", "0x1002\n");
        },
        "links",
        Level::Fault,
    ),
    (
        "no RoCEv2",
        |it| {
            it.file(&format!("{RXE}/gid_attrs/types/0"), "IB/RoCE v1\n");
            it.file(&format!("{RXE}/gid_attrs/types/1"), "IB/RoCE v1\n");
        },
        "gids",
        Level::Fault,
    ),
    (
        "no address",
        |it| {
            it.remove(&format!("{RXE}/gids/1"));
        },
        "gids",
        Level::Fault,
    ),
    (
        "a small MTU",
        |it| {
            it.file("/sys/class/net/eth0/mtu", "1280\n");
        },
        "mtu",
        Level::Warning,
    ),
    (
        "a VLAN larger than its link",
        |it| {
            it.file("/sys/class/net/eth0/lower_ens1/mtu", "").file("/sys/class/net/ens1/mtu", "1500\n");
        },
        "mtu",
        Level::Fault,
    ),
    ("no permission", |it| it.answers.refused.push("rdma_cm".to_owned()), "permissions", Level::Fault),
    (
        "no device file",
        |it| {
            it.remove("/dev/infiniband/uverbs0");
        },
        "permissions",
        Level::Fault,
    ),
    (
        "little memory to lock",
        |it| {
            it.file(
                "/proc/self/limits",
                "Max open files 1024 1024 files\nMax locked memory 65536 65536 bytes\n",
            );
            it.file("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000000000\n");
        },
        "memlock",
        Level::Fault,
    ),
    (
        "no provider",
        |it| {
            it.remove("/etc/libibverbs.d/rxe.driver");
        },
        "libraries",
        Level::Fault,
    ),
    (
        "a card without its module",
        |it| {
            it.link("/sys/bus/pci/devices/0000:3b:00.0/driver", "../../../bus/pci/drivers/mlx5_core");
        },
        "devices",
        Level::Warning,
    ),
    (
        "a card in a lossy network",
        |it| {
            it.card("mlx5_0", "ens1", "mlx5_core");
            it.file("/etc/libibverbs.d/mlx5.driver", "").file("/usr/lib/libmlx5.so.1", "");
            for part in ["roce_np", "roce_rp"] {
                it.file(&format!("/sys/class/net/ens1/ecn/{part}/enable/0"), "0\n");
            }
            it.answers.say("dcb pfc show dev ens1", "prio-pfc 0:off 1:off\n");
        },
        "lossless",
        Level::Warning,
    ),
];

#[test]
fn healthy_machines_have_nothing_wrong() {
    for planted in [Planted::bare(), Planted::rxe()] {
        assert_eq!(wrong(&planted), []);
        assert_eq!(report::faults(&examined(&planted)), None);
    }
}

#[test]
fn every_planted_fault_is_named_by_its_check_and_by_no_other() {
    for (name, plant, check, level) in PLANTS {
        let mut planted = Planted::rxe();
        plant(&mut planted);
        assert_eq!(wrong(&planted), [(*check, *level)], "{name}");
        for finding in examined(&planted).iter().flat_map(|said| &said.findings) {
            let is_bad = finding.level >= Level::Warning;
            assert!(!is_bad || !finding.seen.is_empty(), "{name}: {finding:?} tells no fact");
            assert!(!is_bad || !finding.commands.is_empty(), "{name}: {finding:?} tells no command");
        }
    }
}

#[test]
fn every_check_has_a_planted_fault() {
    for check in CHECKS {
        assert!(PLANTS.iter().any(|(_, _, name, _)| *name == check.name), "{}", check.name);
    }
}

#[test]
fn a_machine_of_which_nothing_can_be_read_is_not_judged() {
    let planted = Planted::new();
    let facts = Facts::new(planted.facts().place("/"), Box::new(Elsewhere));
    let all = examine(&facts, CHECKS.iter());
    let bad = all.iter().flat_map(|said| &said.findings).filter(|finding| finding.level > Level::Unknown);
    assert_eq!(bad.collect::<Vec<_>>(), Vec::<&Finding>::new());
    let unknown =
        all.iter().flat_map(|said| &said.findings).filter(|finding| finding.level == Level::Unknown);
    assert!(unknown.count() >= 8);
}

#[test]
fn without_devices_there_is_no_wall_of_findings() {
    let planted = Planted::bare();
    let text = report::text(&planted.facts(), &examined(&planted), false);
    assert!(text.lines().count() < 24, "{text}");
    assert!(
        text.contains("Nothing to look at without a device: links, gids, mtu, permissions, lossless."),
        "{text}"
    );
    assert!(text.ends_with(
        "Nothing is wrong. There is no RDMA hardware here, and Ferroce's card needs none: try `ferroce demo`.\n"
    ));
}

#[test]
fn faults_are_told_with_facts_remedy_and_command() {
    let planted = Planted::rxe();
    planted.file("/sys/class/net/eth0/mtu", "300\n");
    let all = examine(&planted.facts(), CHECKS.iter().filter(|check| check.name == "mtu"));
    let text = report::text(&planted.facts(), &all, false);
    let expected = "\
RDMA devices of the kernel: real cards, and soft-RoCE
  fault      mtu          rxe0/1: eth0 carries 300 bytes, and RoCE needs 352 at least
                          seen    /sys/class/net/eth0/mtu: 300
                          remedy  raise it here, on all switches between and on all peers; then try a long packet to one of them:
                                    ip link set eth0 mtu 1500
                                    ping -M do -c 3 -s 1472 PEER

1 fault.
";
    assert_eq!(text, expected);
    assert_eq!(report::faults(&all).as_deref(), Some("1 fault found: mtu"));
}

#[test]
fn a_name_cannot_command_a_terminal() {
    let mut planted = Planted::bare();
    planted.answers.set("FERROCE_NETDEV", "\u{1b}[2J");
    let text = report::text(&planted.facts(), &examined(&planted), true);
    assert!(text.contains("FERROCE_NETDEV=\u{fffd}[2J") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn json_has_its_keys() {
    let planted = Planted::rxe();
    planted.file("/sys/class/net/eth0/mtu", "300\n");
    let all = examined(&planted);
    let said: serde_json::Value = serde_json::from_str(&report::json(&planted.facts(), &all)).unwrap();
    assert_eq!(said["summary"]["fault"], 1);
    assert_eq!(said["rdma_devices"], serde_json::json!(["rxe0"]));
    assert_eq!(said["not_looked_at"], serde_json::json!([]));
    let fault =
        said["findings"].as_array().unwrap().iter().find(|finding| finding["level"] == "fault").unwrap();
    assert_eq!((&fault["check"], &fault["about"]), (&"mtu".into(), &"rxe0/1".into()));
    assert_eq!(fault["seen"][0], "/sys/class/net/eth0/mtu: 300");
    assert_eq!(fault["commands"][0], "ip link set eth0 mtu 1500");
    assert!(fault["remedy"].is_string() && fault["what"].is_string());
}

#[test]
fn the_list_teaches_each_check() {
    let text = report::list(CHECKS.iter());
    for check in CHECKS {
        assert!(text.contains(&format!("{}\n  ", check.name)), "{text}");
        assert!(check.teaches.ends_with('.'), "{}", check.name);
    }
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
}
