//! Which machine of a queue pair gets what: packets, calls for packets, time and failure.

use ferroce_wire::{
    Body, DataPacket, DataVerb, LoneAck, LoneSend, PKey, Packet, Response, Service, Syndrome,
};

use crate::completion::{Envelope, Event};
use crate::connection::Failed;
use crate::host::{DomainId, Host};
use crate::qp::{Introduction, Machine, QueuePair};
use crate::rc::last_ack::LastAck;
use crate::rc::responder::RequestInfo;
use crate::state::State;
use crate::time::Time;
use crate::transmit::{Acks, Burst, DataSink, Transmit};
use crate::unreliable::handle_datagram;
use crate::window::Window;

impl QueuePair {
    /// The protection domain that it belongs to.
    #[must_use]
    pub const fn domain(&self) -> DomainId {
        self.connection.domain
    }

    /// Whether an acknowledgement waits for [`Acks::Send`].
    #[must_use]
    pub const fn owes_ack(&self) -> bool {
        match &self.machine {
            Machine::Rc { responder, .. } => responder.owes_ack(),
            Machine::Uc { .. } | Machine::Ud { .. } => false,
        }
    }

    /// What was acknowledged last, for a device that answers the peer when this queue pair is gone. One that was ended first has
    /// received all the same what it had received.
    #[must_use]
    pub fn last_ack(&self) -> Option<LastAck> {
        let Machine::Rc { responder, .. } = &self.machine else { return None };
        let has_received = self.state.handles_requests() || self.state == State::Err;
        let (psn, msn) = responder.last_acknowledged().filter(|_| has_received)?;
        let (peer, pkey) = (self.connection.dest_qpn, self.connection.pkey);
        Some(LastAck { peer, pkey, psn, msn })
    }

    /// Has the last acknowledgement sent once more with the next [`Acks::Send`], if there was one. For a
    /// queue pair that is about to go: what was sent may be lost, and then nothing is left to repeat it.
    pub fn repeat_ack(&mut self) {
        if let Machine::Rc { responder, .. } = &mut self.machine
            && self.state.handles_requests()
        {
            responder.repeat_ack();
        }
    }

    /// Has the peer of a reliable connection asked whether it is there, with the next packet. It answers even if there
    /// is no work, and notices nothing of it; [`signs_of_life`](Self::signs_of_life) tells. False if such a queue pair
    /// cannot ask, or not in its state.
    pub const fn ask(&mut self) -> bool {
        let asks = self.state.sends_requests();
        match &mut self.machine {
            Machine::Rc { requester, .. } if asks => {
                requester.asks = true;
                true
            }
            Machine::Rc { .. } | Machine::Uc { .. } | Machine::Ud { .. } => false,
        }
    }

    /// How many packets have come that only a peer sends which knows of this connection.
    #[must_use]
    pub const fn signs_of_life(&self) -> u64 {
        self.counters.signs_of_life()
    }

    /// Takes in a packet for this queue pair whose ICRC was found right. `envelope` is what a
    /// receiver of a datagram is told beside it.
    #[inline]
    pub fn handle_packet<H: Host>(
        &mut self,
        now: Time,
        packet: &Packet<&[u8]>,
        envelope: Option<&Envelope>,
        window: &mut Window,
        host: &mut H,
    ) {
        if !self.is_of_partition(packet.pkey) {
            self.counters.wrong_pkey += 1;
            return;
        }
        self.counters.congestion_marks += u64::from(packet.fecn);
        let state = self.state;
        let takes = match packet.body {
            Body::RcResponse(_) => state.handles_responses(),
            Body::Congestion => true,
            _ => state.handles_requests(),
        };
        if !takes {
            self.counters.wrong_state += 1;
            return;
        }
        let of_connection = matches!(
            (self.service, &packet.body),
            (Service::Rc, Body::RcRequest(_) | Body::RcResponse(_)) | (Service::Uc, Body::Uc(_))
        );
        if of_connection {
            self.establish(host);
        }
        let (machine, mut cx) = self.split(now, window, host);
        let info =
            RequestInfo { psn: packet.psn, ack_request: packet.ack_request, solicited: packet.solicited };
        let result = match (machine, &packet.body) {
            (Machine::Rc { responder, .. }, Body::RcRequest(request)) => {
                responder.handle_request(info, request, &mut cx)
            }
            (Machine::Rc { requester, .. }, Body::RcResponse(response)) => {
                requester.handle_response(packet.psn, response, &mut cx)
            }
            (Machine::Uc { receiver, .. }, Body::Uc(request)) => {
                receiver.handle(packet.psn, packet.solicited, request, &mut cx)
            }
            (Machine::Ud { inbound, .. }, Body::Ud(datagram)) => {
                let envelope = envelope.unwrap_or(&Envelope::EMPTY);
                handle_datagram(inbound, datagram, packet.solicited, envelope, &mut cx)
            }
            (_, Body::Congestion) => {
                cx.counters.congestion_notifications += 1;
                Ok(())
            }
            _ => {
                cx.counters.wrong_service += 1;
                Ok(())
            }
        };
        if result == Err(Failed) {
            self.enter_error(window, host);
        }
    }

