//! How a process is asked, by another one of the same user, to write down what its devices do.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use ferroce_sys::unix::{self, Reached, Room};

use super::error::{SwitchError, refused};
use super::names;
use super::protocol::{Answer, Greeting, LEN, VERSION};

/// Bytes of a question or an answer at most: a path, and what goes before it.
pub(super) const MOST: usize = LEN + 16 + 4096;

/// How long a process may take to make its file.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a process is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordRequest {
    /// To write down what its devices do from now on.
    Start {
        /// Into this file, which is not there yet.
        path: PathBuf,
        /// Bytes of the last events, if only those are wanted.
        flight: Option<u64>,
        /// One of so many work requests is recorded.
        sample: u32,
    },
    /// To write nothing down any more.
    Stop,
    /// To tell the file that it writes to.
    Where,
}

/// What can be asked to write down what it does: the devices of a process.
pub trait Records: Send + Sync {
    /// Does so, without keeping the caller waiting, and answers.
    fn record(&self, request: RecordRequest, reply: RecordReply);
}

/// Where the answer goes to.
#[derive(Debug)]
pub struct RecordReply(pub(super) OwnedFd);

impl RecordReply {
    /// Answers with the file that is written to, or was, or with why there is none.
    pub fn answer(&self, done: Result<&Path, &str>) {
        let (is_done, text) = match done {
            Ok(path) => (1, path.as_os_str().as_bytes()),
            Err(why) => (0, why.as_bytes()),
        };
        let mut message = Answer::Recording.emit().to_vec();
        message.push(is_done);
        message.extend(&text[..text.len().min(MOST - LEN - 1)]);
        // A process that does not wait for it any more misses nothing.
        let _ = unix::send(self.0.as_fd(), &message, &[]);
    }
}

impl RecordReply {
    /// Waits until the process that asked has closed its end, or has ended.
    pub fn wait_for_the_end(&self) {
        let mut bytes = [0; 1];
        loop {
            match unix::receive(self.0.as_fd(), &mut bytes, Room::None) {
                Ok(message) if message.len > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if wait_readable(self.0.as_fd(), None).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}

/// What a process answered. If it was asked to record, it does so until this is dropped.
#[derive(Debug)]
pub struct Recorded {
    /// The file that it writes to, or wrote to.
    pub path: PathBuf,
    _sockets: Vec<OwnedFd>,
}

impl RecordRequest {
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut message = Greeting::Record.emit().to_vec();
        let (kind, flight, sample, path) = match self {
            Self::Start { path, flight, sample } => {
                (1_u32, flight.unwrap_or(0), *sample, path.as_os_str().as_bytes())
            }
            Self::Stop => (2, 0, 0, &[][..]),
            Self::Where => (3, 0, 0, &[][..]),
        };
        message.extend(kind.to_ne_bytes());
        message.extend(sample.to_ne_bytes());
        message.extend(flight.to_ne_bytes());
        message.extend(path);
        message
    }

    /// Reads what follows a greeting.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.get(LEN..)?.split_first_chunk()?;
        let (sample, rest) = rest.split_first_chunk()?;
        let (flight, path) = rest.split_first_chunk()?;
        let (sample, flight) = (u32::from_ne_bytes(*sample), u64::from_ne_bytes(*flight));
        match u32::from_ne_bytes(*kind) {
            1 => {
                let path = PathBuf::from(OsStr::from_bytes(path));
                let is_fit = path.is_absolute() && sample > 0;
                is_fit.then_some(Self::Start { path, flight: (flight > 0).then_some(flight), sample })
            }
            2 => Some(Self::Stop),
            3 => Some(Self::Where),
            _ => None,
        }
    }
}

/// Asks a process of this user, each of its devices.
///
/// # Errors
/// There is no such process with an open device, it does not answer, or why it cannot. Then no device of it records.
pub fn record(pid: u32, request: &RecordRequest) -> Result<Recorded, SwitchError> {
    let uid = unix::own_uid();
    let names = names::list_counters(uid).map_err(refused("the list of sockets"))?;
    let (mut told, mut wrong, mut sockets) = (None, None, Vec::new());
    for name in names {
        let Ok(socket) = unix::socket(libc::SOCK_SEQPACKET) else { continue };
        let Ok(Reached::Ours(peer)) = unix::reach(socket.as_fd(), name.as_bytes(), uid) else { continue };
        if peer.pid != pid || unix::send(socket.as_fd(), &request.emit(), &[]).is_err() {
            continue;
        }
        // A process has a name for each device: all of them write to one file.
        match hear(&socket, pid) {
            Ok(path) => {
                told = told.filter(|known: &PathBuf| !known.as_os_str().is_empty()).or(Some(path));
                sockets.push(socket);
            }
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    match (told, wrong) {
        (_, Some(error)) => Err(error),
        (Some(path), None) => Ok(Recorded { path, _sockets: sockets }),
        (None, None) => Err(SwitchError::NoSuchProcess { pid }),
    }
}

/// Hears what the process answers.
fn hear(socket: &OwnedFd, pid: u32) -> Result<PathBuf, SwitchError> {
    let (end, mut bytes) = (clock::now() + PATIENCE, vec![0; MOST]);
    loop {
        let message = match unix::receive(socket.as_fd(), &mut bytes, Room::None) {
            Ok(message) => bytes.get(..message.len).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && clock::now() < end => {
                let _ = wait_readable(socket.as_fd(), Some(clock::until(end)));
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(SwitchError::ProcessSilent { pid, seconds: PATIENCE.as_secs() });
            }
            Err(_) => return Err(SwitchError::NoRecorder { pid }),
        };
        return match (Answer::parse(message), message.get(LEN..)) {
            (Some(Answer::Recording), Some([1, path @ ..])) => Ok(PathBuf::from(OsStr::from_bytes(path))),
            (Some(Answer::Recording), Some([0, why @ ..])) => {
                let why = super::survey::printable(&String::from_utf8_lossy(why));
                Err(SwitchError::NotRecorded { pid, why })
            }
            (Some(Answer::OtherVersion(theirs)), _) => {
                Err(SwitchError::ProcessVersion { pid, theirs, ours: VERSION })
            }
            // It was built before there were records, or ended.
            _ => Err(SwitchError::NoRecorder { pid }),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_they_were_written() {
        let path = PathBuf::from("/tmp/a b/run.ftrace");
        let start = |flight, sample| RecordRequest::Start { path: path.clone(), flight, sample };
        for request in [start(None, 1), start(Some(64 << 20), 100), RecordRequest::Stop, RecordRequest::Where]
        {
            let message = request.emit();
            assert_eq!(RecordRequest::parse(&message), Some(request));
            for len in 0..LEN + 16 {
                assert_eq!(RecordRequest::parse(&message[..len]), None, "{len} bytes");
            }
        }
        let relative = RecordRequest::Start { path: "run.ftrace".into(), flight: None, sample: 1 };
        assert_eq!(RecordRequest::parse(&relative.emit()), None, "whose folder would that be?");
        assert_eq!(RecordRequest::parse(&start(None, 0).emit()), None);
    }
}
