//! The analyzer and the other methods on one network after another.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ferroce_clos::Shape;
use ferroce_mesh::{Analyzer, AnalyzerConfig, Window};

use crate::baselines::{Sweep, Table, hit_ratio, least_squares, voting};
use crate::scene::{Conditions, Scene};
use crate::truth::{Score, Thing, Truth};
use crate::{first_seed, is_soak};

/// One of the others.
type Method = fn(&Table) -> Sweep;

const METHODS: [(&str, Method); 3] =
    [("007 voting", voting), ("NetBouncer-style", least_squares), ("PLL", hit_ratio)];

/// What came of it.
pub(crate) struct Contest {
    name: &'static str,
    networks: usize,
    pub(crate) ours: Score,
    /// In the order of the methods; none if only the analyzer is scored.
    rivals: Vec<Rival>,
    /// The slowest window, on a processor.
    slowest: Duration,
}

/// A method at all of its thresholds.
#[derive(Default)]
struct Rival {
    scores: Vec<Score>,
}

impl Rival {
    fn add(&mut self, scores: &[Score]) {
        self.scores.resize_with(scores.len(), Score::default);
        for (sum, score) in self.scores.iter_mut().zip(scores) {
            sum.add(score);
        }
    }

    /// At the threshold that is best over all.
    fn best(&self) -> &Score {
        &self.scores[self.threshold()]
    }

    /// The number of that threshold: if it is neither the first nor the last, more of them would not help.
    fn threshold(&self) -> usize {
        let scores = self.scores.iter().enumerate();
        scores.max_by(|one, other| one.1.all.f1().total_cmp(&other.1.all.f1())).unwrap().0
    }
}

impl Contest {
    /// Scores the analyzer, and the others if they are asked, on networks of these shapes.
    pub(crate) fn run(
        name: &'static str,
        shapes: &[Shape],
        conditions: Conditions,
        with_others: bool,
    ) -> Self {
        println!("{name}, {} networks", shapes.len());
        let mut contest = Self {
            name,
            networks: 0,
            ours: Score::default(),
            rivals: if with_others { METHODS.map(|_| Rival::default()).into() } else { Vec::new() },
            slowest: Duration::ZERO,
        };
        let first = first_seed();
        let next = AtomicUsize::new(0);
        let (to, from) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(shapes.len()) {
                let (to, next) = (to.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(shape) = shapes.get(number) else { return };
                        let network = Network::look(*shape, conditions, first + number as u64, with_others);
                        to.send((number, network)).unwrap();
                    }
                });
            }
            drop(to);
            contest.add_all(from, first, shapes.len());
        });
        contest
    }

    /// Adds networks in their order, whichever is ready first.
    fn add_all(&mut self, from: mpsc::Receiver<(usize, Network)>, first: u64, all: usize) {
        let mut early = BTreeMap::new();
        for (number, network) in from {
            early.insert(number, network);
            while let Some(network) = early.remove(&self.networks) {
                let seed = first + self.networks as u64;
                self.add(&network, seed);
                if is_soak() {
                    println!("seed {seed}, {} of {all}: {}", self.networks, self.line());
                    // A run that is broken off has said what it knew.
                    if self.networks.is_multiple_of(10) && self.networks < all {
                        println!("{self}");
                    }
                }
            }
        }
    }

    fn add(&mut self, network: &Network, seed: u64) {
        if !network.differences.is_empty() {
            println!("seed {seed}:{}", network.differences);
        }
        self.slowest = self.slowest.max(network.slowest);
        self.ours.add(&network.ours);
        self.networks += 1;
        for (rival, scores) in self.rivals.iter_mut().zip(&network.rivals) {
            rival.add(scores);
        }
    }

    /// The others, at their best.
    pub(crate) fn rivals(&self) -> impl Iterator<Item = (&'static str, &Score)> {
        METHODS.iter().zip(&self.rivals).map(|((name, _), rival)| (*name, rival.best()))
    }

    /// All that is known so far, in a line.
    fn line(&self) -> String {
        let mut text = format!("analyzer {}", self.ours.all);
        for (name, best) in self.rivals() {
            text += &format!("; {name} {:.3}", best.all.f1());
        }
        text + &format!("; slowest window {:.2?}", self.slowest)
    }
}

/// What came of one network.
struct Network {
    ours: Score,
    slowest: Duration,
    differences: String,
    /// Of each method, at all of its thresholds.
    rivals: Vec<Vec<Score>>,
}

impl Network {
    fn look(shape: Shape, conditions: Conditions, seed: u64, with_others: bool) -> Self {
        let scene = Scene::new(shape, conditions, seed);
        let windows: Vec<Window> = (0..3).map(|number| scene.window(number)).collect();
        let truth = Truth::of(&scene, &windows);
        let (named, slowest) = named(&scene, &windows);
        let ours = truth.score(&named, false);
        let is_right = ours.all.missed + ours.all.wrong == 0.0;
        let differences = if is_right { String::new() } else { truth.differences(&named) };
        let rivals = if with_others {
            let table = Table::new(&scene, &windows);
            let scores = |sweep: Sweep| sweep.iter().map(|named| truth.score(named, true)).collect();
            METHODS.iter().map(|(_, method)| scores(method(&table))).collect()
        } else {
            Vec::new()
        };
        Self { ours, slowest, differences, rivals }
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} networks; {} faults that nothing crosses, {} besides black holes of which nothing came \
             back; slowest window {:.2?} on a processor",
            self.name, self.networks, self.ours.unseen, self.ours.silent, self.slowest
        )?;
        writeln!(f, "analyzer\n{}", self.ours)?;
        for ((name, _), rival) in METHODS.iter().zip(&self.rivals) {
            let (number, all) = (rival.threshold() + 1, rival.scores.len());
            writeln!(f, "{name}, at its threshold {number} of {all}\n{}", rival.best())?;
        }
        Ok(())
    }
}

/// Names the faults of a scene after all windows; and how long the slowest of them took, on a processor.
pub(crate) fn named(scene: &Scene, windows: &[Window]) -> (Vec<Vec<Thing>>, Duration) {
    let mut analyzer = Analyzer::new(scene.paths(), AnalyzerConfig::default());
    let (mut open, mut slowest) = (Vec::new(), Duration::ZERO);
    for window in windows {
        let start = on_processor();
        open = analyzer.window(window).open;
        slowest = slowest.max(on_processor() - start);
    }
    let topology = analyzer.paths().topology();
    let thing = |suspect: &_| Thing::of(*suspect, topology, scene.shape());
    let sets = open.iter().map(|finding| finding.suspects.iter().map(thing).collect()).collect();
    (sets, slowest)
}

/// How long this thread was on a processor until now; nothing where the kernel does not tell.
fn on_processor() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = told.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(first.unwrap_or(0))
}
