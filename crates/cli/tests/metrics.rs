//! `ferroce stat --prometheus` and `--listen`, judged by Prometheus itself.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use ferroce::{Access, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair, Service, Time};
use ferroce_device::{now, park, until};
use serde_json::Value;

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(60);

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// `ferroce stat --listen`, and where it listens.
fn exporter(words: &[&str]) -> (Running, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.args(["stat", "--listen=127.0.0.1:0"]).args(words).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let line = first_line(child.stdout.take().unwrap());
    let running = Running(child);
    let address = line.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics\n"));
    (running, address.unwrap_or_else(|| panic!("{line}")).parse().unwrap())
}

fn first_line(of: ChildStdout) -> String {
    let mut line = String::new();
    BufReader::new(of).read_line(&mut line).unwrap();
    line
}

/// Sends these bytes and reads all that comes back.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // A server that has heard enough may close before all is sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// The body of an answer to a plain GET.
fn get(address: SocketAddr, path: &str) -> String {
    let answer = ask(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body.to_owned()
}

/// The sum of all samples of a metric with all of these labels.
fn sum(text: &str, metric: &str, labels: &[&str]) -> u64 {
    let samples = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
    let samples = samples.filter(|line| labels.iter().all(|label| line.contains(label)));
    samples.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// A program whose queue pairs come and go, and which counts what it does.
struct Program {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
    succeeded: u64,
    flushed: u64,
}

impl Program {
    fn new(last: u8) -> Self {
        let context = Context::builder("lo").address([127, 0, 66, last]).open().unwrap();
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(64).unwrap();
        let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        Self { context, pd, cq, region, succeeded: 0, flushed: 0 }
    }

    /// Two queue pairs come, write so often, fail once and go.
    fn round(&mut self, writes: u64) {
        let pairs =
            [(); 2].map(|()| self.pd.queue_pair(Service::Rc).completion_queue(&self.cq).build().unwrap());
        pairs[0].connect(&pairs[1].local_address()).unwrap();
        pairs[1].connect(&pairs[0].local_address()).unwrap();
        let [one, other] = &pairs;
        let write = |qp: &QueuePair| {
            qp.write(self.region.slice(..8), self.region.remote().slice(8..16)).post().unwrap();
            self.cq.wait(SOON).unwrap()
        };
        for _ in 0..writes {
            write(one).result().unwrap();
            self.succeeded += 1;
        }
        other.abort_handle().abort();
        self.flushed += u64::from(write(other).result().is_err());
    }
}

#[test]
fn the_text_is_one_that_promtool_has_nothing_to_say_about() {
    if !ferroce_testkit::judge::is_here("promtool") {
        return;
    }
    let mut program = Program::new(1);
    program.round(2);
    let qp = program.pd.queue_pair(Service::Ud).completion_queue(&program.cq).build().unwrap();
    let mut told = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    let told = told.args(["stat", "--prometheus"]).stdout(Stdio::piped()).output().unwrap();
    assert!(told.status.success(), "{told:?}");
    assert!(String::from_utf8_lossy(&told.stdout).contains(&qp.qpn().to_string()));
    let mut judge = Command::new("promtool");
    judge.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut judge = judge.spawn().unwrap();
    judge.stdin.take().unwrap().write_all(&told.stdout).unwrap();
    let verdict = judge.wait_with_output().unwrap();
    let said = [verdict.stdout, verdict.stderr].concat();
    assert!(verdict.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn a_scrape_says_what_the_program_knows() {
    let mut program = Program::new(2);
    let (_exporter, address) = exporter(&["--totals", &std::process::id().to_string()]);
    let mut last = 0;
    for writes in 1..5 {
        program.round(writes);
        let text = get(address, "/metrics");
        let here = "address=\"127.0.66.2\"";
        let send = |status: &str| sum(&text, "ferroce_completions_total", &[here, "queue=\"send\"", status]);
        assert_eq!(send("status=\"success\""), program.succeeded, "{text}");
        assert_eq!(send("status=\"flushed\""), program.flushed, "{text}");
        let report = program.context.report();
        assert_eq!(program.succeeded, report.totals.completions.sends(ferroce::Status::Success));
        assert_eq!(sum(&text, "ferroce_queue_pairs_made_total", &[here]), report.queue_pairs_made);
        assert_eq!(sum(&text, "ferroce_qp_completions_total", &[here]), 0, "only totals were wanted");
        assert!(program.succeeded > last);
        last = program.succeeded;
    }
    // The device is closed and opened anew: sums go on from where they were.
    let (succeeded, flushed) = (program.succeeded, program.flushed);
    drop(program);
    let mut program = Program::new(2);
    program.round(3);
    let text = get(address, "/metrics");
    let all =
        |status: &str| sum(&text, "ferroce_completions_total", &["127.0.66.2", "queue=\"send\"", status]);
    assert_eq!(all("status=\"success\""), succeeded + program.succeeded, "{text}");
    assert_eq!(all("status=\"flushed\""), flushed + program.flushed, "{text}");
    assert!(text.contains("pid=\"ended\""), "{text}");
}

#[test]
fn clients_that_ask_wrongly_are_told_and_slow_ones_hold_nothing() {
    let (_exporter, address) = exporter(&[&std::process::id().to_string()]);
    assert!(get(address, "/").contains("/metrics"));
    let status = |request: &[u8]| ask(address, request).lines().next().unwrap_or_default().to_owned();
    assert_eq!(status(b"GET /other HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status(b"\0\0\0\0"), "HTTP/1.1 400 Bad Request");
    let long = [b"GET /".as_slice(), &[b'a'; 100_000]].concat();
    assert_eq!(status(&long), "HTTP/1.1 431 Request Header Fields Too Large");
    let head = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n") && !head.contains("Content-Length: 0\r\n"), "{head}");
    // As many as are taken at a time say nothing; one more is sent away, and after a while there is room
    // again.
    let mute: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(address).unwrap()).collect();
    let end = now() + SOON;
    let mut full = false;
    loop {
        let first = status(b"GET / HTTP/1.1\r\n\r\n");
        full |= first.starts_with("HTTP/1.1 503");
        if full && first.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(now() < end, "they hold it: {first}");
        park(Some(Duration::from_millis(20)));
    }
    for mut stream in mute {
        let mut told = String::new();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.read_to_string(&mut told).unwrap();
        assert!(
            told.is_empty() || told.starts_with("HTTP/1.1 408") || told.starts_with("HTTP/1.1 503"),
            "{told}"
        );
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    let output = command.args(["stat", &format!("--listen={address}")]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("cannot listen at {address}; another program listens there")), "{text}");
}

/// Prometheus itself, in a directory of its own.
struct Prometheus {
    _running: Running,
    address: SocketAddr,
    directory: PathBuf,
}

impl Prometheus {
    /// Scrapes the exporter every second.
    fn start(exporter: SocketAddr) -> Self {
        let name = format!("ferroce-prometheus-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let config = directory.join("prometheus.yml");
        let jobs = format!("[{{ job_name: ferroce, static_configs: [{{ targets: ['{exporter}'] }}] }}]");
        let text = format!("global: {{ scrape_interval: 1s }}\nscrape_configs: {jobs}\n");
        fs::write(&config, text).unwrap();
        // It takes no port 0, so it gets one that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = fs::File::create(directory.join("log")).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={free}"))
            .stdout(Stdio::null())
            .stderr(log);
        let running = Running(command.spawn().unwrap());
        Self { _running: running, address: free, directory }
    }

    /// What it answers to a query, as a number; `None` if it has none yet.
    fn query(&self, query: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(SOON)).ok()?;
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        body["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    /// Waits until a query has this answer.
    #[track_caller]
    fn expect(&self, query: &str, value: u64, end: Time) {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let value = value as f64;
        let mut seen = None;
        while seen != Some(value) {
            let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(until(end) > Duration::ZERO, "{query}: {seen:?}, not {value}\n{}", log());
            park(Some(Duration::from_millis(100)));
            seen = self.query(query);
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn prometheus_has_the_sums_of_the_program_while_queue_pairs_come_and_go() {
    if !ferroce_testkit::judge::is_here("prometheus") {
        return;
    }
    let mut program = Program::new(3);
    let (_exporter, address) = exporter(&[&std::process::id().to_string()]);
    let prometheus = Prometheus::start(address);
    let completions = |status: &str| {
        format!("sum(ferroce_completions_total{{address=\"127.0.66.3\",queue=\"send\",status=\"{status}\"}})")
    };
    let total = |name: &str| format!("sum(ferroce_{name}_total{{address=\"127.0.66.3\"}})");
    for writes in [1, 7, 30] {
        program.round(writes);
        let report = program.context.report();
        let end = now() + SOON;
        prometheus.expect(&completions("success"), program.succeeded, end);
        prometheus.expect(&completions("flushed"), program.flushed, end);
        prometheus.expect(&total("queue_pairs_made"), report.queue_pairs_made, end);
        prometheus.expect(&total("sends_posted"), report.totals.sends_posted, end);
        let counters = report.totals.counters;
        let direct = counters.direct_requests + counters.direct_responses;
        prometheus.expect(&total("direct_messages"), direct, end);
    }
    let (succeeded, end) = (program.succeeded, now() + SOON);
    // A queue pair is seen while it is there, with its queues.
    let pair = program.pd.queue_pair(Service::Rc).completion_queue(&program.cq).build().unwrap();
    let number = pair.qpn().to_string();
    prometheus.expect(
        &format!("count(ferroce_queue_capacity{{number=\"{number}\",queue=\"send\"}})"),
        1,
        end,
    );
    drop((pair, program));
    prometheus.expect("count(ferroce_engines{address=\"127.0.66.3\"}) or vector(0)", 0, end);
    prometheus.expect(&completions("success"), succeeded, end);
}
