//! Unmodified programs across a bad link of a Clos network of kernel routers: the mesh says which of them suffer.
//!
//! Two pairs of `ib_write_bw` run under `ferroce run`, and each host has an agent. All of these processes have no
//! capabilities. Which way the packets of a queue pair take is asked of the routers' own kernels; then a link loses a
//! part of them that one pair crosses, there or back, and the other does not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod mesh_support;

use std::collections::BTreeSet;
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use ferroce_device::now;
use ferroce_meshd::proto::v1::{Finding, FindingsReply, ServiceState};
use ferroce_testkit::clos::{Clos, Family, Node, Tuple};
use ferroce_testkit::{judge, namespaces};
use mesh_support::{Mesh, drop_on, ferroce, is_loss, rest, say};
use serde_json::Value;

/// From a host to another, in other pods, and from their neighbours.
const TRAIN: (Node, Node) = (Node::Host(0, 1, 0), Node::Host(1, 0, 0));
const STORE: (Node, Node) = (Node::Host(0, 1, 1), Node::Host(1, 0, 1));

/// A twentieth of all packets: enough for a finding within seconds.
const LOSS: &str = "numgen random mod 20 0";

fn main() -> ExitCode {
    if !namespaces::is_inside() {
        if !judge::has_file("/usr/bin/ib_write_bw") {
            return ExitCode::SUCCESS;
        }
        return namespaces::run_inside(&["nft", "setpriv"]);
    }
    let libraries = libraries();
    let began = now();
    let clos = Clos::build(11);
    let mesh = Mesh::start(1);
    say(&format!("8 agents, a controller and an analyzer after {:.1} s", (now() - began).as_secs_f64()));
    // With four queue pairs, the first has links that the second does not cross.
    let pairs = [Pair::start("train", TRAIN, 4, &libraries), Pair::start("store", STORE, 1, &libraries)];
    mesh.wait_for_traces();
    let all = pairs.each_ref().map(Pair::tuples);
    say(&format!("two services and all paths after {:.1} s: {all:?}", (now() - began).as_secs_f64()));
    let known = mesh.wait_for("both services", |reply| {
        let both = ["train", "store"].map(|name| state(reply, name).map_or(0, |one| one.flows));
        both == [8, 2]
    });
    assert!(known.services.iter().all(|one| one.hosts == 2 && one.sent > 0), "{known:#?}");

    let (from, to) = a_link_of_the_first(&clos, &all);
    let is_about =
        |finding: &&Finding| is_loss(finding) && finding.suspects == [format!("link {from} -> {to}")];
    drop_on(&clos, from, to, LOSS);
    let dropped = now();
    let what = format!("a finding of a link from {from} to {to} that says that the first service suffers");
    let reply = mesh.wait_for(&what, |reply| {
        reply.open.iter().find(is_about).is_some_and(|finding| finding.priority == "P0")
    });
    let finding = reply.open.iter().find(is_about).unwrap();
    assert_eq!(affected(finding), [("train", "P0")], "{finding:#?}");
    let train = state(&reply, "train").unwrap();
    assert!(train.priority == "P0" && train.findings.contains(&finding.id), "{reply:#?}");
    // Where the machine is busy, a host may stand still, and that is another finding.
    let store = state(&reply, "store").unwrap();
    assert!(!store.findings.contains(&finding.id), "{reply:#?}");
    say(&format!(
        "the first service suffers, and its neighbour does not: told {:.1} s after the link was bad",
        (now() - dropped).as_secs_f64()
    ));
    clos.clear_filter(from);

    // The end of the programs is the end of what is known of them.
    drop(pairs);
    mesh.wait_for("a mesh without services", |reply| reply.services.is_empty());
    mesh.end();
    say(&format!("all is over after {:.1} s", (now() - began).as_secs_f64()));
    let _ = io::stdout().write_all(b"test result: ok. 1 passed; 0 failed\n");
    ExitCode::SUCCESS
}

fn state<'a>(reply: &'a FindingsReply, name: &str) -> Option<&'a ServiceState> {
    reply.services.iter().find(|one| one.service == name)
}

fn affected(finding: &Finding) -> Vec<(&str, &str)> {
    finding.services.iter().map(|one| (&one.service[..], &one.priority[..])).collect()
}

