//! The port of an engine: packets are put together and sealed here, and wait until they leave in runs.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use ferroce_fabric::{Fabric, Inbox, Outbox, Route, Sent, Toward};
use ferroce_memory::{Opened, Passes, Place, ShortCrc};
use ferroce_switchboard::slot_of;
use ferroce_transport::{Access, Accessor, DataSink, PayloadSource, Transmit};
use ferroce_wire::{Bth, DataPacket, DataVerb, Digest, ICRC_LEN, Seed, Seeds, SendTail};

use super::host::{Tables, View};
use super::lanes::Lanes;
use super::qps::Way;
use crate::counters::DeviceCounters;

/// Bytes of packets that wait for one system call: two of the largest runs, and before each the first packet
/// of its message, which is longer than the others and so goes alone.
const OUTBOX_BYTES: usize = 2 * (65_536 + 512);

/// Runs that wait for one system call.
const OUTBOX_RUNS: usize = 64;

/// The fabric, and what waits to be sent.
pub(crate) struct Port {
    pub(crate) fabric: Box<dyn Fabric>,
    outbox: Outbox,
    /// How packets may leave together, as the fabric said after it last sent some.
    limits: (usize, usize),
    /// The port that packets can always leave from, as the fabric said in the last whole turn.
    own_port: Option<u16>,
    /// How payloads come into packets.
    pub(crate) passes: Passes,
    /// How the CRC of short packets is found.
    pub(super) crc: ShortCrc,
    /// The beginnings of the CRCs of packets that come, and of those that leave by themselves.
    pub(super) seeds: Seeds,
    pub(super) seeds_out: Seeds,
    /// What goes through memory instead.
    pub(crate) lanes: Lanes,
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
    /// The port of the engine with this slot.
    pub(crate) fn new(slot: u8, fabric: Box<dyn Fabric>) -> Self {
        let limits = limits(&*fabric);
        let outbox = Outbox::new(OUTBOX_BYTES, OUTBOX_RUNS);
        let lanes = Lanes::new(slot);
        let (passes, crc) = (Passes::faster(), ShortCrc::new());
        let (seeds, seeds_out) = Default::default();
        Self { fabric, outbox, limits, own_port: None, passes, crc, seeds, seeds_out, lanes, failed: None }
    }

    /// Lets go of the network: from now on everything is lost.
    pub(crate) fn close(&mut self) {
        self.lanes = Lanes::new(0);
        self.fabric = Box::new(Closed::after(&*self.fabric));
        self.failed = None;
    }

    /// Does nothing with the network any more; but its sockets stay, so that those of other engines keep
    /// their places.
    pub(crate) fn fail(&mut self) {
        self.lanes = Lanes::new(0);
        let closed = Box::new(Closed::after(&*self.fabric));
        self.failed = Some(std::mem::replace(&mut self.fabric, closed));
        self.outbox.clear();
    }

    /// Sends what waits.
    #[inline]
    pub(crate) fn flush(&mut self, counters: &mut DeviceCounters) {
        if !self.outbox.is_empty() {
            self.flush_wire(counters);
        }
        self.lanes.flush();
    }

    /// Sends what waits for the network.
    #[inline]
    fn flush_wire(&mut self, counters: &mut DeviceCounters) {
        let sent = self.fabric.send(&mut self.outbox);
        self.limits = limits(&*self.fabric);
        Self::count(&sent, counters);
    }

    #[inline(always)]
    fn count(sent: &Sent, counters: &mut DeviceCounters) {
        counters.packets_sent += sent.packets;
        counters.send_no_room += sent.no_room;
        counters.send_too_long += sent.too_long;
        counters.send_unreachable += sent.unreachable;
        counters.send_calls += sent.calls;
    }

