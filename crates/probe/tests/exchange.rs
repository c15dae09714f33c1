//! Prober and responder against each other, over a network and with clocks that chance chooses.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferroce_probe::{
    Answer, Arrival, Directions, Outcome, Packet, Peer, Ports, ProbeEvent, Prober, ProberConfig, Report,
    Responder, ResponderConfig, Sequence, Stamp, StampSource, Ticket,
};
use proptest::prelude::*;

const PROBER: Peer = Peer { address: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), qpn: 0x11 };
const TARGET: Peer = Peer { address: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), qpn: 0x12 };
const HOUR: i64 = 3_600_000_000_000;
const MILLI: u64 = 1_000_000;

/// A clock that is off, and too fast or too slow.
#[derive(Clone, Copy, Debug)]
struct Clock {
    offset: i64,
    ppm: i64,
}

const TRUE: Clock = Clock { offset: 0, ppm: 0 };

impl Clock {
    /// What it shows, so many nanoseconds after the beginning.
    fn at(self, nanos: u64) -> Stamp {
        let beginning = i128::from(2 * HOUR) + i128::from(self.offset);
        let shown = beginning + i128::from(nanos) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        Stamp::from_nanos(u64::try_from(shown).unwrap())
    }
}

/// What happens to one probe, in nanoseconds; none for what is lost.
#[derive(Clone, Copy, Debug)]
struct Fate {
    posted: u64,
    until_it_leaves: u64,
    forward: Option<u64>,
    until_ack1_leaves: u64,
    until_ack2_leaves: u64,
    back: [Option<u64>; 2],
    /// How long answers wait before they are handled.
    handling: u64,
    /// How long after the send its stamp is told.
    stamp_delay: u64,
    /// Copies of the answers come, so much later.
    copies: [Option<u64>; 2],
}

impl Fate {
    fn arrives(&self) -> Option<u64> {
        Some(self.posted + self.until_it_leaves + self.forward?)
    }

    fn answer_leaves(&self, which: usize) -> Option<u64> {
        Some(self.arrives()? + self.until_ack1_leaves + if which == 1 { self.until_ack2_leaves } else { 0 })
    }

    fn answer_arrives(&self, which: usize) -> Option<u64> {
        Some(self.answer_leaves(which)? + self.back[which]?)
    }

    /// How it must end; both if it is too close to say, with clocks that drift.
    fn outcomes(&self) -> Vec<Outcome> {
        match (self.answer_arrives(0), self.answer_arrives(1)) {
            (None, None) => vec![Outcome::TimeOut],
            (None, Some(_)) => vec![Outcome::Ack1Lost],
            (Some(_), None) => vec![Outcome::Ack2Lost],
            (Some(first), Some(second)) => match first.max(second) - self.posted {
                within if within < 499 * MILLI => vec![Outcome::Ok],
                within if within > 501 * MILLI => vec![Outcome::Late],
                _ => vec![Outcome::Ok, Outcome::Late],
            },
        }
    }
}

/// Something that happens at a time; what it belongs to is the index of a fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Post(usize),
    StampOfProbe(usize),
    ProbeArrives(usize),
    /// The first ACK has left: the responder gets its stamp, and sends the second one.
    StampOfAck(usize),
    /// Handled at this time, arrived at that.
    AnswerHandled {
        fate: usize,
        which: usize,
        arrived: u64,
    },
}

struct World {
    fates: Vec<Fate>,
    clocks: [Clock; 2],
    prober: Prober,
    responder: Responder,
    queue: BTreeSet<(u64, Event)>,
    sequences: Vec<Option<Sequence>>,
    probes: BTreeMap<usize, Packet>,
    tickets: BTreeMap<usize, Ticket>,
    answers: BTreeMap<(usize, usize), Packet>,
    reports: BTreeMap<Sequence, Report>,
}

