//! Packets on their way in through memory that other processes have in common with this one.
//!
//! Such a packet is the same as on the wire, but for its ICRC, which is not computed. Another process may change it while it
//! is looked at: headers are copied and then believed, payloads are only moved.

use std::net::{IpAddr, Ipv4Addr};

use ferroce_fabric::{NotShared, Path, PathChoice, PathReason};
use ferroce_lane::{Consumer, Record};
use ferroce_record::Refusal;
use ferroce_transport::Acks;
use ferroce_wire::{DataPacket, Packet, Service};

use super::Engine;
use super::host::view;
use super::lanes::{LINE, Neighbour, PACKET};
use super::qps::{Entry, index_of};
use super::sender::{Came, Sender};
use super::state::Turned;
use crate::engines::Engines;

/// Bytes of records after which their room is given back, and what is acknowledged is told.
const CHUNK: usize = 16 << 10;

/// Bytes that are copied of a packet to look at its headers: whole words.
const HEAD: usize = DataPacket::HEAD.next_multiple_of(8);

/// Packets of one neighbour before others have their turn.
const MOST: usize = 512;

/// Bytes of them.
const MOST_BYTES: usize = 256 << 10;

impl Engine {
    /// Takes in what neighbours have called for, and adds how many packets that were, and whether there is more.
    #[inline(always)]
    pub(super) fn take_lanes(&mut self, turned: &mut Turned, around: &Engines) {
        if self.port.lanes.is_called() {
            turned.add(self.take_called(around));
        }
    }

    #[inline(never)]
    fn take_called(&mut self, around: &Engines) -> Turned {
        // A receive that was posted before its message was sent must be there for it.
        self.port.lanes.hear();
        self.take_mail(&around.station(self.index).mail);
        if let Some(record) = &mut self.tables.record {
            record.tick();
        }
        let mut turned = Turned::default();
        let mut later = Vec::new();
        while let Some(slot) = self.port.lanes.next_called() {
            let Some(incarnation) = self.port.lanes.incarnation(slot) else { continue };
            let Some(mut consumer) = self.port.lanes.take_out(slot) else { continue };
            let (received, more) = self.take_lane(slot, &mut consumer, around);
            turned.received += received;
            if received > 0 {
                self.port.lanes.has_had(slot);
            }
            if consumer.is_broken()
                || self.port.lanes.get(slot).is_some_and(|neighbour| neighbour.is_broken())
            {
                self.counters.lanes_broken += 1;
                if let Some(neighbour) = self.port.lanes.get(slot) {
                    neighbour.give_up();
                }
                // The driver hangs up, so that the other process learns of it. By a time: a driver that turns the engine itself does
                // not sleep, and would sleep on.
                around.station(self.index).driver.needed_at(Some(self.tables.now));
                self.lose_neighbour(slot, incarnation, NotShared::Broken);
                continue;
            }
            self.port.lanes.put_back(slot, consumer, false);
            if more {
                later.push(slot);
            }
        }
        turned.more = !later.is_empty();
        later.into_iter().for_each(|slot| self.port.lanes.look_into(slot));
        turned
    }

    /// Takes in packets of one neighbour; how many, and whether there are more.
    fn take_lane(&mut self, from: u8, consumer: &mut Consumer, around: &Engines) -> (usize, bool) {
        let (mut packets, mut bytes, mut chunk) = (0, 0, 0);
        // Packets that come together are mostly for one queue pair.
        let mut touched = None;
        while packets < MOST && bytes < MOST_BYTES {
            let Some(record) = consumer.next() else {
                if consumer.look() {
                    continue;
                }
                break;
            };
            packets += 1;
            chunk += record.len();
            self.counters.lane_packets_received += 1;
            let index = self.take_record(from, &record, around);
            if index.is_some()
                && index != touched
                && let Some(before) = std::mem::replace(&mut touched, index)
            {
                self.after(before);
            }
            if chunk >= CHUNK {
                bytes += std::mem::take(&mut chunk);
                consumer.release();
                if let Some(index) = touched.take() {
                    self.after(index);
                }
                self.queue_owing();
                self.transmit(Acks::Send, around);
                self.port.flush(&mut self.counters);
            }
        }
        consumer.release();
        if let Some(index) = touched {
            self.after(index);
        }
        (packets, packets >= MOST || bytes >= MOST_BYTES)
    }

    /// Takes in a packet; [`after`](Self::after) has to follow for the queue pair that it says.
    #[inline]
    fn take_record(&mut self, from: u8, record: &Record<'_>, around: &Engines) -> Option<u16> {
        let gap = usize::from(record.kind().wrapping_sub(PACKET));
        let len = record.len().checked_sub(gap).filter(|_| gap < LINE);
        let Some(len) = len.filter(|_| !self.tables.is_recorded()) else {
            return self.take_copy(from, record, around);
        };
        let mut head = [0; HEAD];
        let copied = record.copy_head(&mut head);
        let head = &head[..copied];
        let Some((data, at)) = DataPacket::parse_head(head, len) else {
            return match DataPacket::parse_answer_head(head, len) {
                Some((data, at)) => self.take_answer(from, record, (&data, at + gap), around),
                None => self.take_copy(from, record, around),
            };
        };
        let Self { qps, tables, windows, .. } = self;
        let fits =
            |entry: &&mut Entry| entry.neighbour == Some(from) && entry.machine.service() == Service::Rc;
        let payload = record.bytes().get(at + gap..at + gap + data.payload);
        let (Some(entry), Some(payload)) = (qps.get(data.dest_qp).filter(fits), payload) else {
            return self.take_copy(from, record, around);
        };
        if entry.machine.passes_over(&data) {
            return Some(index_of(data.dest_qp));
        }
        let (now, window) = (tables.now, windows.get(entry.window));
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let is_taken = entry.machine.take_data(now, &data, payload, window, &mut host);
        if is_taken { Some(index_of(data.dest_qp)) } else { self.take_copy(from, record, around) }
    }

