//! The answers of this machine, and of one of which there is only a copy of its files.

use std::fs::OpenOptions;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ferroce_device::fabric::PORT;
use ferroce_device::switchboard::{Survey, SwitchError, survey};
use ferroce_device::wait_readable;
use ferroce_sys::interfaces::{self, Interface};

use super::facts::{Board, Known, Live, Passage, Trouble};
use crate::addresses;

/// This machine.
#[derive(Debug)]
pub(super) struct Machine;

/// How long a datagram may take on loopback: one that is not dropped is there at once.
const PATIENCE: Duration = Duration::from_secs(1);

impl Live for Machine {
    fn interfaces(&self) -> Known<Vec<Interface>> {
        interfaces::interfaces().map_err(|error| format!("the kernel does not list interfaces: {error}"))
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn open(&self, path: &Path) -> Known<()> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        opened.map(drop).map_err(|error| error.to_string())
    }

    fn run(&self, line: &[&str]) -> Known<String> {
        let [program, arguments @ ..] = line else { return Err("no program".to_owned()) };
        // Programs of the administrator are not on the path of all users.
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
        answer(program, command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("the program {program} is not installed"),
            _ => format!("{program}: {error}"),
        })
    }

    fn boards(&self) -> Known<Vec<Board>> {
        let all = survey(None).map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(board).collect())
    }

    fn datagram(&self) -> Passage {
        let untried = |error: io::Error| Passage::Untried(error.to_string());
        let receivers = addresses::own(0).map(|address| UdpSocket::bind(SocketAddr::new(address, PORT)));
        let mut why = None;
        for receiver in receivers {
            match receiver {
                Ok(receiver) => return pass(&receiver).unwrap_or_else(untried),
                Err(error) => why = Some(error),
            }
        }
        Passage::Untried(why.map_or_else(String::new, |error| error.to_string()))
    }
}

/// Runs a program to its end.
fn answer(program: &str, mut command: Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let wrong = String::from_utf8_lossy(&output.stderr);
    let line = wrong.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it failed");
    Err(io::Error::other(line.trim_start_matches(&format!("{program}: ")).to_owned()))
}

/// Sends a datagram to this socket from one beside it.
fn pass(receiver: &UdpSocket) -> io::Result<Passage> {
    let to = receiver.local_addr()?;
    let sender = UdpSocket::bind(SocketAddr::new(to.ip(), 0))?;
    let mark = [b"ferroce doctor ".as_slice(), &std::process::id().to_be_bytes()].concat();
    match sender.send_to(&mark, to) {
        Ok(_) => {}
        // A rule for what leaves says so to the program itself.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Passage::Refused(error.to_string()));
        }
        Err(error) => return Err(error),
    }
    let mut bytes = [0; 64];
    while wait_readable(receiver.as_fd(), Some(PATIENCE))? {
        let (len, from) = receiver.recv_from(&mut bytes)?;
        if from == sender.local_addr()? && bytes.get(..len) == Some(mark.as_slice()) {
            return Ok(Passage::Arrived);
        }
    }
    Ok(Passage::Lost)
}

fn board(answer: Result<Survey, SwitchError>) -> Board {
    match answer {
        Ok(Survey { group, leader, rows, .. }) => {
            let alive = rows.iter().filter(|row| row.alive).map(|row| row.pid);
            let mut members: Vec<u32> = alive.chain([leader]).collect();
            members.sort_unstable();
            members.dedup();
            Board { group: group.to_string(), members, trouble: None }
        }
        Err(error) => {
            let what = error.to_string();
            let (group, pid, silent) = match error {
                SwitchError::LeaderSilent { group, pid, .. } => (Some(group), Some(pid), Some(pid)),
                SwitchError::OtherVersion { group, pid, .. } | SwitchError::LeaderFull { group, pid } => {
                    (Some(group), Some(pid), None)
                }
                _ => (None, None, None),
            };
            Board {
                group: group.map_or_else(String::new, |group| group.to_string()),
                members: pid.into_iter().collect(),
                trouble: Some(Trouble { what, silent }),
            }
        }
    }
}

/// A machine of which there are only files: it answers nothing.
#[derive(Debug)]
pub(super) struct Elsewhere;

/// Why it does not.
pub(super) const ONLY_FILES: &str = "these are files of another machine, which cannot be asked";

impl Live for Elsewhere {
    fn interfaces(&self) -> Known<Vec<Interface>> {
        Err(ONLY_FILES.to_owned())
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn open(&self, _: &Path) -> Known<()> {
        Err(ONLY_FILES.to_owned())
    }

    fn run(&self, _: &[&str]) -> Known<String> {
        Err(ONLY_FILES.to_owned())
    }

    fn boards(&self) -> Known<Vec<Board>> {
        Err(ONLY_FILES.to_owned())
    }

    fn datagram(&self) -> Passage {
        Passage::Untried(ONLY_FILES.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_answer_or_say_why_not() {
        assert_eq!(Machine.run(&["echo", "a", "b"]), Ok("a b\n".to_owned()));
        let missing = Machine.run(&["no-such-program-here"]);
        assert_eq!(missing, Err("the program no-such-program-here is not installed".to_owned()));
        let failed = Machine.run(&["sh", "-c", "echo sh: not allowed >&2; exit 3"]);
        assert_eq!(failed, Err("sh: not allowed".to_owned()));
    }

    #[test]
    fn a_file_that_is_not_there_cannot_be_opened() {
        assert!(Machine.open(Path::new("/dev/null")).is_ok());
        assert!(Machine.open(Path::new("/dev/no-such-device")).is_err());
    }

    #[test]
    fn another_machine_is_not_asked() {
        assert_eq!(Elsewhere.interfaces(), Err(ONLY_FILES.to_owned()));
        assert_eq!(Elsewhere.run(&["echo"]), Err(ONLY_FILES.to_owned()));
        assert_eq!(Elsewhere.datagram(), Passage::Untried(ONLY_FILES.to_owned()));
        assert!(Elsewhere.boards().is_err() && Elsewhere.open(Path::new("/dev/null")).is_err());
        assert_eq!(Elsewhere.variable("PATH"), None);
    }
}
