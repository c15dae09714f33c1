//! A controller, an analyzer and agents, with real probes between real queue pairs.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferroce_mesh::Outcomes;
use ferroce_mesh::controller::{PinglistConfig, RegistryConfig};
use ferroce_meshd::{
    Agent, AgentConfig, AgentRnic, AgentState, AnalyzerServer, AnalyzerServerConfig, BackoffConfig,
    Controller, ControllerConfig, Listener, findings, tallies,
};
use ferroce_verbs::Context;
use ferroce_verbs::time::{now, park};

/// No step takes longer.
const LIMIT: Duration = Duration::from_secs(60);

const BACKOFF: BackoffConfig =
    BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(400) };

/// Waits until something is so, and says what it was waiting for if that never comes.
fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_for_told(|| what.to_owned(), look)
}

/// The same, with what there was instead.
fn wait_for_told<T>(what: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < end, "after {LIMIT:?} still waiting for: {}", what());
        park(Some(Duration::from_millis(20)));
    }
}

fn config() -> ControllerConfig {
    ControllerConfig {
        registry: RegistryConfig { lease: Duration::from_secs(2), ..RegistryConfig::default() },
        pinglist: PinglistConfig { below: 50.0, between: 50.0, answered: 200.0, ..PinglistConfig::default() },
        window: Duration::from_millis(500),
        settle: Duration::from_millis(50),
        ..ControllerConfig::default()
    }
}

fn controller(address: SocketAddr) -> Controller {
    // The address of one that was there a moment ago may not be free yet.
    let listener = wait_for("the address of the controller", || Listener::bind(address).ok());
    Controller::start(listener, config()).unwrap()
}

fn analyzer(address: &str, controller: SocketAddr) -> AnalyzerServer {
    let listener = Listener::bind(address.parse().unwrap()).unwrap();
    let config = AnalyzerServerConfig {
        backoff: BACKOFF,
        grace: Duration::from_secs(2),
        ..AnalyzerServerConfig::new(&controller.to_string())
    };
    AnalyzerServer::start(listener, config).unwrap()
}

fn agent(name: &str, address: &str, tor: &str, controller: SocketAddr) -> Agent {
    agent_with(name, address, tor, controller, |_| ())
}

fn agent_with(
    name: &str,
    address: &str,
    tor: &str,
    controller: SocketAddr,
    change: impl FnOnce(&mut AgentConfig),
) -> Agent {
    let address: IpAddr = address.parse().unwrap();
    let context = Context::builder("ferroce_lo").address(address).open().unwrap();
    let mut config =
        AgentConfig { backoff: BACKOFF, ..AgentConfig::new(name, name, &controller.to_string()) };
    change(&mut config);
    let rnic = AgentRnic { context, address, tor: tor.to_owned(), device: "ferroce_lo".to_owned() };
    Agent::start(config, vec![rnic]).unwrap()
}

fn sum(outcomes: &Outcomes) -> u64 {
    let Outcomes { ok, ack2_lost, ack1_lost, time_out, late, invalid, host, .. } = *outcomes;
    [ok, ack2_lost, ack1_lost, time_out, late, invalid, host].into_iter().map(u64::from).sum()
}

/// All outcomes of an agent, as the analyzer names them.
fn named(state: &AgentState) -> BTreeMap<String, u64> {
    let Outcomes { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host } = state.outcomes;
    let names = ["ok", "slow", "ack2_lost", "ack1_lost", "time_out", "late", "invalid", "host"];
    let counts = [ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host].map(u64::from);
    names.map(str::to_owned).into_iter().zip(counts).collect()
}

