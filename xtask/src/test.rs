//! `cargo xtask test`: everything a change must pass, in order, stopping at the first failure.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow, bail, ensure};
use clap::builder::PossibleValuesParser;

use crate::clock::Stopwatch;
use crate::failures::Failures;
use crate::link_abi::Build;
use crate::place::Place;
use crate::report::{Outcome, Table};
use crate::say::say;
use crate::shell::{Cmd, target_dir};
use crate::{interop, link_abi, linked, no_std, setup, sim, tidy};

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this part; repeat for several
    #[arg(long, value_name = "PART", value_parser = PossibleValuesParser::new(PARTS.iter().map(|part| part.name)))]
    only: Vec<String>,
    /// List the parts and what each shows
    #[arg(long)]
    list: bool,
}

struct Part {
    name: &'static str,
    shows: &'static str,
    run: Run,
}

/// How a part runs. Each returns a note for the table.
enum Run {
    /// When all before it have passed.
    Front(fn() -> Result<String>),
    /// Beside the next part that runs in front: it only compiles, and the tests leave it much of the machine.
    Beside(fn(&Place) -> Result<String>),
}

use Run::{Beside, Front};

/// In the order they run: cheap and telling first.
const PARTS: &[Part] = &[
    Part { name: "setup", shows: "the programs the tests need are installed", run: Front(setup::run) },
    Part { name: "fmt", shows: "rustfmt would change nothing", run: Front(fmt) },
    Part { name: "tidy", shows: "the repository keeps its own rules", run: Front(tidy::check_repository) },
    Part {
        name: "build",
        shows: "all that the tests run compiles, and is linked to nothing of RDMA",
        run: Front(build),
    },
    Part { name: "clippy", shows: "no lint of the workspace fires", run: Beside(clippy) },
    Part { name: "docs", shows: "the documentation builds without a warning", run: Beside(docs) },
    Part {
        name: "fuzz-check",
        shows: "the fuzz targets compile, with the lock file as it is",
        run: Beside(fuzz_check),
    },
    Part {
        name: "no-std",
        shows: "the wire crate builds without the standard library",
        run: Beside(|place| no_std::check(place, &checks())),
    },
    Part {
        name: "loom",
        shows: "no order of threads loses a call, a wake or a completion",
        run: Beside(loom),
    },
    Part { name: "tests", shows: "unit, property, golden and documentation tests pass", run: Front(tests) },
    Part { name: "sim", shows: "2,000 seeded runs with faults break no guarantee", run: Front(simulate) },
    Part {
        name: "interop",
        shows: "we and the Linux kernel understand each other, both ways",
        run: Front(interop::check),
    },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        for part in PARTS {
            say!("{:10} {}", part.name, part.shows);
        }
        return Ok(());
    }
    let named = |part: &&Part| args.only.iter().any(|name| name == part.name);
    let parts: Vec<&Part> = PARTS.iter().filter(|part| args.only.is_empty() || named(part)).collect();
    let total = Stopwatch::start();
    let table = run_parts(&parts);
    say!("\n{table}");
    // Why stands here once more: the end of a long run is what is read.
    for (name, why) in table.failures() {
        say!("{name} FAILED: {why}\n");
    }
    match table.failed().first() {
        None => say!("xtask test: passed, {} of {} parts in {}", parts.len(), PARTS.len(), total.read()),
        Some(name) => bail!("test: part `{name}` failed; run it alone with: cargo xtask test --only {name}"),
    }
    Ok(())
}

fn run_parts(parts: &[&Part]) -> Table {
    let mut table = Table::default();
    let mut left = parts;
    while !left.is_empty() {
        let beside = left.iter().take_while(|part| matches!(part.run, Beside(_))).count();
        let (beside, rest) = left.split_at(beside);
        let (front, rest) = rest.split_at(rest.len().min(1));
        left = rest;
        if table.failed().is_empty() {
            run_together(beside, front.first().copied(), &mut table);
        } else {
            beside.iter().chain(front).for_each(|part| table.push(part.name, Outcome::NotRun));
        }
    }
    table
}

