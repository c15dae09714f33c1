//! `ferroce ping` across a Clos network of real kernel routers: paths, lost packets, and a host that vanishes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Write};
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use ferroce_testkit::clos::{Clos, Family, Node, Tuple};
use ferroce_testkit::namespaces::{self, run};
use serde_json::{Value, json};

const FROM: Node = Node::Host(0, 0, 0);
const TO: Node = Node::Host(1, 1, 1);

fn main() -> ExitCode {
    if !namespaces::is_inside() {
        return namespaces::run_inside(&["nft"]);
    }
    let clos = Clos::build(5);
    for family in [Family::V4, Family::V6] {
        let responder = Responder::start(family);
        every_path_has_a_port(&clos, family);
        what_a_router_drops_is_lost_on_its_paths_alone(&clos, family);
        loss_is_told_by_direction(&clos, family);
        ports_of_other_programs_are_refused_and_left_out(family);
        responder.end();
    }
    a_host_that_vanishes_is_explained();
    // The last one: a link that carries less than IPv6 needs loses its addresses of IPv6.
    a_link_that_carries_too_little_is_explained();
    let _ = io::stdout().write_all(b"test result: ok. 6 passed; 0 failed\n");
    ExitCode::SUCCESS
}

/// The binary in the namespace of a host.
fn ferroce(host: Node, args: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &host.to_string(), env!("CARGO_BIN_EXE_ferroce")]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

struct Responder {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// The number of its queue pair.
    qpn: String,
}

impl Responder {
    fn start(family: Family) -> Self {
        let address = TO.address(family).to_string();
        let mut child = ferroce(TO, &["probe", "responder", "--bind", &address]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("answers probes until Ctrl-C"), "{line:?}");
        let qpn = line.split_whitespace().nth(2).unwrap().to_owned();
        Self { child, lines, qpn }
    }

    /// Ends it as Ctrl-C does, and hears how many probes it has answered.
    fn end(mut self) {
        run(&format!("kill -INT {}", self.child.id()));
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(line.ends_with(" probes answered\n"), "{line:?}");
        assert!(self.child.wait().unwrap().success());
    }
}

/// The same in a run in which this host did not stand still: probes of such a moment say nothing of the network.
fn calm_ping(family: Family, args: &[&str]) -> (Value, String, bool) {
    for _ in 0..20 {
        let (summary, stderr, is_well) = ping(family, args);
        if summary["outcomes"]["host"] == 0 {
            return (summary, stderr, is_well);
        }
    }
    panic!("this host stood still in each of 20 runs");
}

/// The summary of a run, and what it said on standard error.
fn ping(family: Family, args: &[&str]) -> (Value, String, bool) {
    let address = TO.address(family).to_string();
    let all: Vec<&str> = ["ping", &address, "--json", "-q"].iter().chain(args).copied().collect();
    let out = ferroce(FROM, &all).output().unwrap();
    let [stdout, stderr] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let last = stdout.lines().last().unwrap_or_else(|| panic!("it said nothing but {stderr}"));
    let summary: Value = serde_json::from_str(last).unwrap();
    (summary["summary"].clone(), stderr, out.status.success())
}

/// The routers of each port, as `ferroce ping --paths` tells them.
fn told(clos: &Clos, summary: &Value) -> BTreeMap<u16, Vec<Node>> {
    let port = |of: &Value| u16::try_from(of["port"].as_u64().unwrap()).unwrap();
    let node = |router: &Value| clos.owner(router.as_str().unwrap().parse().unwrap()).unwrap();
    let way = |of: &Value| of["routers"].as_array().unwrap().iter().map(node).collect();
    summary["ports"].as_array().unwrap().iter().map(|of| (port(of), way(of))).collect()
}

