//! How long a window of 10,240 RNICs takes, and how much memory: the limits are 2 s and 1.5 GiB.
//!
//! `cargo bench -p ferroce-mesh --bench window` prints both for some seeds, and fails if one is above its
//! limit; numbers behind `--` are other seeds. Each seed has a process of its own, so that memory that an
//! earlier one has given back is not taken for free. Beside the time that passed stands the time on a
//! processor, which is what counts on a machine that does other things, too; all windows are judged several
//! times, and the least time counts. The memory is what the process had at most while the analyzer took all
//! traces and all windows for the first time: once less what it had before, which are the simulator's
//! windows, and once in all.
#![allow(clippy::unwrap_used, reason = "a benchmark stops here")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../tests/score/scene.rs"]
mod scene;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use ferroce_clos::Shape;
use ferroce_mesh::{Analyzer, AnalyzerConfig, Window};

use scene::{Conditions, Scene};

/// A window may take so long.
const LIMIT: Duration = Duration::from_secs(2);
/// And the analyzer may have so much memory, in MiB.
const MEMORY: u64 = 1536;
/// The first window and later ones.
const WINDOWS: usize = 4;
/// How often all of them are judged.
const TURNS: u32 = 3;
/// One fault; then three networks with much trouble, since faults of cores and of ToRs touch most flows.
const SEEDS: [u64; 4] = [1, 2, 116_512_596_402_207, 116_512_596_402_242];

fn main() -> ExitCode {
    let given: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let above = match given.as_slice() {
        [seed] => u32::from(!measure(*seed)),
        [] => in_own_processes(&SEEDS),
        seeds => in_own_processes(seeds),
    };
    if above == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures them all, and says how many are above a limit.
fn in_own_processes(seeds: &[u64]) -> u32 {
    let program = std::env::current_exe().unwrap();
    let run = |seed: &u64| Command::new(&program).arg(seed.to_string()).status().unwrap().success();
    seeds.iter().map(|seed| u32::from(!run(seed))).sum()
}

/// Measures one seed, and says whether it is within the limits.
fn measure(seed: u64) -> bool {
    let scene = Scene::new(Shape::LARGE, Conditions::default(), seed);
    let windows: Vec<Window> = (0..WINDOWS as u64).map(|number| scene.window(number)).collect();
    println!("seed {seed}: {} faults, {} flows", scene.fabric.faults().len(), scene.plan.flows.len());
    let before = memory("VmRSS:");
    let mut least = [Duration::MAX; WINDOWS];
    let (mut own, mut all) = (0, 0);
    for turn in 0..TURNS {
        let clock = Clock::start();
        let mut analyzer = Analyzer::new(scene.paths(), AnalyzerConfig::default());
        println!("  all traces, and simulating them: {clock}");
        for (number, window) in windows.iter().enumerate() {
            let clock = Clock::start();
            let open = analyzer.window(window).open.len();
            println!("  window {number}: {clock}, {open} findings");
            least[number] = clock.worked().min(least[number]);
        }
        if turn == 0 {
            all = memory("VmHWM:");
            own = all.saturating_sub(before);
        }
    }
    let later = least[1..].iter().max().unwrap();
    println!(
        "seed {seed}: first window {:.2?}, later ones {later:.2?} (limit {LIMIT:?}); \
         analyzer {own} MiB, process {all} MiB (limit {MEMORY} MiB)",
        least[0]
    );
    least.iter().all(|window| *window <= LIMIT) && own <= MEMORY
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

/// A line of what the kernel says of this process, in MiB.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|one| one.strip_prefix(line));
    found.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap() / 1024
}