    /// Room for a run of up to so many bytes that is to leave by itself, and the way that it takes. Else nothing has changed.
    #[inline(always)]
    pub(super) fn alone<'a>(
        &'a mut self,
        len: usize,
        way: &'a mut Way,
    ) -> Option<(&'a mut [u8], &'a mut Seeds, &'a Way)> {
        let is_ready = way.leaves_from(self.own_port) || way.is_ready(&mut *self.fabric);
        if self.limits.0 < 2 || !self.outbox.is_empty() || !is_ready {
            return None;
        }
        Some((self.outbox.room_alone(len)?, &mut self.seeds_out, way))
    }

    /// Asks the fabric what it can always do.
    pub(super) fn ask_fabric(&mut self) {
        self.own_port = self.fabric.own_port();
    }

    /// Sends a run that was written into the room of [`alone`](Self::alone): its first packet has `segment` bytes.
    #[inline]
    pub(super) fn send_alone(
        &mut self,
        to: Toward<'_>,
        (segment, len): (usize, usize),
        packets: usize,
        counters: &mut DeviceCounters,
    ) {
        if let Some(bytes) = self.outbox.room_alone(len)
            && let Some(is_sent) = self.fabric.send_alone(to.route, bytes, segment, packets)
        {
            counters.send_calls += 1;
            if is_sent {
                counters.packets_sent += packets as u64;
                return;
            }
        }
        self.outbox.commit_alone(to, (segment, len), packets);
        let sent = self.fabric.send(&mut self.outbox);
        // How long runs may be changes with one that is refused.
        if sent.packets != packets as u64 || sent.calls != 1 {
            self.limits = limits(&*self.fabric);
        }
        Self::count(&sent, counters);
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
        if let Some(neighbour) = way.lane.and_then(|slot| self.lanes.get(slot)) {
            let Some(buffer) = neighbour.room(len) else { return self.found_no_room(way, counters) };
            match emit(transmit, by, tables, buffer) {
                Some(()) => self.added_to_lane((len, 0), way, counters),
                None => counters.send_refused += 1,
            }
            return;
        }
        let cargo = Cargo { len, more: false, slot, follows: false };
        let room = self.room(cargo, way, counters);
        let written = room.and_then(|(place, buffer)| emit(transmit, by, tables, buffer).map(|()| place));
        match written {
            Some(place) => self.added(cargo, place, way),
            None => counters.send_refused += 1,
        }
    }

    /// As [`add`](Self::add), for a packet that is a run of its own and whose departure will be told under this
    /// name. False if it cannot leave.
    pub(super) fn add_stamped(
        &mut self,
        transmit: &Transmit<'_>,
        by: Accessor,
        way: &mut Way,
        tables: &Tables,
        counters: &mut DeviceCounters,
        ticket: u32,
    ) -> bool {
        let (len, slot) = (transmit.packet.len(), slot_of(transmit.packet.dest_qp));
        // As if it followed one that is shorter: it begins a run.
        if !self.outbox.has_room(len) {
            self.flush(counters);
        }
        let Some(buffer) = self.outbox.room(len) else { return false };
        if !way.is_ready(&mut *self.fabric) || emit(transmit, by, tables, buffer).is_none() {
            return false;
        }
        let Some(buffer) = self.outbox.room(len) else { return false };
        // Cannot fail: every packet has room for a header and an ICRC.
        let _ = way.flow.seal(buffer, 0);
        self.outbox.commit_stamped(Toward { route: &way.route, slot, is_known: false }, len, ticket);
        true
    }

    /// A packet was put where a neighbour had room for it.
    #[inline]
    fn added_to_lane(&mut self, (len, gap): (usize, u8), way: &Way, counters: &mut DeviceCounters) {
        if let Some(slot) = way.lane {
            counters.lane_packets_sent += 1;
            self.lanes.added(slot, len, gap);
        }
    }

    /// A lane is full, or broken: the packet is lost, and sent again by reliable connections.
    #[cold]
    fn found_no_room(&mut self, way: &Way, counters: &mut DeviceCounters) {
        counters.lane_no_room += 1;
        if let Some(slot) = way.lane {
            self.lanes.look_into(slot);
        }
    }

    /// Where the next packet is put together, all but its ICRC, and its place in its run.
    /// [`added`](Self::added) has to follow; else nothing is left there. `None` if the packet is too long.
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
        if place == 0 && !way.is_ready(&mut *self.fabric) {
            return None;
        }
        Some((place, self.outbox.room(len)?))
    }

    /// The packet was put together: seals it, and leaves it in the outbox.
    #[inline(always)]
    fn added(&mut self, cargo: Cargo, place: usize, way: &Way) {
        if let Some(buffer) = self.outbox.room(cargo.len) {
            // Cannot fail: every packet has room for a header and an ICRC.
            let seed = way.flow.seed(buffer.len(), identification(place));
            let _ = seed.seal_by(buffer, |before, bytes| self.crc.of(before, bytes));
            self.sealed(cargo, place, way);
        }
    }

    /// The packet was put together and sealed: leaves it in the outbox.
    #[inline(always)]
    fn sealed(&mut self, cargo: Cargo, place: usize, way: &Way) {
        let Cargo { len, slot, follows, .. } = cargo;
        self.outbox.commit(Toward { route: &way.route, slot, is_known: follows }, len, place);
    }
}

