//! How many instructions the shortest ways through the device take, in the work tree or beside a commit.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Args;
use super::callgrind;
use super::checkout::Checkout;
use super::line::{Line, whole};
use super::table::aligned;
use crate::say::{complain, say};
use crate::shell::Cmd;

/// Its name for `--only`, and that of the benchmark.
pub(crate) const NAME: &str = "instructions";

/// The packages that have such a benchmark: the device, and the API on top of it.
const PACKAGES: [&str; 2] = ["device", "verbs"];

/// Rounds of a run: more take longer, and then the device's own threads meddle more often.
const ROUNDS: u32 = 100;

/// Runs, of which the one with the fewest instructions counts: chance only adds some.
const RUNS: usize = 7;

/// The function of the benchmark within which they are counted.
const WITHIN: &str = "instructions::measured";

/// How many times as many as before are too many.
const BAR: f64 = 1.02;

/// One way through the device, and what it takes.
struct Row {
    shows: String,
    before: Option<f64>,
    now: f64,
}

pub(super) fn run(args: &Args) -> Result<()> {
    callgrind::check()?;
    let here = Checkout::here();
    let before =
        args.before.as_deref().map(|revision| Checkout::of_side("before", Some(revision))).transpose()?;
    let (mut rows, runs) = (Vec::new(), if args.quick { 1 } else { RUNS });
    for package in PACKAGES {
        let program = here.build(package, NAME)?;
        let then = before.as_ref().map(|checkout| Before::build(checkout, package)).transpose()?;
        for line in Cmd::new(&program).arg("--cases").output()?.lines() {
            let line = Line::parse(line).context("reading what the benchmark says")?;
            let (name, shows, each) = (line.text("case")?, line.text("shows")?, line.number("each")?);
            let is_wanted = |part: &String| name.contains(part) || shows.contains(part);
            if !args.rest.is_empty() && !args.rest.iter().any(is_wanted) {
                continue;
            }
            complain!("{name}: {shows}");
            let count = |program: &Path| least(program, name, runs).map(|count| count / each);
            let then = then.as_ref().filter(|then| then.cases.contains(&format!("\"{name}\"")));
            let then = then.map(|then| count(&then.program)).transpose()?;
            rows.push(Row { shows: shows.to_owned(), before: then, now: count(&program)? });
        }
    }
    ensure!(!rows.is_empty(), "no case has {:?} in its name", args.rest);
    if args.json {
        let cases: Vec<Value> = rows.iter().map(Row::to_json).collect();
        let before = before.as_ref().map(|before| &before.name);
        say!("{:#}", json!({ "before": before, "instructions": cases }));
    } else {
        say!("\n{}", render(&rows, before.as_ref().map(|before| before.name.as_str())));
    }
    if args.quick {
        // A single run says little.
        return Ok(());
    }
    let above = above_bar(&rows);
    if !above.is_empty() {
        bail!("more than {:.0} % above what it was: {}", (BAR - 1.0) * 100.0, above.join("; "));
    }
    Ok(())
}

/// Instructions of a round of a case, in the best of so many runs.
fn least(program: &Path, case: &str, runs: usize) -> Result<f64> {
    let rounds = ROUNDS.to_string();
    let args = ["--case", case, "--rounds", &rounds];
    let mut least = f64::INFINITY;
    for _ in 0..runs {
        least = least.min(callgrind::count(program, &args, Some(WITHIN))?);
    }
    ensure!(least > 0.0, "callgrind has not seen the function {WITHIN}");
    Ok(least / f64::from(ROUNDS))
}

/// What a poll of the device found when that had a type of its own for it.
const FOUND_BEFORE: &str = "\
//! What a poll finds and what posting refuses, as it was once.

use ferroce_device::WorkCompletion;
use ferroce_transport::{PostError, Status, WorkKind};

pub(crate) type Found = WorkCompletion;

/// What ended, and how.
pub(crate) const fn told(found: &Found) -> (WorkKind, Status) {
    (found.completion.kind, found.completion.status)
}

/// Why a list was refused.
pub(crate) const fn why(refused: (usize, PostError)) -> PostError {
    refused.1
}
";

/// The benchmark of the work tree, built against another commit.
struct Before {
    program: PathBuf,
    /// What it says of its cases: an older commit may have fewer.
    cases: String,
}

impl Before {
    fn build(checkout: &Checkout, package: &str) -> Result<Self> {
        checkout.borrow_bench(package, NAME)?;
        if package != "device" {
            // The card that it calls, which knew less once.
            for file in ["crates/system/tests/c/card.c", "crates/system/tests/c/card.map"] {
                checkout.write(file, &Checkout::here().read(file)?)?;
            }
            return Self::of(checkout, package);
        }
        if checkout.read("crates/device/src/lib.rs")?.contains("WorkCompletion") {
            checkout.write("crates/device/benches/instructions/found.rs", FOUND_BEFORE)?;
        }
        if !checkout.read("crates/device/src/qp.rs")?.contains("pub stamps: bool") {
            // Queue pairs had no stamps once.
            let end = "crates/device/benches/instructions/end.rs";
            checkout.write(end, &checkout.read(end)?.replace("stamps: false,", ""))?;
        }
        Self::of(checkout, package)
    }

    fn of(checkout: &Checkout, package: &str) -> Result<Self> {
        let program = checkout.build(package, NAME)?;
        let cases = Cmd::new(&program).arg("--cases").output()?;
        Ok(Self { program, cases })
    }
}

impl Row {
    /// What it takes now by what it took before.
    fn ratio(&self) -> Option<f64> {
        Some(self.now / self.before?)
    }

    fn to_json(&self) -> Value {
        json!({
            "case": self.shows,
            "before": self.before.map(whole),
            "instructions": whole(self.now),
            "ratio": self.ratio(),
        })
    }
}

/// What is to be said of those that take too many.
fn above_bar(rows: &[Row]) -> Vec<String> {
    let above = rows.iter().filter(|row| row.ratio().is_some_and(|ratio| ratio > BAR));
    above
        .map(|Row { shows, before, now }| {
            format!("{shows} takes {now:.0} instructions, and took {:.0}", before.unwrap_or(0.0))
        })
        .collect()
}

fn render(rows: &[Row], before: Option<&str>) -> String {
    let show =
        |value: Option<f64>, digits| value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"));
    let mut table =
        vec![["instructions of", before.unwrap_or("before"), "work tree", "ratio"].map(String::from)];
    for row in rows {
        table.push([row.shows.clone(), show(row.before, 0), show(Some(row.now), 0), show(row.ratio(), 3)]);
    }
    aligned(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_well_above_is_complained_of() {
        let row = |before, now| Row { shows: "a poll".into(), before, now };
        let rows = [row(Some(1000.0), 1020.0), row(None, 5000.0), row(Some(1000.0), 500.0)];
        assert_eq!(above_bar(&rows), [""; 0]);
        assert_eq!(
            above_bar(&[row(Some(1000.0), 1021.0)]),
            ["a poll takes 1021 instructions, and took 1000"]
        );
        let table = render(&rows, Some("0b18e79"));
        assert!(table.contains("| instructions of | 0b18e79 | work tree | ratio |"), "{table}");
        assert!(table.contains("| a poll          | 1000    | 1020      | 1.020 |"), "{table}");
        assert!(table.contains("| a poll          | -       | 5000      | -     |"), "{table}");
    }
}
