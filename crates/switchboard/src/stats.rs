//! What the queue pairs of a process do: asked of the process itself, by anybody of the same user.
//!
//! Every member listens at a name of its own. Its thread answers with counters that exist anyway, read inside of
//! each engine for a moment; an engine that is busy all the time is left alone. Nothing is counted for this.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, RawFd};
use std::time::Duration;

use ferroce_fabric::Path;
use ferroce_sys::Random;
use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use ferroce_sys::fork::Tracked;
use ferroce_sys::unix::{self, Reached, Room};
use ferroce_transport::{State, Time};
use ferroce_wire::{Qpn, Service};

use super::Group;
use super::error::{SwitchError, refused};
use super::membership::{Inner, program};
use super::names;
use super::protocol::{Answer, Greeting, LEN, VERSION, Violation};
use super::refusals::{Refusals, count};
use super::table::PROGRAM;

/// Queue pairs that one answer tells of, at most: the socket keeps all of it for who asks.
pub const MOST_TOLD: usize = 1024;

/// Who is connected at a time.
const MOST_ASKING: usize = 8;

/// How long a connection may take to ask.
const GREETING: Duration = Duration::from_secs(2);

/// How long no connection is accepted after the system had no descriptor for it.
const EXHAUSTED: Duration = Duration::from_millis(20);

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Queue pairs in one message.
const IN_ONE: usize = 32;

/// Bytes of what is told of a process: its number, engines, busy ones, queue pairs, the time, program, interface,
/// address, refusals.
const PROCESS: usize = REFUSALS + Refusals::LEN;

/// Where its refusals begin.
const REFUSALS: usize = LEN + 24 + PROGRAM + 16 + 24;

/// Bytes of what is told of a queue pair: six short fields, the peer's address, four short counters and long ones.
const ROW: usize = 12 + 16 + 16 + 8 * COUNTS + 4;

/// Counters that are told.
const COUNTS: usize = 9;

/// A process, and what its queue pairs have done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStats {
    /// Its number.
    pub pid: u32,
    /// What its program is called.
    pub program: String,
    /// Which switchboard it is on: a process may be on several.
    pub group: Group,
    /// Engines that it has there.
    pub engines: u8,
    /// Those of them that were at work all the time: of their queue pairs nothing is told.
    pub busy: u8,
    /// What it has refused there.
    pub refused: Refusals,
    /// Queue pairs that it has there; more than are told if there are very many.
    pub queue_pairs: u32,
    /// When it looked, by its own clock.
    pub time: Time,
    /// Its queue pairs.
    pub rows: Vec<QpStats>,
}

/// What a queue pair has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpStats {
    /// Its number.
    pub qpn: Qpn,
    /// Which engine it is in.
    pub engine: u8,
    /// Its service.
    pub service: Service,
    /// Its state.
    pub state: State,
    /// Which way its packets take, if it is connected.
    pub path: Option<Path>,
    /// The queue pair that it is connected to, and the address of that.
    pub peer: Option<(Qpn, IpAddr)>,
    /// Sends that were posted. It wraps, as the next three do.
    pub sends_posted: u32,
    /// Sends that are done.
    pub sends_done: u32,
    /// Receives that were posted to its own queue.
    pub receives_posted: u32,
    /// Those that were taken by messages.
    pub receives_done: u32,
    /// Packets that it sent.
    pub packets_sent: u64,
    /// Packets that it took.
    pub packets_received: u64,
    /// Messages that were done directly at a peer in the same process, or by one here.
    pub direct: u64,
    /// Packets that it sent again.
    pub retransmitted: u64,
    /// Times that its peer had no receive posted.
    pub rnr_received: u64,
    /// Times that it had none itself.
    pub rnr_sent: u64,
    /// Times that its peer did not answer in time.
    pub timeouts: u64,
    /// Requests that were refused, here or by the peer, and messages that were dropped.
    pub errors: u64,
    /// Times that it waited for its window, credits, depth or rate.
    pub waits: u64,
}

