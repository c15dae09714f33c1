//! The thread of a membership: it leads, or watches who does.
//!
//! It sleeps until something happens. Whoever watches has one connection, to the leader; when it ends,
//! everybody tries to bind the leader's name, one succeeds, and the others connect to that one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use ferroce_transport::Time;

use super::connections::Connections;
use super::fork::Tracked;
use super::forward::{self, Kind};
use super::mads::Desk;
use super::membership::Inner;
use super::multicast::GroupDesk;
use super::protocol::{Answer, Greeting, LEN};
use super::stats::StatsDesk;
use super::unix::{self, Room};
use crate::clock;
use crate::descriptor::timespec;
use crate::driver::Signals;
use crate::random::Random;

/// How long to wait between two attempts of an election, at least and at most, in microseconds. It
/// becomes longer while nothing comes of it.
const ELECTION: (u32, u32) = (100, 300);

/// The longest wait between two attempts.
const LONGEST: Duration = Duration::from_millis(50);

/// Forwarded messages that are taken in before something else is done.
const LETTERS: usize = 64;

/// What a membership does besides owning slots.
#[derive(Debug)]
pub(super) enum Role {
    /// It watches who leads, over this connection.
    Watching(Tracked),
    /// It tries to find out who leads.
    Electing,
}

/// Starts the thread. It takes no signals: they are the program's.
pub(super) fn spawn(inner: Arc<Inner>, role: Role) -> io::Result<JoinHandle<()>> {
    let mut random = Random::from_system()?;
    let _blocked = Signals::block_all();
    // A new group should be found at once by whoever comes next.
    let mut state = State::from(role);
    if matches!(state, State::Electing { .. }) {
        state = elect(&inner, 0, &mut random);
    }
    std::thread::Builder::new().name("ferroce-switch".to_owned()).spawn(move || {
        // A panic has said why. The slots of this process go on; somebody else will lead.
        drop(catch_unwind(AssertUnwindSafe(|| run(&inner, state, &mut random))));
    })
}

/// What the thread does just now.
enum State {
    Leading(Box<Leading>),
    Watching(Tracked),
    /// Between two attempts; how many there were.
    Electing {
        attempts: u32,
        again: Time,
    },
}

struct Leading {
    listener: Tracked,
    connections: Connections,
    desk: Desk,
}

impl From<Role> for State {
    fn from(role: Role) -> Self {
        match role {
            Role::Watching(connection) => Self::Watching(connection),
            Role::Electing => Self::Electing { attempts: 0, again: clock::now() },
        }
    }
}

fn run(inner: &Inner, mut state: State, random: &mut Random) {
    let mut letter = vec![0; forward::LONGEST];
    let mut polled = Vec::new();
    let mut groups = GroupDesk::new();
    let mut stats = StatsDesk::open(inner);
    while !inner.stop.load(Ordering::SeqCst) {
        polled.clear();
        polled.extend([inner.bell.as_fd().as_raw_fd(), inner.post.raw()].map(entry));
        let wake = match &state {
            State::Leading(leading) => {
                if leading.connections.accepts() {
                    polled.push(entry(leading.listener.raw()));
                } else {
                    polled.push(entry(-1));
                }
                polled.push(entry(inner.socket_of_nobody().raw()));
                polled.extend(leading.connections.descriptors().map(entry));
                leading.connections.next_deadline()
            }
            State::Watching(connection) => {
                polled.push(entry(connection.raw()));
                None
            }
            State::Electing { again, .. } => Some(*again),
        };
        // Behind the rest, whatever that is.
        let groups_from = polled.len();
        polled.extend(groups.descriptors(inner).map(entry));
        let stats_from = polled.len();
        polled.extend(stats.descriptors().map(entry));
        poll(&mut polled, [wake, stats.next_deadline()].into_iter().flatten().min());
        if is_ready(&polled[0]) {
            inner.bell.clear();
        }
        if is_ready(&polled[1]) {
            take_letters(inner, &mut letter);
        }
        groups.look(inner, &polled[groups_from..stats_from]);
        stats.serve(inner, &polled[stats_from..]);
        polled.truncate(groups_from);
        state = match state {
            State::Leading(mut leading) => {
                lead(inner, &mut leading, &polled[2..]);
                State::Leading(leading)
            }
            State::Watching(connection) if is_ready(&polled[2]) => watch(inner, connection, random),
            State::Electing { attempts, again } if clock::now() >= again => elect(inner, attempts, random),
            other => other,
        };
    }
    inner.leads.store(false, Ordering::SeqCst);
}

