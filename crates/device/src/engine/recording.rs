//! The record of an engine: what happens in it, as events in a ring.
//!
//! Nothing of this is there while a device does not record: the tables of its engines have no recording, and its queue
//! pairs no watch. Events have the time at which something was last begun: a burst of packets shares one.

use std::hint::cold_path;
use std::num::NonZeroU64;
use std::sync::Arc;

use ferroce_fabric::Route;
use ferroce_record::{
    Begun, Completed, CompletedFlags, Doorbell, EngineRing, Event, Matched, Operands, PacketFlags,
    PacketHead, Piece, Posted, PostedFlags, ProgramRing, Queue, Recorder, Refusal, Region, RegionKind, Shade,
    StateChange, Step, Timer, Wait,
};
use ferroce_sys::clock;
use ferroce_transport::{
    Access, Bind, Completion, DomainId, Due, QueuePair, ReceiveQueue, ReceiveRequest, SendRequest, Sge,
    SharedQueueId, State, Status, Time, Waiting,
};
use ferroce_wire::{Lkey, Opcode, PayloadLen, Psn, Qpn, Rkey, Role, Service};

use super::watch::{RECENT, Watch};
use crate::completion::CqId;

/// The record of an engine.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    /// Bits that tell the shared queues of this device from those of others.
    device: u32,
    ring: Ring,
    /// When that happens which is being written down.
    now: u64,
    /// When the work was posted that is taken out of the mail next.
    pub(super) posting: Option<NonZeroU64>,
    /// The packet that is about to leave.
    pub(super) leaving: Option<HeaderCopy>,
}

/// Where the number of a device stands in those of its shared receive queues.
const DEVICE_SHIFT: u32 = 24;

/// Where events go.
#[derive(Debug)]
enum Ring {
    Own(EngineRing),
    /// There are more engines than rings: it is shared with the threads of the program.
    Shared(ProgramRing),
}

/// The receives of a queue pair that are not over: those of its own queue, and one that a message has taken.
pub(crate) fn receives_of(machine: &QueuePair) -> Vec<(u32, u64)> {
    let taken = machine.taken_receive().map(|receive| (receive.number(), receive.id()));
    let waiting = machine.posted_receives().map(|(work, id, _)| (work, id));
    taken.into_iter().chain(waiting).collect()
}

/// A packet as its headers stand on the wire.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    pub(super) headers: &'a [u8],
    /// Bytes of payload.
    pub(super) payload: usize,
}

impl Bytes<'_> {
    pub(super) fn psn(&self) -> Psn {
        let bytes = self.headers.get(9..12).unwrap_or(&[0; 3]);
        Psn::new(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    pub(super) fn role(&self) -> Option<Role> {
        Some(Opcode::from_byte(*self.headers.first()?)?.info().role)
    }

    pub(super) fn packet(&self, qpn: Qpn, flags: PacketFlags) -> PacketHead {
        let payload = u16::try_from(self.payload).unwrap_or(u16::MAX);
        PacketHead { qpn, flags, work: 0, payload, repeat: 0 }
    }
}

/// The headers of a packet that is about to leave.
#[derive(Debug)]
pub(super) struct HeaderCopy {
    bytes: [u8; 128],
    len: usize,
    payload: usize,
    pub(super) route: Route,
    pub(super) is_datagram: bool,
    /// How many packets of its queue pair had been sent again before it.
    pub(super) repeats: u64,
}

impl HeaderCopy {
    fn new(packet: &ferroce_wire::Packet<PayloadLen>, route: Route, repeats: u64) -> Self {
        let mut bytes = [0; 128];
        let len = packet.emit_headers(&mut bytes).unwrap_or(0);
        let is_datagram = matches!(packet.body, ferroce_wire::Body::Ud(_));
        Self { bytes, len, payload: packet.payload_len(), route, is_datagram, repeats }
    }

    pub(super) fn bytes(&self) -> Bytes<'_> {
        Bytes { headers: &self.bytes[..self.len], payload: self.payload }
    }
}

