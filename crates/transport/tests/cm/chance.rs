//! Connections at random over bad links: one seed is a whole run.

use std::time::Duration;

use crate::life::Stage;
use crate::world::{Weather, World};

/// Seeds of a run in the tests.
const SEEDS: u64 = 200;

fn weather(seed: u64) -> Weather {
    let longest_delay = Duration::from_millis([1, 20, 150, 400][usize::try_from(seed % 4).expect("small")]);
    let (loss, duplicates) = match seed % 5 {
        0 => (0, 0),
        1 => (10_000, 10_000),
        2 => (100_000, 0),
        3 => (200_000, 200_000),
        _ => (250_000, 50_000),
    };
    Weather { loss, duplicates, longest_delay }
}

#[test]
fn both_ends_agree_after_everything_has_settled() {
    let (mut stood, mut failed, mut ended) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed, weather(seed));
        world.plan_connections(60);
        world.run();
        world.check_agreement();
        stood += world.count(|stage| *stage == Stage::Stands);
        failed += world.count(|stage| matches!(stage, Stage::Failed(_)));
        world.plan_ends();
        world.run();
        world.check_agreement();
        assert_eq!(world.count(|stage| *stage == Stage::Stands), 0, "seed {seed}");
        ended += world.count(|stage| matches!(stage, Stage::Ended(_)));
        world.check_emptiness();
    }
    assert!(stood > 1000 && failed > 500 && ended > 3000, "{stood} stood, {failed} failed, {ended} ended");
}

#[test]
fn a_good_network_makes_every_connection_that_is_accepted() {
    let mut world =
        World::new(7, Weather { loss: 0, duplicates: 0, longest_delay: Duration::from_millis(1) });
    world.plan_connections(30);
    world.run();
    let timed_out = |stage: &Stage| {
        matches!(stage, Stage::Failed(ferroce_transport::cm::Failure::TimedOut { sent: "REP", .. }))
    };
    assert_eq!(world.count(timed_out), 0, "every acceptance is confirmed");
}
