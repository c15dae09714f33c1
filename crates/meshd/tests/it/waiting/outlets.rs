//! What leaves an analyzer, judged by the programs that it is meant for.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::waiting::outlet_support::prometheus::Prometheus;
use crate::waiting::outlet_support::python::{Collector, python, windows};
use crate::waiting::outlet_support::receiver::Receiver;
use crate::waiting::outlet_support::{directory, free};
use crate::waiting::page_support::mesh::Mesh;
use crate::waiting::page_support::{LIMIT, ask, get, wait_for};
use ferroce_mesh::Outcomes;
use ferroce_meshd::outlet::{OutletState, OutletsConfig, PushConfig, WindowsConfig};
use ferroce_meshd::{AnalyzerServer, AnalyzerServerConfig, BackoffConfig, Listener, findings};
use ferroce_testkit::judge;

const NAMES: [&str; 8] = ["ok", "slow", "ack2_lost", "ack1_lost", "time_out", "late", "invalid", "host"];

/// Soon again, and soon anew.
const PUSH: PushConfig = PushConfig {
    waiting: 400,
    bytes: 64 << 20,
    backoff: BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(200) },
    answer: Duration::from_secs(10),
    every: Duration::from_millis(500),
    last: Duration::from_secs(10),
};

fn outlet(mesh: &Mesh, name: &str) -> OutletState {
    mesh.analyzer.outlets().into_iter().find(|state| state.name == name).unwrap()
}

/// Waits until something is so of an outlet.
fn until(mesh: &Mesh, name: &str, is_so: impl Fn(&OutletState) -> bool) {
    let what = || format!("something of {:?}", outlet(mesh, name));
    wait_for(what, || is_so(&outlet(mesh, name)).then_some(()));
}

fn add(sums: &mut [u64; 8], outcomes: &Outcomes) {
    let Outcomes { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host } = *outcomes;
    let counts = [ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host];
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(count));
}

/// Ends an agent, and adds up what it counted.
fn end(agent: ferroce_meshd::Agent, sums: &mut [u64; 8]) {
    let state = agent.stop(LIMIT);
    assert_eq!((state.waiting, state.dropped, state.refused, state.untold), (0, 0, 0, 0), "{state:?}");
    add(sums, &state.outcomes);
}

