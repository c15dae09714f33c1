//! How the owners of two slots hand each other descriptors, of which they make a path of their own: a *lane*.
//!
//! Every process listens at a name that it drew and told in the shared file. A thread of the program that wants a lane
//! connects there, sends one message with its descriptors, and waits for one answer. The other process answers by the
//! thread of its switchboard, so that two processes that reach for each other at the same moment both get an answer. The
//! connection stays: nothing is said over it any more, and its end tells that the other process is gone, or has given
//! the lane up.
//!
//! Processes are told apart by slots and incarnations, and never by their numbers, which mean nothing in another
//! container. What a message says is compared with the shared file, and with the locks on it.
//!
//! Received descriptors are a danger (see [`Room`]). They are none here: a process takes part only if its locks belong to a
//! thread with descriptors of its own, so that none that comes here can end a lock when it is closed, and of more than
//! it takes none comes at all.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use ferroce_sys::fork::{self, Record, Tracked};
use ferroce_sys::unix::{self, Room};
use ferroce_sys::{clock, descriptor};
use ferroce_transport::Time;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::SLOTS;
use super::inner::Inner;
use super::lane::{LaneOffer, Lifeline, MOST_ANSWERED, MOST_OFFERED, Reached};
use super::names;
use super::no_lane::{LaneRefusal, NoLane};
use super::protocol::{Answer, Greeting, LEN, VERSION, Violation};
use super::refusals::count;

/// How long a thread that offers waits, in all.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long it waits before it connects once more to a process whose queue of connections is full.
const AGAIN: Duration = Duration::from_millis(1);

/// How long a connection may take to make its offer. A process that connects makes it at once.
const SILENCE: Duration = Duration::from_secs(1);

/// Connections that have not made their offer yet, at a time.
pub(super) const MOST_SILENT: usize = 16;

/// Connections that are accepted before something else is done.
const NEWCOMERS: usize = 16;

/// How long no connection is accepted after the system had no descriptor for it.
const EXHAUSTED: Duration = Duration::from_millis(20);

/// What follows the greeting of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Offer {
    /// What only members of the group know.
    pub(super) secret: u64,
    /// The incarnation of the slot that it comes from.
    pub(super) incarnation: u64,
    /// The incarnation of the slot that it is for.
    pub(super) expected: u64,
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) reserved: [u8; 6],
}

impl Offer {
    pub(super) fn emit(&self) -> Vec<u8> {
        [Greeting::Lane.emit().as_slice(), self.as_bytes()].concat()
    }
}

/// Bytes of an offer.
const OFFER: usize = LEN + size_of::<Offer>();

/// Bytes of an answer at most.
const ANSWER: usize = LEN + 1;

