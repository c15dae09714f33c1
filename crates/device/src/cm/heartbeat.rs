//! Whether the peers of connections that stand still live.
//!
//! A process that is killed says nothing to its peers, and the program on this side wants to know all the same, as it
//! does with a card: there the kernel says it. Only what is known ends a connection:
//!
//! - A peer in this group of processes has a slot in the shared file, whose lock ends with the process.
//! - Another one is asked ([`Manager::probe`](ferroce_transport::cm::Manager::probe)), one connection for each process. If
//!   it is gone, the leader of its group answers that nothing knows of the connection, or a process that has its slot by
//!   now does. Then all others of that process are asked about too.
//! - If no process is left in its group, nothing has the port there, and the kernel says so to a socket that is
//!   connected to it. That is tried only where a question was not answered.
//!
//! Silence ends nothing: a process that is stopped, or waits for a processor, comes back; and of a machine that has lost
//! its power a program with a card does not hear either, until its own sends fail.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ferroce_fabric::PORT;
use ferroce_switchboard::Membership;
use ferroce_transport::Time;
use ferroce_transport::cm::{End, Ends, Event, Standing};
use ferroce_wire::mad::CommId;

use super::books::Books;

/// How often it is looked.
const PERIOD: Duration = Duration::from_millis(400);

/// Addresses that are knocked at with one look: each takes a socket until the next.
const KNOCKS: usize = 32;

/// Connections of one process that are asked about at once: more questions, and their answers, would crowd out other messages.
const QUESTIONS: usize = 256;

/// When the next ones are.
const PAUSE: Duration = Duration::from_millis(5);

/// The slots that processes of ours have. Others deal their numbers by no such rule.
const SLOTS: std::ops::RangeInclusive<u8> = 1..=127;

/// A process of a peer: its address, and its slot there.
type Peer = (IpAddr, u8);

/// What is known of the peers' lives.
#[derive(Default)]
pub(super) struct Heartbeat {
    /// When to look; never while nothing stands.
    next: Option<Time>,
    /// Something stands since the last look.
    is_wanted: bool,
    /// Of connections with processes of this group: what tells each from others in its slot.
    known: BTreeMap<CommId, u64>,
    /// The connections whose peers were asked, with the processes that these are.
    asked: BTreeMap<CommId, Peer>,
    /// Processes that a connection was lost with: about the others it is to be asked.
    suspects: BTreeSet<Peer>,
    /// When to go on asking about these.
    goes_on: Time,
    /// The last address that was knocked at: the next time it begins behind it.
    last_door: Option<Ends>,
    /// Sockets at closed doors, perhaps: the answer may be on its way.
    knocks: Vec<(Ends, UdpSocket)>,
}

impl Heartbeat {
    pub(super) fn next(&self) -> Option<Time> {
        if self.is_wanted {
            return Some(Time::from_nanos(0));
        }
        let goes_on = (!self.suspects.is_empty()).then_some(self.goes_on);
        [goes_on, self.next].into_iter().flatten().min()
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    /// Something happened to a connection.
    pub(super) fn notes(&mut self, id: CommId, event: &Event) {
        match event {
            Event::Established => self.is_wanted |= self.next.is_none(),
            Event::Ended(end) => {
                self.known.remove(&id);
                let peer = self.asked.remove(&id);
                self.suspects.extend(peer.filter(|_| *end == End::Stale));
            }
            _ => {}
        }
    }
}

const fn peer(standing: &Standing) -> Peer {
    (standing.ends.remote, standing.peer_id.0.to_be_bytes()[0])
}

/// Addresses of peers that are none of ours, such as a kernel: all connections there are with one of them.
fn strangers(far: &[Standing]) -> BTreeSet<IpAddr> {
    far.iter().map(peer).filter(|(_, slot)| !SLOTS.contains(slot)).map(|(address, _)| address).collect()
}

impl Books {
    /// Looks after the peers of all connections that stand.
    pub(super) fn beat(&mut self, now: Time, member: &Membership) {
        let suspects = std::mem::take(&mut self.heartbeat.suspects);
        // What was lost is asked about at once, and all else in its time.
        let is_time = std::mem::take(&mut self.heartbeat.is_wanted)
            || self.heartbeat.next.is_some_and(|next| next <= now);
        let standing: Vec<Standing> = self.manager.standing().collect();
        let (near, far): (Vec<_>, Vec<_>) =
            standing.into_iter().partition(|it| member.shares(it.ends.local, it.ends.remote));
        if is_time {
            self.look_near(now, member, &near);
            self.look_far(now, &far);
            let is_left = !(near.is_empty() && far.is_empty());
            self.heartbeat.next = is_left.then(|| now + PERIOD);
        }
        let (mut seen, strangers, mut more) = (BTreeSet::new(), strangers(&far), QUESTIONS);
        for it in &far {
            let peer = match peer(it) {
                (address, _) if strangers.contains(&address) => (address, 0),
                peer => peer,
            };
            let is_first = seen.insert(peer);
            // An answer to what was asked before may be on its way, or lost: that shows in time.
            let is_suspect = suspects.contains(&peer);
            let asks = if it.is_silent { is_time } else { is_time && is_first || is_suspect };
            if asks && !is_first && more == 0 {
                self.heartbeat.suspects.extend(is_suspect.then_some(peer));
            } else if asks {
                more = more.saturating_sub(1);
                self.heartbeat.asked.insert(it.id, peer);
                self.manager.probe(it.id);
            }
        }
        self.heartbeat.goes_on = now + PAUSE;
        self.settle();
    }

