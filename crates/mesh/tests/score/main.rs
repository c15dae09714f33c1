//! The analyzer, scored against simulated networks whose truth only the score sees.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod scene;
mod truth;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Instant;

use ferroce_clos::Shape;
use ferroce_mesh::{Analyzer, AnalyzerConfig, Window};

use scene::{Conditions, Scene};
use truth::{Score, Thing, Truth};

/// 1,024 RNICs below 32 ToRs: 16 ways between pods.
const MEDIUM: Shape = Shape { pods: 4, tors: 8, aggregations: 4, cores: 4, hosts: 8, rnics: 4 };

/// Names the faults of a scene after three windows.
fn named(scene: &Scene, windows: &[Window]) -> Vec<Vec<Thing>> {
    let start = Instant::now();
    let mut analyzer = Analyzer::new(scene.paths(), AnalyzerConfig::default());
    print!("paths {:?} ", start.elapsed());
    let mut open = Vec::new();
    for window in windows {
        let start = Instant::now();
        open = analyzer.window(window).open;
        print!("window {:?} ", start.elapsed());
    }
    let topology = analyzer.paths().topology();
    let thing = |suspect: &_| Thing::of(*suspect, topology, scene.shape());
    open.iter().map(|finding| finding.suspects.iter().map(thing).collect()).collect()
}

/// The first seed: chosen by chance and printed, or given again.
fn first_seed() -> u64 {
    let given = std::env::var("FERROCE_MESH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 16);
    println!("FERROCE_MESH_SEED={seed}");
    seed
}

fn count(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

#[test]
fn faults_are_named() {
    let seed = first_seed();
    let mut score = Score::default();
    for number in 0..count("SEEDS", 10) {
        let shape = if std::env::var("LARGE").is_ok() { Shape::LARGE } else { MEDIUM };
        let scene = Scene::new(shape, Conditions::default(), seed + number);
        let windows: Vec<Window> = (0..3).map(|number| scene.window(number)).collect();
        let truth = Truth::of(&scene);
        let start = Instant::now();
        let named = named(&scene, &windows);
        println!("{:?}", start.elapsed());
        let one = truth.score(&named);
        println!("seed {}: {} {}", seed + number, one.all, truth.differences(&named));
        score.add(&one);
    }
    println!("{score}");
}