#[test]
fn all_that_leaves_an_analyzer_agrees_with_the_agents() {
    let Some(python) = python() else { return };
    if !judge::is_here("prometheus") {
        return;
    }
    let (home, store) = (directory("all"), directory("all-prometheus"));
    let places = [free("127.0.152.90"), free("127.0.152.91"), free("127.0.152.92")];
    let [prometheus_at, collector_at, hook_at] = places;
    let config = OutletsConfig {
        remote_write: Some(format!("http://{prometheus_at}")),
        otlp: Some(format!("http://{collector_at}")),
        webhook: Some(format!("http://{hook_at}/hook")),
        windows: Some(WindowsConfig::new(&home)),
        push: PUSH,
    };
    let (one, other) = ("t\"1\\", "{tor=\"2\"} \u{1f980}");
    let mut mesh = Mesh::with([127, 0, 152, 70], &[one, one, one, one, other, other], 2, config);
    let (place, url) = (mesh.page(), mesh.analyzer.address().to_string());

    // Nothing is there at first: it is tried again, and said.
    for name in ["remote_write", "otlp"] {
        until(&mesh, name, |state| state.failures > 1 && state.trouble.contains("nothing answers at http"));
    }
    let state = ask(place, "/api/state");
    assert_eq!(state["outlets"][0]["name"], "remote_write", "{state}");
    assert!(state["outlets"][0]["trouble"].as_str().unwrap().contains("nothing answers"), "{state}");
    let prometheus = Prometheus::start(prometheus_at, &store);
    let collector = Collector::start(&python, collector_at);
    let seen = || format!("a finding: {:?}", findings(&url));
    wait_for(seen, || findings(&url).ok()?.open.into_iter().next());
    until(&mesh, "webhook", |state| state.failures > 1 && state.waiting > 0);
    let hook = Receiver::start(hook_at);
    until(&mesh, "webhook", |state| state.sent > 0 && state.waiting == 0 && state.trouble.is_empty());
    for name in ["remote_write", "otlp"] {
        until(&mesh, name, |state| state.sent > 3 && state.waiting < 3 && state.trouble.is_empty());
    }
    prometheus.expect("sum(ferroce_mesh_findings_open{kind=\"host\"})", 1);

    // Prometheus goes away for a while, and comes back with what it had.
    drop(prometheus);
    let before = outlet(&mesh, "remote_write").failures;
    until(&mesh, "remote_write", |state| state.failures > before + 2 && state.waiting > 2);
    let prometheus = Prometheus::start(prometheus_at, &store);

    // The bad host goes, so that what was found is over.
    let mut sums = [0; 8];
    end(mesh.agents.remove(2), &mut sums);
    let what = || format!("the end of a finding: {:?} {:?}", hook.seen(), findings(&url));
    wait_for(what, || hook.events().iter().any(|event| event["event"] == "closed").then_some(()));
    for agent in mesh.agents.drain(..) {
        end(agent, &mut sums);
    }
    let state = ask(place, "/api/state");
    let scraped = get(place, "/metrics").1;
    let is_of_outlet = |line: &&str| line.starts_with("ferroce_mesh_outlet_");
    assert_eq!(scraped.lines().filter(is_of_outlet).count(), 4 * 6, "{scraped}");
    let series = scraped.lines().filter(|line| !line.starts_with('#')).count();
    let refused: Vec<u64> = mesh.analyzer.outlets().iter().map(|one| one.refused + one.dropped).collect();
    assert_eq!(refused, [0; 4], "{:?}", mesh.analyzer.outlets());
    drop(mesh);

    // Prometheus: the same sums, and so many series.
    for (name, sum) in NAMES.iter().zip(sums) {
        assert_eq!(state["totals"]["outcomes"][name], sum, "{name}");
        match *name {
            "slow" => prometheus.expect("sum(ferroce_mesh_probes_slow_total)", sum),
            _ => prometheus.expect(&format!("sum(ferroce_mesh_probes_total{{outcome=\"{name}\"}})"), sum),
        }
    }
    prometheus.expect("sum(ferroce_mesh_probes_total)", state["totals"]["probes"].as_u64().unwrap());
    prometheus.expect("count({job=\"ferroce-mesh\"})", series as u64);
    assert!(series <= 2 * 27 + 110, "{series} series of two ToRs");
    prometheus.expect("count(count by (tor) (ferroce_mesh_probes_total))", 2);
    prometheus.expect("count(ferroce_mesh_probes_slow_total{tor=\"t\\\"1\\\\\"})", 1);
    let labels = "__name__ event instance job kind le outcome outlet part priority severity tor";
    assert_eq!(prometheus.labels().join(" "), labels, "never tuples or RNICs");

    // The collector.
    let told = collector.told();
    assert_eq!((&told["backwards"], &told["refused"]), (&0.into(), &1.into()), "{told}");
    assert_eq!((&told["error"], told["starts"].as_array().unwrap().len()), (&serde_json::Value::Null, 1));
    assert_eq!(told["resource"]["service.name"], "ferroce-mesh");
    let probes = told["sums"]["ferroce_mesh_probes_total"].as_object().unwrap();
    for (name, sum) in NAMES.iter().zip(sums).filter(|(name, _)| **name != "slow") {
        let is_one =
            |labels: &str| serde_json::from_str::<serde_json::Value>(labels).unwrap()["outcome"] == *name;
        let counted =
            probes.iter().filter(|(labels, _)| is_one(labels)).map(|(_, count)| count.as_u64().unwrap());
        assert_eq!(counted.sum::<u64>(), sum, "{name} at the collector");
    }
    let trips = told["histograms"]["ferroce_mesh_round_trip_seconds"].as_object().unwrap();
    let trips: u64 = trips.values().map(|count| count.as_u64().unwrap()).sum();

    // DuckDB.
    let read = windows(&python, &home);
    assert_eq!(read["sums"], serde_json::json!(sums), "{read}");
    assert_eq!(
        (&read["doubles"], &read["wrong"], &read["hosts"]),
        (&0.into(), &0.into(), &0.into()),
        "{read}"
    );
    assert_eq!(read["trips"], trips, "{read}");
    let ended = state["windows"].as_array().unwrap().last().unwrap()[2].as_u64().unwrap();
    let newest = read["newest_us"].as_u64().unwrap() / 1000;
    assert!(newest.abs_diff(ended) < 60_000, "{newest} ms, {ended} ms: {read}");
    assert_eq!(read["tors"], serde_json::json!([one, other]));
    assert_eq!(read["agents"].as_array().unwrap().len(), 6);
    assert!(files(&home).len() > 5, "a file for each window: {:?}", files(&home));

    told_events(&hook, &url);
    let _ = fs::remove_dir_all(&home);
    let _ = fs::remove_dir_all(&store);
}

