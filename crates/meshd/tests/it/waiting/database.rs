//! Several controllers and analyzers with one PostgreSQL database: one of each leads, whatever ends in between.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::waiting::page_support::{get, wait_for};
use ferroce_meshd::page::PageListener;
use ferroce_meshd::{
    Agent, AgentConfig, AgentRnic, AgentState, AnalyzerServer, AnalyzerServerConfig, BackoffConfig,
    Controller, ControllerConfig, DatabaseConfig, Keeping, Listener, findings, tallies,
};
use ferroce_testkit::postgres::Postgres;
use ferroce_verbs::{Context, FaultPlan};

/// No step takes longer.
const LIMIT: Duration = Duration::from_secs(60);

fn postgres(last: u8) -> Option<Postgres> {
    Postgres::start(IpAddr::from([127, 0, 156, last])).unwrap()
}

fn listener(last: u8) -> Listener {
    Listener::bind((IpAddr::from([127, 0, 156, last]), 0).into()).unwrap()
}

fn controller(last: u8, url: &str) -> Controller {
    let mut config = ControllerConfig {
        window: Duration::from_millis(500),
        settle: Duration::from_millis(50),
        ..ControllerConfig::default()
    };
    config.registry.lease = Duration::from_secs(30);
    (config.pinglist.below, config.pinglist.between, config.pinglist.answered) = (50.0, 50.0, 200.0);
    Controller::start_with_database(listener(last), config, &DatabaseConfig::new(url), None).unwrap()
}

fn leads(controller: &Controller) {
    wait_for(
        || format!("{} to lead: {}", controller.address(), controller.trouble()),
        || controller.leads().then_some(()),
    );
}

fn analyzer(last: u8, url: &str, controllers: &[String]) -> AnalyzerServer {
    let backoff = BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(400) };
    let config = AnalyzerServerConfig {
        controllers: controllers.to_vec(),
        store: Some(Keeping::Database(DatabaseConfig::new(url))),
        grace: Duration::from_secs(2),
        backoff,
        ..AnalyzerServerConfig::new("127.0.156.1:1")
    };
    let page = PageListener::bind((IpAddr::from([127, 0, 156, last]), 0).into()).unwrap();
    AnalyzerServer::start_with_page(listener(last), page, config).unwrap()
}

/// An agent whose card loses a share of what it sends.
fn agent(last: u8, controllers: &[String], loss: f64) -> (String, Agent) {
    let (name, address) = (format!("host{last}"), IpAddr::from([127, 0, 156, last]));
    let plan = FaultPlan { loss, seed: 1, ..FaultPlan::default() };
    let context = Context::builder("ferroce_lo").address(address).faults(plan).open().unwrap();
    let backoff = BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(400) };
    let mut config = AgentConfig {
        backoff,
        controllers: controllers.to_vec(),
        ..AgentConfig::new(&name, &name, "127.0.156.1:1")
    };
    config.prober.timeout = Duration::from_millis(100);
    config.prober.late = Duration::from_millis(200);
    let rnic = AgentRnic {
        context,
        address,
        tor: if last < 28 { "t1" } else { "t2" }.to_owned(),
        device: "ferroce_lo".to_owned(),
    };
    (name, Agent::start(config, vec![rnic]).unwrap())
}

fn registered(agents: &[(String, Agent)]) {
    let states = || agents.iter().map(|(_, agent)| agent.state()).collect::<Vec<_>>();
    wait_for(
        || format!("all to be registered: {:?}", states()),
        || states().iter().all(|state| state.is_registered).then_some(()),
    );
}

fn counts(state: &AgentState) -> BTreeMap<String, u64> {
    let all = state.outcomes;
    let names = ["ok", "slow", "ack2_lost", "ack1_lost", "time_out", "late", "invalid", "host"];
    let counts =
        [all.ok, all.slow, all.ack2_lost, all.ack1_lost, all.time_out, all.late, all.invalid, all.host];
    names.map(str::to_owned).into_iter().zip(counts.map(u64::from)).collect()
}

#[test]
fn another_controller_goes_on_with_all_agents_when_the_first_is_gone() {
    let Some(mut postgres) = postgres(10) else { return };
    let url = postgres.url();
    let first = controller(11, &url);
    leads(&first);
    let second = controller(12, &url);
    let place = first.address().to_string();
    wait_for(
        || format!("the second to stand by: {}", second.trouble()),
        || (!second.leads() && second.trouble().contains(&place)).then_some(()),
    );
    let controllers = [second.address().to_string(), first.address().to_string()];
    let mut agents = vec![agent(13, &controllers, 0.0), agent(14, &controllers, 0.0)];
    registered(&agents);
    assert_eq!((first.size(), second.size()), ((2, 2), (0, 0)));

    // Without a database, the one that leads goes on, also with agents that are new; none other takes over.
    postgres.kill();
    wait_for(
        || format!("the trouble: {:?}", first.trouble()),
        || (!first.trouble().is_empty()).then_some(()),
    );
    wait_for(
        || format!("the trouble: {:?}", second.trouble()),
        || second.trouble().contains("no connection").then_some(()),
    );
    agents.push(agent(15, &controllers, 0.0));
    registered(&agents);
    assert!(first.leads() && !second.leads());
    postgres.start_again().unwrap();
    wait_for(|| first.trouble(), || first.trouble().is_empty().then_some(()));
    wait_for(|| second.trouble(), || second.trouble().contains(&place).then_some(()));
    assert!(first.leads() && !second.leads());
    assert_eq!(first.size(), (3, 3));

    // It is gone without a word; agents are known before they register anew.
    drop(first);
    leads(&second);
    assert_eq!((second.size(), second.counters().restored), ((3, 3), 3));
    registered(&agents);
    let state = || agents.iter().map(|(_, agent)| agent.state().targets).collect::<Vec<_>>();
    wait_for(
        || format!("all to probe: {:?}", state()),
        || state().iter().all(|pairs| *pairs == 2).then_some(()),
    );
}