impl World {
    fn run(fates: &[Fate], clocks: [Clock; 2], first: Sequence) -> Self {
        let mut world = Self {
            fates: fates.to_vec(),
            clocks,
            prober: Prober::new(ProberConfig::default(), first),
            responder: Responder::new(ResponderConfig::default()),
            queue: fates.iter().enumerate().map(|(index, fate)| (fate.posted, Event::Post(index))).collect(),
            sequences: vec![None; fates.len()],
            probes: BTreeMap::new(),
            tickets: BTreeMap::new(),
            answers: BTreeMap::new(),
            reports: BTreeMap::new(),
        };
        while let Some((time, event)) = world.queue.pop_first() {
            let now = world.clocks[0].at(time);
            world.wait_until(now);
            world.happens(time, event);
            world.gather();
        }
        while let Some(wake) = world.prober.wake_at() {
            world.wait_until(wake);
        }
        world
    }

    /// The prober wakes when it wants to, and not before.
    fn wait_until(&mut self, now: Stamp) {
        while let Some(wake) = self.prober.wake_at().filter(|wake| *wake <= now) {
            self.prober.advance(wake);
            self.gather();
        }
    }

    fn happens(&mut self, time: u64, event: Event) {
        let here = self.clocks[0].at(time);
        let there = self.clocks[1].at(time);
        match event {
            Event::Post(index) => self.post(index, time),
            Event::StampOfProbe(index) => {
                let fate = self.fates[index];
                let at = self.clocks[0].at(fate.posted + fate.until_it_leaves);
                self.prober.sent(self.sequences[index].unwrap(), at, StampSource::Kernel);
            }
            Event::ProbeArrives(index) => {
                let bytes = self.probes[&index].emit();
                let arrival = Arrival { bytes: &bytes, from: PROBER, at: there, source: StampSource::Kernel };
                let answer = self.responder.take(&arrival, there).unwrap();
                self.tickets.insert(index, answer.ticket);
                self.send_back(index, 0, &answer);
                self.queue.insert((self.fates[index].answer_leaves(0).unwrap(), Event::StampOfAck(index)));
            }
            Event::StampOfAck(index) => {
                let answer = self.responder.sent(self.tickets[&index], there).unwrap();
                self.send_back(index, 1, &answer);
            }
            Event::AnswerHandled { fate, which, arrived } => {
                let bytes = self.answers[&(fate, which)].emit();
                let at = self.clocks[0].at(arrived);
                let arrival = Arrival { bytes: &bytes, from: TARGET, at, source: StampSource::Kernel };
                self.prober.take(&arrival, here);
            }
        }
    }

    fn post(&mut self, index: usize, time: u64) {
        let fate = self.fates[index];
        let ports = Ports { sent: port_of(index), reply: 0 };
        let probe = self.prober.start(TARGET, ports, self.clocks[0].at(time)).unwrap();
        self.sequences[index] = Some(probe.sequence);
        self.probes.insert(index, probe);
        let left = fate.posted + fate.until_it_leaves;
        self.queue.insert((left + fate.stamp_delay, Event::StampOfProbe(index)));
        if let Some(arrives) = fate.arrives() {
            self.queue.insert((arrives, Event::ProbeArrives(index)));
        }
    }

    fn send_back(&mut self, index: usize, which: usize, answer: &Answer) {
        assert_eq!(answer.to, PROBER);
        self.answers.insert((index, which), answer.packet);
        let fate = self.fates[index];
        let Some(first) = fate.answer_arrives(which) else { return };
        for arrived in [Some(first), fate.copies[which].map(|later| first + later)].into_iter().flatten() {
            let event = Event::AnswerHandled { fate: index, which, arrived };
            self.queue.insert((arrived + fate.handling, event));
        }
    }

    fn gather(&mut self) {
        while let Some(event) = self.prober.poll() {
            if let ProbeEvent::Ended(report) = event {
                assert_eq!(self.reports.insert(report.sequence, report), None, "a probe ends once");
            }
        }
    }

    fn report(&self, index: usize) -> Report {
        self.reports[&self.sequences[index].unwrap()]
    }
}

/// Probes leave from three ports in turn.
fn port_of(index: usize) -> u16 {
    50_000 + u16::try_from(index % 3).unwrap()
}

