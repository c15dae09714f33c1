//! Packets on their way out: put together, sealed, sent in runs; or handed over in this process.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use ferroce_fabric::{Fabric, Inbox, Outbox, Route, Sent, Toward};
use ferroce_fabric::{Path, PathPolicy};
use ferroce_switchboard::slot_of;
use ferroce_transport::{Access, Accessor, Acks, DataSink, Destination, PayloadSource, Transmit};
use ferroce_wire::{DataPacket, ICRC_LEN, Packet, Qpn};

use super::incoming::Sender;
use super::qps::Way;
use super::{Engine, Handle, MAX_BURST, MAX_PACKETS, view};
use crate::address::place_of;
use crate::counters::DeviceCounters;
use crate::engine::host::{Tables, View};
use crate::engines::Engines;

/// Where the destination stands in the base transport header.
const BTH_DEST_QP: std::ops::Range<usize> = 5..8;

/// Bytes of packets that wait for one system call: two of the largest runs, and before each the first packet of its message,
/// which is longer than the others and so goes alone.
const OUTBOX_BYTES: usize = 2 * (65_536 + 512);

/// Runs that wait for one system call.
const OUTBOX_RUNS: usize = 64;

/// The fabric, and what waits to be sent.
pub(crate) struct Port {
    pub(crate) fabric: Box<dyn Fabric>,
    outbox: Outbox,
    /// How packets may leave together, as the fabric said after it last sent some.
    limits: (usize, usize),
    /// What is not used any more, but kept open: the kernel counts the sockets of a device.
    failed: Option<Box<dyn Fabric>>,
}

/// What is to be known of a packet before it is put together.
#[derive(Clone, Copy, Debug)]
struct Cargo {
    /// Bytes.
    len: usize,
    /// Others of its message follow.
    more: bool,
    /// The slot of the queue pair that it is for.
    slot: u8,
    /// The packet that was added before went to the same slot by the same way.
    follows: bool,
}

impl Port {
    pub(crate) fn new(fabric: Box<dyn Fabric>) -> Self {
        let limits = limits(&*fabric);
        Self { fabric, outbox: Outbox::new(OUTBOX_BYTES, OUTBOX_RUNS), limits, failed: None }
    }

    /// Lets go of the network: from now on everything is lost.
    pub(crate) fn close(&mut self) {
        self.fabric = Box::new(Closed);
        self.failed = None;
    }

    /// Does nothing with the network any more; but its sockets stay, so that those of other engines keep
    /// their places.
    pub(crate) fn fail(&mut self) {
        self.failed = Some(std::mem::replace(&mut self.fabric, Box::new(Closed)));
        self.outbox.clear();
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self, counters: &mut DeviceCounters) {
        if !self.outbox.is_empty() {
            let sent = self.fabric.send(&mut self.outbox);
            self.limits = limits(&*self.fabric);
            counters.packets_sent += sent.packets;
            counters.send_no_room += sent.no_room;
            counters.send_too_long += sent.too_long;
            counters.send_unreachable += sent.unreachable;
            counters.send_calls += sent.calls;
        }
    }

    /// Puts a packet together and leaves it in the outbox. `by` is whose memory the payload is.
    pub(super) fn add(
        &mut self,
        transmit: &Transmit<'_>,
        by: Accessor,
        way: &mut Way,
        tables: &Tables,
        counters: &mut DeviceCounters,
    ) {
        let (len, slot) = (transmit.packet.len(), slot_of(transmit.packet.dest_qp));
        let cargo = Cargo { len, more: false, slot, follows: false };
        let room = self.room(cargo, way, counters);
        let written = room.and_then(|(place, buffer)| emit(transmit, by, tables, buffer).map(|()| place));
        match written {
            Some(place) => self.added(cargo, place, way),
            None => counters.send_refused += 1,
        }
    }

