//! `cargo xtask test`: everything a change must pass, in order, stopping at the first failure.

use anyhow::{Result, bail, ensure};
use clap::builder::PossibleValuesParser;

use crate::clock::Stopwatch;
use crate::link_abi::Build;
use crate::report::{Outcome, Table};
use crate::say::{complain, say};
use crate::shell::{Cmd, target_dir};
use crate::{interop, link_abi, no_std, setup, sim, tidy};

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
    /// Returns a note for the table.
    run: fn() -> Result<String>,
}

/// In the order they run: cheap and telling first.
const PARTS: &[Part] = &[
    Part { name: "setup", shows: "the programs the tests need are installed", run: setup::run },
    Part { name: "fmt", shows: "rustfmt would change nothing", run: fmt },
    Part { name: "clippy", shows: "no lint of the workspace fires", run: clippy },
    Part {
        name: "fuzz-check",
        shows: "the fuzz targets compile, with the lock file as it is",
        run: fuzz_check,
    },
    Part { name: "tests", shows: "unit, property, golden and documentation tests pass", run: tests },
    Part { name: "sim", shows: "2,000 seeded runs with faults break no guarantee", run: simulate },
    Part { name: "loom", shows: "no order of threads loses a call, a wake or a completion", run: loom },
    Part { name: "no-std", shows: "the wire crate builds without the standard library", run: no_std::check },
    Part { name: "docs", shows: "the documentation builds without a warning", run: docs },
    Part { name: "tidy", shows: "the repository keeps its own rules", run: tidy::check_repository },
    Part {
        name: "interop",
        shows: "we and the Linux kernel understand each other, both ways",
        run: interop::check,
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
    match table.failed().first() {
        None => say!("xtask test: passed, {} of {} parts in {}", parts.len(), PARTS.len(), total.read()),
        Some(name) => bail!("test: part `{name}` failed; run it alone with: cargo xtask test --only {name}"),
    }
    Ok(())
}

fn run_parts(parts: &[&Part]) -> Table {
    let mut table = Table::default();
    for part in parts {
        if !table.failed().is_empty() {
            table.push(part.name, Outcome::NotRun);
            continue;
        }
        say!("\n== {}: {}", part.name, part.shows);
        let watch = Stopwatch::start();
        let result = (part.run)();
        let took = watch.read();
        match result {
            Ok(note) => table.push(part.name, Outcome::Passed { took, note }),
            Err(error) => {
                complain!("\n== {} FAILED: {error:#}", part.name);
                table.push(part.name, Outcome::Failed { took });
            }
        }
    }
    table
}

fn fmt() -> Result<String> {
    Cmd::cargo("fmt --all --check").run()?;
    // The fuzz crate stands outside the workspace.
    Cmd::cargo("fmt --manifest-path fuzz/Cargo.toml --check").run()?;
    Ok(String::new())
}

fn clippy() -> Result<String> {
    Cmd::cargo("clippy --workspace --all-targets -- -D warnings").run()?;
    // What stands behind this feature is compiled nowhere else but in the soak.
    let planted = "--features ferroce-transport/planted,ferroce-sim/planted";
    let line = format!("clippy -p ferroce-transport -p ferroce-sim --lib --bins {planted} -- -D warnings");
    Cmd::cargo(&line).run()?;
    Ok(String::new())
}

/// The fuzz crate stands outside the workspace, so nothing else here compiles it.
fn fuzz_check() -> Result<String> {
    if !setup::has_cxx() {
        let what = "no C++ compiler; `cargo xtask setup` installs one";
        ensure!(!setup::skipping_is_failing(), "{what}");
        return Ok(format!("SKIPPED: {what}"));
    }
    let cmd = Cmd::cargo("check --manifest-path fuzz/Cargo.toml --locked --target-dir");
    cmd.arg(target_dir().join("fuzz-check")).run()?;
    Ok(String::new())
}

/// Tests at once that wait for most of their time.
const WAITING: usize = 8;

fn tests() -> Result<String> {
    let (mut passed, mut skipped) = (0, 0);
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
        cmd.run_seeing(|line| {
            passed += tests_passed(line);
            skipped += u64::from(is_skip_notice(line));
        })?;
    }
    ensure!(passed > 0, "`cargo test --workspace` succeeded but ran no test at all");
    Ok(note_on_tests(passed, skipped))
}

fn simulate() -> Result<String> {
    sim::run_with(&["--seeds", "2000"])?;
    Ok("2,000 seeds".into())
}

/// The short form: orders with at most two switches of threads that nothing forces.
fn loom() -> Result<String> {
    loom_models(Some(2))?;
    Ok("at most 2 pre-emptions".into())
}

/// Checks the engine's bell, lock, mail and rings, and the lanes between processes, under every order of threads, or
/// those with at most so many pre-emptions. Without a number each model has its own bound.
pub(crate) fn loom_models(preemptions: Option<u32>) -> Result<()> {
    let cmd = Cmd::cargo("test -p ferroce-sys -p ferroce-lane -p ferroce-progress --test loom --target-dir");
    let mut cmd = cmd.arg(target_dir().join("loom")).env("RUSTFLAGS", "--cfg loom");
    if let Some(preemptions) = preemptions {
        cmd = cmd.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    cmd.run()
}

fn docs() -> Result<String> {
    Cmd::cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings").run()?;
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

    #[test]
    fn nothing_runs_after_the_first_failure() {
        let good = Part { name: "good", shows: "", run: || Ok(String::new()) };
        let bad = Part { name: "bad", shows: "", run: || bail!("as intended") };
        let never = Part { name: "never", shows: "", run: || unreachable!("runs after a failure") };
        let table = run_parts(&[&good, &bad, &never]);
        assert_eq!(table.failed(), ["bad"]);
        assert!(table.to_string().contains("never  not run"));
    }
}
