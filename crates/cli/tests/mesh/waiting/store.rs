//! An analyzer with a file is killed while it has a finding: what it has acknowledged is counted once, and the finding
//! stays.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use ferroce::{Context, FaultPlan};
use ferroce_device::{now, park};
use ferroce_meshd::{
    Agent, AgentConfig, AgentRnic, AgentState, BackoffConfig, Controller, ControllerConfig, Listener,
    findings, tallies,
};

/// No step takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something is so, and says what there was instead if that never comes.
fn wait_for<T>(what: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < end, "after {LIMIT:?} still waiting for: {}", what());
        park(Some(Duration::from_millis(20)));
    }
}

/// A file in a directory of its own, which goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("ferroce-{name}-{}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("analyzer.db")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(listen: &str, controller: SocketAddr, store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.args([
        "mesh",
        "analyzer",
        "--listen",
        listen,
        "--controller",
        &controller.to_string(),
        "--store",
    ]);
    command.arg(store);
    command
}

/// An analyzer as a process, which is killed when this is dropped.
struct Analyzer {
    child: Child,
    address: String,
    /// It says more, which is not read: but there is to be a reader.
    _out: BufReader<ChildStdout>,
}

impl Analyzer {
    fn start(listen: &str, controller: SocketAddr, store: &Path) -> Self {
        let mut child = command(listen, controller, store).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let words = line.split_whitespace();
        let address = words.skip_while(|word| *word != "on").nth(1).map(str::to_owned);
        Self { child, address: address.unwrap_or_else(|| panic!("it says {line:?}")), _out: out }
    }
}

impl Drop for Analyzer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn controller() -> Controller {
    let mut config = ControllerConfig {
        window: Duration::from_millis(500),
        settle: Duration::from_millis(50),
        ..ControllerConfig::default()
    };
    config.registry.lease = Duration::from_secs(5);
    (config.pinglist.below, config.pinglist.between, config.pinglist.answered) = (50.0, 50.0, 200.0);
    Controller::start(Listener::bind("127.0.148.1:0".parse().unwrap()).unwrap(), config).unwrap()
}

/// The card of the third of them loses half of what it sends.
fn agent(last: u8, controller: SocketAddr) -> (String, Agent) {
    let (name, address) = (format!("host{last}"), IpAddr::from([127, 0, 148, 20 + last]));
    let loss = if last == 3 { 0.5 } else { 0.0 };
    let plan = FaultPlan { loss, seed: 1, ..FaultPlan::default() };
    let context = Context::builder("ferroce_lo").address(address).faults(plan).open().unwrap();
    let backoff = BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(400) };
    let mut config = AgentConfig { backoff, ..AgentConfig::new(&name, &name, &controller.to_string()) };
    config.prober.timeout = Duration::from_millis(100);
    config.prober.late = Duration::from_millis(200);
    let rnic = AgentRnic { context, address, tor: "t1".to_owned(), device: "ferroce_lo".to_owned() };
    (name, Agent::start(config, vec![rnic]).unwrap())
}

fn counts(state: &AgentState) -> BTreeMap<String, u64> {
    let all = state.outcomes;
    let names = ["ok", "slow", "ack2_lost", "ack1_lost", "time_out", "late", "invalid", "host"];
    let counts =
        [all.ok, all.slow, all.ack2_lost, all.ack1_lost, all.time_out, all.late, all.invalid, all.host];
    names.map(str::to_owned).into_iter().zip(counts.map(u64::from)).collect()
}

#[test]
fn a_killed_analyzer_loses_no_finding_and_counts_every_window_once() {
    let place = Place::new("mesh-store");
    let controller = controller();
    let mut analyzer = Analyzer::start("127.0.148.2:0", controller.address(), &place.file());
    let agents: Vec<(String, Agent)> = (1..=4).map(|last| agent(last, controller.address())).collect();
    let url = analyzer.address.clone();
    let seen = || format!("a finding; there is {:?}, and {:?}", findings(&url), agents[0].1.state());
    let found = wait_for(seen, || findings(&url).ok()?.open.into_iter().next());
    assert!(found.suspects.iter().all(|suspect| suspect.contains("127.0.148.23")), "{found:?}");

    // Another one does not take the file.
    let other = command("127.0.148.3:0", controller.address(), &place.file()).output().unwrap();
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(!other.status.success() && said.contains("is in use by another analyzer"), "{said}");

    for _ in 0..3 {
        drop(analyzer);
        let settled: u64 = agents.iter().map(|(_, agent)| agent.state().settled).sum();
        analyzer = Analyzer::start(&url, controller.address(), &place.file());
        let seen = || format!("findings; there is {:?}", findings(&url));
        let again = wait_for(seen, || findings(&url).ok()).open;
        let what = again.iter().map(|finding| (finding.id, finding.since_unix_ns)).collect::<Vec<_>>();
        assert_eq!(what, [(found.id, found.since_unix_ns)], "it is told at once: {again:?}");
        let all = || agents.iter().map(|(_, agent)| agent.state().settled).sum::<u64>();
        wait_for(
            || format!("more windows than {settled}: {}", all()),
            || (all() >= settled + 12).then_some(()),
        );
    }
    let told = findings(&url).unwrap();
    let open: Vec<u64> = told.open.iter().map(|finding| finding.id).collect();
    assert_eq!(open, [found.id], "{told:?}, {:?}", tallies(&url));

    let states: BTreeMap<String, AgentState> =
        agents.into_iter().map(|(name, agent)| (name, agent.stop(LIMIT))).collect();
    let told = tallies(&url).unwrap();
    assert_eq!(told.agents.len(), 4, "{told:?}");
    for tally in &told.agents {
        let state = &states[&tally.agent];
        assert_eq!((state.waiting, state.dropped, state.refused), (0, 0, 0), "{state:?}");
        assert_eq!((tally.kept, tally.lost), (state.settled, 0), "{tally:?}");
        let sums: BTreeMap<String, u64> =
            tally.outcomes.iter().map(|counter| (counter.name.clone(), counter.count)).collect();
        assert_eq!(sums, counts(state), "agent {}", tally.agent);
    }
}
