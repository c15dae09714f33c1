//! What became of all of them.

use std::fmt;

use serde_json::{Value, json};

use super::judge::Verdict;
use super::list::Mutant;

/// All mutants with their verdicts.
#[derive(Default)]
pub(super) struct Tally(Vec<(Mutant, Verdict)>);

impl Tally {
    pub(super) fn push(&mut self, mutant: Mutant, verdict: Verdict) {
        self.0.push((mutant, verdict));
    }

    /// How many of those that could be noticed were: what does not compile or changes nothing cannot be. Of nothing,
    /// everything was noticed.
    #[expect(clippy::cast_precision_loss, reason = "some thousand mutants at most")]
    pub(super) fn percentage(&self) -> f64 {
        let noticed = self.count(Column::is_noticed);
        let viable = noticed + self.count(|column| column == Column::Survived);
        if viable == 0 { 100.0 } else { noticed as f64 * 100.0 / viable as f64 }
    }

    /// The same as the table, for programs.
    pub(super) fn json(&self) -> Value {
        let mutants = self.0.iter().map(|(mutant, verdict)| {
            json!({
                "name": mutant.name(),
                "crate": mutant.of.name,
                "file": mutant.file,
                "line": mutant.span[0].0,
                "mutation": mutant.mutation,
                "verdict": verdict.name(),
            })
        });
        json!({ "percentage": self.percentage(), "mutants": mutants.collect::<Vec<_>>() })
    }

    fn count(&self, is_meant: impl Fn(Column) -> bool) -> usize {
        self.0.iter().filter(|(_, verdict)| is_meant(Column::of(verdict))).count()
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, name: &str, is_meant: impl Fn(&Mutant) -> bool) -> fmt::Result {
        write!(f, "  {name:12}")?;
        for column in Column::ALL {
            let count = self
                .0
                .iter()
                .filter(|(mutant, verdict)| is_meant(mutant) && Column::of(verdict) == column)
                .count();
            write!(f, "{count:>11}")?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (mutant, verdict) in &self.0 {
            match verdict {
                Verdict::Survived => {
                    writeln!(f, "SURVIVED: {}", mutant.name())?;
                    writeln!(f, "  replay: cargo xtask mutants --named '{}'", mutant.name())?;
                }
                Verdict::Equivalent { reason } => {
                    writeln!(f, "changes nothing: {}\n  because {reason}", mutant.name())?;
                }
                _ => {}
            }
        }
        write!(f, "\n  {:12}", "")?;
        for column in Column::ALL {
            write!(f, "{:>11}", column.name())?;
        }
        writeln!(f)?;
        for one in super::list::CRATES {
            if self.0.iter().any(|(mutant, _)| mutant.of == one) {
                self.row(f, one.name, |mutant| mutant.of == one)?;
            }
        }
        self.row(f, "all", |_| true)?;
        let survived = self.count(|column| column == Column::Survived);
        let noticed = self.count(Column::is_noticed);
        write!(f, "  {:.1} % noticed: {noticed} of {}", self.percentage(), noticed + survived)
    }
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Tests,
    Simulator,
    TimedOut,
    Unviable,
    Equivalent,
    Survived,
}

impl Column {
    const ALL: [Self; 6] =
        [Self::Tests, Self::Simulator, Self::TimedOut, Self::Unviable, Self::Equivalent, Self::Survived];

    const fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::CaughtByTests => Self::Tests,
            Verdict::CaughtBySimulator => Self::Simulator,
            Verdict::TimedOut => Self::TimedOut,
            Verdict::Unviable => Self::Unviable,
            Verdict::Equivalent { .. } => Self::Equivalent,
            Verdict::Survived => Self::Survived,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Tests => "tests",
            Self::Simulator => "simulator",
            Self::TimedOut => "timed out",
            Self::Unviable => "unviable",
            Self::Equivalent => "unchanged",
            Self::Survived => "SURVIVED",
        }
    }

    const fn is_noticed(self) -> bool {
        matches!(self, Self::Tests | Self::Simulator | Self::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::mutant;
    use super::*;

    #[test]
    fn what_could_not_be_noticed_counts_neither_way() {
        let mut tally = Tally::default();
        assert!(tally.percentage() >= 100.0);
        let reason = || Verdict::Equivalent { reason: "of a test".into() };
        let verdicts = [
            Verdict::CaughtByTests,
            Verdict::CaughtBySimulator,
            Verdict::TimedOut,
            Verdict::Unviable,
            reason(),
            Verdict::Survived,
        ];
        for (line, verdict) in verdicts.into_iter().enumerate() {
            tally.push(mutant(line + 1), verdict);
        }
        assert!((tally.percentage() - 75.0).abs() < 0.01);
        let text = tally.to_string();
        assert!(
            text.contains("SURVIVED: crates/wire/src/num.rs:6:5: replace + with - in Psn::next"),
            "{text}"
        );
        assert!(text.contains("replay: cargo xtask mutants --named 'crates/wire/src/num.rs:6:5:"), "{text}");
        assert!(text.contains("75.0 % noticed: 3 of 4"), "{text}");
        assert_eq!(tally.json()["mutants"].as_array().map(Vec::len), Some(6));
    }
}
