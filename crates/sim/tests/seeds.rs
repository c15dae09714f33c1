//! A few seeds as a plain test; `cargo xtask test` runs two thousand.

use ferroce_sim::{MIN_PACKETS, Trace, run};

#[test]
fn every_promise_is_kept() {
    for seed in 0..60 {
        let outcome = run(seed, &mut Trace::off());
        if let Some(violation) = outcome.violation {
            panic!("seed {seed}: {violation}; see `cargo xtask sim --seed {seed}`");
        }
        assert!(outcome.coverage.packets >= MIN_PACKETS, "seed {seed} is too short to count");
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in [3, 17, 40] {
        let mut traces = [Trace::keeping(usize::MAX), Trace::keeping(usize::MAX)];
        for trace in &mut traces {
            run(seed, trace);
        }
        let [first, second] = &traces;
        assert!(first.lines().eq(second.lines()), "seed {seed} does not replay");
    }
}
