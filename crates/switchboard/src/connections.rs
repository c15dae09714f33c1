//! The leader's side: its connections, and what each of them wants.
//!
//! All are of the same user, and suspected all the same: a connection that says anything else than one
//! greeting, or says nothing in time, is cut. The others do not notice.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::fork::Tracked;
use ferroce_sys::unix::{self, Peer, Room};
use ferroce_transport::Time;

use super::inner::Inner;
use super::protocol::{Answer, Greeting, LEN, VERSION, Violation};
use super::refusals::count;
use super::survey;

/// Connections at a time.
const MOST: usize = 512;

/// Connections of one process at a time.
const MOST_OF_ONE: usize = 8;

/// Connections that are accepted before something else is done.
const NEWCOMERS: usize = 64;

/// How long a connection may take to say what it wants.
const GREETING: Duration = Duration::from_secs(2);

/// How long a newcomer may take to make room for what it asked for.
const TAKING: Duration = Duration::from_secs(10);

/// When to try again what the system refused for now.
const AGAIN: Duration = Duration::from_millis(1);

/// How long no connection is accepted after the system had no descriptor for it.
const EXHAUSTED: Duration = Duration::from_millis(20);

/// All connections of a leader.
#[derive(Debug, Default)]
pub(super) struct Connections {
    all: Vec<Connection>,
    /// Until when none is accepted.
    exhausted: Option<Time>,
}

#[derive(Debug)]
struct Connection {
    socket: Tracked,
    peer: Peer,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// It has said nothing yet.
    Silent { until: Time },
    /// It is owed the sockets, which the system does not let through just now.
    Owed { again: Time, until: Time },
    /// It watches.
    Member,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    /// It has ended, or got what it wanted.
    Ends,
    /// It broke the rules.
    Cut,
}

impl Connections {
    /// Their descriptors, in the order in which [`serve`](Self::serve) wants to know about them.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.all.iter().map(|connection| connection.socket.raw())
    }

    /// Whether new ones are accepted just now.
    pub(super) fn accepts(&self) -> bool {
        self.exhausted.is_none_or(|until| clock::now() >= until)
    }

    /// When something has to be done even if no connection says anything.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let deadlines = self.all.iter().filter_map(|connection| match connection.state {
            State::Silent { until } => Some(until),
            State::Owed { again, .. } => Some(again),
            State::Member => None,
        });
        let exhausted = self.exhausted.filter(|until| *until > clock::now());
        deadlines.chain(exhausted).min()
    }

    /// Hears the connections that have something to say, and ends those whose time is over.
    pub(super) fn serve(&mut self, inner: &Inner, polled: &[libc::pollfd]) {
        let now = clock::now();
        let mut place = 0;
        self.all.retain_mut(|connection| {
            let ready = polled.get(place).is_some_and(|entry| entry.revents != 0);
            place += 1;
            connection.stays(inner, ready, now)
        });
    }

    /// Takes in those that want to be connected, or some of them: a flood must not keep the leader for ever.
    pub(super) fn accept(&mut self, inner: &Inner, listener: BorrowedFd<'_>) {
        for _ in 0..NEWCOMERS {
            match Tracked::open(inner.record, || unix::accept(listener)) {
                Ok(socket) => self.add(inner, socket),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => {
                        self.exhausted = Some(clock::now() + EXHAUSTED);
                        // Those that have said nothing are the first to go.
                        self.all.retain(|connection| !matches!(connection.state, State::Silent { .. }));
                        return;
                    }
                    Some(libc::EINTR | libc::ECONNABORTED) => {}
                    _ => return,
                },
            }
        }
    }

    fn add(&mut self, inner: &Inner, socket: Tracked) {
        let Some(peer) = unix::peer(socket.as_fd()).ok().filter(|peer| peer.uid == inner.uid) else {
            count(&inner.refused.foreign_connections);
            return;
        };
        if self.all.len() >= MOST
            && let Some(silent) =
                self.all.iter().position(|other| matches!(other.state, State::Silent { .. }))
        {
            self.all.remove(silent);
        }
        // A process that cannot be seen from here has no number.
        let of_one = self.all.iter().filter(|other| other.peer == peer && peer.pid != 0).count();
        if self.all.len() >= MOST || of_one >= MOST_OF_ONE {
            count(&inner.refused.connections_full);
            drop(unix::send(socket.as_fd(), &Answer::Full.emit(), &[]));
            return;
        }
        let mut connection =
            Connection { socket, peer, state: State::Silent { until: clock::now() + GREETING } };
        // Most have said it by now.
        if connection.stays(inner, true, clock::now()) {
            self.all.push(connection);
        }
    }
}

impl Connection {
    /// Hears it and sees whether its time is over; whether it stays.
    fn stays(&mut self, inner: &Inner, ready: bool, now: Time) -> bool {
        let fate = self.serve(inner, ready, now);
        if fate == Fate::Cut {
            count(&inner.refused.violations);
        }
        fate == Fate::Stays
    }

    fn serve(&mut self, inner: &Inner, ready: bool, now: Time) -> Fate {
        if ready {
            let fate = self.hear(inner);
            if fate != Fate::Stays {
                return fate;
            }
        }
        match self.state {
            State::Silent { until } if now >= until => Fate::Cut,
            State::Owed { until, .. } if now >= until => Fate::Cut,
            State::Owed { again, until } if now >= again => self.give(inner, until),
            _ => Fate::Stays,
        }
    }

