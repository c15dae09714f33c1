//! What is told: all is well, something breaks, it is found, it is mended, and the finding closes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use ferroce_device::{now, park};
use ferroce_meshd::proto::v1::{Finding, FindingsReply};
use serde_json::{Value, json};

use super::super::{LOOK, say};
use crate::interrupt;

/// Where the story happens.
pub(super) trait Stage {
    /// The network, in words.
    fn scene(&self) -> String;

    /// Breaks something, and says what.
    fn fails(&mut self) -> anyhow::Result<String>;

    /// Mends it, and says so.
    fn is_mended(&mut self) -> anyhow::Result<String>;

    /// What the name of the suspect has in it.
    fn culprit(&self) -> String;

    /// What the analyzer says.
    fn findings(&self) -> FindingsReply;
}

/// A story that is told by the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Story {
    pub(super) break_after: Duration,
    pub(super) mend_after: Duration,
    pub(super) once: bool,
    pub(super) json: bool,
}

/// Each step of a story that ends takes no longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Agents are on their way.
    Beginning,
    /// All agents probe.
    Well,
    Broken,
    Found,
    Mended,
    Closed,
}

impl Story {
    pub(super) fn tell(&self, mut stage: impl Stage, page: SocketAddr) -> anyhow::Result<()> {
        let patience = interrupt::be_patient();
        let began = now();
        let event = |name: &str, text: &str, more: Value| {
            let at = (now() - began).as_secs_f64();
            if !self.json {
                return say(&format!("{at:6.1} s  {text}"));
            }
            let mut line = json!({ "at_s": at, "event": name, "text": text });
            if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
                line.extend(more);
            }
            say(&line.to_string())
        };
        event("begun", &stage.scene(), Value::Null)?;
        event("page", &format!("the page: http://{page}/"), json!({ "url": format!("http://{page}/") }))?;
        let (mut act, mut since) = (Act::Beginning, began);
        let (mut open, mut found) = (BTreeSet::new(), None);
        while !interrupt::is_asked() {
            let reply = stage.findings();
            for finding in reply.open.iter().filter(|finding| open.insert(finding.id)) {
                let is_it =
                    act == Act::Broken && finding.suspects.iter().any(|name| name.contains(&stage.culprit()));
                let after = if is_it {
                    format!(", {:.1} s after it broke", (now() - since).as_secs_f64())
                } else {
                    String::new()
                };
                event("finding", &format!("{}{after}", told(finding)), as_json(finding))?;
                if is_it {
                    found = Some(finding.id);
                    (act, since) = (Act::Found, now());
                }
            }
            let is_gone = |id: &u64| !reply.open.iter().any(|finding| finding.id == *id);
            for id in open.iter().filter(|id| is_gone(id)) {
                event("closed", &format!("finding {id} is closed"), json!({ "finding": id }))?;
            }
            open.retain(|id| !is_gone(id));
            let next = match act {
                Act::Beginning if reply.agents == 8 => {
                    let what = format!(
                        "8 agents probe each other; something breaks at {} s",
                        self.break_after.as_secs()
                    );
                    event("well", &what, Value::Null)?;
                    Some(Act::Well)
                }
                Act::Well if now() >= began + self.break_after => {
                    let what = stage.fails()?;
                    event("broken", &what, Value::Null)?;
                    Some(Act::Broken)
                }
                Act::Found if now() >= since + self.mend_after => {
                    let what = stage.is_mended()?;
                    event("mended", &what, Value::Null)?;
                    Some(Act::Mended)
                }
                Act::Mended if found.is_some_and(|id| is_gone(&id)) => {
                    if !self.once {
                        event("over", "that is the story; the page stays until Ctrl-C", Value::Null)?;
                    }
                    Some(Act::Closed)
                }
                Act::Closed if self.once => return Ok(()),
                _ => None,
            };
            if let Some(next) = next {
                (act, since) = (next, now());
            }
            let limit = since + PATIENCE.max(self.break_after) + self.mend_after;
            ensure!(!self.once || now() < limit, "the story has not gone on for long after: {act:?}");
            park(Some(LOOK));
        }
        drop(patience);
        Ok(())
    }
}

fn told(finding: &Finding) -> String {
    let Finding { id, trouble, suspects, crossings, losses, expected, .. } = finding;
    let what = if trouble == "loss" { "lost" } else { "were slow" };
    format!(
        "finding {id}: {}, {trouble}: of {crossings:.0} packets {losses:.0} {what}, {expected:.1} would have without it",
        suspects.join(" or ")
    )
}

fn as_json(finding: &Finding) -> Value {
    let Finding { id, trouble, suspects, severity, crossings, losses, expected, gain, .. } = finding;
    json!({
        "finding": id, "trouble": trouble, "suspects": suspects, "severity": severity, "crossings": crossings,
        "losses": losses, "expected": expected, "gain": gain,
    })
}