impl Recording {
    /// The record of an engine, from now on.
    pub(crate) fn new(recorder: &Arc<Recorder>, device: u32) -> Self {
        let ring = recorder.engine_ring().map_or_else(|| Ring::Shared(recorder.program_ring()), Ring::Own);
        Self {
            recorder: Arc::clone(recorder),
            device: device << DEVICE_SHIFT,
            ring,
            now: clock::now().nanos(),
            posting: None,
            leaving: None,
        }
    }

    /// Whether it is of this recorder.
    pub(crate) fn is_of(&self, recorder: &Arc<Recorder>) -> bool {
        Arc::ptr_eq(&self.recorder, recorder)
    }

    /// A shared receive queue of this device.
    pub(crate) const fn shared_queue(&self, queue: SharedQueueId) -> Queue {
        Queue::Shared(self.device | queue.0)
    }

    /// Whether all work is told of, and so are packets that belong to none.
    pub(super) fn has_all(&self) -> bool {
        self.recorder.has_all()
    }

    /// Where the threads of the program write.
    pub(crate) fn program_ring(&self) -> ProgramRing {
        self.recorder.program_ring()
    }

    /// Looks at the clock: something begins.
    #[inline]
    pub(crate) fn tick(&mut self) {
        self.now = self.now.max(clock::now().nanos());
    }

    /// What happens next happens at this time, at which the clock was just read.
    #[inline]
    pub(crate) fn tick_at(&mut self, now: Time) {
        self.now = self.now.max(now.nanos());
    }

    #[inline]
    pub(crate) fn push(&mut self, event: impl Into<Event>) {
        self.push_at(self.now, event);
    }

    #[inline(always)]
    fn push_at(&mut self, time: u64, event: impl Into<Event>) {
        match &mut self.ring {
            Ring::Own(ring) => ring.push(time, &event.into()),
            Ring::Shared(ring) => ring.push(time, &event.into()),
        }
    }

    /// A send gets this number. It was posted at this time, if not just now.
    #[inline]
    pub(crate) fn posted_send(
        &mut self,
        watch: &mut Watch,
        (shade, length): (Shade, u32),
        request: &SendRequest<'_>,
        at: Option<u64>,
        flags: PostedFlags,
    ) {
        if flags.contains(PostedFlags::EARLIER) {
            cold_path();
            watch.sends.post_earlier(shade);
        } else {
            watch.sends.post(shade);
        }
        if watch.unrung.1 == 0 {
            watch.unrung.0 = shade.work;
        }
        watch.unrung.1 += 1;
        if !self.recorder.samples(shade.work) {
            return;
        }
        let mut posted = Posted::send(watch.qpn, shade.work, request, length);
        posted.flags |= flags;
        self.push_at(at.unwrap_or(self.now), posted);
        if let ferroce_transport::Data::Gather(sges) = request.data
            && sges.len() > 1
        {
            Piece::rest(posted.queue, shade.work, sges).for_each(|piece| self.push(piece));
        }
        if let Some(operands) = Operands::of(watch.qpn, shade.work, &request.op) {
            self.push(operands);
        }
    }

    /// A receive gets this number.
    pub(crate) fn posted_receive(
        &mut self,
        (queue, work): (Queue, u32),
        (id, sges): (u64, &[Sge]),
        at: Option<u64>,
        flags: PostedFlags,
    ) {
        if !self.recorder.samples(work) {
            return;
        }
        let mut posted = Posted::receive(queue, work, id, sges);
        posted.flags |= flags;
        self.push_at(at.unwrap_or(self.now), posted);
        if sges.len() > 1 {
            Piece::rest(queue, work, sges).for_each(|piece| self.push(piece));
        }
    }

    /// The device hears of all that was posted since the last time.
    pub(crate) fn doorbell(&mut self, watch: &mut Watch) {
        let (first, count) = std::mem::take(&mut watch.unrung);
        if count > 0 {
            self.push(Doorbell { queue: Queue::Send(watch.qpn), first, count });
        }
    }

    /// A packet is about to leave.
    #[cold]
    pub(super) fn about_to_leave(
        &mut self,
        packet: &ferroce_wire::Packet<PayloadLen>,
        route: Route,
        repeats: u64,
    ) {
        self.leaving = Some(HeaderCopy::new(packet, route, repeats));
    }

