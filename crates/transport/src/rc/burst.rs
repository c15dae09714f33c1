//! Requester and responder in a hurry: many packets of SENDs, WRITEs and answers to READs in one call, and the next packet of
//! a SEND or WRITE where nothing speaks against it.
//!
//! Whatever is out of the ordinary, from a probe to a key that opens nothing, is left for the long way
//! ([`Requester::poll`], [`Responder::poll`], [`Responder::handle_request`]): both do the same, and the simulator uses
//! them in turn.

use ferroce_wire::{Aeth, DataPacket, DataVerb, LoneSend, SendTail, Syndrome};

use crate::arrival::Arrival;
use crate::connection::Context;
use crate::host::Host;
use crate::rc::requester::{Requester, packets_between, reth};
use crate::rc::resources::Answer;
use crate::rc::responder::{Owed, RequestInfo, Responder, credit_code};
use crate::transmit::{DataSink, Gather, PayloadSource};
use crate::work::{Data, SendFlags, SendOp};

impl Requester {
    /// Sends up to `limit` packets through `sink`, which says whether it took one; the packet is under way then.
    /// How many were sent.
    #[inline(always)]
    pub(crate) fn burst<H>(
        &mut self,
        limit: usize,
        cx: &mut Context<'_, H>,
        sink: &mut impl DataSink<H>,
    ) -> usize {
        let is_ordinary = self.cursor.psn == self.high
            && !self.draining
            && self.blocked.is_none()
            && self.retry.is_calm()
            && cx.pacer.is_open();
        if !is_ordinary {
            return 0;
        }
        let mtu = cx.connection.mtu_bytes();
        let mut sent = 0;
        while sent < limit {
            let number = self.cursor.work;
            let Some(work) = self.queue.get(number) else { break };
            let verb = match work.op {
                SendOp::Send => DataVerb::Send(SendTail::Plain),
                SendOp::SendImm(imm) => DataVerb::Send(SendTail::Immediate(imm)),
                SendOp::SendInvalidate(rkey) => DataVerb::Send(SendTail::Invalidate(rkey)),
                SendOp::Write(remote) => DataVerb::Write(reth(remote, 0, work.length.into()), None),
                SendOp::WriteImm(remote, imm) => {
                    DataVerb::Write(reth(remote, 0, work.length.into()), Some(imm))
                }
                _ => break,
            };
            // These may have to wait, or to ask.
            if self.is_limited(work) || (work.flags.contains(SendFlags::FENCE) && self.reads > 0) {
                break;
            }
            let solicited = work.flags.contains(SendFlags::SOLICITED) && work.op.takes_receive();
            let (length, packets) = (work.length, work.packets);
            let mut done = packets_between(work.first_psn, self.cursor.psn);
            while done < packets && sent < limit {
                let offset = done * mtu;
                let len = (length - offset).min(mtu);
                let ends = done + 1 == packets;
                let cost = cx.window.packet_cost(len);
                if !cx.window.allows(cost) {
                    return sent;
                }
                let room_after = cx.window.room().saturating_sub(cost);
                let psn = self.cursor.psn;
                let data = DataPacket {
                    dest_qp: cx.connection.dest_qpn,
                    pkey: cx.connection.pkey,
                    psn,
                    ack_request: ends || cx.window.asks_with(room_after),
                    solicited: solicited && ends,
                    begins: done == 0,
                    ends,
                    verb,
                    payload: len as usize,
                };
                let payload = match self.queue.data(number) {
                    _ if len == 0 => PayloadSource::Nothing,
                    Data::Inline(bytes) => {
                        PayloadSource::Inline(&bytes[offset as usize..(offset + len) as usize])
                    }
                    Data::Gather(sges) => PayloadSource::Gather(Gather::new(sges, offset.into(), len.into())),
                };
                if !sink.take(cx.host, &data, &payload) {
                    return sent;
                }
                self.under_way(&data, cost, cx);
                sent += 1;
                done += 1;
            }
        }
        sent
    }

    /// Takes note of a packet that was sent.
    #[inline(always)]
    pub(crate) fn under_way<H>(&mut self, data: &DataPacket, cost: u32, cx: &mut Context<'_, H>) {
        self.set_in_flight(self.in_flight + cost, cx.window);
        self.note_asking(data.psn, data.ack_request);
        self.cursor.psn = data.psn.next();
        self.high = self.cursor.psn;
        self.cursor.work = self.cursor.work.wrapping_add(u32::from(data.ends));
        cx.counters.requests_sent += 1;
        self.retry.packet_sent(data.psn, data.ack_request, cx);
    }
}

