//! The requester: turns posted work into packets (IBA 9.7.2 and 9.7.3).
//!
//! Every PSN of the send queue is decided when work is posted. Three of them say where
//! things stand:
//!
//! ```text
//!        una              cursor             high
//!   ------|------------------|-----------------|---------> PSN
//!   done     waits for answers   to be sent again   never sent
//! ```
//!
//! `una` is the oldest that is not acknowledged, or the next response packet of a READ;
//! `cursor` is the next to be sent; going back means moving `cursor` back, and nothing else.

use ferroce_wire::{Body, Msn, Packet, PayloadLen, Psn, Request, Reth, Rkey, Segment, SendTail};

use crate::connection::{Connection, Context, Failed};
use crate::host::Host;
use crate::planted::{Bug, is_planted};
use crate::queue::{SendQueue, SendWork};
use crate::rc::atomic::Atomic;
use crate::rc::retry::Retry;
use crate::transmit::{Destination, Gather, PayloadSource, Transmit};
use crate::vendor::VendorCode;
use crate::window::Window;
use crate::work::{Remote, SendFlags, SendOp, SendRequest};

#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    /// PSN of the first packet of the next work to be posted.
    pub(crate) next_psn: Psn,
    /// Messages posted so far.
    pub(crate) messages: Msn,
    pub(crate) una: Psn,
    pub(crate) cursor: Cursor,
    /// One past the highest PSN that was ever sent.
    pub(crate) high: Psn,
    /// READ requests and atomics between `una` and `cursor`.
    pub(crate) reads: u32,
    /// What the packets between `una` and `cursor` cost in the window.
    pub(crate) in_flight: u32,
    /// Work that failed here; it completes when everything before it has.
    pub(crate) blocked: Option<(u32, VendorCode)>,
    /// The peer has answered on this connection.
    pub(crate) heard: bool,
    /// From this packet on up to the cursor every one has asked for an acknowledgement.
    pub(crate) asked_from: Option<Psn>,
    /// The last message for which the responder has a receive, if it counts them.
    pub(crate) credit_limit: Option<Msn>,
    pub(crate) retry: Retry,
    /// The peer is to be asked whether it is there.
    pub(crate) asks: bool,
    /// Whether new messages wait, because the queue is being drained.
    pub(crate) draining: bool,
    pub(crate) drained_reported: bool,
}

/// The next packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Number of its work in the queue.
    pub(crate) work: u32,
    /// Its PSN.
    pub(crate) psn: Psn,
}

/// A packet that was chosen to be sent.
pub(crate) struct Chosen {
    work: u32,
    /// Where its payload begins in the message.
    offset: u64,
    packet: Packet<PayloadLen>,
}

impl Requester {
    pub(crate) fn new(queue: SendQueue) -> Self {
        let start = Psn::default();
        Self {
            cursor: Cursor { work: queue.head(), psn: start },
            queue,
            next_psn: start,
            messages: Msn::default(),
            una: start,
            high: start,
            reads: 0,
            in_flight: 0,
            blocked: None,
            heard: false,
            asked_from: None,
            credit_limit: None,
            retry: Retry::default(),
            asks: false,
            draining: false,
            drained_reported: false,
        }
    }

    /// Begins with this PSN: what the attribute `sq_psn` asks for.
    pub(crate) fn start_at(&mut self, psn: Psn, connection: &Connection) {
        self.next_psn = psn;
        self.una = psn;
        self.high = psn;
        self.cursor = Cursor { work: self.queue.head(), psn };
        self.retry.begin(connection);
        self.heard = false;
    }

    /// Forgets everything that was posted.
    pub(crate) fn clear(&mut self, window: &mut Window) {
        while self.queue.pop().is_some() {}
        window.change_in_flight(self.in_flight, 0);
        self.in_flight = 0;
        self.reads = 0;
        self.blocked = None;
        self.credit_limit = None;
        self.asks = false;
        self.draining = false;
        self.drained_reported = false;
        self.messages = Msn::default();
        self.retry = Retry::default();
        self.start_at_current();
    }

    fn start_at_current(&mut self) {
        self.una = self.next_psn;
        self.high = self.next_psn;
        self.cursor = Cursor { work: self.queue.head(), psn: self.next_psn };
    }

    /// Appends work that was found in order.
    pub(crate) fn post(&mut self, request: &SendRequest<'_>, length: u32, connection: &Connection) {
        let packets = connection.packets_of(&request.op, length);
        if packets > 0 {
            self.messages = self.messages.next();
        }
        self.queue.push(request, length, self.next_psn, packets, self.messages);
        self.next_psn += packets;
    }

