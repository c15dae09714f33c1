//! What has come of a selftest, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use ferroce::Path;
use ferroce_conformance::known::Driver;
use ferroce_conformance::{Ended, GROUPS, Outcome, Under};
use serde_json::{Value, json};

use super::anonymous::Names;
use super::judged::{Judged, Kind};
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
    pub(super) known: usize,
    pub(super) failed: usize,
    pub(super) timed_out: usize,
    pub(super) crashed: usize,
    pub(super) not_run: usize,
}

impl Summary {
    fn of(results: &[&Judged<'_>], wanted: usize) -> Self {
        let count = |kind| results.iter().filter(|judged| judged.kind == kind).count();
        Self {
            passed: count(Kind::Passed),
            not_possible: count(Kind::NotPossible),
            known: count(Kind::Known),
            failed: count(Kind::Failed),
            timed_out: count(Kind::TimedOut),
            crashed: count(Kind::Crashed),
            not_run: wanted.saturating_sub(results.len()),
        }
    }

    const fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Passed => self.passed,
            Kind::NotPossible => self.not_possible,
            Kind::Known => self.known,
            Kind::Failed => self.failed,
            Kind::TimedOut => self.timed_out,
            Kind::Crashed => self.crashed,
        }
    }

    fn to_json(self) -> Value {
        json!({
            "passed": self.passed,
            "not_possible": self.not_possible,
            "known": self.known,
            "failed": self.failed,
            "timed_out": self.timed_out,
            "crashed": self.crashed,
            "not_run": self.not_run,
        })
    }
}

impl Report {
    fn summary(&self) -> Summary {
        let judged = self.judged();
        Summary::of(&judged.iter().collect::<Vec<_>>(), self.wanted)
    }

    fn judged(&self) -> Vec<Judged<'_>> {
        let driver = self.device.known();
        self.results.iter().map(|ended| Judged::new(ended, driver)).collect()
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
            "cases": self.judged().iter().map(|judged| case(judged, names)).collect::<Vec<_>>(),
        })
    }

    /// The table.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}\n", Style::Title.of(self.device.describe()))?;
        print(out, &self.results, self.device.known())?;
        let Summary { passed, not_possible, known, failed, timed_out, crashed, not_run } = self.summary();
        let of = self.results.len();
        write!(out, "{passed} of {of} cases passed, {not_possible} are not possible here, ")?;
        if known > 0 {
            write!(out, "{known} went as known of this driver, ")?;
        }
        write!(out, "{failed} failed, {timed_out} timed out, {crashed} crashed")?;
        if not_run > 0 {
            write!(out, ", {not_run} were not run")?;
        }
        writeln!(out, "; {:.1} s", self.took.as_secs_f64())
    }
}

pub(super) fn verdict(summary: &Summary) -> Option<String> {
    let bad: Vec<String> = Kind::ALL
        .into_iter()
        .filter(|kind| kind.is_bad() && summary.count(*kind) > 0)
        .map(|kind| format!("{} {}", summary.count(kind), kind.told()))
        .collect();
    match (bad.is_empty(), summary.not_run) {
        (true, 0) => None,
        (true, not_run) => Some(format!("interrupted: {not_run} cases were not run")),
        (false, _) => Some(format!("of the cases {}", bad.join(", "))),
    }
}

/// A case in a line.
pub(super) fn line(ended: &Ended<'_>, driver: Option<&'static Driver>) -> String {
    let judged = Judged::new(ended, driver);
    let kind = judged.kind;
    let word = styled(kind, kind.told());
    match (kind, judged.why) {
        (Kind::Passed, _) => format!("{:NAME$} {word}, {:.2} s", judged.name(), judged.took().as_secs_f64()),
        (Kind::Known, Some(why)) => format!("{:NAME$} {word}: {why}", judged.name()),
        _ => format!("{:NAME$} {word}: {}", judged.name(), first_line(&judged.text())),
    }
}

