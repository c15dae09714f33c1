//! What is scraped from an analyzer, judged by Prometheus itself.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::waiting::page_support::mesh::Mesh;
use crate::waiting::page_support::{LIMIT, ask, get, wait_for};
use ferroce_meshd::{findings, tallies};
use ferroce_testkit::judge;
use serde_json::Value;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mesh");

/// Prometheus itself, in a directory of its own.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Prometheus {
    /// Scrapes every second, with our alerts.
    fn start(page: SocketAddr) -> Self {
        let directory = std::env::temp_dir().join(format!("ferroce-mesh-prometheus-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let config = directory.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{DOCS}/alerts.yml']\n\
             scrape_configs: [{{ job_name: mesh, static_configs: [{{ targets: ['{page}'] }}] }}]\n"
        );
        fs::write(&config, text).unwrap();
        // It takes no port 0, so it gets one that was free a moment ago.
        let address = TcpListener::bind("127.0.146.90:0").unwrap().local_addr().unwrap();
        let log = fs::File::create(directory.join("log")).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(log);
        Self { child: command.spawn().unwrap(), address, directory }
    }

    /// What it answers to a query: a list of series, each with its value.
    fn query(&self, query: &str) -> Option<Vec<Value>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        std::net::TcpStream::connect(self.address).ok()?;
        let (_, body) = get(self.address, &format!("/api/v1/query?query={encoded}"));
        let body: Value = serde_json::from_str(&unchunked(&body)).ok()?;
        assert_eq!(body["status"], "success", "{query}: {body}");
        body["data"]["result"].as_array().cloned()
    }

    /// Waits until a query has this answer, and no other.
    fn expect(&self, query: &str, wanted: f64) {
        let seen = std::cell::RefCell::new(String::new());
        let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let told = || format!("{query} to be {wanted}: {}\n{}", seen.borrow(), log());
        wait_for(told, || {
            let answer = self.query(query)?;
            *seen.borrow_mut() = format!("{answer:?}");
            let value: f64 = answer.first()?["value"][1].as_str()?.parse().ok()?;
            #[expect(clippy::float_cmp, reason = "both are whole")]
            (value == wanted).then_some(())
        });
    }

    /// Waits until a query has an answer.
    fn expect_some(&self, query: &str) {
        let what = || format!("data for {query}: {:?}", self.query(query));
        wait_for(what, || self.query(query).filter(|answer| !answer.is_empty()).map(drop));
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A body as it is, if it came in chunks.
fn unchunked(body: &str) -> String {
    if body.starts_with('{') {
        return body.to_owned();
    }
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or_default();
        if length == 0 {
            break;
        }
        whole.push_str(&after[..length]);
        rest = after[length..].trim_start_matches("\r\n");
    }
    whole
}

/// What promtool says of a text on its standard input, or of a file.
fn promtool(words: &[&str], input: &str) -> String {
    let mut judge = Command::new("promtool");
    judge.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut judge = judge.spawn().unwrap();
    judge.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let verdict = judge.wait_with_output().unwrap();
    let said = String::from_utf8([verdict.stdout, verdict.stderr].concat()).unwrap();
    assert!(verdict.status.success(), "{words:?}: {said}");
    said
}

/// Every expression of the dashboard, with its variables filled in.
fn dashboard() -> Vec<String> {
    let text = fs::read_to_string(format!("{DOCS}/grafana.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let fill = |target: &Value| {
        let expr = target["expr"].as_str().unwrap();
        expr.replace("$tor", ".*").replace("$__rate_interval", "30s")
    };
    let all: Vec<String> = targets.map(fill).collect();
    assert!(all.len() > 10 && all.iter().all(|expr| !expr.contains('$')), "{all:?}");
    all
}

#[test]
fn sums_in_prometheus_are_those_of_the_agents_and_the_alerts_fire() {
    if !judge::is_here("prometheus") || !judge::is_here("promtool") {
        return;
    }
    assert!(promtool(&["check", "rules", &format!("{DOCS}/alerts.yml")], "").contains("SUCCESS"));
    let (one, other) = ("t\"1\\", "{tor=\"2\"} 7");
    let names = [one, one, one, one, other, other];
    let mut mesh = Mesh::start([127, 0, 146, 70], &names, 2);
    let (place, url) = (mesh.page(), mesh.analyzer.address().to_string());
    let prometheus = Prometheus::start(place);
    let seen = || format!("a finding: {:?}", findings(&url));
    wait_for(seen, || findings(&url).ok()?.open.into_iter().next());
    let said = promtool(&["check", "metrics"], &get(place, "/metrics").1);
    assert!(said.is_empty(), "{said}");
    prometheus.expect("sum(ferroce_mesh_findings_open{kind=\"host\"})", 1.0);
    prometheus.expect_some("ALERTS{alertname=\"FerroceMeshCritical\", alertstate=\"firing\", kind=\"host\"}");
    for expr in dashboard() {
        prometheus.expect_some(&expr);
    }

    // All agents end. What they counted is what the page and Prometheus say, to the last probe.
    let mut sums = [0_u64; 8];
    for agent in mesh.agents.drain(..) {
        let state = agent.stop(LIMIT);
        assert_eq!((state.waiting, state.dropped, state.refused, state.untold), (0, 0, 0, 0), "{state:?}");
        let ferroce_mesh::Outcomes { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host } =
            state.outcomes;
        let counts = [ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(count));
    }
    let order = ["ok", "slow", "ack2_lost", "ack1_lost", "time_out", "late", "invalid", "host"];
    let state = ask(place, "/api/state");
    let told = tallies(&url).unwrap();
    for (name, sum) in order.iter().zip(sums) {
        assert_eq!(state["totals"]["outcomes"][name], sum, "{name}");
        let counted = told.agents.iter().flat_map(|agent| &agent.outcomes);
        assert_eq!(counted.filter(|one| one.name == *name).map(|one| one.count).sum::<u64>(), sum, "{name}");
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let sum = sum as f64;
        match *name {
            "slow" => prometheus.expect("sum(ferroce_mesh_probes_slow_total)", sum),
            _ => prometheus.expect(&format!("sum(ferroce_mesh_probes_total{{outcome=\"{name}\"}})"), sum),
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    prometheus.expect("sum(ferroce_mesh_probes_total)", state["totals"]["probes"].as_u64().unwrap() as f64);
    // Names are what agents say, however they look.
    prometheus.expect("count(count by (tor) (ferroce_mesh_probes_total{tor=\"t\\\"1\\\\\"}))", 1.0);
    prometheus.expect("count(count by (tor) (ferroce_mesh_probes_total))", 2.0);
    // Each answered probe has its round trip.
    let trips = format!("sum(ferroce_mesh_round_trip_seconds_count) <= bool {}", sums[0] + sums[5]);
    prometheus.expect(&trips, 1.0);
}
