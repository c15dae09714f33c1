//! The requester's other half: what answers mean for the work that waits (IBA 9.7.5).

use ferroce_wire::{Aeth, Msn, NakCode, Psn, ReadSegment, Response, Syndrome};

use crate::completion::Event;
use crate::connection::{Context, Failed};
use crate::host::Host;
use crate::planted::{Bug, is_planted};
use crate::queue::SendWork;
use crate::rc::requester::{Requester, cost, packets_at_once, packets_between};
use crate::rc::retry::Found;
use crate::status::WorkKind;
use crate::transmit::Gather;
use crate::vendor::VendorCode;
use crate::work::{SendFlags, SendOp};

/// How far an acknowledgement reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// As far as it said.
    All,
    /// Up to a READ or atomic whose answer has not come: it must have been lost.
    MissingAnswer,
}

impl Requester {
    /// Takes in a response packet.
    pub(crate) fn handle_response<H: Host>(
        &mut self,
        psn: Psn,
        response: &Response<&[u8]>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        if !self.is_expected(psn, response, cx) {
            return Ok(());
        }
        cx.counters.responses_received += 1;
        self.heard = true;
        match response {
            Response::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Ack(_) => self.handle_ack(psn, aeth, cx),
                Syndrome::RnrNak(timer) => {
                    cx.counters.rnr_received += 1;
                    match self.acknowledge_before(psn, cx)? {
                        Reached::All => self.wait_for_receiver(psn, timer.duration(), cx),
                        Reached::MissingAnswer => self.miss_answer(cx),
                    }
                }
                Syndrome::Nak(code) => self.handle_nak(psn, code, cx),
                Syndrome::Reserved(_) => {
                    cx.counters.bad_syndromes += 1;
                    Ok(())
                }
            },
            Response::Read(segment, payload) => self.handle_read_response(psn, *segment, payload, cx),
            Response::AtomicAcknowledge(aeth, original) => {
                self.handle_atomic_response(psn, aeth, original.original, cx)
            }
        }
    }

    /// Takes in the acknowledgement of all that there is, if that is one message of one packet and nothing is out of the
    /// ordinary: what a program gets that waits for each answer. Else false, and nothing has changed.
    #[inline(always)]
    pub(crate) fn take_only_ack<H: Host>(&mut self, psn: Psn, aeth: &Aeth, cx: &mut Context<'_, H>) -> bool {
        let after = psn.next();
        let is_only = self.queue.len() == 1
            && self.una == psn
            && self.high == after
            && self.cursor.psn == after
            && self.retry.is_unasked()
            && self.blocked.is_none()
            && !self.draining
            && matches!(aeth.syndrome, Syndrome::Ack(_))
            && !is_planted(Bug::MessageNumberBelieved)
            && !is_planted(Bug::CompletedWhenSent);
        if !is_only {
            return false;
        }
        let Some(work) = self.queue.get(self.queue.head()) else { return false };
        if work.packets != 1 || work.first_psn != psn || work.op.is_read_or_atomic() {
            return false;
        }
        let (ending, length) = ((work.id, work.op.kind(), work.flags), work.length);
        cx.counters.responses_received += 1;
        self.heard = true;
        self.finish_oldest(ending, length, cx);
        self.progressed(cx);
        self.learn_credits(aeth);
        true
    }

    /// Whether a response is about something that was sent and not yet answered.
    fn is_expected<H: Host>(
        &mut self,
        psn: Psn,
        response: &Response<&[u8]>,
        cx: &mut Context<'_, H>,
    ) -> bool {
        if psn.is_before(self.una) {
            // An old acknowledgement may still bring news of credits.
            if let Response::Acknowledge(aeth) = response
                && psn == self.una.prev()
            {
                self.learn_credits(aeth);
                // What the peer sends of a READ that has reached it comes before that.
                if matches!(aeth.syndrome, Syndrome::Ack(_)) && self.was_asked_after() {
                    self.recover_tail(cx);
                }
            }
            cx.counters.duplicate_responses += 1;
            return false;
        }
        // IBA 9.7.5.1.1: an answer to what was never asked is a ghost.
        if !psn.is_before(self.high) && !is_planted(Bug::GhostAckBelieved) {
            cx.counters.ghost_acks += 1;
            return false;
        }
        true
    }

    fn handle_ack<H: Host>(&mut self, psn: Psn, aeth: &Aeth, cx: &mut Context<'_, H>) -> Result<(), Failed> {
        let found = self.probe_found(psn);
        let is_misled = is_planted(Bug::MessageNumberBelieved) && self.has_posted_no_more_than(aeth.msn);
        let psn = if is_misled { self.high.prev() } else { psn };
        match self.acknowledge_before(psn.next(), cx)? {
            Reached::All => {
                self.learn_credits(aeth);
                self.after_probe(found, cx);
                Ok(())
            }
            Reached::MissingAnswer => self.miss_answer(cx),
        }
    }

    fn handle_nak<H: Host>(
        &mut self,
        psn: Psn,
        code: NakCode,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        // A NAK acknowledges everything before it (IBA 9.7.5.1.3).
        if self.acknowledge_before(psn, cx)? == Reached::MissingAnswer {
            return self.miss_answer(cx);
        }
        let failed = match code {
            NakCode::SequenceError => {
                cx.counters.nak_sequence_received += 1;
                return self.rewind(psn, cx);
            }
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => VendorCode::NakInvalidRequest,
            NakCode::RemoteAccess => VendorCode::NakRemoteAccess,
            NakCode::RemoteOperation => VendorCode::NakRemoteOperation,
        };
        cx.counters.nak_fatal_received += 1;
        Err(self.fail_oldest(failed, cx))
    }

    /// Something later was answered, so the answer of the oldest READ or atomic is lost
    /// (IBA 9.7.5.1.2): ask again from there.
    fn miss_answer<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Result<(), Failed> {
        cx.counters.implied_naks += 1;
        if self.was_asked_after() {
            self.recover_tail(cx);
            return Ok(());
        }
        self.rewind(self.una, cx)
    }

    fn handle_read_response<H: Host>(
        &mut self,
        psn: Psn,
        segment: ReadSegment,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        if self.acknowledge_before(psn, cx)? == Reached::MissingAnswer {
            return self.miss_answer(cx);
        }
        let Some(&work) = self.queue.get(self.queue.head()) else { return Ok(()) };
        let done = packets_between(work.first_psn, psn);
        let is_answer = match work.op {
            SendOp::Read(_) => {
                let mtu = cx.connection.mtu_bytes();
                let rest = u64::from(work.length) - u64::from(done) * u64::from(mtu);
                // Where an answer begins depends on where it was asked for again; where it ends does not.
                let ends = packets_at_once(&work, done) == 1;
                let says_so = matches!(segment, ReadSegment::Last(_) | ReadSegment::Only(_));
                let is_whole = payload.len() as u64 == rest.min(u64::from(mtu));
                (is_whole || is_planted(Bug::ReadAnswerLengthUnchecked)) && ends == says_so
            }
            // An ATOMIC WRITE is answered with an empty READ response (annex A19).
            SendOp::AtomicWrite(_) => payload.is_empty() && matches!(segment, ReadSegment::Only(_)),
            _ => is_planted(Bug::ReadAnswerToWrite),
        };
        if !is_answer {
            let asked = matches!(work.op, SendOp::Read(_) | SendOp::AtomicWrite(_));
            let code = if asked { VendorCode::AnswerLength } else { VendorCode::AnswerKind };
            return Err(self.fail_oldest(code, cx));
        }
        let offset = u64::from(done) * u64::from(cx.connection.mtu_bytes());
        self.place_answer(offset, payload, cx)?;
        if let ReadSegment::First(aeth) | ReadSegment::Last(aeth) | ReadSegment::Only(aeth) = segment {
            self.learn_credits(&aeth);
        }
        self.finish_answer(psn, &work, done, cx)
    }

    fn handle_atomic_response<H: Host>(
        &mut self,
        psn: Psn,
        aeth: &Aeth,
        original: u64,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        if self.acknowledge_before(psn, cx)? == Reached::MissingAnswer {
            return self.miss_answer(cx);
        }
        let Some(&work) = self.queue.get(self.queue.head()) else { return Ok(()) };
        if !work.op.is_atomic() && !is_planted(Bug::AtomicAnswerToRead) {
            return Err(self.fail_oldest(VendorCode::AnswerKind, cx));
        }
        self.place_answer(0, &original.to_ne_bytes(), cx)?;
        self.learn_credits(aeth);
        self.finish_answer(psn, &work, 0, cx)
    }

    /// A packet of the answer to a READ or atomic is in place.
    fn finish_answer<H: Host>(
        &mut self,
        psn: Psn,
        work: &SendWork,
        done: u32,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        let is_alone = packets_at_once(work, done) == 1;
        let found = if is_alone { self.probe_found(psn) } else { Found::Nothing };
        self.finish_packets(work, done, 1, cx)?;
        self.progressed(cx);
        self.after_probe(found, cx);
        Ok(())
    }

    /// Puts what the peer answered into the memory of the oldest work.
    fn place_answer<H: Host>(
        &mut self,
        offset: u64,
        bytes: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        let mut rest = bytes;
        for piece in Gather::new(self.queue.sges(self.queue.head()), offset, bytes.len() as u64) {
            let (part, after) = rest.split_at(piece.length as usize);
            let placed = cx
                .host
                .check_local(cx.connection.domain, piece, true)
                .and_then(|()| cx.host.write_local(piece.lkey, piece.address, part));
            if let Err(denied) = placed {
                return Err(self.fail_oldest(VendorCode::local(denied), cx));
            }
            rest = after;
        }
        Ok(())
    }

    /// Everything before `psn` has arrived, except that READs and atomics need their own answer.
    fn acknowledge_before<H: Host>(&mut self, psn: Psn, cx: &mut Context<'_, H>) -> Result<Reached, Failed> {
        let before = self.una;
        let mut reached = Reached::All;
        self.finish_short(psn, cx);
        if self.una != before {
            // Work without packets may stand behind them, and is done with them.
            self.retire(cx)?;
        }
        while self.una.is_before(psn) {
            let Some(&work) = self.queue.get(self.queue.head()) else { break };
            if work.op.is_read_or_atomic() && !is_planted(Bug::ImpliedNakIgnored) {
                reached = Reached::MissingAnswer;
                break;
            }
            let done = packets_between(work.first_psn, self.una);
            let packets = (work.packets - done).min(packets_between(self.una, psn));
            self.finish_packets(&work, done, packets, cx)?;
        }
        if self.una != before {
            self.progressed(cx);
        }
        Ok(reached)
    }

    /// Messages of one packet before `psn` have arrived, as far as nothing is out of the ordinary:
    /// [`finish_packets`](Self::finish_packets) for many of them.
    fn finish_short<H: Host>(&mut self, psn: Psn, cx: &mut Context<'_, H>) {
        let is_ordinary = self.blocked.is_none()
            && !self.draining
            && !psn.is_after(self.cursor.psn)
            && !is_planted(Bug::CompletedWhenSent);
        while is_ordinary
            && self.una.is_before(psn)
            && let Some(work) = self.queue.get(self.queue.head())
            && work.packets == 1
            && work.first_psn == self.una
            && !work.op.is_read_or_atomic()
        {
            let (ending, length) = ((work.id, work.op.kind(), work.flags), work.length);
            self.finish_oldest(ending, length, cx);
        }
    }

    /// The oldest message, which has one packet, has arrived.
    #[inline(always)]
    fn finish_oldest<H: Host>(
        &mut self,
        (id, kind, flags): (u64, WorkKind, SendFlags),
        length: u32,
        cx: &mut Context<'_, H>,
    ) {
        let cost = cx.window.packet_cost(length);
        cx.window.on_acknowledged(cost);
        if flags.contains(SendFlags::SIGNALED) || cx.connection.signal_all {
            cx.complete_sent(self.queue.head(), (id, kind, length));
        }
        self.set_in_flight(self.in_flight.saturating_sub(cost), cx.window);
        self.queue.retire_oldest();
        self.una = self.una.next();
    }

    /// The next `packets` packets of the oldest work are done. [`progressed`](Self::progressed) has to follow.
    fn finish_packets<H: Host>(
        &mut self,
        work: &SendWork,
        done: u32,
        packets: u32,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        // After going back, answers may come for packets beyond the cursor.
        let before_cursor = packets_between(self.una, self.cursor.psn);
        let was_in_flight = self.cursor.psn.is_after(self.una);
        if was_in_flight {
            let counted = packets.min(before_cursor);
            let cost = cost(work, done, counted, cx.connection, cx.window);
            cx.window.on_acknowledged(cost);
            self.set_in_flight(self.in_flight.saturating_sub(cost), cx.window);
            if work.op.is_read_or_atomic() && packets_at_once(work, done) == 1 {
                self.reads = self.reads.saturating_sub(1);
            }
        }
        self.una += packets;
        let overtaken = self.una.is_after(self.cursor.psn);
        self.retire(cx)?;
        if overtaken {
            self.cursor = self.locate(self.una);
            self.recount(cx);
            self.report_drained(cx);
        }
        Ok(())
    }

    /// Completes all work at the head of the queue that is done.
    pub(crate) fn retire<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Result<(), Failed> {
        while let Some(work) = self.queue.get(self.queue.head()) {
            if let Some((number, code)) = self.blocked
                && number == self.queue.head()
            {
                return Err(self.fail_oldest(code, cx));
            }
            let is_done = match work.packets {
                0 => work.executed,
                packets if is_planted(Bug::CompletedWhenSent) && !work.op.is_read_or_atomic() => {
                    !self.high.is_before(work.first_psn + packets)
                }
                packets => !self.una.is_before(work.first_psn + packets),
            };
            if !is_done {
                break;
            }
            let Some((number, work)) = self.queue.pop() else { break };
            if work.flags.contains(SendFlags::SIGNALED) || cx.connection.signal_all {
                cx.complete_sent(number, (work.id, work.op.kind(), work.length));
            }
        }
        // The cursor may stand on local work that was retired together with what was before it.
        if self.cursor.work.wrapping_sub(self.queue.head()).cast_signed() < 0 {
            self.cursor.work = self.queue.head();
        }
        self.report_drained(cx);
        Ok(())
    }

    /// SQD: once every message that was begun is done, the program is told (IBA 10.3.1.5).
    pub(crate) fn report_drained<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        if self.draining && !self.drained_reported && self.is_between_messages() {
            self.drained_reported = true;
            cx.host.event(cx.connection.qpn, Event::SendQueueDrained);
        }
    }

    /// Whether every message that was begun is done.
    pub(crate) fn is_between_messages(&self) -> bool {
        let next = self.queue.get(self.cursor.work);
        self.una == self.high && next.is_none_or(|work| work.first_psn == self.cursor.psn)
    }

    /// The oldest work fails for this; the rest is for the queue pair to flush.
    pub(crate) fn fail_oldest<H: Host>(&mut self, code: VendorCode, cx: &mut Context<'_, H>) -> Failed {
        if let Some((number, work)) = self.queue.pop() {
            cx.complete_send(number, cx.connection.failure(work.id, code, work.op.kind()));
        }
        Failed
    }

    /// Everything that is still posted ends as flushed.
    pub(crate) fn flush<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        while self.queue.len() > 0 {
            let _: Failed = self.fail_oldest(VendorCode::FlushedUnderWay, cx);
        }
        self.clear(cx.window);
    }

    /// How many messages the responder has receives for (IBA 9.7.7.2).
    fn learn_credits(&mut self, aeth: &Aeth) {
        let Syndrome::Ack(code) = aeth.syndrome else { return };
        self.credit_limit = code.credits().map(|credits| Msn::new(aeth.msn.get() + credits));
    }
}
