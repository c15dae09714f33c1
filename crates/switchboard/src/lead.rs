//! The thread of a membership: it leads, or watches the leader.
//!
//! It sleeps until something happens. A member that watches has one connection, to the leader; when it ends,
//! all members try to lock the leader's byte of the shared file, one succeeds, listens at a name and says there
//! at which, and the others connect to that one. Another user's socket at a name is not in the way.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use ferroce_sys::Random;
use ferroce_sys::SignalsBlocked;
use ferroce_sys::clock;
use ferroce_sys::descriptor;
use ferroce_sys::fork::Tracked;
use ferroce_sys::unix::{self, Reached, Room};
use ferroce_transport::Time;

use super::connections::Connections;
use super::forward::{self, Kind};
use super::inner::Inner;
use super::lanes::LaneDesk;
use super::mads::Desk;
use super::multicast::GroupDesk;
use super::names::{self, Place};
use super::protocol::{Answer, Greeting, LEN};
use super::refusals::count;
use super::stats::StatsDesk;

/// How long to wait between two attempts of an election, at least and at most, in microseconds. It
/// becomes longer while nothing comes of it.
const ELECTION: (u32, u32) = (100, 300);

/// The longest wait between two attempts.
const LONGEST: Duration = Duration::from_millis(50);

/// How long to wait before the usual name is tried again, in the beginning and at most.
const USUAL: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(500));

/// Forwarded messages that are taken in before something else is done.
const LETTERS: usize = 64;

/// What a membership does besides owning slots.
#[derive(Debug)]
pub(super) enum Role {
    /// It watches the leader, over this connection.
    Watching(Tracked),
    /// It tries to lead, or to find the leader.
    Electing,
}

