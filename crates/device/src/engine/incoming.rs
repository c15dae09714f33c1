//! Packets on their way in: checked, taken apart, handed to their queue pair.

use ferroce_fabric::Ends;
use ferroce_fabric::Received;
use ferroce_fabric::{Path, PathChoice, PathReason};
use ferroce_record::{PacketFlags, Refusal};
use ferroce_switchboard::slot_of;
use ferroce_transport::{QueuePair, Time, Window};
use ferroce_wire::{DataPacket, Flow, Packet, ParseError, Qpn, Service};

use super::Engine;
use super::follow::Follow;
use super::host::{Tables, View, view};
use super::port::Port;
use super::qps::{Entry, index_of};
use super::recorded;
use super::sender::{Came, Sender};
use super::windows::Windows;
use crate::engines::Engines;

/// What is known of the packets that arrived together.
struct RunOfData {
    /// The flow of the packets, if their identifications are their places.
    flow: Option<Flow>,
    /// A connected queue pair that they may be for.
    dest: Option<Qpn>,
    /// The packet that is being taken in was written down.
    told: bool,
}

/// The queue pair of the last packet that nothing was out of the ordinary with, and where that came from: most packets are for
/// the same. It is forgotten with whatever may change a queue pair other than packets and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Familiar {
    ends: Ends,
    flow: Flow,
    dest: Qpn,
}

impl Familiar {
    #[inline(always)]
    fn is_from(&self, datagram: &Received) -> bool {
        self.ends.source == datagram.source && self.ends.local == datagram.local
    }

    /// Takes in the first packets of a datagram as far as they are for this queue pair, and nothing is out of the ordinary with
    /// them: as [`take_data`](Engine::take_data), but the queue pair is looked for once. Messages of one packet and
    /// acknowledgements, which is all that comes to a program that waits for each answer, are looked at with fewer questions.
    #[inline(always)]
    fn take(
        &self,
        entry: &mut Entry,
        segment: usize,
        bytes: &[u8],
        (tables, windows, port): (&mut Tables, &mut Windows, &mut Port),
    ) -> Begun {
        let (dest, segment, crc) = (self.dest, segment.max(1), port.crc);
        let (now, window) = (tables.now, windows.get(entry.window));
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let mut begun = Begun::default();
        while let Some(rest) = bytes.get(begun.bytes..).filter(|rest| !rest.is_empty()) {
            let packet = rest.get(..segment).unwrap_or(rest);
            let place = u16::try_from(begun.packets).unwrap_or(0);
            let (machine, flow) = (&mut entry.machine, &self.flow);
            let send = DataPacket::parse_send(packet, dest).filter(|_| !machine.may_pass_over());
            let ack = if send.is_none() { DataPacket::parse_ack(packet, dest) } else { None };
            let is_lone = send.is_some() || ack.is_some();
            let mut is_right = || {
                let seed = port.seeds.of(flow, packet.len(), place);
                seed.is_right_by(packet, |before, bytes| crc.of(before, bytes))
            };
            let taken = if is_lone {
                // Nothing is placed, and nothing believed, before this.
                is_right()
                    && (match (&send, &ack) {
                        (Some((head, payload)), _) => {
                            machine.take_send(now, head, payload, window, &mut host)
                        }
                        (None, Some(ack)) => machine.take_only_ack(now, ack, window, &mut host),
                        (None, None) => false,
                    } || take_any(machine, now, packet, window, &mut host))
            } else {
                match DataPacket::parse(packet) {
                    None => false,
                    // It was not looked at.
                    Some((data, _)) if data.dest_qp != dest => return begun,
                    Some((data, payload)) => {
                        machine.passes_over(&data)
                            || (flow.verify(packet, place).is_ok()
                                && machine.take_data(now, &data, payload, window, &mut host))
                    }
                }
            };
            if !taken {
                begun.is_refused = true;
                return begun;
            }
            begun.packets += 1;
            begun.bytes += packet.len();
        }
        begun
    }
}

