//! `ferroce stat`, beside processes that are at work.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferroce::{Access, CompletionQueue, Context, MemoryRegion, QueuePair, Service};
use ferroce_device::{Config, Nic};
use ferroce_testkit::shared_port::beside_a_device;
use serde_json::Value;

/// A process that measures until it is dropped.
struct Busy(Child);

impl Busy {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
        command.arg("perf").args(words).args(["--duration", "600"]);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce")).arg("stat").args(words).output().unwrap()
}

fn said(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Looks until a queue pair of the process completes something; all its queue pairs.
fn at_work(pid: &str) -> Vec<Value> {
    for _ in 0..100 {
        let output = run(&["--json", "--once", "--interval", "0.2", pid]);
        // It may not have opened its devices yet.
        if !output.status.success() {
            continue;
        }
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let processes = told["processes"].as_array().unwrap();
        assert!(processes.iter().all(|process| process["pid"].as_u64() == pid.parse().ok()), "{told}");
        let all = processes.iter().flat_map(|process| process["queue_pairs"].as_array().unwrap().clone());
        let all: Vec<Value> = all.collect();
        let is_known = |pair: &Value| pair["done_per_s"].is_f64();
        if all.iter().all(is_known) && all.iter().any(|pair| pair["done_per_s"].as_f64().unwrap() > 0.0) {
            return all;
        }
    }
    panic!("nothing was ever done");
}

#[test]
fn a_measurement_over_the_wire_is_seen_from_outside() {
    let busy = Busy::start(&["write", "--bw", "--size", "4096", "--path", "wire"]);
    let all = at_work(&busy.pid());
    let active = all.iter().find(|pair| pair["posted_per_s"].as_f64().unwrap() > 0.0).unwrap();
    let words = ["type", "state", "path"].map(|key| active[key].as_str().unwrap());
    assert_eq!(words, ["RC", "RTS", "wire"]);
    assert!(active["packets_sent_per_s"].as_f64().unwrap() > 0.0, "{active}");
    assert!(active["peer"].as_str().unwrap().starts_with("127."), "{active}");
    assert!(active["from"].as_str().unwrap().starts_with("127."), "{active}");
    assert_eq!(active["source_port"], 4791, "{active}");
    // Its peer is in the same process, and knows it.
    let is_peer = |pair: &&Value| pair["qpn"] == active["peer_qpn"];
    assert_eq!(all.iter().find(is_peer).unwrap()["peer_qpn"], active["qpn"]);

    let text = said(&["--once", "--interval", "0.2", &busy.pid()]);
    assert!(text.contains(&format!("process {} (ferroce) on ", busy.pid())), "{text}");
    assert!(text.lines().any(|line| line.starts_with("0x") && line.contains(" RC RTS   wire ")), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80 && !line.contains('\u{1b}')), "{text}");
}