/// Runs some parts beside one, or by themselves if there is none.
fn run_together(beside: &[&Part], front: Option<&Part>, table: &mut Table) {
    let Some(front) = front else {
        for part in beside {
            let outcome =
                if table.failed().is_empty() { part.run_in(&Place::Front) } else { Outcome::NotRun };
            table.push(part.name, outcome);
        }
        return;
    };
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let one = move |part: &&Part| {
            let place = Place::beside();
            // What is under way when the part in front fails is the last that runs.
            let outcome = if stop.load(Ordering::Relaxed) { Outcome::NotRun } else { part.run_in(&place) };
            (part.name, outcome, place.into_text())
        };
        let rows = scope.spawn(move || beside.iter().map(one).collect::<Vec<_>>());
        for part in beside {
            say!("== {}: beside the next: {}", part.name, part.shows);
        }
        let outcome = front.run_in(&Place::Front);
        stop.store(matches!(outcome, Outcome::Failed { .. }), Ordering::Relaxed);
        for (name, outcome, text) in rows.join().unwrap_or_else(|panic| resume_unwind(panic)) {
            // What passed has nothing to say that is worth the lines.
            if matches!(outcome, Outcome::Failed { .. }) {
                say!("\n== {name}\n{}", text.trim_end());
            }
            table.push(name, outcome);
        }
        table.push(front.name, outcome);
    });
}

impl Part {
    fn run_in(&self, place: &Place) -> Outcome {
        if matches!(place, Place::Front) {
            say!("\n== {}: {}", self.name, self.shows);
        }
        let watch = Stopwatch::start();
        let result = match self.run {
            Front(run) => run(),
            Beside(run) => run(place),
        };
        let took = watch.read();
        match result {
            Ok(note) => Outcome::Passed { took, note },
            Err(error) => {
                place.complain(&format!("\n== {} FAILED: {error:#}", self.name));
                Outcome::Failed { took, why: format!("{error:#}") }
            }
        }
    }
}

fn fmt() -> Result<String> {
    Cmd::cargo("fmt --all --check").run()?;
    // The fuzz crate stands outside the workspace.
    Cmd::cargo("fmt --manifest-path fuzz/Cargo.toml --check").run()?;
    Ok(String::new())
}

/// Where that is checked which no program is made of. Not with the programs: a cargo keeps its folder to itself.
fn checks() -> PathBuf {
    target_dir().join("checks")
}

fn build() -> Result<String> {
    link_abi::link(Build::WithTests)?;
    Cmd::cargo("test --workspace --no-run --quiet").run()?;
    Ok(format!("{} programs, none of them linked to libraries of RDMA", linked::check()?))
}

fn clippy(place: &Place) -> Result<String> {
    let clippy = |what: &str| {
        let cmd = Cmd::cargo("clippy").args(what.split_whitespace()).arg("--target-dir").arg(checks());
        place.run(&cmd.args(["--", "-D", "warnings"]))
    };
    clippy("--workspace --all-targets")?;
    // What stands behind this feature is compiled nowhere else but in the soak.
    let planted = "--features ferroce-transport/planted,ferroce-sim/planted";
    clippy(&format!("-p ferroce-transport -p ferroce-sim --lib --bins {planted}"))?;
    Ok(String::new())
}

/// The fuzz crate stands outside the workspace, so nothing else here compiles it.
fn fuzz_check(place: &Place) -> Result<String> {
    if !setup::has_cxx() {
        let what = "no C++ compiler; `cargo xtask setup` installs one";
        ensure!(!setup::skipping_is_failing(), "{what}");
        return Ok(format!("SKIPPED: {what}"));
    }
    let cmd = Cmd::cargo("check --manifest-path fuzz/Cargo.toml --locked --target-dir");
    place.run(&cmd.arg(checks()))?;
    Ok(String::new())
}

/// Tests at once that wait for most of their time.
const WAITING: usize = 8;

fn tests() -> Result<String> {
    let (mut passed, mut skipped, mut failures) = (0, 0, Failures::default());
    // Stock programs run on the drop-in library, which cargo cannot link.
    let abi = link_abi::link(Build::WithTests)?;
    // All that fails is to be seen at once: a run is long.
    // Tests that wait for most of their time stand in modules of this name: many run at once, and nothing that
    // measures runs beside them. "--skip" is one word with its name: a test program with a main of its own may take
    // any other word for the name of a test.
    let waiting = format!(
        "test --workspace --no-fail-fast --test it --test mesh waiting:: -- --test-threads {WAITING}"
    );
    for line in ["test --workspace --no-fail-fast -- --skip=waiting::", &waiting] {
        let cmd = Cmd::cargo(line).env(setup::REQUIRE_ALL, setup::require_all());
        let cmd = cmd.env(link_abi::FOLDER, abi.display().to_string());
        let ran = cmd.run_seeing(|line| {
            passed += tests_passed(line);
            skipped += u64::from(is_skip_notice(line));
            failures.see(line);
        });
        ran.map_err(|error| anyhow!("{error:#}{failures}"))?;
    }
    ensure!(passed > 0, "`cargo test --workspace` succeeded but ran no test at all");
    Ok(note_on_tests(passed, skipped))
}

