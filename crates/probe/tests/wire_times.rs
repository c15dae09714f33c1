//! Round trips as the prober tells them, judged by captures at both ends of the path, and beside a responder that
//! stalls.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ferroce_probe::net::{ProberEnd, ResponderEnd, SERVICE_PORT, stamp_now};
use ferroce_probe::{
    Kind, Outcome, Packet, Peer, ProbeEvent, ProberConfig, Report, ResponderConfig, StampSource,
};
use ferroce_testkit::clos::{Clos, Family, Node};
use ferroce_testkit::namespaces;
use ferroce_verbs::Context;
use pcap_file::pcap::PcapReader;

/// Long enough for a loaded machine; nothing waits for it to pass.
const SOON: Duration = Duration::from_secs(40);

/// How the two responders are found.
const SERVICES: [u16; 2] = [SERVICE_PORT, SERVICE_PORT + 1];

/// Probes of each measurement.
const PROBES: usize = 300;

const FROM: Node = Node::Host(0, 0, 0);
const TO: Node = Node::Host(1, 1, 1);

fn main() -> ExitCode {
    if !namespaces::is_inside() {
        return namespaces::run_inside(&["nft", "dumpcap"]);
    }
    let clos = Clos::build(23);
    probing(&Hold::default(), |[prober, _], [peer, _]| round_trips_are_those_of_captures(prober, peer));
    take_time(&clos);
    let hold = Hold { is_awake: true, ..Hold::default() };
    probing(&hold, |probers, peers| a_stalled_responder_does_not_move_the_round_trip(probers, peers, &hold));
    let _ = io::stdout().write_all(b"test result: ok. 2 passed; 0 failed\n");
    ExitCode::SUCCESS
}

/// What is captured at a host, until it is stopped.
struct Captured {
    program: Child,
    file: String,
}

impl Captured {
    fn start(host: Node) -> Self {
        let file = format!("/run/{host}.pcap");
        let program = Command::new("ip")
            .args(["netns", "exec", &host.to_string(), "dumpcap", "-q", "-P", "-i", &interface(host)])
            .args(["-f", "udp dst port 4791", "-w", &file])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { program, file }
    }

    /// Whether it has written a packet.
    fn is_running(&self) -> bool {
        !self.passed().is_empty()
    }

    /// When each packet passed, by number and kind, as far as it is written.
    fn passed(&self) -> HashMap<(u64, bool), Duration> {
        let mut passed = HashMap::new();
        let Some(mut reader) = File::open(&self.file).ok().and_then(|file| PcapReader::new(file).ok()) else {
            return passed;
        };
        while let Some(Ok(frame)) = reader.next_packet() {
            // Ethernet, IPv4, UDP, base transport header, datagram header.
            let bytes = frame.data.get(14 + 20 + 8 + 12 + 8..).unwrap_or_default();
            let Some(Ok(packet)) = bytes.get(..40).map(Packet::parse) else { continue };
            if packet.kind != Kind::SecondAck {
                passed.insert((packet.sequence.0, packet.kind == Kind::Probe), frame.timestamp);
            }
        }
        passed
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn interface(host: Node) -> String {
    let Node::Host(pod, tor, _) = host else { panic!("{host} is no host") };
    Node::Tor(pod, tor).to_string()
}

fn open(host: Node, address: IpAddr) -> Context {
    Context::builder(&interface(host)).address(address).open().unwrap()
}

/// Two responders in one thread, of which the first does nothing while it is held.
#[derive(Debug, Default)]
struct Hold {
    /// They never sleep.
    is_awake: bool,
    wanted: AtomicBool,
    is_held: AtomicBool,
    stop: AtomicBool,
}

impl Hold {
    /// Holds the first responder, or lets it go on, and waits until it does.
    fn set(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::SeqCst);
        let end = stamp_now().plus(SOON);
        while self.is_held.load(Ordering::SeqCst) != wanted {
            assert!(stamp_now() < end, "the responder does not hear: {self:?}");
            std::hint::spin_loop();
        }
    }

    /// The life of the responders.
    fn answer(&self, [first, other]: &mut [ResponderEnd; 2]) {
        while !self.stop.load(Ordering::SeqCst) {
            let held = self.wanted.load(Ordering::SeqCst);
            self.is_held.store(held, Ordering::SeqCst);
            if !self.is_awake {
                first.sleep(Duration::from_millis(20));
            }
            if !held {
                first.turn().unwrap();
            }
            other.turn().unwrap();
        }
    }
}

/// Does something in a host, with two probers there and two responders in another one.
fn probing(hold: &Hold, act: impl FnOnce(&mut [ProberEnd; 2], [Peer; 2]) + Send) {
    let target = TO.address(Family::V4);
    let (say, hear) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let answering = scope.spawn(move || {
            namespaces::enter(&TO.to_string(), || {
                let context = open(TO, target);
                let config = ResponderConfig { rate: 1_000_000, ..ResponderConfig::default() };
                let mut responders =
                    SERVICES.map(|port| ResponderEnd::open(&context, target, Some(port), config).unwrap());
                say.send(()).unwrap();
                hold.answer(&mut responders);
            });
        });
        hear.recv().expect("a responder");
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            namespaces::enter(&FROM.to_string(), || {
                let address = FROM.address(Family::V4);
                let context = open(FROM, address);
                let config =
                    ProberConfig { timeout: SOON, late: SOON, stall: SOON, ..ProberConfig::default() };
                let mut probers = [(); 2].map(|()| ProberEnd::open(&context, address, config).unwrap());
                let peers = SERVICES.map(|port| probers[0].find(target, port, SOON).unwrap());
                act(&mut probers, peers);
            });
        }));
        hold.stop.store(true, Ordering::SeqCst);
        answering.join().unwrap();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// One probe after the other.
