//! Which mutants there are, and which of them are drawn.

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::say::say;
use crate::shell::{Cmd, root, target_dir};

/// The version whose list this was written against.
const CARGO_MUTANTS: &str = "27.1.0";

/// Code that takes part, with the tests that judge it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Crate {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// The files.
    files: &'static str,
    /// What judges it, one after the other: what is quick to build comes first.
    pub(super) steps: &'static [Step],
}

/// One step of judging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// `cargo test` with these arguments.
    Tests(&'static str),
    /// Seeds of the simulator.
    Simulator,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tests(tests) => write!(f, "cargo test {tests}"),
            Self::Simulator => f.write_str("the simulator"),
        }
    }
}

/// All of it.
pub(super) const CRATES: &[Crate] = &[
    Crate {
        name: "wire",
        files: "crates/wire/src/",
        steps: &[
            Step::Tests("-p ferroce-wire --lib"),
            Step::Tests("-p ferroce-wire --test *"),
            Step::Simulator,
        ],
    },
    // Connection management: the simulator's queue pairs are connected by hand, and do without it.
    Crate {
        name: "cm",
        files: "crates/transport/src/cm/",
        steps: &[Step::Tests("-p ferroce-transport --lib"), Step::Tests("-p ferroce-transport --test cm")],
    },
    Crate {
        name: "transport",
        files: "crates/transport/src/",
        // One program and not more than twenty, and so sooner ready than the integration tests.
        steps: &[
            Step::Tests("-p ferroce-transport --lib"),
            Step::Simulator,
            Step::Tests("-p ferroce-transport --test *"),
        ],
    },
    Crate {
        name: "memory",
        files: "crates/memory/src/",
        steps: &[
            Step::Tests("-p ferroce-memory --lib"),
            Step::Tests("-p ferroce-device --test smoke --test placement"),
        ],
    },
    Crate {
        name: "lane",
        files: "crates/lane/src/",
        steps: &[
            Step::Tests("-p ferroce-lane --lib --test it"),
            Step::Tests("-p ferroce-device --test lanes --test neighbours"),
        ],
    },
    Crate {
        name: "switchboard",
        files: "crates/switchboard/src/",
        steps: &[
            Step::Tests("-p ferroce-switchboard --lib"),
            Step::Tests("-p ferroce-device --test forwarding --test management --test fork"),
            // Multicast is only used where several processes have queue pairs.
            Step::Tests("-p ferroce-verbs --test multicast --test multicast_veth"),
        ],
    },
];

/// Bugs behind a feature, and what no build of this machine contains.
const NOT_BUILT: &[&str] =
    &["crates/transport/src/planted.rs", "crates/memory/src/copy/portable.rs", "crates/lane/src/model.rs"];

/// One small mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    pub(super) of: &'static Crate,
    pub(super) file: String,
    /// First and one past the last character that is replaced: line and column, both from 1.
    pub(super) span: [(usize, usize); 2],
    pub(super) replacement: String,
    /// What is replaced by what, and in which function.
    pub(super) mutation: String,
}

impl Mutant {
    /// How it is called everywhere: file, line, column and what is replaced.
    pub(super) fn name(&self) -> String {
        let (line, column) = self.span[0];
        format!("{}:{line}:{column}: {}", self.file, self.mutation)
    }

    /// Reads one entry of the list; none for code that does not take part.
    fn read(entry: &Value) -> Result<Option<Self>> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let place = |value: &Value| -> Option<(usize, usize)> {
            let number = |name: &str| usize::try_from(value[name].as_u64()?).ok();
            Some((number("line")?, number("column")?))
        };
        let whole = || {
            let file = text(&entry["file"])?;
            let span = [place(&entry["span"]["start"])?, place(&entry["span"]["end"])?];
            Some((file, span, text(&entry["replacement"])?, text(&entry["name"])?))
        };
        let (file, span, replacement, name) =
            whole().with_context(|| format!("cargo-mutants lists something unknown: {entry}"))?;
        let of = CRATES.iter().find(|one| file.starts_with(one.files));
        let Some(of) = of.filter(|_| !NOT_BUILT.contains(&file.as_str())) else { return Ok(None) };
        let place = format!("{file}:{}:{}: ", span[0].0, span[0].1);
        let mutation = name.strip_prefix(&place).unwrap_or(&name).to_owned();
        Ok(Some(Self { of, file, span, replacement, mutation }))
    }
}