    /// Whether a packet of a request, true or forged, would change nothing: something before it is missing,
    /// and the peer was told so. Then it is counted, and its ICRC need not be checked. The PSN of an acknowledgement is one of
    /// our own: it is never passed over.
    #[inline]
    pub fn passes_over(&mut self, data: &DataPacket) -> bool {
        let Machine::Rc { responder, .. } = &self.machine else { return false };
        let is_request = !matches!(data.verb, DataVerb::Acknowledge(_));
        let passes_over = is_request && self.state.handles_requests() && responder.is_deaf_to(data.psn);
        self.counters.out_of_sequence += u64::from(passes_over);
        passes_over
    }

    /// Whether [`passes_over`](Self::passes_over) may say yes.
    #[inline(always)]
    #[must_use]
    pub const fn may_pass_over(&self) -> bool {
        match &self.machine {
            Machine::Rc { responder, .. } => responder.has_told_of_gap(),
            Machine::Uc { .. } | Machine::Ud { .. } => true,
        }
    }

    /// Takes in a SEND of one packet whose ICRC was found right, as [`take_data`](Self::take_data) does, if it is what comes next and
    /// goes into its receive in one step. Else false, and that has to.
    #[inline(always)]
    pub fn take_send<H: Host>(
        &mut self,
        now: Time,
        head: &LoneSend,
        payload: &[u8],
        window: &mut Window,
        host: &mut H,
    ) -> bool {
        if !self.may_take(self.state.handles_requests(), head.pkey) {
            return false;
        }
        let (machine, mut cx) = self.split(now, window, host);
        let Machine::Rc { responder, .. } = machine else { return false };
        responder.take_send(head, payload, &mut cx)
    }

    /// Takes in a packet of a plain SEND or WRITE, or an acknowledgement, whose ICRC was found right, if it is what comes next and
    /// nothing is out of the ordinary. Else false, and [`handle_packet`](Self::handle_packet) has to take it.
    #[inline]
    pub fn take_data<H: Host>(
        &mut self,
        now: Time,
        data: &DataPacket,
        payload: &[u8],
        window: &mut Window,
        host: &mut H,
    ) -> bool {
        let DataVerb::Acknowledge(aeth) = data.verb else {
            if !self.may_take(self.state.handles_requests(), data.pkey) {
                return false;
            }
            let (machine, mut cx) = self.split(now, window, host);
            let Machine::Rc { responder, .. } = machine else { return false };
            return responder.take_data(data, payload, &mut cx);
        };
        let DataPacket { psn, pkey, .. } = *data;
        if self.take_only_ack(now, &LoneAck { psn, pkey, aeth }, window, host) {
            return true;
        }
        if !self.may_take(self.state.handles_responses(), data.pkey)
            || !matches!(aeth.syndrome, Syndrome::Ack(_))
        {
            return false;
        }
        let (machine, mut cx) = self.split(now, window, host);
        let Machine::Rc { requester, .. } = machine else { return false };
        if requester.handle_response(data.psn, &Response::Acknowledge(aeth), &mut cx) == Err(Failed) {
            self.enter_error(window, host);
        }
        true
    }

