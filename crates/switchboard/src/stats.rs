//! What the queue pairs of a process do: asked of the process itself, by any process of the same user.
//!
//! Every member listens at a name of its own. Its thread answers with counters that exist anyway, read inside of
//! each engine for a moment; an engine that is busy all the time is left alone. Nothing is counted for this.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, RawFd};
use std::time::Duration;

use ferroce_sys::Random;
use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use ferroce_sys::fork::Tracked;
use ferroce_sys::unix::{self, Reached, Room};
use ferroce_transport::Time;

use super::Group;
use super::error::{SwitchError, refused};
use super::inner::{Inner, program};
use super::names;
use super::protocol::{Answer, Greeting, LEN, VERSION, Violation};
use super::refusals::{Refusals, count};
use super::rows::{ProcessStats, QpStats, ROW, narrow, wide};
use super::table::PROGRAM;

/// Queue pairs that one answer tells of, at most: the socket keeps all of it for the process that asks.
pub const MOST_TOLD: usize = 1024;

/// Connections at a time.
const MOST_ASKING: usize = 8;

/// How long a connection may take to ask.
const GREETING: Duration = Duration::from_secs(2);

/// How long no connection is accepted after the system had no descriptor for it.
const EXHAUSTED: Duration = Duration::from_millis(20);

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Queue pairs in one message. With what the kernel needs for itself this is just less than a page: a little more, and
/// each message takes two of them from the room of the socket, which then does not keep [`MOST_TOLD`].
const IN_ONE: usize = 28;

/// Bytes of what is told of a process: its number, engines, busy ones, queue pairs, the time, program, interface,
/// address, refusals.
const PROCESS: usize = REFUSALS + Refusals::LEN;

/// Where its refusals begin.
const REFUSALS: usize = LEN + 24 + PROGRAM + 16 + 24;

/// Where a member listens for processes that ask, and their connections. Without a listener no process can
/// ask, and everything else works.
#[derive(Debug)]
pub(super) struct StatsDesk {
    listener: Option<Tracked>,
    asking: Vec<(Tracked, Time)>,
    /// Until when none is accepted, because the system had no descriptor for one.
    exhausted: Option<Time>,
}

impl StatsDesk {
    /// Opens it, at a name that nothing outside can foresee: another user could have taken any other.
    pub(super) fn open(inner: &Inner, random: &mut Random) -> Self {
        let name = names::of_counters(inner.uid, std::process::id(), random.next_u64());
        let listener = Tracked::open(inner.record, || unix::listen(name.as_bytes())).ok();
        Self { listener, asking: Vec::new(), exhausted: None }
    }

    /// What to wait for: the listener, then the connections. -1 stands for a listener that is left alone.
    pub(super) fn descriptors(&mut self) -> impl Iterator<Item = RawFd> {
        self.exhausted = self.exhausted.filter(|until| clock::now() < *until);
        let listener = self.listener.as_ref().filter(|_| self.exhausted.is_none()).map_or(-1, Tracked::raw);
        std::iter::once(listener).chain(self.asking.iter().map(|(socket, _)| socket.raw()))
    }

    /// When a connection has been silent for too long, or one may be accepted again.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.asking.iter().map(|(_, until)| *until).chain(self.exhausted).min()
    }

    /// Answers the processes that ask. `polled` is of the descriptors, in order.
    pub(super) fn serve(&mut self, inner: &Inner, polled: &[libc::pollfd]) {
        let is_ready =
            |place: usize| polled.get(place).is_some_and(|entry: &libc::pollfd| entry.revents != 0);
        let now = clock::now();
        let mut place = 0;
        self.asking.retain(|(socket, until)| {
            place += 1;
            if is_ready(place) {
                return hear(inner, socket);
            }
            let is_late = now >= *until;
            if is_late {
                count(&inner.refused.violations);
            }
            !is_late
        });
        if !is_ready(0) {
            return;
        }
        let Some(listener) = &self.listener else { return };
        for _ in 0..MOST_ASKING {
            let socket = match Tracked::open(inner.record, || unix::accept(listener.as_fd())) {
                Ok(socket) => socket,
                Err(error) => {
                    let is_empty = error.kind() == io::ErrorKind::WouldBlock;
                    self.exhausted = (!is_empty).then(|| now + EXHAUSTED);
                    return;
                }
            };
            let is_ours = unix::peer(socket.as_fd()).is_ok_and(|peer| peer.uid == inner.uid);
            if !is_ours {
                count(&inner.refused.foreign_connections);
                continue;
            }
            if self.asking.len() >= MOST_ASKING {
                // The one that has been silent for longest has had its chance.
                count(&inner.refused.connections_full);
                self.asking.remove(0);
            }
            if hear(inner, &socket) {
                self.asking.push((socket, now + GREETING));
            }
        }
    }
}

