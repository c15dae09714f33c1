//! Unreliable connections and datagrams: nothing is acknowledged, nothing sent twice.

use ferroce_wire::{Body, Datagram, Deth, Imm, Msn, Packet, PayloadLen, Psn, Reth, UcRequest};

use crate::arrival::{Arrival, Fault};
use crate::completion::{Completion, Envelope};
use crate::connection::{Connection, Context, Failed};
use crate::host::{Denied, Host};
use crate::inbound::Inbound;
use crate::planted::{Bug, is_planted};
use crate::queue::{SendQueue, SendWork};
use crate::rc::requester::segment;
use crate::status::Status;
use crate::transmit::{Destination, Gather, PayloadSource, Transmit};
use crate::vendor::VendorCode;
use crate::work::{SendFlags, SendOp, SendRequest};

/// The sending half: work leaves packet by packet and is done when its last packet is.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) queue: SendQueue,
    pub(crate) next_psn: Psn,
    /// Packets that the oldest work has sent.
    sent: u32,
    pub(crate) draining: bool,
    pub(crate) drained_reported: bool,
}

/// A packet that was chosen to be sent.
pub(crate) struct Chosen {
    packet: Packet<PayloadLen>,
    offset: u64,
    dest: Destination,
}

impl Sender {
    pub(crate) fn new(queue: SendQueue) -> Self {
        Self { queue, next_psn: Psn::default(), sent: 0, draining: false, drained_reported: false }
    }

    pub(crate) const fn start_at(&mut self, psn: Psn) {
        self.next_psn = psn;
    }

    pub(crate) fn clear(&mut self) {
        while self.queue.pop().is_some() {}
        self.sent = 0;
        self.draining = false;
        self.drained_reported = false;
    }

    pub(crate) fn post(&mut self, request: &SendRequest<'_>, length: u32, connection: &Connection) {
        // Work without packets is of reliable connections only.
        self.queue.push(request, length, Psn::default(), connection.packets(length), Msn::default());
    }

