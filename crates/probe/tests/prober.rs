//! The prober, one story at a time: what comes, in which order, and how the probe ends.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::net::IpAddr;
use std::time::Duration;

use ferroce_probe::{
    Arrival, HostFault, Invalid, Kind, MAX_PENDING, Outcome, Packet, Peer, Ports, ProbeEvent,
    ProbeStartError, Prober, ProberConfig, Report, Sequence, Stamp, StampSource,
};

const TARGET: Peer = Peer { address: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), qpn: 0x12 };
const PORTS: Ports = Ports { sent: 50_000, reply: 51_000 };
/// Where the responder's clock stands when ours is at zero: they have nothing to do with each other.
const THERE: u64 = 77_000_000_000;

/// Makes an answer strange.
type Change = fn(&mut Packet, &mut Peer);

/// What happens to the probe. Times are microseconds after T1.
#[derive(Clone, Copy)]
enum Step {
    /// It is told that the probe left at 2.
    Sent,
    /// The first ACK arrived at this time and is handled 5 later; the probe arrived there at 10 and the ACK
    /// left at 60.
    First(u64),
    /// The same for the second ACK.
    Second(u64),
    /// The first ACK as another queue pair, or with other contents.
    Strange(Change),
    /// Nothing until then.
    Time(u64),
    Stall(u64, u64),
    ClockSteps,
    Fails,
}

use Step::{ClockSteps, Fails, First, Second, Sent, Stall, Strange, Time};

struct Story {
    prober: Prober,
    packet: Packet,
    t1: u64,
}

impl Story {
    fn new() -> Self {
        let mut prober = Prober::new(ProberConfig::default(), Sequence::new(0xabcd, 7));
        let t1 = 5_000_000_000;
        let packet = prober.start(TARGET, PORTS, Stamp::from_nanos(t1)).unwrap();
        Self { prober, packet, t1 }
    }

    fn at(&self, micros: u64) -> Stamp {
        Stamp::from_nanos(self.t1 + micros * 1000)
    }

    fn ack(&self, kind: Kind) -> Packet {
        let t4 = if kind == Kind::SecondAck { Stamp::from_nanos(THERE + 60_000) } else { Stamp::default() };
        let ports = Some(Ports { sent: 51_000, reply: 50_000 });
        Packet { kind, t3: Stamp::from_nanos(THERE + 10_000), t4, ports, ..self.packet }
    }

    fn arrives(&mut self, packet: &Packet, from: Peer, micros: u64) {
        let (at, now) = (self.at(micros), self.at(micros + 5));
        self.wait_until(at);
        let bytes = packet.emit();
        self.prober.take(&Arrival { bytes: &bytes, from, at, source: StampSource::Kernel }, now);
    }

    fn play(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Sent => self.prober.sent(self.packet.sequence, self.at(2), StampSource::Kernel),
                First(micros) => self.arrives(&self.ack(Kind::FirstAck), TARGET, micros),
                Second(micros) => self.arrives(&self.ack(Kind::SecondAck), TARGET, micros),
                Strange(change) => {
                    let (mut packet, mut from) = (self.ack(Kind::FirstAck), TARGET);
                    change(&mut packet, &mut from);
                    self.arrives(&packet, from, 85);
                }
                Time(micros) => self.wait_until(self.at(micros)),
                Stall(from, to) => self.prober.stalled(self.at(from), self.at(to)),
                ClockSteps => self.prober.clock_stepped(),
                Fails => self.prober.send_failed(self.packet.sequence),
            }
        }
    }

    /// A caller that wakes when it is asked to.
    fn wait_until(&mut self, end: Stamp) {
        while let Some(wake) = self.prober.wake_at().filter(|wake| *wake <= end) {
            self.prober.advance(wake);
        }
        self.prober.advance(end);
    }

    fn reports(&mut self) -> Vec<Report> {
        let all = std::iter::from_fn(|| self.prober.poll());
        all.filter_map(|event| match event {
            ProbeEvent::Ended(report) => Some(report),
            ProbeEvent::Overdue { .. } => None,
        })
        .collect()
    }
}

/// How the only probe of a story ends.
fn ending(steps: &[Step]) -> Report {
    let mut story = Story::new();
    story.play(steps);
    let reports = story.reports();
    assert_eq!(reports.len(), 1, "a probe ends once: {reports:?}");
    assert_eq!((story.prober.pending(), story.prober.wake_at()), (0, None));
    reports[0]
}

const END: Step = Time(5_000_000);