/// Takes the data packets of one queue pair, one after the other.
pub(super) struct Stream<'a> {
    pub(super) port: &'a mut Port,
    pub(super) way: &'a mut Way,
    pub(super) counters: &'a mut DeviceCounters,
    /// Whose memory the payload is.
    pub(super) by: Accessor,
    /// There was one before.
    pub(super) follows: bool,
}

impl DataSink<View<'_>> for Stream<'_> {
    // Most of what a packet costs, in the innermost loop of both requesters and responders.
    #[inline(always)]
    fn take(&mut self, host: &mut View<'_>, data: &DataPacket, payload: &PayloadSource<'_>) -> bool {
        if self.way.lane.is_some() {
            return self.take_by_lane(host, data, payload);
        }
        let Self { port, way, counters, by, follows } = self;
        let passes = port.passes;
        let slot = slot_of(data.dest_qp);
        let cargo = Cargo { len: data.packet_len(), more: !data.ends, slot, follows: *follows };
        *follows = false;
        let Some((place, buffer)) = port.room(cargo, way, counters) else { return false };
        let Some(headers) = data.emit_headers(buffer) else { return false };
        let (head, rest) = buffer.split_at_mut(headers);
        let (body, rest) = rest.split_at_mut(data.payload);
        clear_pad(rest);
        let mut is_sealed = false;
        // If this memory may not be read, it is for the machine to say so.
        let filled = if passes.folds(data.payload)
            && let Some(opened) = whole(payload, *by, host.tables)
        {
            is_sealed = true;
            let seed = way.flow.seed(cargo.len, identification(place));
            fill_sealing(&opened, passes, seed, (head, body, rest))
        } else {
            fill(payload, *by, host.tables, body)
        };
        if filled.is_none() {
            return false;
        }
        if host.tables.is_recorded() {
            host.tell_packet(head, data.payload);
        }
        if is_sealed {
            port.sealed(cargo, place, way);
        } else {
            port.added(cargo, place, way);
        }
        *follows = true;
        true
    }
}

impl Stream<'_> {
    /// The same through memory, as long as the neighbour is there. Out of the way of packets that go over the network.
    #[inline(never)]
    fn take_by_lane(&mut self, host: &mut View<'_>, data: &DataPacket, payload: &PayloadSource<'_>) -> bool {
        let Self { port, way, counters, by, .. } = self;
        let Some(neighbour) = way.lane.and_then(|slot| port.lanes.get(slot)) else {
            // From here on over the network.
            way.lane = None;
            return self.take(host, data, payload);
        };
        let len = data.packet_len();
        // Packets that are read from a copy have none: immediate data, or a key to be invalidated, comes between.
        let is_plain = match data.verb {
            DataVerb::Send(tail) => tail == SendTail::Plain,
            DataVerb::Write(_, imm) => imm.is_none(),
            DataVerb::Answer(_) | DataVerb::Acknowledge(_) => true,
        };
        let aligned = if is_plain { data.payload } else { 0 };
        let Some((gap, buffer)) = neighbour.room_for(len, data.header_len(), aligned) else {
            // It waits, or is lost, the long way.
            return false;
        };
        let Some(headers) = data.emit_headers(buffer) else { return false };
        let (head, rest) = buffer.split_at_mut(headers);
        let (body, rest) = rest[usize::from(gap)..].split_at_mut(data.payload);
        clear_pad(rest);
        // If this memory may not be read, it is for the machine to say so.
        if fill(payload, *by, host.tables, body).is_none() {
            return false;
        }
        if host.tables.is_recorded() {
            host.tell_packet(head, data.payload);
        }
        port.added_to_lane((len, gap), way, counters);
        true
    }
}

/// The IPv4 identification of the packet at this place of its run, which the kernel gives it.
fn identification(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(0)
}

