//! A mesh of processes with a PostgreSQL database, of which one after the other is killed: no finding is lost, none is
//! false, and everything goes on soon.
//!
//! There are 8 agents, and every kind of process is killed once; with `FERROCE_SOAK` set there are 64 agents and 5
//! rounds.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::mesh_support::{Part, is_loss, say};
use ferroce_device::{now, park};
use ferroce_meshd::proto::v1::{AgentTally, Finding, FindingsReply};
use ferroce_meshd::{counters, findings, tallies};
use ferroce_testkit::postgres::Postgres;

/// What was killed goes on within this time. The short form runs beside other tests, and waits for longer.
fn soon() -> Duration {
    Duration::from_secs(if is_soak() { 10 } else { 60 })
}

fn is_soak() -> bool {
    env::var_os("FERROCE_SOAK").is_some()
}

/// No process lives longer, and no other step takes longer.
const LIMIT: Duration = Duration::from_mins(15);
const STEP: Duration = Duration::from_secs(90);

/// RNICs below a ToR.
const BELOW: u8 = 4;

fn address(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 157, last])
}

/// Waits until something is so, and says what there was instead if that never comes; how long it took.
fn wait_for<T>(
    limit: Duration,
    what: impl Fn() -> String,
    mut look: impl FnMut() -> Option<T>,
) -> (T, Duration) {
    let begin = now();
    loop {
        if let Some(found) = look() {
            return (found, now() - begin);
        }
        assert!(now() < begin + limit, "after {limit:?} still waiting for: {}", what());
        park(Some(Duration::from_millis(50)));
    }
}

fn part(words: &[&str], faults: Option<&str>) -> Part {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.arg("mesh").args(words).stdin(Stdio::null());
    if let Some(faults) = faults {
        command.env("FERROCE_FAULTS", faults);
    }
    Part::start_by(command, LIMIT)
}

/// All processes.
struct Mesh {
    postgres: Postgres,
    controllers: [Option<Part>; 2],
    analyzers: [Option<Part>; 2],
    agents: Vec<Part>,
    /// Seconds of a window.
    window: &'static str,
    /// Probes of an RNIC in a second below its ToR, and as many again to others.
    rate: &'static str,
}