#[test]
fn stamps_and_answers_in_any_order_say_the_same() {
    let orders: [[Step; 3]; 6] = [
        [Sent, First(80), Second(90)],
        [Sent, Second(90), First(80)],
        [First(80), Sent, Second(90)],
        [First(80), Second(90), Sent],
        [Second(90), Sent, First(80)],
        [Second(90), First(80), Sent],
    ];
    for (number, order) in orders.iter().enumerate() {
        let report = ending(order);
        assert_eq!(report.outcome, Outcome::Ok, "order {number}");
        let delays = report.delays.unwrap();
        assert_eq!(delays.round_trip, Duration::from_micros(28), "order {number}");
        assert_eq!(delays.responder, Duration::from_micros(50));
        assert_eq!(delays.prober, Duration::from_micros(7));
        assert_eq!(report.times.t7.unwrap().minus(report.times.t1), 95_000);
        assert_eq!((report.port, report.answer_ports.unwrap().sent), (50_000, 51_000));
        assert_eq!(report.times.source, StampSource::Kernel);
    }
}

#[test]
fn every_ending_has_its_story() {
    let stories: &[(&[Step], Outcome)] = &[
        (&[Sent, END], Outcome::TimeOut),
        (&[END], Outcome::TimeOut),
        (&[Sent, First(80), END], Outcome::Ack2Lost),
        (&[Sent, Second(90), END], Outcome::Ack1Lost),
        (&[Sent, First(80), Second(500_000)], Outcome::Ok),
        (&[Sent, First(80), Second(500_001)], Outcome::Late),
        (&[Sent, First(4_999_000), Second(90)], Outcome::Late),
        (&[Sent, First(600_000), END], Outcome::Ack2Lost),
        (&[First(80), Second(90), Time(500_000)], Outcome::Invalid(Invalid::NoSendStamp)),
        (&[Sent, ClockSteps], Outcome::Invalid(Invalid::ClockStep)),
        (&[Fails], Outcome::Host(HostFault::SendFailed)),
        (&[Sent, Stall(400_000, 450_000), END], Outcome::Host(HostFault::Stalled)),
        (&[Sent, Stall(400_000, 449_999), END], Outcome::TimeOut),
        (&[Sent, Time(600_000), Stall(500_001, 600_000), END], Outcome::TimeOut),
        (&[Sent, First(80), Stall(0, 60_000), END], Outcome::Host(HostFault::Stalled)),
        (&[Sent, Second(90), Stall(0, 60_000), END], Outcome::Host(HostFault::Stalled)),
        (&[Sent, Stall(0, 60_000), First(80), Second(90)], Outcome::Ok),
        (&[Sent, Stall(0, 60_000), First(80), Second(600_000)], Outcome::Host(HostFault::Stalled)),
    ];
    for (number, (steps, outcome)) in stories.iter().enumerate() {
        let report = ending(steps);
        assert_eq!(report.outcome, *outcome, "story {number}");
        let measured = matches!(outcome, Outcome::Ok | Outcome::Late);
        assert_eq!(report.delays.is_some(), measured, "story {number}");
    }
}

#[test]
fn a_probe_without_answers_is_overdue_first_and_over_later() {
    let mut story = Story::new();
    story.play(&[Sent, Time(499_999)]);
    assert_eq!(story.prober.poll(), None);
    assert_eq!(story.prober.wake_at(), Some(story.at(500_000)));
    story.play(&[Time(500_000)]);
    let overdue = ProbeEvent::Overdue { sequence: story.packet.sequence, target: TARGET };
    assert_eq!(story.prober.poll(), Some(overdue));
    assert_eq!(story.prober.wake_at(), Some(story.at(5_000_000)));
    story.play(&[Time(4_999_999)]);
    assert_eq!((story.prober.poll(), story.prober.pending()), (None, 1));
    story.play(&[END, First(5_000_001)]);
    assert_eq!(story.reports()[0].outcome, Outcome::TimeOut);
    assert_eq!((story.prober.outcomes().time_out, story.prober.counters().already_over), (1, 1));
}

/// Our own timers woke late, and a packet waited in its socket: both are seen without being told.
#[test]
fn a_stalled_host_notices_it_by_itself() {
    let mut story = Story::new();
    story.prober.advance(story.at(550_000));
    story.play(&[END]);
    assert_eq!(
        story.reports()[0].outcome,
        Outcome::Host(HostFault::Stalled),
        "due at 500 ms, woken at 550 ms"
    );

    let mut story = Story::new();
    let (at, now) = (story.at(100_000), story.at(150_000));
    let from = Peer { qpn: 99, ..TARGET };
    story.prober.take(&Arrival { bytes: &[], from, at, source: StampSource::Kernel }, now);
    story.play(&[END]);
    assert_eq!(story.prober.counters().stalls, 1);
    assert_eq!(story.reports()[0].outcome, Outcome::Host(HostFault::Stalled), "another packet waited 50 ms");
}