    /// As [`take_record`](Self::take_record), for the answer to a READ.
    fn take_answer(
        &mut self,
        from: u8,
        record: &Record<'_>,
        (data, at): (&DataPacket, usize),
        around: &Engines,
    ) -> Option<u16> {
        let Self { qps, tables, windows, .. } = self;
        let payload = record.bytes().get(at..at + data.payload);
        let entry = qps.get(data.dest_qp).filter(|entry| entry.neighbour == Some(from));
        let (Some(entry), Some(payload)) = (entry, payload) else {
            return self.take_copy(from, record, around);
        };
        let packet = data.to_packet().map_payload(|_| payload);
        let (now, window) = (tables.now, windows.get(entry.window));
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        entry.machine.handle_packet(now, &packet, None, window, &mut host);
        Some(index_of(data.dest_qp))
    }

    /// As [`take_record`](Self::take_record), for all packets: it looks at a copy.
    #[cold]
    fn take_copy(&mut self, from: u8, record: &Record<'_>, around: &Engines) -> Option<u16> {
        let mut copy = std::mem::take(&mut self.port.lanes.copy);
        let index = match whole(record, &mut copy) {
            Some(bytes) => self.take_bytes(from, bytes, around),
            None => {
                self.counters.malformed += 1;
                None
            }
        };
        self.port.lanes.copy = copy;
        index
    }

    fn take_bytes(&mut self, from: u8, bytes: &[u8], around: &Engines) -> Option<u16> {
        match Packet::parse(bytes) {
            Ok(packet) => {
                // Where it comes from is known of the queue pair: addresses are not asked for.
                let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                let sender = Sender::near(nowhere, Came::Lane(from));
                self.hand_over_packet(&sender, &packet, bytes, around, false)
            }
            Err(error) => {
                self.count_malformed(&error);
                self.record_refusal(bytes, None, Refusal::Malformed);
                None
            }
        }
    }

    /// A process of this machine has memory in common with this one from now on. Queue pairs that are connected to an earlier owner
    /// of its slot are none of its own.
    pub(crate) fn gain_neighbour(&mut self, neighbour: Box<Neighbour>) {
        let (slot, incarnation) = (neighbour.slot, Some(neighbour.incarnation));
        let of_another =
            |entry: &&mut Entry| entry.neighbour == Some(slot) && entry.incarnation != incarnation;
        for entry in self.qps.iter_mut().filter(of_another) {
            entry.neighbour = None;
        }
        self.port.lanes.add(neighbour);
    }

    /// A process of this machine has no memory in common with this one any more: what it is sent goes over the network, where it
    /// arrives if there is still a process that has the slot.
    pub(crate) fn lose_neighbour(&mut self, slot: u8, incarnation: u64, why: NotShared) {
        if !self.port.lanes.remove(slot, incarnation) {
            return;
        }
        let choice = PathChoice { path: Path::Wire, reason: PathReason::NotShared(why) };
        let Self { qps, windows, .. } = self;
        let mut moved = Vec::new();
        // What comes by memory that is shared anew with the same process is still for them: the peer's end may be connected later than
        // this one.
        for entry in qps.iter_mut().filter(|entry| entry.neighbour == Some(slot)) {
            if entry.path.is_some_and(|choice| choice.path == Path::Shared) {
                entry.path = Some(choice);
            }
            let Some(way) = &mut entry.way else { continue };
            if way.lane.take().is_none() {
                continue;
            }
            // Where they go from now on they share the room of a socket.
            let next = windows.join(way.route.remote, entry.peer, false);
            let before = std::mem::replace(&mut entry.window, next);
            if std::mem::take(&mut entry.waiting) {
                let index = index_of(entry.machine.qpn());
                windows.leave_queue(before, index);
                moved.push(index);
            }
            if let Some([before, next]) = windows.two(before, next) {
                entry.machine.move_to_window(before, next);
            }
            windows.leave(before);
        }
        moved.into_iter().for_each(|index| self.queue(index));
        // Those that have found no room there go another way.
        self.queue_those_without_room();
    }
}

/// The packet of a record in one piece, copied to here. `None` if it has no room, or is no packet.
fn whole<'a>(record: &Record<'_>, copy: &'a mut [u8]) -> Option<&'a [u8]> {
    let gap = usize::from(record.kind().wrapping_sub(PACKET));
    let len = record.len().checked_sub(gap).filter(|_| gap < LINE)?;
    let copied = record.copy_head(copy.get_mut(..record.len())?);
    if gap > 0 {
        let head = &copy[..copied.min(DataPacket::HEAD)];
        let parsed = DataPacket::parse_head(head, len).or_else(|| DataPacket::parse_answer_head(head, len));
        let (_, at) = parsed?;
        copy.copy_within(at + gap..record.len(), at);
    }
    copy.get(..len)
}