    /// Whether the next message may be done without packets: nothing is under way, and nothing
    /// holds it back.
    pub(crate) fn may_go_direct(&self) -> bool {
        self.una == self.cursor.psn
            && self.high == self.cursor.psn
            && self.blocked.is_none()
            && !self.draining
            && !self.retry.waits_for_receiver()
            && self.cursor.work == self.queue.head()
            // A READ may be half done: its next request begins in the middle of it.
            && self.queue.get(self.cursor.work).is_none_or(|work| work.first_psn == self.cursor.psn)
    }

    /// A message of so many packets was posted while the queue was empty, and is done already. [`passed_directly`](Self::passed_directly)
    /// has to follow.
    #[inline]
    pub(crate) fn post_unqueued(&mut self, packets: u32) {
        debug_assert!(packets > 0 && self.queue.len() == 0, "only messages, and only one after the other");
        self.messages = self.messages.next();
        self.next_psn += packets;
        self.queue.skip_one();
    }

    /// The oldest message was done without packets, and is no longer in the queue.
    #[inline]
    pub(crate) fn passed_directly(&mut self, packets: u32) {
        self.cursor.work = self.queue.head();
        self.cursor.psn += packets;
        self.una = self.cursor.psn;
        self.high = self.cursor.psn;
        // What the responder last said of its receives is no longer true.
        self.credit_limit = None;
    }

    /// Whether a responder that has completed so many messages would have completed all of them.
    pub(crate) const fn has_posted_no_more_than(&self, messages: Msn) -> bool {
        messages.distance_from(self.messages) >= 0
    }

    /// Packets that wait for an answer.
    #[inline]
    pub(crate) fn packets_under_way(&self) -> u32 {
        packets_between(self.una, self.cursor.psn)
    }