#[test]
fn the_local_path_is_seen_too() {
    let busy = Busy::start(&["write", "--bw", "--size", "64", "--path", "local"]);
    let all = at_work(&busy.pid());
    let active = all.iter().find(|pair| pair["direct_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(active.unwrap_or_else(|| panic!("{all:?}"))["path"], "local");
}

#[test]
fn a_process_without_queue_pairs_is_shown() {
    let nic = Nic::open(Config { address: Some([127, 0, 65, 7].into()), ..Config::new("lo") }).unwrap();
    let pid = std::process::id().to_string();
    let text = said(&["--once", "--interval", "0.1", &pid]);
    assert!(text.contains("on 127.0.65.7 on lo: 0 queue pairs"), "{text}");
    drop(nic);
}

#[test]
fn who_cannot_be_asked_is_an_error() {
    for (words, told) in [
        (&["--once", "0"][..], "there is no process 0"),
        (&["--interval", "0"], "between 0.1 and 3600 seconds are possible"),
        (&["--interval", "soon"], "a number of seconds"),
        (&["--count", "0"], "a number of tables, 1 or more"),
        (&["--count", "many"], "a number of tables, 1 or more"),
        (&["--count", "2", "--once"], "cannot be used with"),
        (&["--json", "--queues"], "cannot be used with"),
        (&["--prometheus", "--json"], "cannot be used with"),
        (&["--prometheus", "--interval", "2"], "cannot be used with"),
        (&["--prometheus", "--listen"], "cannot be used with"),
        (&["--listen", "--count", "2"], "cannot be used with"),
        (&["--listen=here"], "an address and a port"),
        (&["--listen=127.0.0.1:65536"], "an address and a port"),
        (&["--listen=0.0.0.0:0"], "say --allow-remote if that is wanted"),
        (&["--listen=[::]:0"], "say --allow-remote if that is wanted"),
        (&["--allow-remote"], "--listen"),
        (&["--totals"], "--prometheus|--listen"),
        (&["--prometheus", "0"], "there is no process 0"),
        (&["--listen", "0"], "there is no process 0"),
    ] {
        let output = run(words);
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(told), "{text}");
    }
    let quiet = Command::new("cat").stdin(Stdio::piped()).spawn().map(Busy).unwrap();
    let output = run(&["--once", &quiet.pid()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, format!("ferroce: process {} has no device open\n", quiet.pid()));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_process_of_another_user_is_none_of_ours() {
    use std::os::unix::fs::MetadataExt;
    let ours = std::fs::metadata("/proc/self").unwrap().uid();
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        entry.metadata().is_ok_and(|process| process.uid() != ours).then_some(pid)
    });
    // Root can start one; any other user finds some, such as the first process.
    let mut helper = None;
    if ours == 0 {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups", "sleep", "600"]);
        helper = command.spawn().ok().map(Busy);
    }
    let pid = helper.as_ref().map(Busy::pid).or_else(|| processes.next().map(|pid| pid.to_string()));
    let Some(pid) = pid else { return };
    let mut text = String::new();
    for _ in 0..1000 {
        text = String::from_utf8(run(&["--once", &pid]).stderr).unwrap();
        if text.contains("belongs to another user") {
            return;
        }
    }
    panic!("{text}");
}

/// A program of this process: a device with two queue pairs that are connected.
fn program(last: u8) -> (Context, CompletionQueue, [QueuePair; 2], MemoryRegion) {
    let context = Context::builder("lo").address([127, 0, 65, last]).open().unwrap();
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(64).unwrap();
    let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let pairs = [(); 2].map(|()| pd.queue_pair(Service::Rc).completion_queue(&cq).build().unwrap());
    pairs[0].connect(&pairs[1].local_address()).unwrap();
    pairs[1].connect(&pairs[0].local_address()).unwrap();
    (context, cq, pairs, region)
}

/// What is told of this process at this address.
fn told_of(last: u8, words: &[&str]) -> Value {
    let pid = std::process::id().to_string();
    let text = said(&[&["--json", "--once", "--interval", "0.1"], words, &[&pid]].concat());
    let told: Value = serde_json::from_str(&text).unwrap();
    let address = format!("127.0.65.{last}");
    let mut all = told["processes"].as_array().unwrap().iter();
    all.find(|process| process["address"] == address.as_str()).unwrap_or_else(|| panic!("{told}")).clone()
}

#[test]
fn a_program_that_computes_and_does_not_poll_is_seen_with_what_waits_for_it() {
    let (_context, cq, pairs, region) = program(21);
    for _ in 0..5 {
        pairs[0].write(region.slice(..8), region.remote().slice(8..16)).post().unwrap();
    }
    // From here on this thread only computes; the other process has to do with what the driver does.
    let looking = std::thread::spawn(|| told_of(21, &[]));
    let mut state = 1_u64;
    while !looking.is_finished() {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    let told = looking.join().unwrap();
    assert_eq!((&told["busy_engines"], &told["queue_pair_count"]), (&0.into(), &2.into()), "{told}");
    assert_eq!(told["totals"]["send_completions"]["success"], 5, "{told}");
    let first = told["queue_pairs"].as_array().unwrap().iter();
    let first = first.clone().find(|pair| pair["qpn"] == pairs[0].qpn().get()).unwrap();
    assert_eq!(
        (&first["send_queue"]["now"], &first["send_queue"]["most"]),
        (&5.into(), &5.into()),
        "{first}"
    );
    let queues = told["completion_queues"].as_array().unwrap();
    assert_eq!(
        (queues.len(), &queues[0]["now"], &queues[0]["capacity"]),
        (1, &5.into(), &64.into()),
        "{told}"
    );
    drop(cq);
}

#[test]
fn engines_that_are_never_at_rest_answer() {
    let (_context, cq, pairs, region) = program(22);
    let is_over = AtomicBool::new(false);
    let answered = std::thread::scope(|threads| {
        // Two threads are in the engine all the time, one of them with work.
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if pairs[0].write(region.slice(..8), region.remote().slice(8..16)).post().is_err() {
                    let _ = cq.poll_one();
                }
            }
        });
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = cq.poll_one();
            }
        });
        // A thread that the system keeps from running while it is inside cannot answer; that is not the rule.
        let looks: Vec<Value> = (0..10).map(|_| told_of(22, &[])).collect();
        is_over.store(true, Ordering::Relaxed);
        looks
    });
    let whole = answered.iter().filter(|told| told["busy_engines"] == 0).count();
    assert!(whole >= 5, "{answered:?}");
    let seen = answered.iter().filter(|told| told["busy_engines"] == 0);
    assert!(seen.clone().all(|told| told["queue_pair_count"] == 2), "{answered:?}");
    let posted: Vec<u64> = seen.map(|told| told["totals"]["sends_posted"].as_u64().unwrap()).collect();
    assert!(posted.is_sorted() && posted.first() < posted.last(), "{posted:?}");
}