/// Takes in a packet whose ICRC is right and that has more to it than its kind mostly has. Whether it could; else nothing has
/// changed.
#[cold]
fn take_any(
    machine: &mut QueuePair,
    now: Time,
    packet: &[u8],
    window: &mut Window,
    host: &mut View<'_>,
) -> bool {
    let Some((data, payload)) = DataPacket::parse(packet) else { return false };
    machine.take_data(now, &data, payload, window, host)
}

/// How far a datagram was taken in at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begun {
    packets: usize,
    /// The bytes of these packets.
    bytes: usize,
    /// The first packet behind them is out of the ordinary: it was looked at.
    is_refused: bool,
}

/// Why a queue pair takes no packet of a sender.
enum NotFor {
    /// The queue pair is connected to another peer.
    Peer,
    /// The peer of the queue pair sends none over the network.
    Path,
}

/// Why this queue pair takes no packet of this sender, if so.
fn refusal(entry: &Entry, sender: &Sender, around: &Engines) -> Option<NotFor> {
    if let Came::Lane(slot) = sender.came {
        return (entry.neighbour != Some(slot)).then_some(NotFor::Peer);
    }
    // IBA 9.6.1.5: a connection takes packets from its peer only.
    let from_peer = entry
        .way
        .as_ref()
        .is_some_and(|way| way.route.remote == sender.remote && way.route.local == sender.local);
    if entry.machine.service() != Service::Ud && !from_peer {
        return Some(NotFor::Peer);
    }
    match entry.path {
        // Between two queue pairs that meet in this process no packet goes over the network: this one is
        // not from the peer.
        Some(PathChoice { path: Path::Local, .. }) => {
            (sender.came == Came::Wire && !around.has_to_use_wire(entry.peer)).then_some(NotFor::Path)
        }
        // The peer shares no memory, or does not any more: more will come this way.
        Some(PathChoice { path: Path::Shared, .. } | PathChoice { reason: PathReason::NotShared(_), .. }) => {
            if let Some(index) = around.of(entry.machine.qpn()) {
                around.station(index).expect_packets();
            }
            None
        }
        _ => None,
    }
}

/// What a record says of a packet from the network.
fn mark(datagram: &Received) -> PacketFlags {
    mark_of(&Sender::of_datagram(datagram))
}

/// What a record says of a packet from this sender.
fn mark_of(sender: &Sender) -> PacketFlags {
    let mut flags = PacketFlags::empty();
    flags.set(PacketFlags::LOCAL, sender.came == Came::Here);
    flags.set(PacketFlags::CONGESTION, sender.traffic_class & 3 == 3);
    flags
}

impl Engine {
    /// Takes in the only datagram that has come, if it is from the peer that most are from, as far as nothing is out of the ordinary
    /// with it. Then what it was, and how far it was taken in; [`take_datagram`](Self::take_datagram) has to go on from there.
    #[inline(always)]
    pub(super) fn take_only(&mut self, around: &Engines) -> Option<(Begun, usize)> {
        let Self { qps, tables, windows, familiar, port, inbox, distant, .. } = self;
        let (datagram, bytes) = inbox.only()?;
        let familiar = familiar.as_ref().filter(|familiar| familiar.is_from(datagram))?;
        if tables.is_recorded() || around.member.locals().is_foreign(datagram.source, distant) {
            return None;
        }
        let entry = qps.get(familiar.dest)?;
        let begun = familiar.take(entry, datagram.segment, bytes, (tables, windows, port));
        Some((begun, bytes.len()))
    }

    /// Whether the only datagram, which has so many bytes, was taken in as a whole: its packets. Then all is done with it.
    #[inline(always)]
    pub(super) fn has_taken(&mut self, begun: Begun, len: usize) -> Option<usize> {
        let Begun { packets, bytes, .. } = begun;
        if bytes != len || packets == 0 {
            return None;
        }
        let congested = self.inbox.only().is_some_and(|(datagram, _)| datagram.traffic_class & 3 == 3);
        self.counters.packets_received += packets as u64;
        self.counters.ecn_marked += if congested { packets as u64 } else { 0 };
        if let Some(index) = self.familiar.as_ref().map(|familiar| index_of(familiar.dest)) {
            self.after(index);
        }
        Some(packets)
    }