    /// Whether anything waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.una != self.cursor.psn
    }

    /// Whether there may be something to send: a look that costs little.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.asks || self.retry.has_due_probe() || self.queue.get(self.cursor.work).is_some()
    }

    /// Chooses the next packet to be sent, if one may be sent now.
    pub(crate) fn poll<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Result<Option<Chosen>, Failed> {
        let chosen = match self.choose_probe(cx) {
            None => self.choose(cx)?,
            probe => probe,
        };
        cx.counters.requests_sent += u64::from(chosen.is_some());
        Ok(chosen)
    }

    /// A packet that every live peer answers, and that changes nothing for it: an empty WRITE with the PSN before the
    /// oldest that is not acknowledged. To the peer it is a repeated request, which it acknowledges once more
    /// (IBA 9.7.5.1.4).
    pub(crate) fn question(&mut self, connection: &Connection) -> Option<Transmit<'static>> {
        if !std::mem::take(&mut self.asks) {
            return None;
        }
        let write =
            Request::Write(Segment::Only(Reth { address: 0, rkey: Rkey(0), length: 0 }, None), PayloadLen(0));
        let mut packet = Packet::new(connection.dest_qpn, self.una.prev(), Body::RcRequest(write));
        packet.pkey = connection.pkey;
        packet.ack_request = true;
        Some(Transmit { packet, payload: PayloadSource::Nothing, dest: Destination::Peer })
    }

    /// A chosen packet with the place of its payload.
    pub(crate) fn transmit(&self, chosen: Chosen) -> Transmit<'_> {
        Transmit { payload: self.payload(&chosen), packet: chosen.packet, dest: Destination::Peer }
    }

    /// The oldest packet once more, when a probe is due.
    fn choose_probe<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Option<Chosen> {
        if !self.retry.take_due_probe() || !self.is_waiting() {
            return None;
        }
        let number = self.queue.head();
        let work = *self.queue.get(number)?;
        let done = packets_between(work.first_psn, self.una);
        let packets = packets_at_once(&work, done);
        let mut chosen = self.build(number, &work, done, packets, cx).ok()?;
        chosen.packet.ack_request = true;
        cx.pacer.spend(chosen.packet.len() as u64, cx.now);
        cx.counters.probes += 1;
        cx.counters.retransmitted += 1;
        self.retry.probe_sent(self.una, self.cursor.psn, cx);
        Some(chosen)
    }

    fn choose<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Result<Option<Chosen>, Failed> {
        if self.retry.waits_for_receiver() || (self.retry.is_cautious() && self.is_waiting()) {
            return Ok(None);
        }
        loop {
            let number = self.cursor.work;
            if self.blocked.is_some_and(|(blocked, _)| blocked == number) {
                return Ok(None);
            }
            let Some(work) = self.queue.get(number) else { return Ok(None) };
            let done = packets_between(work.first_psn, self.cursor.psn);
            if !self.may_begin(work, done, cx) {
                return Ok(None);
            }
            if work.op.is_local() {
                self.execute_locally(number, cx);
                self.retire(cx)?;
                continue;
            }
            self.choose_read_chunk(number, cx);
            let Some(&work) = self.queue.get(number) else { return Ok(None) };
            let packets = packets_at_once(&work, done);
            if !cx.pacer.allows(cx.now) {
                return Ok(None);
            }
            let cost = cost(&work, done, packets, cx.connection, cx.window);
            if !cx.window.allows(cost) {
                cx.counters.window_waits += 1;
                return Ok(None);
            }
            match self.build(number, &work, done, packets, cx) {
                Ok(mut chosen) => {
                    self.commit(&work, &mut chosen, packets, cost, cx);
                    return Ok(Some(chosen));
                }
                Err(code) => {
                    self.blocked = Some((number, code));
                    self.retire(cx)?;
                }
            }
        }
    }

    /// Whether this work may send its packet number `done` now.
    fn may_begin<H: Host>(&self, work: &SendWork, done: u32, cx: &mut Context<'_, H>) -> bool {
        let fresh = self.cursor.psn == self.high;
        if fresh && done == 0 {
            if self.draining {
                return false;
            }
            // IBA 10.8.3.3: a fenced request waits for the READs and atomics before it.
            let fenced = work.flags.contains(SendFlags::FENCE) && !is_planted(Bug::FenceIgnored);
            if fenced && self.reads > 0 {
                return false;
            }
        }
        // IBA 9.7.3.2: no more READs and atomics under way than the responder can hold.
        let depth = u32::from(cx.connection.max_rd_atomic);
        if work.op.is_read_or_atomic() && self.reads >= depth && !is_planted(Bug::ReadDepthIgnored) {
            cx.counters.depth_waits += 1;
            return false;
        }
        // IBA 9.7.7.2.5: without credit one packet at a time, to learn of new credits. The credit may
        // have ended in the middle of a message: then its next packet is the one that asks.
        if self.is_limited(work) && self.una != self.cursor.psn && self.asked_from.is_some() {
            cx.counters.credit_waits += 1;
            return false;
        }
        true
    }

    /// Decides how much one READ request asks for, once per work: responses are never
    /// acknowledged, so they must fit the window from the start.
    fn choose_read_chunk<H>(&mut self, number: u32, cx: &Context<'_, H>) {
        let Some(work) = self.queue.get_mut(number) else { return };
        if work.read_chunk == 0 && matches!(work.op, SendOp::Read(_)) {
            let requests = u32::from(cx.connection.max_rd_atomic.clamp(1, 2));
            let fitting = cx.window.limit() / requests / cx.window.packet_cost(cx.connection.mtu_bytes());
            work.read_chunk = fitting.clamp(1, work.packets);
        }
    }

    /// Takes note of a chosen packet: it is under way from now on.
    fn commit<H>(
        &mut self,
        work: &SendWork,
        chosen: &mut Chosen,
        packets: u32,
        cost: u32,
        cx: &mut Context<'_, H>,
    ) {
        let fresh = self.cursor.psn == self.high;
        self.set_in_flight(self.in_flight + cost, cx.window);
        if work.op.is_read_or_atomic() {
            self.reads += 1;
        }
        let ends = packets_between(work.first_psn, self.cursor.psn) + packets == work.packets;
        // What comes before a pause is acknowledged in it: the peer's silence must not be taken for loss.
        let pauses = cx.pacer.spend(chosen.packet.len() as u64, cx.now);
        cx.counters.rate_waits += u64::from(pauses);
        chosen.packet.ack_request = ends
            || pauses
            || work.op.is_read_or_atomic()
            || cx.window.asks_with(cx.window.room())
            || self.is_limited(work)
            || self.retry.is_cautious();
        self.note_asking(chosen.packet.psn, chosen.packet.ack_request);
        self.cursor.psn += packets;
        if ends {
            self.cursor.work = self.cursor.work.wrapping_add(1);
        }
        if fresh {
            self.high = self.cursor.psn;
        } else {
            cx.counters.retransmitted += 1;
            if self.cursor.psn.is_after(self.high) {
                self.high = self.cursor.psn;
            }
        }
        self.retry.packet_sent(chosen.packet.psn, fresh && chosen.packet.ack_request, cx);
    }

    /// Takes note whether a packet asks for an acknowledgement.
    pub(crate) fn note_asking(&mut self, psn: Psn, asks: bool) {
        self.asked_from = asks.then(|| self.asked_from.unwrap_or(psn));
    }

    /// Whether the responder is not known to have a receive for this message.
    pub(crate) fn is_limited(&self, work: &SendWork) -> bool {
        self.lacks_credit(work.op.takes_receive(), work.message)
    }

    /// The same of a message that may not be posted yet.
    #[inline(always)]
    pub(crate) fn lacks_credit(&self, takes_receive: bool, message: Msn) -> bool {
        takes_receive && self.credit_limit.is_some_and(|limit| message.distance_from(limit) > 0)
    }

    pub(crate) const fn set_in_flight(&mut self, cost: u32, window: &mut Window) {
        window.change_in_flight(self.in_flight, cost);
        self.in_flight = cost;
    }

    /// Work without packets: done in its turn, and only once.
    fn execute_locally<H: Host>(&mut self, number: u32, cx: &mut Context<'_, H>) {
        let by = cx.connection.accessor();
        let Some(work) = self.queue.get_mut(number) else { return };
        if !work.executed {
            work.executed = true;
            let result = match &work.op {
                SendOp::BindWindow(bind) => cx.host.bind(by, bind).map_err(VendorCode::bind),
                SendOp::LocalInvalidate(rkey) => {
                    cx.host.invalidate(by, *rkey).map_err(|_| VendorCode::InvalidateRefused)
                }
                _ => Ok(()),
            };
            if let Err(code) = result {
                self.blocked = Some((number, code));
                return;
            }
        }
        self.cursor.work = number.wrapping_add(1);
    }

    /// The packet with which work goes on after `done` packets, or why its memory forbids it.
    fn build<H: Host>(
        &self,
        number: u32,
        work: &SendWork,
        done: u32,
        packets: u32,
        cx: &mut Context<'_, H>,
    ) -> Result<Chosen, VendorCode> {
        let connection = cx.connection;
        let mtu = connection.mtu_bytes();
        let offset = u64::from(done) * u64::from(mtu);
        let rest = u64::from(work.length) - offset;
        let body = match work.op {
            SendOp::Read(remote) => {
                let asked = rest.min(u64::from(packets) * u64::from(mtu));
                let wrong =
                    is_planted(Bug::ReadRestartAddress) && !done.is_multiple_of(work.read_chunk.max(1));
                Request::Read(reth(remote, if wrong { offset - u64::from(mtu) } else { offset }, asked))
            }
            SendOp::AtomicWrite(remote) => {
                Request::AtomicWrite(reth(remote, 0, 8), self.operand(number, cx)?)
            }
            op => match Atomic::posted(&op).and_then(|atomic| atomic.request()) {
                Some(atomic) => atomic,
                None => {
                    let len = rest.min(u64::from(mtu));
                    self.check_gather(number, offset, len, cx)?;
                    data_request(op, work, done, usize::try_from(len).unwrap_or_default())
                }
            },
        };
        let psn = work.first_psn + done;
        let mut packet = Packet::new(connection.dest_qpn, psn, Body::RcRequest(body));
        packet.pkey = connection.pkey;
        packet.solicited = work.flags.contains(SendFlags::SOLICITED)
            && work.op.takes_receive()
            && done + packets == work.packets;
        Ok(Chosen { work: number, offset, packet })
    }

    /// Whether the bytes of the next packet may be read. Asked for every packet, since
    /// memory may be deregistered while a message is under way.
    fn check_gather<H: Host>(
        &self,
        number: u32,
        offset: u64,
        len: u64,
        cx: &mut Context<'_, H>,
    ) -> Result<(), VendorCode> {
        if self.queue.inline(number).is_some() {
            return Ok(());
        }
        for piece in Gather::new(self.queue.sges(number), offset, len) {
            let allowed = cx.host.check_local(cx.connection.domain, piece, false);
            allowed.map_err(VendorCode::local)?;
        }
        Ok(())
    }

    /// The eight bytes of an ATOMIC WRITE.
    fn operand<H: Host>(&self, number: u32, cx: &mut Context<'_, H>) -> Result<[u8; 8], VendorCode> {
        let mut operand = [0; 8];
        if let Some(bytes) = self.queue.inline(number) {
            operand.copy_from_slice(bytes);
            return Ok(operand);
        }
        self.check_gather(number, 0, 8, cx)?;
        let mut rest = &mut operand[..];
        for piece in Gather::new(self.queue.sges(number), 0, 8) {
            let (part, after) = rest.split_at_mut(piece.length as usize);
            let read = cx.host.read_local(piece.lkey, piece.address, part);
            read.map_err(VendorCode::local)?;
            rest = after;
        }
        Ok(operand)
    }

    fn payload(&self, chosen: &Chosen) -> PayloadSource<'_> {
        let len = chosen.packet.payload_len();
        if len == 0 {
            return PayloadSource::Nothing;
        }
        match self.queue.inline(chosen.work) {
            Some(bytes) => {
                let start = usize::try_from(chosen.offset).unwrap_or(usize::MAX);
                PayloadSource::Inline(bytes.get(start..start + len).unwrap_or_default())
            }
            None => {
                PayloadSource::Gather(Gather::new(self.queue.sges(chosen.work), chosen.offset, len as u64))
            }
        }
    }
}

