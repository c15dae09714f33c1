//! Mutants that change nothing, each with its reason: `xtask/mutants.toml`.

use std::fs;

use anyhow::{Context, Result, anyhow, bail, ensure};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::list::Mutant;
use crate::shell::root;

/// The list.
pub(super) struct Known(Vec<Entry>);

/// One mutant, or all that are the same mistake in the same line of the same function.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    file: String,
    /// What is replaced by what, and in which function.
    mutation: String,
    /// The line of code, where a function has several places for the same mistake.
    line: Option<String>,
    reason: String,
}

impl Known {
    pub(super) fn read() -> Result<Self> {
        let path = root().join("xtask/mutants.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let table =
            DeTable::parse(text).map_err(|error| anyhow!("xtask/mutants.toml: {}", error.message()))?;
        let entries = table.get_ref().get("unchanged").and_then(|entries| entries.get_ref().as_array());
        let read = |entry: &Spanned<DeValue<'_>>| {
            let field = |name: &str| match entry.get_ref() {
                DeValue::Table(table) => table.get(name).map(Spanned::get_ref),
                _ => None,
            };
            let text = |name: &str| match field(name) {
                Some(DeValue::String(text)) => Some(text.to_string()),
                _ => None,
            };
            let all = (text("file"), text("mutation"), text("reason"));
            let (Some(file), Some(mutation), Some(reason)) = all else {
                bail!(
                    "xtask/mutants.toml: an entry needs `file`, `mutation` and `reason`, each a text: {all:?}"
                );
            };
            Ok(Entry { file, mutation, line: text("line"), reason })
        };
        Ok(Self(entries.into_iter().flatten().map(read).collect::<Result<_>>()?))
    }

    /// Why this mutant changes nothing, if that is known.
    pub(super) fn reason(&self, mutant: &Mutant) -> Option<&str> {
        self.0.iter().find(|entry| entry.names(mutant)).map(|entry| entry.reason.as_str())
    }

    /// An entry that names no mutant is out of date.
    pub(super) fn check_against(&self, mutants: &[Mutant]) -> Result<()> {
        for entry in &self.0 {
            let used = mutants.iter().any(|mutant| entry.names(mutant));
            ensure!(
                used,
                "xtask/mutants.toml: no mutant is called `{}` in {}; the code has changed, so remove or renew it",
                entry.mutation,
                entry.file
            );
        }
        Ok(())
    }
}

impl Entry {
    fn names(&self, mutant: &Mutant) -> bool {
        let same = self.file == mutant.file && self.mutation == mutant.mutation;
        same && self.line.as_ref().is_none_or(|line| line_of(mutant).as_ref() == Some(line))
    }
}

/// The line of code that a mutant begins in.
fn line_of(mutant: &Mutant) -> Option<String> {
    let text = fs::read_to_string(root().join(&mutant.file)).ok()?;
    text.lines().nth(mutant.span[0].0 - 1).map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::mutant;
    use super::*;

    const LIST: &str = "
        [[unchanged]]
        file = 'crates/wire/src/num.rs'
        mutation = 'replace + with - in Psn::next'
        reason = 'a test'
    ";

    #[test]
    fn a_mutant_is_known_by_its_function_and_not_by_its_line() {
        let known = Known::parse(LIST).unwrap();
        assert_eq!(known.reason(&mutant(3)), Some("a test"));
        assert_eq!(known.reason(&mutant(300)), Some("a test"));
        let other = Mutant { mutation: "replace + with * in Psn::next".into(), ..mutant(3) };
        assert_eq!(known.reason(&other), None);
        let there = Known::parse(&format!("{LIST}\nline = 'no such line'")).unwrap();
        assert_eq!(there.reason(&mutant(3)), None);
    }

    #[test]
    fn an_entry_without_a_reason_or_without_a_mutant_is_refused() {
        assert!(Known::parse("[[unchanged]]\nfile = 'a'\nmutation = 'b'").is_err());
        assert!(Known::parse(LIST).unwrap().check_against(&[mutant(1)]).is_ok());
        let error = Known::parse(LIST).unwrap().check_against(&[]).unwrap_err();
        assert!(error.to_string().contains("replace + with - in Psn::next"));
    }
}
