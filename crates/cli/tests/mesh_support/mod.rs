//! A mesh of processes on a Clos network of kernel routers, as several tests need it.
//!
//! The controller and the analyzer are processes on one host, and each host has an agent, all with certificates and
//! without capabilities.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferroce_device::cm::Notice;
use ferroce_device::{now, park};
use ferroce_meshd::Inquiry;
use ferroce_meshd::proto::v1::{Counter, Finding, FindingsReply};
use ferroce_meshd::tls::{CredentialFiles, Credentials};
use ferroce_testkit::clos::{self, Clos, Family, Node};
use ferroce_testkit::namespaces;

/// Seconds of a window, and probes of an RNIC in a second to other ToRs.
pub const WINDOW: u64 = 1;
pub const RATE: u32 = 200;

/// The host of the controller and of the analyzer, which has an agent like any other.
pub const SERVICES: Node = Node::Host(0, 0, 0);

/// So soon what is bad is named.
pub const SOON: Duration = Duration::from_secs(60);

/// Probes of all RNICs in that time: with as many below ToRs as between them.
const ASKED: u64 = 8 * 2 * RATE as u64 * SOON.as_secs();

/// So often it is waited again where a machine does not get half of them out, since too few packets cross a
/// link then.
const BUSY: u32 = 5;

/// No process lives longer in one round.
const LIMIT: Duration = Duration::from_mins(20);

/// Drops packets of RoCEv2 that a router gives to another and that are so.
pub fn drop_on(clos: &Clos, from: Node, to: Node, which: &str) {
    clos.filter(
        from,
        &format!(
            "table inet bad {{ chain c {{ type filter hook forward priority 0;\n\
             oifname \"{to}\" udp dport 4791 {which} drop\n }}\n}}\n"
        ),
    );
}

/// Lets a time pass. A thread that ends may wake this one sooner, so that one look at the clock is not
/// enough.
pub fn rest(time: Duration) {
    let end = now() + time;
    while now() < end {
        park(Some(end - now()));
    }
}

/// All nodes share the processors of one machine: where these are busy, packets are late indeed, so only
/// losses are judged.
pub fn is_loss(finding: &Finding) -> bool {
    finding.trouble == "loss"
}

pub fn say(line: &str) {
    let _ = io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// The parts of a mesh, each a process.
pub struct Mesh {
    directory: PathBuf,
    controller: Part,
    analyzer: Part,
    pub agents: Vec<(Node, Part)>,
    inquiry: Inquiry,
}

impl Mesh {
    pub fn start(rounds: usize) -> Self {
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

    pub fn findings(&self) -> FindingsReply {
        namespaces::enter(&SERVICES.to_string(), || self.inquiry.findings()).unwrap()
    }

    /// What the analyzer met, and how the probes of each agent ended.
    pub fn tallies(&self) -> String {
        let tallies = namespaces::enter(&SERVICES.to_string(), || self.inquiry.tallies()).unwrap();
        let list = |counters: &[Counter]| {
            let met = counters.iter().filter(|counter| counter.count > 0);
            met.map(|counter| format!(" {} {}", counter.count, counter.name)).collect::<String>()
        };
        let agents = tallies.agents.iter().map(|of| format!("\n{}:{}", of.agent, list(&of.outcomes)));
        format!("analyzer:{}{}", list(&tallies.counters), agents.collect::<String>())
    }

    /// The numbers of all findings until now.
    pub fn known(&self) -> BTreeSet<u64> {
        let reply = self.findings();
        reply.open.iter().chain(&reply.over).map(|finding| finding.id).collect()
    }

    pub fn wait_for(&self, what: &str, mut is_so: impl FnMut(&FindingsReply) -> bool) -> FindingsReply {
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
    pub fn probes(&self) -> u64 {
        let tallies = namespaces::enter(&SERVICES.to_string(), || self.inquiry.tallies()).unwrap();
        let outcomes = tallies.agents.iter().flat_map(|of| &of.outcomes);
        outcomes.filter(|counter| counter.name != "slow").map(|counter| counter.count).sum()
    }

    /// Waits until all paths of probes and answers are traced, so that no new ones are told in two windows.
    pub fn wait_for_traces(&self) {
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
    pub fn wait_for_quiet(&self) {
        let until = self.findings().through_unix_ns + (5 + 4 * WINDOW) * 1_000_000_000;
        self.wait_for("a network without findings of losses", |reply| {
            reply.through_unix_ns >= until && !reply.open.iter().any(is_loss) && reply.agents == 8
        });
    }

    /// Waits for a finding, which names this link and nothing else.
    pub fn expect(&self, what: &str, from: Node, to: Node) {
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

    pub fn end(self) {
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
pub fn command(host: Node, words: &[String]) -> Command {
    let mut command = ferroce(host);
    command.arg("mesh").args(words);
    command
}

/// `ferroce` in the namespace of a host, without capabilities.
pub fn ferroce(host: Node) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &host.to_string()]);
    command.args(["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
    command.arg(env!("CARGO_BIN_EXE_ferroce"));
    command.stdin(Stdio::null());
    command
}

pub struct Part {
    child: Child,
    out: BufReader<ChildStdout>,
    is_over: Arc<Notice<bool>>,
}

impl Part {
    pub fn start(host: Node, words: &[String], limit: Duration) -> Self {
        Self::start_by(command(host, words), limit)
    }

    pub fn start_by(mut command: Command, limit: Duration) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
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

    pub fn line_with(&mut self, what: &str) {
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

    pub fn signal(&self, name: &str) {
        signal(name, self.child.id());
    }

    /// Asks for the end, as Ctrl-C does; the rest of what it says.
    pub fn end(mut self) -> String {
        let rest = self.last_words();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }

    /// Asks for the end; the rest of what it says.
    pub fn last_words(&mut self) -> String {
        self.signal("-TERM");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
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

pub fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.unwrap().success(), "{name} to {pid}");
}
