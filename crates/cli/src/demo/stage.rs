//! What the audience sees: lines as things happen, or JSON at the end.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use ferroce::{Completion, CompletionQueue, Context, Status, WaitError};
use serde_json::{Value, json};

use crate::output::{Style, figure};

/// How long a reader gets for a line, on a terminal.
const PACE: Duration = Duration::from_millis(45);

/// Where it is shown.
pub(crate) struct Stage {
    json: bool,
    events: Vec<Value>,
    /// Nothing ever completes here: waiting for it is a pause.
    pause: Option<CompletionQueue>,
    sections: u32,
}

impl Stage {
    pub(crate) fn new(json: bool, context: &Context) -> anyhow::Result<Self> {
        let paced = !json && io::stdout().is_terminal();
        let pause = if paced { Some(context.completion_queue(1)?) } else { None };
        Ok(Self { json, events: Vec::new(), pause, sections: 0 })
    }

    fn line(&self, text: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()?;
        drop(out);
        if let Some(queue) = &self.pause {
            wait(queue, PACE);
        }
        Ok(())
    }

    /// The title of all.
    pub(crate) fn title(&mut self, text: &str) -> io::Result<()> {
        self.events.push(json!({ "kind": "title", "text": text }));
        self.line(&Style::Title.of(text).to_string())
    }

    /// A new section.
    pub(crate) fn section(&mut self, title: &str) -> io::Result<()> {
        self.sections += 1;
        self.events.push(json!({ "kind": "section", "title": title }));
        self.line("")?;
        let title = format!("{}  {title}", self.sections);
        self.line(&Style::Title.of(title).to_string())
    }

    /// What comes next.
    pub(crate) fn step(&mut self, name: &str, about: &str) -> io::Result<()> {
        self.events.push(json!({ "kind": "step", "name": name, "about": about }));
        self.line(&format!("   {} {}", Style::Request.of(format!("{name:16}")), Style::Faint.of(about)))
    }

    /// Work is posted: a work queue element.
    pub(crate) fn posted(&mut self, side: &str, id: u64, what: &str) -> io::Result<()> {
        self.events.push(json!({ "kind": "post", "side": side, "id": id, "what": what }));
        self.line(&format!("     {side}  WQE {id:>3}  {what}"))
    }

    /// Work is done: a completion queue element.
    pub(crate) fn completed(
        &mut self,
        side: &str,
        done: &Completion,
        what: &str,
        took: Option<Duration>,
    ) -> io::Result<()> {
        let (status, detail) = done.status.text().split_once(": ").unwrap_or((done.status.text(), ""));
        let nanos = took.map(|took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.events.push(json!({
            "kind": "completion", "side": side, "id": done.id, "status": status, "code": done.status.code(),
            "what": what, "bytes": done.byte_len, "nanoseconds": nanos,
        }));
        let good = done.status == Status::Success;
        let style = if good { Style::Good } else { Style::Bad };
        let what = if good || !what.is_empty() { what } else { detail };
        let took = took.map_or_else(String::new, |took| {
            format!("  {}", Style::Faint.of(format!("{} us", figure(took.as_secs_f64() * 1e6))))
        });
        let what = if what.is_empty() { String::new() } else { format!("  {what}") };
        self.line(&format!("     {side}  CQE {:>3}  {}{what}{took}", done.id, style.of(status)))
    }

    /// What there is to say.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        self.events.push(json!({ "kind": "note", "text": text }));
        self.line(&format!("   {text}"))
    }

    /// The last word.
    pub(crate) fn end(&mut self, text: &str) -> io::Result<()> {
        self.line("")?;
        self.line(text)
    }

    /// A file that stays.
    pub(crate) fn saved(&mut self, text: &str, file: &Path) -> io::Result<()> {
        self.events.push(json!({ "kind": "trace", "file": file.display().to_string() }));
        self.line("")?;
        self.line(text)
    }

    /// Something that was shown to be so.
    pub(crate) fn shown(&mut self, text: &str, facts: Value) -> io::Result<()> {
        self.events.push(json!({ "kind": "shown", "text": text, "facts": facts }));
        self.line(&format!("     {}", Style::Good.of(text)))
    }

    /// A row of the table of speeds, or what stands above it.
    pub(crate) fn row(&mut self, text: &str, facts: Option<Value>) -> io::Result<()> {
        if let Some(facts) = facts {
            self.events.push(json!({ "kind": "speed", "facts": facts }));
            return self.line(&format!("   {text}"));
        }
        self.line(&format!("   {}", Style::Faint.of(text)))
    }

    /// Lets a moment pass, so that something can happen.
    pub(crate) fn moment(queue: &CompletionQueue) {
        wait(queue, Duration::from_millis(1));
    }

    /// The end.
    pub(crate) fn finish(self) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let version = env!("CARGO_PKG_VERSION");
        writeln!(out, "{:#}", json!({ "ferroce": version, "events": self.events }))?;
        out.flush()
    }
}

/// Waits on a queue on which nothing happens.
fn wait(queue: &CompletionQueue, time: Duration) {
    let nothing = queue.wait(time);
    debug_assert!(matches!(nothing, Err(WaitError::TimedOut(_))), "{nothing:?}");
}