#[test]
fn another_analyzer_goes_on_with_all_findings_and_counts_every_window_once() {
    let Some(mut postgres) = postgres(20) else { return };
    let url = postgres.url();
    let controller = controller(21, &url);
    leads(&controller);
    let controllers = [controller.address().to_string()];
    let first = analyzer(22, &url, &controllers);
    let here = first.address().to_string();
    wait_for(|| first.store_trouble(), || first.leads().then_some(()));
    let mut agents: Vec<(String, Agent)> =
        (23..=26).map(|last| agent(last, &controllers, if last == 25 { 0.5 } else { 0.0 })).collect();
    registered(&agents);
    let seen = || format!("a finding; there is {:?}, and {:?}", first.findings(), agents[0].1.state());
    let found = wait_for(seen, || findings(&here).ok()?.open.into_iter().next());
    assert!(found.suspects.iter().all(|suspect| suspect.contains("127.0.156.25")), "{found:?}");

    let second = analyzer(27, &url, &controllers);
    let there = second.address().to_string();
    wait_for(|| second.store_trouble(), || second.store_trouble().contains(&here).then_some(()));
    assert!(!second.leads());
    let refused = findings(&there).unwrap_err().to_string();
    assert!(refused.contains("stands by") && refused.contains(&here), "{refused}");

    // What the database refuses is tried again, and the place is not given away.
    postgres
        .run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'there is no room'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON ferroce_mesh.report EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    wait_for(|| first.store_trouble(), || first.store_trouble().contains("there is no room").then_some(()));
    let refused = first.counters().not_kept;
    wait_for(
        || format!("{refused} tries, and more"),
        || (first.counters().not_kept > refused + 2).then_some(()),
    );
    assert!(first.leads() && !second.leads());
    postgres.run("DROP FUNCTION refuse CASCADE").unwrap();
    wait_for(|| first.store_trouble(), || first.store_trouble().is_empty().then_some(()));

    // The database is gone: findings stay, others are told, and agents keep what is not kept.
    postgres.kill();
    wait_for(|| first.store_trouble(), || (!first.store_trouble().is_empty()).then_some(()));
    // Below another ToR, which could not be bad itself: the others there are well.
    agents.extend((28..=30).map(|last| agent(last, &controllers, if last == 28 { 0.5 } else { 0.0 })));
    let also = wait_for(
        || format!("another finding: {:?}", first.findings()),
        || first.findings().open.into_iter().find(|open| open.suspects[0].contains("127.0.156.28")),
    );
    wait_for(
        || format!("windows to wait: {:?}", agents[0].1.state()),
        || (agents[0].1.state().waiting >= 2).then_some(()),
    );
    assert!(first.findings().open.iter().any(|open| open.id == found.id));
    postgres.start_again().unwrap();
    wait_for(
        || format!("{}; {:?}", first.store_trouble(), agents[0].1.state()),
        || (first.store_trouble().is_empty() && agents[0].1.state().waiting <= 1).then_some(()),
    );
    assert!(first.leads() && !second.leads());

    drop(first);
    wait_for(|| second.store_trouble(), || second.leads().then_some(()));
    let open = second.findings().open;
    for known in [&found, &also] {
        let same = open.iter().find(|open| open.id == known.id);
        let same = same.unwrap_or_else(|| panic!("{known:?} is not in {open:?}"));
        assert_eq!((same.since_unix_ns, &same.trouble), (known.since_unix_ns, &known.trouble));
    }
    let reporting = || agents.iter().map(|(_, agent)| agent.state()).collect::<Vec<_>>();
    wait_for(
        || format!("all to report: {:?}", reporting()),
        || reporting().iter().all(|state| state.is_reporting).then_some(()),
    );

    // In the end both know the same of every probe.
    let told: BTreeMap<String, BTreeMap<String, u64>> = agents
        .into_iter()
        .map(|(name, agent)| {
            let state = agent.stop(LIMIT);
            assert_eq!((state.waiting, state.dropped), (0, 0), "{state:?}");
            (name, counts(&state))
        })
        .collect();
    let known: BTreeMap<String, BTreeMap<String, u64>> = tallies(&there)
        .unwrap()
        .agents
        .into_iter()
        .map(|known| (known.agent, known.outcomes.into_iter().map(|one| (one.name, one.count)).collect()))
        .collect();
    assert_eq!(known, told);
}

#[test]
fn a_database_that_is_away_at_the_start_is_waited_for_and_the_page_says_so() {
    let Some(mut postgres) = postgres(30) else { return };
    let url = postgres.url();
    postgres.kill();
    let controller = controller(31, &url);
    let analyzer = analyzer(32, &url, &[controller.address().to_string()]);
    let is_said = |trouble: &str| trouble.contains("no connection to the database postgres at 127.0.156.30");
    wait_for(|| controller.trouble(), || is_said(&controller.trouble()).then_some(()));
    wait_for(|| analyzer.store_trouble(), || is_said(&analyzer.store_trouble()).then_some(()));
    assert!(!controller.leads() && !analyzer.leads());
    let page = analyzer.page().unwrap();
    let (_, answer) = get(page, "/api/state");
    assert!(
        answer.contains("no connection to the database") && answer.contains("\"leads\":false"),
        "{answer}"
    );
    postgres.start_again().unwrap();
    leads(&controller);
    wait_for(|| analyzer.store_trouble(), || analyzer.leads().then_some(()));
    assert!(analyzer.store_trouble().is_empty());
}
