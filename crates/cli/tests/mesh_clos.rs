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

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferroce_device::cm::Notice;
use ferroce_device::{now, park};
use ferroce_meshd::Inquiry;
use ferroce_meshd::proto::v1::{Counter, Finding, FindingsReply};
use ferroce_meshd::tls::{CredentialFiles, Credentials};
use ferroce_testkit::clos::{self, AGGREGATIONS, CORES, Clos, Family, Node, PODS, TORS};
use ferroce_testkit::namespaces;

/// Seconds of a window, and probes of an RNIC in a second to other ToRs.
const WINDOW: u64 = 1;
const RATE: u32 = 200;

/// The host of the controller and of the analyzer, which has an agent like any other.
const SERVICES: Node = Node::Host(0, 0, 0);

/// So long a host stands still.
const STOP: Duration = Duration::from_secs(3);

/// So soon what is bad is named.
const SOON: Duration = Duration::from_secs(60);

/// Probes of all RNICs in that time: with as many below ToRs as between them.
const ASKED: u64 = 8 * 2 * RATE as u64 * SOON.as_secs();

/// So often it is waited again where a machine does not get half of them out, since too few packets cross a
/// link then.
const BUSY: u32 = 5;

/// No process lives longer in one round.
const LIMIT: Duration = Duration::from_mins(20);

/// With `FERROCE_SOAK` set, so many rounds, each with other links; one otherwise, and of losses only, since each
/// fault takes twenty seconds to come and to go.
const ROUNDS: usize = 20;

