//! Traces in a Clos network of real kernel routers: 1,000 tuples, judged by what the kernels say and count.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ferroce_probe::net::{ProberEnd, ResponderEnd, SERVICE_PORT, stamp_now};
use ferroce_probe::paths::{Steering, Trace, TracerConfig};
use ferroce_probe::{Outcome, Peer, ProbeEvent, ProberConfig, ResponderConfig};
use ferroce_testkit::clos::{Clos, Family, Node, Tuple};
use ferroce_testkit::namespaces;
use ferroce_verbs::Context;

/// Long enough for a loaded machine; nothing waits for it to pass.
const SOON: Duration = Duration::from_secs(40);

/// Ports of each pair of hosts, in each family: 8 pairs, 2 families, 1,008 tuples.
const PORTS: u16 = 63;

/// Routers here answer every packet, so nothing has to be paced.
const TRACER: TracerConfig =
    TracerConfig { max_hops: 8, attempts: 4, interval: Duration::ZERO, wait: Duration::from_secs(2) };

fn main() -> ExitCode {
    if !namespaces::is_inside() {
        return namespaces::run_inside(&["nft"]);
    }
    let clos = Clos::build(11);
    let mut tuples = 0;
    for family in [Family::V4, Family::V6] {
        tuples += traces_are_what_kernels_say_and_count(&clos, family);
    }
    assert!(tuples >= 1000, "{tuples}");
    one_port_for_each_path(&clos);
    let _ = io::stdout().write_all(b"test result: ok. 3 passed; 0 failed\n");
    ExitCode::SUCCESS
}

/// From each host to another one: below the same ToR, in the same pod, in the other pod.
fn pairs() -> Vec<(Node, Node)> {
    let hosts: Vec<Node> = Node::hosts().collect();
    let far = [7, 6, 5, 4, 2, 4, 7, 1];
    hosts.iter().zip(far).map(|(from, to)| (*from, hosts[to])).collect()
}

/// What is done in a host, with a prober there and a responder in another one.
fn probing<T: Send>(
    from: Node,
    to: Node,
    family: Family,
    act: impl FnOnce(&mut ProberEnd, Peer) -> T + Send,
) -> T {
    let stop = AtomicBool::new(false);
    let target = to.address(family);
    let (say, hear) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let stop = &stop;
        let answering = scope.spawn(move || {
            namespaces::enter(&to.to_string(), || {
                let context = open(to, target);
                let config =
                    ResponderConfig { rate: 1_000_000, burst: 100_000, ..ResponderConfig::default() };
                let mut responder = ResponderEnd::open(&context, target, Some(SERVICE_PORT), config).unwrap();
                say.send(()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    responder.turn().unwrap();
                    responder.sleep(Duration::from_millis(5));
                }
            });
        });
        hear.recv().expect("a responder");
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            namespaces::enter(&from.to_string(), || {
                let address = from.address(family);
                let context = open(from, address);
                let config =
                    ProberConfig { timeout: SOON, late: SOON, stall: SOON, ..ProberConfig::default() };
                let mut prober = ProberEnd::open(&context, address, config).unwrap();
                let peer = prober.find(target, SERVICE_PORT, SOON).unwrap();
                act(&mut prober, peer)
            })
        }));
        stop.store(true, Ordering::Relaxed);
        answering.join().unwrap();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The card of a host: its interface has the name of its ToR.
fn open(host: Node, address: IpAddr) -> Context {
    let Node::Host(pod, tor, _) = host else { panic!("{host} is no host") };
    Context::builder(&Node::Tor(pod, tor).to_string()).address(address).open().unwrap()
}

fn ports(pair: usize) -> Vec<u16> {
    let start = 0xc000 + u16::try_from(pair).unwrap() * 1021;
    (0..PORTS).map(|number| start + number * 13).collect()
}

fn trace(prober: &mut ProberEnd, peer: Peer, ports: &[u16]) -> BTreeMap<u16, Trace> {
    prober.trace_to(peer, TRACER);
    for port in ports {
        prober.trace_port(*port).unwrap();
    }
    let end = stamp_now().plus(SOON);
    let mut traces = BTreeMap::new();
    while traces.len() < ports.len() {
        let Some(trace) = prober.next_trace(end).unwrap() else {
            panic!("{} of {} ports are traced: {:?}", traces.len(), ports.len(), prober.tracings());
        };
        traces.insert(trace.port(), trace);
    }
    traces
}

