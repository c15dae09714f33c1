//! How a newcomer becomes a member: from the leader, or as the first of a new group.
//!
//! Which of the two, the port says and not a name: if no socket has the port there is no group, whatever listens at
//! the leader's usual name; and if one has it, the leader may listen at a spare name ([`names`]).
//!
//! It is all or nothing: whatever goes wrong on the way, everything that was received is closed again before the
//! next attempt.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ferroce_fabric::PORT;
use ferroce_fabric::udp::Socket;
use ferroce_sys::Random;
use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use ferroce_sys::fork::{self, Record, Tracked};
use ferroce_sys::lock_keeper::{self, Owner};
use ferroce_sys::unix::{self, Message, Reached, Room};
use ferroce_sys::users;
use ferroce_transport::Time;

use super::error::{SwitchError, refused};
use super::inner::track;
use super::lead::Role;
use super::names::{self, Place};
use super::protocol::{Answer, Greeting, LEN, VERSION};
use super::table::Table;
use super::{Group, SOCKETS, nofile, ports, suspects};

/// How long a leader may take to answer.
const LEADER: Duration = Duration::from_secs(8);

/// How long a port may be held while no process leads: elections take microseconds, but the process that
/// wins one may wait for a processor.
const LEADERLESS: Duration = Duration::from_secs(4);

/// How long a port that others have rightly may stay so: a socket that was just closed may live on in a child
/// on its way to another program.
const OTHERS: Duration = Duration::from_millis(500);

/// How long none may listen at the usual name before spare ones are looked for: as a rule an election is under way.
/// Until they are looked for again it is that long at first, then twice as long each time, and this at most: to list
/// all names takes a while, and a crowd of newcomers must not take the processor from the election.
const ELSEWHERE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// What a new member has.
pub(super) struct Joined {
    pub(super) sockets: Vec<Socket>,
    pub(super) table: Table,
    pub(super) record: &'static Record,
    pub(super) role: Role,
    /// How often another user's socket was where the leader could have been.
    pub(super) skipped: u64,
}

/// Joins a group, or makes it.
pub(super) fn join(group: &Group, is_loopback: bool) -> Result<Joined, SwitchError> {
    let uid = unix::own_uid();
    if users::are_mixed_up(uid) {
        return Err(SwitchError::UserUnknown { uid });
    }
    // Before anything comes that could be closed: that would end the locks of the other copy.
    if lock_keeper::owner().map_err(refused("a thread that keeps locks"))? == Owner::AnotherCopy {
        return Err(SwitchError::AnotherCopy);
    }
    nofile::make_room()?;
    let record = Record::acquire().map_err(refused("a descriptor"))?;
    let result = Newcomer::new(group, is_loopback, record).and_then(|mut newcomer| newcomer.run());
    if result.is_err() {
        record.release(&fork::hold());
    }
    result
}

struct Newcomer<'a> {
    group: &'a Group,
    is_loopback: bool,
    uid: u32,
    /// The leader's usual name, which the shared file bears too.
    name: String,
    record: &'static Record,
    random: Random,
    /// Since when no process leads.
    leaderless: Option<Time>,
    /// When spare names are looked for, and how long to wait after that.
    elsewhere: Option<(Time, Duration)>,
    skipped: u64,
}

/// What an attempt came to.
enum Attempt {
    Done(Box<Joined>),
    /// No socket of this user listens there.
    NoLeader(Reached),
    /// Something was under way: at once again.
    Again,
}

impl<'a> Newcomer<'a> {
    fn new(group: &'a Group, is_loopback: bool, record: &'static Record) -> Result<Self, SwitchError> {
        let uid = unix::own_uid();
        let random = Random::from_system().map_err(refused("random numbers"))?;
        let name = names::of_leader(group, uid, Place::Usual);
        let (leaderless, elsewhere, skipped) = (None, None, 0);
        Ok(Self { group, is_loopback, uid, name, record, random, leaderless, elsewhere, skipped })
    }

    fn run(&mut self) -> Result<Joined, SwitchError> {
        let end = clock::now() + LEADER;
        loop {
            match self.ask(Place::Usual, end)? {
                Attempt::Done(joined) => return Ok(*joined),
                Attempt::Again => self.leaderless = None,
                Attempt::NoLeader(usual) => match self.create() {
                    Ok(joined) => return Ok(joined),
                    Err(error) if ports::is_taken(&error) => {
                        if let Some(joined) = self.look_elsewhere(usual, end)? {
                            return Ok(*joined);
                        }
                        self.judge(usual)?;
                    }
                    Err(error) => return Err(error),
                },
            }
            if clock::now() >= end {
                return Err(self.leaderless_error());
            }
            let step = 200 + self.random.next_u32() % 800;
            clock::pause(Duration::from_micros(step.into()));
        }
    }

    /// Asks a leader at a spare name, if one listens there. How many names look like one does not matter: each that
    /// is not of this user costs a connection, and nothing is waited for.
    fn look_elsewhere(&mut self, usual: Reached, end: Time) -> Result<Option<Box<Joined>>, SwitchError> {
        let now = clock::now();
        let (least, most) = ELSEWHERE;
        let first = if usual == Reached::Nothing { now + least } else { now };
        let (when, step) = *self.elsewhere.get_or_insert((first, least));
        if now < when {
            return Ok(None);
        }
        // Where the list cannot be read, only the usual name is left.
        let mut spare = names::list_leaders(self.uid).unwrap_or_default();
        spare.retain(|(group, place)| group == self.group && *place != Place::Usual);
        for (_, place) in spare {
            match self.ask(place, end)? {
                Attempt::Done(joined) => return Ok(Some(joined)),
                Attempt::Again => self.leaderless = None,
                Attempt::NoLeader(_) => {}
            }
            if clock::now() >= end {
                break;
            }
        }
        self.elsewhere = Some((clock::now() + step, (step * 2).min(most)));
        Ok(None)
    }

