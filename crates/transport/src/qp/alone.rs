//! A message that is alone: of one packet, posted when nothing waits or is under way, so that it leaves in the call that posts
//! it, with the acknowledgement that is owed behind it.
//!
//! It is what a program sends that waits for its answer. The long way posts it, chooses it, sends it and looks what is left;
//! this one does what these do where nothing speaks against it, and changes nothing where anything does.

use ferroce_wire::{DataPacket, DataVerb, SendTail};

use crate::connection::Context;
use crate::host::Host;
use crate::qp::{Machine, QueuePair};
use crate::rc::requester::{Requester, reth};
use crate::state::State;
use crate::time::Time;
use crate::transmit::{DataSink, Gather, PayloadSource};
use crate::window::Window;
use crate::work::{Data, SendFlags, SendOp, SendRequest};

impl QueuePair {
    /// Posts a plain SEND or WRITE of one packet and sends it through `sink`, and behind it the acknowledgement that is owed, if
    /// nothing is posted or under way and nothing else is to be sent. Whether it was so; else nothing has changed, and
    /// [`post_sends`](Self::post_sends) has to take it. `sink` refuses the first packet, or none.
    #[inline(always)]
    pub fn post_alone<H: Host>(
        &mut self,
        now: Time,
        request: &SendRequest<'_>,
        window: &mut Window,
        host: &mut H,
        mut sink: impl DataSink<H>,
    ) -> bool {
        let (length, fits) = match request.data {
            Data::Gather([one]) => (one.length, self.caps.max_send_sge > 0),
            #[expect(clippy::cast_possible_truncation, reason = "no more than a queue pair may have inline")]
            Data::Inline(bytes) => (bytes.len() as u32, bytes.len() <= self.caps.max_inline as usize),
            Data::Gather(_) => return false,
        };
        let fits = fits && self.caps.max_send > 0 && length <= self.connection.mtu_bytes();
        if self.state != State::Rts || !fits || request.dest.is_some() {
            return false;
        }
        let (machine, mut cx) = self.split(now, window, host);
        let Machine::Rc { requester, responder } = machine else { return false };
        // Answers go before requests.
        if responder.may_have_answers() || !requester.is_idle() || !cx.pacer.is_open() {
            return false;
        }
        // Each with what it is known to be.
        let is_sent = match request.op {
            SendOp::Send => {
                requester.send_alone(DataVerb::Send(SendTail::Plain), (request, length), &mut cx, &mut sink)
            }
            SendOp::Write(remote) => {
                let verb = DataVerb::Write(reth(remote, 0, length.into()), None);
                requester.send_alone(verb, (request, length), &mut cx, &mut sink)
            }
            _ => false,
        };
        if is_sent {
            responder.acknowledge(&mut cx, &mut sink);
        }
        is_sent
    }
}

impl Requester {
    /// Whether nothing is posted or under way, and nothing has to be sent again, waited for or asked.
    #[inline(always)]
    fn is_idle(&self) -> bool {
        let (posted, done) = self.queue.totals();
        posted == done
            && self.cursor.work == posted
            && self.una == self.next_psn
            && self.cursor.psn == self.next_psn
            && self.high == self.next_psn
            && self.blocked.is_none()
            && !self.draining
            && !self.asks
            && self.retry.is_calm()
    }

    /// Sends a message of one packet, and posts it then.
    #[inline(always)]
    fn send_alone<H: Host>(
        &mut self,
        verb: DataVerb,
        (request, length): (&SendRequest<'_>, u32),
        cx: &mut Context<'_, H>,
        sink: &mut impl DataSink<H>,
    ) -> bool {
        let message = self.messages.next();
        let takes_receive = request.op.takes_receive();
        let cost = cx.window.packet_cost(length);
        if self.lacks_credit(takes_receive, message) || !cx.window.allows(cost) {
            return false;
        }
        let data = DataPacket {
            dest_qp: cx.connection.dest_qpn,
            pkey: cx.connection.pkey,
            psn: self.next_psn,
            ack_request: true,
            solicited: takes_receive && request.flags.contains(SendFlags::SOLICITED),
            begins: true,
            ends: true,
            verb,
            payload: length as usize,
        };
        let payload = match request.data {
            _ if length == 0 => PayloadSource::Nothing,
            Data::Inline(bytes) => PayloadSource::Inline(bytes),
            Data::Gather(sges) => PayloadSource::Gather(Gather::new(sges, 0, length.into())),
        };
        if !sink.take(cx.host, &data, &payload) {
            return false;
        }
        self.messages = message;
        self.queue.push(request, length, self.next_psn, 1, message);
        self.next_psn = self.next_psn.next();
        self.under_way(&data, cost, cx);
        true
    }
}