/// The fates of the probes of a port in the order in which they leave, up to the last one whose first ACK comes:
/// of these, the responder has told.
fn told(fates: &[Fate], port: u16) -> Vec<Fate> {
    let mut all: Vec<(usize, Fate)> =
        fates.iter().copied().enumerate().filter(|(index, _)| port_of(*index) == port).collect();
    all.sort_by_key(|(index, fate)| (fate.posted, *index));
    let last = all.iter().rposition(|(_, fate)| fate.answer_arrives(0).is_some());
    all.into_iter().take(last.map_or(0, |last| last + 1)).map(|(_, fate)| fate).collect()
}

/// Mostly short ways, some that are too long.
fn way() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1000..20 * MILLI, 1 => 300 * MILLI..510 * MILLI, 1 => 600 * MILLI..1500 * MILLI]
}

fn lossy() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![4 => way().prop_map(Some), 1 => Just(None)]
}

fn fate() -> impl Strategy<Value = Fate> {
    let sending = (0..2000 * MILLI, 0..MILLI, 0..40 * MILLI);
    let there = (prop_oneof![4 => 0..100_000_u64, 1 => 0..5 * MILLI], 0..MILLI);
    let copies = [prop::option::of(1..100 * MILLI), prop::option::of(1..100 * MILLI)];
    (sending, lossy(), there, [lossy(), lossy()], 0..20 * MILLI, copies).prop_map(
        |((posted, until_it_leaves, stamp_delay), forward, there, back, handling, copies)| Fate {
            posted,
            until_it_leaves,
            forward,
            until_ack1_leaves: there.0,
            until_ack2_leaves: there.1,
            back,
            handling,
            stamp_delay,
            copies,
        },
    )
}

fn clock() -> impl Strategy<Value = Clock> {
    (
        prop_oneof![Just(-HOUR), Just(HOUR), -HOUR..HOUR],
        prop_oneof![Just(-100_i64), Just(100), -100_i64..=100],
    )
        .prop_map(|(offset, ppm)| Clock { offset, ppm })
}

/// The error that drift can make: 100 millionths of each bracket, and what is cut off when clocks are read.
fn drift_error(report: &Report) -> i128 {
    let times = report.times;
    let brackets = times.t5.unwrap().minus(times.t2.unwrap()) + times.t4.unwrap().minus(times.t3.unwrap());
    brackets / 9_000 + 4
}