/// Offers descriptors to the owner of a slot; `from` is a slot of this process and its incarnation.
pub(super) fn reach(
    inner: &Inner,
    from: (u8, u64),
    to: u8,
    offer: &[BorrowedFd<'_>],
) -> Result<Reached, NoLane> {
    if !inner.is_ours() {
        return Err(NoLane::Forked);
    }
    if inner.owns(to.into()) {
        return Err(NoLane::SameProcess { slot: to });
    }
    if let Some(unfit) = inner.lanes.unfit() {
        return Err(unfit.clone());
    }
    if offer.len() > MOST_OFFERED {
        return Err(NoLane::TooManyOffered { count: offer.len(), most: MOST_OFFERED });
    }
    let end = clock::now() + PATIENCE;
    let owner = inner.owner_of(to).filter(|owner| lives(inner, to, owner.incarnation));
    let owner = owner.ok_or(NoLane::NoOwner { slot: to })?;
    let socket = connect(inner, to, (owner.lanes, owner.incarnation), end)?;
    // In this order: what was connected to is the owner if that lives still.
    if !lives(inner, to, owner.incarnation) {
        return Err(NoLane::Gone { slot: to });
    }
    let (from, incarnation) = from;
    let secret = inner.table.secret();
    let row = Offer { secret, incarnation, expected: owner.incarnation, from, to, reserved: [0; 6] };
    let message = row.emit();
    let descriptors: Vec<RawFd> = offer.iter().map(AsRawFd::as_raw_fd).collect();
    unix::send(socket.as_fd(), &message, &descriptors).map_err(|error| failed(to, &error))?;
    let descriptors = hear_answer(inner, &socket, to, end)?;
    Ok(Reached { incarnation: owner.incarnation, descriptors, lifeline: Lifeline::new(Arc::new(socket)) })
}

/// Whether a slot has this very owner, and that lives.
fn lives(inner: &Inner, slot: u8, incarnation: u64) -> bool {
    inner.incarnation_of(slot) == Some(incarnation) && inner.is_alive(slot.into())
}

/// Connects to the owner of a slot, of which the name and the incarnation are known.
fn connect(inner: &Inner, to: u8, (drawn, incarnation): (u64, u64), end: Time) -> Result<Tracked, NoLane> {
    if drawn == 0 {
        return Err(NoLane::NotListening { slot: to });
    }
    let name = names::of_lanes(drawn);
    loop {
        let socket = Tracked::open(inner.record, || unix::socket(libc::SOCK_SEQPACKET));
        let socket = socket.map_err(|error| failed(to, &error))?;
        let reached = unix::reach(socket.as_fd(), name.as_bytes(), inner.uid);
        match reached.map_err(|error| failed(to, &error))? {
            unix::Reached::Ours(_) => return Ok(socket),
            unix::Reached::Foreign => return Err(NoLane::OtherUser { slot: to }),
            unix::Reached::Nothing if lives(inner, to, incarnation) => {
                return Err(NoLane::NotListening { slot: to });
            }
            unix::Reached::Nothing => return Err(NoLane::Gone { slot: to }),
            unix::Reached::Busy if clock::now() >= end => return Err(no_answer(to)),
            unix::Reached::Busy => clock::pause(AGAIN),
        }
    }
}

/// Waits for the answer; what came with it.
fn hear_answer(inner: &Inner, socket: &Tracked, to: u8, end: Time) -> Result<Vec<Tracked>, NoLane> {
    let mut bytes = [0; ANSWER + 1];
    let came = loop {
        match receive(inner.record, socket, &mut bytes, MOST_ANSWERED) {
            Ok(came) => break came,
            Err(error) if is_nothing_yet(&error) => {
                let now = clock::now();
                if now >= end {
                    return Err(no_answer(to));
                }
                let mut entry = [libc::pollfd { fd: socket.raw(), events: libc::POLLIN, revents: 0 }];
                descriptor::poll(&mut entry, Some(end.since(now)));
            }
            Err(error) => return Err(failed(to, &error)),
        }
    };
    let said = bytes.get(..came.len).unwrap_or_default();
    match (Answer::parse(said), said.get(LEN..)) {
        _ if said.is_empty() => Err(NoLane::Gone { slot: to }),
        (Some(Answer::OtherVersion(theirs)), _) => {
            Err(NoLane::OtherVersion { slot: to, theirs, ours: VERSION })
        }
        (Some(Answer::Lane), Some([])) if !came.cut => Ok(came.descriptors),
        // What there was room for did not come.
        (Some(Answer::Lane), Some([])) if came.descriptors.len() < MOST_ANSWERED => {
            Err(NoLane::NoDescriptors)
        }
        (Some(Answer::NoLane), Some(&[code])) if !came.cut => match LaneRefusal::of_code(code) {
            Some(why) => Err(NoLane::Refused { slot: to, why }),
            None => Err(NoLane::BrokenAnswer { slot: to }),
        },
        _ => Err(NoLane::BrokenAnswer { slot: to }),
    }
}

fn no_answer(slot: u8) -> NoLane {
    NoLane::NoAnswer { slot, millis: u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX) }
}

/// What an error of the system means.
fn failed(slot: u8, error: &io::Error) -> NoLane {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::ETOOMANYREFS) => {
            NoLane::NoDescriptors
        }
        Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN) => NoLane::Gone { slot },
        code => NoLane::System { slot, code: code.unwrap_or(0) },
    }
}

/// A message, with descriptors that no forked child keeps.
struct Came {
    len: usize,
    cut: bool,
    descriptors: Vec<Tracked>,
}

/// Receives a message with so many descriptors at most.
fn receive(record: &'static Record, socket: &Tracked, bytes: &mut [u8], most: usize) -> io::Result<Came> {
    // No fork may happen before they are known.
    let held = fork::hold();
    let mut message = unix::receive(socket.as_fd(), bytes, Room::Few(most))?;
    let came = mem::take(&mut message.descriptors).into_iter();
    let known: Vec<io::Result<Tracked>> = came.map(|one| Tracked::adopt(record, &held, one)).collect();
    // To close one of them takes the same.
    drop(held);
    let all = known.len();
    let descriptors: Vec<Tracked> = known.into_iter().flatten().collect();
    let cut = message.cut || descriptors.len() < all;
    Ok(Came { len: message.len, cut, descriptors })
}

fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The connections of those that are about to offer something, as the switchboard's thread has them.
#[derive(Debug, Default)]
pub(super) struct LaneDesk {
    silent: Vec<(Tracked, Time)>,
    /// Until when none is accepted, because the system had no descriptor for one.
    exhausted: Option<Time>,
}

impl LaneDesk {
    /// What to wait for: the listener, then the connections. -1 stands for a listener that is left alone.
    pub(super) fn descriptors(&mut self, inner: &Inner) -> impl Iterator<Item = RawFd> {
        self.exhausted = self.exhausted.filter(|until| clock::now() < *until);
        let listener = inner.lanes.listener().filter(|_| self.exhausted.is_none());
        let listener = listener.map_or(-1, Tracked::raw);
        std::iter::once(listener).chain(self.silent.iter().map(|(socket, _)| socket.raw()))
    }