    /// Completes the oldest work if its last packet has left.
    ///
    /// This happens one call after that packet was handed out, so that the device has taken
    /// its bytes before the program may reuse them.
    pub(crate) fn retire<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        if let Some(work) = self.queue.get(self.queue.head())
            && self.sent == work.packets
        {
            self.finish(None, cx);
        }
        if self.draining && !self.drained_reported && self.sent == 0 {
            self.drained_reported = true;
            cx.host.event(cx.connection.qpn, crate::completion::Event::SendQueueDrained);
        }
    }

    /// The number of the first packet of the oldest work, or of the next.
    pub(crate) fn oldest_psn(&self) -> Psn {
        self.next_psn - self.sent
    }

    /// Whether every message that was begun has left.
    pub(crate) fn is_between_messages(&self) -> bool {
        let head = self.queue.get(self.queue.head());
        self.sent == 0 || head.is_none_or(|work| self.sent == work.packets)
    }

    /// The oldest work is done, or failed for this.
    fn finish<H: Host>(&mut self, failed: Option<VendorCode>, cx: &mut Context<'_, H>) {
        self.sent = 0;
        let Some((number, work)) = self.queue.pop() else { return };
        let wanted = work.flags.contains(SendFlags::SIGNALED) || cx.connection.signal_all;
        let completion = match failed {
            Some(code) => cx.connection.failure(work.id, code, work.op.kind()),
            None if wanted => {
                let done = cx.connection.completion(work.id, Status::Success, work.op.kind());
                Completion { byte_len: work.length, ..done }
            }
            None => return,
        };
        cx.complete_send(number, completion);
    }

    /// Everything that is still posted ends as flushed.
    pub(crate) fn flush<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        while self.queue.len() > 0 {
            self.finish(Some(VendorCode::FlushedUnderWay), cx);
        }
    }

    /// Chooses the next packet; an error means that the oldest work has failed.
    pub(crate) fn poll<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Result<Option<Chosen>, Failed> {
        self.retire(cx);
        let number = self.queue.head();
        let Some(&work) = self.queue.get(number) else { return Ok(None) };
        if (self.draining && self.sent == 0) || !cx.pacer.allows(cx.now) {
            return Ok(None);
        }
        match self.build(number, &work, cx) {
            Ok(chosen) => {
                let pauses = cx.pacer.spend(chosen.packet.len() as u64, cx.now);
                cx.counters.rate_waits += u64::from(pauses);
                self.sent += 1;
                self.next_psn = self.next_psn.next();
                cx.counters.requests_sent += 1;
                Ok(Some(chosen))
            }
            Err(code) => {
                self.finish(Some(code), cx);
                Err(Failed)
            }
        }
    }

    pub(crate) fn transmit(&self, chosen: Chosen) -> Transmit<'_> {
        let len = chosen.packet.payload_len();
        let number = self.queue.head();
        let payload = match (len, self.queue.inline(number)) {
            (0, _) => PayloadSource::Nothing,
            (_, Some(bytes)) => {
                let start = usize::try_from(chosen.offset).unwrap_or(usize::MAX);
                PayloadSource::Inline(bytes.get(start..start + len).unwrap_or_default())
            }
            (_, None) => {
                PayloadSource::Gather(Gather::new(self.queue.sges(number), chosen.offset, len as u64))
            }
        };
        Transmit { packet: chosen.packet, payload, dest: chosen.dest }
    }

    fn build<H: Host>(
        &self,
        number: u32,
        work: &SendWork,
        cx: &mut Context<'_, H>,
    ) -> Result<Chosen, VendorCode> {
        let connection = cx.connection;
        let mtu = u64::from(connection.mtu_bytes());
        let offset = u64::from(self.sent) * mtu;
        let len = (u64::from(work.length) - offset).min(mtu);
        if self.queue.inline(number).is_none() {
            for piece in Gather::new(self.queue.sges(number), offset, len) {
                let allowed = cx.host.check_local(connection.domain, piece, false);
                allowed.map_err(VendorCode::local)?;
            }
        }
        let payload = PayloadLen(usize::try_from(len).unwrap_or_default());
        let (begins, ends) = (self.sent == 0, self.sent + 1 == work.packets);
        let (qpn, dest, body) = match work.dest {
            None => (connection.dest_qpn, Destination::Peer, uc_body(work, begins, ends, payload)),
            Some(dest) => {
                let qkey = if dest.qkey.is_controlled() { connection.qkey } else { dest.qkey };
                let deth = Deth { qkey, source_qp: connection.qpn };
                let body = Body::Ud(Datagram { deth, imm: immediate(&work.op), payload });
                (dest.qpn, Destination::Datagram(dest.handle), body)
            }
        };
        let mut packet = Packet::new(qpn, self.next_psn, body);
        packet.pkey = connection.pkey;
        packet.solicited = work.flags.contains(SendFlags::SOLICITED) && work.op.takes_receive() && ends;
        Ok(Chosen { packet, offset, dest })
    }
}

const fn immediate(op: &SendOp) -> Option<Imm> {
    match op {
        SendOp::SendImm(imm) | SendOp::WriteImm(_, imm) => Some(*imm),
        _ => None,
    }
}

fn uc_body(work: &SendWork, begins: bool, ends: bool, payload: PayloadLen) -> Body<PayloadLen> {
    let imm = immediate(&work.op);
    Body::Uc(match work.op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) => {
            let reth = Reth { address: remote.address, rkey: remote.rkey, length: work.length };
            UcRequest::Write(segment(begins, ends, reth, imm), payload)
        }
        _ => UcRequest::Send(segment(begins, ends, (), imm), payload),
    })
}

/// The receiving half of an unreliable connection: a message arrives whole or not at all (IBA 9.8.2).
#[derive(Debug)]
pub(crate) struct UcReceiver {
    pub(crate) inbound: Inbound,
    pub(crate) expected: Psn,
}

impl UcReceiver {
    pub(crate) fn new(inbound: Inbound) -> Self {
        Self { inbound, expected: Psn::default() }
    }

    pub(crate) const fn start_at(&mut self, psn: Psn) {
        self.expected = psn;
    }

    /// Takes in a packet. What does not fit is dropped; an error means that a receive of ours failed.
    pub(crate) fn handle<H: Host>(
        &mut self,
        psn: Psn,
        solicited: bool,
        request: &UcRequest<&[u8]>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        let (arrival, payload) = Arrival::of_uc(request, solicited);
        if !self.continues(psn, &arrival, cx) {
            return Ok(());
        }
        self.expected = psn.next();
        match self.take(&arrival, payload, cx) {
            Ok(()) => {
                cx.counters.requests_received += 1;
                Ok(())
            }
            Err(fault) => self.drop_message(fault, cx),
        }
    }