#[test]
fn what_lies_is_invalid_and_not_lost() {
    let lies: &[(&[Step], Invalid)] = &[
        (&[Sent, Strange(|ack, _| ack.t1 = Stamp::default()), Second(90)], Invalid::Echo),
        (&[Sent, Strange(|ack, _| ack.t3 = Stamp::from_nanos(1)), Second(90)], Invalid::Contradiction),
        (
            &[
                Sent,
                First(80),
                Strange(|ack, _| {
                    (ack.kind, ack.t4) = (Kind::SecondAck, Stamp::from_nanos(THERE + 9000));
                }),
            ],
            Invalid::NegativeResponder,
        ),
        (
            &[
                Sent,
                First(80),
                Strange(|ack, _| {
                    (ack.kind, ack.t4) = (Kind::SecondAck, Stamp::from_nanos(THERE + 88_001));
                }),
            ],
            Invalid::NegativeRoundTrip,
        ),
    ];
    for (steps, invalid) in lies {
        let report = ending(steps);
        assert_eq!(report.outcome, Outcome::Invalid(*invalid));
        assert_eq!(report.delays, None);
    }
}

#[test]
fn what_is_no_answer_is_counted_by_kind_and_changes_nothing() {
    let strange: &[(&str, Change)] = &[
        ("not_answers", |packet, _| packet.kind = Kind::Probe),
        ("foreign_epoch", |packet, _| packet.sequence = Sequence::new(0xabce, 7)),
        ("never_sent", |packet, _| packet.sequence = Sequence::new(0xabcd, 8)),
        ("never_sent", |packet, _| packet.sequence = Sequence::new(0xabcd, 6)),
        ("wrong_address", |_, from| from.address = IpAddr::from([10, 0, 0, 3])),
        ("wrong_queue_pair", |_, from| from.qpn = 0x13),
    ];
    for (name, change) in strange {
        let mut story = Story::new();
        story.play(&[Sent, Strange(*change)]);
        let counted: Vec<_> = story.prober.counters().iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("probes", 1), (*name, 1)]);
        story.play(&[First(90), Second(95)]);
        assert_eq!(story.reports()[0].outcome, Outcome::Ok, "{name}");
    }
    let mut story = Story::new();
    for (bytes, name) in [(vec![1; 39], "wrong_length"), (vec![9; 40], "wrong_version"), (vec![1; 40], "")] {
        let at = story.at(1);
        let arrival = Arrival { bytes: &bytes, from: TARGET, at, source: StampSource::Kernel };
        story.prober.take(&arrival, at);
        assert!(name.is_empty() || story.prober.counters().iter().any(|one| one == (name, 1)), "{name}");
    }
    let mut wrong_kind = story.packet.emit();
    wrong_kind[1] = 7;
    let at = story.at(2);
    story.prober.take(&Arrival { bytes: &wrong_kind, from: TARGET, at, source: StampSource::Kernel }, at);
    assert_eq!(story.prober.counters().wrong_kind, 1);
    assert_eq!(story.prober.pending(), 1);
}

#[test]
fn an_address_has_two_ways_to_be_written() {
    let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 2]);
    let mut story = Story::new();
    for kind in [Kind::FirstAck, Kind::SecondAck] {
        story.arrives(&story.ack(kind), Peer { address: mapped, ..TARGET }, 80);
    }
    story.play(&[Sent]);
    assert_eq!(story.reports()[0].outcome, Outcome::Ok, "::ffff:10.0.0.2 is 10.0.0.2");
}

#[test]
fn copies_are_counted_while_the_probe_is_pending_and_after() {
    let mut story = Story::new();
    story.play(&[Sent, Sent, First(80), First(81), Second(90), Second(91), First(92), Sent]);
    let counters = *story.prober.counters();
    assert_eq!((counters.first_acks, counters.second_acks), (1, 1));
    assert_eq!((counters.repeated, counters.already_over, counters.stray_stamps), (1, 2, 2));
    let times = story.reports()[0].times;
    assert_eq!(times.t5.unwrap().minus(times.t1), 80_000, "the first of the copies counts");
}