#[test]
fn tables_are_as_many_as_were_asked_for() {
    let (_context, cq, pairs, region) = program(23);
    pairs[0].write(region.slice(..8), region.remote().slice(8..16)).post().unwrap();
    let pid = std::process::id().to_string();
    let text = said(&["--interval", "0.1", "--count", "3", &pid]);
    let ours = text.lines().filter(|line| line.contains("127.0.65.23 on lo: 2 queue pairs")).count();
    assert_eq!(ours, 3, "{text}");
    assert!(text.contains("  so far: 2 queue pairs made, 1 sends done, 0 receives completed"), "{text}");
    let json = said(&["--json", "--interval", "0.1", "--count", "2", &pid]);
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{json}");
    let queues = said(&["--queues", "--once", "--interval", "0.1", &pid]);
    let number = pairs[0].qpn().to_string();
    let line = queues.lines().find(|line| line.starts_with("SQ") && line.contains(&number));
    let words: Vec<&str> = line.unwrap_or_else(|| panic!("{queues}")).split_whitespace().collect();
    assert_eq!(words[2..4], ["1", "1"], "{queues}");
    assert!(queues.lines().any(|line| line.starts_with("CQ")), "{queues}");
    assert!(queues.lines().all(|line| line.len() <= 80), "{queues}");
    drop(cq);
}

#[test]
fn sums_outlive_queue_pairs_in_json_and_for_prometheus() {
    let (context, cq, pairs, region) = program(24);
    pairs[0].write(region.slice(..8), region.remote().slice(8..16)).post().unwrap();
    cq.wait(Duration::from_secs(20)).unwrap().result().unwrap();
    drop(pairs);
    let told = told_of(24, &[]);
    assert_eq!((&told["queue_pair_count"], &told["queue_pairs_made"]), (&0.into(), &2.into()), "{told}");
    assert_eq!(told["totals"]["send_completions"]["success"], 1, "{told}");
    let text = said(&["--prometheus", &std::process::id().to_string()]);
    let sample = text.lines().find(|line| {
        ["ferroce_completions_total{", "127.0.65.24", "queue=\"send\"", "status=\"success\""]
            .iter()
            .all(|part| line.contains(part))
    });
    assert!(sample.is_some_and(|line| line.ends_with("} 1")), "{text}");
    drop(context);
}

/// Ends, stops or wakes a process.
fn signal(process: &Busy, name: &str) {
    let status = Command::new("kill").args([name, &process.pid()]).status().unwrap();
    assert!(status.success(), "{name}");
}

/// A signal is on its way for a moment: waits until it has stopped all threads.
fn wait_until_stopped(process: &Busy) {
    let end = ferroce::time::now() + Duration::from_secs(20);
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
        let states: Vec<String> = tasks
            .map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap())
            // The name before the state is in brackets, and may hold anything.
            .map(|stat| stat.rsplit_once(") ").unwrap().1[..1].to_owned())
            .collect();
        if states.iter().all(|state| state == "T") {
            return;
        }
        assert!(ferroce::time::now() < end, "it does not stop: {states:?}");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_stopped_process_loses_is_counted() {
    const SENT: u64 = 2000;
    let address = IpAddr::from([127, 0, 65, 8]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.args(["probe", "responder", "--bind", &address.to_string()]).env("FERROCE_RCVBUF", "65536");
    let mut stopped = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map(Busy).unwrap();
    let mut line = String::new();
    BufReader::new(stopped.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let qpn: u32 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
    // No packets, but for the queue pair that they are for: it names the socket.
    let mut bytes = [0; 256];
    bytes[4..8].copy_from_slice(&qpn.to_be_bytes());
    let from = beside_a_device(SocketAddr::new([127, 0, 65, 9].into(), 4791));
    signal(&stopped, "-STOP");
    wait_until_stopped(&stopped);
    for _ in 0..SENT {
        from.send_to(&bytes, (address, 4791)).unwrap();
    }
    signal(&stopped, "-CONT");
    let mut told = Value::Null;
    for _ in 0..100 {
        let text = said(&["--json", "--once", "--interval", "0.1", &stopped.pid()]);
        told = serde_json::from_str::<Value>(&text).unwrap()["processes"][0]["refused"].take();
        let sum: u64 = told.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        if sum >= SENT {
            break;
        }
    }
    let (read, lost) = (told["icrc_errors"].as_u64().unwrap(), told["receive_buffer_full"].as_u64().unwrap());
    assert!(read + lost == SENT && read > 0 && lost > 0, "{SENT} were sent: {told}");
    let text = said(&["--once", "--interval", "0.1", &stopped.pid()]);
    assert!(text.contains(&format!(", {lost} receive buffer full\n")), "{text}");
    let text = said(&["--prometheus", &stopped.pid()]);
    let sample = text.lines().find(|line| line.contains("reason=\"receive_buffer_full\""));
    assert!(sample.is_some_and(|line| line.ends_with(&format!("}} {lost}"))), "{text}");
}