/// A finding opened and closed; the first event came three times, and its id says so.
fn told_events(hook: &Receiver, url: &str) {
    let (seen, events) = (hook.seen(), hook.events());
    assert!(seen.iter().take(3).all(|(id, _)| *id == seen[0].0), "{seen:?}");
    let opened = &events[0];
    assert_eq!((&opened["event"], &opened["number"]), (&"opened".into(), &1.into()), "{opened}");
    assert_eq!(opened["analyzer"], format!("http://{url}"));
    assert_eq!(opened["finding"]["suspects"][0], "host host3", "{opened}");
    assert!(opened["finding"]["evidence"]["losses"].as_f64().unwrap() > 2.0, "{opened}");
    assert!(opened["finding"]["since_ms"].as_u64().unwrap() > 1_700_000_000_000, "{opened}");
    assert_eq!(opened["finding"]["over_ms"], serde_json::Value::Null);
    let closed = events.iter().find(|event| event["event"] == "closed").unwrap();
    assert_eq!(closed["finding"]["id"], opened["finding"]["id"]);
    assert!(closed["finding"]["over_ms"].as_u64() > closed["finding"]["since_ms"].as_u64(), "{closed}");
}

/// Files of windows, with their bytes.
fn files(directory: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let row =
        |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len()));
    let mut files: Vec<(String, u64)> = entries.filter_map(row).collect();
    files.retain(|(name, _)| name.ends_with(".parquet"));
    files.sort_unstable();
    files
}

/// Says to the test below where a small disk is: it runs again, in a mount namespace that has one.
const SMALL_DISK: &str = "FERROCE_TEST_SMALL_DISK";

#[test]
fn a_full_disk_is_ridden_out_and_the_oldest_windows_go() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        return on_a_small_disk(&PathBuf::from(disk));
    }
    let disk = directory("disk");
    let inside =
        "mount -t tmpfs -o size=256k tmpfs \"$FERROCE_TEST_SMALL_DISK\" || exit 77; exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    if judge_is_root() {
        command.arg("--mount");
    } else {
        command.args(["--mount", "--map-root-user"]);
    }
    let output = command
        .args(["sh", "-c", inside])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "waiting::outlets::a_full_disk_is_ridden_out_and_the_oldest_windows_go",
            "--nocapture",
        ])
        .env(SMALL_DISK, &disk)
        .output()
        .unwrap();
    let _ = fs::remove_dir_all(&disk);
    if !judge::has_namespaces(output.status.code() != Some(77)) {
        return;
    }
    let [told, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{errors}");
}

fn judge_is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|about| std::os::unix::fs::MetadataExt::uid(&about) == 0)
}