#[test]
fn counts_at_the_analyzer_are_those_of_the_agents_though_the_controller_was_killed() {
    let first = controller("127.0.140.1:0".parse().unwrap());
    let place = first.address();
    let judge = analyzer("127.0.140.2:0", place);
    let agents: Vec<(String, Agent)> =
        [("a", "127.0.141.1", "t1"), ("b", "127.0.141.2", "t1"), ("c", "127.0.141.3", "t2")]
            .into_iter()
            .map(|(name, address, tor)| (name.to_owned(), agent(name, address, tor, place)))
            .collect();
    let kept = |at_least: u64| {
        wait_for(&format!("{at_least} windows of each agent at the analyzer"), || {
            let tallies = tallies(&judge.address().to_string()).ok()?;
            let enough = tallies.agents.iter().filter(|agent| agent.kept >= at_least).count();
            (enough == agents.len()).then_some(())
        });
    };
    kept(3);
    for (name, agent) in &agents {
        let state = agent.state();
        // Below their ToR, and one of another ToR; the one that is alone below its ToR has only that.
        assert_eq!(state.targets, if name == "c" { 1 } else { 2 }, "{name}: {state:?}");
        let seen = || format!("probes of {name} that are ok: {:?}", agent.state());
        wait_for_told(seen, || (agent.state().outcomes.ok > 20).then_some(()));
    }
    assert_eq!(first.size(), (3, 3));

    // The controller is killed: probing goes on, and the agents say what they miss.
    drop(first);
    for (name, agent) in &agents {
        wait_for("an agent that misses its controller", || (!agent.state().is_registered).then_some(()));
        let state = agent.state();
        assert!(!state.controller_trouble.is_empty(), "{name}: {state:?}");
        let before = sum(&state.outcomes);
        wait_for("probes without a controller", || {
            (sum(&agent.state().outcomes) > before + 50).then_some(())
        });
    }
    let second = controller(place);
    wait_for("all agents at the new controller", || (second.size() == (3, 3)).then_some(()));
    wait_for("the analyzer at the new controller", || judge.trouble().is_empty().then_some(()));
    let settled: u64 =
        tallies(&judge.address().to_string()).unwrap().agents.iter().map(|agent| agent.kept).max().unwrap();
    kept(settled + 3);

    let states: BTreeMap<String, AgentState> =
        agents.into_iter().map(|(name, agent)| (name, agent.stop(LIMIT))).collect();
    let tallies = tallies(&judge.address().to_string()).unwrap();
    assert_eq!(tallies.agents.len(), 3);
    for tally in &tallies.agents {
        let state = &states[&tally.agent];
        assert_eq!((state.waiting, state.dropped, state.refused, state.untold), (0, 0, 0, 0), "{state:?}");
        assert_eq!((tally.kept, tally.refused, tally.lost), (state.settled, 0, 0), "{tally:?}");
        let told: BTreeMap<String, u64> =
            tally.outcomes.iter().map(|counter| (counter.name.clone(), counter.count)).collect();
        assert_eq!(told, named(state), "agent {}", tally.agent);
        // What was waited for above; a busy host probes more slowly, so there may be no more.
        assert!(sum(&state.outcomes) > 70, "{state:?}");
        assert!(
            state.outcomes.time_out * 10 <= state.outcomes.ok,
            "hardly anything is lost on loopback: {state:?}"
        );
    }
    let counters = judge.counters();
    assert_eq!(
        (counters.foreign_flows, counters.unknown_flows, counters.malformed),
        (0, 0, 0),
        "{counters:?}"
    );
    assert!(counters.windows >= 3, "{counters:?}");
}

#[test]
fn an_analyzer_that_comes_back_gets_the_windows_that_waited() {
    let controller = controller("127.0.142.1:0".parse().unwrap());
    let first = analyzer("127.0.142.2:0", controller.address());
    let place = first.address();
    let one = agent("one", "127.0.143.1", "t1", controller.address());
    let two = agent("two", "127.0.143.2", "t1", controller.address());
    wait_for("settled windows", || (one.state().settled >= 2 && two.state().settled >= 2).then_some(()));
    drop(first);
    wait_for("windows that wait", || (one.state().waiting >= 3).then_some(()));
    assert!(!one.state().analyzer_trouble.is_empty(), "{:?}", one.state());
    let listener = wait_for("the address of the analyzer", || Listener::bind(place).ok());
    let config = AnalyzerServerConfig {
        backoff: BACKOFF,
        ..AnalyzerServerConfig::new(&controller.address().to_string())
    };
    let second = AnalyzerServer::start(listener, config).unwrap();
    let before = one.state().settled;
    wait_for("windows that waited", || (one.state().settled >= before + 4).then_some(()));
    let states = BTreeMap::from([("one", one.stop(LIMIT)), ("two", two.stop(LIMIT))]);
    let tallies = tallies(&second.address().to_string()).unwrap();
    for tally in &tallies.agents {
        let state = &states[tally.agent.as_str()];
        assert_eq!((state.waiting, state.dropped, tally.lost), (0, 0, 0), "{state:?} {tally:?}");
        // What the first one had is gone with it; one window may have been on its way when it went.
        assert!(tally.kept < state.settled && tally.kept >= 4, "{state:?} {tally:?}");
    }
}

#[test]
fn a_host_that_answers_few_probes_is_found_and_not_the_network() {
    let controller = controller("127.0.142.11:0".parse().unwrap());
    let judge = analyzer("127.0.142.12:0", controller.address());
    let agents: Vec<Agent> = (1..=4)
        .map(|last| {
            let (name, address) = (format!("host{last}"), format!("127.0.142.2{last}"));
            agent_with(&name, &address, "t1", controller.address(), |config| {
                config.prober.timeout = Duration::from_millis(300);
                config.prober.late = Duration::from_millis(600);
                if last == 3 {
                    (config.responder.rate, config.responder.burst) = (5, 1);
                }
            })
        })
        .collect();
    let url = judge.address().to_string();
    let seen = || format!("a finding; there is {:?}, and {:?}", findings(&url), agents[0].state());
    let found = wait_for_told(seen, || findings(&url).ok()?.open.into_iter().next());
    assert_eq!(found.trouble, "loss", "{found:?}");
    // Its own probes come and go well: neither its card nor its link is bad.
    assert_eq!(found.suspects, ["host host3"], "{found:?}");
    assert!(found.losses > 10.0 && found.since_unix_ns > 0 && found.over_unix_ns == 0, "{found:?}");
}

#[test]
fn without_a_controller_an_agent_says_so_and_goes_on() {
    let away: SocketAddr = "127.0.144.1:1".parse().unwrap();
    let agent = agent("lonely", "127.0.144.2", "t", away);
    let trouble =
        wait_for("a reason", || Some(agent.state().controller_trouble).filter(|why| !why.is_empty()));
    assert_eq!(trouble, "no controller answers at http://127.0.144.1:1");
    let state = agent.stop(Duration::from_millis(100));
    assert_eq!((state.waiting, state.settled), (1, 0), "the window of its end has nowhere to go");
}
