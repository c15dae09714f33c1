//! What becomes of a case, as a value that one process tells another.

use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

use ferroce_verbs::{Capability, Context};
use serde_json::{Value, json};

use crate::{Case, Rig, UnderError, run_on, waiting};

/// What a case asks for that a device does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// The device says that it does not have it.
    Capability(Capability),
    /// Requests that the API never makes, such as one with a key that is none. The soft device takes them at a door of its own.
    RawRequests,
}

impl Missing {
    /// Its name in reports, such as `MaskedAtomics`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Capability(capability) => format!("{capability:?}"),
            Self::RawRequests => "RawRequests".to_owned(),
        }
    }

    /// What has this [`name`](Self::name).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let capabilities = Capability::ALL.iter().copied().map(Self::Capability);
        capabilities.chain([Self::RawRequests]).find(|one| one.name() == name)
    }

    /// Ends the case.
    pub(crate) fn raise(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability(capability) => capability.fmt(f),
            Self::RawRequests => f.pad("requests that the API never makes"),
        }
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// All is as it must be.
    Passed,
    /// It cannot be tried here.
    Missing(Missing),
    /// Something is not as it must be.
    Failed {
        /// What the case said.
        text: String,
        /// Where, as a file of the case's crate and a line.
        at: Option<String>,
    },
    /// Something never came.
    TimedOut {
        /// What it was, if that is known.
        waited_for: Option<String>,
    },
    /// Its process ended without a word.
    Crashed {
        /// How.
        how: String,
    },
}

impl Outcome {
    /// The word for it in reports.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Missing(_) => "not_possible",
            Self::Failed { .. } => "failed",
            Self::TimedOut { .. } => "timed_out",
            Self::Crashed { .. } => "crashed",
        }
    }

    /// Whether the device does what it must, as far as it can be tried.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        matches!(self, Self::Passed | Self::Missing(_))
    }

    /// As an object: `outcome` is the [`word`](Self::word), and what is known beside it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let word = self.word();
        match self {
            Self::Passed => json!({ "outcome": word }),
            Self::Missing(missing) => json!({ "outcome": word, "missing": missing.name() }),
            Self::Failed { text, at } => json!({ "outcome": word, "text": text, "at": at }),
            Self::TimedOut { waited_for } => json!({ "outcome": word, "waited_for": waited_for }),
            Self::Crashed { how } => json!({ "outcome": word, "how": how }),
        }
    }

    /// What [`to_json`](Self::to_json) has made; nothing of anything else.
    #[must_use]
    pub fn from_json(told: &Value) -> Option<Self> {
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        Some(match told["outcome"].as_str()? {
            "passed" => Self::Passed,
            "not_possible" => Self::Missing(Missing::named(told["missing"].as_str()?)?),
            "failed" => Self::Failed { text: text("text")?, at: text("at") },
            "timed_out" => Self::TimedOut { waited_for: text("waited_for") },
            "crashed" => Self::Crashed { how: text("how")? },
            _ => return None,
        })
    }

    /// The same with another text in place of each of its texts.
    #[must_use]
    pub fn with_texts(self, mut change: impl FnMut(&str) -> String) -> Self {
        match self {
            Self::Failed { text, at } => Self::Failed { text: change(&text), at: at.map(|at| change(&at)) },
            Self::TimedOut { waited_for } => {
                Self::TimedOut { waited_for: waited_for.map(|what| change(&what)) }
            }
            Self::Crashed { how } => Self::Crashed { how: change(&how) },
            Self::Passed | Self::Missing(_) => self,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Missing(missing) => write!(f, "the device has no {missing}"),
            Self::Failed { text, at: None } => f.write_str(text),
            Self::Failed { text, at: Some(at) } => write!(f, "{at}: {text}"),
            Self::TimedOut { waited_for: None } => f.write_str("what it waited for is not known"),
            Self::TimedOut { waited_for: Some(what) } => write!(f, "it waited for {what}"),
            Self::Crashed { how } => f.write_str(how),
        }
    }
}

/// What was said first by a thread of this process that panicked, and where.
static SAID: Mutex<Option<(String, String)>> = Mutex::new(None);

/// Runs a case, and says what became of it. This is for a process that does nothing else: it remembers the panics of all threads,
/// and shows none.
pub(crate) fn of(case: &Case, open: impl FnOnce() -> Result<Rig, UnderError>) -> Outcome {
    panic::set_hook(Box::new(|info| {
        let text = text_of(info.payload());
        let at = info.location().map(waiting::place).unwrap_or_default();
        SAID.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((text, at));
    }));
    let rig = match open() {
        Ok(rig) => rig,
        Err(error) => {
            return Outcome::Failed { text: ferroce_verbs::Chain::of(&error).to_string(), at: None };
        }
    };
    match catch_unwind(AssertUnwindSafe(|| run_on(&rig, case))) {
        Ok(()) => Outcome::Passed,
        Err(payload) => why(&rig.a.context, payload.as_ref()),
    }
}

fn why(context: &Context, payload: &(dyn std::any::Any + Send)) -> Outcome {
    if let Some(missing) = payload.downcast_ref::<Missing>() {
        return Outcome::Missing(*missing);
    }
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (text, at) = said.unwrap_or_else(|| (text_of(payload), String::new()));
    if let Some(missing) = refused(&text, context) {
        return Outcome::Missing(missing);
    }
    if let Some(wait) = waiting::in_vain() {
        return Outcome::TimedOut { waited_for: Some(format!("{wait}: {text}")) };
    }
    Outcome::Failed { text, at: (!at.is_empty()).then_some(at) }
}

/// What the device refused in the middle of a case, and does not have.
fn refused(text: &str, context: &Context) -> Option<Missing> {
    let says =
        |capability: Capability| text.contains(&format!("Unsupported {{ capability: {capability:?} }}"));
    let lacks = |capability: &&Capability| !context.can(**capability) && says(**capability);
    Capability::ALL.iter().find(lacks).copied().map(Missing::Capability)
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a thread panicked and said nothing").to_owned()
}
