//! The other process: started for one measurement, spoken to by lines, gone at its end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::pingpong::{self, Exchange};
use crate::{Outcome, Settings, crowd, neighbour, raw, stream};

/// The other process, as the first one sees it.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts this program again in a role.
    pub(crate) fn start(role: &str, settings: &Settings) -> Outcome<Self> {
        Self::start_by(Command::new(std::env::current_exe()?), role, settings)
    }

    /// The same by a command that starts this program.
    pub(crate) fn start_by(mut command: Command, role: &str, settings: &Settings) -> Outcome<Self> {
        command.args(["--bench", "--peer", role, "--millis"]).arg(settings.duration.as_millis().to_string());
        if settings.pin {
            command.arg("--pin");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().ok_or("the other process has no output")?);
        Ok(Self { child, to, from })
    }

    pub(crate) fn say(&mut self, line: &str) -> Outcome<()> {
        let to = self.to.as_mut().ok_or("the other process was told to end")?;
        writeln!(to, "{line}")?;
        Ok(to.flush()?)
    }

    pub(crate) fn hear(&mut self) -> Outcome<String> {
        heard(&mut self.from)
    }

    /// Tells it to end, and gives what it said last.
    pub(crate) fn stop(mut self) -> Outcome<String> {
        drop(self.to.take());
        let mut said = String::new();
        self.from.read_to_string(&mut said)?;
        let status = self.child.wait()?;
        if status.success() { Ok(said) } else { Err(format!("the other process failed: {status}").into()) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // After `stop` there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first process, as the other one sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Master;

impl Master {
    pub(crate) fn say(self, line: &str) -> Outcome<()> {
        let mut to = io::stdout().lock();
        writeln!(to, "{line}")?;
        Ok(to.flush()?)
    }

    pub(crate) fn hear(self) -> Outcome<String> {
        heard(&mut io::stdin().lock())
    }

    /// Waits for the end.
    pub(crate) fn wait(self) {
        // Whatever ends the pipe ends us.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    }

    /// A flag that is raised at the end.
    pub(crate) fn watch(self) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&stop);
        std::thread::spawn(move || {
            self.wait();
            raised.store(true, Ordering::Relaxed);
        });
        stop
    }
}

/// Is the other process.
pub(crate) fn play(role: &str, master: Master, settings: &Settings) -> Outcome<()> {
    match role {
        raw::ECHO_BUSY => raw::echo(master, true),
        raw::ECHO_BLOCKING => raw::echo(master, false),
        raw::SINK => raw::sink(master),
        pingpong::SEND_BUSY => Exchange::BUSY.play(master),
        pingpong::SEND_BUSY_SILENT => Exchange::SILENT.play(master),
        pingpong::SEND_ASLEEP => Exchange::ASLEEP.play(master),
        pingpong::WRITE_IMM => Exchange::IMMEDIATE.play(master),
        pingpong::WRITE => pingpong::write_peer(master, false),
        pingpong::WRITE_POLL => pingpong::write_peer(master, true),
        stream::BUSY => stream::target(master, settings, true),
        stream::ASLEEP => stream::target(master, settings, false),
        stream::RECEIVER => stream::receiver(master),
        crowd::CROWD => crowd::play(master, settings),
        neighbour::NEIGHBOUR => neighbour::play(master),
        other => Err(format!("no role is called {other:?}").into()),
    }
}

fn heard(from: &mut impl BufRead) -> Outcome<String> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err("the other process ended too early".into());
    }
    Ok(line.trim().to_owned())
}