fn probe(prober: &mut ProberEnd, peer: Peer, count: usize) -> Vec<Report> {
    let end = stamp_now().plus(SOON);
    let mut reports: Vec<Report> = Vec::new();
    while reports.len() < count {
        prober.probe(peer, Some(50_000)).unwrap();
        let wanted = reports.len() + 1;
        while reports.len() < wanted {
            assert!(stamp_now() < end, "{} of {count} probes: {:?}", reports.len(), prober.counters());
            prober.sleep_until(stamp_now().plus(Duration::from_millis(5)));
            prober.turn().unwrap();
            while let Some(event) = prober.poll() {
                if let ProbeEvent::Ended(report) = event {
                    reports.push(report);
                }
            }
        }
    }
    reports
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

fn round_trips_are_those_of_captures(prober: &mut ProberEnd, peer: Peer) {
    let captures = [FROM, TO].map(Captured::start);
    let end = stamp_now().plus(SOON);
    while !captures.iter().all(Captured::is_running) {
        assert!(stamp_now() < end, "dumpcap captures nothing");
        probe(prober, peer, 1);
    }
    let reports = probe(prober, peer, PROBES);
    let last = reports.last().map(|report| (report.sequence.0, false)).unwrap();
    // It writes from time to time, and more so if more comes.
    while !captures.iter().all(|captured| captured.passed().contains_key(&last)) {
        assert!(stamp_now() < end, "dumpcap does not write what it has captured");
        probe(prober, peer, 20);
    }
    let [here, there] = captures.each_ref().map(Captured::passed);
    let errors: Vec<i128> = reports
        .iter()
        .filter_map(|report| {
            let at = |seen: &HashMap<_, Duration>, is_probe| {
                Some(seen.get(&(report.sequence.0, is_probe))?.as_nanos().cast_signed())
            };
            let here = at(&here, false)? - at(&here, true)?;
            let there = at(&there, false)? - at(&there, true)?;
            let told = report.delays?.round_trip.as_nanos().cast_signed();
            Some((told - (here - there)).abs())
        })
        .collect();
    assert!(errors.len() > PROBES * 9 / 10, "{} of {PROBES} probes were captured at both ends", errors.len());
    let error = median(errors);
    let _ = io::stdout()
        .write_all(format!("round trips differ from captures by {error} ns (median)\n").as_bytes());
    // On a machine at rest it is below 2 us. Times of turns, or after calls, would be off by more than this on any.
    assert!(error < 20_000, "{error} ns");
}

/// Has each router look at 512 rules that fit no packet, so that the path takes as long as one between real switches,
/// which is long beside what a busy machine does to single packets.
fn take_time(clos: &Clos) {
    let eight = |line: &str| format!("{line}\n").repeat(8);
    let rules = format!(
        "table inet slow {{\nchain b {{\n{}}}\nchain a {{\n{}}}\n\
         chain c {{\ntype filter hook forward priority 0\n{}}}\n}}\n",
        eight("udp dport 1 drop"),
        eight("jump b"),
        eight("jump a"),
    );
    Node::routers().for_each(|router| clos.filter(router, &rules));
}

/// How long a responder that stalls does nothing.
const STALL: Duration = Duration::from_millis(5);

/// Probes whose responder does nothing for 5 ms after they have come, in turn with others where that is before they
/// leave. Meanwhile other probes go on between the same hosts: else the packet after the pause would be slower,
/// because of caches and processors that had nothing to do.
fn a_stalled_responder_does_not_move_the_round_trip(
    [prober, other]: &mut [ProberEnd; 2],
    [peer, other_peer]: [Peer; 2],
    hold: &Hold,
) {
    let mut go_on = |time: Duration| {
        let end = stamp_now().plus(time);
        while stamp_now() < end {
            other.probe(other_peer, Some(50_000)).unwrap();
            assert_eq!(ended(other).outcome, Outcome::Ok);
        }
    };
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..PROBES {
        for (stalls, into) in [false, true].into_iter().zip(&mut all) {
            hold.set(true);
            go_on(if stalls { STALL } else { 2 * STALL });
            prober.probe(peer, Some(50_000)).unwrap();
            go_on(if stalls { STALL } else { Duration::ZERO });
            hold.set(false);
            into.push(ended(prober));
        }
    }
    let of = |reports: &[Report], delay: fn(&ferroce_probe::Delays) -> Duration| {
        median(reports.iter().filter_map(|report| report.delays.as_ref().map(delay)).collect())
    };
    for report in all.iter().flatten() {
        assert_eq!((report.outcome, report.times.source), (Outcome::Ok, StampSource::Kernel), "{report:?}");
    }
    let [usual, held] = all.each_ref().map(|reports| of(reports, |delays| delays.responder));
    assert!(held >= STALL && held > usual, "the responder took {usual:?}, and {held:?} when it was held");
    let [usual, stalled] = all.each_ref().map(|reports| of(reports, |delays| delays.round_trip));
    let moved = usual.abs_diff(stalled);
    let text = format!("a stall of {held:?} moves the round trip from {usual:?} to {stalled:?} (medians)\n");
    let _ = io::stdout().write_all(text.as_bytes());
    assert!(moved < usual / 10, "{text}");
}

/// The probe that is under way, when it is over; without sleep.
fn ended(prober: &mut ProberEnd) -> Report {
    let end = stamp_now().plus(SOON);
    loop {
        assert!(stamp_now() < end, "the probe does not end: {:?}", prober.counters());
        prober.turn().unwrap();
        if let Some(ProbeEvent::Ended(report)) = prober.poll() {
            return report;
        }
    }
}
