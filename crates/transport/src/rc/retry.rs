//! When to try again: time-outs, probes, RNR waits and the counts of what is left (IBA 9.7.6).

use core::time::Duration;

use ferroce_wire::Psn;

use crate::connection::{Connection, Context, Failed};
use crate::host::Host;
use crate::planted::{Bug, is_planted};
use crate::qp::Alarm;
use crate::rc::requester::{Cursor, Requester, cost, packets_at_once, packets_between};
use crate::time::{Time, sooner};
use crate::vendor::VendorCode;
use crate::window::Window;

/// A probe doubles its patience each time it is not answered, up to this many times.
const MAX_PROBE_DOUBLINGS: u32 = 6;

/// So often in a row the answer to a READ is asked after by a question, before the READ itself is sent again.
const MAX_QUESTIONS: u32 = 3;

/// The timers and counts of one requester.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    retries_left: u8,
    rnr_left: u8,
    ack_deadline: Option<Time>,
    probe_deadline: Option<Time>,
    rnr_until: Option<Time>,
    probe: Probe,
    probe_doublings: u32,
    /// The peer has been silent for a whole time-out, or the same packet was missing twice: one packet
    /// at a time until there is progress, so that a dead peer does not hold the window of its
    /// neighbours, and a drowning one can catch its breath.
    cautious: bool,
    last_rewind: Option<(Psn, Time)>,
    /// A packet that asked for an acknowledgement, and when it was sent.
    timed: Option<(Psn, Time)>,
}

/// A probe: the oldest packet, sent again to see what the peer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Probe {
    #[default]
    Idle,
    Due,
    /// Sent with this PSN, when everything before `sent_before` had been sent.
    Sent {
        psn: Psn,
        sent_before: Psn,
        at: Time,
    },
    /// A question was sent instead, while the packet with this PSN was the oldest: the READ itself would have the peer send
    /// everything again, and it may still be at it. What the peer says to the question comes after its answers.
    Asked(Psn),
}

/// What the first answer after a probe says of packets that had been sent before it and are not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// None of them is missing, as far as it says.
    Nothing,
    /// The peer has taken the probe, and nothing after it: the others were lost.
    Loss,
    /// The peer had more than the probe brought. Either the rest was lost, or the peer is still at work on what it has: it
    /// acknowledges together what it took together, and that may end anywhere.
    Doubt,
}

impl Retry {
    pub(crate) const fn begin(&mut self, connection: &Connection) {
        self.retries_left = connection.retry_count;
        self.rnr_left = connection.rnr_retry;
    }