/// The memory of a payload that is in one piece.
#[inline]
fn whole<'a>(payload: &PayloadSource<'_>, by: Accessor, tables: &'a Tables) -> Option<Opened<'a>> {
    match payload {
        PayloadSource::Nothing | PayloadSource::Inline(_) => None,
        PayloadSource::Gather(pieces) => {
            Some(Opened::plain(tables.memory.local(by.domain, pieces.whole()?, false).ok()?))
        }
        PayloadSource::Remote { rkey, address, len } => {
            tables.memory.remote(by, *rkey, *address, *len, Access::REMOTE_READ).ok()
        }
    }
}

/// Copies a payload from where it is, and seals its packet: what is before the payload is there already, and so is what
/// comes after it, but for the ICRC. `None` if the memory is too short.
fn fill_sealing(
    from: &Place<'_>,
    passes: Passes,
    seed: Seed,
    (head, body, rest): (&[u8], &mut [u8], &mut [u8]),
) -> Option<()> {
    let mut digest = seed.digest(head[Bth::VARIANT_BYTE]);
    digest.update(head);
    if let Some(fold) = from.read_folding(body, digest.register(), passes).ok()? {
        digest = Digest::from_zero();
        digest.update(&fold.block);
        digest.update(&body[fold.len..]);
    } else {
        from.read(body).ok()?;
        digest.update(body);
    }
    let (pad, icrc) = rest.split_last_chunk_mut()?;
    digest.update(pad);
    *icrc = digest.finish().to_le_bytes();
    Some(())
}

/// How packets may leave together: how many, and how many bytes.
fn limits(fabric: &dyn Fabric) -> (usize, usize) {
    if fabric.coalesces() { fabric.run_limits() } else { (1, usize::MAX) }
}

/// What is left of a fabric when its device has closed: what it has counted.
struct Closed {
    dropped: u64,
    overflowed: u64,
}

impl Closed {
    fn after(fabric: &dyn Fabric) -> Self {
        Self { dropped: fabric.dropped(), overflowed: fabric.overflowed() }
    }
}

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

    fn dropped(&self) -> u64 {
        self.dropped
    }

    fn overflowed(&self) -> u64 {
        self.overflowed
    }

    fn descriptors(&self) -> &[RawFd] {
        &[]
    }
}

impl Way {
    /// A way with these ends, or `None` if one is IPv4 and the other IPv6.
    pub(crate) fn new(route: Route) -> Option<Self> {
        let flow = route.flow()?;
        Some(Self { route, wanted_port: route.source_port, must: false, lane: None, flow })
    }

    /// Has packets leave from the port that is wanted, or from another one if that is allowed; false if they cannot
    /// leave.
    #[inline]
    pub(crate) fn is_ready(&mut self, fabric: &mut dyn Fabric) -> bool {
        let port = if self.must {
            match fabric.require_port(self.wanted_port, self.route.local) {
                Ok(()) => self.wanted_port,
                Err(_) => return false,
            }
        } else {
            fabric.source_port(self.wanted_port, self.route.local)
        };
        if port != self.route.source_port {
            self.leave_from(port);
        }
        true
    }

    /// Whether packets leave from this port, and are wanted to: then nothing has to be asked for.
    #[inline(always)]
    fn leaves_from(&self, own: Option<u16>) -> bool {
        own == Some(self.wanted_port) && self.wanted_port == self.route.source_port
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
pub(super) fn emit(transmit: &Transmit<'_>, by: Accessor, tables: &Tables, buffer: &mut [u8]) -> Option<()> {
    let headers = transmit.packet.emit_headers(buffer).ok()?;
    let payload = transmit.packet.payload_len();
    let (body, rest) = buffer[headers..].split_at_mut(payload);
    clear_pad(rest);
    fill(&transmit.payload, by, tables, body)
}

/// Writes a packet of data, all but its ICRC. `None` if its memory may not be read.
#[inline(always)]
pub(super) fn compose(
    data: &DataPacket,
    payload: &PayloadSource<'_>,
    by: Accessor,
    tables: &Tables,
    buffer: &mut [u8],
) -> Option<()> {
    let headers = data.emit_headers(buffer)?;
    let (body, rest) = buffer[headers..].split_at_mut(data.payload);
    clear_pad(rest);
    fill(payload, by, tables, body)
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
        let mut port = Port::new(0, Box::new(Recorder(Arc::clone(&calls))));
        let (local, remote) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let route =
            Route { local, remote, source_port: 50_000, traffic_class: 0, hop_limit: 64, flow_label: 0 };
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