/// Every mutant of every crate that takes part, in the order of files and lines.
pub(super) fn all() -> Result<Vec<Mutant>> {
    let program = installed()?;
    let mut cmd =
        Cmd::new(&program).args(["mutants", "--list", "--json", "--no-config", "--workspace", "--dir"]);
    cmd = cmd.arg(root());
    for one in CRATES {
        cmd = cmd.arg("--file").arg(format!("{}**", one.files));
    }
    let text = cmd.output()?;
    let entries: Vec<Value> = serde_json::from_str(&text).context("the list of cargo-mutants is no JSON")?;
    let mut mutants = Vec::new();
    for entry in &entries {
        mutants.extend(Mutant::read(entry)?);
    }
    ensure!(!mutants.is_empty(), "cargo-mutants found nothing to change");
    mutants.sort_by_key(order);
    Ok(mutants)
}

/// Crates in their order, so that what was built for one mutant serves the next.
fn order(mutant: &Mutant) -> (usize, String, [(usize, usize); 2], String) {
    let position = CRATES.iter().position(|one| one == mutant.of).unwrap_or(CRATES.len());
    (position, mutant.file.clone(), mutant.span, mutant.replacement.clone())
}

/// The program that lists mutants, installed into the target folder if it is not there yet.
fn installed() -> Result<String> {
    let folder = target_dir().join("tools");
    let program = folder.join("bin/cargo-mutants");
    if !program.is_file() {
        say!("mutants: cargo-mutants is not in {}: cargo installs it there now", folder.display());
        let cmd = Cmd::cargo("install cargo-mutants --locked --version").arg(CARGO_MUTANTS).arg("--root");
        cmd.arg(&folder).run().context("without it there is no list of mutants; a network is needed once")?;
    }
    Ok(program.to_string_lossy().into_owned())
}

/// Draws so many of them: the same seed draws the same from the same list. They stay in their order.
pub(super) fn draw(mut mutants: Vec<Mutant>, sample: usize, seed: u64) -> Vec<Mutant> {
    let mut state = seed;
    let count = sample.min(mutants.len());
    for index in 0..count {
        let other = index + usize::try_from(next(&mut state) % (mutants.len() - index) as u64).unwrap_or(0);
        mutants.swap(index, other);
    }
    mutants.truncate(count);
    mutants.sort_by_key(order);
    mutants
}

/// `SplitMix64`: all that a draw needs.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A mutant of the wire crate in this line.
    pub(in super::super) fn mutant(line: usize) -> Mutant {
        Mutant {
            of: &CRATES[0],
            file: "crates/wire/src/num.rs".into(),
            span: [(line, 5), (line, 6)],
            replacement: "-".into(),
            mutation: "replace + with - in Psn::next".into(),
        }
    }

    #[test]
    fn an_entry_of_the_list_is_read() {
        let entry = serde_json::json!({
            "file": "crates/wire/src/num.rs",
            "name": "crates/wire/src/num.rs:7:5: replace + with - in Psn::next",
            "replacement": "-",
            "span": {"start": {"line": 7, "column": 5}, "end": {"line": 7, "column": 6}},
        });
        assert_eq!(Mutant::read(&entry).unwrap(), Some(mutant(7)));
        assert_eq!(mutant(7).name(), "crates/wire/src/num.rs:7:5: replace + with - in Psn::next");
    }

    #[test]
    fn code_behind_a_feature_takes_no_part() {
        let entry = serde_json::json!({
            "file": "crates/transport/src/planted.rs",
            "name": "crates/transport/src/planted.rs:1:1: replace plant with ()",
            "replacement": "()",
            "span": {"start": {"line": 1, "column": 1}, "end": {"line": 1, "column": 2}},
        });
        assert_eq!(Mutant::read(&entry).unwrap(), None);
    }

    #[test]
    fn a_seed_is_a_draw() {
        let all = || (1..=200).map(mutant).collect::<Vec<_>>();
        let first = draw(all(), 20, 1);
        assert_eq!(first, draw(all(), 20, 1));
        assert_ne!(first, draw(all(), 20, 2));
        assert_eq!(first.len(), 20);
        assert!(first.is_sorted_by_key(|mutant| mutant.span[0].0), "they stay in their order");
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "none is drawn twice");
        assert_eq!(draw(all(), 1000, 1), all());
    }
}