/// How many PSNs the next packet of this work takes: one, or those of a whole READ response.
pub(crate) fn packets_at_once(work: &SendWork, done: u32) -> u32 {
    match work.op {
        SendOp::Read(_) => {
            let chunk = work.read_chunk.max(1);
            ((done / chunk + 1) * chunk).min(work.packets) - done
        }
        _ => 1,
    }
}

/// What these packets of a work cost in the window, on whichever way the data goes.
pub(crate) fn cost(
    work: &SendWork,
    from: u32,
    packets: u32,
    connection: &Connection,
    window: &Window,
) -> u32 {
    let mtu = connection.mtu_bytes();
    let full = window.packet_cost(mtu);
    let ends = from + packets == work.packets;
    let last = work.length - (work.packets - 1).saturating_mul(mtu).min(work.length);
    if ends {
        (packets - 1).saturating_mul(full) + window.packet_cost(last)
    } else {
        packets.saturating_mul(full)
    }
}

/// How many PSNs `psn` lies after `first`.
pub(crate) const fn packets_between(first: Psn, psn: Psn) -> u32 {
    psn.get().wrapping_sub(first.get()) & (Psn::COUNT - 1)
}

#[expect(clippy::cast_possible_truncation, reason = "no message is longer than 2^31")]
pub(crate) const fn reth(remote: Remote, offset: u64, length: u64) -> Reth {
    Reth { address: remote.address.wrapping_add(offset), rkey: remote.rkey, length: length as u32 }
}

