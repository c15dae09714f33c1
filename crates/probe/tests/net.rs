//! Prober and responder over queue pairs, on cards of their own.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ferroce_probe::net::{ProbeEndError, ProberEnd, QKEY, ResponderEnd, SERVICE_PORT, stamp_now};
use ferroce_probe::{
    Kind, Outcome, Packet, Peer, ProbeEvent, ProberConfig, Report, ResponderConfig, ResponderCounters,
    Sequence, Stamp, StampSource,
};
use ferroce_verbs::{
    AddressHandle, AddressVector, CompletionQueue, Context, PathPolicy, ProtectionDomain, Qpn, QueuePair,
    Service,
};

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(30);

fn card(last: u8) -> (Context, IpAddr) {
    let address = IpAddr::from([127, 0, 131, last]);
    (Context::builder("lo").address(address).open().unwrap(), address)
}

/// A responder on a card of its own, while something is done; what it has counted then.
fn beside_responder(last: u8, act: impl FnOnce(Peer)) -> ResponderCounters {
    let (context, address) = card(last);
    let mut responder = ResponderEnd::open(&context, address, Some(SERVICE_PORT), unhurried()).unwrap();
    let peer = Peer { address, qpn: responder.qpn() };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                responder.turn().unwrap();
                responder.sleep(Duration::from_millis(5));
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(peer)));
        stop.store(true, Ordering::Relaxed);
        answering.join().unwrap();
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    *responder.counters()
}

/// Answers a source however fast it asks: a fast machine makes more probes a second than the limit lets pass.
fn unhurried() -> ResponderConfig {
    ResponderConfig { rate: 1_000_000_000, burst: 1_000_000, ..ResponderConfig::default() }
}

/// Patient, so that a busy machine is not mistaken for anything else.
fn patient() -> ProberConfig {
    ProberConfig { timeout: SOON, late: SOON, stall: SOON, ..ProberConfig::default() }
}

/// Turns until this many probes have ended.
fn reports(prober: &mut ProberEnd, count: usize) -> Vec<Report> {
    let end = stamp_now().plus(SOON);
    let mut reports = Vec::new();
    while reports.len() < count {
        assert!(stamp_now() < end, "{} of {count} probes ended: {:?}", reports.len(), prober.counters());
        prober.turn().unwrap();
        while let Some(event) = prober.poll() {
            if let ProbeEvent::Ended(report) = event {
                reports.push(report);
            }
        }
        if reports.len() < count {
            prober.sleep_until(stamp_now().plus(Duration::from_millis(5)));
        }
    }
    reports
}

#[test]
fn probes_are_answered_with_times_of_the_kernel() {
    let counters = beside_responder(2, |peer| {
        let (context, address) = card(1);
        let mut prober = ProberEnd::open(&context, address, patient()).unwrap();
        assert_eq!(prober.find(peer.address, SERVICE_PORT, SOON).unwrap(), peer);
        for _ in 0..200 {
            let sequence = prober.probe(peer, None).unwrap();
            let [report] = reports(&mut prober, 1)[..] else { panic!("one report") };
            assert_eq!((report.sequence, report.outcome), (sequence, Outcome::Ok), "{report:?}");
            assert_eq!((report.times.source, report.port), (StampSource::Kernel, 4791));
            assert_eq!(report.answer_ports.map(|ports| (ports.sent, ports.reply)), Some((4791, 4791)));
            let times = report.times;
            let ours = [Some(times.t1), times.t2, times.t5, times.t6, times.t7];
            assert!(ours.is_sorted() && times.t3 <= times.t4, "{times:?}");
            // Both ends have one clock here.
            let all = [Some(times.t1), times.t2, times.t3, times.t4, times.t5, times.t6, times.t7];
            assert!(all.is_sorted(), "{times:?}");
        }
        assert_eq!(prober.outcomes().ok, 200);
    });
    assert_eq!((counters.answered, counters.second_acks), (200, 200));
}

#[test]
fn many_probes_are_under_way_at_once() {
    let counters = beside_responder(4, |peer| {
        let (context, address) = card(3);
        let mut prober = ProberEnd::open(&context, address, patient()).unwrap();
        for _ in 0..20 {
            for _ in 0..100 {
                prober.probe(peer, None).unwrap();
            }
            let ended = reports(&mut prober, 100);
            let other = ended.iter().find(|report| report.outcome != Outcome::Ok);
            assert_eq!((other, prober.pending()), (None, 0));
        }
    });
    assert_eq!(counters.answered, 2000);
}

