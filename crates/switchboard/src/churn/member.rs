//! One process of the churn: it owns a slot, and pings the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_fabric::udp::{Messages, Name, Receiving, Socket};
use ferroce_fabric::{Inbox, PORT, Received, Route};
use ferroce_sys::Random;
use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use ferroce_sys::sync::lock;
use ferroce_transport::Time;

use super::tally::Tally;
use crate::inner::Sink;
use crate::rows::Report;
use crate::{Arrival, Group, Membership, SLOTS, Slot};

/// After this time a ping is lost.
const LOST: Duration = Duration::from_secs(3);

/// Bytes of a ping.
const LEN: usize = 64;
const SEGMENT: u16 = 64;

/// Runs this process until it is killed, or has lived long enough.
pub(super) fn live(role: &str) {
    let (address, path) = role.split_once(' ').expect("an address and a path");
    let address: IpAddr = address.parse().expect("an address");
    let tally = Tally::open(Path::new(path));
    let group = Group { interface: "lo".to_owned(), address: Some(address) };
    let begin = clock::now();
    let joined = Membership::join(&group, true).and_then(|member| member.take());
    let slot = match joined {
        Ok(slot) => slot,
        Err(error) => {
            eprintln!("{}: {error}", std::process::id());
            tally.failed_joins.add(1);
            return;
        }
    };
    tally.joined.add(1);
    tally.note_file(slot.member().inner().table.inode());
    let took = clock::now().since(begin);
    tally.longest_join.max(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    Member::new(slot, address, tally).run();
}

/// Forwarded packets on their way to the thread that answers.
#[derive(Default)]
struct Letters(Mutex<Vec<(usize, Vec<u8>)>>);

impl Sink for Letters {
    fn arrived(&self, arrival: &Arrival<'_>) {
        let packets = arrival.bytes.chunks(arrival.received.segment);
        let mut waiting = lock(&self.0);
        waiting.extend(packets.enumerate().map(|(at, bytes)| (arrival.place + at, bytes.to_vec())));
    }

    fn tell(&self, _: &mut Report, _: usize) -> bool {
        true
    }
}

struct Member {
    slot: Slot,
    socket: Socket,
    address: IpAddr,
    tally: Tally,
    letters: Arc<Letters>,
    messages: Messages,
    receiving: Receiving,
    inbox: Inbox,
    dice: Random,
    waiting: HashMap<u64, Waiting>,
    next: u64,
}

#[derive(Clone, Copy)]
struct Waiting {
    since: Time,
    slot: u8,
    incarnation: u64,
    rides: bool,
}

/// What stands in a packet.
#[derive(Clone, Copy)]
struct Ping {
    is_echo: bool,
    rides: bool,
    to: (u8, u64),
    from: (u8, u64),
    number: u64,
}

impl Member {
    fn new(slot: Slot, address: IpAddr, tally: Tally) -> Self {
        let letters = Arc::new(Letters::default());
        let sink: Weak<dyn Sink> = Arc::downgrade(&letters) as Weak<dyn Sink>;
        slot.attach(sink);
        let socket = slot.socket();
        socket.prepare_to_receive(4 << 20, true).expect("a buffer");
        let dice = Random::from_system().expect("random numbers");
        Self {
            slot,
            socket,
            address,
            tally,
            letters,
            messages: Messages::new(),
            receiving: Receiving::new(None),
            inbox: Inbox::new(16),
            dice,
            waiting: HashMap::new(),
            next: 0,
        }
    }

    fn run(&mut self) {
        let lives = Duration::from_millis(u64::from(2000 + self.dice.next_u32() % 20_000));
        let end = clock::now() + lives;
        let mut next_pings = clock::now();
        while clock::now() < end {
            // SAFETY: the descriptor is open as long as the slot is ours.
            let fd = unsafe { BorrowedFd::borrow_raw(self.socket.raw()) };
            wait_readable(fd, Some(Duration::from_millis(10))).expect("a wait");
            self.take_all();
            self.judge();
            if clock::now() >= next_pings {
                next_pings = clock::now() + Duration::from_millis(20);
                self.ping();
            }
        }
    }

    /// Pings itself, a few others, and one in a run for another.
    fn ping(&mut self) {
        let member = Arc::clone(self.slot.member());
        if member.leads() {
            self.tally.leader.set(u64::from(std::process::id()));
        }
        self.send(&[(self.slot.number(), self.slot.incarnation())]);
        let mut others = Vec::new();
        for _ in 0..3 {
            let slot = 1 + self.dice.next_u32() as usize % (SLOTS - 1);
            let entry = member.inner().table.entry(slot).read();
            // The other order would see a dead owner's incarnation and a new owner's lock.
            if let Some(entry) = entry.filter(|_| member.inner().is_alive(slot)) {
                others.push((u8::try_from(slot).expect("a slot"), entry.incarnation));
            }
        }
        for other in &others {
            self.send(&[*other]);
        }
        if let [first, .., last] = others[..]
            && first.0 != last.0
        {
            self.send(&[first, last]);
        }
    }

    /// Sends a ping to each, all of them in one run.
    fn send(&mut self, targets: &[(u8, u64)]) {
        let mut bytes = Vec::new();
        let from = (self.slot.number(), self.slot.incarnation());
        for (place, to) in targets.iter().enumerate() {
            let number = self.next;
            self.next += 1;
            let rides = place > 0;
            self.waiting
                .insert(number, Waiting { since: clock::now(), slot: to.0, incarnation: to.1, rides });
            bytes.extend(Ping { is_echo: false, rides, to: *to, from, number }.emit());
            self.tally.pings.add(1);
        }
        self.post(&bytes);
    }

    fn post(&mut self, bytes: &[u8]) {
        let local = self.address;
        let route =
            Route { local, remote: local, source_port: PORT, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        let cut = (bytes.len() > LEN).then_some(SEGMENT);
        self.messages.control(0).describe(&route, cut, None);
        let name = Name::new(self.socket.family(), local, PORT).expect("a name");
        self.messages.outgoing(0, bytes, name);
        // SAFETY: entry 0 was set just now, and the bytes are borrowed.
        let sent = unsafe { self.messages.send(self.socket.raw(), 0..1) };
        assert!(sent.is_ok(), "{sent:?}");
    }

    fn take_all(&mut self) {
        loop {
            let mut inbox = std::mem::replace(&mut self.inbox, Inbox::new(0));
            self.receiving.receive(&self.socket, &mut inbox).expect("a socket");
            for (received, bytes) in inbox.iter() {
                for (place, packet) in bytes.chunks(received.segment).enumerate() {
                    self.take(received, place, packet);
                }
            }
            let full = inbox.is_full();
            self.inbox = inbox;
            if !full {
                break;
            }
        }
        let letters = std::mem::take(&mut *lock(&self.letters.0));
        for (place, packet) in letters {
            match Ping::parse(&packet) {
                Some(ping) if ping.rides && ping.to.0 == self.slot.number() => {
                    let _ = place;
                    self.answer(ping);
                }
                _ => self.tally.misdelivered.add(1),
            }
        }
    }

    /// Takes a packet from our own socket.
    fn take(&mut self, received: &Received, place: usize, bytes: &[u8]) {
        // The very first one of a group is sent by its maker.
        let Some(ping) = Ping::parse(bytes) else { return };
        if ping.to.0 == self.slot.number() {
            self.answer(ping);
        } else if ping.rides {
            let received = Received { len: bytes.len(), segment: bytes.len(), ..*received };
            if self.slot.member().forward(ping.to.0, &Arrival { received, place, bytes }) {
                self.tally.forwarded.add(1);
            }
        } else {
            self.tally.misdelivered.add(1);
        }
    }

    fn answer(&mut self, ping: Ping) {
        let ours = (self.slot.number(), self.slot.incarnation());
        if ping.to != ours {
            self.tally.stale.add(1);
            return;
        }
        if !ping.is_echo {
            let echo = Ping { is_echo: true, rides: false, to: ping.from, from: ours, number: ping.number };
            self.post(&echo.emit());
            return;
        }
        if let Some(waiting) = self.waiting.remove(&ping.number) {
            // The member that was asked says so. A panic here would pass for one more that was killed.
            if (waiting.slot, waiting.incarnation) == ping.from {
                self.tally.echoed.add(1);
                self.tally.echoed_riders.add(u64::from(waiting.rides));
            } else {
                self.tally.misdelivered.add(1);
            }
        }
    }

    /// Everything that has come was read: what is missing by now is lost.
    fn judge(&mut self) {
        let inner = self.slot.member().inner();
        let entry = inner.table.entry(usize::from(self.slot.number())).read();
        if entry.is_none_or(|entry| entry.incarnation != self.slot.incarnation()) {
            self.tally.two_owners.add(1);
        }
        let now = clock::now();
        let tally = &self.tally;
        self.waiting.retain(|_, waiting| {
            if now.since(waiting.since) < LOST {
                return true;
            }
            let slot = usize::from(waiting.slot);
            let entry = inner.table.entry(slot).read();
            let is_there = entry.is_some_and(|entry| entry.incarnation == waiting.incarnation)
                && inner.is_alive(slot)
                && inner
                    .table
                    .entry(slot)
                    .read()
                    .is_some_and(|entry| entry.incarnation == waiting.incarnation);
            // A rider may find the queue of its target full.
            if is_there && !waiting.rides {
                tally.lost.add(1);
            }
            false
        });
    }
}

impl Ping {
    fn emit(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[5] = self.to.0;
        bytes[8..12].copy_from_slice(b"PING");
        bytes[12] = u8::from(self.is_echo);
        bytes[13] = u8::from(self.rides);
        bytes[14] = self.from.0;
        bytes[16..24].copy_from_slice(&self.to.1.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.from.1.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_ne_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        let long = |at: usize| u64::from_ne_bytes(bytes[at..].first_chunk().copied().unwrap_or_default());
        (bytes[8..12] == *b"PING").then(|| Self {
            is_echo: bytes[12] == 1,
            rides: bytes[13] == 1,
            to: (bytes[5], long(16)),
            from: (bytes[14], long(24)),
            number: long(32),
        })
    }
}