/// Tries once to lead or to find out who does.
fn elect(inner: &Inner, attempts: u32, random: &mut Random) -> State {
    let name = inner.group.leader_name(inner.uid);
    if let Ok(listener) = Tracked::open(inner.record, || unix::listen(name.as_bytes())) {
        inner.leads.store(true, Ordering::SeqCst);
        return State::Leading(Box::new(Leading {
            listener,
            connections: Connections::default(),
            desk: Desk::new(),
        }));
    }
    let connection = Tracked::open(inner.record, || {
        let socket = unix::socket(libc::SOCK_SEQPACKET)?;
        unix::connect(socket.as_fd(), name.as_bytes())?;
        Ok(socket)
    });
    if let Ok(connection) = connection
        && unix::peer(connection.as_fd()).is_ok_and(|peer| peer.uid == inner.uid)
        && unix::send(connection.as_fd(), &Greeting::Watch.emit(), &[]).is_ok()
    {
        return State::Watching(connection);
    }
    let (least, most) = ELECTION;
    let step = Duration::from_micros((least + random.next_u32() % (most - least)).into());
    let step = step.saturating_mul(1 << attempts.saturating_sub(8).min(10)).min(LONGEST);
    State::Electing { attempts: attempts.saturating_add(1), again: clock::now() + step }
}

/// The leader says something, or is gone.
fn watch(inner: &Inner, connection: Tracked, random: &mut Random) -> State {
    let mut bytes = [0; LEN];
    match unix::receive(connection.as_fd(), &mut bytes, Room::None) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => State::Watching(connection),
        Ok(message) if message.len > 0 => {
            let answer = Answer::parse(bytes.get(..message.len).unwrap_or_default());
            if answer == Some(Answer::Watching) && !message.cut {
                return State::Watching(connection);
            }
            // It will not have us, or breaks the rules: ask again, but not at once.
            State::Electing { attempts: u32::MAX, again: clock::now() + LONGEST }
        }
        _ => {
            drop(connection);
            elect(inner, 0, random)
        }
    }
}

/// Serves newcomers and members, and reads slot 0. `polled` begins with the listener and that slot.
fn lead(inner: &Inner, leading: &mut Leading, polled: &[libc::pollfd]) {
    if is_ready(&polled[1]) {
        leading.desk.look(inner);
    }
    leading.connections.serve(inner, &polled[2..]);
    if is_ready(&polled[0]) {
        leading.connections.accept(inner, leading.listener.as_fd());
    }
}

/// Takes in what other members have forwarded.
fn take_letters(inner: &Inner, buffer: &mut [u8]) {
    for _ in 0..LETTERS {
        let Ok(message) = unix::receive(inner.post.as_fd(), buffer, Room::Sender) else { return };
        let letter = buffer.get(..message.len).and_then(forward::parse);
        let Some((kind, slot, arrival)) =
            letter.filter(|_| !message.cut && forward::is_ours(&message, inner.uid))
        else {
            inner.counts.violations.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        // What is not for us is not passed on: nothing goes round in circles.
        let taken = match kind {
            Kind::Packets => inner.deliver(slot, &arrival),
            Kind::Management => inner.mads.push(&arrival),
        };
        if !taken {
            inner.counts.strays.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn entry(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

fn is_ready(entry: &libc::pollfd) -> bool {
    entry.revents != 0
}

fn poll(entries: &mut [libc::pollfd], wake: Option<Time>) {
    let limit = wake.map(|wake| timespec(clock::until(wake)));
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = entries.len() as libc::nfds_t;
    // SAFETY: the pointers are to entries and a time that live during the call, or null for no limit.
    let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, limit, std::ptr::null()) };
    if ready < 0 {
        for entry in entries {
            entry.revents = 0;
        }
    }
}