    /// Whether the packet begins a message or goes on with the one that is arriving. A
    /// beginning ends whatever was unfinished (IBA 9.8.2.2.1).
    fn continues<H>(&mut self, psn: Psn, arrival: &Arrival, cx: &mut Context<'_, H>) -> bool {
        let (begins, arriving) = (arrival.begins, !self.inbound.is_idle());
        let in_order = psn == self.expected || is_planted(Bug::UcGapAccepted);
        if arriving && (begins || !in_order) {
            cx.counters.uc_messages_dropped += 1;
            self.inbound.forget_message();
        }
        if begins {
            return true;
        }
        if !arriving || !in_order {
            cx.counters.out_of_sequence += 1;
            return false;
        }
        true
    }

    /// A receive is taken last: a message that is dropped leaves it to the next one.
    fn take<H: Host>(
        &mut self,
        arrival: &Arrival,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        self.inbound.check_sequence(arrival)?;
        arrival.check_position(cx.connection.mtu)?;
        self.inbound.check_announced(arrival)?;
        arrival.check_allowed(cx.connection)?;
        arrival.check_key(cx.connection, cx.host)?;
        if arrival.takes_receive() {
            self.inbound.take_receive(cx)?;
        }
        self.inbound.place(arrival, payload, cx)?;
        if arrival.ends {
            self.inbound.end_message(arrival, cx.connection, cx.host);
        }
        Ok(())
    }

    /// A message that cannot be taken: its sender will not hear of it. Only a receive that is
    /// itself at fault ends, and the queue pair with it.
    fn drop_message<H: Host>(&mut self, fault: Fault, cx: &mut Context<'_, H>) -> Result<(), Failed> {
        match fault {
            Fault::NoReceive => cx.counters.no_receive += 1,
            Fault::Sequence | Fault::NotAllowed | Fault::Length | Fault::Key(_) => {
                cx.counters.uc_refused += 1;
            }
            Fault::TooLong => {
                self.inbound.abandon(VendorCode::ReceiveTooShort, cx);
                return Err(Failed);
            }
            Fault::Receive(denied) => {
                self.inbound.abandon(VendorCode::local(denied), cx);
                return Err(Failed);
            }
        }
        self.inbound.forget_message();
        Ok(())
    }
}

/// Takes in a datagram (IBA 9.8.3): the Q_Key must be right, and forty bytes of addresses go before it.
pub(crate) fn handle_datagram<H: Host>(
    inbound: &mut Inbound,
    datagram: &Datagram<&[u8]>,
    solicited: bool,
    envelope: &Envelope,
    cx: &mut Context<'_, H>,
) -> Result<(), Failed> {
    if datagram.deth.qkey != cx.connection.qkey && !is_planted(Bug::QKeyIgnored) {
        cx.counters.wrong_qkey += 1;
        return Ok(());
    }
    if datagram.payload.len() > cx.connection.mtu.bytes() {
        cx.counters.uc_refused += 1;
        return Ok(());
    }
    if inbound.take_receive(cx).is_err() {
        cx.counters.no_receive += 1;
        return Ok(());
    }
    let placed =
        inbound.place_send(&envelope.header, cx).and_then(|()| inbound.place_send(datagram.payload, cx));
    match placed {
        Ok(()) => {
            cx.counters.requests_received += 1;
            inbound.finish(
                |completion| {
                    completion.imm = datagram.imm.map(|imm| imm.0);
                    completion.source_qp = Some(datagram.deth.source_qp);
                    completion.solicited = solicited;
                    envelope.tell(completion);
                },
                cx,
            );
            Ok(())
        }
        Err(Fault::TooLong) => {
            inbound.abandon(VendorCode::ReceiveTooShort, cx);
            Err(Failed)
        }
        Err(fault) => {
            let denied = if let Fault::Receive(denied) = fault { denied } else { Denied::NotPermitted };
            inbound.abandon(VendorCode::local(denied), cx);
            Err(Failed)
        }
    }
}