fn on_a_small_disk(disk: &Path) {
    // There is no room for anything at first.
    let filler = disk.join("filler");
    let mut most = 256 << 10;
    while fs::write(&filler, vec![7; most]).is_err() {
        most -= 4096;
    }
    let limit = 40 << 10;
    let home = disk.join("windows");
    let windows = WindowsConfig { most: limit, ..WindowsConfig::new(&home) };
    let config = OutletsConfig { windows: Some(windows), push: PUSH, ..OutletsConfig::default() };
    let mut mesh = Mesh::with([127, 0, 152, 30], &["t1", "t1", "t2"], usize::MAX, config);
    until(&mesh, "windows", |state| state.trouble.ends_with("the disk is full") && state.dropped > 0);
    // Windows are judged all the same.
    let judged = mesh.analyzer.counters().windows;
    let what = || format!("more windows than {judged}: {:?}", mesh.analyzer.counters());
    wait_for(what, || (mesh.analyzer.counters().windows > judged + 2).then_some(()));
    assert_eq!((files(&home), outlet(&mesh, "windows").sent), (vec![], 0));
    let state = ask(mesh.page(), "/api/state");
    assert!(state["outlets"][0]["trouble"].as_str().unwrap().contains("the disk is full"), "{state}");

    // There is room again, and after a while too much is there.
    fs::remove_file(&filler).unwrap();
    until(&mesh, "windows", |state| state.sent > 0 && state.trouble.is_empty());
    let first = files(&home)[0].0.clone();
    until(&mesh, "windows", |state| state.kept.is_some_and(|kept| kept.removed > 1));
    let lost = outlet(&mesh, "windows").dropped;
    let mut sums = [0; 8];
    mesh.agents.drain(..).for_each(|agent| end(agent, &mut sums));
    assert_eq!(outlet(&mesh, "windows").dropped, lost, "since there is room, nothing is lost");
    drop(mesh);
    let left = files(&home);
    assert!(left.iter().map(|(_, bytes)| bytes).sum::<u64>() <= limit, "{left:?}");
    assert!(left.len() > 1 && left.iter().all(|(name, _)| *name > first), "the oldest are gone: {left:?}");
}

#[test]
fn where_something_goes_is_looked_at_before_anything_begins() {
    let start = |outlets: OutletsConfig| {
        let listener = Listener::bind("127.0.152.20:0".parse().unwrap()).unwrap();
        let config = AnalyzerServerConfig { outlets, ..AnalyzerServerConfig::new("127.0.152.20:1") };
        chain(&AnalyzerServer::start(listener, config).unwrap_err())
    };
    let url = |url: &str| OutletsConfig { remote_write: Some(url.to_owned()), ..OutletsConfig::default() };
    for (wrong, why) in [
        ("prometheus", "remote_write is to go: \"prometheus\" is no URL"),
        ("https://127.0.0.1:9090", "is not http"),
        ("http://192.0.2.1:9090", "192.0.2.1 is not on this machine"),
    ] {
        let said = start(url(wrong));
        assert!(said.contains(why), "{said}");
    }
    let home = directory("taken");
    let file = home.join("file");
    fs::write(&file, "").unwrap();
    let windows =
        |path: &Path| OutletsConfig { windows: Some(WindowsConfig::new(path)), ..OutletsConfig::default() };
    assert!(start(windows(&file)).contains("cannot be used for windows"));
    let listener = Listener::bind("127.0.152.20:0".parse().unwrap()).unwrap();
    let config =
        AnalyzerServerConfig { outlets: windows(&home), ..AnalyzerServerConfig::new("127.0.152.20:1") };
    let first = AnalyzerServer::start(listener, config).unwrap();
    assert!(start(windows(&home)).contains("in use by another analyzer"));
    drop(first);
    let _ = fs::remove_dir_all(&home);
}

/// An error with its causes, as text.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
