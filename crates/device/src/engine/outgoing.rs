//! Packets on their way out: put together, sealed, sent in runs; or handed over in this process.

use ferroce_fabric::{Path, PathPolicy};
use ferroce_record::PacketFlags;
use ferroce_switchboard::slot_of;
use ferroce_transport::{Accessor, Acks, Burst, Destination, TimeSource};
use ferroce_wire::{Body, Packet, Qpn, Service};

use super::Engine;
use super::follow::ticket;
use super::handles::{Handle, place_of};
use super::host::view;
use super::lanes::{ONE, SPARE};
use super::port::{Stream, emit};
use super::sender::Sender;
use crate::engines::Engines;

/// Packets of one queue pair before the next has its turn.
const MAX_BURST: usize = 256;

/// Packets that one turn sends before others may have the engine.
const MAX_PACKETS: usize = 2048;

/// Where the destination stands in the base transport header.
const BTH_DEST_QP: std::ops::Range<usize> = 5..8;

impl Engine {
    /// Lets every queue pair that may have something to send do so.
    #[inline(always)]
    pub(super) fn transmit(&mut self, acks: Acks, around: &Engines) {
        if !self.ready.is_empty() {
            self.transmit_ready(acks, around);
        }
    }

    fn transmit_ready(&mut self, acks: Acks, around: &Engines) {
        if let Some(record) = &mut self.tables.record {
            // A turn that took packets in looked at the clock after that.
            record.tick_at(self.tables.now);
        }
        // Packets that stay in this process make others ready: go on until none is.
        let mut budget = MAX_PACKETS;
        while !self.ready.is_empty() && budget > 0 {
            if let [index] = self.ready[..] {
                self.ready.clear();
                budget = budget.saturating_sub(self.transmit_queued(index, acks, around));
                continue;
            }
            let spare = std::mem::take(&mut self.spare);
            let mut ready = std::mem::replace(&mut self.ready, spare);
            for index in ready.drain(..) {
                budget = budget.saturating_sub(self.transmit_queued(index, acks, around));
            }
            self.spare = ready;
        }
    }

    /// Takes a queue pair out of the list of those that may have something to send, and sends that; how many packets.
    #[inline]
    fn transmit_queued(&mut self, index: u16, acks: Acks, around: &Engines) -> usize {
        let Some(entry) = self.qps.by_index(index) else { return 0 };
        entry.queued = false;
        let is_local = entry.path.is_some_and(|choice| choice.path == Path::Local);
        self.transmit_one(index, is_local, acks, around)
    }