    /// An answer leaves. Nothing else has to be known of it, so that it can be written down before it is in the buffer in which
    /// it goes.
    #[inline(never)]
    pub(super) fn answer_leaves(&mut self, watch: &Watch, packet: &ferroce_wire::Packet<PayloadLen>) {
        let mut headers = [0; 32];
        if self.recorder.has_all()
            && let Ok(len) = packet.emit_headers(&mut headers)
        {
            let bytes = Bytes { headers: &headers[..len], payload: packet.payload_len() };
            self.push_packet(bytes, bytes.packet(watch.qpn, PacketFlags::OUT));
        }
    }

    /// A packet leaves. `oldest` is the send that is sent from, where those have no packet numbers in advance. Whether it is
    /// told of.
    #[inline]
    pub(super) fn packet_out(
        &mut self,
        watch: &mut Watch,
        bytes: Bytes<'_>,
        (oldest, is_repeat): (u32, bool),
        more: PacketFlags,
    ) -> bool {
        let flags = PacketFlags::OUT | more;
        let belongs = match bytes.role() {
            Some(Role::Response) | None => None,
            Some(_) if watch.service == Service::Rc => watch.sends.leaves(bytes.psn(), is_repeat),
            Some(_) => watch.sends.leaves_in_turn(oldest),
        };
        let Some(belongs) = belongs else {
            let has_all = self.recorder.has_all();
            if has_all {
                self.push_packet(bytes, bytes.packet(watch.qpn, flags));
            }
            return has_all;
        };
        let Shade { work, psn, packets, .. } = belongs.shade;
        if watch.service != Service::Rc {
            if watch.recent.len() == RECENT {
                watch.recent.pop_front();
            }
            watch.recent.push_back((bytes.psn(), work));
        }
        if !self.recorder.samples(work) {
            return false;
        }
        if belongs.begins && packets > 1 {
            self.push(Begun { qpn: watch.qpn, work, psn: psn.get(), packets });
        }
        let mut packet = bytes.packet(watch.qpn, flags | PacketFlags::WORK);
        (packet.work, packet.repeat) = (work, belongs.round);
        packet.flags.set(PacketFlags::REPEAT, belongs.round > 0);
        self.push_packet(bytes, packet);
        true
    }

    #[inline(always)]
    pub(super) fn push_packet(&mut self, bytes: Bytes<'_>, packet: PacketHead) {
        match &mut self.ring {
            Ring::Own(ring) => ring.push_packet(self.now, &packet, bytes.headers),
            Ring::Shared(ring) => ring.push_packet(self.now, &packet, bytes.headers),
        }
    }

    /// A packet comes for a queue pair.
    #[inline]
    pub(super) fn packet_in(&mut self, watch: &mut Watch, bytes: Bytes<'_>, flags: PacketFlags) {
        let psn = bytes.psn();
        watch.psn = psn.get();
        let mut packet = bytes.packet(watch.qpn, flags);
        let answered = match bytes.role() {
            Some(Role::Response) => watch.sends.find(psn),
            _ => None,
        };
        if let Some(shade) = answered {
            packet.work = shade.work;
            packet.flags |= PacketFlags::WORK;
        }
        let is_told = answered.map_or_else(|| self.recorder.has_all(), |it| self.recorder.samples(it.work));
        if is_told {
            self.push_packet(bytes, packet);
        }
    }

    /// A packet comes that no queue pair gets to see.
    pub(super) fn refused(&mut self, qpn: Qpn, bytes: Bytes<'_>, why: Refusal) {
        let mut packet = bytes.packet(qpn, PacketFlags::REFUSED);
        packet.work = u32::from(why.code());
        self.push_packet(bytes, packet);
    }

    /// A receive was posted to a shared queue, and got this number.
    pub(super) fn post_shared(&mut self, queue: SharedQueueId, number: u32, request: &ReceiveRequest<'_>) {
        let at = self.take_posting();
        self.posted_receive(
            (self.shared_queue(queue), number),
            (request.id, request.sges),
            at,
            PostedFlags::empty(),
        );
    }

