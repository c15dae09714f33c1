//! Multicast among the processes of a machine, and from a network.
//!
//! On a loopback device nothing is ever sent to a group's address. Which process listens to which group
//! stands in the shared file, and the sender hands a copy to each such process, as it hands on packets that
//! came to a wrong slot. On other devices the kernel does it: each process has a socket for each group that
//! it listens to, and hears its own datagrams there as it hears those of others.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferroce_fabric::udp::{Receiving, Socket};
use ferroce_fabric::{Ends, Verifier};
use ferroce_fabric::{Inbox, PORT, Received};
use ferroce_sys::clock;
use ferroce_sys::sync::lock;
use ferroce_wire::{Body, Packet, Qpn};

use super::error::{SwitchError, refused};
use super::forward::{self, Arrival, Kind};
use super::heard::{Heard, Spread};
use super::inner::Inner;
use super::owners::owner_word;
use super::table::Listener;
use super::{Distant, SLOTS};

/// Bytes of receive buffer for each of them.
const BUFFER: usize = 1 << 20;

/// How long the thread of the membership may take to open a socket.
const PATIENCE: Duration = Duration::from_secs(5);

/// Datagrams that one look takes in.
const INBOX: usize = 8;

/// Looks at a socket before something else is done.
const LOOKS: usize = 4;

impl Inner {
    /// Hands a datagram to each other process that listens to its group. Waits for room a little, if need be.
    pub(super) fn spread(&self, group: IpAddr, arrival: &Arrival<'_>) -> Spread {
        let mut spread = Spread::default();
        if !self.is_ours() {
            return spread;
        }
        let group = words(group);
        // Whatever stands in the table, no slot gets it twice.
        let mut served = [false; SLOTS];
        for listener in self.table.listeners() {
            let owner = listener.owner.load(Ordering::SeqCst);
            if owner == 0 || !listener.is_of(group) || listener.owner.load(Ordering::SeqCst) != owner {
                continue;
            }
            let Ok(number) = u8::try_from(owner & 0xff) else { continue };
            let slot = usize::from(number);
            if slot == 0 || slot >= SLOTS || std::mem::replace(&mut served[slot], true) {
                continue;
            }
            let Some(entry) = self.table.entry(slot).read() else { continue };
            if owner_word(number, entry.incarnation) != owner || entry.token == self.token() {
                continue;
            }
            let head = forward::head(Kind::Packets, number, arrival);
            match self.post.send_patiently(&self.table, entry.token, head, arrival.bytes) {
                Ok(()) => spread.sent += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => spread.no_room += 1,
                // The process is gone, and no other has its slot yet.
                Err(_) => {}
            }
        }
        spread
    }

    /// Has the thread open a socket for a group: it is where the device was opened, and the thread that asks may
    /// have gone to another network namespace since.
    pub(super) fn hear(&self, group: IpAddr, slot: u8) -> Result<(), SwitchError> {
        if !self.is_ours() {
            return Err(SwitchError::Forked);
        }
        let heard = &self.heard;
        let mut state = lock(&heard.state);
        state.want(group, slot)?;
        heard.changes.fetch_add(1, Ordering::SeqCst);
        self.bell.signal();
        let end = clock::now() + PATIENCE;
        loop {
            if let Some(answer) = state.take_answer(group) {
                return answer.map_err(refused("a socket for a multicast group"));
            }
            let left = clock::until(end);
            if left.is_zero() {
                // The thread is gone, or has no processor. If it comes to it later, the wish is gone.
                state.forget(group);
                return Err(refused("a socket for a multicast group")(io::ErrorKind::TimedOut.into()));
            }
            state = heard.wait(state, left);
        }
    }

    pub(super) fn stop_hearing(&self, group: IpAddr) {
        if !self.is_ours() {
            return;
        }
        let mut state = lock(&self.heard.state);
        for one in state.all.extract_if(.., |one| one.group == group) {
            one.open.store(false, Ordering::SeqCst);
        }
        self.heard.changes.fetch_add(1, Ordering::SeqCst);
        self.bell.signal();
    }
}

impl Listener {
    pub(super) fn is_of(&self, group: [u64; 2]) -> bool {
        self.group.iter().zip(group).all(|(word, value)| word.load(Ordering::SeqCst) == value)
    }
}

/// An address as it stands in the shared file.
pub(super) fn words(group: IpAddr) -> [u64; 2] {
    let octets = match group {
        IpAddr::V4(group) => group.to_ipv6_mapped().octets(),
        IpAddr::V6(group) => group.octets(),
    };
    let [high, low] = [octets.first_chunk(), octets.last_chunk()];
    [high, low].map(|half| u64::from_be_bytes(half.copied().unwrap_or_default()))
}

/// What the thread needs to read the sockets of groups.
pub(super) struct GroupDesk {
    all: Vec<Arc<Heard>>,
    seen: u64,
    tools: Option<Tools>,
}

struct Tools {
    inbox: Inbox,
    receiving: Receiving,
    verifier: Verifier,
    distant: Distant,
}

impl GroupDesk {
    pub(super) const fn new() -> Self {
        Self { all: Vec::new(), seen: 0, tools: None }
    }

