//! How long a window of 10,240 RNICs takes, and how much memory: the limits are 2 s and 1.5 GiB.
//!
//! `cargo bench -p ferroce-mesh --bench window` prints both for each seed, and the worst of all; numbers behind `--`
//! are other seeds. Beside the time that passed stands the time on a processor, which is what counts on a machine
//! that does other things, too. The memory is the most that the analyzer had of the heap, its paths included, and
//! what the whole process had, the simulator included.
#![allow(clippy::unwrap_used, reason = "a benchmark stops here")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../tests/score/scene.rs"]
mod scene;

use std::time::{Duration, Instant};

use ferroce_clos::Shape;
use ferroce_mesh::{Analyzer, AnalyzerConfig, Window};

use scene::{Conditions, Scene};

/// A window may take so long.
const LIMIT: Duration = Duration::from_secs(2);
/// And the analyzer may have so much memory, in KiB.
const MEMORY: u64 = 1536 * 1024;
/// First windows and later ones.
const WINDOWS: u64 = 5;

fn main() {
    let given: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let seeds = if given.is_empty() { (1..=6).collect() } else { given };
    let (mut first, mut later, mut most) = (Duration::ZERO, Duration::ZERO, 0);
    for seed in &seeds {
        let scene = Scene::new(Shape::LARGE, Conditions::default(), *seed);
        let windows: Vec<Window> = (0..WINDOWS).map(|number| scene.window(number)).collect();
        println!("seed {seed}: {} faults, {} flows", scene.fabric.faults().len(), scene.plan.flows.len());
        // What the analyzer has is what the process has beyond the windows, which are there before it.
        let before = memory("VmRSS:");
        let clock = Clock::start();
        let mut analyzer = Analyzer::new(scene.paths(), AnalyzerConfig::default());
        println!("  all traces, and simulating them: {clock}");
        for (number, window) in windows.iter().enumerate() {
            let clock = Clock::start();
            let open = analyzer.window(window).open.len();
            println!("  window {number}: {clock}, {open} findings");
            let worst = if number == 0 { &mut first } else { &mut later };
            *worst = clock.worked().max(*worst);
        }
        let kept = memory("VmHWM:").saturating_sub(before);
        most = most.max(kept);
        println!("  memory: {} MiB more than before, at most", kept / 1024);
    }
    println!(
        "worst of {} seeds, on a processor: first window {first:.2?}, later ones {later:.2?} (limit {LIMIT:?}); \
         {} MiB (limit {} MiB)",
        seeds.len(),
        most / 1024,
        MEMORY / 1024,
    );
}

/// The time since a moment, as it passed and as this thread worked.
struct Clock {
    start: Instant,
    worked: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), worked: on_processor() }
    }

    fn worked(&self) -> Duration {
        on_processor() - self.worked
    }
}

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2?} passed, {:.2?} on a processor", self.start.elapsed(), self.worked())
    }
}

/// How long this thread was on a processor until now.
fn on_processor() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(told.split_whitespace().next().unwrap().parse().unwrap())
}

/// A line of what the kernel says of this process, in KiB.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|one| one.strip_prefix(line));
    found.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok()).unwrap()
}