    /// Takes in a datagram, or several that arrived as one; how many packets. `begun` says how far that was done, if it was.
    pub(super) fn take_datagram(
        &mut self,
        datagram: &Received,
        bytes: &[u8],
        begun: Option<Begun>,
        around: &Engines,
    ) -> usize {
        if begun.is_none() && around.member.locals().is_foreign(datagram.source, &mut self.distant) {
            let packets = datagram.packets().max(1);
            self.counters.packets_received += packets;
            self.counters.foreign_source += packets;
            return usize::try_from(packets).unwrap_or(1);
        }
        let ends = Ends { source: datagram.source, local: datagram.local };
        let congested = datagram.traffic_class & 3 == 3;
        if bytes.is_empty() {
            self.counters.packets_received += 1;
            self.counters.malformed += 1;
            return 1;
        }
        let Begun { mut packets, bytes: done, is_refused } =
            begun.unwrap_or_else(|| self.take_familiar(datagram, bytes));
        let rest = bytes.get(done..).unwrap_or_default();
        let mut touched = self.familiar.as_ref().filter(|_| packets > 0).map(|known| index_of(known.dest));
        self.counters.packets_received += packets as u64;
        self.counters.ecn_marked += if congested { packets as u64 } else { 0 };
        if rest.is_empty() {
            if let Some(index) = touched {
                self.after(index);
            }
            return packets;
        }
        let refused = is_refused.then_some(packets);
        let mut run = match self.familiar {
            Some(Familiar { ends: known, flow, dest }) if known == ends => {
                RunOfData { flow: Some(flow), dest: Some(dest), told: false }
            }
            _ => RunOfData { flow: self.verifier.flow_by_place(&ends), dest: None, told: false },
        };
        // Packets that come together are mostly for one queue pair.
        for packet in rest.chunks(datagram.segment.max(1)) {
            let place = packets;
            packets += 1;
            self.counters.packets_received += 1;
            self.counters.ecn_marked += u64::from(congested);
            let index = match refused {
                Some(refused) if refused == place => None,
                _ => self.take_data(datagram, &mut run, (place, packet), around),
            };
            let index = match index {
                None => self.take_packet(datagram, &ends, (place, packet), around, run.told),
                index => index,
            };
            run.told = false;
            if index.is_some()
                && index != touched
                && let Some(before) = std::mem::replace(&mut touched, index)
            {
                self.after(before);
            }
        }
        if let Some(index) = touched {
            self.after(index);
        }
        packets
    }

    /// Takes in the first packets of a datagram, as far as they are for the queue pair that packets are mostly for, and nothing is
    /// out of the ordinary with them.
    fn take_familiar(&mut self, datagram: &Received, bytes: &[u8]) -> Begun {
        let Self { qps, tables, windows, familiar, port, .. } = self;
        let familiar = familiar.as_ref().filter(|familiar| familiar.is_from(datagram));
        match familiar.and_then(|familiar| Some((familiar, qps.get(familiar.dest)?))) {
            Some((familiar, entry)) if !tables.is_recorded() => {
                familiar.take(entry, datagram.segment, bytes, (tables, windows, port))
            }
            _ => Begun::default(),
        }
    }

