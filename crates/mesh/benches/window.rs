//! How long a window of 10,240 RNICs takes, and how much memory: the limits are 2 s and 1.5 GiB.
//!
//! `cargo bench -p ferroce-mesh` prints them; the memory is the most that the process ever had, less what the
//! simulator had before the analyzer began.
#![allow(clippy::unwrap_used, reason = "a benchmark stops here")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../tests/score/scene.rs"]
mod scene;

use std::time::Instant;

use ferroce_clos::Shape;
use ferroce_mesh::{Analyzer, AnalyzerConfig, Window};

use scene::{Conditions, Scene};

fn main() {
    for seed in 1..=3 {
        let scene = Scene::new(Shape::LARGE, Conditions::default(), seed);
        let windows: Vec<Window> = (0..4).map(|number| scene.window(number)).collect();
        let before = memory("VmRSS:");
        let start = Instant::now();
        let paths = scene.paths();
        println!("seed {seed}: traces told in {:.2?}, with the simulator's part", start.elapsed());
        let mut analyzer = Analyzer::new(paths, AnalyzerConfig::default());
        for (number, window) in windows.iter().enumerate() {
            let start = Instant::now();
            let verdict = analyzer.window(window);
            let (took, open) = (start.elapsed(), verdict.open.len());
            println!("  window {number}: {took:.2?}, {} flows, {open} findings", window.observations.len());
        }
        println!("  memory of the analyzer: {} MiB at most", memory("VmHWM:").saturating_sub(before) / 1024);
    }
}

/// A line of what the kernel says of this process, in KiB.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|one| one.strip_prefix(line));
    found.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}
