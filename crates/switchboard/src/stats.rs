//! What the queue pairs of a process do: asked of the process itself, by any process of the same user.
//!
//! Every member listens at a name of its own. Its thread answers with counters that exist anyway. They are
//! read inside of each engine: by this thread if no other is inside, else by the one that is, when it takes
//! in its mail.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Weak;
use std::time::Duration;

use ferroce_sys::Random;
use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use ferroce_sys::fork::Tracked;
use ferroce_sys::sync::lock;
use ferroce_sys::unix::{self, Reached, Room};
use ferroce_transport::Time;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Group;
use super::error::{SwitchError, refused};
use super::inner::{Inner, program};
use super::names;
use super::protocol::{Answer, Greeting, LEN, VERSION, Violation};
use super::recording::{self, RecordReply, RecordRequest};
use super::refusals::{Refusals, count};
use super::rows::{ProcessStats, QpRow, QueueRow, Report, TotalsRow, narrow, wide};
use super::service_name::{MOST_SERVICE, service_name};
use super::table::PROGRAM;

/// Queue pairs that one answer tells of, at most: the socket keeps all of it for the process that asks.
pub const MOST_TOLD: usize = 960;

/// Connections at a time.
const MOST_ASKING: usize = 8;

/// How long a connection may take to ask.
const GREETING: Duration = Duration::from_secs(2);

/// How long no connection is accepted after the system had no descriptor for it.
const EXHAUSTED: Duration = Duration::from_millis(20);

/// Processes that are asked at a time.
const AT_A_TIME: usize = 128;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of one message. With what the kernel needs for itself this is just less than a page: a little more,
/// and each message takes two of them from the room of the socket, which then does not keep [`MOST_TOLD`].
const MESSAGE: usize = 3700;

/// Bytes that the socket is to keep for a process that asks; the system may grant less. What the kernel needs
/// for itself is included.
const ROOM: usize = 400 * 1024;

/// What is told of a process, all but its queues, which follow in messages of their own.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ProcessRow {
    engines: u8,
    busy: u8,
    has_address: u8,
    reserved: u8,
    queue_pairs: u32,
    queue_pairs_made: u64,
    since: u64,
    time: u64,
    program: [u8; PROGRAM],
    service: [u8; MOST_SERVICE],
    interface: [u8; 16],
    address: [u8; 16],
    totals: TotalsRow,
    refused: [u64; Refusals::LEN],
}

/// Where a member listens for processes that ask, and their connections. Without a listener no process can
/// ask, and everything else works.
#[derive(Debug)]
pub(super) struct StatsDesk {
    listener: Option<Tracked>,
    asking: Vec<(Tracked, Time)>,
    /// Until when none is accepted, because the system had no descriptor for one.
    exhausted: Option<Time>,
    /// When it was opened.
    since: Time,
    /// What the service is called, as the program found it when it opened the device.
    service: String,
}