/// A link between switches that packets of the first service cross, in one direction, and none of the second do.
fn a_link_of_the_first(clos: &Clos, all: &[Vec<Tuple>; 2]) -> (Node, Node) {
    let links = |tuples: &[Tuple]| -> BTreeSet<(Node, Node)> {
        let paths = clos.paths(tuples, Family::V4);
        paths
            .iter()
            .flat_map(|path| path.windows(2).map(|two| (two[0], two[1])).collect::<Vec<_>>())
            .collect()
    };
    let (own, others) = (links(&all[0]), links(&all[1]));
    let found = own.difference(&others).find(|(from, _)| !matches!(from, Node::Tor(..)));
    *found
        .or_else(|| own.difference(&others).next())
        .unwrap_or_else(|| panic!("{own:?} are all of {others:?}"))
}

/// The folder of the library: from `cargo xtask test`, or linked here.
fn libraries() -> PathBuf {
    env::var_os("FERROCE_ABI").map_or_else(
        || {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
            let mut command = Command::new(env!("CARGO"));
            command.args(["xtask", "link-abi"]).current_dir(root).stdout(Stdio::null());
            assert!(command.status().unwrap().success());
            Path::new(env!("CARGO_BIN_EXE_ferroce")).with_file_name("abi")
        },
        PathBuf::from,
    )
}

/// A server and a client of `ib_write_bw`, each under `ferroce run` on a host.
struct Pair {
    ends: [Node; 2],
    queue_pairs: usize,
    children: Vec<Child>,
}

impl Pair {
    fn start(service: &str, (client, server): (Node, Node), queue_pairs: usize, libraries: &Path) -> Self {
        let start = |host: Node, towards: Option<Node>| {
            let Node::Host(pod, tor, _) = host else { unreachable!("{host} is a host") };
            // Each end of a cable has the name of the node that it leads to.
            let interface = Node::Tor(pod, tor).to_string();
            let mut command = ferroce(host);
            command.args(["run", "--netdev", &interface, "--service", service, "--", "nice", "ib_write_bw"]);
            command.args(["--run_infinitely", "-D", "1", "-s", "4096", "-t", "4", "-F"]);
            command.args(["-q", &queue_pairs.to_string(), "-x", &index(host, &interface, libraries)]);
            command.args(towards.map(|server| server.address(Family::V4).to_string()));
            command.env("FERROCE_LIBRARIES", libraries).stdout(Stdio::null());
            command.spawn().unwrap()
        };
        let mut children = vec![start(server, None)];
        // It listens when it has a socket there.
        let end = now() + Duration::from_secs(30);
        while !namespaces::answer_to(&format!("ip netns exec {server} ss -ltn"), "").contains(":18515") {
            assert!(now() < end, "the server of {service} does not listen");
            rest(Duration::from_millis(20));
        }
        children.push(start(client, Some(server)));
        Self { ends: [client, server], queue_pairs, children }
    }

    /// The tuples of both ends, as `ferroce stat` on their hosts tells them.
    fn tuples(&self) -> Vec<Tuple> {
        let [client, server] = self.ends;
        let of = |from: Node, to: Node| {
            let ports = ports(from, self.queue_pairs);
            ports.into_iter().map(move |port| Tuple { from, to, port })
        };
        of(client, server).chain(of(server, client)).collect()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The UDP source ports of all queue pairs on this host that are connected, when there are so many.
fn ports(host: Node, count: usize) -> Vec<u16> {
    let end = now() + Duration::from_secs(30);
    loop {
        let output = ferroce(host).args(["stat", "--once", "--interval", "0.1", "--json"]).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let processes = told["processes"].as_array().cloned().unwrap_or_default();
        let pairs =
            processes.iter().flat_map(|one| one["queue_pairs"].as_array().cloned().unwrap_or_default());
        let found = pairs.filter(|pair| pair["type"] == "RC").filter_map(|pair| pair["source_port"].as_u64());
        let ports: Vec<u16> = found.map(|port| u16::try_from(port).unwrap()).collect();
        if ports.len() == count {
            return ports;
        }
        assert!(now() < end, "not {count} queue pairs of {host} are connected: {told:#}");
        rest(Duration::from_millis(100));
    }
}

/// The place of the IPv4 address of a host in the table of its device.
fn index(host: Node, interface: &str, libraries: &Path) -> String {
    let address = host.address(Family::V4).to_string();
    let mut command = ferroce(host);
    command
        .args(["run", "--netdev", interface, "--", "ibv_devinfo", "-v"])
        .env("FERROCE_LIBRARIES", libraries);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let line = said.lines().find(|line| line.contains(&format!("::ffff:{address}")));
    let line = line.unwrap_or_else(|| panic!("no {address} in {said}"));
    let number =
        line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(number, _)| number.trim());
    number.unwrap_or_else(|| panic!("{line}")).to_owned()
}
