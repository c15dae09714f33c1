//! Services across a mesh: programs on endpoints, each in a process of its own, and agents that hear of them.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../verbs/tests/processes/child.rs"]
mod child;
#[path = "it/waiting/page_support/mod.rs"]
mod page_support;

use std::net::SocketAddr;
use std::time::Duration;

use child::{Other, listen, role, tell};
use ferroce_endpoint::{Connection, Listener};
use ferroce_mesh::controller::{PinglistConfig, RegistryConfig};
use ferroce_meshd::proto::v1::FindingsReply;
use ferroce_meshd::{
    Agent, AgentConfig, AgentRnic, AnalyzerServer, AnalyzerServerConfig, BackoffConfig, Controller,
    ControllerConfig, Listener as MeshListener, findings,
};
use ferroce_verbs::time::{now, park};
use ferroce_verbs::{Context, FaultPlan};
use page_support::{ask, wait_for};

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(60);

const BACKOFF: BackoffConfig =
    BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(400) };

/// The card of this host loses packets that it sends.
const BAD: u8 = 13;
const LOSS: &str = "loss=0.1,seed=3";

fn address(last: u8) -> String {
    format!("127.0.150.{last}")
}

/// A program on endpoints: one end of a service, as its role says, until it is told to end.
#[test]
fn the_other_process() {
    let Some(role) = role() else { return };
    let connection = match role.split_once(' ').unwrap() {
        ("serves", place) => {
            let listener = Listener::bind(place).unwrap();
            tell("listens");
            listener.accept().wait_for(SOON).unwrap()
        }
        ("uses", place) => Connection::connect(place).wait().unwrap(),
        other => panic!("no role {other:?}"),
    };
    tell("connected");
    let talks = std::thread::spawn(move || {
        // Some hundred messages in a second, in both directions.
        while connection.send(&[7; 5000]).wait_for(SOON).is_ok() && connection.recv().wait_for(SOON).is_ok() {
            park(Some(Duration::from_millis(2)));
        }
    });
    assert_eq!(listen(), "end");
    drop(talks);
    std::process::exit(0);
}

/// Both ends of a service, each a process on the device of a host.
struct Service {
    ends: Vec<Other>,
}

impl Service {
    /// A service of this name from one host to another. Its processes have the same faults as the agents there.
    fn start(name: &str, from: u8, to: u8) -> Self {
        let place = format!("{}:7000", address(to));
        let start = |role: String, at: u8| {
            let own = address(at);
            let faults = if at == BAD { LOSS } else { "" };
            let all = [("FERROCE_ADDRESS", &own[..]), ("FERROCE_SERVICE", name), ("FERROCE_FAULTS", faults)];
            let set: Vec<(&str, &str)> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
            Other::start("the_other_process", &role, &set)
        };
        let mut serves = start(format!("serves {place}"), to);
        assert_eq!(serves.hear(), "listens");
        let mut uses = start(format!("uses {place}"), from);
        assert_eq!((uses.hear(), serves.hear()), ("connected".to_owned(), "connected".to_owned()));
        Self { ends: vec![serves, uses] }
    }

    fn end(mut self) {
        self.ends.iter_mut().for_each(|end| end.say("end"));
    }
}

fn agent(last: u8, tor: &str, controller: SocketAddr) -> Agent {
    let address = address(last).parse().unwrap();
    let mut context = Context::builder("ferroce_lo").address(address);
    if last == BAD {
        context = context.faults(FaultPlan::parse(LOSS).unwrap());
    }
    let name = format!("host{last}");
    let mut config =
        AgentConfig { backoff: BACKOFF, ..AgentConfig::new(&name, &name, &controller.to_string()) };
    config.prober.timeout = Duration::from_millis(100);
    config.prober.late = Duration::from_millis(200);
    let rnic = AgentRnic {
        context: context.open().unwrap(),
        address,
        tor: tor.to_owned(),
        device: "ferroce_lo".to_owned(),
    };
    Agent::start(config, vec![rnic]).unwrap()
}