    /// Takes in a packet of a SEND or WRITE for which nothing is out of the ordinary. `None` if it is not
    /// like that, or not known to be: then [`take_packet`](Self::take_packet) has to. Else
    /// [`after`](Self::after) has to follow for the queue pair that it says.
    #[inline]
    fn take_data(
        &mut self,
        datagram: &Received,
        run: &mut RunOfData,
        (place, bytes): (usize, &[u8]),
        around: &Engines,
    ) -> Option<u16> {
        let flow = run.flow?;
        let parsed = DataPacket::parse(bytes);
        // Where it was read, without a copy.
        let Some((data, payload)) = &parsed else { return None };
        let dest = data.dest_qp;
        if run.dest != Some(dest) {
            let sender = Sender::of_datagram(datagram);
            let entry = self.qps.get(dest)?;
            if entry.machine.service() != Service::Rc || refusal(entry, &sender, around).is_some() {
                return None;
            }
            let has_more_to_see_to = |choice: PathChoice| {
                choice.path != Path::Wire || matches!(choice.reason, PathReason::NotShared(_))
            };
            let is_usual = !entry.path.is_some_and(has_more_to_see_to);
            run.dest = Some(dest);
            let ends = Ends { source: datagram.source, local: datagram.local };
            self.familiar = (is_usual && self.is_plain()).then_some(Familiar { ends, flow, dest });
        }
        let Self { qps, tables, windows, port, .. } = self;
        let entry = qps.get(dest)?;
        if entry.machine.passes_over(data) {
            if tables.is_recorded() {
                recorded::came(tables, entry, (bytes, payload.len()), mark(datagram));
            }
            return Some(index_of(dest));
        }
        let seed = port.seeds.of(&flow, bytes.len(), u16::try_from(place).unwrap_or(0));
        if !seed.is_right_by(bytes, |before, bytes| port.crc.of(before, bytes)) {
            return None;
        }
        if tables.is_recorded() {
            recorded::came(tables, entry, (bytes, payload.len()), mark(datagram));
            run.told = true;
        }
        let (now, window) = (tables.now, windows.get(entry.window));
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        let is_taken = entry.machine.take_data(now, data, payload, window, &mut host);
        if is_taken && tables.is_recorded() {
            recorded::took(tables, entry);
        }
        is_taken.then(|| index_of(dest))
    }