fn main() -> ExitCode {
    if !namespaces::is_inside() {
        return namespaces::run_inside(&["nft", "setpriv"]);
    }
    let rounds = if env::var_os("FERROCE_SOAK").is_some() { ROUNDS } else { 1 };
    let began = now();
    let clos = Clos::build(7);
    let mesh = Mesh::start(rounds);
    say(&format!("8 agents, a controller and an analyzer after {:.1} s", (now() - began).as_secs_f64()));
    mesh.wait_for_traces();
    say(&format!("all paths traced after {:.1} s", (now() - began).as_secs_f64()));
    let links = links();
    for round in 0..rounds {
        // Up to a core first; then all over the network.
        let lossy = links[(round * 11) % links.len()];
        let holey = links[(round * 11 + 21) % links.len()];
        a_link_that_loses_one_percent_is_named(&clos, &mesh, lossy);
        if rounds > 1 {
            a_link_that_loses_some_tuples_is_named(&clos, &mesh, holey);
            a_host_that_stands_still_is_not_taken_for_the_network(&mesh, stopped(round));
        }
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

/// Drops packets of RoCEv2 that a router gives to another and that are so.
fn drop_on(clos: &Clos, from: Node, to: Node, which: &str) {
    clos.filter(
        from,
        &format!(
            "table inet bad {{ chain c {{ type filter hook forward priority 0;\n\
             oifname \"{to}\" udp dport 4791 {which} drop\n }}\n}}\n"
        ),
    );
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

/// Lets a time pass. A thread that ends may wake this one sooner, so that one look at the clock is not
/// enough.
fn rest(time: Duration) {
    let end = now() + time;
    while now() < end {
        park(Some(end - now()));
    }
}

/// All nodes share the processors of one machine: where these are busy, packets are late indeed, so only
/// losses are judged.
fn is_loss(finding: &Finding) -> bool {
    finding.trouble == "loss"
}

fn say(line: &str) {
    let _ = io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// The parts of a mesh, each a process.
struct Mesh {
    directory: PathBuf,
    controller: Part,
    analyzer: Part,
    agents: Vec<(Node, Part)>,
    inquiry: Inquiry,
}

impl Mesh {
    fn start(rounds: usize) -> Self {
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mesh-clos-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let address = SERVICES.address(Family::V4);
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut words = vec!["certificates".to_owned(), "--out".to_owned(), text(directory.clone())];
        words.extend(["controller", "analyzer"].map(|name| format!("{name}={address}")));
        words.extend(Node::hosts().map(|host| host.to_string()));
        let made = command(SERVICES, &words).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let topology = directory.join("topology.toml");
        fs::write(&topology, clos::wiring()).unwrap();

        let limit = LIMIT * u32::try_from(rounds).unwrap();
        let start = |host: Node, words: &[String]| Part::start(host, words, limit);
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (listen, place) = (format!("{address}:50051"), format!("https://{address}:50051"));
        let (window, rate) = (WINDOW.to_string(), RATE.to_string());
        let tls = |name: &str| text(directory.join(name));
        let mut words = owned(&["controller", "--listen", &listen, "--tls", &tls("controller")]);
        words.extend(owned(&["--window", &window, "--rate", &rate]));
        let mut controller = start(SERVICES, &words);
        controller.line_with("listens on");
        let listen = format!("{address}:50052");
        let mut words = owned(&["analyzer", "--listen", &listen, "--tls", &tls("analyzer")]);
        words.extend(owned(&["--controller", &place, "--topology", topology.to_str().unwrap()]));
        let mut analyzer = start(SERVICES, &words);
        analyzer.line_with("the controller is heard");
        let agents: Vec<(Node, Part)> = Node::hosts()
            .map(|host| {
                let Node::Host(pod, tor, _) = host else { unreachable!("{host} is a host") };
                let (name, tor) = (host.to_string(), Node::Tor(pod, tor).to_string());
                let address = host.address(Family::V4).to_string();
                let mut words = owned(&["agent", "--address", &address, "--tor", &tor, "--host", &name]);
                words.extend(owned(&["--tls", &tls(&name), "--controller", &place]));
                (host, start(host, &words))
            })
            .collect();
        controller.line_with("8 agents, 8 RNICs");
        let files = CredentialFiles::beside(&directory.join(SERVICES.to_string()));
        let credentials = Credentials::read(&files).unwrap();
        let inquiry = Inquiry::with(&format!("https://{listen}"), Some(credentials));
        Self { directory, controller, analyzer, agents, inquiry }
    }

    fn findings(&self) -> FindingsReply {
        namespaces::enter(&SERVICES.to_string(), || self.inquiry.findings()).unwrap()
    }

    /// What the analyzer met, and how the probes of each agent ended.
    fn tallies(&self) -> String {
        let tallies = namespaces::enter(&SERVICES.to_string(), || self.inquiry.tallies()).unwrap();
        let list = |counters: &[Counter]| {
            let met = counters.iter().filter(|counter| counter.count > 0);
            met.map(|counter| format!(" {} {}", counter.count, counter.name)).collect::<String>()
        };
        let agents = tallies.agents.iter().map(|of| format!("\n{}:{}", of.agent, list(&of.outcomes)));
        format!("analyzer:{}{}", list(&tallies.counters), agents.collect::<String>())
    }

    /// The numbers of all findings until now.
    fn known(&self) -> BTreeSet<u64> {
        let reply = self.findings();
        reply.open.iter().chain(&reply.over).map(|finding| finding.id).collect()
    }

    fn wait_for(&self, what: &str, mut is_so: impl FnMut(&FindingsReply) -> bool) -> FindingsReply {
        for _ in 0..BUSY {
            let (end, before) = (now() + SOON, self.probes());
            while now() < end {
                let reply = self.findings();
                if is_so(&reply) {
                    return reply;
                }
                rest(Duration::from_millis(250));
            }
            let probes = self.probes() - before;
            let reply = self.findings();
            let told = || format!("{reply:#?}\n{}", self.tallies());
            assert!(probes < ASKED / 2, "after {SOON:?} still waiting for {what}: {}", told());
            say(&format!(
                "{probes} probes of {ASKED}: this machine is too busy, and {what} is awaited again"
            ));
        }
        panic!("this machine was too busy to probe in each of {BUSY} times {SOON:?}");
    }

    /// Probes of all agents that have ended.
    fn probes(&self) -> u64 {
        let tallies = namespaces::enter(&SERVICES.to_string(), || self.inquiry.tallies()).unwrap();
        let outcomes = tallies.agents.iter().flat_map(|of| &of.outcomes);
        outcomes.filter(|counter| counter.name != "slow").map(|counter| counter.count).sum()
    }

    /// Waits until all paths of probes and answers are traced, so that no new ones are told in two windows.
    fn wait_for_traces(&self) {
        let traces = || {
            let tallies = namespaces::enter(&SERVICES.to_string(), || self.inquiry.tallies()).unwrap();
            tallies.counters.iter().find(|counter| counter.name == "traces").unwrap().count
        };
        let mut seen = (0, 0);
        self.wait_for("traces of all paths", |reply| {
            if reply.agents < 8 || reply.windows < seen.1 + 2 {
                return false;
            }
            let before = std::mem::replace(&mut seen, (traces(), reply.windows));
            before.0 == seen.0 && seen.0 > 200
        });
    }

    /// Waits until no loss is known, in windows that all agents told. What was lost before is told for five
    /// seconds more, and looked at with two windows after it.
    fn wait_for_quiet(&self) {
        let until = self.findings().through_unix_ns + (5 + 4 * WINDOW) * 1_000_000_000;
        self.wait_for("a network without findings of losses", |reply| {
            reply.through_unix_ns >= until && !reply.open.iter().any(is_loss) && reply.agents == 8
        });
    }

    /// Waits for a finding, which names this link and nothing else.
    fn expect(&self, what: &str, from: Node, to: Node) {
        let (known, began) = (self.known(), now());
        let is_new = |finding: &&Finding| is_loss(finding) && !known.contains(&finding.id);
        let reply = self.wait_for(&format!("a finding of {what} lost from {from} to {to}"), |reply| {
            reply.open.iter().any(|finding| is_new(&finding))
        });
        let named: Vec<&Finding> = reply.open.iter().filter(is_new).collect();
        let [finding] = named[..] else { panic!("one link is bad: {named:#?}") };
        assert_eq!(finding.suspects, [format!("link {from} -> {to}")], "{finding:#?}");
        say(&format!("{what} lost from {from} to {to}: named after {:.1} s", (now() - began).as_secs_f64()));
    }

    fn end(self) {
        for (host, part) in self.agents {
            let rest = part.end();
            let last = rest.lines().last().unwrap_or_default();
            assert!(last.contains(" probes ok, ") && !last.starts_with("0 probes"), "{host}: {rest}");
        }
        let rest = self.analyzer.end();
        assert!(
            rest.contains(" kept\n") && !rest.contains("malformed") && !rest.contains("foreign"),
            "{rest}"
        );
        let rest = self.controller.end();
        assert!(rest.contains(" registered\n") && !rest.contains("refused"), "{rest}");
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// `ferroce mesh` in the namespace of a host, without capabilities.
fn command(host: Node, words: &[String]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &host.to_string()]);
    command.args(["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
    command.arg(env!("CARGO_BIN_EXE_ferroce")).arg("mesh").args(words);
    command.stdin(Stdio::null());
    command
}

struct Part {
    child: Child,
    out: BufReader<ChildStdout>,
    is_over: Arc<Notice<bool>>,
}

impl Part {
    fn start(host: Node, words: &[String], limit: Duration) -> Self {
        let mut child = command(host, words).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let is_over = Arc::new(Notice::new(false));
        let (pid, watched) = (child.id(), Arc::clone(&is_over));
        // A part that hangs ends, and so do its lines: then the test says which one it was waiting for.
        thread::spawn(move || {
            if watched.wait(Some(limit), |is_over| is_over.then_some(())).is_none() {
                signal("-KILL", pid);
            }
        });
        Self { child, out, is_over }
    }

    fn line_with(&mut self, what: &str) {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "no line with {what:?} after:\n{seen}");
            if line.contains(what) {
                return;
            }
            seen += &line;
        }
    }

    fn signal(&self, name: &str) {
        signal(name, self.child.id());
    }

    /// Asks for the end, as Ctrl-C does; the rest of what it says.
    fn end(mut self) -> String {
        self.signal("-TERM");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.is_over.change(|is_over| *is_over = true);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.unwrap().success(), "{name} to {pid}");
}
