//! Two processes of one program, as benchmarks need them: the first starts the other, and they speak.
//!
//! The other process ends with the first, however that ends: the kernel closes the pipe of its orders, and it
//! notices by [`Parent::wait`], [`Parent::watch`] or [`Parent::follow`].

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{self, Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use thiserror::Error;

/// Why two processes did not come to an end together.
#[derive(Debug, Error)]
pub enum PeerError {
    /// A process could not be started, or a pipe broke.
    #[error("the other process cannot be reached: {0}")]
    Pipe(#[from] io::Error),
    /// A line was expected, and the pipe ended.
    #[error("the other process ended too early")]
    EndedEarly,
    /// It ended, but not well.
    #[error("the other process failed: {0}")]
    Failed(ExitStatus),
}

/// The other process, as the first one sees it; dropping it kills it.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    /// None once it was told to end.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts this program again, with these arguments.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start<T: AsRef<OsStr>>(args: impl IntoIterator<Item = T>) -> Result<Self, PeerError> {
        let mut command = Command::new(env::current_exe()?);
        command.args(args);
        Self::start_by(command)
    }

    /// The same by a command that starts this program.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start_by(mut command: Command) -> Result<Self, PeerError> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (to @ Some(_), Some(from)) => Ok(Self { child, to, from: BufReader::new(from) }),
            _ => unreachable!("both pipes were asked for"),
        }
    }

    /// Tells it a line.
    ///
    /// # Errors
    /// It has ended.
    pub fn say(&mut self, line: impl Display) -> Result<(), PeerError> {
        let to = self.to.as_mut().ok_or(PeerError::EndedEarly)?;
        Ok(to.write_all(format!("{line}\n").as_bytes())?)
    }

    /// The next line that it says, without white space around it.
    ///
    /// # Errors
    /// It has ended.
    pub fn hear(&mut self) -> Result<String, PeerError> {
        heard(&mut self.from)
    }

    /// Sends bytes, and waits until it has answered with as many as there is room for.
    ///
    /// # Errors
    /// It has ended.
    pub fn exchange(&mut self, order: &[u8], answer: &mut [u8]) -> Result<(), PeerError> {
        self.to.as_mut().ok_or(PeerError::EndedEarly)?.write_all(order)?;
        Ok(self.from.read_exact(answer)?)
    }

    /// Tells it to end, waits until it has, and gives what it said last.
    ///
    /// # Errors
    /// It ended with a failure.
    pub fn stop(mut self) -> Result<String, PeerError> {
        drop(self.to.take());
        let mut said = String::new();
        self.from.read_to_string(&mut said)?;
        let status = self.child.wait()?;
        if status.success() { Ok(said) } else { Err(PeerError::Failed(status)) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // After `stop`, or if it ended by itself, there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first process, as the other one sees it.
#[derive(Clone, Copy, Debug)]
pub struct Parent;

impl Parent {
    /// Tells it a line.
    ///
    /// # Errors
    /// It has ended.
    pub fn say(self, line: impl Display) -> Result<(), PeerError> {
        let mut to = io::stdout().lock();
        writeln!(to, "{line}")?;
        Ok(to.flush()?)
    }

    /// The next line that it says, without white space around it.
    ///
    /// # Errors
    /// It has ended.
    pub fn hear(self) -> Result<String, PeerError> {
        heard(&mut io::stdin().lock())
    }

    /// Waits until it tells this process to end, or ends itself.
    pub fn wait(self) {
        // A pipe that breaks is an end, too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    }

    /// A flag that is raised when this process has to end.
    #[must_use]
    pub fn watch(self) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&stop);
        thread::spawn(move || {
            self.wait();
            raised.store(true, Ordering::Relaxed);
        });
        stop
    }

    /// Ends this process when it has to end, whatever its other threads do then.
    ///
    /// Nothing is to be heard from then on.
    pub fn follow(self) {
        thread::spawn(move || {
            self.wait();
            process::exit(0);
        });
    }
}

fn heard(from: &mut impl BufRead) -> Result<String, PeerError> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(PeerError::EndedEarly);
    }
    Ok(line.trim().to_owned())
}
