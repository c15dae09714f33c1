//! Flow level at 10,240 RNICs, and what the packet level measures where nothing is wrong.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use ferroce_clos::{
    Fabric, Fault, Node, Place, Plan, PlanConfig, ScenarioConfig, Shape, Trouble, flows, packets,
};
use ferroce_probe::Outcome;

/// A window of 20 seconds of a whole mesh: a bad link is where the losses are, and nowhere else.
#[test]
fn ten_thousand_rnics_in_one_window() {
    let shape = Shape::LARGE;
    let plan = Plan::mesh(&shape, &PlanConfig::default(), 1);
    assert_eq!(plan.probes(), 10_240 * 400);
    assert!((1_100_000..1_150_000).contains(&plan.flows.len()), "{} flows", plan.flows.len());
    let bad = shape.link(Node::Aggregation(17), Node::Core(9)).unwrap();
    let fault = Fault { place: Place::Link(bad), trouble: Trouble::Loss { rate: 0.1 } };
    let fabric = Fabric::new(shape, 7).with_fault(fault);
    let seen = flows::observe(&fabric, &plan, 2);
    let (mut crossings, mut lost) = (0, 0);
    for one in &seen {
        let is_there = |tuple| fabric.route(tuple).links().contains(&bad);
        let (there, back) = (is_there(one.tuple()), is_there(one.tuple().back(one.reply_port)));
        assert!(there || back || one.ok == one.sent(), "nothing is wrong elsewhere: {one:?}");
        if there && !back {
            crossings += one.sent();
            lost += one.lost();
        }
    }
    assert!(crossings > 1000, "{crossings} probes crossed the link");
    let rate = f64::from(lost) / f64::from(crossings);
    assert!((0.07..0.13).contains(&rate), "{lost} of {crossings} are lost");
}

#[test]
fn a_drawn_scenario_is_the_same_every_time_and_shows_its_faults() {
    let shape = Shape::SMALL;
    let config = ScenarioConfig { stalling: 0.1, ..ScenarioConfig::default() };
    let plan = Plan::mesh(&shape, &PlanConfig { ports: 4, ..PlanConfig::default() }, 1);
    let mut with_loss = 0;
    for seed in 0..20 {
        let fabric = Fabric::drawn(shape, &config, seed);
        let seen = flows::observe(&fabric, &plan, seed);
        assert_eq!(seen, flows::observe(&Fabric::drawn(shape, &config, seed), &plan, seed));
        with_loss += u32::from(seen.iter().any(|one| one.lost() > 0));
    }
    assert!(with_loss >= 18, "{with_loss} of 20");
}

/// Clocks that are off by an hour and by 100 millionths: round trips are those of the links all the same.
#[test]
fn a_healthy_network_measures_its_links() {
    let shape = Shape::SMALL;
    let fabric = Fabric::new(shape, 3).with_clocks(100);
    let config = PlanConfig { window: 1_000_000_000, below_tor: 50, between_tors: 50, ports: 4 };
    let plan = Plan::mesh(&shape, &config, 1);
    let mut reports = 0;
    let seen = packets::observe_each(&fabric, &plan, 5, |flow, report| {
        let tuple = plan.flows[flow].tuple;
        assert_eq!(report.outcome, Outcome::Ok);
        let delays = report.delays.unwrap();
        let links = u128::from(2 * shape.hops(tuple.from, tuple.to));
        let nanos = delays.round_trip.as_nanos();
        // A responder takes up to 30 us, of which 200 millionths are 6 ns; clocks are read to the nanosecond.
        assert!((links * 500 - 10..=links * 1000 + 10).contains(&nanos), "{links} links: {nanos} ns");
        assert!(delays.responder.as_micros() < 30 && delays.prober.as_micros() < 10, "{delays:?}");
        let ports = report.answer_ports.unwrap();
        assert_eq!((ports.reply, ports.sent), (tuple.port, plan.flows[flow].reply_port));
        reports += 1;
    });
    assert_eq!(reports, plan.probes());
    assert_eq!((seen.outcomes.ok, seen.probers.stalls), (plan.probes(), 0));
    assert_eq!((seen.responders.answered, seen.responders.second_acks), (plan.probes(), plan.probes()));
    assert!(seen.observations.iter().all(|one| one.slow == 0 && one.ok == one.sent()));
}