impl Responder {
    /// Takes in a packet of a plain SEND or WRITE, if it climbs the whole ladder of
    /// [`handle_request`](Self::handle_request). If it does not, that climbs it again and finds the same: a
    /// receive that was taken stays with the message, and so do the bytes that were placed.
    #[inline]
    pub(crate) fn take_data<H: Host>(
        &mut self,
        data: &DataPacket,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> bool {
        if data.psn != self.expected {
            return false;
        }
        let DataPacket { pkey, psn, ack_request, solicited, .. } = *data;
        let is_whole = data.begins && data.ends && matches!(data.verb, DataVerb::Send(SendTail::Plain));
        if is_whole && self.take_send(&LoneSend { pkey, psn, ack_request, solicited }, payload, cx) {
            return true;
        }
        let Some(arrival) = Arrival::of_data(data, payload) else { return false };
        let taken = self.take(RequestInfo { psn, ack_request, solicited }, &arrival, payload, cx).is_ok();
        if taken {
            self.nak_sent = false;
            cx.counters.requests_received += 1;
        }
        taken
    }

    /// As [`take_data`](Self::take_data), for a SEND of one packet, which has most of the ladder behind it: it needs no key and no
    /// message before it, and may be of any length up to the path MTU.
    #[inline(always)]
    pub(crate) fn take_send<H: Host>(
        &mut self,
        head: &LoneSend,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> bool {
        if head.psn != self.expected
            || payload.len() > cx.connection.mtu.bytes()
            || !self.inbound.take_whole(payload, head.solicited, cx)
        {
            return false;
        }
        self.passed(1, true);
        if head.ack_request {
            self.owed = Some(Owed::ack(head.psn));
        }
        self.nak_sent = false;
        cx.counters.requests_received += 1;
        true
    }

    /// Sends the acknowledgement that is owed through `sink`, if nothing else is to be answered. Whether it was sent.
    #[inline(always)]
    pub(crate) fn acknowledge<H>(&mut self, cx: &mut Context<'_, H>, sink: &mut impl DataSink<H>) -> bool {
        if self.resources.may_be_pending() {
            return false;
        }
        let Some(psn) = self.owed_ack() else { return false };
        let syndrome = Syndrome::Ack(credit_code(&self.inbound, cx.connection));
        let data = DataPacket {
            dest_qp: cx.connection.dest_qpn,
            pkey: cx.connection.pkey,
            psn,
            ack_request: false,
            solicited: false,
            begins: true,
            ends: true,
            verb: DataVerb::Acknowledge(Aeth { syndrome, msn: self.msn }),
            payload: 0,
        };
        if !sink.take(cx.host, &data, &PayloadSource::Nothing) {
            return false;
        }
        self.owed = None;
        cx.counters.acks_sent += 1;
        true
    }

    /// Sends up to `limit` packets of answers to READs through `sink`, which says whether it took one; the packet is under
    /// way then. How many were sent.
    pub(crate) fn burst<H>(
        &mut self,
        limit: usize,
        cx: &mut Context<'_, H>,
        sink: &mut impl DataSink<H>,
    ) -> usize {
        let mtu = cx.connection.mtu_bytes();
        let credits = credit_code(&self.inbound, cx.connection);
        let mut sent = 0;
        while sent < limit
            && let Some(kept) = self.resources.first_pending()
            && let Answer::Read(read) = &mut kept.answer
        {
            let verb = DataVerb::Answer(Aeth { syndrome: Syndrome::Ack(credits), msn: kept.msn });
            while sent < limit && read.sent < read.packets {
                let part = read.next_part(mtu);
                let data = DataPacket {
                    dest_qp: cx.connection.dest_qpn,
                    pkey: cx.connection.pkey,
                    psn: part.psn,
                    ack_request: false,
                    solicited: false,
                    begins: part.begins,
                    ends: part.ends,
                    verb,
                    payload: part.place.length as usize,
                };
                if !sink.take(cx.host, &data, &part.payload()) {
                    return sent;
                }
                read.sent += 1;
                sent += 1;
                cx.counters.responses_sent += 1;
            }
            // Whatever acknowledgement was owed for something earlier, this answer implies it.
            if self.owed.is_some_and(|owed| owed.psn.is_before(kept.psn)) {
                self.owed = None;
            }
        }
        sent
    }
}