/// Starts the thread. It takes no signals: they are the program's.
pub(super) fn spawn(inner: Arc<Inner>, role: Role) -> io::Result<JoinHandle<()>> {
    let mut random = Random::from_system()?;
    let _blocked = SignalsBlocked::new();
    // A new group should be found at once by the next process.
    let mut state = State::from(role);
    if matches!(state, State::Electing { .. }) {
        state = elect(&inner, 0, &mut random);
    }
    // A process that asks for counters finds every process that has opened a device.
    let stats = StatsDesk::open(&inner, &mut random);
    std::thread::Builder::new().name("ferroce-switch".to_owned()).spawn(move || {
        // A panic has said why. The slots of this process go on; another process will lead.
        drop(catch_unwind(AssertUnwindSafe(|| run(&inner, state, stats, &mut random))));
        // By now none listens any more.
        inner.leads.store(false, Ordering::SeqCst);
        inner.table.unlock_leader();
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
    listeners: Listeners,
    connections: Connections,
    desk: Desk,
}

/// Where a leader listens.
struct Listeners {
    usual: Option<Tracked>,
    /// While the usual name is not to be had, and then still: a member may be on its way.
    spare: Option<Tracked>,
    /// When to try the usual name again, and how long to wait after that.
    again: Option<(Time, Duration)>,
}

impl Listeners {
    /// Listens at the usual name, or else at a spare one; `None` if the system gives no socket.
    fn open(inner: &Inner, random: &mut Random) -> Option<Self> {
        if let Some(usual) = listen(inner, Place::Usual) {
            return Some(Self { usual: Some(usual), spare: None, again: None });
        }
        let drawn = Place::Spare(random.next_u64().max(1));
        let spare = listen(inner, drawn)?;
        let (first, _) = USUAL;
        Some(Self { usual: None, spare: Some(spare), again: Some((clock::now() + first, first)) })
    }

    /// What to wait for.
    fn descriptors(&self) -> [RawFd; 2] {
        [&self.usual, &self.spare].map(|listener| listener.as_ref().map_or(-1, Tracked::raw))
    }

    /// The last leader may have ended by now, or another user's process that had the usual name.
    fn try_usual(&mut self, inner: &Inner) {
        let Some((when, step)) = self.again else { return };
        let now = clock::now();
        if now < when {
            return;
        }
        let (_, most) = USUAL;
        self.usual = listen(inner, Place::Usual);
        self.again = self.usual.is_none().then(|| (now + step, (step * 2).min(most)));
    }
}

/// Listens at a name, and tells the members where.
fn listen(inner: &Inner, place: Place) -> Option<Tracked> {
    let name = names::of_leader(&inner.group, inner.uid, place);
    let listener = Tracked::open(inner.record, || unix::listen(name.as_bytes())).ok()?;
    inner.table.publish_leader(place);
    Some(listener)
}

impl From<Role> for State {
    fn from(role: Role) -> Self {
        match role {
            Role::Watching(connection) => Self::Watching(connection),
            Role::Electing => Self::Electing { attempts: 0, again: clock::now() },
        }
    }
}

fn run(inner: &Inner, mut state: State, mut stats: StatsDesk, random: &mut Random) {
    let mut letter = vec![0; forward::LONGEST];
    let mut polled = Vec::new();
    let (mut groups, mut lanes) = (GroupDesk::new(), LaneDesk::default());
    while !inner.stop.load(Ordering::SeqCst) {
        polled.clear();
        polled.extend([inner.bell.as_fd().as_raw_fd(), inner.post.raw()].map(entry));
        let wake = match &state {
            State::Leading(leading) => {
                let accepts = leading.connections.accepts();
                let listeners = leading.listeners.descriptors();
                polled.extend(listeners.map(|listener| entry(if accepts { listener } else { -1 })));
                polled.push(entry(inner.common_socket().raw()));
                polled.extend(leading.connections.descriptors().map(entry));
                let late = leading.desk.late.descriptors(inner);
                polled.extend(late.map(|fd| libc::pollfd { events: libc::POLLOUT, ..entry(fd) }));
                let again = leading.listeners.again.map(|(when, _)| when);
                let times = [leading.connections.next_deadline(), again, leading.desk.late.next_try()];
                times.into_iter().flatten().min()
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
        let lanes_from = polled.len();
        polled.extend(lanes.descriptors(inner).map(entry));
        let times = [wake, stats.next_deadline(), lanes.next_deadline()];
        poll(&mut polled, times.into_iter().flatten().min());
        if is_ready(&polled[0]) {
            inner.bell.clear();
        }
        if is_ready(&polled[1]) {
            take_letters(inner, &mut letter);
        }
        groups.look(inner, &polled[groups_from..stats_from]);
        stats.serve(inner, &polled[stats_from..lanes_from]);
        lanes.serve(inner, &polled[lanes_from..]);
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
}

/// Tries once to lead, or to find the leader.
fn elect(inner: &Inner, attempts: u32, random: &mut Random) -> State {
    if inner.table.lock_leader().unwrap_or(false) {
        if let Some(listeners) = Listeners::open(inner, random) {
            inner.leads.store(true, Ordering::SeqCst);
            let (connections, desk) = (Connections::default(), Desk::new());
            return State::Leading(Box::new(Leading { listeners, connections, desk }));
        }
        inner.table.unlock_leader();
    } else if let Some(connection) = follow(inner) {
        return State::Watching(connection);
    }
    let again = clock::now() + until_next(attempts, random.next_u32());
    State::Electing { attempts: attempts.saturating_add(1), again }
}

/// How long to wait before the next attempt of an election, by how many there were and a number that was drawn.
fn until_next(attempts: u32, drawn: u32) -> Duration {
    let (least, most) = ELECTION;
    let step = Duration::from_micros((least + drawn % (most - least)).into());
    step.saturating_mul(1 << attempts.saturating_sub(8).min(10)).min(LONGEST)
}

/// A connection to the leader, if it listens by now where the shared file says.
fn follow(inner: &Inner) -> Option<Tracked> {
    let name = names::of_leader(&inner.group, inner.uid, inner.table.leader());
    let connection = Tracked::open(inner.record, || unix::socket(libc::SOCK_SEQPACKET)).ok()?;
    let reached = unix::reach(connection.as_fd(), name.as_bytes(), inner.uid).ok()?;
    if reached == Reached::Foreign {
        count(&inner.refused.names_skipped);
    }
    let is_ours = matches!(reached, Reached::Ours(_));
    let greeted = is_ours && unix::send(connection.as_fd(), &Greeting::Watch.emit(), &[]).is_ok();
    greeted.then_some(connection)
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

/// Serves newcomers and members, and reads slot 0. `polled` begins with both listeners and that slot.
fn lead(inner: &Inner, leading: &mut Leading, polled: &[libc::pollfd]) {
    if is_ready(&polled[2]) {
        leading.desk.look(inner);
    }
    leading.desk.late.flush(inner);
    leading.connections.serve(inner, &polled[3..]);
    let Listeners { usual, spare, .. } = &leading.listeners;
    for (listener, entry) in [usual, spare].into_iter().zip(polled) {
        if let Some(listener) = listener.as_ref().filter(|_| is_ready(entry)) {
            leading.connections.accept(inner, listener.as_fd());
        }
    }
    leading.listeners.try_usual(inner);
}

/// Takes in what other members have forwarded.
fn take_letters(inner: &Inner, buffer: &mut [u8]) {
    for _ in 0..LETTERS {
        let Ok(message) = unix::receive(inner.post.as_fd(), buffer, Room::Sender) else { return };
        if !forward::is_ours(&message, inner.uid) {
            count(&inner.refused.foreign_letters);
            continue;
        }
        let letter = buffer.get(..message.len).and_then(forward::parse);
        let Some((kind, slot, arrival)) = letter.filter(|_| !message.cut) else {
            count(&inner.refused.violations);
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
    descriptor::poll(entries, wake.map(clock::until));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_between_attempts_is_drawn_within_its_bounds_and_doubles_after_a_while() {
        let micros = |attempts, drawn| until_next(attempts, drawn).as_micros();
        for attempts in 0..=8 {
            assert_eq!([0, 1, 199, 200, 399].map(|drawn| micros(attempts, drawn)), [100, 101, 299, 100, 299]);
        }
        assert_eq!([9, 10, 11].map(|attempts| micros(attempts, 0)), [200, 400, 800]);
        assert_eq!(micros(17, 0), 50_000, "and not longer than the longest");
        assert_eq!(micros(u32::MAX, u32::MAX), 50_000);
    }
}