pub(super) fn print(
    out: &mut impl Write,
    results: &[Ended<'_>],
    driver: Option<&'static Driver>,
) -> io::Result<()> {
    let judged: Vec<Judged<'_>> = results.iter().map(|ended| Judged::new(ended, driver)).collect();
    for (group, about) in GROUPS {
        let of: Vec<&Judged<'_>> = judged.iter().filter(|judged| judged.group() == *group).collect();
        if of.is_empty() {
            continue;
        }
        let summary = Summary::of(&of, of.len());
        let said: Vec<String> = Kind::ALL
            .into_iter()
            .filter(|kind| summary.count(*kind) > 0)
            .map(|kind| format!("{} {}", summary.count(kind), kind.told()))
            .collect();
        writeln!(out, "  {group:14} {}  {}", format_args!("{:34}", said.join(", ")), Style::Faint.of(about))?;
    }
    writeln!(out)?;
    print_known(out, &judged, driver)?;
    let missing = by_reason(&judged, |judged| match (judged.kind, judged.outcome()) {
        (Kind::NotPossible, Outcome::Missing(what)) if judged.why.is_none() => Some(what.to_string()),
        _ => None,
    });
    print_list(out, "not possible here: the device has no", &missing)?;
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_bad()) {
        let mut of = judged.iter().filter(|judged| judged.kind == kind).peekable();
        if of.peek().is_none() {
            continue;
        }
        writeln!(out, "{}", Style::Title.of(kind.told()))?;
        for judged in of {
            writeln!(out, "  {}", Style::Bad.of(judged.name()))?;
            for line in judged.text().lines().chain(last_lines(judged)) {
                writeln!(out, "    {}", crate::output::printable(line))?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// What is known of the driver, with the cases that meet it: no failures.
fn print_known(
    out: &mut impl Write,
    judged: &[Judged<'_>],
    driver: Option<&'static Driver>,
) -> io::Result<()> {
    let Some(Driver { name, tried, .. }) = driver else { return Ok(()) };
    let known = by_reason(judged, |judged| judged.why.map(str::to_owned));
    print_list(out, &format!("known of this driver ({name}; tried with {tried})"), &known)?;
    let better = by_reason(judged, |judged| {
        judged.is_better.then(|| "they are known not to pass on this driver".to_owned())
    });
    print_list(out, "passed all the same", &better)
}

/// The names of cases by what something says of them.
fn by_reason<'a>(
    judged: &'a [Judged<'_>],
    reason: impl Fn(&Judged<'_>) -> Option<String>,
) -> BTreeMap<String, Vec<&'a str>> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for one in judged {
        if let Some(reason) = reason(one) {
            all.entry(reason).or_default().push(one.name());
        }
    }
    all
}

fn print_list(out: &mut impl Write, title: &str, list: &BTreeMap<String, Vec<&str>>) -> io::Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", Style::Title.of(title))?;
    for (reason, cases) in list {
        writeln!(out, "  {reason}: {}", cases.join(", "))?;
    }
    writeln!(out)
}

/// What the process of a case that crashed said last.
fn last_lines<'a>(judged: &Judged<'a>) -> impl Iterator<Item = &'a str> {
    const LINES: usize = 8;
    let crashed = judged.kind == Kind::Crashed;
    let lines: Vec<&str> = judged.said().lines().filter(|_| crashed).collect();
    let skip = lines.len().saturating_sub(LINES);
    lines.into_iter().skip(skip)
}

/// A case of the report.
pub(super) fn case(judged: &Judged<'_>, names: &Names) -> Value {
    let mut told = json!({
        "group": judged.group(),
        "name": judged.name(),
        "seconds": rounded(judged.took()),
    });
    let outcome = judged.outcome().clone().with_texts(|text| names.clean(text)).to_json();
    if let (Value::Object(told), Value::Object(outcome)) = (&mut told, outcome) {
        told.extend(outcome);
        told.insert("outcome".to_owned(), judged.kind.word().into());
        if let Some(why) = judged.why {
            told.insert("known".to_owned(), why.into());
        }
        if judged.kind == Kind::Failed {
            // Of what is missing, too.
            told.entry("text").or_insert_with(|| names.clean(&judged.text()).into());
        }
        // Where nothing is wrong, it is of no use.
        if !judged.outcome().is_good() && !judged.said().is_empty() {
            told.insert("stderr".to_owned(), names.clean(judged.said()).into());
        }
    }
    told
}

fn rounded(took: Duration) -> f64 {
    (took.as_secs_f64() * 1000.0).round() / 1000.0
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn styled(kind: Kind, word: &str) -> impl Display {
    match kind {
        Kind::Passed => Style::Good,
        Kind::NotPossible | Kind::Known => Style::Faint,
        Kind::Failed | Kind::TimedOut | Kind::Crashed => Style::Bad,
    }
    .of(word.to_owned())
}