fn traces_are_what_kernels_say_and_count(clos: &Clos, family: Family) -> usize {
    clos.count();
    let mut all: Vec<(Tuple, Vec<Node>)> = Vec::new();
    for (pair, (from, to)) in pairs().into_iter().enumerate() {
        let ports = ports(pair);
        let traces = probing(from, to, family, |prober, peer| {
            let traces = trace(prober, peer, &ports);
            assert_eq!(prober.tracings().foreign, 0, "{:?}", prober.tracings());
            assert_eq!(prober.counters().probes, 0, "traces are no probes that measure");
            traces
        });
        for (port, trace) in traces {
            let tuple = Tuple { from, to, port };
            assert!(trace.is_complete() && trace.conflicts() == 0, "{tuple:?}: {trace:?}");
            let routers = trace.path().routers.into_iter().map(|router| {
                let address = router.unwrap();
                clos.owner(address).unwrap_or_else(|| panic!("{address} is no router"))
            });
            all.push((tuple, routers.collect()));
        }
    }
    let tuples: Vec<Tuple> = all.iter().map(|(tuple, _)| *tuple).collect();
    let told = clos.paths(&tuples, family);
    for ((tuple, traced), told) in all.iter().zip(&told) {
        assert_eq!(traced, told, "{tuple:?}, {family:?}: traced, and what the kernels say");
    }
    let counted = clos.counted(family);
    let mut by_tuple: BTreeMap<Tuple, BTreeSet<Node>> = BTreeMap::new();
    for ((tuple, router, _), packets) in &counted {
        if *packets > 0 {
            by_tuple.entry(*tuple).or_default().insert(*router);
        }
    }
    for (tuple, traced) in &all {
        let crossed = by_tuple.get(tuple).cloned().unwrap_or_default();
        let traced: BTreeSet<Node> = traced.iter().copied().collect();
        assert_eq!(traced, crossed, "{tuple:?}, {family:?}: traced, and what routers counted");
    }
    // Every port as asked: routers have seen no other one from the hosts that traced, but for that of the card's
    // own questions, and the answers, which go the other way.
    let asked: BTreeSet<Tuple> = tuples.iter().copied().collect();
    let pairs: BTreeSet<(Node, Node)> = pairs().into_iter().collect();
    for tuple in by_tuple.keys().filter(|tuple| pairs.contains(&(tuple.from, tuple.to))) {
        let back = Tuple { from: tuple.to, to: tuple.from, port: tuple.port };
        let is_known = asked.contains(tuple) || asked.contains(&back) || tuple.port == 4791;
        assert!(is_known, "{tuple:?}: from a port that was not asked for");
    }
    for router in Node::routers() {
        clos.clear_filter(router);
    }
    tuples.len()
}

/// Steering finds a port for each of the eight paths between pods, and probes by these ports are answered.
fn one_port_for_each_path(clos: &Clos) {
    let (from, to) = (Node::Host(0, 0, 0), Node::Host(1, 1, 1));
    let expected = u32::try_from(from.paths_to(to)).unwrap();
    let steering = probing(from, to, Family::V4, |prober, peer| {
        let mut steering = Steering::new(expected);
        for trace in trace(prober, peer, &ports(3)).values() {
            steering.offer(trace);
        }
        for kept in steering.kept() {
            let sequence = prober.probe(peer, Some(kept.port)).unwrap();
            let report = ended(prober);
            assert_eq!((report.sequence, report.outcome, report.port), (sequence, Outcome::Ok, kept.port));
            let ports = report.answer_ports.map(|ports| (ports.sent, ports.reply));
            assert_eq!(ports, Some((kept.port, kept.port)), "answers leave from the port of their probe");
        }
        steering
    });
    assert!(steering.is_done(), "{} of {expected} paths", steering.kept().len());
    let tuples: Vec<Tuple> = steering.kept().iter().map(|kept| Tuple { from, to, port: kept.port }).collect();
    let paths: BTreeSet<Vec<Node>> = clos.paths(&tuples, Family::V4).into_iter().collect();
    assert_eq!(paths.len(), expected as usize, "m ports for m paths");
}

fn ended(prober: &mut ProberEnd) -> ferroce_probe::Report {
    let end = stamp_now().plus(SOON);
    loop {
        assert!(stamp_now() < end, "no answer: {:?}", prober.counters());
        prober.turn().unwrap();
        if let Some(ProbeEvent::Ended(report)) = prober.poll() {
            return report;
        }
        prober.sleep_until(stamp_now().plus(Duration::from_millis(5)));
    }
}
