//! Packet level and flow level say the same of the same faults, up to chance.
//!
//! For each of 20 scenarios the same plan runs on both levels. How the probes ended, apart for those that
//! meet a fault on the way there, on the way back, on both and on none, is compared by a chi-square test of
//! homogeneity; the 20 results are corrected after Holm. All seeds are fixed, so this cannot fail by chance;
//! that it would fail if a level was wrong is shown by scenarios that differ a little.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod stats;

use ferroce_clos::{
    Fabric, Fault, Node, Observation, Place, Plan, PlanConfig, Shape, Stall, Trouble, flows, packets,
};

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;

/// About 20,000 probes.
const PLAN: PlanConfig = PlanConfig { window: 8 * SECOND, below_tor: 20, between_tors: 60, ports: 8 };

fn shape() -> Shape {
    Shape::SMALL
}

fn link(from: Node, to: Node) -> Place {
    Place::Link(shape().link(from, to).unwrap())
}

fn up() -> Place {
    link(Node::Tor(1), Node::Aggregation(0))
}

fn down() -> Place {
    link(Node::Core(1), Node::Aggregation(2))
}

fn card() -> Place {
    Place::Node(Node::Rnic(5))
}

fn with(faults: &[(Place, Trouble)], stalls: &[Stall]) -> Fabric {
    let mut fabric = Fabric::new(shape(), 77).with_clocks(20);
    for (place, trouble) in faults {
        fabric = fabric.with_fault(Fault { place: *place, trouble: *trouble });
    }
    stalls.iter().fold(fabric, |fabric, stall| fabric.with_stall(*stall))
}

fn loss(rate: f64) -> Trouble {
    Trouble::Loss { rate }
}

fn stall(host: u32, period: u64, lasts: u64, drops: f64) -> Stall {
    Stall { host, period: period * MILLI, lasts: lasts * MILLI, phase: u64::from(host) * 37 * MILLI, drops }
}

fn scenarios() -> Vec<(&'static str, Fabric)> {
    let hole = |share| Trouble::BlackHole { share, salt: 4 };
    let slow = |rate| Trouble::Delay { rate, extra: 80_000 };
    let flap = |period, down| Trouble::Flap { period: period * MILLI, down: down * MILLI, phase: 3 * MILLI };
    vec![
        ("nothing", with(&[], &[])),
        ("background", with(&[], &[]).with_background(0.003)),
        ("1 % up", with(&[(up(), loss(0.01))], &[])),
        ("10 % up", with(&[(up(), loss(0.1))], &[])),
        ("50 % down", with(&[(down(), loss(0.5))], &[])),
        ("all lost", with(&[(down(), loss(1.0))], &[])),
        ("a bad card", with(&[(card(), loss(0.2))], &[])),
        ("a bad ToR", with(&[(Place::Node(Node::Tor(6)), loss(0.05))], &[])),
        ("a bad core", with(&[(Place::Node(Node::Core(3)), loss(0.3))], &[])),
        ("corruption", with(&[(Place::Node(Node::Aggregation(1)), Trouble::Corruption { rate: 0.15 })], &[])),
        ("a black hole for some", with(&[(Place::Node(Node::Aggregation(3)), hole(0.3))], &[])),
        ("a black hole for all", with(&[(up(), hole(1.0))], &[])),
        ("slow", with(&[(up(), slow(0.4)), (down(), slow(0.1))], &[])),
        ("a flap", with(&[(Place::Node(Node::Core(0)), flap(900, 150))], &[])),
        (
            "two flaps and loss",
            with(&[(up(), flap(700, 90)), (down(), flap(1100, 300)), (card(), loss(0.1))], &[]),
        ),
        ("a short stall", with(&[], &[stall(3, 300, 30, 0.4)])),
        ("stalls", with(&[], &[stall(3, 900, 120, 0.5), stall(9, 1300, 400, 0.1)])),
        ("a long stall", with(&[], &[stall(12, 2000, 800, 0.0)])),
        ("a stall and loss", with(&[(card(), loss(0.3)), (up(), loss(0.1))], &[stall(2, 1500, 200, 1.0)])),
        (
            "everything",
            with(
                &[(up(), loss(0.2)), (down(), flap(800, 100)), (card(), slow(0.5)), (up(), hole(0.2))],
                &[stall(1, 1200, 600, 0.3), stall(14, 500, 60, 0.6)],
            ),
        ),
    ]
}

/// The counts of all kinds of flows: by whether a fault is on the way there and on the way back, and whether
/// the hosts at their ends stall.
fn counts(fabric: &Fabric, seen: &[Observation]) -> Vec<[u64; 8]> {
    let mut kinds = vec![Observation::default(); 16];
    for one in seen {
        kinds[kind(fabric, one)].add(one);
    }
    let table = |one: &Observation| {
        let Observation { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host, .. } = *one;
        [ok - slow, slow, ack2_lost, ack1_lost, time_out, late, invalid, host].map(u64::from)
    };
    kinds.iter().map(table).collect()
}

fn kind(fabric: &Fabric, one: &Observation) -> usize {
    let places: Vec<Place> = fabric.faults().iter().map(|fault| fault.place).collect();
    let is_on = |tuple| {
        fabric.route(tuple).links().iter().any(|link| {
            let (from, to) = shape().ends(*link);
            let near = [Place::Link(*link), Place::Node(from), Place::Node(to)];
            near.iter().any(|place| places.contains(place))
        })
    };
    let stalls = |rnic| fabric.stalls().any(|stall| stall.host == shape().host_of(rnic));
    let bits =
        [is_on(one.tuple()), is_on(one.tuple().back(one.reply_port)), stalls(one.from), stalls(one.to)];
    bits.iter().fold(0, |kind, bit| kind << 1 | usize::from(*bit))
}