    /// A shared queue is gone, with all that was posted to it.
    pub(crate) fn forgotten_queue(&mut self, queue: SharedQueueId, waiting: &ReceiveQueue) {
        self.tick();
        for (work, id, _) in waiting.iter() {
            self.forgotten_receive(self.shared_queue(queue), work, (id, Qpn::SMI));
        }
    }

    /// When the work that comes next was posted: it waited in the mail since then. Else it is posted now.
    pub(super) fn take_posting(&mut self) -> Option<u64> {
        let at = self.take_mailed();
        if at.is_none() {
            self.tick();
        }
        at
    }

    /// When the work that comes next was posted, if it waited in the mail since then. What happens to it happens later, although
    /// the turn may have begun, and looked at the clock, before.
    #[inline]
    pub(super) fn take_mailed(&mut self) -> Option<u64> {
        let at = self.posting.take().map(NonZeroU64::get);
        self.now = self.now.max(at.unwrap_or(0));
        at
    }

    /// A message has taken a receive, and may not be over yet.
    pub(super) fn taken(&mut self, watch: &mut Watch, machine: &QueuePair) {
        if let Some(receive) = machine.taken_receive()
            && watch.matched != Some(receive.number())
        {
            self.matched(watch, receive.number(), receive.id());
        }
    }

    fn matched(&mut self, watch: &mut Watch, work: u32, id: u64) {
        watch.matched = Some(work);
        if self.recorder.samples(work) {
            self.push(Matched { qpn: watch.qpn, queue: watch.receives, work, id, psn: watch.psn });
        }
    }

    /// A send has ended, and its completion is written, if there is room. Whether it is one that is told of.
    pub(super) fn send_ended(
        &mut self,
        watch: &mut Watch,
        work: u32,
        of: &Completion,
        into: (CqId, bool),
    ) -> bool {
        let qpn = watch.qpn;
        let mut quiet = None;
        let ended = watch.sends.end(work, |shade, has_begun| self.quiet(qpn, shade, has_begun, &mut quiet));
        if ended.is_none() || !self.recorder.samples(work) {
            self.last_quiet(qpn, quiet);
            return false;
        }
        if of.status == Status::Success
            && let Some((shade, false)) = ended
        {
            self.stayed(qpn, shade);
        }
        self.ended(Queue::Send(qpn), work, of, into);
        true
    }

    /// Work has ended, and its completion is written, if there is room.
    fn ended(&mut self, queue: Queue, work: u32, of: &Completion, (cq, has_room): (CqId, bool)) {
        let mut completed = Completed::of(queue, work, of, cq.0);
        completed.flags.set(CompletedFlags::OVERRUN, !has_room);
        self.push(completed);
    }

    /// All sends before this one have ended; those that had no completion ended well.
    #[inline]
    pub(super) fn sends_ended(&mut self, watch: &mut Watch, oldest: u32) {
        let (qpn, mut quiet) = (watch.qpn, None);
        watch.sends.end_before(oldest, |shade, has_begun| self.quiet(qpn, shade, has_begun, &mut quiet));
        self.last_quiet(qpn, quiet);
    }

    /// A send ended well, without a completion. The end of one that is told later is also that of this one, and then nothing
    /// is written.
    #[inline]
    fn quiet(&mut self, qpn: Qpn, shade: Shade, has_begun: bool, last: &mut Option<Shade>) {
        if self.recorder.samples(shade.work) {
            *last = Some(shade);
            if !has_begun {
                self.stayed(qpn, shade);
                self.last_quiet(qpn, last.take());
            }
        }
    }

    /// The last of some sends that ended well, without a completion.
    fn last_quiet(&mut self, qpn: Qpn, quiet: Option<Shade>) {
        if let Some(Shade { work, id, kind, .. }) = quiet {
            self.end_without(Queue::Send(qpn), work, (id, qpn), CompletedFlags::QUIET, kind);
        }
    }

    /// A send was done without packets.
    fn stayed(&mut self, qpn: Qpn, shade: Shade) {
        self.push(Begun { qpn, work: shade.work, psn: shade.psn.get(), packets: 0 });
    }

