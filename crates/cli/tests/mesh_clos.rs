//! `ferroce mesh` across a Clos network of real kernel routers, with certificates: what is bad is named.
//!
//! The controller and the analyzer are processes on one host, and each host has an agent, all without
//! capabilities. Only packets of RoCEv2 are ever dropped, so that what the parts tell each other is not
//! disturbed.
//!
//! The arithmetic. With `r` probes in a second from an RNIC to other ToRs, which go to two RNICs from eight
//! ports each, a flow has `r / 16`. Five of the eight pairs of a pod cross to the other pod, so that 40 flows
//! of probes and 40 of answers share four links up to cores: 10 and 10 on each, `1.25 r` packets in a second
//! whose loss is one of a probe. At 1 % and `r` = 200, that is 2.5 in a window of a second, and 7.5 in the
//! three that are looked at together; links of ToRs carry more. Nothing is lost elsewhere, so a window with
//! two or more of them speaks for the link: 71 % do. A finding opens after two such windows in a row, and
//! probes count as lost when they are not merely late any more, after five seconds: 8 to 10 seconds in all,
//! and 60 are allowed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod mesh_support;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use ferroce_device::now;
use ferroce_meshd::proto::v1::Finding;
use ferroce_testkit::clos::{AGGREGATIONS, CORES, Clos, Family, Node, PODS, TORS};
use ferroce_testkit::namespaces;
use mesh_support::{Mesh, SERVICES, WINDOW, drop_on, is_loss, rest, say};

/// So long a host stands still.
const STOP: Duration = Duration::from_secs(3);

/// So many rounds, each with other links and another host. Each fault takes twenty seconds to come and to go, so
/// they run only with `FERROCE_SOAK` set (`cargo xtask soak --only mesh`); a link that breaks is in `mesh_services`
/// and in `mesh/demo.rs` each time.
const ROUNDS: usize = 20;

fn main() -> ExitCode {
    if env::var_os("FERROCE_SOAK").is_none() {
        say("20 rounds of faults run in `cargo xtask soak --only mesh`");
        return ExitCode::SUCCESS;
    }
    if !namespaces::is_inside() {
        return namespaces::run_inside(&["nft", "setpriv"]);
    }
    let began = now();
    let clos = Clos::build(7);
    let mesh = Mesh::start(ROUNDS);
    say(&format!("8 agents, a controller and an analyzer after {:.1} s", (now() - began).as_secs_f64()));
    mesh.wait_for_traces();
    say(&format!("all paths traced after {:.1} s", (now() - began).as_secs_f64()));
    let links = links();
    for round in 0..ROUNDS {
        // Up to a core first; then all over the network.
        let lossy = links[(round * 11) % links.len()];
        let holey = links[(round * 11 + 21) % links.len()];
        a_link_that_loses_one_percent_is_named(&clos, &mesh, lossy);
        a_link_that_loses_some_tuples_is_named(&clos, &mesh, holey);
        a_host_that_stands_still_is_not_taken_for_the_network(&mesh, stopped(round));
        say(&format!("round {} is over after {:.1} s", round + 1, (now() - began).as_secs_f64()));
    }
    mesh.end();
    let _ = io::stdout().write_all(b"test result: ok. 1 passed; 0 failed\n");
    ExitCode::SUCCESS
}

/// All directed links between switches; the first is one to a core.
fn links() -> Vec<(Node, Node)> {
    let mut links = Vec::new();
    for pod in 0..PODS {
        for number in 0..AGGREGATIONS {
            let aggregation = Node::Aggregation(pod, number);
            let others = (0..CORES).map(Node::Core).chain((0..TORS).map(|tor| Node::Tor(pod, tor)));
            links.extend(others.flat_map(|other| [(aggregation, other), (other, aggregation)]));
        }
    }
    links
}

/// A host to stop, which is not that of the services.
fn stopped(round: usize) -> Node {
    let hosts: Vec<Node> = Node::hosts().filter(|host| *host != SERVICES).collect();
    hosts[(round * 3 + 5) % hosts.len()]
}

fn a_link_that_loses_one_percent_is_named(clos: &Clos, mesh: &Mesh, (from, to): (Node, Node)) {
    mesh.wait_for_quiet();
    drop_on(clos, from, to, "numgen random mod 100 0");
    mesh.expect("1 %", from, to);
    clos.clear_filter(from);
}

fn a_link_that_loses_some_tuples_is_named(clos: &Clos, mesh: &Mesh, (from, to): (Node, Node)) {
    mesh.wait_for_quiet();
    // Half of all source ports: none of their packets comes through.
    drop_on(clos, from, to, "udp sport & 1 1");
    mesh.expect("half of all tuples", from, to);
    clos.clear_filter(from);
}

/// It answers nothing for a while, and then says itself that it stood still.
fn a_host_that_stands_still_is_not_taken_for_the_network(mesh: &Mesh, host: Node) {
    mesh.wait_for_quiet();
    let known = mesh.known();
    let agent = mesh.agents.iter().find(|(node, _)| *node == host).map(|(_, part)| part).unwrap();
    let wait_until = |after: u64, what: &str| {
        let until = mesh.findings().through_unix_ns + after * 1_000_000_000;
        mesh.wait_for(what, |reply| reply.through_unix_ns >= until)
    };
    agent.signal("-STOP");
    rest(STOP);
    agent.signal("-CONT");
    // Probes that were not answered are told after five seconds more, when they are not merely late any more,
    // and a window is looked at with the two before it.
    let reply = wait_until(STOP.as_secs() + 5 + 5 * WINDOW, "windows after a host stood still");
    let address = host.address(Family::V4).to_string();
    let is_about = |finding: &&Finding| {
        is_loss(finding) || finding.suspects.iter().any(|suspect| suspect.contains(&address))
    };
    let all = reply.open.iter().chain(&reply.over);
    let named: Vec<&Finding> = all.filter(|finding| !known.contains(&finding.id)).filter(is_about).collect();
    // Others may stand still, too, where the machine is busy.
    let is_host = |finding: &&Finding| matches!(&finding.suspects[..], [one] if one.starts_with("host "));
    assert!(named.iter().all(is_host), "{host} stood still, and the network is blamed: {named:#?}");
    let told = if named.is_empty() { "nothing is" } else { "the host is" };
    say(&format!("{host} stood still: {told} named"));
}