    /// Where the next packet is put together, all but its ICRC, and its place in its run. [`added`](Self::added) has to follow;
    /// else nothing is left there. `None` if the packet is too long.
    #[inline(always)]
    fn room(
        &mut self,
        cargo: Cargo,
        way: &mut Way,
        counters: &mut DeviceCounters,
    ) -> Option<(usize, &mut [u8])> {
        let Cargo { len, more, slot, follows } = cargo;
        let to = Toward { route: &way.route, slot, is_known: follows };
        let mut place = self.outbox.place(to, len, more, self.limits);
        let too_late = place == 0 && more && self.outbox.would_cut_short(len, self.limits);
        if too_late || !self.outbox.has_room(len) {
            self.flush(counters);
            place = 0;
        }
        if place == 0 {
            let port = self.fabric.source_port(way.wanted_port, way.route.local);
            if port != way.route.source_port {
                way.leave_from(port);
            }
        }
        Some((place, self.outbox.room(len)?))
    }

    /// The packet was put together: seals it, and leaves it in the outbox.
    #[inline(always)]
    fn added(&mut self, cargo: Cargo, place: usize, way: &Way) {
        let Cargo { len, slot, follows, .. } = cargo;
        let identification = u16::try_from(place).unwrap_or(0);
        if let Some(buffer) = self.outbox.room(len) {
            // Cannot fail: every packet has room for a header and an ICRC.
            let _ = way.flow.seal(buffer, identification);
            self.outbox.commit(Toward { route: &way.route, slot, is_known: follows }, len, place);
        }
    }
}

/// Takes the data packets of one queue pair, one after the other.
struct Stream<'a> {
    port: &'a mut Port,
    way: &'a mut Way,
    counters: &'a mut DeviceCounters,
    /// Whose memory the payload is.
    by: Accessor,
    /// There was one before.
    follows: bool,
}

impl DataSink<View<'_>> for Stream<'_> {
    // Most of what a packet costs, in the innermost loop of both who asks and who answers.
    #[inline(always)]
    fn take(&mut self, host: &mut View<'_>, data: &DataPacket, payload: &PayloadSource<'_>) -> bool {
        let Self { port, way, counters, by, follows } = self;
        let slot = slot_of(data.dest_qp);
        let cargo = Cargo { len: data.packet_len(), more: !data.ends, slot, follows: *follows };
        *follows = false;
        let Some((place, buffer)) = port.room(cargo, way, counters) else { return false };
        let Some(headers) = data.emit_headers(buffer) else { return false };
        let (body, rest) = buffer[headers..].split_at_mut(data.payload);
        clear_pad(rest);
        // If this memory may not be read, it is for the machine to say so.
        if fill(payload, *by, host.tables, body).is_none() {
            return false;
        }
        port.added(cargo, place, way);
        *follows = true;
        true
    }
}

/// How packets may leave together: how many, and how many bytes.
fn limits(fabric: &dyn Fabric) -> (usize, usize) {
    if fabric.coalesces() { fabric.run_limits() } else { (1, usize::MAX) }
}

/// What is left of a fabric when its device has closed.
struct Closed;

impl Fabric for Closed {
    fn coalesces(&self) -> bool {
        false
    }

    fn run_limits(&self) -> (usize, usize) {
        (1, usize::MAX)
    }

    fn source_port(&mut self, wanted: u16, _: IpAddr) -> u16 {
        wanted
    }

    fn send(&mut self, outbox: &mut Outbox) -> Sent {
        outbox.clear();
        Sent::default()
    }

    fn receive(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        inbox.clear();
        Ok(())
    }

    fn show_marks(&mut self) {}

    fn descriptors(&self) -> &[RawFd] {
        &[]
    }
}

impl Way {
    /// A way with these ends, or `None` if one is IPv4 and the other IPv6.
    pub(crate) fn new(route: Route) -> Option<Self> {
        let flow = route.flow()?;
        Some(Self { route, wanted_port: route.source_port, flow })
    }

    /// Packets leave from another port from now on.
    fn leave_from(&mut self, port: u16) {
        self.route.source_port = port;
        if let Some(flow) = self.route.flow() {
            self.flow = flow;
        }
    }
}