    fn end_without(
        &mut self,
        queue: Queue,
        work: u32,
        (id, qpn): (u64, Qpn),
        flags: CompletedFlags,
        kind: ferroce_transport::WorkKind,
    ) {
        let completion = Completion { id, qpn, kind, ..Completion::EMPTY };
        let completed = Completed::of(queue, work, &completion, 0);
        self.push(Completed { flags, ..completed });
    }

    /// A receive has ended, and its completion is written, if there is room. Whether it is one that is told of.
    pub(super) fn receive_ended(
        &mut self,
        watch: &mut Watch,
        work: u32,
        of: &Completion,
        into: (CqId, bool),
    ) -> bool {
        if of.status != Status::Flushed && watch.matched != Some(work) {
            self.matched(watch, work, of.id);
        }
        watch.matched = None;
        let is_told = self.recorder.samples(work);
        if is_told {
            self.ended(watch.receives, work, of, into);
        }
        is_told
    }

    /// The queue pair was reset, or goes: all that was posted to it is forgotten. `had` are the receives that it had.
    pub(crate) fn forgotten(&mut self, watch: &mut Watch, had: Vec<(u32, u64)>) {
        self.tick();
        let qpn = watch.qpn;
        let Watch { sends, receives, .. } = watch;
        sends.reset(|shade| {
            if self.recorder.samples(shade.work) {
                let of = (shade.id, qpn);
                self.end_without(Queue::Send(qpn), shade.work, of, CompletedFlags::FORGOTTEN, shade.kind);
            }
        });
        for (work, id) in had {
            self.forgotten_receive(*receives, work, (id, qpn));
        }
        watch.unrung = (0, 0);
        watch.matched = None;
    }

    /// A receive is forgotten, with its queue or its queue pair.
    pub(crate) fn forgotten_receive(&mut self, queue: Queue, work: u32, of: (u64, Qpn)) {
        if self.recorder.samples(work) {
            let kind = ferroce_transport::WorkKind::Receive;
            self.end_without(queue, work, of, CompletedFlags::FORGOTTEN, kind);
        }
    }

    /// The state of the queue pair, if it is another by now.
    #[inline]
    pub(crate) fn state(&mut self, watch: &mut Watch, to: State, is_asked: bool) {
        let from = std::mem::replace(&mut watch.state, to);
        if from != to {
            self.push(StateChange { qpn: watch.qpn, from, to, is_asked });
        }
    }

    /// What the queue pair waits for, if that is another by now. The end of a wait is told by the packet that leaves.
    pub(crate) fn waits(&mut self, watch: &mut Watch, waiting: Option<Waiting>) {
        let now = waiting.map(|waiting| (waiting.number, waiting.obstacle));
        if std::mem::replace(&mut watch.waits, now) != now
            && let Some(Waiting { number, obstacle, until }) = waiting
            && self.recorder.samples(number)
        {
            let until = until.map_or(0, Time::nanos);
            self.push(Wait { qpn: watch.qpn, reason: obstacle.into(), work: number, until });
        }
    }

    /// A timer fires.
    pub(super) fn timer(&mut self, watch: &Watch, due: &Due) {
        let Due { alarm, psn, number, tries: (tries, most) } = *due;
        let psn = psn.get();
        self.push(Timer { qpn: watch.qpn, kind: alarm.into(), psn, work: number, tries, most });
    }

    /// Memory was registered, or is no more.
    pub(crate) fn region(&mut self, region: Region) {
        self.tick();
        self.push(region);
    }

    /// A window opens a part of a region, or nothing.
    pub(crate) fn bound(&mut self, domain: DomainId, bind: &Bind) {
        let Bind { new_key, region, address, length, access, .. } = *bind;
        let step = if length > 0 { Step::Made } else { Step::Gone };
        let (kind, domain) = (RegionKind::Window, domain.0);
        self.push(Region { step, kind, lkey: region, rkey: new_key, address, length, access, domain });
    }

    /// A key of a window was taken out of use.
    pub(crate) fn unbound(&mut self, domain: DomainId, rkey: Rkey) {
        let (step, kind, lkey, domain) = (Step::Gone, RegionKind::Window, Lkey(0), domain.0);
        let (address, length, access) = (0, 0, Access::empty());
        self.push(Region { step, kind, lkey, rkey, address, length, access, domain });
    }
}