impl Mesh {
    const CONTROLLERS: [&'static str; 2] = ["127.0.157.201:50051", "127.0.157.202:50051"];
    const ANALYZERS: [&'static str; 2] = ["127.0.157.201:50052", "127.0.157.202:50052"];

    /// The card of the last agent loses most of what it sends.
    fn start(postgres: Postgres, agents: u8, window: &'static str, rate: &'static str) -> Self {
        let (controllers, analyzers, none) = ([None, None], [None, None], Vec::new());
        let mut mesh = Self { postgres, controllers, analyzers, agents: none, window, rate };
        for place in 0..2 {
            mesh.start_controller(place);
            mesh.start_analyzer(place);
        }
        mesh.agents = (1..=agents).map(|last| Self::agent(last, last == agents)).collect();
        mesh
    }

    fn start_controller(&mut self, place: usize) {
        let url = self.postgres.url();
        let words = [
            "controller",
            "--listen",
            Self::CONTROLLERS[place],
            "--database",
            &url,
            "--window",
            self.window,
            "--rate",
            self.rate,
        ];
        let mut controller = part(&words, None);
        controller.line_with("listens on");
        self.controllers[place] = Some(controller);
    }

    fn start_analyzer(&mut self, place: usize) {
        let (url, controllers) = (self.postgres.url(), Self::CONTROLLERS.join(","));
        let words = [
            "analyzer",
            "--listen",
            Self::ANALYZERS[place],
            "--database",
            &url,
            "--controller",
            &controllers,
        ];
        let mut analyzer = part(&words, None);
        analyzer.line_with("listens on");
        self.analyzers[place] = Some(analyzer);
    }

    fn agent(last: u8, is_bad: bool) -> Part {
        let (at, tor, name) =
            (address(last).to_string(), format!("tor{}", (last - 1) / BELOW), format!("host{last}"));
        let controllers = Self::CONTROLLERS.join(",");
        let words = [
            "agent",
            "--address",
            &at,
            "--tor",
            &tor,
            "--host",
            &name,
            "--name",
            &name,
            "--controller",
            &controllers,
        ];
        let mut agent = part(&words, is_bad.then_some("loss=0.7,seed=1"));
        agent.line_with("answers probes");
        agent
    }

    /// The controller that leads.
    fn leader(&self, limit: Duration) -> usize {
        let told = || format!("a controller that leads: {:?}", Self::CONTROLLERS.map(|at| counters(at).ok()));
        let leads = |at: &&str| counters(at).is_ok_and(|reply| reply.leads);
        wait_for(limit, told, || Self::CONTROLLERS.iter().position(leads)).0
    }

    /// What the analyzer that leads says, and which it is.
    fn findings(&self) -> Option<(usize, FindingsReply)> {
        Self::ANALYZERS.iter().enumerate().find_map(|(place, at)| Some((place, findings(at).ok()?)))
    }

    /// How many probes of each agent have ended, as far as the analyzer that leads knows.
    fn probes(&self) -> BTreeMap<String, u64> {
        let known = Self::ANALYZERS.iter().find_map(|at| tallies(at).ok());
        let sum = |outcomes: &[ferroce_meshd::proto::v1::Counter]| outcomes.iter().map(|one| one.count).sum();
        known
            .into_iter()
            .flat_map(|known| known.agents)
            .map(|of| (of.agent.clone(), sum(&of.outcomes)))
            .collect()
    }

    /// Waits until a window of each agent has come since, and says how long that took.
    fn goes_on(&mut self, after: &str, before: &BTreeMap<String, u64>) {
        let late = |now: &BTreeMap<String, u64>| {
            let is_late = |name: &&String| now.get(*name).is_none_or(|count| *count <= before[*name]);
            before.keys().filter(is_late).cloned().collect::<BTreeSet<_>>()
        };
        let begin = now();
        while now() < begin + soon() {
            if late(&self.probes()).is_empty() {
                let took = now() - begin;
                say(&format!("{after}: all {} agents report again after {took:.1?}", before.len()));
                return;
            }
            park(Some(Duration::from_millis(50)));
        }
        let (late, known) = (late(&self.probes()), self.findings());
        let agent = |name: &String| usize::from(name["host".len()..].parse::<u8>().unwrap() - 1);
        let tallies = Self::ANALYZERS.iter().find_map(|at| tallies(at).ok()).map(|known| known.agents);
        let is_late = |of: &AgentTally| late.contains(&of.agent);
        let tallies: Vec<AgentTally> = tallies.into_iter().flatten().filter(is_late).collect();
        let said: Vec<String> = late.iter().map(|name| self.agents[agent(name)].last_words()).collect();
        panic!(
            "{:?} after {after}, still waiting for windows of {late:?}; {known:?}; {tallies:?}; they say: {said:#?}",
            soon()
        );
    }

    fn wait_for_finding(&self, what: &str, mut is_it: impl FnMut(&Finding) -> bool) -> Finding {
        let told = || format!("{what}; {:?} {:?}", self.findings(), self.probes());
        let look = || self.findings()?.1.open.into_iter().find(|finding| is_it(finding));
        wait_for(STEP, told, look).0
    }
}

#[test]
fn killed_processes_lose_no_finding_and_make_no_false_one() {
    let Some(postgres) = Postgres::start(address(200)).unwrap() else { return };
    let (agents, rounds, window, rate) = if is_soak() { (64, 5, "4", "1") } else { (8, 1, "2", "5") };
    let mut mesh = Mesh::start(postgres, agents, window, rate);
    let bad = address(agents).to_string();
    let found = mesh
        .wait_for_finding("the bad card", |finding| is_loss(finding) && finding.suspects[0].contains(&bad));
    say(&format!("{agents} agents: finding {}: {:?}", found.id, found.suspects));
    let ((), _) = wait_for(
        STEP,
        || format!("all agents to report: {:?}", mesh.probes()),
        || (mesh.probes().len() == usize::from(agents)).then_some(()),
    );

    for round in 1..=rounds {
        let before = mesh.probes();
        let place = mesh.leader(STEP);
        mesh.controllers[place] = None;
        let other = mesh.leader(soon());
        assert_ne!(other, place);
        mesh.goes_on("kill -9 of the controller", &before);
        mesh.start_controller(place);

        let before = mesh.probes();
        mesh.postgres.kill();
        mesh.postgres.start_again().unwrap();
        mesh.goes_on("kill -9 of PostgreSQL", &before);
        mesh.leader(soon());

        let (place, _) = mesh.findings().unwrap();
        let before = mesh.probes();
        mesh.analyzers[place] = None;
        mesh.goes_on("kill -9 of the analyzer", &before);
        mesh.start_analyzer(place);

        // Some agents, but not the one with the bad card.
        let before = mesh.probes();
        let chosen: Vec<u8> = (1..agents).filter(|last| last % 8 == round % 8).collect();
        for last in &chosen {
            let place = usize::from(last - 1);
            let gone = std::mem::replace(&mut mesh.agents[place], part(&["findings", "--help"], None));
            drop(gone);
            mesh.agents[place] = Mesh::agent(*last, false);
        }
        mesh.goes_on(&format!("kill -9 of {} agents", chosen.len()), &before);
    }

    // It was there all the time, under the same number.
    let open = mesh.wait_for_finding("the finding of before", |finding| finding.id == found.id);
    assert_eq!(open.since_unix_ns, found.since_unix_ns);
    assert!(open.suspects.iter().any(|suspect| suspect.contains(&bad)), "{open:?}");
    let (_, reply) = mesh.findings().unwrap();
    let others: Vec<&Finding> =
        reply.open.iter().chain(&reply.over).filter(|finding| finding.id != found.id).collect();
    // All processes share the processors of one machine: where these are busy, packets are late indeed.
    let (lost, late): (Vec<&Finding>, Vec<&Finding>) =
        others.into_iter().partition(|finding| is_loss(finding));
    assert!(lost.is_empty(), "{lost:?}");
    say(&format!("no other finding of loss; of delay: {}", late.len()));
}