    /// When to be called again.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        sooner(sooner(self.ack_deadline, self.probe_deadline), self.rnr_until)
    }

    /// Whether nothing has to be sent again, waited for or asked.
    pub(crate) fn is_calm(&self) -> bool {
        self.rnr_until.is_none() && !self.cautious && self.probe != Probe::Due
    }

    /// Whether no probe is due or under way.
    #[inline]
    pub(crate) fn is_unasked(&self) -> bool {
        self.probe == Probe::Idle
    }

    pub(crate) const fn waits_for_receiver(&self) -> bool {
        self.rnr_until.is_some()
    }

    /// When the pause is over that a peer without a receive asked for, if there is one.
    pub(crate) const fn receiver_ready_at(&self) -> Option<Time> {
        self.rnr_until
    }

    /// When an answer is missed, if one is waited for.
    pub(crate) const fn answer_due_at(&self) -> Option<Time> {
        self.ack_deadline
    }

    /// Which timer is due, how often it was in a row with this time, and how often it may be.
    pub(crate) fn due(&self, now: Time, connection: &Connection) -> Option<(Alarm, (u8, u8))> {
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let tries = |most: u8, left: u8| (most.saturating_sub(left).saturating_add(1), most);
        if is_due(self.ack_deadline) {
            let most = connection.retry_count;
            return Some((Alarm::Acknowledgement, tries(most, self.retries_left)));
        }
        if is_due(self.rnr_until) {
            let most = connection.rnr_retry;
            return Some((Alarm::ReceiverNotReady, tries(most, self.rnr_left.saturating_add(1))));
        }
        let doublings = u8::try_from(self.probe_doublings).unwrap_or(u8::MAX);
        is_due(self.probe_deadline).then_some((Alarm::Tail, (doublings.saturating_add(1), 0)))
    }

    pub(crate) const fn is_cautious(&self) -> bool {
        self.cautious
    }

    #[inline]
    pub(crate) fn has_due_probe(&self) -> bool {
        self.probe == Probe::Due
    }

    pub(crate) fn take_due_probe(&mut self) -> bool {
        let due = self.probe == Probe::Due;
        if due {
            self.probe = Probe::Idle;
        }
        due
    }

    pub(crate) fn probe_sent<H>(&mut self, psn: Psn, sent_before: Psn, cx: &Context<'_, H>) {
        self.probe = Probe::Sent { psn, sent_before, at: cx.now };
        // From now on it cannot be told which of the two an answer is for.
        self.timed = self.timed.filter(|(timed, _)| *timed != psn);
        self.probe_doublings = (self.probe_doublings + 1).min(MAX_PROBE_DOUBLINGS);
        self.arm_probe(cx);
    }

    fn asked<H>(&mut self, una: Psn, cx: &Context<'_, H>) {
        self.probe = Probe::Asked(una);
        self.probe_doublings = (self.probe_doublings + 1).min(MAX_PROBE_DOUBLINGS);
        self.arm_probe(cx);
    }

    fn arm_probe<H>(&mut self, cx: &Context<'_, H>) {
        let patience = cx.window.probe_after_nanos(cx.now).saturating_mul(1 << self.probe_doublings);
        self.probe_deadline = Some(Time::from_nanos(cx.now.nanos().saturating_add(patience)));
    }

    /// A packet left. `timed`: it is new and asks for an acknowledgement.
    pub(crate) fn packet_sent<H>(&mut self, psn: Psn, timed: bool, cx: &Context<'_, H>) {
        if timed && self.timed.is_none() {
            self.timed = Some((psn, cx.now));
        }
        if self.probe_deadline.is_none() {
            self.arm(cx);
        }
    }

    fn arm<H>(&mut self, cx: &Context<'_, H>) {
        let after = |nanos| Time::from_nanos(cx.now.nanos().saturating_add(nanos));
        self.ack_deadline = cx.connection.ack_timeout_nanos().map(after);
        self.arm_probe(cx);
    }

    pub(crate) const fn disarm(&mut self) {
        self.ack_deadline = None;
        self.probe_deadline = None;
        self.probe = Probe::Idle;
    }
}