proptest! {
    #[test]
    fn every_probe_ends_once_and_as_its_packets_fared(
        fates in prop::collection::vec(fate(), 1..40),
        clocks in [clock(), clock()],
        epoch: u32,
        counter in prop_oneof![any::<u32>(), u32::MAX - 20..=u32::MAX],
    ) {
        let world = World::run(&fates, clocks, Sequence::new(epoch, counter));
        prop_assert_eq!(world.reports.len(), fates.len());
        for (index, fate) in fates.iter().enumerate() {
            let report = world.report(index);
            prop_assert!(fate.outcomes().contains(&report.outcome), "{:?} of {:?}", report, fate);
            let measured = matches!(report.outcome, Outcome::Ok | Outcome::Late);
            prop_assert_eq!(report.delays.is_some(), measured);
            let Some(delays) = report.delays else { continue };
            let network = fate.forward.unwrap() + fate.back[0].unwrap();
            let error = i128::try_from(delays.round_trip.as_nanos()).unwrap() - i128::from(network);
            prop_assert!(error.abs() <= drift_error(&report), "{} ns wrong: {:?} of {:?}", error, report, fate);
            let ours = fate.until_it_leaves + fate.handling;
            let error = i128::try_from(delays.prober.as_nanos()).unwrap() - i128::from(ours);
            prop_assert!(error.abs() <= i128::from(ours) / 9_000 + 4, "{} ns wrong", error);
        }
        for port in 50_000..50_003 {
            // Packets overtake each other here, so what came after the last told answer had left is not known.
            let told = told(&fates, port);
            let acks = told.iter().filter(|fate| fate.answer_arrives(0).is_some()).count() as u64;
            let found = world.prober.directions(TARGET, port).unwrap_or_default();
            prop_assert_eq!(found.told, told.len() as u64);
            prop_assert_eq!(found.lost_there + found.lost_back + acks, found.told);
        }
        let counters = world.prober.counters();
        let strange = ["foreign_epoch", "never_sent", "wrong_address", "wrong_queue_pair", "wrong_echo",
            "contradictions", "stalls", "stray_stamps"];
        for (name, count) in counters.iter().filter(|(name, _)| strange.contains(name)) {
            prop_assert_eq!(count, 0, "{}", name);
        }
        let copies: usize = fates.iter().map(|fate| {
            (0..2).filter(|which| fate.answer_arrives(*which).is_some() && fate.copies[*which].is_some()).count()
        }).sum();
        prop_assert_eq!(counters.repeated + counters.already_over, copies as u64);
    }

    /// Ways of one length, on which packets do not overtake each other: the split is exact.
    #[test]
    fn loss_is_known_by_direction(
        lost in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..120),
        copies in [prop::option::of(1..100 * MILLI), prop::option::of(1..100 * MILLI)],
    ) {
        let way = |is_lost: bool| (!is_lost).then_some(20_000_u64);
        let fates: Vec<Fate> = (0..).zip(lost).map(|(number, (there, first, second))| Fate {
            posted: number * MILLI,
            until_it_leaves: 3000,
            forward: way(there),
            until_ack1_leaves: 20_000,
            until_ack2_leaves: 5000,
            back: [way(first), way(second)],
            handling: 4000,
            stamp_delay: 50_000,
            copies,
        }).collect();
        let world = World::run(&fates, [TRUE; 2], Sequence::new(3, u32::MAX - 5));
        for port in 50_000..50_003 {
            let told = told(&fates, port);
            let lost_there = told.iter().filter(|fate| fate.forward.is_none()).count() as u64;
            let lost_back =
                told.iter().filter(|fate| fate.forward.is_some() && fate.back[0].is_none()).count() as u64;
            let expected = Directions { told: told.len() as u64, lost_there, lost_back, refused: 0 };
            let found = world.prober.directions(TARGET, port).unwrap_or_default();
            prop_assert_eq!(found, expected);
        }
    }

    /// The same fates under true clocks and under clocks that are off: the same endings.
    #[test]
    fn clocks_that_are_off_change_nothing_beyond_their_drift(
        fates in prop::collection::vec(fate(), 1..20), clocks in [clock(), clock()],
    ) {
        let first = Sequence::new(3, 0);
        let (plain, shifted) = (World::run(&fates, [TRUE; 2], first), World::run(&fates, clocks, first));
        for (index, fate) in fates.iter().enumerate() {
            let (plain, shifted) = (plain.report(index), shifted.report(index));
            prop_assert!(plain.outcome == shifted.outcome || fate.outcomes().len() == 2);
            if let (Some(before), Some(after)) = (plain.delays, shifted.delays) {
                let nanos = |time: std::time::Duration| i128::try_from(time.as_nanos()).unwrap();
                let moved = nanos(after.round_trip) - nanos(before.round_trip);
                prop_assert!(moved.abs() <= drift_error(&shifted), "moved by {} ns", moved);
            }
        }
    }
}

#[test]
fn a_responder_that_stalls_five_milliseconds_does_not_move_the_round_trip() {
    let usual = Fate {
        posted: 0,
        until_it_leaves: 3000,
        forward: Some(10_000),
        until_ack1_leaves: 20_000,
        until_ack2_leaves: 5000,
        back: [Some(12_000), Some(12_000)],
        handling: 4000,
        stamp_delay: 50_000,
        copies: [None; 2],
    };
    let stalled = Fate { posted: MILLI, until_ack1_leaves: 5 * MILLI, ..usual };
    let clocks = [Clock { offset: HOUR, ppm: 100 }, Clock { offset: -HOUR, ppm: -100 }];
    let world = World::run(&[usual, stalled], clocks, Sequence::new(1, 1));
    let [usual, stalled] = [0, 1].map(|index| world.report(index).delays.unwrap());
    assert!(stalled.responder.as_micros() >= 4999);
    let moved = stalled.round_trip.abs_diff(usual.round_trip).as_nanos();
    assert!(moved <= 1010, "200 millionths of 5 ms, not {moved} ns");
    assert!(usual.round_trip.as_nanos().abs_diff(22_000) < 20, "{usual:?}");
}