#[test]
fn a_finding_says_which_services_suffer_and_which_do_not() {
    let config = ControllerConfig {
        registry: RegistryConfig { lease: Duration::from_secs(2), ..RegistryConfig::default() },
        pinglist: PinglistConfig { below: 50.0, between: 50.0, answered: 200.0, ..PinglistConfig::default() },
        window: Duration::from_secs(1),
        settle: Duration::from_millis(50),
        ..ControllerConfig::default()
    };
    let listener = MeshListener::bind("127.0.150.1:0".parse().unwrap()).unwrap();
    let controller = Controller::start(listener, config).unwrap();
    let config = AnalyzerServerConfig {
        backoff: BACKOFF,
        grace: Duration::from_secs(2),
        page: Some("127.0.150.2:0".parse().unwrap()),
        ..AnalyzerServerConfig::new(&controller.address().to_string())
    };
    let listener = MeshListener::bind("127.0.150.2:0".parse().unwrap()).unwrap();
    let analyzer = AnalyzerServer::start(listener, config).unwrap();
    let agents: Vec<Agent> = [(11, "t1"), (12, "t1"), (BAD, "t2"), (14, "t2"), (15, "t1")]
        .map(|(last, tor)| agent(last, tor, controller.address()))
        .into();
    let train = Service::start("train", BAD, 11);
    let store = Service::start("store", 12, 14);

    let url = analyzer.address().to_string();
    let told = || findings(&url).unwrap();
    let seen = || format!("a finding that says what it means for services: {:#?}", told());
    // Probes from its port may meet the trouble before its own packets are counted.
    let suffers = |reply: &FindingsReply| {
        let all = ["train", "store"].map(|name| reply.services.iter().find(|one| one.service == name));
        let [Some(train), Some(store)] = all else { return false };
        let is_seen = train.again >= 3 && store.sent > 0 && (train.flows, store.flows) == (2, 2);
        is_seen && reply.open.iter().any(|finding| finding.priority == "P0")
    };
    let reply = wait_for(seen, || Some(told()).filter(suffers));
    let finding = reply.open.iter().find(|finding| finding.priority == "P0").unwrap();
    let named: Vec<(&str, &str)> =
        finding.services.iter().map(|one| (&one.service[..], &one.priority[..])).collect();
    assert_eq!(named, [("train", "P0")], "{finding:#?}");
    let is_bad = |suspect: &String| suspect.contains(&address(BAD)) || suspect.contains("host13");
    assert!(finding.suspects.iter().any(is_bad), "{finding:#?}");
    let example = &finding.services[0].examples[0];
    let mut ends = [&example.from, &example.to];
    ends.sort_unstable();
    assert_eq!(ends, [&address(11), &address(BAD)], "{finding:#?}");
    let state = |name: &str| reply.services.iter().find(|one| one.service == name).unwrap();
    assert_eq!((state("train").priority.as_str(), state("train").hosts, state("train").flows), ("P0", 2, 2));
    assert!(state("train").again >= 3 && state("train").findings.contains(&finding.id), "{reply:#?}");
    assert_eq!((state("store").priority.as_str(), state("store").hosts, state("store").flows), ("", 2, 2));

    // The page and the metrics say the same.
    let page = analyzer.page().unwrap();
    let window = wait_for(
        || format!("a window with services on the page: {}", ask(page, "/api/window/newest")["services"]),
        || Some(ask(page, "/api/window/newest")).filter(|window| window["services"][0]["priority"] == "P0"),
    );
    assert_eq!(
        (&window["services"][0]["name"], &window["services"][1]["name"]),
        (&"train".into(), &"store".into())
    );
    assert!(window["services"][1]["priority"].is_null(), "{}", window["services"]);
    let text = page_support::get(page, "/metrics").1;
    for line in
        ["ferroce_mesh_service_flows{service=\"train\"} 2", "ferroce_mesh_service_flows{service=\"store\"} 2"]
    {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    assert!(text.contains("ferroce_mesh_service_flows_crossing{service=\"store\"} 0"), "{text}");

    // Agents probe from the ports of services on their hosts, also RNICs that they have no list for.
    for (place, services) in [(0, 1), (1, 1), (2, 1), (3, 1), (4, 0)] {
        let state = agents[place].state();
        assert_eq!((state.services, state.borrowed), (services, services), "agent {place}: {state:?}");
        assert_eq!((state.services_left_out, state.services_trouble.as_str()), (0, ""), "{state:?}");
    }
    let counters = analyzer.counters();
    assert!(counters.services > 0, "{counters:?}");
    assert_eq!((counters.foreign_services, counters.unknown_services, counters.untold_services), (0, 0, 0));

    // Services that are gone are forgotten, and nothing is probed for them.
    train.end();
    store.end();
    let seen = || format!("a mesh without services: {:?}, {:?}", told().services, agents[0].state());
    wait_for(seen, || {
        let is_free = |agent: &Agent| (agent.state().services, agent.state().borrowed) == (0, 0);
        (told().services.is_empty() && agents.iter().all(is_free)).then_some(())
    });
    let began = now();
    let over = agents.into_iter().map(|agent| agent.stop(SOON)).collect::<Vec<_>>();
    assert!(now() - began < SOON, "{over:?}");
}
