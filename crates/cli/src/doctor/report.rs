//! What the doctor has found, for people and for programs.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::facts::Facts;
use super::finding::{Finding, Level};
use super::{Check, Group, Said};
use crate::output::{Style, Styled, printable};

/// Where the text of a finding begins: behind its level and the name of its check.
const INDENT: usize = 2 + LEVEL + NAME;

/// Columns of a level.
const LEVEL: usize = 11;

/// Columns of the name of a check.
const NAME: usize = 13;

/// Columns of `seen` and `remedy`.
const LABEL: usize = 8;

/// The findings as text.
pub(super) fn text(facts: &Facts, all: &[Said], verbose: bool) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let of_group = || all.iter().filter(|said| said.check.group == group);
        if of_group().next().is_none() {
            continue;
        }
        // Writing to a text does not fail.
        let _ = writeln!(text, "{}", Style::Title.of(group.title()));
        for said in of_group() {
            for finding in &said.findings {
                add(&mut text, said.check.name, finding, verbose);
            }
        }
        let idle: Vec<&str> =
            of_group().filter(|said| said.findings.is_empty()).map(|said| said.check.name).collect();
        if !idle.is_empty() {
            let line = format!("  Nothing to look at without a device: {}.", idle.join(", "));
            let _ = writeln!(text, "{}", Style::Faint.of(line));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", verdict(facts, all));
    text
}

fn add(text: &mut String, check: &str, finding: &Finding, verbose: bool) {
    let Finding { level, about, what, seen, remedy, commands } = finding;
    let about = about.as_ref().map_or_else(String::new, |about| format!("{about}: "));
    let what = printable(&format!("{about}{what}"));
    let word = format!("{:LEVEL$}", level.word());
    let _ = writeln!(text, "  {}{check:NAME$}{what}", styled(*level, word));
    let mut line = |label: &str, line: &str| {
        let _ =
            writeln!(text, "{:INDENT$}{}{}", "", Style::Faint.of(format!("{label:LABEL$}")), printable(line));
    };
    if verbose || *level >= Level::Unknown {
        for (at, fact) in seen.iter().enumerate() {
            line(if at == 0 { "seen" } else { "" }, fact);
        }
    }
    if let Some(remedy) = remedy {
        line("remedy", remedy);
    }
    for (at, command) in commands.iter().enumerate() {
        let label = if at == 0 && remedy.is_none() { "remedy" } else { "" };
        line(label, &format!("  {command}"));
    }
}

const fn styled(level: Level, word: String) -> Styled<String> {
    match level {
        Level::Ok => Style::Good.of(word),
        Level::Note => Style::Request.of(word),
        Level::Unknown => Style::Faint.of(word),
        Level::Warning => Style::Doubtful.of(word),
        Level::Fault => Style::Bad.of(word),
    }
}

/// The last line: whether anything is wrong.
fn verdict(facts: &Facts, all: &[Said]) -> String {
    let counted = |level, one: &str| {
        let count = count(all, level);
        let plural = if count == 1 || one.ends_with("known") { "" } else { "s" };
        (count > 0).then(|| format!("{count} {one}{plural}"))
    };
    let words = [
        counted(Level::Fault, "fault"),
        counted(Level::Warning, "warning"),
        counted(Level::Unknown, "not known"),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let is_well = count(all, Level::Fault) + count(all, Level::Warning) == 0;
    let mut line = match (is_well, words.is_empty()) {
        (true, true) => "Nothing is wrong.".to_owned(),
        (true, false) => format!("Nothing that could be looked at is wrong; {}.", words.join(", ")),
        _ => format!("{}.", words.join(", ")),
    };
    let asked_for_devices = all.iter().any(|said| said.check.group == Group::Kernel);
    if is_well && asked_for_devices && facts.devices().is_empty() {
        line += " There is no RDMA hardware here, and Ferroce's card needs none: try `ferroce demo`.";
    }
    line
}

fn count(all: &[Said], level: Level) -> usize {
    all.iter().flat_map(|said| &said.findings).filter(|finding| finding.level == level).count()
}

/// The line for standard error, if there are faults.
pub(super) fn faults(all: &[Said]) -> Option<String> {
    let is_bad = |finding: &Finding| finding.level == Level::Fault;
    let checks = all.iter().filter(|said| said.findings.iter().any(is_bad));
    let names: Vec<&str> = checks.map(|said| said.check.name).collect();
    let count = count(all, Level::Fault);
    let plural = if count == 1 { "" } else { "s" };
    (count > 0).then(|| format!("{count} fault{plural} found: {}", names.join(", ")))
}

/// The findings as one JSON object.
pub(super) fn json(facts: &Facts, all: &[Said]) -> String {
    let findings = all.iter().flat_map(|said| {
        said.findings.iter().map(|Finding { level, about, what, seen, remedy, commands }| {
            json!({
                "check": said.check.name,
                "level": level.key(),
                "about": about,
                "what": what,
                "seen": seen,
                "remedy": remedy,
                "commands": commands,
            })
        })
    });
    let summary: Map<String, Value> =
        Level::ALL.iter().map(|level| (level.key().to_owned(), count(all, *level).into())).collect();
    let idle = all.iter().filter(|said| said.findings.is_empty()).map(|said| said.check.name);
    let object = json!({
        "summary": summary,
        "rdma_devices": facts.devices().iter().map(|device| &device.name).collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
        "not_looked_at": idle.collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
}

/// What each check looks at.
pub(super) fn list(checks: impl Iterator<Item = &'static Check>) -> String {
    let mut text = String::new();
    for check in checks {
        let _ = writeln!(text, "{}", Style::Title.of(check.name));
        let mut line = String::new();
        for word in check.teaches.split(' ') {
            if line.len() + word.len() > COLUMNS {
                let _ = writeln!(text, " {line}");
                line.clear();
            }
            line += " ";
            line += word;
        }
        let _ = writeln!(text, " {line}");
    }
    text
}

/// Columns of a text that is read.
const COLUMNS: usize = 96;

pub(super) fn list_json(checks: impl Iterator<Item = &'static Check>) -> String {
    let all: Vec<Value> =
        checks.map(|check| json!({ "check": check.name, "looks_at": check.teaches })).collect();
    format!("{:#}\n", json!({ "checks": all }))
}
