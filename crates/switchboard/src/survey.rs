//! Which process owns which slot: asked of the leader, which knows which processes live.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use ferroce_sys::unix::{self, Peer, Reached, Room};
use ferroce_transport::Time;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::{SwitchError, refused};
use super::inner::Inner;
use super::names::{self, Place};
use super::protocol::{Answer, Greeting, LEN, VERSION};
use super::refusals::Refusals;
use super::table::PROGRAM;
use super::{Group, SLOTS};

/// A group, and the owners of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Which.
    pub group: Group,
    /// The process that leads it.
    pub leader: u32,
    /// What that process has refused.
    pub refused: Refusals,
    /// The slots that have, or had, an owner.
    pub rows: Vec<Row>,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number: the top byte of the numbers of its queue pairs.
    pub slot: u8,
    /// The process that owns it, or did.
    pub pid: u32,
    /// What that program is called.
    pub program: String,
    /// When it took the slot, in milliseconds since 1970.
    pub since_millis: u64,
    /// How often the slot was taken.
    pub incarnation: u64,
    /// That process leads.
    pub leads: bool,
    /// The owner lives. What a dead one left behind is shown until another process takes the slot.
    pub alive: bool,
}

/// How long a leader may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A slot and its owner between processes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SlotRow {
    slot: u8,
    alive: u8,
    leads: u8,
    reserved: u8,
    pid: u32,
    since: u64,
    incarnation: u64,
    program: [u8; PROGRAM],
}

/// Bytes of it.
const ROW: usize = size_of::<SlotRow>();

/// Bytes of what was refused.
const REFUSED: usize = size_of::<[u64; Refusals::LEN]>();

/// The groups of this user, on one interface or on all, with their slots. No group is no error. Of a group
/// whose leader does not answer, the error is in its place.
///
/// # Errors
/// The system does not tell which groups there are.
pub fn survey(interface: Option<&str>) -> Result<Vec<Result<Survey, SwitchError>>, SwitchError> {
    let uid = unix::own_uid();
    let mut names = names::list_leaders(uid).map_err(refused("the list of sockets"))?;
    names.retain(|(group, _)| interface.is_none_or(|wanted| wanted == group.interface));
    names.sort_by(|(one, at), (other, other_at)| {
        (&one.interface, one.address, at).cmp(&(&other.interface, other.address, other_at))
    });
    // One patience for all: another user may have made up any number of groups.
    let end = clock::now() + PATIENCE;
    let groups = names.chunk_by(|(one, _), (other, _)| one == other);
    Ok(groups.filter_map(|names| ask(names, uid, end).transpose()).collect())
}

/// Asks the leader of a group, wherever it listens; `None` if there is none any more.
fn ask(names: &[(Group, Place)], uid: u32, end: Time) -> Result<Option<Survey>, SwitchError> {
    let Some((group, _)) = names.first() else { return Ok(None) };
    loop {
        let Some((socket, Peer { pid, .. })) = find(names, uid, end)? else { return Ok(None) };
        let group = group.clone();
        let mut bytes = vec![0; LEN + REFUSED + SLOTS * ROW];
        let sent = unix::send(socket.as_fd(), &Greeting::Survey.emit(), &[]);
        let message = sent.and_then(|()| {
            loop {
                match unix::receive(socket.as_fd(), &mut bytes, Room::None) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && clock::now() < end => {
                        wait_readable(socket.as_fd(), Some(clock::until(end)))?;
                    }
                    other => break other,
                }
            }
        });
        match message {
            Ok(message) if message.len > 0 => {
                let answer = bytes.get(..message.len).unwrap_or_default();
                match Answer::parse(answer) {
                    Some(Answer::Rows) => {
                        let Ok((told, rows)) = FromBytes::read_from_prefix(&answer[LEN..]) else { continue };
                        let refused = Refusals::from_words(told);
                        let rows =
                            rows.chunks_exact(ROW).filter_map(|row| SlotRow::read_from_bytes(row).ok());
                        let rows = rows.map(|row| row.read()).collect();
                        return Ok(Some(Survey { group, leader: pid, refused, rows }));
                    }
                    Some(Answer::OtherVersion(theirs)) => {
                        return Err(SwitchError::OtherVersion { group, pid, theirs, ours: VERSION });
                    }
                    Some(Answer::Full) => return Err(SwitchError::LeaderFull { group, pid }),
                    _ => {}
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(SwitchError::LeaderSilent { group, pid, seconds: PATIENCE.as_secs() });
            }
            // The leader is gone: ask the next one.
            _ => {}
        }
        if clock::now() >= end {
            return Err(SwitchError::LeaderSilent { group, pid, seconds: PATIENCE.as_secs() });
        }
    }
}

/// A connection to the leader of a group, at one of these names. What another user listens at is passed over; what
/// takes no connection just now is tried until the end.
fn find(names: &[(Group, Place)], uid: u32, end: Time) -> Result<Option<(OwnedFd, Peer)>, SwitchError> {
    loop {
        let mut busy = false;
        for (group, place) in names {
            let socket = unix::socket(libc::SOCK_SEQPACKET).map_err(refused("a socket"))?;
            let name = names::of_leader(group, uid, *place);
            let reached = unix::reach(socket.as_fd(), name.as_bytes(), uid);
            match reached.map_err(refused("a connection to the leader"))? {
                Reached::Ours(peer) => return Ok(Some((socket, peer))),
                Reached::Busy => busy = true,
                Reached::Foreign | Reached::Nothing => {}
            }
        }
        if !busy {
            return Ok(None);
        }
        if clock::now() >= end {
            let error = io::Error::from_raw_os_error(libc::EAGAIN);
            return Err(refused("a connection to the leader")(error));
        }
        clock::pause(Duration::from_millis(1));
    }
}

/// What the leader answers.
pub(super) fn answer(inner: &Inner) -> Vec<u8> {
    let mut bytes = Answer::Rows.emit().to_vec();
    bytes.extend(inner.refused.read().words().as_bytes());
    for slot in 1..SLOTS {
        let Some(entry) = inner.table.entry(slot).read() else { continue };
        let row = SlotRow {
            slot: u8::try_from(slot).unwrap_or(0),
            alive: inner.is_alive(slot).into(),
            leads: u8::from(entry.pid == std::process::id()),
            reserved: 0,
            pid: entry.pid,
            since: entry.since,
            incarnation: entry.incarnation,
            program: entry.program,
        };
        bytes.extend(row.as_bytes());
    }
    bytes
}

/// A name as it may be shown: programs choose theirs, and a terminal obeys what is not text.
pub(super) fn printable(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect()
}

impl SlotRow {
    fn read(&self) -> Row {
        let program = self.program.split(|byte| *byte == 0).next().unwrap_or_default();
        Row {
            slot: self.slot,
            alive: self.alive == 1,
            leads: self.leads == 1,
            pid: self.pid,
            since_millis: self.since,
            incarnation: self.incarnation,
            program: printable(&String::from_utf8_lossy(program)),
        }
    }
}