    /// What to wait for, after opening what is to be opened.
    pub(super) fn descriptors(&mut self, inner: &Inner) -> impl Iterator<Item = RawFd> {
        let changes = inner.heard.changes.load(Ordering::SeqCst);
        if changes != self.seen {
            self.seen = changes;
            self.refresh(inner);
        }
        self.all.iter().map(|one| one.socket.raw())
    }

    #[cold]
    fn refresh(&mut self, inner: &Inner) {
        let mut state = lock(&inner.heard.state);
        while let Some((group, slot)) = state.wanted.pop() {
            let opened = Socket::of_group(inner.record, group, &inner.group.interface, PORT, BUFFER);
            let answer = opened.map(|socket| {
                let open = AtomicBool::new(true);
                state.all.push(Arc::new(Heard { group, slot, socket, open }));
            });
            state.answers.push((group, answer));
        }
        self.all.clone_from(&state.all);
        drop(state);
        inner.heard.answered.notify_all();
        if self.tools.is_none() && !self.all.is_empty() {
            self.tools = Some(Tools {
                inbox: Inbox::new(INBOX),
                receiving: Receiving::new(None),
                verifier: Verifier::new(),
                distant: Distant::default(),
            });
        }
    }

    /// Reads the sockets that have something. `polled` is of their descriptors, in order.
    pub(super) fn look(&mut self, inner: &Inner, polled: &[libc::pollfd]) {
        let Some(tools) = &mut self.tools else { return };
        for (heard, _) in self.all.iter().zip(polled).filter(|(_, entry)| entry.revents != 0) {
            tools.look(inner, heard);
        }
    }
}

impl Tools {
    fn look(&mut self, inner: &Inner, heard: &Heard) {
        self.receiving.turn_to(heard.group);
        for _ in 0..LOOKS {
            if self.receiving.receive(&heard.socket, &mut self.inbox).is_err() {
                return;
            }
            for (received, bytes) in self.inbox.iter() {
                if inner.locals.is_foreign(received.source, &mut self.distant) {
                    inner.counts.foreign.fetch_add(received.packets(), Ordering::Relaxed);
                    continue;
                }
                for (place, packet) in bytes.chunks(received.segment.max(1)).enumerate() {
                    if heard.open.load(Ordering::SeqCst) {
                        inner.counts.group_packets.fetch_add(1, Ordering::Relaxed);
                        take(&mut self.verifier, inner, heard, received, (place, packet));
                    }
                }
            }
            if !self.inbox.is_full() {
                return;
            }
        }
    }
}

/// Hands one datagram to our engine, if it arrived as it was sent.
fn take(
    verifier: &mut Verifier,
    inner: &Inner,
    heard: &Heard,
    received: &Received,
    (place, bytes): (usize, &[u8]),
) {
    let ends = Ends { source: received.source, local: received.local };
    let Ok(packet) = Packet::parse(bytes) else {
        inner.counts.group_malformed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let Some(identification) = verifier.check(&ends, bytes, place, clock::now()) else {
        inner.counts.group_icrc_errors.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let is_for_groups = packet.dest_qp == Qpn::MULTICAST && matches!(packet.body, Body::Ud(_));
    let received = Received { len: bytes.len(), segment: bytes.len().max(1), ..*received };
    let arrival = Arrival { received, place: identification.into(), bytes };
    if !is_for_groups || !inner.give(heard.slot, &arrival) {
        inner.counts.strays.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heard::{Hearing, MOST_HEARD};

    #[test]
    fn groups_of_both_families_are_told_apart() {
        let addresses = ["239.1.2.3", "239.1.2.4", "ff15::9", "ff15::a", "ff15::ffff:239.1.2.3"];
        let all: Vec<[u64; 2]> = addresses.map(|text| words(text.parse().unwrap())).to_vec();
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{}", addresses[at]);
        }
    }

    #[test]
    fn a_wish_for_a_group_is_answered_once_or_taken_back_alone() {
        let [one, two, three] = ["239.1.2.3", "239.1.2.4", "ff15::9"].map(|text| text.parse().unwrap());
        let mut hearing = Hearing::default();
        for (group, slot) in [(one, 1), (two, 2), (three, 3)] {
            hearing.want(group, slot).unwrap();
        }
        hearing.forget(two);
        assert_eq!(hearing.wanted, [(one, 1), (three, 3)]);
        hearing.answers = vec![(one, Ok(())), (three, Err(io::ErrorKind::NotFound.into()))];
        assert!(hearing.take_answer(two).is_none());
        assert!(hearing.take_answer(three).is_some_and(|answer| answer.is_err()));
        assert!(hearing.take_answer(three).is_none(), "it was taken");
        assert!(hearing.take_answer(one).is_some_and(|answer| answer.is_ok()));
    }

    #[test]
    fn wishes_for_groups_are_bounded() {
        let mut hearing = Hearing::default();
        let group = "239.1.2.3".parse().unwrap();
        for _ in 0..MOST_HEARD {
            hearing.want(group, 1).unwrap();
        }
        let more = hearing.want(group, 1);
        assert!(matches!(more, Err(SwitchError::TooManyListeners { allowed: MOST_HEARD })), "{more:?}");
        assert_eq!(hearing.wanted.len(), MOST_HEARD);
    }
}