/// Writes a packet, all but its ICRC. `None` if its memory is gone: access was checked a moment ago.
fn emit(transmit: &Transmit<'_>, by: Accessor, tables: &Tables, buffer: &mut [u8]) -> Option<()> {
    let headers = transmit.packet.emit_headers(buffer).ok()?;
    let payload = transmit.packet.payload_len();
    let (body, rest) = buffer[headers..].split_at_mut(payload);
    clear_pad(rest);
    fill(&transmit.payload, by, tables, body)
}

/// What comes after the payload: up to three bytes of nothing, and the ICRC.
#[inline]
fn clear_pad(rest: &mut [u8]) {
    let pad = rest.len() - ICRC_LEN;
    if pad > 0 {
        rest[..pad].fill(0);
    }
}

/// Copies a payload from where it is.
#[inline(always)]
fn fill(payload: &PayloadSource<'_>, by: Accessor, tables: &Tables, mut into: &mut [u8]) -> Option<()> {
    match payload {
        PayloadSource::Nothing => Some(()),
        PayloadSource::Inline(bytes) => {
            into.copy_from_slice(bytes);
            Some(())
        }
        PayloadSource::Gather(pieces) => {
            if let Some(piece) = pieces.whole() {
                return tables.memory.local(by.domain, piece, false).ok()?.read(into).ok();
            }
            for piece in *pieces {
                let (part, rest) = into.split_at_mut(piece.length as usize);
                tables.memory.local(by.domain, piece, false).ok()?.read(part).ok()?;
                into = rest;
            }
            Some(())
        }
        PayloadSource::Remote { rkey, address, len } => {
            let place = tables.memory.remote(by, *rkey, *address, *len, Access::REMOTE_READ).ok()?;
            place.read(into).ok()
        }
    }
}

impl Engine {
    /// Lets every queue pair that may have something to send do so.
    pub(super) fn transmit(&mut self, acks: Acks, around: &Engines) {
        // Packets that stay in this process make others ready: go on until none is.
        let mut budget = MAX_PACKETS;
        while !self.ready.is_empty() && budget > 0 {
            let spare = std::mem::take(&mut self.spare);
            let mut ready = std::mem::replace(&mut self.ready, spare);
            for index in ready.drain(..) {
                if let Some(entry) = self.qps.by_index(index) {
                    entry.queued = false;
                    budget = budget.saturating_sub(self.transmit_one(index, acks, around));
                }
            }
            self.spare = ready;
        }
    }

    /// Sends what one queue pair has to send. Requests go first, and then, if any packet went the
    /// same way or the caller says so, an acknowledgement that is owed rides behind them. How many
    /// packets.
    fn transmit_one(&mut self, index: u16, acks: Acks, around: &Engines) -> usize {
        let path = self.qps.by_index(index).and_then(|entry| entry.path);
        let is_local = path.is_some_and(|choice| choice.path == Path::Local);
        // Nothing is saved by holding back an acknowledgement that costs no system call.
        let acks = if is_local { Acks::Send } else { acks };
        let direct = if is_local { self.execute_directly(index, around) } else { 0 };
        let blocked = |engine: &mut Self| {
            engine.qps.by_index(index).map_or(0, |entry| entry.machine.counters().window_waits)
        };
        let before = blocked(self);
        let mut sent = if is_local { 0 } else { self.transmit_data(index) };
        while sent < MAX_BURST && self.transmit_packet(index, Acks::Hold, around) {
            sent += 1;
        }
        let is_blocked = blocked(self) > before;
        if let Some(entry) = self.qps.by_index(index) {
            if is_blocked {
                entry.waiting = true;
                self.windows.wait(entry.window, index, sent > 0);
            } else if std::mem::take(&mut entry.waiting) {
                self.windows.leave_queue(entry.window, index);
            }
        }
        let now = (sent > 0 || acks == Acks::Send) && !self.keeps_back(index, sent);
        if now && self.transmit_packet(index, Acks::Send, around) {
            sent += 1;
        }
        if sent >= MAX_BURST
            && let Some(entry) = self.qps.by_index(index)
            && !entry.queued
        {
            entry.queued = true;
            self.ready.push(index);
        }
        self.note(index);
        sent + direct
    }

