//! Cases in processes of their own: one that hangs or crashes is a result like any other, and the rest goes on.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ferroce_verbs::Time;
use ferroce_verbs::time::{now, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Outcome;

/// How much longer than its limit a process may live: it should say itself what it waits for.
const GRACE: Duration = Duration::from_secs(5);

/// How often is looked whether all is to stop.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes of the end of what a process says that are kept: as many, or twice as many.
const TAIL: usize = 16 << 10;

/// Runs cases.
pub struct Runner<'a> {
    /// What starts the process of a case, which ends it with [`child::run`](crate::child::run).
    pub command: &'a (dyn Fn(&str) -> Command + Sync),
    /// How long a case may take.
    pub limit: Duration,
    /// How much longer its process may live.
    pub grace: Duration,
    /// How many run at a time.
    pub at_once: usize,
    /// Whether all is to stop. What has not ended then is ended, and not told.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// A case that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended<'n> {
    /// The case.
    pub name: &'n str,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
    /// The end of what its process said on standard error.
    pub said: String,
}

impl<'a> Runner<'a> {
    /// One case at a time, a minute for each.
    #[must_use]
    pub fn new(command: &'a (dyn Fn(&str) -> Command + Sync)) -> Self {
        Self { command, limit: Duration::from_secs(60), grace: GRACE, at_once: 1, stop: &|| false }
    }

    /// Runs cases by their names. Each is told when it begins and when it has ended; all that have ended come back, in the order of
    /// the names.
    ///
    /// # Errors
    /// No process can be started.
    pub fn run<'n>(
        &self,
        names: &[&'n str],
        begins: &(dyn Fn(&'n str) + Sync),
        ended: &(dyn Fn(&Ended<'n>) + Sync),
    ) -> io::Result<Vec<Ended<'n>>> {
        let waiting: Mutex<VecDeque<(usize, &'n str)>> =
            Mutex::new(names.iter().copied().enumerate().collect());
        let done = Mutex::new(Vec::with_capacity(names.len()));
        let work = || -> io::Result<()> {
            while !(self.stop)() {
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some((place, name)) = next else { break };
                begins(name);
                let one = self.one(name)?;
                if (self.stop)() {
                    break;
                }
                ended(&one);
                done.lock().unwrap_or_else(PoisonError::into_inner).push((place, one));
            }
            Ok(())
        };
        thread::scope(|scope| -> io::Result<()> {
            let threads: Vec<_> = (0..self.at_once.max(1)).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread that runs cases panicked")))?;
            }
            Ok(())
        })?;
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(place, _)| *place);
        Ok(done.into_iter().map(|(_, ended)| ended).collect())
    }

    fn one<'n>(&self, name: &'n str) -> io::Result<Ended<'n>> {
        let began = now();
        let mut command = (self.command)(name);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let in_time = process.wait(began + self.limit + self.grace, self.stop)?;
        if !in_time {
            process.child.kill()?;
        }
        let status = process.child.wait()?;
        let took = now().since(began);
        let outcome = match (process.told(), in_time) {
            (Some(outcome), _) => outcome,
            (None, false) => Outcome::TimedOut { waited_for: None },
            (None, true) => Outcome::Crashed { how: how(status) },
        };
        Ok(Ended { name, outcome, took, said: process.said() })
    }
}

/// A process, and what it says.
struct Process {
    child: Child,
    end: OwnedFd,
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    /// The last of what it said on standard output, which is where it tells the outcome.
    told: Vec<u8>,
    said: Vec<u8>,
}

impl Process {
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let pid = Pid::from_child(&child);
        let end = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(end) => end,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        Ok(Self { child, end, out, err, told: Vec::new(), said: Vec::new() })
    }

    /// Listens until it ends, which it has if this is true, or until the time is over, or all is to stop.
    fn wait(&mut self, end: Time, stop: &dyn Fn() -> bool) -> io::Result<bool> {
        loop {
            let has_ended = self.listen(until(end).min(LOOK))?;
            if has_ended {
                // What it said before that; a process of its own that lives on may hold the pipes open.
                while self.listen_to_pipes(Duration::ZERO)? {}
                return Ok(true);
            }
            if until(end).is_zero() || stop() {
                return Ok(false);
            }
        }
    }

    /// Takes in what it says, once; whether it has ended.
    fn listen(&mut self, limit: Duration) -> io::Result<bool> {
        let none = self.end.as_fd();
        let out = self.out.as_ref().map_or(none, |out| out.as_fd());
        let err = self.err.as_ref().map_or(none, |err| err.as_fd());
        let [out, err, end] = readable([out, err, none], limit)?;
        self.take(out && self.out.is_some(), err && self.err.is_some())?;
        Ok(end)
    }

    /// The same for what it says alone; whether there was something.
    fn listen_to_pipes(&mut self, limit: Duration) -> io::Result<bool> {
        let (has_out, has_err) = (self.out.is_some(), self.err.is_some());
        let first = self.out.as_ref().map(|out| out.as_fd()).or(self.err.as_ref().map(|err| err.as_fd()));
        let Some(first) = first else { return Ok(false) };
        let out = self.out.as_ref().map_or(first, |out| out.as_fd());
        let err = self.err.as_ref().map_or(first, |err| err.as_fd());
        let [out, err] = readable([out, err], limit)?;
        let (out, err) = (out && has_out, err && has_err);
        self.take(out, err)?;
        Ok(out || err)
    }

    /// Takes in some of what it says where there is something; a pipe that is at its end is closed.
    fn take(&mut self, out: bool, err: bool) -> io::Result<()> {
        let mut bytes = [0; 4096];
        if out && let Some(pipe) = &mut self.out {
            let read = pipe.read(&mut bytes)?;
            keep(&mut self.told, &bytes[..read]);
            if read == 0 {
                self.out = None;
            }
        }
        if err && let Some(pipe) = &mut self.err {
            let read = pipe.read(&mut bytes)?;
            keep(&mut self.said, &bytes[..read]);
            if read == 0 {
                self.err = None;
            }
        }
        Ok(())
    }

    /// What it told of its case: others may write to standard output, too.
    fn told(&self) -> Option<Outcome> {
        let text = String::from_utf8_lossy(&self.told);
        let mut lines = text.lines().rev().filter_map(|line| serde_json::from_str(line.trim()).ok());
        lines.find_map(|line| Outcome::from_json(&line))
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }
}

fn readable<const N: usize>(of: [BorrowedFd<'_>; N], limit: Duration) -> io::Result<[bool; N]> {
    let mut polled = of.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
    let limit = Timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    match poll(&mut polled, Some(&limit)) {
        Ok(_) => Ok(polled.map(|fd| !fd.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; N]),
        Err(error) => Err(error.into()),
    }
}

/// Adds to what is kept of a text: its end.
fn keep(kept: &mut Vec<u8>, more: &[u8]) {
    kept.extend_from_slice(more);
    if kept.len() > 2 * TAIL {
        kept.drain(..kept.len() - TAIL);
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("its process was ended by signal {signal} ({})", name_of(signal)),
        (None, Some(code)) => {
            format!("its process ended with code {code} and did not say what became of the case")
        }
        (None, None) => "its process ended in an unknown way".to_owned(),
    }
}

const fn name_of(signal: i32) -> &'static str {
    match signal {
        4 => "illegal instruction",
        6 => "abort",
        7 => "bus error",
        9 => "kill",
        11 => "segmentation fault",
        15 => "termination",
        _ => "see `kill -l`",
    }
}