#[test]
fn the_worst_stamp_names_the_source() {
    for (sent, arrived, worst) in [
        (StampSource::Hardware, StampSource::Hardware, "hardware"),
        (StampSource::Kernel, StampSource::Hardware, "kernel"),
        (StampSource::Kernel, StampSource::AfterCall, "after-call"),
    ] {
        let mut story = Story::new();
        story.prober.sent(story.packet.sequence, story.at(2), sent);
        for kind in [Kind::FirstAck, Kind::SecondAck] {
            let bytes = story.ack(kind).emit();
            let at = story.at(80);
            story.prober.take(&Arrival { bytes: &bytes, from: TARGET, at, source: arrived }, at);
        }
        assert_eq!(story.reports()[0].times.source.name(), worst);
    }
}

#[test]
fn what_is_pending_is_bounded_and_the_overdue_make_room() {
    let config = ProberConfig { capacity: 3, ..ProberConfig::default() };
    let mut prober = Prober::new(config, Sequence::new(1, u32::MAX));
    let at = |millis: u64| Stamp::from_nanos(millis * 1_000_000);
    for millis in 0..3 {
        prober.start(TARGET, PORTS, at(millis)).unwrap();
    }
    assert_eq!(prober.start(TARGET, PORTS, at(499)), Err(ProbeStartError::Full { pending: 3 }));
    assert!(prober.start(TARGET, PORTS, at(500)).is_ok());
    assert_eq!(prober.pending(), 3);
    let Some(ProbeEvent::Ended(report)) = prober.poll() else { panic!("the oldest is over") };
    assert_eq!((report.sequence, report.outcome), (Sequence::new(1, u32::MAX), Outcome::TimeOut));
    assert_eq!((prober.counters().no_room, prober.counters().cut_short), (1, 1));
    prober.advance(at(600));
    let overdue = std::iter::from_fn(|| prober.poll()).count();
    assert_eq!(overdue, 2, "those that are gone are not told to be overdue");
}

#[test]
fn settings_out_of_bounds_are_brought_within() {
    let at = |millis: u64| Stamp::from_nanos(millis * 1_000_000);
    let config = ProberConfig { capacity: 0, late: Duration::ZERO, ..ProberConfig::default() };
    let mut prober = Prober::new(config, Sequence::new(1, 0));
    assert!(prober.start(TARGET, PORTS, at(0)).is_ok(), "one at least");
    prober.advance(at(499));
    assert_eq!((prober.poll(), prober.wake_at()), (None, Some(at(500))), "late is not before the time-out");
    let config = ProberConfig { capacity: usize::MAX, ..ProberConfig::default() };
    let mut prober = Prober::new(config, Sequence::new(1, 0));
    let started = (0..70_000).filter(|_| prober.start(TARGET, PORTS, at(0)).is_ok()).count();
    assert_eq!((started, prober.pending()), (MAX_PENDING, MAX_PENDING));
}

/// The clock goes back by a second: a stall that the old clock told of is not one of the new clock's times.
#[test]
fn a_step_of_the_clock_forgets_stalls() {
    let mut story = Story::new();
    story.play(&[Stall(0, 60_000), ClockSteps]);
    assert_eq!(story.reports()[0].outcome, Outcome::Invalid(Invalid::ClockStep));
    let packet = story.prober.start(TARGET, PORTS, Stamp::from_nanos(story.t1)).unwrap();
    story.wait_until(story.at(5_000_000));
    let report = story.reports()[0];
    assert_eq!((report.sequence, report.outcome), (packet.sequence, Outcome::TimeOut));
    assert_eq!((story.prober.counters().stalls, story.prober.counters().clock_steps), (1, 1));
}

#[test]
fn counters_of_sequences_wrap_and_the_epoch_stays() {
    let mut prober = Prober::new(ProberConfig::default(), Sequence::new(5, u32::MAX - 1));
    let start =
        |prober: &mut Prober, nanos| prober.start(TARGET, PORTS, Stamp::from_nanos(nanos)).unwrap().sequence;
    let sequences: Vec<Sequence> = (0..4).map(|nanos| start(&mut prober, nanos)).collect();
    let expected = [u32::MAX - 1, u32::MAX, 0, 1].map(|counter| Sequence::new(5, counter));
    assert_eq!(sequences, expected);
    for sequence in sequences {
        prober.send_failed(sequence);
        let Some(ProbeEvent::Ended(report)) = prober.poll() else { panic!("it is over") };
        assert_eq!(report.sequence, sequence);
    }
}