    /// Whether the driver keeps back an acknowledgement, because an answer may take it along.
    fn keeps_back(&mut self, index: u16, sent: usize) -> bool {
        let (now, patient) = (self.tables.now, self.patient);
        let Some(entry) = self.qps.by_index(index) else { return false };
        if sent > 0 {
            if !patient {
                entry.habit.sent(now);
            }
            return false;
        }
        if !patient || !entry.machine.owes_ack() {
            return false;
        }
        let until = entry.habit.wait_until(now);
        if let Some(until) = until {
            self.kept_until = Some(self.kept_until.map_or(until, |first| first.min(until)));
        }
        until.is_some()
    }

    /// Sends the packets of SENDs and WRITEs of a connection, as far as nothing is out of the ordinary; how many.
    fn transmit_data(&mut self, index: u16) -> usize {
        let Self { qps, tables, windows, port, counters, .. } = self;
        let Some(entry) = qps.by_index(index) else { return 0 };
        let by = Accessor { domain: entry.shared.domain, qpn: entry.machine.qpn() };
        let Some(way) = entry.way.as_mut() else { return 0 };
        let now = tables.now;
        let window = windows.get(entry.window);
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let stream = Stream { port, way, counters, by, follows: false };
        entry.machine.poll_data(now, MAX_BURST, window, &mut host, stream)
    }

    /// Sends one packet, if the queue pair has one.
    fn transmit_packet(&mut self, index: u16, acks: Acks, around: &Engines) -> bool {
        let Self { qps, tables, windows, port, counters, handles, scratch, .. } = self;
        let Some(entry) = qps.by_index(index) else { return false };
        let by = Accessor { domain: entry.shared.domain, qpn: entry.machine.qpn() };
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let now = host.tables.now;
        let window = windows.get(entry.window);
        let Some(transmit) = entry.machine.poll_transmit(now, acks, window, &mut host) else { return false };
        let (way, is_local) = match transmit.dest {
            Destination::Peer => {
                let is_local = entry.path.is_some_and(|choice| choice.path == Path::Local);
                (entry.way.as_mut(), is_local)
            }
            Destination::Datagram(number) => match handles.get_mut(place_of(number)) {
                // A group has no queue pairs of other numbers.
                Some(Handle { way, .. })
                    if way.route.remote.is_multicast() && transmit.packet.dest_qp != Qpn::MULTICAST =>
                {
                    (None, false)
                }
                Some(handle) if handle.number == number => {
                    let is_local = if handle.way.route.remote.is_multicast() {
                        // To the address of a group nothing is sent on a loopback device.
                        handle.ours
                    } else {
                        let ours = handle.ours && around.of(transmit.packet.dest_qp).is_some();
                        ours && handle.policy != PathPolicy::Forbid
                    };
                    (Some(&mut handle.way), is_local)
                }
                _ => (None, false),
            },
        };
        let Some(way) = way else {
            counters.send_refused += 1;
            return true;
        };
        if !is_local {
            port.add(&transmit, by, way, tables, counters);
            return true;
        }
        let (len, dest) = (transmit.packet.len(), transmit.packet.dest_qp);
        let sender = Sender::of(&way.route);
        let mut buffer = std::mem::take(scratch);
        if emit(&transmit, by, tables, &mut buffer[..len]).is_some() {
            counters.local_packets += 1;
            if sender.is_to_group() {
                self.spread(&sender, &mut buffer[..len], around);
            } else {
                self.deliver_local(&sender, dest, &buffer[..len], around);
            }
        }
        self.scratch = buffer;
        true
    }

    /// A datagram to a group of a loopback device: each process that listens to it gets one, and copies it to
    /// its queue pairs.
    #[inline(never)]
    fn spread(&mut self, sender: &Sender, bytes: &mut [u8], around: &Engines) {
        let spread = around.member.spread(sender.local(), &sender.arrival(bytes));
        self.counters.multicast_forwarded += spread.sent;
        self.counters.send_no_room += spread.no_room;
        self.copy_to_members(sender, bytes, around);
    }