/// The chance of seeing so different counts, if both fabrics are the same.
fn compared(packet_level: &Fabric, flow_level: &Fabric, seed: u64) -> f64 {
    let plan = Plan::mesh(&shape(), &PLAN, seed);
    let packets = packets::observe(packet_level, &plan, seed + 1000);
    let flows = flows::observe(flow_level, &plan, seed + 2000);
    let sent = |seen: &[Observation]| seen.iter().map(|one| u64::from(one.sent())).sum::<u64>();
    assert_eq!(sent(&packets.observations), plan.probes(), "each probe ends");
    assert_eq!(sent(&flows), plan.probes());
    let [packets, flows] = [counts(packet_level, &packets.observations), counts(packet_level, &flows)];
    stats::homogeneity(&packets.concat(), &flows.concat(), 8)
}

#[test]
fn both_levels_agree_in_20_scenarios() {
    let scenarios = scenarios();
    assert_eq!(scenarios.len(), 20);
    let run =
        |(seed, (name, fabric)): (u64, &(&'static str, Fabric))| (compared(fabric, fabric, seed), *name);
    let chances: Vec<(f64, &str)> = (0..).zip(&scenarios).map(run).collect();
    let rejected = stats::holm(&chances.iter().map(|(chance, _)| *chance).collect::<Vec<_>>(), 0.01);
    let names: Vec<_> = rejected.iter().map(|index| chances[*index]).collect();
    assert!(names.is_empty(), "they do not agree in {names:?}; all: {chances:?}");
}

/// What the comparison would notice.
#[test]
fn levels_that_differ_a_little_are_told_apart() {
    let pairs = [
        ("loss", with(&[(up(), loss(0.1))], &[]), with(&[(up(), loss(0.2))], &[])),
        ("the other direction", with(&[(up(), loss(0.5))], &[]), with(&[(card(), loss(0.5))], &[])),
        ("drops", with(&[], &[stall(3, 900, 300, 0.5)]), with(&[], &[stall(3, 900, 300, 0.9)])),
        ("how long", with(&[], &[stall(3, 2000, 800, 0.0)]), with(&[], &[stall(3, 2000, 600, 0.0)])),
        (
            "how slow",
            with(&[(up(), Trouble::Delay { rate: 0.4, extra: 80_000 })], &[]),
            with(&[(up(), Trouble::Delay { rate: 0.55, extra: 80_000 })], &[]),
        ),
    ];
    for (name, one, other) in pairs {
        let chance = compared(&one, &other, 5);
        assert!(chance < 1e-4, "{name}: {chance}");
    }
}

/// The scenarios have probes of every ending, on both levels: else agreement would say less.
#[test]
fn every_ending_is_compared() {
    let plan = Plan::mesh(&shape(), &PLAN, 3);
    let mut sums = [Observation::default(); 2];
    for (_, fabric) in
        scenarios().iter().filter(|(name, _)| ["stalls", "a long stall", "slow"].contains(name))
    {
        for one in packets::observe(fabric, &plan, 1).observations {
            sums[0].add(&one);
        }
        for one in flows::observe(fabric, &plan, 1) {
            sums[1].add(&one);
        }
    }
    for sum in sums {
        let Observation { ok, slow, time_out, late, invalid, host, .. } = sum;
        let counts = [ok, slow, time_out, late, invalid, host];
        assert!(counts.iter().all(|count| *count >= 5), "{sum:?}");
    }
    let (_, lossy) = &scenarios()[3];
    let mut sum = Observation::default();
    packets::observe(lossy, &plan, 1).observations.iter().for_each(|one| sum.add(one));
    assert!(sum.ack1_lost >= 5 && sum.ack2_lost >= 5, "{sum:?}");
}

/// What agents say of their hosts is what their probers notice.
#[test]
fn probers_notice_the_stalls_that_hosts_report() {
    // None of them has begun when the simulation begins.
    let stalls = [stall(4, 900, 120, 0.5), stall(12, 1300, 400, 0.1), stall(10, 300, 30, 0.4)];
    let fabric = with(&[], &stalls);
    let plan = Plan::mesh(&shape(), &PLAN, 3);
    let last = plan.flows.iter().flat_map(ferroce_clos::Flow::times).max().unwrap();
    let reports = flows::host_reports(&fabric, last + packets::AFTERWARDS);
    let hosts: Vec<_> = reports.iter().map(|report| (report.host, report.longest / MILLI)).collect();
    assert_eq!(hosts, [(4, 120), (12, 400)], "30 ms are too short to be seen");
    let reported: u32 = reports.iter().map(|report| report.stalls).sum();
    let noticed = packets::observe(&fabric, &plan, 1).probers.stalls;
    assert_eq!(noticed, u64::from(reported * shape().rnics), "each RNIC has a prober");
}

#[test]
fn packets_meet_what_was_planned() {
    let fabric = with(&[(up(), Trouble::Corruption { rate: 0.5 })], &[]);
    let plan = Plan::mesh(&shape(), &PLAN, 1);
    let seen = packets::observe(&fabric, &plan, 2);
    assert!(seen.corrupted > 50, "cards drop what is corrupted: {}", seen.corrupted);
    assert_eq!(seen.probers.probes, plan.probes());
    let strange = seen
        .probers
        .iter()
        .filter(|(name, count)| *count > 0 && !["probes", "first_acks", "second_acks"].contains(name));
    assert_eq!(strange.collect::<Vec<_>>(), [], "nothing else comes to a prober");
    let again = packets::observe(&fabric, &plan, 2);
    assert_eq!(seen.observations, again.observations, "a seed is a run");
}