    /// When a connection has been silent for too long, or one may be accepted again.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.silent.iter().map(|(_, until)| *until).chain(self.exhausted).min()
    }

    /// Hears those that offer. `polled` is of the descriptors, in order.
    pub(super) fn serve(&mut self, inner: &Inner, polled: &[libc::pollfd]) {
        let is_ready =
            |place: usize| polled.get(place).is_some_and(|entry: &libc::pollfd| entry.revents != 0);
        let now = clock::now();
        for (place, (socket, until)) in (1..).zip(mem::take(&mut self.silent)) {
            let stays = if is_ready(place) { hear(inner, socket) } else { Some(socket) };
            match stays {
                Some(socket) if now < until => self.silent.push((socket, until)),
                Some(_) => count(&inner.refused.violations),
                None => {}
            }
        }
        if let Some(listener) = inner.lanes.listener().filter(|_| is_ready(0)) {
            self.accept(inner, listener, now);
        }
    }

    fn accept(&mut self, inner: &Inner, listener: &Tracked, now: Time) {
        for _ in 0..NEWCOMERS {
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
            // Most have said it by now, and take no place.
            let Some(socket) = hear(inner, socket) else { continue };
            if self.silent.len() >= MOST_SILENT {
                // The one that has been silent for longest has its last chance.
                let (longest, _) = self.silent.remove(0);
                if let Some(longest) = hear(inner, longest) {
                    count(&inner.refused.connections_full);
                    refuse(&longest, LaneRefusal::Busy);
                }
            }
            self.silent.push((socket, now + SILENCE));
        }
    }
}

/// Why an offer is none, or is not for the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Objection {
    Broken(Violation),
    Refused(LaneRefusal),
}

/// Hears a connection, and answers; gives it back if it has said nothing yet.
fn hear(inner: &Inner, socket: Tracked) -> Option<Tracked> {
    // One byte more than an offer, so that a longer one is seen.
    let mut bytes = [0; OFFER + 1];
    let came = match receive(inner.record, &socket, &mut bytes, MOST_OFFERED) {
        Ok(came) => came,
        Err(error) => return is_nothing_yet(&error).then_some(socket),
    };
    if came.len == 0 {
        return None;
    }
    match judge(inner, bytes.get(..came.len).unwrap_or_default(), &came) {
        Ok(offer) => give(inner, offer, came.descriptors, Arc::new(socket)),
        Err(Objection::Refused(why)) => refuse(&socket, why),
        Err(Objection::Broken(violation)) => {
            count(&inner.refused.violations);
            if violation == Violation::OtherVersion {
                let _ = unix::send(socket.as_fd(), &Answer::OtherVersion(VERSION).emit(), &[]);
            }
        }
    }
    None
}

/// Whether this is an offer for a slot of ours, from the owner of another.
fn judge(inner: &Inner, said: &[u8], came: &Came) -> Result<Offer, Objection> {
    let garbage = Objection::Broken(Violation::Garbage);
    let greeting = Greeting::parse(said.get(..LEN).unwrap_or(said)).map_err(Objection::Broken)?;
    let row = said.get(LEN..).and_then(|row| Offer::read_from_bytes(row).ok());
    let offer = row.filter(|_| greeting == Greeting::Lane).ok_or(garbage)?;
    if came.cut {
        // More than there is room for, or than this process may have.
        let is_full = came.descriptors.len() < MOST_OFFERED;
        return Err(if is_full { Objection::Refused(LaneRefusal::NoDescriptors) } else { garbage });
    }
    let Offer { secret, incarnation, expected, from, to, .. } = offer;
    let is_slot = (1..SLOTS).contains(&from.into());
    if secret != inner.table.secret() || !is_slot || from == to || inner.owns(from.into()) {
        return Err(garbage);
    }
    // From here on a process that keeps to the rules may be too late.
    if !inner.owns(to.into()) || inner.incarnation_of(to) != Some(expected) {
        return Err(Objection::Refused(LaneRefusal::NotTheOwner));
    }
    if !lives(inner, from, incarnation) {
        return Err(Objection::Refused(LaneRefusal::UnknownSender));
    }
    Ok(offer)
}

/// Gives an offer to the sink of its slot, and answers.
fn give(inner: &Inner, offer: Offer, descriptors: Vec<Tracked>, socket: Arc<Tracked>) {
    let Some(sink) = inner.sink_of(offer.to) else { return refuse(&socket, LaneRefusal::NotReady) };
    let Offer { from, incarnation, .. } = offer;
    let lifeline = Lifeline::new(Arc::clone(&socket));
    let answer = match sink.lane(LaneOffer { from, incarnation, descriptors, lifeline }) {
        Ok(answer) => answer,
        Err(why) => return refuse(&socket, why),
    };
    debug_assert!(answer.len() <= MOST_ANSWERED, "more than an answer may carry");
    let descriptors: Vec<RawFd> = answer.iter().map(AsRawFd::as_raw_fd).collect();
    let sent = unix::send(socket.as_fd(), &Answer::Lane.emit(), &descriptors);
    if sent.is_err() {
        // The sink has taken it, and the other process will never know: both see that it is over.
        unix::cut(socket.as_fd());
    }
}

/// Says why there is no lane. A process that does not wait for it any more misses nothing.
fn refuse(socket: &Tracked, why: LaneRefusal) {
    let mut message = Answer::NoLane.emit().to_vec();
    message.push(why.code());
    let _ = unix::send(socket.as_fd(), &message, &[]);
}