/// A packet of a SEND or WRITE.
fn data_request(op: SendOp, work: &SendWork, done: u32, len: usize) -> Request<PayloadLen> {
    let (begins, ends, len) = (done == 0, done + 1 == work.packets, PayloadLen(len));
    let tail = match op {
        SendOp::SendImm(imm) | SendOp::WriteImm(_, imm) => SendTail::Immediate(imm),
        SendOp::SendInvalidate(rkey) => SendTail::Invalidate(rkey),
        _ => SendTail::Plain,
    };
    match op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) => {
            let imm = match tail {
                SendTail::Immediate(imm) => Some(imm),
                SendTail::Plain | SendTail::Invalidate(_) => None,
            };
            Request::Write(segment(begins, ends, reth(remote, 0, work.length.into()), imm), len)
        }
        _ => Request::Send(segment(begins, ends, (), tail), len),
    }
}

/// A packet's place in its message.
pub(crate) fn segment<H, T>(begins: bool, ends: bool, head: H, tail: T) -> Segment<H, T> {
    match (begins, ends) {
        (true, true) => Segment::Only(head, tail),
        (true, false) => Segment::First(head),
        (false, true) => Segment::Last(tail),
        (false, false) => Segment::Middle,
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::{Lkey, Rkey};

    use super::*;
    use crate::work::{Data, Remote, Sge};

    /// It was: a READ of which some requests had gone as packets was done again directly, as a whole, and
    /// took more sequence numbers than it has.
    #[test]
    fn a_read_that_is_half_done_as_packets_is_not_begun_again_directly() {
        let mut requester = Requester::new(SendQueue::new(4, 1, 0));
        let sges = [Sge { address: 0, length: 10 * 1024, lkey: Lkey(1) }];
        let op = SendOp::Read(Remote { address: 0, rkey: Rkey(2) });
        let flags = SendFlags::empty();
        let request = SendRequest { id: 1, op, data: Data::Gather(&sges), flags, dest: None };
        for first_psn in [0, 10] {
            requester.queue.push(&request, 10 * 1024, Psn::new(first_psn), 10, Msn::new(1));
        }
        for done in 0..10 {
            let psn = Psn::new(done);
            (requester.cursor.psn, requester.una, requester.high) = (psn, psn, psn);
            assert_eq!(requester.may_go_direct(), done == 0, "{done} packets of it were answered");
        }
    }
}