    /// Takes in the acknowledgement of all that is under way, if that is one message of one packet and nothing is out of the
    /// ordinary: what a program gets that waits for each answer. Else false, and nothing has changed.
    #[inline(always)]
    pub fn take_only_ack<H: Host>(
        &mut self,
        now: Time,
        ack: &LoneAck,
        window: &mut Window,
        host: &mut H,
    ) -> bool {
        if !self.may_take(self.state.handles_responses(), ack.pkey) {
            return false;
        }
        let (machine, mut cx) = self.split(now, window, host);
        let Machine::Rc { requester, .. } = machine else { return false };
        requester.take_only_ack(ack.psn, &ack.aeth, &mut cx)
    }

    /// Whether nothing is to be said of a packet before it is taken; `takes` is whether its kind is in this state.
    #[inline]
    const fn may_take(&self, takes: bool, pkey: PKey) -> bool {
        takes && self.established && pkey.admits(self.connection.pkey)
    }

    /// Has heard of its peer.
    fn establish<H: Host>(&mut self, host: &mut H) {
        let Self { established, state, connection, .. } = self;
        Introduction { established, state: *state, qpn: connection.qpn }.make(host);
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have something: a look that costs little, where most calls of that
    /// would find nothing.
    #[inline]
    #[must_use]
    pub fn may_transmit(&self, acks: Acks) -> bool {
        match &self.machine {
            Machine::Rc { requester, responder } => {
                let owes = acks == Acks::Send && responder.owes_ack();
                owes || requester.may_send() || responder.may_have_answers()
            }
            Machine::Uc { .. } | Machine::Ud { .. } => true,
        }
    }

    /// The next packet to send, if there is one. Call it until there is none.
    #[inline(always)]
    pub fn poll_transmit<H: Host>(
        &mut self,
        now: Time,
        acks: Acks,
        window: &mut Window,
        host: &mut H,
    ) -> Option<Transmit<'_>> {
        if let Machine::Rc { .. } = self.machine {
            return self.poll_rc(now, acks, window, host);
        }
        if !self.state.sends_requests() {
            return None;
        }
        let (machine, mut cx) = self.split(now, window, host);
        let sender = match machine {
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender,
            Machine::Rc { .. } => return None,
        };
        match sender.poll(&mut cx) {
            Err(Failed) => {
                self.enter_send_error(window, host);
                None
            }
            Ok(None) => None,
            Ok(Some(chosen)) => match &self.machine {
                Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => Some(sender.transmit(chosen)),
                Machine::Rc { .. } => None,
            },
        }
    }