impl StatsDesk {
    /// Opens it, at a name that nothing outside can foresee: another user could have taken any other.
    pub(super) fn open(inner: &Inner, random: &mut Random) -> Self {
        let name = names::of_counters(inner.uid, std::process::id(), random.next_u64());
        let listener = Tracked::open(inner.record, || unix::listen(name.as_bytes())).ok();
        let service = service_name(&text(&program()));
        Self { listener, asking: Vec::new(), exhausted: None, since: clock::now(), service }
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
        let Self { listener, asking, exhausted, since, service } = self;
        let mut place = 0;
        asking.retain(|(socket, until)| {
            place += 1;
            if is_ready(place) {
                return hear(inner, socket, *since, service);
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
        let Some(listener) = listener else { return };
        for _ in 0..MOST_ASKING {
            let socket = match Tracked::open(inner.record, || unix::accept(listener.as_fd())) {
                Ok(socket) => socket,
                Err(error) => {
                    let is_empty = error.kind() == io::ErrorKind::WouldBlock;
                    *exhausted = (!is_empty).then(|| now + EXHAUSTED);
                    return;
                }
            };
            let is_ours = unix::peer(socket.as_fd()).is_ok_and(|peer| peer.uid == inner.uid);
            if !is_ours {
                count(&inner.refused.foreign_connections);
                continue;
            }
            if asking.len() >= MOST_ASKING {
                // The one that has been silent for longest has had its chance.
                count(&inner.refused.connections_full);
                asking.remove(0);
            }
            if hear(inner, &socket, *since, service) {
                asking.push((socket, now + GREETING));
            }
        }
    }
}

/// Hears a connection, and answers; false if it is over.
fn hear(inner: &Inner, socket: &Tracked, since: Time, service: &str) -> bool {
    let mut bytes = [0; recording::MOST];
    let message = match unix::receive(socket.as_fd(), &mut bytes, Room::None) {
        Ok(message) => message,
        Err(error) => {
            return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
        }
    };
    let said = bytes.get(..message.len).filter(|_| !message.cut);
    let asked = said.map(|bytes| match Greeting::parse(bytes.get(..LEN).unwrap_or(bytes)) {
        // Nothing follows the other greetings.
        Ok(greeting) if greeting != Greeting::Record && bytes.len() != LEN => Err(Violation::Garbage),
        parsed => parsed,
    });
    match asked {
        _ if message.len == 0 => {}
        Some(Ok(Greeting::Record)) => {
            let records = lock(&inner.records).as_ref().and_then(Weak::upgrade);
            let request = said.and_then(RecordRequest::parse);
            match (records, request, socket.as_fd().try_clone_to_owned()) {
                (Some(records), Some(request), Ok(reply)) => records.record(request, RecordReply(reply)),
                _ => count(&inner.refused.violations),
            }
        }
        Some(Ok(Greeting::Stats)) => {
            // What does not fit into the socket is lost, and the other process sees that the end is missing.
            let _ = answer(inner, socket, since, service);
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
fn answer(inner: &Inner, socket: &Tracked, since: Time, service: &str) -> io::Result<()> {
    let (mut engines, mut busy) = (0_u8, 0_u8);
    let mut report = Report { refused: inner.refusals(), ..Report::default() };
    for sink in inner.sinks() {
        engines = engines.saturating_add(1);
        if !sink.tell(&mut report, MOST_TOLD) {
            busy = busy.saturating_add(1);
        }
    }
    let told = ProcessStats {
        pid: std::process::id(),
        program: text(&program()),
        service: service.to_owned(),
        group: inner.group.clone(),
        since,
        engines,
        busy,
        time: clock::now(),
        report,
    };
    // Without it the socket keeps less, and the process that asks is told of fewer queue pairs.
    let _ = unix::keep_more(socket.as_fd(), ROOM);
    let Report { rows, completion_queues, shared_queues, .. } = &told.report;
    unix::send(socket.as_fd(), &told.emit(), &[])?;
    send_rows::<_, QueueRow>(socket, Answer::CompletionQueues, completion_queues)?;
    send_rows::<_, QueueRow>(socket, Answer::SharedQueues, shared_queues)?;
    send_rows::<_, QpRow>(socket, Answer::QueuePairs, rows)?;
    unix::send(socket.as_fd(), &Answer::End.emit(), &[])
}

/// Says all of these, in as many messages as it takes.
fn send_rows<'a, S, R>(socket: &Tracked, answer: Answer, all: &'a [S]) -> io::Result<()>
where
    R: From<&'a S> + IntoBytes + Immutable,
{
    for some in all.chunks((MESSAGE - LEN) / size_of::<R>()) {
        let mut message = answer.emit().to_vec();
        some.iter().for_each(|one| message.extend(R::from(one).as_bytes()));
        unix::send(socket.as_fd(), &message, &[])?;
    }
    Ok(())
}

/// Reads the rows of a message, as many as there are whole ones.
fn read_rows<R: FromBytes + KnownLayout>(message: &[u8]) -> impl Iterator<Item = R> {
    let rows = message.get(LEN..).unwrap_or_default();
    rows.chunks_exact(size_of::<R>()).filter_map(|row| R::read_from_bytes(row).ok())
}

/// Adds to a list that must not grow beyond what a process may tell.
fn add<T>(list: &mut Vec<T>, more: impl Iterator<Item = T>) {
    let room = MOST_TOLD.saturating_sub(list.len());
    list.extend(more.take(room));
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
    let mut all = Vec::new();
    // All are asked before the first is heard, and have one patience: one that is silent keeps no other
    // waiting.
    for names in names.chunks(AT_A_TIME) {
        let asked: Vec<_> = names.iter().filter_map(|name| ask(name, uid, pids)).collect();
        let end = clock::now() + PATIENCE;
        all.extend(asked.into_iter().filter_map(|(socket, pid)| hear_out(&socket, pid, end)));
    }
    all.sort_by_key(|one| match one {
        Ok(one) => one.pid,
        Err((pid, _)) => *pid,
    });
    Ok(all)
}

/// Asks one process; `None` if it is gone, or not one of those that are wanted.
fn ask(name: &str, uid: u32, pids: &[u32]) -> Option<(OwnedFd, u32)> {
    let socket = unix::socket(libc::SOCK_SEQPACKET).ok()?;
    let Ok(Reached::Ours(peer)) = unix::reach(socket.as_fd(), name.as_bytes(), uid) else { return None };
    if !pids.is_empty() && !pids.contains(&peer.pid) {
        return None;
    }
    unix::send(socket.as_fd(), &Greeting::Stats.emit(), &[]).ok()?;
    Some((socket, peer.pid))
}

/// Hears what the process says that was asked; `None` if it is gone.
fn hear_out(socket: &OwnedFd, pid: u32, end: Time) -> Option<Told> {
    let (mut process, mut bytes) = (None::<ProcessStats>, vec![0; MESSAGE]);
    let silent = || SwitchError::ProcessSilent { pid, seconds: PATIENCE.as_secs() };
    loop {
        let message = match unix::receive(socket.as_fd(), &mut bytes, Room::None) {
            Ok(message) => bytes.get(..message.len).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && clock::now() < end => {
                let _ = wait_readable(socket.as_fd(), Some(clock::until(end)));
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Some(Err((pid, silent())));
            }
            Err(_) => return None,
        };
        match (Answer::parse(message), &mut process) {
            (Some(Answer::Process), None) => process = Some(ProcessStats::parse(message, pid)?),
            (Some(Answer::QueuePairs), Some(known)) => {
                add(&mut known.report.rows, read_rows(message).filter_map(|row: QpRow| row.read()));
            }
            (Some(Answer::CompletionQueues), Some(known)) => {
                add(&mut known.report.completion_queues, read_rows(message).map(|row: QueueRow| row.read()));
            }
            (Some(Answer::SharedQueues), Some(known)) => {
                add(&mut known.report.shared_queues, read_rows(message).map(|row: QueueRow| row.read()));
            }
            (Some(Answer::OtherVersion(theirs)), None) => {
                return Some(Err((pid, SwitchError::ProcessVersion { pid, theirs, ours: VERSION })));
            }
            // The end, or what there was room for; nothing if the process ended meanwhile.
            _ => return process.map(Ok),
        }
    }
}

impl ProcessStats {
    /// All but its queues, which follow in messages of their own.
    fn emit(&self) -> Vec<u8> {
        let Group { interface, address } = &self.group;
        let row = ProcessRow {
            engines: self.engines,
            busy: self.busy,
            has_address: address.is_some().into(),
            reserved: 0,
            queue_pairs: self.report.queue_pairs,
            queue_pairs_made: self.report.queue_pairs_made,
            since: self.since.nanos(),
            time: self.time.nanos(),
            program: padded(&self.program),
            service: padded(&self.service),
            interface: padded(interface),
            address: wide(address.unwrap_or(Ipv6Addr::UNSPECIFIED.into())),
            totals: TotalsRow::from(&self.report.totals),
            refused: self.report.refused.words(),
        };
        let mut message = Answer::Process.emit().to_vec();
        message.extend(row.as_bytes());
        message
    }

    /// Reads that. Its number is what the kernel says, and no part of the message.
    fn parse(message: &[u8], pid: u32) -> Option<Self> {
        let row = ProcessRow::read_from_bytes(message.get(LEN..)?).ok()?;
        let address = (row.has_address == 1).then(|| narrow(row.address));
        Some(Self {
            pid,
            program: text(&row.program),
            service: text(&row.service),
            group: Group { interface: text(&row.interface), address },
            since: Time::from_nanos(row.since),
            engines: row.engines,
            busy: row.busy,
            time: Time::from_nanos(row.time),
            report: Report {
                refused: Refusals::from_words(row.refused),
                totals: row.totals.read(),
                queue_pairs: row.queue_pairs,
                queue_pairs_made: row.queue_pairs_made,
                ..Report::default()
            },
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
