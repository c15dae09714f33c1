//! The processes of the server and of the clients: starting, killing, and hearing what they say.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use ferroce::time::{Notice, Time, now, until};

/// Which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Server,
    Client(u32),
}

/// A line that a process said; none when it will say nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) role: Role,
    pub(crate) line: Option<String>,
    pub(crate) at: Time,
}

/// All processes. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Children {
    all: Vec<(Role, Process)>,
    inbox: Arc<Notice<VecDeque<Heard>>>,
}

#[derive(Debug)]
struct Process(Child);

impl Children {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), inbox: Arc::new(Notice::new(VecDeque::new())) }
    }

    pub(crate) fn start(&mut self, role: Role, args: &[String]) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("this program does not know where it is")?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().with_context(|| format!("cannot start the {role:?}"))?;
        let output = process.stdout.take().context("a process has no output")?;
        self.all.push((role, Process(process)));
        let inbox = Arc::clone(&self.inbox);
        thread::spawn(move || {
            let hear = |line| inbox.change(|heard| heard.push_back(Heard { role, line, at: now() }));
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                hear(Some(line));
            }
            hear(None);
        });
        Ok(())
    }

    /// What a process says next; nothing when the time is over.
    pub(crate) fn hear(&self, deadline: Time) -> Option<Heard> {
        self.inbox.wait(Some(until(deadline)), VecDeque::pop_front)
    }

    pub(crate) fn tell(&mut self, role: Role, line: &str) -> anyhow::Result<()> {
        let input = self.child(role)?.stdin.as_mut().context("a process has no input")?;
        let told = writeln!(input, "{line}").and_then(|()| input.flush());
        told.with_context(|| format!("the {role:?} does not listen"))
    }

    /// Kills a process, as `kill -9` does; when.
    pub(crate) fn kill(&mut self, role: Role) -> anyhow::Result<Time> {
        let process = self.child(role)?;
        process.kill()?;
        let at = now();
        process.wait()?;
        Ok(at)
    }

    /// How a process has ended that says nothing more.
    pub(crate) fn end(&mut self, role: Role) -> anyhow::Result<ExitStatus> {
        Ok(self.child(role)?.wait()?)
    }

    fn child(&mut self, role: Role) -> anyhow::Result<&mut Child> {
        let found = self.all.iter_mut().find(|(name, _)| *name == role);
        found.map(|(_, process)| &mut process.0).with_context(|| format!("there is no {role:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is not hurt by this.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
