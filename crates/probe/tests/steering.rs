//! Steering against networks of which the paths are known: one port for each, and no more.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::collections::BTreeSet;
use std::net::IpAddr;

use ferroce_probe::paths::{FIRST_PORT, Offer, Steering, Trace};
use ferroce_sim::Dice;
use proptest::prelude::*;

/// Three routers on the way; the first two are chosen by the port.
struct Network {
    dice: Dice,
    width: u8,
    /// The second router is chosen by the same hash as the first one.
    polarised: bool,
}

impl Network {
    fn new(seed: u64, width: u8, polarised: bool) -> Self {
        Self { dice: Dice::new(seed), width, polarised }
    }

    /// The path of a port: its own dice, so that asking twice says the same.
    fn path(&self, port: u16) -> [IpAddr; 3] {
        let mut dice = self.dice.clone();
        let mut dice = Dice::new(dice.word() ^ u64::from(port));
        let width = u64::from(self.width);
        let one = u8::try_from(dice.below(width)).unwrap();
        let other = if self.polarised { one } else { u8::try_from(dice.below(width)).unwrap() };
        [IpAddr::from([10, 1, 0, one]), IpAddr::from([10, 2, one, other]), IpAddr::from([10, 3, 0, 1])]
    }

    /// A trace in which each answer is missing with this chance of a hundred.
    fn trace(&self, port: u16, missing: u64, dice: &mut Dice) -> Trace {
        let mut trace = Trace::new(port, 8);
        for (hop_limit, router) in (1..).zip(self.path(port)) {
            if dice.below(100) >= missing {
                trace.router(hop_limit, router);
            }
        }
        trace.reached(4);
        trace
    }
}

proptest! {
    #[test]
    fn steering_finds_a_port_for_each_path_and_no_port_twice(seed: u64, width in 2_u8..=8) {
        let network = Network::new(seed, width, false);
        let paths = u32::from(width) * u32::from(width);
        let mut steering = Steering::new(paths);
        let mut dice = Dice::new(seed);
        let mut traced = 0;
        while !steering.is_done() {
            let port = FIRST_PORT + u16::try_from(dice.below(0x4000)).unwrap();
            steering.offer(&network.trace(port, 0, &mut dice));
            traced += 1;
            prop_assert!(traced < 5000, "{} of {} paths", steering.kept().len(), paths);
        }
        prop_assert_eq!(steering.kept().len(), paths as usize);
        let covered: BTreeSet<_> = steering.kept().iter().map(|kept| network.path(kept.port)).collect();
        prop_assert_eq!(covered.len(), paths as usize, "so many ports cover all paths");
        prop_assert_eq!(steering.polarised(0.001), None);
    }

    /// Traces with missing answers: never more ports than paths, whatever is missing.
    #[test]
    fn missing_answers_invent_no_paths(seed: u64, missing in 0_u64..100) {
        let network = Network::new(seed, 4, false);
        let mut steering = Steering::new(16);
        let mut dice = Dice::new(seed);
        for port in FIRST_PORT..FIRST_PORT + 200 {
            steering.offer(&network.trace(port, missing, &mut dice));
        }
        let covered: BTreeSet<_> = steering.kept().iter().map(|kept| network.path(kept.port)).collect();
        prop_assert_eq!(covered.len(), steering.kept().len(), "any two of them differ for sure");
        prop_assert_eq!(steering.polarised(1e-6), None, "what is missing is not polarisation");
        if missing == 0 {
            prop_assert!(steering.is_done());
        }
    }
}

#[test]
fn a_polarised_network_is_noticed_with_the_chance_of_being_wrong() {
    let mut dice = Dice::new(1);
    let network = Network::new(7, 4, true);
    let mut steering = Steering::new(16);
    for port in FIRST_PORT..FIRST_PORT + 79 {
        steering.offer(&network.trace(port, 0, &mut dice));
    }
    let found = steering.polarised(0.001).unwrap();
    assert_eq!((found.expected, found.seen, found.ports), (16, 4, 79));
    assert!(found.chance < 1e-30 && (15.8..16.0).contains(&found.mean), "{found:?}");
    assert!(steering.is_exhausted(0.99), "79 ports would have found a fifth path");
    assert!(!steering.is_done());
}

#[test]
fn chance_is_not_taken_for_polarisation() {
    let mut false_alarms = 0;
    for seed in 0..2000 {
        let mut dice = Dice::new(seed);
        let network = Network::new(seed, 4, false);
        let mut steering = Steering::new(16);
        for port in FIRST_PORT..FIRST_PORT + 40 {
            steering.offer(&network.trace(port, 0, &mut dice));
        }
        false_alarms += u32::from(steering.polarised(0.01).is_some());
    }
    assert!(false_alarms <= 30, "{false_alarms} of 2000 at a significance of one in a hundred");
}

#[test]
fn an_offer_says_what_it_was_good_for() {
    let mut dice = Dice::new(3);
    let network = Network::new(3, 4, false);
    let mut steering = Steering::new(16);
    let trace = |port, missing, dice: &mut Dice| network.trace(port, missing, dice);
    assert_eq!(steering.offer(&trace(50_000, 100, &mut dice)), Offer::Nothing);
    assert!(!steering.is_exhausted(0.5), "nothing is known");
    assert_eq!(steering.offer(&trace(50_000, 0, &mut dice)), Offer::New);
    assert_eq!(steering.offer(&trace(50_000, 0, &mut dice)), Offer::Known { port: 50_000 });
    let same = (50_001..).find(|port| network.path(*port) == network.path(50_000)).unwrap();
    assert_eq!(steering.offer(&trace(same, 0, &mut dice)), Offer::Known { port: 50_000 });
    assert_eq!(steering.kept().len(), 1);
}