    /// Sends what one queue pair has to send. Requests go first, and then, if any packet went the
    /// same way or the caller says so, an acknowledgement that is owed rides behind them. How many
    /// packets.
    fn transmit_one(&mut self, index: u16, is_local: bool, acks: Acks, around: &Engines) -> usize {
        // Nothing is saved by holding back an acknowledgement that costs no system call.
        let acks = if is_local { Acks::Send } else { acks };
        let direct = if is_local { self.execute_directly(index, around) } else { 0 };
        let blocked = |engine: &mut Self| {
            engine.qps.by_index(index).map_or(0, |entry| entry.machine.counters().window_waits)
        };
        let before = blocked(self);
        // Whether the driver keeps an acknowledgement back is decided below. Those that are written down take the long way.
        let riding = if self.patient { Acks::Hold } else { acks };
        let riding = (!self.tables.is_recorded()).then_some(riding);
        let Burst { mut sent, acknowledged } =
            if is_local { Burst::default() } else { self.transmit_data(index, riding) };
        if !is_local && self.has_sent_all(index, before, sent, acks) {
            self.note(index);
            return sent + usize::from(acknowledged);
        }
        while sent < MAX_BURST
            && self.lane_lets_through(index, Acks::Hold)
            && self.transmit_packet(index, Acks::Hold, around)
        {
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
        if acknowledged
            || (now
                && self.lane_lets_through(index, Acks::Send)
                && self.transmit_packet(index, Acks::Send, around))
        {
            sent += 1;
        }
        if sent >= MAX_BURST
            && let Some(entry) = self.qps.by_index(index)
            && !entry.queued
        {
            entry.queued = true;
            self.ready.push(index);
        }
        if self.tables.is_recorded() {
            self.record_wait(index);
        }
        self.note(index);
        sent + direct
    }

    /// Whether a packet of a queue pair finds room in its lane, if it has one.
    #[inline(always)]
    fn lane_lets_through(&mut self, index: u16, acks: Acks) -> bool {
        !self.port.lanes.has_any() || self.finds_room(index, acks)
    }

    fn finds_room(&mut self, index: u16, acks: Acks) -> bool {
        let Self { qps, tables, port, .. } = self;
        let Some(entry) = qps.by_index(index) else { return true };
        let Some(slot) = entry.way.as_ref().and_then(|way| way.lane) else { return true };
        let needed = if entry.machine.service() == Service::Uc { SPARE } else { ONE };
        !entry.machine.may_transmit(acks) || port.lanes.lets_through(slot, index, needed, tables.now)
    }

    /// Whether a queue pair has nothing left to send after a burst of so many packets, and waits for nothing: so it is mostly.
    #[inline]
    fn has_sent_all(&mut self, index: u16, blocked_before: u64, sent: usize, acks: Acks) -> bool {
        let is_told = self.patient || self.tables.is_recorded();
        let Some(entry) = self.qps.by_index(index) else { return false };
        let is_stuck = entry.waiting || entry.machine.counters().window_waits != blocked_before;
        let acks = if sent > 0 { Acks::Send } else { acks };
        if is_told || is_stuck || sent >= MAX_BURST || entry.machine.may_transmit(acks) {
            return false;
        }
        if sent > 0 {
            entry.ack_delay.sent(self.tables.now);
        }
        true
    }

    /// Whether the driver keeps back an acknowledgement, because an answer may take it along.
    fn keeps_back(&mut self, index: u16, sent: usize) -> bool {
        let (now, patient) = (self.tables.now, self.patient);
        let Some(entry) = self.qps.by_index(index) else { return false };
        if sent > 0 {
            if !patient {
                entry.ack_delay.sent(now);
            }
            return false;
        }
        if !patient || !entry.machine.owes_ack() {
            return false;
        }
        let until = entry.ack_delay.wait_until(now);
        if let Some(until) = until {
            self.kept_until = Some(self.kept_until.map_or(until, |first| first.min(until)));
        }
        until.is_some()
    }

    /// Sends the packets of SENDs and WRITEs of a connection, as far as nothing is out of the ordinary; how
    /// many.
    fn transmit_data(&mut self, index: u16, acks: Option<Acks>) -> Burst {
        let Self { qps, tables, windows, port, counters, .. } = self;
        let Some(entry) = qps.by_index(index) else { return Burst::default() };
        let by = Accessor { domain: entry.shared.domain, qpn: entry.machine.qpn() };
        let Some(way) = entry.way.as_mut() else { return Burst::default() };
        let now = tables.now;
        let window = windows.get(entry.window);
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let stream = Stream { port, way, counters, by, follows: false };
        entry.machine.poll_data(now, MAX_BURST, acks, window, &mut host, stream)
    }

    /// Sends one packet, if the queue pair has one.
    fn transmit_packet(&mut self, index: u16, acks: Acks, around: &Engines) -> bool {
        let Self { qps, tables, windows, port, counters, handles, scratch, follow, .. } = self;
        let Some(entry) = qps.by_index(index) else { return false };
        if !entry.machine.may_transmit(acks) {
            return false;
        }
        let by = Accessor { domain: entry.shared.domain, qpn: entry.machine.qpn() };
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let now = host.tables.now;
        let window = windows.get(entry.window);
        let repeats = entry.machine.counters().retransmitted;
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
        if tables.is_recorded()
            && let (Some(record), Some(watch)) = (&mut tables.record, &entry.tally.watch)
        {
            if !is_local && matches!(transmit.packet.body, Body::RcResponse(_)) {
                record.answer_leaves(watch, &transmit.packet);
            } else {
                record.about_to_leave(&transmit.packet, way.route, repeats);
            }
        }
        if let Some(held) = &mut entry.tally.held {
            let number = held.leaves(now);
            if is_local {
                held.left_at(number, now, TimeSource::Turn);
            } else {
                let ticket = ticket(index, number);
                if !port.add_stamped(&transmit, by, way, tables, counters, ticket) {
                    counters.send_refused += 1;
                    held.left_at(number, now, TimeSource::Turn);
                }
                follow.note(index);
                if self.tables.is_recorded() {
                    self.record_packet(index, PacketFlags::empty());
                }
                return true;
            }
        } else if !is_local {
            port.add(&transmit, by, way, tables, counters);
            if self.tables.is_recorded() {
                self.record_packet(index, PacketFlags::empty());
            }
            return true;
        }
        let (len, dest) = (transmit.packet.len(), transmit.packet.dest_qp);
        let sender = Sender::of(&way.route);
        let mut buffer = std::mem::take(scratch);
        if emit(&transmit, by, tables, &mut buffer[..len]).is_some() {
            counters.local_packets += 1;
            if self.tables.is_recorded() {
                self.record_packet(index, PacketFlags::LOCAL);
            }
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