    /// A datagram for a group: each queue pair of this process that is attached gets a copy (IBA 10.5.2).
    pub(super) fn copy_to_members(&mut self, sender: &Sender, bytes: &mut [u8], around: &Engines) {
        let mut members = std::mem::take(&mut self.members);
        around.groups.members_of(sender.local(), &mut members);
        for member in members.drain(..) {
            // From here on it is like any datagram to that queue pair.
            bytes[BTH_DEST_QP].copy_from_slice(&member.get().to_be_bytes()[1..]);
            self.counters.multicast_copies += 1;
            self.deliver_local(sender, member, bytes, around);
        }
        self.members = members;
    }

    /// A packet for a queue pair of this process.
    fn deliver_local(&mut self, sender: &Sender, dest: Qpn, bytes: &[u8], around: &Engines) {
        match around.of(dest) {
            Some(there) if slot_of(dest) != self.qps.slot() => {
                self.send_to_engine(there, sender, bytes, around);
            }
            _ => match Packet::parse(bytes) {
                Ok(packet) => self.deliver(sender, &packet, bytes, around),
                Err(_) => self.counters.malformed += 1,
            },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use ferroce_sys::sync::lock;

    /// Keeps how many packets there were in each run of each call.
    struct Recorder(Arc<Mutex<Vec<Vec<usize>>>>);

    impl Fabric for Recorder {
        fn coalesces(&self) -> bool {
            true
        }

        fn run_limits(&self) -> (usize, usize) {
            (64, 65_507)
        }

        fn source_port(&mut self, wanted: u16, _: IpAddr) -> u16 {
            wanted
        }

        fn send(&mut self, outbox: &mut Outbox) -> Sent {
            lock(&self.0).push(outbox.runs().iter().map(|run| run.packets).collect());
            outbox.clear();
            Sent::default()
        }

        fn receive(&mut self, inbox: &mut Inbox) -> io::Result<()> {
            inbox.clear();
            Ok(())
        }

        fn show_marks(&mut self) {}

        fn descriptors(&self) -> &[RawFd] {
            &[]
        }
    }

    /// The runs in which messages of so many packets leave, whose first packet is `longer` than the others.
    fn runs_of(messages: usize, packets: usize, len: usize, longer: usize) -> Vec<Vec<usize>> {
        let calls = Arc::default();
        let mut port = Port::new(Box::new(Recorder(Arc::clone(&calls))));
        let (local, remote) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let route = Route { local, remote, source_port: 50_000, traffic_class: 0, hop_limit: 64 };
        let mut way = Way::new(route).expect("one family");
        let mut counters = DeviceCounters::default();
        for _ in 0..messages {
            for number in 1..=packets {
                let len = if number == 1 { len + longer } else { len };
                let more = number < packets;
                let cargo = Cargo { len, more, slot: 0, follows: number > 1 };
                let (place, buffer) = port.room(cargo, &mut way, &mut counters).expect("it fits");
                buffer.fill(0);
                port.added(cargo, place, &way);
            }
        }
        port.flush(&mut counters);
        lock(&calls).clone()
    }

    #[test]
    fn the_first_packet_of_a_long_message_leaves_the_others_together() {
        assert_eq!(runs_of(3, 16, 4112, 16), [vec![1, 15, 1, 15], vec![1, 15]]);
        assert_eq!(runs_of(1, 64, 1040, 16), [[1, 62, 1]]);
    }

    #[test]
    fn a_short_message_leaves_as_one_run() {
        assert_eq!(runs_of(2, 2, 4112, 16), [[2, 2]]);
        assert_eq!(runs_of(2, 3, 4112, 0), [[6]]);
    }

    #[test]
    fn no_run_is_cut_short_for_want_of_room() {
        let calls = runs_of(1, 256, 4112, 0);
        assert_eq!(calls[..8], vec![vec![15, 15]; 8]);
        assert_eq!(calls[8..], [[15, 1]]);
    }
}