impl Requester {
    /// The peer has shown progress up to `una`: all patience is renewed.
    #[inline]
    pub(crate) fn progressed<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        if let Some((psn, sent)) = self.retry.timed
            && self.una.is_after(psn)
        {
            cx.window.on_round_trip(cx.now.since(sent));
            self.retry.timed = None;
        }
        if !is_planted(Bug::RetriesNotRenewed) {
            self.retry.begin(cx.connection);
        }
        if self.was_probed_for_nothing(cx) {
            cx.counters.needless_probes += 1;
            cx.window.on_needless_probe(cx.now);
        }
        self.retry.probe_doublings = 0;
        self.retry.cautious = false;
        self.retry.last_rewind = None;
        // The packet that had met no receive has met one since.
        self.retry.rnr_until = None;
        self.retry.probe = Probe::Idle;
        if self.is_waiting() {
            self.retry.arm(cx);
        } else {
            self.retry.disarm();
        }
    }

    /// What an acknowledgement says of what had been sent before a probe.
    pub(crate) fn probe_found(&self, acknowledged: Psn) -> Found {
        let Probe::Sent { psn, sent_before, .. } = self.retry.probe else { return Found::Nothing };
        if acknowledged.is_before(psn) || !sent_before.is_after(acknowledged.next()) {
            return Found::Nothing;
        }
        if acknowledged == psn {
            return Found::Loss;
        }
        // An answer that a packet before the probe asked for is late, and says nothing.
        if self.was_asked_for(acknowledged) { Found::Nothing } else { Found::Doubt }
    }

    /// Whether a probe was answered that had been sent for nothing. The peer had more than the probe brought, or was away: it
    /// answered sooner after the probe than it could have, or much later than it does.
    fn was_probed_for_nothing<H>(&self, cx: &Context<'_, H>) -> bool {
        let (psn, at) = match self.retry.probe {
            Probe::Sent { psn, at, .. } => (psn, at),
            // The answer was not lost: it came before that to the question.
            Probe::Asked(psn) => return self.una.is_after(psn),
            Probe::Idle | Probe::Due => return false,
        };
        if !self.una.is_after(psn) {
            return false;
        }
        let took = cx.now.since(at);
        let is_odd = cx.window.srtt().is_some_and(|srtt| took * 2 < srtt || took > srtt * 4);
        self.una.is_after(psn.next()) || is_odd
    }

    /// Whether a question has asked after the oldest packet.
    pub(crate) fn was_asked_after(&self) -> bool {
        self.retry.probe == Probe::Asked(self.una)
    }

    /// Whether the packet of this PSN, which is under way, asked for an acknowledgement when it was
    /// sent: the last of its message does, and others when the window was nearly full.
    fn was_asked_for(&self, acknowledged: Psn) -> bool {
        let work = self.queue.get(self.locate(acknowledged).work);
        let ends = work.is_some_and(|work| work.first_psn + work.packets == acknowledged.next());
        ends || self.asked_from.is_some_and(|from| !acknowledged.is_before(from))
    }

    /// Does what an answer to a probe asks for, after its progress was noted: goes back, instead of probing packet by
    /// packet, if packets were lost; and asks again soon if that may be so, since sending again what the peer has would
    /// take its time and ours.
    pub(crate) fn after_probe<H: Host>(&mut self, found: Found, cx: &mut Context<'_, H>) {
        match found {
            Found::Nothing => {}
            Found::Loss => self.recover_tail(cx),
            Found::Doubt => {
                let soon = cx.now + cx.window.asks_again_after(cx.now);
                self.retry.probe_deadline = self.retry.probe_deadline.map(|deadline| deadline.min(soon));
            }
        }
    }

    /// Goes back to the oldest packet after a probe; costs no retry.
    pub(crate) fn recover_tail<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        if self.is_waiting() {
            cx.counters.probe_recoveries += 1;
            cx.window.on_loss(cx.now);
            self.go_back(self.una, cx);
        }
    }

    /// A packet or an answer is missing: send again from `psn` on, if there is a retry left.
    ///
    /// What was under way before still arrives and says the same again: that is ignored for one
    /// round trip. Later repeats go back once more, but cost no retry and win no time: whether
    /// the peer is still there is for the time-out to judge.
    pub(crate) fn rewind<H: Host>(&mut self, psn: Psn, cx: &mut Context<'_, H>) -> Result<(), Failed> {
        let repeated = self.retry.last_rewind.filter(|(last, _)| *last == psn);
        if let Some((_, when)) = repeated {
            let settling = cx.window.srtt().unwrap_or(Window::MIN_PROBE);
            if cx.now.since(when) < settling {
                cx.counters.nak_repeats_ignored += 1;
                return Ok(());
            }
        } else {
            self.spend_retry(cx)?;
        }
        let deadline = self.retry.ack_deadline;
        // Twice without a step forward: what is sent at once drowns what matters.
        self.retry.cautious |= repeated.is_some();
        self.retry.last_rewind = Some((psn, cx.now));
        cx.window.on_loss(cx.now);
        self.go_back(psn, cx);
        if repeated.is_some() && deadline.is_some() {
            self.retry.ack_deadline = deadline;
        }
        Ok(())
    }

    fn spend_retry<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Result<(), Failed> {
        match self.retry.retries_left.checked_sub(1) {
            Some(left) => {
                self.retry.retries_left = left;
                Ok(())
            }
            None => {
                let heard = self.heard || cx.counters.direct_requests > 0;
                let code = if heard { VendorCode::AnswersStopped } else { VendorCode::NeverAnswered };
                Err(self.fail_oldest(code, cx))
            }
        }
    }

    /// Moves the cursor back to `psn`, which lies between `una` and `high`.
    fn go_back<H: Host>(&mut self, psn: Psn, cx: &mut Context<'_, H>) {
        cx.counters.rewinds += 1;
        self.cursor = self.locate(psn);
        self.asked_from = None;
        self.recount(cx);
        self.retry.timed = None;
        self.retry.probe = Probe::Idle;
        if is_planted(Bug::TimeoutNotRestarted) {
            self.retry.ack_deadline = None;
            self.retry.probe_deadline = Some(Time::from_nanos(u64::MAX));
        } else {
            self.retry.arm(cx);
        }
    }

    /// The work that the packet with this PSN belongs to; `psn` is not before `una`.
    pub(crate) fn locate(&self, psn: Psn) -> Cursor {
        let mut number = self.queue.head();
        while let Some(work) = self.queue.get(number) {
            let within = packets_between(work.first_psn, psn) < work.packets;
            let unfinished_local = work.op.is_local() && !work.executed && work.first_psn == psn;
            if within || unfinished_local {
                break;
            }
            number = number.wrapping_add(1);
        }
        Cursor { work: number, psn }
    }

    /// Counts anew what is under way between `una` and the cursor.
    pub(crate) fn recount<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let (in_flight, reads) = self.counted(cx.connection, cx.window);
        self.reads = reads;
        if is_planted(Bug::WindowLeak) {
            self.in_flight = 0;
        }
        self.set_in_flight(in_flight, cx.window);
    }

    /// Counts what is under way in another window from now on, in which it may cost more or less.
    pub(crate) fn move_to_window(&mut self, connection: &Connection, from: &mut Window, to: &mut Window) {
        let (in_flight, _) = self.counted(connection, to);
        self.set_in_flight(0, from);
        self.set_in_flight(in_flight, to);
    }

    /// What is under way between `una` and the cursor: what it costs in this window, and how many READs and atomics are among it.
    fn counted(&self, connection: &Connection, window: &Window) -> (u32, u32) {
        let (mut in_flight, mut reads) = (0_u32, 0);
        let mut psn = self.una;
        let mut number = self.queue.head();
        while psn != self.cursor.psn {
            let Some(work) = self.queue.get(number) else { break };
            let done = packets_between(work.first_psn, psn);
            if done >= work.packets {
                number = number.wrapping_add(1);
                continue;
            }
            let packets = packets_at_once(work, done);
            let packets = packets.min(packets_between(psn, self.cursor.psn));
            in_flight = in_flight.saturating_add(cost(work, done, packets, connection, window));
            reads += u32::from(work.op.is_read_or_atomic());
            psn += packets;
        }
        (in_flight, reads)
    }

    /// The peer had no receive for `psn`: wait as long as it asks (IBA 9.7.5.2.8).
    pub(crate) fn wait_for_receiver<H: Host>(
        &mut self,
        psn: Psn,
        wait: Duration,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        if self.retry.waits_for_receiver() {
            return Ok(());
        }
        // 7 means for ever (IBA 9.7.6.1.4).
        if cx.connection.rnr_retry != 7 {
            match self.retry.rnr_left.checked_sub(1) {
                Some(left) => self.retry.rnr_left = left,
                None => return Err(self.fail_oldest(VendorCode::NoReceiveThere, cx)),
            }
        }
        self.go_back(psn, cx);
        self.retry.disarm();
        let wait = if is_planted(Bug::LostRnrTimer) { Duration::MAX } else { wait };
        self.retry.rnr_until = Some(cx.now + wait);
        Ok(())
    }

    /// Does what is due at this time.
    pub(crate) fn handle_timeout<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Result<(), Failed> {
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= cx.now);
        if is_due(self.retry.rnr_until) {
            self.retry.rnr_until = None;
        }
        if is_due(self.retry.ack_deadline) {
            cx.counters.timeouts += 1;
            self.spend_retry(cx)?;
            cx.window.on_loss(cx.now);
            self.retry.cautious = true;
            self.go_back(self.una, cx);
        } else if is_due(self.retry.probe_deadline) {
            if self.is_asked_after(cx) {
                cx.counters.probes += 1;
                self.asks = true;
                self.retry.asked(self.una, cx);
            } else {
                self.retry.probe = Probe::Due;
                self.retry.arm_probe(cx);
            }
        }
        Ok(())
    }

    /// Whether the oldest packet is a READ with a long answer, which a question is asked after, unless packets are being lost:
    /// then it is likely that it has to be sent again, and a question would only take time.
    fn is_asked_after<H>(&self, cx: &Context<'_, H>) -> bool {
        let Some(work) = self.queue.get(self.queue.head()) else { return false };
        let missing = packets_at_once(work, packets_between(work.first_psn, self.una));
        missing > 1 && self.retry.probe_doublings < MAX_QUESTIONS && !cx.window.is_lossy(cx.now)
    }

    /// Gives all timers their full time again: for a device that was kept from running,
    /// so that it does not take its own absence for the peer's.
    pub(crate) fn restart_timers<H>(&mut self, cx: &Context<'_, H>) {
        if self.retry.probe_deadline.is_some() {
            self.retry.arm(cx);
        }
    }
}
