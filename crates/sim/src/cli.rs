//! The command line.

use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use clap::Parser;
use ferroce_sim::check::Violation;
use ferroce_sim::{Coverage, Outcome, Trace, run_with};

/// Runs the transport in a simulated network, seed by seed, with checkers at every step.
#[derive(Debug, Parser)]
#[command(
    name = "ferroce-sim",
    after_help = "A failing seed prints its last events and replays exactly with --seed."
)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 200, value_name = "N")]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0, value_name = "S")]
    start: u64,
    /// Run this seed only, and print its events if it fails.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// With --seed: print all events, whether it fails or not.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// How many events before a failure to print.
    #[arg(long, default_value_t = 60, value_name = "N")]
    lines: usize,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Plant one bug after the other and see that each is found within 1,000 seeds.
    #[arg(long)]
    planted: bool,
    /// Measure goodput in virtual time and print the table.
    #[arg(long, conflicts_with = "planted")]
    goodput: bool,
    /// Run no more seeds after one that fails.
    #[arg(long)]
    stop: bool,
    /// Print what the runs have met.
    #[arg(long)]
    coverage: bool,
    /// No seed has a liar; with --planted: see which bugs only a liar shows.
    #[arg(long)]
    honest: bool,
}

/// After this many seeds everything must have been met.
const COVERED_AFTER: u64 = 500;

pub(crate) fn main() -> ExitCode {
    let arguments = Arguments::parse();
    std::panic::set_hook(Box::new(|_| {}));
    match arguments.seed {
        _ if arguments.goodput => {
            print!("{}", ferroce_sim::goodput::table());
            ExitCode::SUCCESS
        }
        _ if arguments.planted => planted(&arguments),
        Some(seed) => one(seed, &arguments),
        None => many(&arguments),
    }
}

#[cfg(not(feature = "planted"))]
fn planted(_arguments: &Arguments) -> ExitCode {
    eprintln!("built without planted bugs; add `--features planted`");
    ExitCode::FAILURE
}

/// Seeds that a planted bug may stay hidden for.
#[cfg(feature = "planted")]
const PLANTED_SEEDS: u64 = 1000;

#[cfg(feature = "planted")]
fn planted(arguments: &Arguments) -> ExitCode {
    use ferroce_transport::planted::{Bug, plant};
    println!("| planted bug | seed | checker |");
    println!("|---|---|---|");
    let mut hidden = 0;
    for &bug in Bug::ALL {
        plant(Some(bug));
        let (_, failures) = sweep(arguments, (0, PLANTED_SEEDS), 1);
        let what = bug.what();
        match failures.first() {
            Some((seed, violation)) => println!("| {what} | {seed} | `{}` |", violation.checker),
            None => {
                hidden += 1;
                println!("| {what} | **not found** | |");
            }
        }
    }
    plant(None);
    if hidden == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a seed; a panic of a machine is a broken promise too.
fn guarded(seed: u64, arguments: &Arguments, trace: &mut Trace) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(|| run_with(seed, !arguments.honest, trace)));
    result.unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Outcome { coverage: Coverage::default(), violation: Some(Violation::new("no-panic", what)) }
    })
}

fn one(seed: u64, arguments: &Arguments) -> ExitCode {
    let keep = if arguments.trace { usize::MAX } else { arguments.lines };
    let mut trace = Trace::keeping(keep);
    let outcome = guarded(seed, arguments, &mut trace);
    if arguments.trace || outcome.violation.is_some() {
        if trace.dropped > 0 {
            println!("({} earlier events; --trace prints them all)", trace.dropped);
        }
        for line in trace.lines() {
            println!("{line}");
        }
    }
    match outcome.violation {
        Some(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
        None => {
            if arguments.coverage {
                print!("{}", outcome.coverage);
            }
            println!("seed {seed}: {} packets, every promise kept", outcome.coverage.packets);
            ExitCode::SUCCESS
        }
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    let enough = if arguments.stop { 1 } else { usize::MAX };
    let (coverage, failures) = sweep(arguments, (arguments.start, arguments.seeds), enough);
    if arguments.coverage {
        print!("{coverage}");
    }
    let all = arguments.seeds >= COVERED_AFTER && !arguments.honest;
    let missing = if all { coverage.missing() } else { Vec::new() };
    for what in &missing {
        println!("never met: {what}");
    }
    if let Some((seed, _)) = failures.first() {
        for (seed, violation) in failures.iter().take(20) {
            println!("seed {seed}: {violation}");
        }
        println!("{} of {} seeds fail; the first one in detail:", failures.len(), arguments.seeds);
        return one(*seed, arguments);
    }
    let Coverage { runs, packets, nanos, .. } = coverage;
    println!(
        "{runs} seeds, {packets} packets, {} s of virtual time: every promise kept",
        nanos / 1_000_000_000
    );
    if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs many seeds on many threads; stops early after `enough` failures.
fn sweep(
    arguments: &Arguments,
    (start, seeds): (u64, u64),
    enough: usize,
) -> (Coverage, Vec<(u64, Violation)>) {
    let jobs = arguments.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let next = AtomicU64::new(start);
    let stop = AtomicBool::new(false);
    let total = Mutex::new((Coverage::default(), Vec::new()));
    let show = std::io::stderr().is_terminal();
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= start + seeds || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let outcome = guarded(seed, arguments, &mut Trace::off());
                    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    total.0.add(&outcome.coverage);
                    if let Some(violation) = outcome.violation {
                        total.1.push((seed, violation));
                        if total.1.len() >= enough {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    let done = seed - start + 1;
                    if show && done.is_multiple_of(32) {
                        eprint!("\r{done}/{seeds} seeds, {} failures ", total.1.len());
                        let _ = std::io::stderr().flush();
                    }
                }
            });
        }
    });
    if show {
        eprint!("\r\x1b[K");
    }
    let (coverage, mut failures) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.sort_by_key(|(seed, _)| *seed);
    (coverage, failures)
}