impl QpStats {
    fn counts(&self) -> [u64; COUNTS] {
        let Self { packets_sent, packets_received, direct, retransmitted, .. } = *self;
        let Self { rnr_received, rnr_sent, timeouts, errors, waits, .. } = *self;
        [
            packets_sent,
            packets_received,
            direct,
            retransmitted,
            rnr_received,
            rnr_sent,
            timeouts,
            errors,
            waits,
        ]
    }

    fn emit(&self) -> [u8; ROW] {
        let mut bytes = [0; ROW];
        let (peer, remote) = self.peer.unwrap_or((Qpn::SMI, Ipv6Addr::UNSPECIFIED.into()));
        bytes[..4].copy_from_slice(&self.qpn.get().to_ne_bytes());
        bytes[4..8].copy_from_slice(&peer.get().to_ne_bytes());
        bytes[8] = self.engine;
        bytes[9] = code(&SERVICES, self.service);
        bytes[10] = code(&STATES, self.state) | if self.peer.is_some() { HAS_PEER } else { 0 };
        bytes[11] = self.path.map_or(0, |path| code(&PATHS, path) + 1);
        bytes[12..28].copy_from_slice(&wide(remote));
        let short = [self.sends_posted, self.sends_done, self.receives_posted, self.receives_done];
        for (to, count) in bytes[28..44].as_chunks_mut().0.iter_mut().zip(short) {
            *to = count.to_ne_bytes();
        }
        for (to, count) in bytes[48..].as_chunks_mut().0.iter_mut().zip(self.counts()) {
            *to = count.to_ne_bytes();
        }
        bytes
    }

    fn parse(bytes: &[u8; ROW]) -> Option<Self> {
        let short = |at: usize| bytes[at..].first_chunk().copied().map(u32::from_ne_bytes);
        let long = |at: usize| bytes[48 + 8 * at..].first_chunk().copied().map(u64::from_ne_bytes);
        let peer = (Qpn::new(short(4)?), narrow(*bytes[12..].first_chunk()?));
        Some(Self {
            qpn: Qpn::new(short(0)?),
            engine: bytes[8],
            service: *SERVICES.get(usize::from(bytes[9]))?,
            state: *STATES.get(usize::from(bytes[10] & !HAS_PEER))?,
            path: match bytes[11].checked_sub(1) {
                None => None,
                Some(code) => Some(*PATHS.get(usize::from(code))?),
            },
            peer: (bytes[10] & HAS_PEER != 0).then_some(peer),
            sends_posted: short(28)?,
            sends_done: short(32)?,
            receives_posted: short(36)?,
            receives_done: short(40)?,
            packets_sent: long(0)?,
            packets_received: long(1)?,
            direct: long(2)?,
            retransmitted: long(3)?,
            rnr_received: long(4)?,
            rnr_sent: long(5)?,
            timeouts: long(6)?,
            errors: long(7)?,
            waits: long(8)?,
        })
    }
}

/// Added to the code of a state if there is a peer.
const HAS_PEER: u8 = 0x80;

const SERVICES: [Service; 3] = [Service::Rc, Service::Uc, Service::Ud];
const STATES: [State; 7] =
    [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];
const PATHS: [Path; 2] = [Path::Local, Path::Wire];