    fn hear(&mut self, inner: &Inner) -> Fate {
        // One byte more than a greeting, so that a longer one is seen.
        let mut bytes = [0; LEN + 1];
        let message = match unix::receive(self.socket.as_fd(), &mut bytes, Room::None) {
            Ok(message) => message,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fate::Stays,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Fate::Stays,
            Err(_) => return Fate::Ends,
        };
        if message.len == 0 {
            return Fate::Ends;
        }
        let is_silent = matches!(self.state, State::Silent { .. });
        if !is_silent || message.cut {
            return Fate::Cut;
        }
        match Greeting::parse(&bytes[..message.len]) {
            Ok(Greeting::Join) => self.give(inner, clock::now() + TAKING),
            Ok(Greeting::Watch) => {
                self.state = State::Member;
                self.say(&Answer::Watching.emit())
            }
            Ok(Greeting::Survey) => {
                // The process that asked reads it from the queue when the connection has ended.
                self.say(&survey::answer(inner));
                Fate::Ends
            }
            Err(Violation::OtherVersion) => {
                self.say(&Answer::OtherVersion(VERSION).emit());
                Fate::Cut
            }
            // That is asked of each process by itself.
            Ok(Greeting::Stats | Greeting::Record | Greeting::Lane) | Err(Violation::Garbage) => Fate::Cut,
        }
    }

    fn say(&self, bytes: &[u8]) -> Fate {
        match unix::send(self.socket.as_fd(), bytes, &[]) {
            Ok(()) => Fate::Stays,
            Err(_) => Fate::Ends,
        }
    }

    /// Hands over all sockets and the shared file, in one message. The kernel limits how many descriptors of
    /// a user may be under way: a newcomer that waits keeps its place.
    fn give(&mut self, inner: &Inner, until: Time) -> Fate {
        match unix::send(self.socket.as_fd(), &Answer::Sockets.emit(), &inner.descriptors()) {
            Ok(()) => {
                self.state = State::Member;
                Fate::Stays
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ETOOMANYREFS | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                    self.state = State::Owed { again: clock::now() + AGAIN, until };
                    Fate::Stays
                }
                _ => Fate::Ends,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::tests::{enter, eventually};

    /// A connection of this process in a state, and its other end.
    fn connection(inner: &Inner, name: &str, state: State) -> (OwnedFd, Connection) {
        let name = format!("ferroce/test/connections/{}/{name}", std::process::id());
        let listener = unix::listen(name.as_bytes()).unwrap();
        let peer = unix::socket(libc::SOCK_SEQPACKET).unwrap();
        unix::connect(peer.as_fd(), name.as_bytes()).unwrap();
        let socket = Tracked::open(inner.record, || unix::accept(listener.as_fd())).unwrap();
        (peer, Connection { socket, peer: Peer { pid: 1, uid: inner.uid }, state })
    }

    #[test]
    fn time_is_over_for_those_that_say_nothing_or_take_nothing() {
        let ours = enter(39);
        let inner = ours.member().inner();
        let now = clock::now();
        let (past, future) = (now, now + Duration::from_secs(3600));
        for (at, (state, fate)) in [
            (State::Silent { until: past }, Fate::Cut),
            (State::Silent { until: future }, Fate::Stays),
            (State::Owed { again: past, until: past }, Fate::Cut),
            (State::Owed { again: future, until: future }, Fate::Stays),
            (State::Owed { again: past, until: future }, Fate::Stays),
            (State::Member, Fate::Stays),
        ]
        .into_iter()
        .enumerate()
        {
            let (peer, mut connection) = connection(inner, &at.to_string(), state);
            assert_eq!(connection.serve(inner, false, now), fate, "{state:?}");
            let is_due = matches!(state, State::Owed { again, until } if again == past && until == future);
            let answer = unix::receive(peer.as_fd(), &mut [0; LEN], Room::Descriptors);
            let descriptors = answer.map_or(0, |message| message.descriptors.len());
            assert_eq!(descriptors, if is_due { 1 + crate::SOCKETS } else { 0 }, "{state:?}");
            assert_eq!(matches!(connection.state, State::Member), is_due || matches!(state, State::Member));
            // What has ended is not to blame. A program that another test starts has a copy of the peer's end
            // until it runs.
            drop(peer);
            let before = inner.refused.read().violations;
            eventually("its end is noticed", || !connection.stays(inner, true, now));
            assert_eq!(inner.refused.read().violations, before, "{state:?}");
        }
    }

    #[test]
    fn the_next_deadline_is_that_of_the_first_whose_time_comes() {
        let ours = enter(40);
        let inner = ours.member().inner();
        let now = clock::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut connections = Connections::default();
        assert_eq!((connections.next_deadline(), connections.accepts()), (None, true));
        let states = [
            State::Member,
            State::Silent { until: at(3000) },
            State::Owed { again: at(2000), until: at(1000) },
        ];
        let mut peers = Vec::new();
        for (number, state) in states.into_iter().enumerate() {
            let (peer, one) = connection(inner, &format!("deadline/{number}"), state);
            peers.push(peer);
            connections.all.push(one);
        }
        assert_eq!(connections.next_deadline(), Some(at(2000)));
        connections.exhausted = Some(at(1500));
        assert_eq!((connections.next_deadline(), connections.accepts()), (Some(at(1500)), false));
        connections.exhausted = Some(now);
        assert_eq!((connections.next_deadline(), connections.accepts()), (Some(at(2000)), true));
    }

    #[test]
    fn a_connection_whose_other_end_went_without_reading_its_answer_ends() {
        let ours = enter(45);
        let inner = ours.member().inner();
        let (peer, mut connection) = connection(inner, "unread", State::Member);
        assert_eq!(connection.hear(inner), Fate::Stays, "nothing has come");
        assert_eq!(connection.say(&Answer::Watching.emit()), Fate::Stays);
        drop(peer);
        assert_eq!(connection.hear(inner), Fate::Ends, "the system calls that a reset");
    }
}
