//! A sprayer that knows everything but the right moment, against live queue pairs: tens of thousands of
//! packets a second of every class of lies, from the peer's own address. Each class is counted by its name,
//! nothing outside of a region changes, no connection ends, and honest work goes on beside it.
//!
//! What no network card survives is left out: a packet of the peer with the very PSN that is expected, or an
//! answer to what is under way, is the peer as far as a network card can tell.

#[path = "../common/mod.rs"]
mod common;

mod class;
mod honest;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use class::{Aim, Class, LIE, Way};
use common::{OPEN, PATIENCE, Side, connect_uc, device, unreliable};
use ferroce_device::fabric::PORT;
use ferroce_device::memory::Allocation;
use ferroce_device::{PathPolicy, Qp, now};
use ferroce_testkit::shared_port::beside_a_device;
use ferroce_wire::{Flow, Service};
use honest::{Honest, Progress};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// Addresses are 127.0.NET.x; each test has its own.
const NET: u8 = 97;

/// Packets a second.
const RATE: u64 = 60_000;

/// A port on which no process listens.
const UNUSED: u16 = 4799;

/// Bytes of the memory that lies aim at; as much again on both sides of it is watched.
const TARGET: usize = 1 << 16;

/// An honest connection, a UC queue pair beside it, and memory that only liars write to.
struct Scene {
    honest: Honest,
    uc: Arc<Qp>,
    target: Arc<Allocation>,
    aim: Aim,
    hosts: [IpAddr; 3],
}

impl Scene {
    fn new(first: u8) -> Self {
        let [a, b, c] = [0, 1, 2].map(|step| [127, 0, NET, first + step]);
        let responder = Side::new(&device(a), a, PathPolicy::Forbid);
        let requester = Side::new(&device(b), b, PathPolicy::Forbid);
        let uc = unreliable(&responder, Service::Uc);
        connect_uc(&uc, &requester, &responder);
        let target = Allocation::zeroed(3 * TARGET).expect("memory");
        let address = target.address() + TARGET as u64;
        let keys = responder.nic.register(responder.domain, &target, (TARGET, TARGET), address, OPEN);
        let aim = Aim {
            responder: responder.qp.qpn(),
            requester: requester.qp.qpn(),
            uc: uc.qpn(),
            rkey: keys.expect("a region").1,
            address,
            len: TARGET as u64,
        };
        let honest = Honest::new(requester, responder);
        Self { honest, uc, target, aim, hosts: [a.into(), b.into(), c.into()] }
    }

    fn sprayer(&self, seed: u64) -> Sprayer {
        let [a, b, c] = self.hosts;
        let lines = [(b, a), (a, b), (c, a)].map(|(source, target)| Line::new(source, target));
        let random = ChaCha8Rng::seed_from_u64(seed);
        Sprayer { aim: self.aim, lines, random, progress: Arc::clone(&self.honest.progress) }
    }

    /// What both devices and all queue pairs have counted under these names.
    fn counted(&self, names: &[&str]) -> u64 {
        let Honest { requester, responder, .. } = &self.honest;
        let mut sum = 0;
        for nic in [&requester.nic, &responder.nic] {
            let counters = nic.counters();
            sum += counters.iter().filter(|(name, _)| names.contains(name)).map(|(_, n)| n).sum::<u64>();
        }
        for qp in [&requester.qp, &responder.qp, &self.uc] {
            let counters = qp.query().expect("it is there").counters;
            sum += counters.iter().filter(|(name, _)| names.contains(name)).map(|(_, n)| n).sum::<u64>();
        }
        sum
    }

    /// No lie was believed.
    fn check(&self) {
        self.honest.check();
        let mut bytes = vec![0; 3 * TARGET];
        self.target.read(0, &mut bytes).expect("inside");
        assert!(bytes.iter().all(|byte| *byte == 0), "{LIE:#x} was written where no packet may write");
    }
}

/// A socket that seems to be one host and sends to another.
struct Line {
    socket: UdpSocket,
    target: SocketAddr,
    flow: Flow,
}

impl Line {
    fn new(source: IpAddr, target: IpAddr) -> Self {
        let socket = beside_a_device(SocketAddr::new(source, PORT));
        let target = SocketAddr::new(target, PORT);
        let flow = Flow::new(socket.local_addr().expect("bound"), target).expect("one family");
        Self { socket, target, flow }
    }
}

struct Sprayer {
    aim: Aim,
    lines: [Line; 3],
    random: ChaCha8Rng,
    progress: Arc<Progress>,
}

impl Sprayer {
    fn send(&mut self, class: Class, port: u16) {
        let line = match class.way() {
            Way::ToResponder => &self.lines[0],
            Way::ToRequester => &self.lines[1],
            Way::FromStranger => &self.lines[2],
        };
        let bytes = class.build(&self.aim, &line.flow, self.progress.served(), &mut self.random);
        let target = SocketAddr::new(line.target.ip(), port);
        // A port that is not used says so to the next call; and a full buffer is no news to a flood.
        drop(line.socket.send_to(&bytes, target));
    }
}