/// The place of a value in a list of all there are.
fn code<T: PartialEq>(all: &[T], one: T) -> u8 {
    let place = all.iter().position(|known| *known == one);
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or(0)
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn narrow(bytes: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
}

/// Where a member listens for those who ask, and who is connected. Without a listener nobody can ask, and
/// everything else works.
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

    /// What to wait for: the listener, then who is connected. -1 stands for a listener that is not listened to.
    pub(super) fn descriptors(&mut self) -> impl Iterator<Item = RawFd> {
        self.exhausted = self.exhausted.filter(|until| clock::now() < *until);
        let listener = self.listener.as_ref().filter(|_| self.exhausted.is_none()).map_or(-1, Tracked::raw);
        std::iter::once(listener).chain(self.asking.iter().map(|(socket, _)| socket.raw()))
    }

    /// When somebody has been silent for too long, or may be accepted again.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.asking.iter().map(|(_, until)| *until).chain(self.exhausted).min()
    }

    /// Answers those who ask. `polled` is of the descriptors, in order.
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
            // What does not fit into the socket is lost, and who asks sees that the end is missing.
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
    let mut head = Answer::Process.emit().to_vec();
    head.extend(std::process::id().to_ne_bytes());
    head.extend([engines, busy, 0, 0]);
    head.extend(u32::try_from(count).unwrap_or(u32::MAX).to_ne_bytes());
    head.extend([0; 4]);
    head.extend(clock::now().nanos().to_ne_bytes());
    head.extend(program());
    let mut interface = [0; 16];
    for (to, from) in interface.iter_mut().zip(inner.group.interface.bytes()) {
        *to = from;
    }
    head.extend(interface);
    head.extend([u8::from(inner.group.address.is_some()), 0, 0, 0, 0, 0, 0, 0]);
    head.extend(wide(inner.group.address.unwrap_or(Ipv6Addr::UNSPECIFIED.into())));
    head.extend(refused.emit());
    debug_assert_eq!(head.len(), PROCESS, "as long as it is read");
    unix::send(socket.as_fd(), &head, &[])?;
    for rows in rows.chunks(IN_ONE) {
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
            (Some(Answer::Process), None) => process = Some(read_process(message, peer.pid)?),
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

fn read_process(message: &[u8], pid: u32) -> Option<ProcessStats> {
    let message: &[u8; PROCESS] = message.first_chunk()?;
    let text = |bytes: &[u8]| {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        super::survey::printable(&String::from_utf8_lossy(text))
    };
    let (program_at, interface_at) = (LEN + 24, LEN + 24 + PROGRAM);
    let address_at = interface_at + 16;
    let has_address = message[address_at] == 1;
    Some(ProcessStats {
        pid,
        program: text(&message[program_at..interface_at]),
        group: Group {
            interface: text(&message[interface_at..address_at]),
            address: has_address
                .then(|| message[address_at + 8..].first_chunk().copied())
                .flatten()
                .map(narrow),
        },
        engines: message[LEN + 4],
        busy: message[LEN + 5],
        refused: Refusals::parse(message[REFUSALS..].first_chunk()?),
        queue_pairs: u32::from_ne_bytes(*message[LEN + 8..].first_chunk()?),
        time: Time::from_nanos(u64::from_ne_bytes(*message[LEN + 16..].first_chunk()?)),
        rows: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> QpStats {
        QpStats {
            qpn: Qpn::new(0x12_3456),
            engine: 3,
            service: Service::Ud,
            state: State::Sqe,
            path: Some(Path::Wire),
            peer: Some((Qpn::new(7), "fd00::7".parse().unwrap())),
            sends_posted: 1,
            sends_done: 2,
            receives_posted: 3,
            receives_done: u32::MAX,
            packets_sent: 5,
            packets_received: 6,
            direct: 7,
            retransmitted: 8,
            rnr_received: 9,
            rnr_sent: 10,
            timeouts: 11,
            errors: 12,
            waits: u64::MAX,
        }
    }

    #[test]
    fn a_row_reads_as_it_was_written() {
        let alone = QpStats { path: None, peer: None, state: State::Reset, ..row() };
        for row in [row(), alone] {
            assert_eq!(QpStats::parse(&row.emit()), Some(row));
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        for at in 0..ROW {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = row().emit();
                bytes[at] = value;
                let _ = QpStats::parse(&bytes);
            }
        }
        for len in 0..PROCESS {
            assert_eq!(read_process(&vec![0xff; len], 1), None);
        }
        assert!(read_process(&[0xff; PROCESS], 1).is_some_and(|process| process.pid == 1));
    }
}