/// Hears a connection, and answers; false if it is over.
fn hear(inner: &Inner, socket: &Tracked) -> bool {
    let mut bytes = [0; LEN + 1];
    let message = match unix::receive(socket.as_fd(), &mut bytes, Room::None) {
        Ok(message) => message,
        Err(error) => {
            return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
        }
    };
    let asked = bytes.get(..message.len).filter(|_| !message.cut).map(Greeting::parse);
    match asked {
        _ if message.len == 0 => {}
        Some(Ok(Greeting::Stats)) => {
            // What does not fit into the socket is lost, and the other process sees that the end is missing.
            let _ = answer(inner, socket);
        }
        other => {
            if other == Some(Err(Violation::OtherVersion)) {
                let _ = unix::send(socket.as_fd(), &Answer::OtherVersion(VERSION).emit(), &[]);
            }
            count(&inner.refused.violations);
        }
    }
    false
}

/// Says what is known.
fn answer(inner: &Inner, socket: &Tracked) -> io::Result<()> {
    let (mut rows, mut engines, mut busy, mut count) = (Vec::new(), 0_u8, 0_u8, 0);
    let mut refused = inner.refusals();
    for sink in inner.sinks() {
        engines = engines.saturating_add(1);
        match sink.tell(&mut rows, MOST_TOLD, &mut refused) {
            Some(more) => count += more,
            None => busy = busy.saturating_add(1),
        }
    }
    let told = ProcessStats {
        pid: std::process::id(),
        program: text(&program()),
        group: inner.group.clone(),
        engines,
        busy,
        refused,
        queue_pairs: u32::try_from(count).unwrap_or(u32::MAX),
        time: clock::now(),
        rows,
    };
    unix::send(socket.as_fd(), &told.emit(), &[])?;
    for rows in told.rows.chunks(IN_ONE) {
        let mut message = Answer::QueuePairs.emit().to_vec();
        rows.iter().for_each(|row| message.extend(row.emit()));
        unix::send(socket.as_fd(), &message, &[])?;
    }
    unix::send(socket.as_fd(), &Answer::End.emit(), &[])
}

/// What a process has done, or its number and why it does not tell.
pub type Told = Result<ProcessStats, (u32, SwitchError)>;

/// What the processes of this user with open devices have done so far, those of these numbers or all. Of a process
/// that does not answer, its number and the error are in its place.
///
/// # Errors
/// The system does not tell which processes there are.
pub fn stats(pids: &[u32]) -> Result<Vec<Told>, SwitchError> {
    let uid = unix::own_uid();
    let names = names::list_counters(uid).map_err(refused("the list of sockets"))?;
    let mut all: Vec<_> = names.iter().filter_map(|name| ask(name, uid, pids)).collect();
    all.sort_by_key(|one| match one {
        Ok(one) => one.pid,
        Err((pid, _)) => *pid,
    });
    Ok(all)
}

