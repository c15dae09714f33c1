//! Findings, as text and JSON.

use std::fmt;

use ferroce_wire::Qpn;
use serde_json::{Value, json};

use crate::show::Nanos;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Work failed, or a completion was lost.
    Error,
    /// Something looks wrong.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// An event that a finding rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// When it was.
    pub time: u64,
    /// What it was.
    pub text: String,
}

/// Something that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub severity: Severity,
    /// When it was, if it has a time.
    pub time: Option<u64>,
    /// The record, by its place.
    pub record: usize,
    /// The queue pair, if it is about one.
    pub qpn: Option<Qpn>,
    /// The work, if it is about one.
    pub work: Option<u32>,
    /// What it is.
    pub text: String,
    /// Why, from what is nearest back to where it came from.
    pub because: Vec<String>,
    /// The events that say so, as far as they are shown.
    pub evidence: Vec<Evidence>,
}

/// All that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub(super) records: Vec<String>,
    pub(super) findings: Vec<Finding>,
}

impl Explanation {
    /// What was found out: errors first, the first one before all others.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether work failed, or a completion was lost.
    #[must_use]
    pub fn has_error(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// All of it as JSON. Times are nanoseconds.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let finding = |finding: &Finding| {
            let evidence = finding.evidence.iter();
            json!({
                "severity": finding.severity.name(),
                "time_ns": finding.time,
                "record": finding.record,
                "qpn": finding.qpn.map(Qpn::get),
                "work": finding.work,
                "text": finding.text,
                "because": finding.because,
                "evidence": evidence
                    .map(|evidence| json!({ "time_ns": evidence.time, "text": evidence.text }))
                    .collect::<Vec<Value>>(),
            })
        };
        json!({
            "records": self.records,
            "has_error": self.has_error(),
            "findings": self.findings.iter().map(finding).collect::<Vec<Value>>(),
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return writeln!(f, "All work ended well, nothing waits, and nothing was sent again.");
        }
        for finding in &self.findings {
            writeln!(f, "{}: {}", finding.severity.name(), finding.text)?;
            finding.because.iter().try_for_each(|cause| writeln!(f, "  because: {cause}"))?;
            for evidence in &finding.evidence {
                writeln!(f, "  {} {}", Nanos(evidence.time), evidence.text)?;
            }
        }
        Ok(())
    }
}