fn simulate() -> Result<String> {
    sim::run_with(&["--seeds", "2000"])?;
    Ok("2,000 seeds".into())
}

/// The short form: orders with at most two switches of threads that nothing forces.
fn loom(place: &Place) -> Result<String> {
    loom_models(place, Some(2))?;
    Ok("at most 2 pre-emptions".into())
}

/// Checks the engine's bell, lock, mail and rings, and the lanes between processes, under every order of threads, or
/// those with at most so many pre-emptions. Without a number each model has its own bound.
pub(crate) fn loom_models(place: &Place, preemptions: Option<u32>) -> Result<()> {
    let cmd = Cmd::cargo("test -p ferroce-sys -p ferroce-lane -p ferroce-progress --test loom --target-dir");
    let mut cmd = cmd.arg(target_dir().join("loom")).env("RUSTFLAGS", "--cfg loom");
    if let Some(preemptions) = preemptions {
        cmd = cmd.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    place.run(&cmd)
}

fn docs(place: &Place) -> Result<String> {
    let cmd = Cmd::cargo("doc --workspace --no-deps --target-dir").arg(checks());
    place.run(&cmd.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(String::new())
}

/// Reads `test result: ok. 12 passed; 0 failed; ...`; other lines count nothing.
fn tests_passed(line: &str) -> u64 {
    let count = line.strip_prefix("test result: ok. ").and_then(|rest| rest.split_once(" passed"));
    count.and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

/// What a test prints that found its judge missing, and then passed without it.
pub(crate) fn is_skip_notice(line: &str) -> bool {
    line.starts_with("SKIPPED:")
}

fn note_on_tests(passed: u64, skipped: u64) -> String {
    match skipped {
        0 => format!("{passed} tests passed"),
        _ => format!("{passed} tests passed, {skipped} of them SKIPPED what they are for"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn test_counts_are_read_from_result_lines_only() {
        assert_eq!(tests_passed("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured"), 12);
        assert_eq!(tests_passed("test wire::parse ... ok"), 0);
        assert_eq!(tests_passed("running 12 tests"), 0);
    }

    #[test]
    fn skipped_tests_show_in_the_note() {
        assert!(is_skip_notice("SKIPPED: tshark is missing; `cargo xtask setup` installs it"));
        assert!(!is_skip_notice("test skipped ... ok"));
        assert_eq!(note_on_tests(12, 0), "12 tests passed");
        assert!(note_on_tests(12, 2).contains("2 of them SKIPPED"));
    }

    fn part(name: &'static str, run: Run) -> Part {
        Part { name, shows: "", run }
    }

    #[test]
    fn nothing_runs_after_the_first_failure() {
        let good = part("good", Front(|| Ok(String::new())));
        let bad = part("bad", Front(|| bail!("as intended")));
        let never = part("never", Front(|| unreachable!("runs after a failure")));
        let table = run_parts(&[&good, &bad, &never]);
        assert_eq!(table.failed(), ["bad"]);
        assert!(table.to_string().contains("never  not run"));
    }

    /// What a part in front and one beside it wait for: each other.
    static MEETING: Barrier = Barrier::new(2);

    #[test]
    fn parts_run_beside_the_next_one_and_all_that_failed_is_named() {
        let wait = |_: &Place| {
            MEETING.wait();
            Ok(String::new())
        };
        let beside = part("beside", Beside(wait));
        let bad = part("bad", Beside(|_| bail!("as intended")));
        let front = part(
            "front",
            Front(|| {
                MEETING.wait();
                Ok("met".into())
            }),
        );
        let never = part("never", Beside(|_| unreachable!("runs after a failure")));
        let table = run_parts(&[&beside, &bad, &front, &never]);
        assert_eq!(table.failed(), ["bad"]);
        assert_eq!(table.passed(), 2);
        assert!(table.to_string().contains("never   not run"));
    }

    #[test]
    fn without_a_part_to_run_beside_they_run_alone() {
        let in_front = |place: &Place| {
            ensure!(matches!(place, Place::Front), "its output is kept");
            Ok(String::new())
        };
        let table = run_parts(&[&part("clippy", Beside(in_front)), &part("docs", Beside(in_front))]);
        assert_eq!(table.passed(), 2);
    }
}
