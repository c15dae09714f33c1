//! What has come of a selftest, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use ferroce::Path;
use ferroce_conformance::{Case, Ended, GROUPS, Outcome, Under};
use serde_json::{Value, json};

use super::anonymous::Names;
use super::machine::Device;
use crate::output::Style;

/// What the number of the report's form is. It grows when something that a program may read is no longer there, or means something
/// else.
const FORM: u32 = 1;

/// Columns of the name of a case.
const NAME: usize = 44;

/// What has been run, on what, and what came of it.
pub(super) struct Report {
    pub(super) device: Device,
    pub(super) under: Under,
    pub(super) limit: Duration,
    pub(super) at_once: u8,
    pub(super) only: Vec<String>,
    pub(super) interrupted: bool,
    pub(super) took: Duration,
    /// Cases that were to be run.
    pub(super) wanted: usize,
    pub(super) results: Vec<Ended<'static>>,
}

/// How many cases came to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) passed: usize,
    pub(super) not_possible: usize,
    pub(super) failed: usize,
    pub(super) timed_out: usize,
    pub(super) crashed: usize,
    pub(super) not_run: usize,
}

impl Summary {
    fn of(results: &[Ended<'_>], wanted: usize) -> Self {
        let count = |word: &str| results.iter().filter(|ended| ended.outcome.word() == word).count();
        Self {
            passed: count("passed"),
            not_possible: count("not_possible"),
            failed: count("failed"),
            timed_out: count("timed_out"),
            crashed: count("crashed"),
            not_run: wanted.saturating_sub(results.len()),
        }
    }

    fn to_json(self) -> Value {
        json!({
            "passed": self.passed,
            "not_possible": self.not_possible,
            "failed": self.failed,
            "timed_out": self.timed_out,
            "crashed": self.crashed,
            "not_run": self.not_run,
        })
    }
}

impl Report {
    fn summary(&self) -> Summary {
        Summary::of(&self.results, self.wanted)
    }

    /// What is wrong, in a line; nothing if all is well.
    pub(super) fn verdict(&self) -> Option<String> {
        verdict(&self.summary())
    }

    /// The report that is sent.
    pub(super) fn to_json(&self, names: &Names) -> Value {
        let path = match (self.device.has_paths(), self.under.path.unwrap_or(Path::Wire)) {
            (false, _) => Value::Null,
            (true, Path::Wire) => "wire".into(),
            (true, Path::Local) => "local".into(),
            (true, Path::Shared) => "shared".into(),
        };
        json!({
            "ferroce_selftest": FORM,
            "ferroce": env!("CARGO_PKG_VERSION"),
            "whole": names.is_whole(),
            "machine": self.device.machine(names),
            "device": self.device.to_json(names),
            "settings": {
                "path": path,
                "only": self.only.iter().map(|word| names.clean(word)).collect::<Vec<_>>(),
                "limit_seconds": self.limit.as_secs(),
                "at_once": self.at_once,
            },
            "seconds": rounded(self.took),
            "interrupted": self.interrupted,
            "summary": self.summary().to_json(),
            "cases": self.results.iter().map(|ended| case(ended, names)).collect::<Vec<_>>(),
        })
    }

    /// The table.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}\n", Style::Title.of(self.device.describe()))?;
        print(out, &self.results)?;
        let Summary { passed, not_possible, failed, timed_out, crashed, not_run } = self.summary();
        let of = self.results.len();
        write!(
            out,
            "{passed} of {of} cases passed, {not_possible} are not possible here, {failed} failed, "
        )?;
        write!(out, "{timed_out} timed out, {crashed} crashed")?;
        if not_run > 0 {
            write!(out, ", {not_run} were not run")?;
        }
        writeln!(out, "; {:.1} s", self.took.as_secs_f64())
    }
}

