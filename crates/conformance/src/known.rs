//! What is known of drivers: where they do otherwise than they must, and which cases cannot be tried on them.

mod rxe;

use ferroce_verbs::Capability;

use crate::{Missing, Outcome};

pub use rxe::{BOUNDS, INVALIDATION, OVERRUN, OWNER, RXE, STATUS};

/// A driver that is known.
#[derive(Debug)]
pub struct Driver {
    /// Its name, as [`CardInfo::driver`](ferroce_verbs::CardInfo::driver) has it.
    pub name: &'static str,
    /// With what it was tried.
    pub tried: &'static str,
    /// Cases that it does not pass, and why.
    pub differs: &'static [(&'static str, &'static Difference)],
    /// What it does not have that cases ask for, why, and those cases.
    pub lacks: &'static [Lack],
}

/// Something that a driver does otherwise than it must.
#[derive(Debug)]
pub struct Difference {
    /// A sentence on it, without a capital letter and a full stop.
    pub why: &'static str,
    /// A case that fails of this, or waits in vain because of it, says one of these; what says something else fails of something
    /// else.
    says: &'static [&'static str],
}

/// Something that a driver does not have.
#[derive(Debug)]
pub struct Lack {
    /// What it is.
    pub what: Missing,
    /// A sentence on it, without a capital letter and a full stop.
    pub why: &'static str,
    /// All cases that ask for it.
    pub cases: &'static [&'static str],
}

/// All drivers that are known.
pub static DRIVERS: &[&Driver] = &[&RXE];

impl Driver {
    /// The driver of this name, if it is known.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        DRIVERS.iter().find(|driver| driver.name == name).copied()
    }

    /// Why a case came to this on the driver, if that is known. Nothing is to be known of a case that passed.
    #[must_use]
    pub fn explains(&self, case: &str, outcome: &Outcome) -> Option<&'static str> {
        match outcome {
            Outcome::Missing(missing) => {
                let lack = self.lacks.iter().find(|lack| lack.what == *missing)?;
                lack.cases.contains(&case).then_some(lack.why)
            }
            Outcome::Failed { .. } | Outcome::TimedOut { .. } => {
                let (_, difference) = self.differs.iter().find(|(name, _)| *name == case)?;
                let said = outcome.to_string();
                difference.says.iter().any(|words| said.contains(words)).then_some(difference.why)
            }
            Outcome::Passed | Outcome::Crashed { .. } => None,
        }
    }

    /// Whether it is known of a case that it does not pass on this driver.
    #[must_use]
    pub fn spoils(&self, case: &str) -> bool {
        self.differs.iter().any(|(name, _)| *name == case)
            || self.lacks.iter().any(|lack| lack.cases.contains(&case))
    }
}

const fn lack(capability: Capability, why: &'static str, cases: &'static [&'static str]) -> Lack {
    Lack { what: Missing::Capability(capability), why, cases }
}