    /// Takes in a packet; [`after`](Self::after) has to follow for the queue pair that it says.
    fn take_packet(
        &mut self,
        datagram: &Received,
        ends: &Ends,
        (place, bytes): (usize, &[u8]),
        around: &Engines,
        told: bool,
    ) -> Option<u16> {
        self.familiar = None;
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                self.count_malformed(&error);
                self.record_refusal(bytes, None, Refusal::Malformed);
                return None;
            }
        };
        let Some(identification) = self.verifier.check(ends, bytes, place, self.tables.now) else {
            self.counters.icrc_errors += 1;
            self.record_refusal(bytes, Some(&packet), Refusal::Icrc);
            return None;
        };
        let sender = Sender { identification, ..Sender::of_datagram(datagram) };
        self.hand_over_packet(&sender, &packet, bytes, around, told)
    }

    pub(super) fn count_malformed(&mut self, error: &ParseError) {
        match error {
            ParseError::UnknownOpcode(_) => self.counters.unknown_opcode += 1,
            _ => self.counters.malformed += 1,
        }
    }

    /// Hands a packet to its queue pair. `bytes` are the packet as it came.
    pub(super) fn deliver(
        &mut self,
        sender: &Sender,
        packet: &Packet<&[u8]>,
        bytes: &[u8],
        around: &Engines,
    ) {
        if let Some(index) = self.hand_over_packet(sender, packet, bytes, around, false) {
            self.after(index);
        }
    }

    /// Hands a packet to its queue pair; [`after`](Self::after) has to follow for the one that it returns. `told` says
    /// whether it was written down.
    pub(super) fn hand_over_packet(
        &mut self,
        sender: &Sender,
        packet: &Packet<&[u8]>,
        bytes: &[u8],
        around: &Engines,
        told: bool,
    ) -> Option<u16> {
        if slot_of(packet.dest_qp) != self.qps.slot() {
            match sender.came {
                // A process has a lane to each engine that it sends to.
                Came::Lane(_) => self.counters.unknown_qp += 1,
                Came::Here | Came::Wire => self.forward(sender, packet, bytes, around),
            }
            return None;
        }
        let index = index_of(packet.dest_qp);
        let Self { qps, tables, windows, counters, follow: Follow { wall, .. }, .. } = self;
        let Some(entry) = qps.by_index(index) else {
            let known = self.answer_for_departed(sender, packet);
            self.counters.unknown_qp += u64::from(!known);
            self.record_refusal(bytes, Some(packet), Refusal::UnknownQp);
            return None;
        };
        match refusal(entry, sender, around) {
            Some(NotFor::Peer) => {
                counters.wrong_peer += 1;
                self.record_refusal(bytes, Some(packet), Refusal::WrongPeer);
                return None;
            }
            Some(NotFor::Path) => {
                counters.wrong_path += 1;
                self.record_refusal(bytes, Some(packet), Refusal::WrongPath);
                return None;
            }
            None => {}
        }
        if tables.is_recorded() && !told {
            recorded::came(tables, entry, (bytes, packet.payload_len()), mark_of(sender));
            if matches!(packet.body, ferroce_wire::Body::Ud(_)) {
                recorded::came_from(tables, entry, sender);
            }
        }
        // The machine drops it, and counts it for the queue pair.
        counters.wrong_pkey += u64::from(!entry.machine.is_of_partition(packet.pkey));
        let now = tables.now;
        let window = windows.get(entry.window);
        let mut envelope;
        let envelope = if matches!(packet.body, ferroce_wire::Body::Ud(_)) {
            envelope = sender.envelope(packet.len());
            if entry.tally.held.is_some() && sender.stamp != 0 {
                envelope.came = Some(wall.convert(sender.stamp));
            }
            Some(&envelope)
        } else {
            None
        };
        let mut host = view(tables, entry.send_cq, entry.receive_cq, &mut entry.tally);
        entry.machine.handle_packet(now, packet, envelope, window, &mut host);
        if tables.is_recorded() {
            recorded::took(tables, entry);
        }
        Some(index)
    }

    /// A packet for another slot. The kernel steers a run of packets by the first of them, so some may have
    /// come to the wrong engine.
    #[cold]
    fn forward(&mut self, sender: &Sender, packet: &Packet<&[u8]>, bytes: &[u8], around: &Engines) {
        if packet.dest_qp == Qpn::MULTICAST && sender.is_to_group() {
            self.take_for_group(sender, packet, bytes, around);
        } else if let Some(there) = around.of(packet.dest_qp) {
            self.counters.forwarded += 1;
            self.send_to_engine(there, sender, bytes, around);
        } else if !around.member.forward(slot_of(packet.dest_qp), &sender.arrival(bytes)) {
            self.counters.unknown_qp += 1;
        }
    }

    /// A datagram to a group, which the switchboard has heard or got from another process. It goes to queue
    /// pairs of this process, and no further.
    fn take_for_group(&mut self, sender: &Sender, packet: &Packet<&[u8]>, bytes: &[u8], around: &Engines) {
        let is_datagram = matches!(packet.body, ferroce_wire::Body::Ud(_));
        let mut buffer = std::mem::take(&mut self.scratch);
        match buffer.get_mut(..bytes.len()).filter(|_| is_datagram) {
            Some(copy) => {
                copy.copy_from_slice(bytes);
                self.copy_to_members(sender, copy, around);
            }
            None => self.counters.unknown_qp += 1,
        }
        self.scratch = buffer;
    }

    /// Leaves a packet for another engine of this process; false if that has no room.
    #[inline(never)]
    pub(super) fn send_to_engine(
        &mut self,
        there: usize,
        sender: &Sender,
        bytes: &[u8],
        around: &Engines,
    ) -> bool {
        self.errands |= 1 << there;
        let taken = around.station(there).freight.push(sender, bytes);
        self.counters.send_no_room += u64::from(!taken);
        taken
    }
}