/// A thread that sprays until it is told to stop.
struct Storm {
    stop: Arc<AtomicBool>,
    port: Arc<AtomicU16>,
    sent: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Storm {
    fn start(mut sprayer: Sprayer, port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (port, sent) = (Arc::new(AtomicU16::new(port)), Arc::new(AtomicU64::new(0)));
        let seen = (Arc::clone(&stop), Arc::clone(&port), Arc::clone(&sent));
        let thread = thread::spawn(move || {
            let (stop, port, sent) = seen;
            let start = now();
            while !stop.load(Ordering::Relaxed) {
                // Bursts of a millisecond each; one that comes late is not made up for twice.
                let due = u64::try_from(now().since(start).as_nanos()).expect("years") * RATE / 1_000_000_000;
                let burst = due.saturating_sub(sent.load(Ordering::Relaxed)).min(10 * RATE / 1000);
                for _ in 0..burst {
                    let class = Class::ALL[sprayer.random.next_u32() as usize % Class::ALL.len()];
                    sprayer.send(class, port.load(Ordering::Relaxed));
                }
                sent.fetch_add(burst, Ordering::Relaxed);
                let_pass(Duration::from_millis(1));
            }
        });
        Self { stop, port, sent, thread }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sprayer ends");
        self.sent.load(Ordering::Relaxed)
    }
}

#[expect(clippy::disallowed_methods, reason = "the sprayer keeps a rate; no thread waits for it")]
fn let_pass(time: Duration) {
    thread::sleep(time);
}

#[test]
fn every_class_is_counted_by_its_name() {
    let scene = Scene::new(1);
    scene.honest.round();
    let mut sprayer = scene.sprayer(1);
    for class in Class::ALL {
        let names = class.counted_as();
        let before = scene.counted(names);
        for sent in 1..=400 {
            sprayer.send(class, PORT);
            // Not more at a time than the smallest buffer holds.
            let end = now() + PATIENCE;
            while sent % 20 == 0 && scene.counted(names) - before < sent {
                assert!(now() < end, "{class:?}: {} of {sent} counted", scene.counted(names) - before);
                let_pass(Duration::from_micros(50));
            }
        }
        // A request for a service that no process has is refused, and the refusal reaches a peer that never
        // asked.
        let at_most = if class == Class::ConnectRequest { 800 } else { 400 };
        let counted = scene.counted(names) - before;
        assert!((400..=at_most).contains(&counted), "{counted} {class:?} as {names:?}");
        scene.check();
    }
    scene.honest.round();
    scene.check();
}

/// Bounded by the packets that are sprayed: some seconds' worth, or minutes of it when soaking.
#[test]
fn honest_work_goes_on_under_a_spray_of_lies() {
    let packets = if soak_minutes().is_some() { RATE * 60 } else { RATE * 4 };
    let scene = Scene::new(11);
    scene.honest.round();
    let storm = Storm::start(scene.sprayer(2), PORT);
    let mut rounds = 0;
    while storm.sent() < packets {
        scene.honest.round();
        rounds += 1;
    }
    let sent = storm.end();
    scene.honest.round();
    scene.check();
    let named = Class::ALL.map(|class| scene.counted(class.counted_as()));
    assert!(named.iter().all(|count| *count > 0), "every class arrived: {named:?}");
    assert!(rounds > 0);
    println!("{sent} lies, {rounds} rounds, {} MB of honest work", scene.honest.progress.bytes() / 1_000_000);
}

/// What the spray costs beyond the machine's time that it takes anyway: the same spray, aimed at the
/// device and at a port that no process has, in turns.
#[test]
fn honest_work_keeps_half_its_speed() {
    let Some(minutes) = soak_minutes() else { return };
    let scene = Scene::new(21);
    let storm = Storm::start(scene.sprayer(3), PORT);
    let slice = Duration::from_secs(3);
    let (mut ratios, start) = (Vec::new(), now());
    while now().since(start) < Duration::from_secs(60 * minutes.min(2)) {
        let [at_us, elsewhere] = [PORT, UNUSED].map(|port| {
            storm.port.store(port, Ordering::Relaxed);
            let (from, bytes) = (now(), scene.honest.progress.bytes());
            while now().since(from) < slice {
                scene.honest.round();
            }
            (scene.honest.progress.bytes() - bytes) as f64 / now().since(from).as_secs_f64() / 1e6
        });
        println!("under the spray {at_us:.0} MB/s, beside it {elsewhere:.0} MB/s");
        ratios.push(at_us / elsewhere);
    }
    let seconds = now().since(start).as_secs_f64();
    let rate = storm.end() as f64 / seconds;
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!(
        "{rate:.0} lies a second; honest work keeps {median:.2} of its speed (median of {})",
        ratios.len()
    );
    assert!(rate >= 50_000.0, "the sprayer was too slow to mean anything: {rate:.0} a second");
    assert!(median >= 0.5, "{ratios:?}");
    scene.check();
}

/// Minutes that the long forms may take, if they are wanted.
fn soak_minutes() -> Option<u64> {
    std::env::var("FERROCE_SOAK").ok()?.parse().ok()
}