#[test]
fn a_port_that_cannot_be_is_refused_and_a_silent_host_times_out() {
    let (context, address) = card(5);
    let (_silent, host) = card(6);
    let soon = Duration::from_millis(50);
    let config = ProberConfig { timeout: soon, late: 2 * soon, stall: SOON, ..ProberConfig::default() };
    let mut prober = ProberEnd::open(&context, address, config).unwrap();
    let peer = Peer { address: host, qpn: 0x1234 };
    let refused = prober.probe(peer, Some(50_000)).unwrap_err();
    assert!(matches!(refused, ProbeEndError::Port { port: 50_000, .. }), "{refused:?}");
    let missing = prober.find(host, SERVICE_PORT, SOON).unwrap_err();
    assert!(matches!(missing, ProbeEndError::Find(_)), "{missing:?}");
    prober.probe(peer, None).unwrap();
    assert_eq!(reports(&mut prober, 1)[0].outcome, Outcome::TimeOut);
    assert_eq!((prober.outcomes().time_out, prober.counters().probes), (1, 1));
}

/// A queue pair that says what it likes to a prober or a responder.
struct Liar {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl Liar {
    fn new(context: &Context) -> Self {
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(64).unwrap();
        let qp = pd.queue_pair(Service::Ud).completion_queue(&cq).path(PathPolicy::Forbid);
        let qp = qp.max_inline(256).build().unwrap();
        qp.activate(QKEY).unwrap();
        Self { qp, cq, pd }
    }

    fn say(&self, to: &AddressHandle, qpn: u32, bytes: &[u8]) {
        self.qp.send_inline_to(to, Qpn::new(qpn), QKEY, bytes).post().unwrap();
        self.cq.wait(SOON).unwrap().result().unwrap();
    }

    fn way_to(&self, address: IpAddr) -> AddressHandle {
        self.pd.address_handle(&AddressVector::new(address.into(), 0)).unwrap()
    }
}

/// Bytes that are no packets of a prober, each for another reason.
fn rubbish() -> Vec<Vec<u8>> {
    let mut other_version = vec![0; 40];
    other_version[0] = 9;
    let mut other_kind = vec![0; 40];
    other_kind[..3].copy_from_slice(&[1, 1, 7]);
    vec![vec![], b"short".to_vec(), vec![1; 41], vec![1; 200], other_version, other_kind]
}

#[test]
fn what_strangers_send_is_counted_by_kind_and_changes_nothing() {
    let (liars, _) = card(9);
    let liar = Liar::new(&liars);
    let (context, address) = card(7);
    let mut prober = ProberEnd::open(&context, address, patient()).unwrap();
    let to_prober = liar.way_to(address);
    let answered = beside_responder(8, |peer| {
        let to_responder = liar.way_to(peer.address);
        for bytes in rubbish() {
            liar.say(&to_prober, prober.qpn(), &bytes);
            liar.say(&to_responder, peer.qpn, &bytes);
        }
        let sequence = prober.probe(peer, None).unwrap();
        let report = reports(&mut prober, 1)[0];
        let ack = Packet {
            kind: Kind::FirstAck,
            sequence,
            t1: report.times.t1,
            t3: report.times.t3.unwrap(),
            t4: Stamp::default(),
            ports: None,
            arrivals: None,
        };
        // A replay; an answer of another epoch; one to a probe that was never sent; a probe.
        for packet in [
            ack,
            Packet { sequence: Sequence::new(!sequence.epoch(), 0), ..ack },
            Packet { sequence: Sequence::new(sequence.epoch(), 999), ..ack },
            Packet { kind: Kind::Probe, ..ack },
        ] {
            liar.say(&to_prober, prober.qpn(), &packet.emit());
        }
        liar.say(&to_responder, peer.qpn, &ack.emit());
        // What is pending is not ended by an answer from another card.
        let pending = prober.probe(Peer { qpn: 0x00ff_fff0, ..peer }, None).unwrap();
        liar.say(&to_prober, prober.qpn(), &Packet { sequence: pending, ..ack }.emit());
        // All packets of a card come in their order, so this is the last one.
        liar.say(&to_prober, prober.qpn(), b"the last one");
        let end = stamp_now().plus(SOON);
        while prober.counters().wrong_length < 5 {
            assert!(stamp_now() < end, "the last packet does not come: {:?}", prober.counters());
            prober.turn().unwrap();
            prober.sleep_until(stamp_now().plus(Duration::from_millis(5)));
        }
        assert_eq!(prober.poll(), None, "the pending probe goes on");
        let counters = prober.counters();
        assert_eq!((counters.wrong_version, counters.wrong_kind, counters.not_answers), (1, 1, 1));
        assert_eq!((counters.foreign_epoch, counters.never_sent, counters.already_over), (1, 1, 1));
        assert_eq!((counters.wrong_address, prober.pending(), prober.outcomes().ok), (1, 1, 1));
        // The responder has seen all of it when it answers once more.
        prober.probe(peer, None).unwrap();
        assert_eq!(reports(&mut prober, 1)[0].outcome, Outcome::Ok);
    });
    assert_eq!((answered.answered, answered.wrong_length, answered.wrong_version), (2, 4, 1));
    assert_eq!((answered.wrong_kind, answered.not_probes), (1, 1));
}