fn every_path_has_a_port(clos: &Clos, family: Family) {
    let (summary, stderr, is_well) =
        ping(family, &["--paths", "--expect", "8", "--count", "80", "--interval", "0.001"]);
    assert!(is_well, "{stderr}");
    assert_eq!((&summary["probes"], &summary["lost"]), (&80.into(), &0.into()), "{summary}");
    let told = told(clos, &summary);
    let tuples: Vec<Tuple> = told.keys().map(|port| Tuple { from: FROM, to: TO, port: *port }).collect();
    assert_eq!(clos.paths(&tuples, family), told.values().cloned().collect::<Vec<_>>());
    let different: BTreeSet<&Vec<Node>> = told.values().collect();
    assert_eq!((different.len(), told.len()), (8, 8), "{told:?}");
    for of in summary["ports"].as_array().unwrap() {
        assert_eq!((&of["probes"], &of["reaches"]), (&10.into(), &true.into()), "{of}");
    }
}

fn what_a_router_drops_is_lost_on_its_paths_alone(clos: &Clos, family: Family) {
    let bad = Node::Aggregation(1, 0);
    // Only on the way there, and neither traces, whose hop limits are small, nor questions, which are longer.
    let (words, hops) = if family == Family::V4 { ("ip", "ttl") } else { ("ip6", "hoplimit") };
    let rule = format!(
        "table inet bad {{ chain c {{ type filter hook forward priority 0;\n\
         {words} daddr {} udp dport 4791 {words} {hops} > 10 udp length < 100 drop\n }}\n}}\n",
        TO.address(family)
    );
    clos.filter(bad, &rule);
    let args = ["--paths", "--expect", "8", "--count", "80", "--interval", "0.001", "--timeout", "0.1"];
    let (summary, stderr, is_well) = calm_ping(family, &args);
    assert!(is_well, "{stderr}");
    let told = told(clos, &summary);
    assert_eq!(told.len(), 8, "{summary}");
    for of in summary["ports"].as_array().unwrap() {
        let port = u16::try_from(of["port"].as_u64().unwrap()).unwrap();
        let crosses = told[&port].contains(&bad);
        let expected = if crosses { 10 } else { 0 };
        assert_eq!(of["lost"], expected, "{port} by {:?}: {of}", told[&port]);
    }
    assert_eq!(summary["lost"], 40, "{summary}");
    clos.clear_filter(bad);
}

/// The last router drops the first of every 7 probes, of every 4 first ACKs and of every 2 second ACKs.
fn loss_is_told_by_direction(clos: &Clos, family: Family) {
    let last = Node::Tor(1, 1);
    let words = if family == Family::V4 { "ip" } else { "ip6" };
    // The byte that says which ACK it is stands behind 8 bytes of UDP and 20 of RoCEv2, the third of a packet.
    let drop = |word: &str, ack: u8, every: u8| {
        format!(
            "{words} {word} {} udp dport 4791 udp length < 100 @th,240,8 {ack} numgen inc mod {every} 0 drop\n",
            TO.address(family)
        )
    };
    clos.filter(
        last,
        &format!(
            "table inet bad {{ chain c {{ type filter hook forward priority 0;\n{}{}{} }}\n}}\n",
            drop("daddr", 0, 7),
            drop("saddr", 1, 4),
            drop("saddr", 2, 2)
        ),
    );
    let args = ["--port", "50001", "--count", "200", "--interval", "0.001", "--timeout", "0.1"];
    let (summary, stderr, is_well) = ping(family, &args);
    assert!(is_well, "{stderr}");
    // 29 of 200 probes, then 43 of 171 first ACKs; the last probe and its first ACK come through.
    let expected = json!({ "told": 200, "lost_there": 29, "lost_back": 43, "refused": 0 });
    assert_eq!(summary["directions"], expected, "{summary}");
    // Probes of a moment in which this host stood still are counted apart, but what came is known of them, too.
    if summary["outcomes"]["host"] == 0 {
        assert_eq!(summary["lost"], 29 + 43, "{summary}");
        let time_outs = summary["outcomes"]["time_out"].as_u64().unwrap();
        assert!(time_outs > 29, "some of those that came lost both answers: {summary}");
    }
    clos.clear_filter(last);
}