    #[inline(always)]
    fn poll_rc<H: Host>(
        &mut self,
        now: Time,
        acks: Acks,
        window: &mut Window,
        host: &mut H,
    ) -> Option<Transmit<'_>> {
        let sends = self.state.sends_requests();
        let (machine, mut cx) = self.split(now, window, host);
        let Machine::Rc { requester, responder } = machine else { return None };
        if sends && let Some(question) = requester.question(cx.connection) {
            cx.counters.questions_sent += 1;
            return Some(question);
        }
        let chosen = match responder.poll(acks, &mut cx) {
            Ok(Some(response)) => return Some(response),
            Ok(None) if sends => requester.poll(&mut cx),
            Ok(None) => return None,
            Err(Failed) => Err(Failed),
        };
        match chosen {
            Err(Failed) => {
                self.enter_error(window, host);
                self.poll_refusal(now, window, host)
            }
            Ok(None) => None,
            Ok(Some(chosen)) => match &self.machine {
                Machine::Rc { requester, .. } => Some(requester.transmit(chosen)),
                Machine::Uc { .. } | Machine::Ud { .. } => None,
            },
        }
    }

    /// Sends up to `limit` packets of SENDs, WRITEs and answers to READs on a reliable connection through `sink`, which says
    /// whether it took one. Behind them, or by itself if `acks` says so, goes an acknowledgement that is owed; with `None` it never
    /// does. What is left, if anything is, [`poll_transmit`](Self::poll_transmit) sends.
    #[inline(always)]
    pub fn poll_data<H: Host>(
        &mut self,
        now: Time,
        limit: usize,
        acks: Option<Acks>,
        window: &mut Window,
        host: &mut H,
        mut sink: impl DataSink<H>,
    ) -> Burst {
        let (answers, asks) = (self.state.handles_requests(), self.state.sends_requests());
        let (machine, mut cx) = self.split(now, window, host);
        let Machine::Rc { requester, responder } = machine else { return Burst::default() };
        // Answers go before requests.
        let mut sent = 0;
        if answers && responder.may_have_answers() {
            sent = responder.burst(limit, &mut cx, &mut sink);
        }
        if asks && !responder.may_have_answers() {
            sent += requester.burst(limit - sent, &mut cx, &mut sink);
        }
        let rides = acks.is_some_and(|acks| acks == Acks::Send || sent > 0);
        let acknowledged = answers && rides && sent < limit && responder.acknowledge(&mut cx, &mut sink);
        Burst { sent, acknowledged }
    }

    /// The NAK with which a failed responder takes its leave.
    fn poll_refusal<H: Host>(
        &mut self,
        now: Time,
        window: &mut Window,
        host: &mut H,
    ) -> Option<Transmit<'static>> {
        let (machine, mut cx) = self.split(now, window, host);
        match machine {
            Machine::Rc { responder, .. } => responder.poll(Acks::Send, &mut cx).ok().flatten(),
            Machine::Uc { .. } | Machine::Ud { .. } => None,
        }
    }

    /// Does what is due at this time.
    pub fn handle_timeout<H: Host>(&mut self, now: Time, window: &mut Window, host: &mut H) {
        // Forgets a pause that is over: what waited for it is sent when packets are asked for.
        self.pacer.allows(now);
        let (machine, mut cx) = self.split(now, window, host);
        if let Machine::Rc { requester, .. } = machine
            && requester.handle_timeout(&mut cx) == Err(Failed)
        {
            self.enter_error(window, host);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.standing().timeout
    }

    /// Gives all timers their full time again: for a device that was kept from running, so
    /// that it does not take its own absence for the peer's.
    pub fn restart_timers<H: Host>(&mut self, now: Time, window: &mut Window, host: &mut H) {
        let (machine, cx) = self.split(now, window, host);
        if let Machine::Rc { requester, .. } = machine {
            requester.restart_timers(&cx);
        }
    }

    /// Something failed for good: the queue pair is in error, and all its work with it.
    fn enter_error<H: Host>(&mut self, window: &mut Window, host: &mut H) {
        if self.state != State::Err {
            self.state = State::Err;
            self.flush_all(window, host);
        }
    }

    /// A send of UC or UD failed: the sending half stops, the receiving half goes on (IBA 10.3.1.6).
    fn enter_send_error<H: Host>(&mut self, window: &mut Window, host: &mut H) {
        self.state = State::Sqe;
        let (machine, mut cx) = self.split(Time::ZERO, window, host);
        if let Machine::Uc { sender, .. } | Machine::Ud { sender, .. } = machine {
            sender.flush(&mut cx);
        }
    }

    /// IBA 10.3.1.7: whatever is posted ends as flushed.
    pub(super) fn flush_all<H: Host>(&mut self, window: &mut Window, host: &mut H) {
        let (machine, mut cx) = self.split(Time::ZERO, window, host);
        match machine {
            Machine::Rc { requester, responder } => {
                requester.flush(&mut cx);
                responder.inbound.flush(&mut cx);
                responder.silence();
            }
            Machine::Uc { sender, receiver } => {
                sender.flush(&mut cx);
                receiver.inbound.flush(&mut cx);
            }
            Machine::Ud { sender, inbound } => {
                sender.flush(&mut cx);
                inbound.flush(&mut cx);
            }
        }
        if cx.connection.shared_queue.is_some() {
            cx.host.event(cx.connection.qpn, Event::LastWorkRequestReached);
        }
    }
}
