//! Ports and paths, over the hashes of a simulated fabric: random ports against the formula, and steered
//! ports.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::collections::BTreeSet;

use ferroce_clos::{Fabric, Link, Node, Shape, Tuple};
use ferroce_probe::Stamp;
use ferroce_probe::paths::{FIRST_PORT, Occupancy, Offer, Steering, Tracer, TracerConfig, ports_for};
use ferroce_sim::Dice;

const SEEDS: u32 = 10_000;

/// Two pods with one card each, and so many ways between them.
fn shape(aggregations: u32, cores: u32) -> Shape {
    Shape { pods: 2, tors: 1, aggregations, cores, hosts: 1, rnics: 1 }
}

/// Which way a packet takes, as a number: aggregation and core are told by the third link.
fn way(fabric: &Fabric, port: u16) -> usize {
    let Link(link) = fabric.route(Tuple { from: 0, to: 1, port }).links()[2];
    let Link(first) = fabric.shape().link(Node::Aggregation(0), Node::Core(0)).unwrap();
    (link - first) as usize
}

fn random_port(dice: &mut Dice) -> u16 {
    FIRST_PORT + u16::try_from(dice.below(0x4000)).unwrap()
}

/// Over so many seeds, how often random ports see all paths.
fn covered(aggregations: u32, cores: u32, ports: u64) -> f64 {
    let paths = (aggregations * cores) as usize;
    let mut all = 0_u32;
    for seed in 0..SEEDS {
        let fabric = Fabric::new(shape(aggregations, cores), u64::from(seed));
        let mut dice = Dice::new(u64::from(seed) << 8 | 1);
        let (mut seen, mut missing) = (vec![false; paths], paths);
        let (mut used, mut count) = (vec![false; 0x4000], 0);
        while count < ports && missing > 0 {
            let port = random_port(&mut dice);
            let is_new = !std::mem::replace(&mut used[usize::from(port - FIRST_PORT)], true);
            count += u64::from(is_new);
            if is_new && !std::mem::replace(&mut seen[way(&fabric, port)], true) {
                missing -= 1;
            }
        }
        all += u32::from(missing == 0);
    }
    f64::from(all) / f64::from(SEEDS)
}

fn formula_holds(aggregations: u32, cores: u32) {
    let paths = aggregations * cores;
    let ports = ports_for(paths, 0.9).unwrap();
    let expected = Occupancy::after(paths, ports).all();
    let seen = covered(aggregations, cores, ports);
    assert!((seen - expected).abs() < 0.01, "{paths} paths, {ports} ports: {seen}, and not {expected}");
}

#[test]
fn random_ports_cover_8_paths_as_the_formula_says() {
    formula_holds(4, 2);
}

#[test]
fn random_ports_cover_16_paths_as_the_formula_says() {
    formula_holds(4, 4);
}

#[test]
fn random_ports_cover_64_paths_as_the_formula_says() {
    formula_holds(8, 8);
}

#[test]
fn random_ports_cover_128_paths_as_the_formula_says() {
    formula_holds(8, 16);
}

/// Traces ports until each path has one; the tracer asks the routers, one of five of which says nothing.
fn steer(fabric: &Fabric, expected: u32, dice: &mut Dice) -> (Steering, u32) {
    let mut steering = Steering::new(expected);
    let mut tracer = Tracer::new(TracerConfig::default(), []);
    let mut traced = 0;
    while !steering.is_done() && traced < 20 * expected.max(50) {
        tracer.add(random_port(dice));
        while let Some(now) = tracer.wake_at() {
            let Some(ask) = tracer.ask(now) else { continue };
            answer(fabric, &mut tracer, ask.port, ask.hop_limit, dice);
        }
        while let Some(trace) = tracer.poll() {
            traced += 1;
            steering.offer(&trace);
        }
    }
    (steering, traced)
}

fn answer(fabric: &Fabric, tracer: &mut Tracer, port: u16, hop_limit: u8, dice: &mut Dice) {
    let route = fabric.route(Tuple { from: 0, to: 1, port });
    match route.links().get(usize::from(hop_limit)) {
        Some(_) if dice.one_in(5) => {}
        Some(link) => tracer.router(port, hop_limit, fabric.shape().address(fabric.shape().ends(*link).0)),
        None => tracer.reached(port, hop_limit),
    }
}

#[test]
fn steered_ports_cover_all_paths_with_one_port_each() {
    for (aggregations, cores) in [(4, 2), (4, 4), (8, 8), (8, 16)] {
        let paths = aggregations * cores;
        for seed in 0..20 {
            let fabric = Fabric::new(shape(aggregations, cores), seed);
            let (steering, traced) = steer(&fabric, paths, &mut Dice::new(seed));
            assert!(
                steering.is_done(),
                "{paths} paths, seed {seed}: {} after {traced}",
                steering.kept().len()
            );
            assert_eq!(steering.kept().len(), paths as usize);
            let covered: BTreeSet<usize> =
                steering.kept().iter().map(|kept| way(&fabric, kept.port)).collect();
            assert_eq!(covered.len(), paths as usize, "so many ports, so many paths");
        }
    }
}

#[test]
fn a_polarised_fabric_is_noticed() {
    let fabric = Fabric::new(shape(4, 4), 3).polarised();
    let (steering, traced) = steer(&fabric, 16, &mut Dice::new(3));
    assert!(!steering.is_done() && traced >= 1000);
    let found = steering.polarised(0.001).unwrap();
    assert_eq!((found.expected, found.seen), (16, 4));
    assert!(found.chance < 1e-30);
}

/// A trace of the fabric and one of the tracer say the same.
#[test]
fn the_fabric_answers_traces_in_one_go_too() {
    let fabric = Fabric::new(shape(4, 4), 8);
    let mut dice = Dice::new(5);
    let mut steering = Steering::new(16);
    let mut tracer = Tracer::new(
        TracerConfig { interval: std::time::Duration::ZERO, ..TracerConfig::default() },
        [50_000],
    );
    while let Some(ask) = tracer.ask(Stamp::default()) {
        let route = fabric.route(Tuple { from: 0, to: 1, port: ask.port });
        match route.links().get(usize::from(ask.hop_limit)) {
            Some(link) => {
                tracer.router(ask.port, ask.hop_limit, fabric.shape().address(fabric.shape().ends(*link).0));
            }
            None => tracer.reached(ask.port, ask.hop_limit),
        }
    }
    assert_eq!(steering.offer(&tracer.poll().unwrap()), Offer::New);
    let whole = fabric.trace(Tuple { from: 0, to: 1, port: 50_000 }, 1.0, &mut dice);
    assert_eq!(steering.offer(&whole), Offer::Known { port: 50_000 });
    assert_eq!(steering.kept()[0].path, whole.path());
}