pub(super) fn verdict(summary: &Summary) -> Option<String> {
    let Summary { failed, timed_out, crashed, not_run, .. } = *summary;
    let bad: Vec<String> = [(failed, "failed"), (timed_out, "timed out"), (crashed, "crashed")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    match (bad.is_empty(), not_run) {
        (true, 0) => None,
        (true, _) => Some(format!("interrupted: {not_run} cases were not run")),
        (false, _) => Some(format!("of the cases {}", bad.join(", "))),
    }
}

/// A case in a line.
pub(super) fn line(ended: &Ended<'_>) -> String {
    let word = styled(&ended.outcome, ended.outcome.word().replace('_', " "));
    let seconds = ended.took.as_secs_f64();
    match &ended.outcome {
        Outcome::Passed => format!("{:NAME$} {word}, {seconds:.2} s", ended.name),
        outcome => format!("{:NAME$} {word}: {}", ended.name, first_line(&outcome.to_string())),
    }
}

pub(super) fn print(out: &mut impl Write, results: &[Ended<'_>]) -> io::Result<()> {
    for (group, about) in GROUPS {
        let of: Vec<Ended<'_>> = results.iter().filter(|ended| group_of(ended) == *group).cloned().collect();
        if of.is_empty() {
            continue;
        }
        let summary = Summary::of(&of, of.len());
        let counts = [
            (summary.passed, "passed"),
            (summary.not_possible, "not possible here"),
            (summary.failed, "failed"),
            (summary.timed_out, "timed out"),
            (summary.crashed, "crashed"),
        ];
        let said: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        writeln!(out, "  {group:14} {}  {}", format_args!("{:34}", said.join(", ")), Style::Faint.of(about))?;
    }
    writeln!(out)?;
    let mut missing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for ended in results {
        if let Outcome::Missing(what) = &ended.outcome {
            missing.entry(what.to_string()).or_default().push(ended.name);
        }
    }
    if !missing.is_empty() {
        writeln!(out, "{}", Style::Title.of("not possible here: the device has no"))?;
        for (what, cases) in &missing {
            writeln!(out, "  {what}: {}", cases.join(", "))?;
        }
        writeln!(out)?;
    }
    for (word, title) in [("failed", "failed"), ("timed_out", "timed out"), ("crashed", "crashed")] {
        let mut of = results.iter().filter(|ended| ended.outcome.word() == word).peekable();
        if of.peek().is_none() {
            continue;
        }
        writeln!(out, "{}", Style::Title.of(title))?;
        for ended in of {
            writeln!(out, "  {}", Style::Bad.of(ended.name))?;
            for line in ended.outcome.to_string().lines().chain(last_lines(ended)) {
                writeln!(out, "    {}", crate::output::printable(line))?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// What the process of a case that crashed said last.
fn last_lines<'a>(ended: &'a Ended<'_>) -> impl Iterator<Item = &'a str> {
    const LINES: usize = 8;
    let crashed = matches!(ended.outcome, Outcome::Crashed { .. });
    let lines: Vec<&str> = ended.said.lines().filter(|_| crashed).collect();
    let skip = lines.len().saturating_sub(LINES);
    lines.into_iter().skip(skip)
}

/// A case of the report.
pub(super) fn case(ended: &Ended<'_>, names: &Names) -> Value {
    let mut told = json!({
        "group": group_of(ended),
        "name": ended.name,
        "seconds": rounded(ended.took),
    });
    let outcome = ended.outcome.clone().with_texts(|text| names.clean(text)).to_json();
    if let (Value::Object(told), Value::Object(outcome)) = (&mut told, outcome) {
        told.extend(outcome);
        // Where nothing is wrong, it is of no use.
        if !ended.outcome.is_good() && !ended.said.is_empty() {
            told.insert("stderr".to_owned(), names.clean(&ended.said).into());
        }
    }
    told
}

fn group_of(ended: &Ended<'_>) -> &'static str {
    Case::find(ended.name).map_or("", |case| case.group)
}

fn rounded(took: Duration) -> f64 {
    (took.as_secs_f64() * 1000.0).round() / 1000.0
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn styled(outcome: &Outcome, word: String) -> impl Display {
    match outcome {
        Outcome::Passed => Style::Good,
        Outcome::Missing(_) => Style::Faint,
        _ => Style::Bad,
    }
    .of(word)
}