    /// Ends the connections with processes of this group that are gone.
    fn look_near(&mut self, now: Time, member: &Membership, near: &[Standing]) {
        let mut living: BTreeMap<u8, Option<u64>> = BTreeMap::new();
        for it in near {
            let (_, slot) = peer(it);
            let current = *living.entry(slot).or_insert_with(|| member.living(slot));
            let lives = match (current, self.heartbeat.known.get(&it.id)) {
                (Some(current), Some(known)) => current == *known,
                (Some(current), None) => {
                    self.heartbeat.known.insert(it.id, current);
                    true
                }
                (None, _) => false,
            };
            if !lives {
                self.manager.lost(now, it.id);
            }
        }
    }

    /// Ends the connections with addresses at which nothing has the port any more.
    fn look_far(&mut self, now: Time, far: &[Standing]) {
        // Those of a process stand for each other: one of them was asked.
        let silent: BTreeSet<Peer> = far.iter().filter(|it| it.is_silent).map(peer).collect();
        let mut closed: BTreeSet<Ends> = BTreeSet::new();
        for (ends, socket) in std::mem::take(&mut self.heartbeat.knocks) {
            if is_refused(&socket) {
                closed.insert(ends);
            }
        }
        let doors: BTreeSet<Ends> = far.iter().filter(|it| it.is_silent).map(|it| it.ends).collect();
        // Each has its turn.
        let after = self.heartbeat.last_door;
        let (first, behind): (Vec<Ends>, Vec<Ends>) =
            doors.into_iter().filter(|ends| !closed.contains(ends)).partition(|ends| Some(*ends) > after);
        for ends in first.into_iter().chain(behind).take(KNOCKS) {
            self.heartbeat.last_door = Some(ends);
            match knock(ends) {
                Ok(socket) if is_refused(&socket) => {
                    closed.insert(ends);
                }
                Ok(socket) => self.heartbeat.knocks.push((ends, socket)),
                // There is no way, or no descriptor: nothing is known.
                Err(_) => {}
            }
        }
        for it in far.iter().filter(|it| closed.contains(&it.ends) && silent.contains(&peer(it))) {
            self.manager.lost(now, it.id);
        }
    }
}

/// Sends an empty datagram to the port of RoCEv2: if nothing has it, the kernel there says so.
fn knock(ends: Ends) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(ends.local, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(SocketAddr::new(ends.remote, PORT))?;
    socket.send(&[])?;
    Ok(socket)
}

fn is_refused(socket: &UdpSocket) -> bool {
    let told = socket.take_error().ok().flatten();
    told.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_nothing_has_is_told_from_one_that_is_silent() {
        let [here, there]: [IpAddr; 2] = [[127, 0, 91, 60].into(), [127, 0, 91, 61].into()];
        let ends = Ends { local: here, remote: there };
        assert!(is_refused(&knock(ends).unwrap()), "nothing is there");
        let silent = UdpSocket::bind((there, PORT)).unwrap();
        let socket = knock(ends).unwrap();
        assert_eq!(silent.recv(&mut [0]).unwrap(), 0, "it has arrived, and says nothing");
        assert!(!is_refused(&socket));
    }

    fn standing(remote: [u8; 4], id: u32, peer_id: u32) -> Standing {
        let ends = Ends { local: [127, 0, 91, 60].into(), remote: remote.into() };
        Standing { id: CommId(id), peer_id: CommId(peer_id), ends, is_silent: false }
    }

    #[test]
    fn a_peer_whose_numbers_follow_no_rule_of_ours_is_one_peer() {
        let far = [
            standing([10, 0, 0, 1], 1, 0x0500_0001),
            standing([10, 0, 0, 1], 2, 0x0600_0002),
            standing([10, 0, 0, 2], 3, 0x0500_0001),
            standing([10, 0, 0, 2], 4, 0x9300_0001),
            standing([10, 0, 0, 3], 5, 0x0000_0001),
        ];
        let strangers: Vec<IpAddr> = strangers(&far).into_iter().collect();
        assert_eq!(strangers, [IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 3])]);
    }

    #[test]
    fn what_could_not_be_asked_at_once_is_asked_soon() {
        let mut heartbeat = Heartbeat { next: Some(Time::from_nanos(900)), ..Heartbeat::default() };
        heartbeat.goes_on = Time::from_nanos(500);
        assert_eq!(heartbeat.next(), Some(Time::from_nanos(900)));
        heartbeat.suspects.insert(([127, 0, 0, 1].into(), 7));
        assert_eq!(heartbeat.next(), Some(Time::from_nanos(500)));
        assert!(!heartbeat.is_due(Time::from_nanos(499)) && heartbeat.is_due(Time::from_nanos(500)));
    }

    #[test]
    fn only_what_was_asked_about_and_is_unknown_there_makes_a_process_suspect() {
        let mut heartbeat = Heartbeat::default();
        let (near, far): (CommId, CommId) = (CommId(1), CommId(2));
        let process = ([127, 0, 0, 1].into(), 7);
        assert_eq!(heartbeat.next(), None);
        heartbeat.notes(near, &Event::Established);
        assert!(heartbeat.is_due(Time::from_nanos(1)), "the first one is looked at now");
        heartbeat.is_wanted = false;
        heartbeat.notes(near, &Event::Ended(End::Stale));
        heartbeat.asked.insert(far, process);
        heartbeat.notes(far, &Event::Ended(End::Peer));
        assert_eq!((heartbeat.next(), heartbeat.asked.len()), (None, 0));
        heartbeat.asked.insert(far, process);
        heartbeat.notes(far, &Event::Ended(End::Stale));
        assert!(heartbeat.suspects.contains(&process) && heartbeat.is_due(Time::from_nanos(1)));
    }
}
