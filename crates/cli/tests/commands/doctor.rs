//! `ferroce doctor`, on this machine as it is and on files of another one. What it finds where something is broken is
//! in `tests/doctor.rs`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::golden::golden;
use crate::run::ferroce;

/// Files of a machine with a soft-RoCE device, in a folder of their own.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("ferroce-doctor-{name}-{}", std::process::id()));
        let machine = Self(root);
        let port = "sys/class/infiniband/rxe0/ports/1";
        for (path, text) in [
            ("sys/class/infiniband/rxe0/parent", "eth0\n"),
            ("sys/class/infiniband_verbs/abi_version", "6\n"),
            ("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n"),
            ("sys/class/misc/rdma_cm/dev", "10:121\n"),
            ("sys/class/net/eth0/mtu", "1400\n"),
            ("sys/class/net/eth0/flags", "0x1002\n"),
            ("sys/class/net/eth0/operstate", "down\n"),
            (&format!("{port}/state"), "1: DOWN\n"),
            (&format!("{port}/phys_state"), "3: Disabled\n"),
            (&format!("{port}/link_layer"), "Ethernet\n"),
            (&format!("{port}/gids/0"), "fe80:0000:0000:0000:5054:00ff:fe12:3456\n"),
            (&format!("{port}/gid_attrs/types/0"), "RoCE v2\n"),
            (&format!("{port}/gid_attrs/ndevs/0"), "eth0\n"),
            ("proc/self/limits", "Max open files 1024 4096 files\nMax locked memory 8388608 8388608 bytes\n"),
            ("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n"),
            ("proc/net/route", "Iface Destination\n"),
            ("proc/net/udp", "sl local_address\n"),
        ] {
            let place = machine.0.join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        machine
    }

    fn root(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_of_another_machine_are_judged_and_nothing_else() {
    let machine = Machine::new("text");
    let out = ferroce(&["doctor", "--root", machine.root()]);
    golden("doctor.txt", &out.stdout);
    let said = "ferroce: 6 faults found: links, gids, permissions, memlock, libraries";
    assert_eq!(out.failure(), said);
}

#[test]
fn only_what_was_asked_for_is_checked() {
    let machine = Machine::new("only");
    let out = ferroce(&["doctor", "--json", "--only", "mtu,descriptors", "--root", machine.root()]).success();
    let findings = out.json()["findings"].as_array().unwrap().clone();
    let seen: Vec<(&str, &str)> = findings
        .iter()
        .map(|finding| (finding["check"].as_str().unwrap(), finding["level"].as_str().unwrap()))
        .collect();
    assert_eq!(seen, [("descriptors", "ok"), ("mtu", "warning")]);
}

#[test]
fn the_list_teaches() {
    golden("doctor-list.txt", &ferroce(&["doctor", "--list"]).success().stdout);
    let one = ferroce(&["doctor", "--list", "--only", "gids", "--json"]).success().json();
    assert_eq!(one["checks"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["checks"][0]["check"], "gids");
}

#[test]
fn this_machine_is_looked_at() {
    let out = ferroce(&["doctor", "--json"]);
    let said: Value = out.json();
    let faults = said["summary"]["fault"].as_u64().unwrap();
    if faults == 0 {
        let _ = out.success();
    } else {
        assert!(out.failure().contains("found: "), "{}", out.stderr);
    }
    let checks = |check: &str| said["findings"].as_array().unwrap().iter().any(|of| of["check"] == check);
    for check in
        ["card", "port-4791", "switchboard", "descriptors", "firewall", "rp-filter", "devices", "memlock"]
    {
        assert!(checks(check), "{check}: {said}");
    }
    let counted: u64 = said["summary"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(said["findings"].as_array().unwrap().len() as u64, counted);
}
