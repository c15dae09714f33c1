//! The table at the end of a run: what ran, how it went, what it took.

use std::fmt;

use crate::clock::Took;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
}

/// How one part went.
pub(crate) enum Outcome {
    /// It passed; the note may say more ("312 tests passed").
    Passed { took: Took, note: String },
    /// It failed, and why.
    Failed { took: Took, why: String },
    /// An earlier failure came first.
    NotRun,
    /// A tool is missing, so nothing was shown; what is missing, and how to get it.
    Missing { what: String },
}

/// The whole table.
#[derive(Default)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    pub(crate) fn push(&mut self, name: impl Into<String>, outcome: Outcome) {
        self.0.push(Row { name: name.into(), outcome });
    }

    /// The names of the parts that failed, in order.
    pub(crate) fn failed(&self) -> Vec<&str> {
        self.failures().into_iter().map(|(name, _)| name).collect()
    }

    /// The names of the parts that failed, and why, in order.
    pub(crate) fn failures(&self) -> Vec<(&str, &str)> {
        let failed = self.0.iter().filter_map(|row| match &row.outcome {
            Outcome::Failed { why, .. } => Some((row.name.as_str(), why.as_str())),
            Outcome::Passed { .. } | Outcome::NotRun | Outcome::Missing { .. } => None,
        });
        failed.collect()
    }

    /// The names of the parts that did not run because a tool is missing, in order.
    pub(crate) fn missing(&self) -> Vec<&str> {
        let missing = self.0.iter().filter(|row| matches!(row.outcome, Outcome::Missing { .. }));
        missing.map(|row| row.name.as_str()).collect()
    }

    /// How many parts passed.
    pub(crate) fn passed(&self) -> usize {
        self.0.iter().filter(|row| matches!(row.outcome, Outcome::Passed { .. })).count()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|row| row.name.len()).max().unwrap_or(0);
        for Row { name, outcome } in &self.0 {
            match outcome {
                Outcome::Passed { took, note } if note.is_empty() => {
                    writeln!(f, "  {name:width$}  ok       {took:>12}")
                }
                Outcome::Passed { took, note } => writeln!(f, "  {name:width$}  ok       {took:>12}  {note}"),
                Outcome::Failed { took, .. } => writeln!(f, "  {name:width$}  FAILED   {took:>12}"),
                Outcome::NotRun => writeln!(f, "  {name:width$}  not run"),
                Outcome::Missing { what } => writeln!(f, "  {name:width$}  NOT RUN  {:>12}  {what}", "-"),
            }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_table_lines_up_and_knows_its_failures() {
        let took = Took(Duration::from_secs(2));
        let mut table = Table::default();
        table.push("fmt", Outcome::Passed { took, note: String::new() });
        table.push("clippy", Outcome::Failed { took, why: "a lint".into() });
        table.push("tests", Outcome::NotRun);
        assert_eq!(table.failed(), ["clippy"]);
        assert_eq!(table.failures(), [("clippy", "a lint")]);
        let expected =
            ["  fmt     ok              2.0 s\n", "  clippy  FAILED          2.0 s\n", "  tests   not run\n"];
        assert_eq!(table.to_string(), expected.concat());
    }
}