/// Asks one process; `None` if it is gone, or not one of those that are wanted.
fn ask(name: &str, uid: u32, pids: &[u32]) -> Option<Told> {
    let socket = unix::socket(libc::SOCK_SEQPACKET).ok()?;
    let Ok(Reached::Ours(peer)) = unix::reach(socket.as_fd(), name.as_bytes(), uid) else { return None };
    if !pids.is_empty() && !pids.contains(&peer.pid) {
        return None;
    }
    unix::send(socket.as_fd(), &Greeting::Stats.emit(), &[]).ok()?;
    let end = clock::now() + PATIENCE;
    let (mut process, mut bytes) = (None, vec![0; (LEN + IN_ONE * ROW).max(PROCESS)]);
    let silent = || SwitchError::ProcessSilent { pid: peer.pid, seconds: PATIENCE.as_secs() };
    loop {
        let message = match unix::receive(socket.as_fd(), &mut bytes, Room::None) {
            Ok(message) => bytes.get(..message.len).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && clock::now() < end => {
                let _ = wait_readable(socket.as_fd(), Some(clock::until(end)));
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Some(Err((peer.pid, silent())));
            }
            Err(_) => return None,
        };
        match (Answer::parse(message), &mut process) {
            (Some(Answer::Process), None) => process = Some(ProcessStats::parse(message, peer.pid)?),
            (Some(Answer::QueuePairs), Some(known)) => {
                let rows = message[LEN..].as_chunks().0.iter().filter_map(QpStats::parse);
                known.rows.extend(rows.take(MOST_TOLD.saturating_sub(known.rows.len())));
            }
            (Some(Answer::OtherVersion(theirs)), None) => {
                let (pid, ours) = (peer.pid, VERSION);
                return Some(Err((pid, SwitchError::ProcessVersion { pid, theirs, ours })));
            }
            // The end, or what there was room for; nothing if the process ended meanwhile.
            _ => return process.map(Ok),
        }
    }
}

impl ProcessStats {
    /// All but its queue pairs, which follow in messages of their own.
    fn emit(&self) -> Vec<u8> {
        let Group { interface, address } = &self.group;
        let mut head = Answer::Process.emit().to_vec();
        head.extend(self.pid.to_ne_bytes());
        head.extend([self.engines, self.busy, 0, 0]);
        head.extend(self.queue_pairs.to_ne_bytes());
        head.extend([0; 4]);
        head.extend(self.time.nanos().to_ne_bytes());
        head.extend(padded::<PROGRAM>(&self.program));
        head.extend(padded::<16>(interface));
        head.extend([u8::from(address.is_some()), 0, 0, 0, 0, 0, 0, 0]);
        head.extend(wide(address.unwrap_or(Ipv6Addr::UNSPECIFIED.into())));
        head.extend(self.refused.emit());
        debug_assert_eq!(head.len(), PROCESS, "as long as it is read");
        head
    }

    /// Reads that. Its number is what the kernel says, and not what stands there.
    fn parse(message: &[u8], pid: u32) -> Option<Self> {
        let message: &[u8; PROCESS] = message.first_chunk()?;
        let (program_at, interface_at) = (LEN + 24, LEN + 24 + PROGRAM);
        let address_at = interface_at + 16;
        let has_address = message[address_at] == 1;
        let address = has_address.then(|| message[address_at + 8..].first_chunk().copied()).flatten();
        Some(Self {
            pid,
            program: text(&message[program_at..interface_at]),
            group: Group {
                interface: text(&message[interface_at..address_at]),
                address: address.map(narrow),
            },
            engines: message[LEN + 4],
            busy: message[LEN + 5],
            refused: Refusals::parse(message[REFUSALS..].first_chunk()?),
            queue_pairs: u32::from_ne_bytes(*message[LEN + 8..].first_chunk()?),
            time: Time::from_nanos(u64::from_ne_bytes(*message[LEN + 16..].first_chunk()?)),
            rows: Vec::new(),
        })
    }
}

/// A text, cut or padded with zeroes.
fn padded<const BYTES: usize>(text: &str) -> [u8; BYTES] {
    let mut padded = [0; BYTES];
    for (to, from) in padded.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    padded
}

/// A text that was padded with zeroes, as it may be shown.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    super::survey::printable(&String::from_utf8_lossy(text))
}

#[cfg(test)]
mod tests;
