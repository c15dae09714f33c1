//! Receivers that refuse, that never answer, and an analyzer that is started again in between.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::waiting::outlet_support::receiver::Receiver;
use crate::waiting::outlet_support::{directory, free};
use crate::waiting::page_support::mesh::Mesh;
use crate::waiting::page_support::{ask, wait_for};
use ferroce_meshd::outlet::{OutletState, OutletsConfig, PushConfig};
use ferroce_meshd::{
    AnalyzerServer, AnalyzerServerConfig, BackoffConfig, Keeping, Listener, StoreConfig, findings, tallies,
};

/// Soon again; a receiver has a second to answer.
const PUSH: PushConfig = PushConfig {
    waiting: 3,
    bytes: 1 << 20,
    backoff: BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(200) },
    answer: Duration::from_secs(1),
    every: Duration::from_millis(200),
    last: Duration::from_millis(500),
};

fn outlet(analyzer: &AnalyzerServer, name: &str) -> OutletState {
    analyzer.outlets().into_iter().find(|state| state.name == name).unwrap()
}

/// Waits until something is so of an outlet.
fn until(analyzer: &AnalyzerServer, name: &str, is_so: impl Fn(&OutletState) -> bool) {
    let what = || format!("something of {:?}", outlet(analyzer, name));
    wait_for(what, || is_so(&outlet(analyzer, name)).then_some(()));
}

#[test]
fn a_receiver_that_refuses_or_never_answers_costs_the_analyzer_nothing() {
    let refusing = TcpListener::bind("127.0.152.40:0").unwrap();
    let silent = TcpListener::bind("127.0.152.41:0").unwrap();
    let config = OutletsConfig {
        remote_write: Some(format!("http://{}/write", refusing.local_addr().unwrap())),
        otlp: Some(format!("http://{}", silent.local_addr().unwrap())),
        push: PUSH,
        ..OutletsConfig::default()
    };
    thread::spawn(move || {
        for stream in refusing.incoming() {
            let answer = "HTTP/1.1 400 No\r\nContent-Length: 18\r\n\r\nout of\n order: a\tb";
            let _ = stream.unwrap().write_all(answer.as_bytes());
        }
    });
    // What connects is kept, and hears nothing.
    thread::spawn(move || silent.incoming().collect::<Vec<_>>());
    let mesh = Mesh::with([127, 0, 152, 42], &["t1", "t1", "t2"], usize::MAX, config);
    until(&mesh.analyzer, "remote_write", |state| {
        let is_told = state.trouble.ends_with("/write says 400: out of order: a b");
        state.refused > 2 && state.waiting <= 3 && state.sent == 0 && is_told
    });
    until(&mesh.analyzer, "otlp", |state| {
        let is_told = state.trouble.ends_with("does not answer within 1 s");
        state.dropped > 2 && state.waiting == 3 && state.failures > 1 && is_told
    });
    let judged = || mesh.analyzer.counters().windows;
    let before = judged();
    let what = || format!("more windows than {before}: {:?}", mesh.analyzer.counters());
    wait_for(what, || (judged() > before + 4).then_some(()));
    let state = ask(mesh.page(), "/api/state");
    assert_eq!(state["outlets"][0]["last_success_ms"], serde_json::Value::Null, "{state}");
    // What waits has half a second at the end, and is given up then.
    drop(mesh);
}

#[test]
fn an_analyzer_that_is_started_again_tells_what_it_has_not_told() {
    let home = directory("again");
    let hook_at = free("127.0.152.60");
    let outlets = OutletsConfig {
        webhook: Some(format!("http://{hook_at}/hook")),
        push: PushConfig { waiting: 100, ..PUSH },
        ..OutletsConfig::default()
    };
    let mesh = Mesh::start([127, 0, 152, 50], &["t1", "t1", "t1", "t1", "t2", "t2"], 2);
    let Mesh { mut agents, analyzer: other, controller } = mesh;
    let config = AnalyzerServerConfig {
        grace: Duration::from_secs(2),
        store: Some(Keeping::File(StoreConfig::new(home.join("store")))),
        outlets,
        ..AnalyzerServerConfig::new(&controller.address().to_string())
    };
    let begin = || {
        let listener = Listener::bind("127.0.152.61:0".parse().unwrap()).unwrap();
        AnalyzerServer::start(listener, config.clone()).unwrap()
    };
    // In the place of the one without a store.
    drop(other);
    let analyzer = begin();
    let found = |analyzer: &AnalyzerServer| {
        let url = analyzer.address().to_string();
        let what = || format!("a finding: {:?} {:?}", findings(&url), tallies(&url));
        wait_for(what, || findings(&url).ok()?.open.into_iter().next())
    };
    // It ends before anything was taken, and begins anew: then it is told.
    let id = found(&analyzer).id;
    until(&analyzer, "webhook", |state| state.failures > 1 && state.sent == 0 && state.waiting > 0);
    drop(analyzer);
    let analyzer = begin();
    let hook = Receiver::start(hook_at);
    until(&analyzer, "webhook", |state| state.sent > 0 && state.waiting == 0);
    let events = hook.events();
    assert_eq!(
        (&events[0]["event"], &events[0]["finding"]["id"]),
        (&"opened".into(), &id.into()),
        "{events:?}"
    );

    // What was taken is not told again.
    drop(analyzer);
    let analyzer = begin();
    assert_eq!(found(&analyzer).id, id);
    drop(agents.remove(2));
    let is_over = || hook.events().into_iter().find(|event| event["event"] == "closed");
    let closed = wait_for(|| format!("the end: {:?}", hook.events()), is_over);
    assert_eq!(closed["finding"]["id"], id);
    let told = hook.events();
    let of_it: Vec<_> = told.iter().filter(|event| event["finding"]["id"] == id).collect();
    let opened = of_it.iter().filter(|event| event["event"] == "opened").count();
    let numbers: Vec<u64> = of_it.iter().map(|event| event["number"].as_u64().unwrap()).collect();
    assert_eq!((opened, numbers), (1, (1..=of_it.len() as u64).collect()), "{of_it:?}");
    drop((agents, analyzer, controller));
    let _ = fs::remove_dir_all(&home);
}