/// The router before it has no way to it any more and says so, and `ferroce ping` hands it on.
fn a_host_that_vanishes_is_explained() {
    let route = format!("unreachable {}/32", TO.address(Family::V4));
    run(&format!("ip -n t11 route add {route}"));
    let args = ["--qpn", "4242", "--count", "3", "--interval", "0.01", "--timeout", "0.1"];
    let (summary, stderr, is_well) = calm_ping(Family::V4, &args);
    assert!(!is_well, "{summary}");
    assert!(stderr.contains("none of 3 probes was answered; ") && stderr.contains(" says: "), "{stderr}");
    assert_eq!(summary["outcomes"]["time_out"], 3, "{summary}");
    assert_eq!(summary["complaints"][0]["probes"], 3, "{summary}");
    run(&format!("ip -n t11 route del {route}"));
}

/// A socket that does not share its port: as a program of another user may have it.
fn ports_of_other_programs_are_refused_and_left_out(family: Family) {
    let any: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    let _theirs = namespaces::enter(&FROM.to_string(), || {
        [49_152, 49_155, 50_000].map(|port| UdpSocket::bind((any, port)).unwrap())
    });
    let (summary, stderr, is_well) =
        ping(family, &["--all-ports", "--count", "20", "--interval", "0.001", "--timeout", "5"]);
    assert!(is_well, "{stderr}");
    assert_eq!((&summary["probes"], &summary["outcomes"]["ok"]), (&18.into(), &18.into()), "{summary}");
    assert_eq!(summary["refused_ports"], 2, "{summary}");
    let why = summary["refused_ports_why"].as_str().unwrap();
    assert!(why.contains("port 49152") && why.contains("another program has it"), "{why}");
    let ports: Vec<u64> =
        summary["ports"].as_array().unwrap().iter().map(|of| of["port"].as_u64().unwrap()).collect();
    let left: Vec<u64> = (49_152..49_172).filter(|port| ![49_152, 49_155].contains(port)).collect();
    assert_eq!(ports, left);
    let address = TO.address(family).to_string();
    let refused = ferroce(FROM, &["ping", &address, "--port", "50000", "-c", "1"]).output().unwrap();
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("no probe can leave from port 50000 to ")
            && stderr.contains("another program has it"),
        "{stderr}"
    );
}

/// The last link carries 200 bytes, too few for the question after the responder, and then 80, too few for probes.
fn a_link_that_carries_too_little_is_explained() {
    let responder = Responder::start(Family::V4);
    let link = |bytes: u32| run(&format!("ip -n t11 link set {TO} mtu {bytes}"));
    link(200);
    let address = TO.address(Family::V4).to_string();
    let out = ferroce(FROM, &["ping", &address, "-c", "1"]).output().unwrap();
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert!(
        !out.status.success() && stderr.contains("all of the way must carry packets of 308 bytes"),
        "{stderr}"
    );
    let qpn = responder.qpn.as_str();
    let (summary, stderr, is_well) = ping(Family::V4, &["--qpn", qpn, "--count", "3", "--interval", "0.01"]);
    assert!(is_well && summary["outcomes"]["ok"] == 3, "{summary} {stderr}");
    link(80);
    let args = ["--qpn", qpn, "--count", "5", "--interval", "0.05", "--timeout", "0.2"];
    let (summary, stderr, is_well) = ping(Family::V4, &args);
    assert!(
        !is_well && stderr.contains("longer than the 80 bytes that the next link carries"),
        "{summary} {stderr}"
    );
    let told = &summary["complaints"][0];
    assert_eq!(told["says"], "longer than the 80 bytes that the next link carries", "{summary}");
    // The first was sent back; from then on the kernel knows, and the rest does not leave.
    let sent_back = told["probes"].as_u64().unwrap();
    assert_eq!((sent_back + summary["too_long"].as_u64().unwrap(), sent_back > 0), (5, true), "{summary}");
    link(1500);
    responder.end();
}