    /// Asks the leader for everything.
    fn ask(&mut self, place: Place, end: Time) -> Result<Attempt, SwitchError> {
        let connection = Tracked::open(self.record, || unix::socket(libc::SOCK_SEQPACKET));
        let connection = connection.map_err(refused("a socket"))?;
        let name = names::of_leader(self.group, self.uid, place);
        let reached = unix::reach(connection.as_fd(), name.as_bytes(), self.uid);
        let leader = match reached.map_err(refused("a connection to the leader"))? {
            Reached::Ours(leader) => leader,
            other => {
                self.skipped += u64::from(other == Reached::Foreign);
                return Ok(Attempt::NoLeader(other));
            }
        };
        let group = self.group.clone();
        if unix::send(connection.as_fd(), &Greeting::Join.emit(), &[]).is_err() {
            return Ok(Attempt::Again);
        }
        loop {
            let held = fork::hold();
            let mut bytes = [0; LEN];
            let message = match unix::receive(connection.as_fd(), &mut bytes, Room::Descriptors) {
                Ok(message) => message,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    drop(held);
                    if clock::now() >= end {
                        let (pid, seconds) = (leader.pid, LEADER.as_secs());
                        return Err(SwitchError::LeaderSilent { group, pid, seconds });
                    }
                    wait_readable(connection.as_fd(), Some(clock::until(end))).map_err(refused("a wait"))?;
                    continue;
                }
                Err(_) => return Ok(Attempt::Again),
            };
            let message = refuse_own_files(message)
                .ok_or_else(|| SwitchError::ForeignFile { group: self.group.clone(), pid: leader.pid })?;
            let answer = Answer::parse(bytes.get(..message.len).unwrap_or_default());
            match answer {
                Some(Answer::Sockets) => {
                    let Some((sockets, table)) = self.unpack(&held, message)? else {
                        return Ok(Attempt::Again);
                    };
                    drop(held);
                    let role = Role::Watching(connection);
                    let Self { record, skipped, .. } = *self;
                    return Ok(Attempt::Done(Box::new(Joined { sockets, table, record, role, skipped })));
                }
                Some(Answer::OtherVersion(theirs)) => {
                    return Err(SwitchError::OtherVersion { group, pid: leader.pid, theirs, ours: VERSION });
                }
                Some(Answer::Full) => return Err(SwitchError::LeaderFull { group, pid: leader.pid }),
                // The connection has ended, or the leader talks nonsense.
                _ => return Ok(Attempt::Again),
            }
        }
    }

    /// Takes over what came; `None`, and everything closed, if it is not all that there should be.
    fn unpack(
        &self,
        held: &fork::Held,
        message: Message,
    ) -> Result<Option<(Vec<Socket>, Table)>, SwitchError> {
        if message.cut || message.descriptors.len() != 1 + SOCKETS {
            // Others may have opened descriptors since there was room.
            drop(message);
            nofile::make_room()?;
            return Ok(None);
        }
        let mut descriptors = message.descriptors.into_iter();
        let table = descriptors.next().and_then(|file: OwnedFd| Table::adopt(file, &self.name).ok());
        let sockets: Option<Vec<Socket>> = descriptors.map(|fd| Socket::adopt(fd, PORT)).collect();
        let (Some(table), Some(sockets)) = (table, sockets) else { return Ok(None) };
        track(self.record, held, &sockets, &table).map_err(refused("descriptors"))?;
        Ok(Some((sockets, table)))
    }

    /// Makes a new group, if no process has the port.
    fn create(&self) -> Result<Joined, SwitchError> {
        let held = fork::hold();
        let sockets = ports::create(self.group, self.is_loopback)?;
        let table = Table::create(&self.name).map_err(refused("a shared file"))?;
        track(self.record, &held, &sockets, &table).map_err(refused("descriptors"))?;
        drop(held);
        Ok(Joined { sockets, table, record: self.record, role: Role::Electing, skipped: self.skipped })
    }

    /// The port is taken, but no process leads: waits a while, or says what has it.
    fn judge(&mut self, usual: Reached) -> Result<(), SwitchError> {
        let since = *self.leaderless.get_or_insert_with(clock::now);
        let waited = clock::now().since(since);
        if waited < OTHERS {
            return Ok(());
        }
        if let Some(error) = suspects::other_than_ours(self.group, self.uid) {
            return Err(error);
        }
        // What takes no connection just now may be a leader with much to do.
        if waited < LEADERLESS || usual == Reached::Busy { Ok(()) } else { Err(self.leaderless_error()) }
    }

    fn leaderless_error(&self) -> SwitchError {
        if let Some(error) = suspects::other_than_ours(self.group, self.uid) {
            return error;
        }
        suspects::why_leaderless(self.group, self.uid, LEADERLESS.as_secs())
    }
}

/// Nothing, if a file came that this process is a member of another group with: where locks are the process's, closing that
/// second descriptor of it would end all locks of that membership. So it stays open, and nothing more is asked of its
/// sender.
fn refuse_own_files(mut message: Message) -> Option<Message> {
    let (ours, others) = message.descriptors.drain(..).partition(|fd| Table::is_in_use(fd.as_fd()));
    message.descriptors = others;
    let ours: Vec<OwnedFd> = ours;
    if ours.is_empty() {
        return Some(message);
    }
    ours.into_iter().for_each(std::mem::forget);
    None
}
