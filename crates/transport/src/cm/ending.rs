//! How connections end, and what silence means.

use std::time::Duration;

use ferroce_wire::mad::{AnswerTo, CmMad, CmMessage, CommId, Drep, Dreq, Mra, Rej, RejectReason};

use super::active::cut;
use super::connection::{Ends, State};
use super::event::{End, Event, Failure};
use super::manager::{Manager, Refused};
use super::unknown::{answer_unknown, reject};
use crate::time::Time;

/// How often the end of a connection is asked for again, whatever was agreed for its beginning: what was set up by
/// both sides must not stand for one of them.
const PARTINGS: u32 = 15;

/// The longest that a peer can make us wait with one message.
const LONGEST_RECEIPT: Duration = Duration::from_secs(60);

impl Manager {
    /// Ends a connection. [`Event::Ended`] comes when the peer has confirmed, or has not answered
    /// as often as it was asked.
    ///
    /// # Errors
    /// It does not stand.
    pub fn disconnect(&mut self, now: Time, id: CommId, private_data: &[u8]) -> Result<(), Refused> {
        let connection = self.connections.get(&id).filter(|it| it.state == State::Established);
        if connection.is_none() {
            return Err(Refused::NotPending);
        }
        self.part(now, id, private_data, None);
        Ok(())
    }

    /// The program has no use for a connection any more, in whatever state it is. No more events of it come, but
    /// for the end of one that stood.
    pub fn abandon(&mut self, now: Time, id: CommId) {
        if self.questions.remove(&id).is_some() {
            return;
        }
        let Some(connection) = self.connections.get(&id) else { return };
        let peer_id = connection.peer_id;
        let (answers, reason) = match connection.state {
            State::ReqSent => (AnswerTo::Req, RejectReason::TIMEOUT),
            State::Requested => (AnswerTo::Req, RejectReason::CONSUMER),
            State::RepReceived => (AnswerTo::Rep, RejectReason::CONSUMER),
            State::RepSent => return self.take_back(now, id, RejectReason::CONSUMER),
            State::Established => return self.part(now, id, &[], None),
            State::DreqSent | State::TimeWait => return,
        };
        self.finish(now, id, Some(reject(id, peer_id, answers, reason).into()), None);
        self.send_last(id);
    }

    /// Asks the peer to end a connection that stands. If `end` is known already, it is told now.
    pub(super) fn part(&mut self, now: Time, id: CommId, private_data: &[u8], end: Option<End>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.last = Dreq {
            local_comm_id: id,
            remote_comm_id: connection.peer_id,
            remote_qpn: connection.peer_qpn.unwrap_or_default(),
            private_data: cut(private_data),
        }
        .into();
        connection.attempts = 1;
        connection.questions = 0;
        let again = now + connection.patience.response;
        self.set_state(id, State::DreqSent);
        self.set_timer(id, Some(again));
        self.send_last(id);
        if let Some(end) = end {
            self.mark_told(id);
            self.tell(id, Event::Ended(end));
        }
    }

    /// Takes an acceptance back whose confirmation did not come. The connection may stand for the other side, so that
    /// it is not enough to say it once.
    pub(super) fn take_back(&mut self, now: Time, id: CommId, reason: RejectReason) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.told = true;
        connection.last = reject(id, connection.peer_id, AnswerTo::Other, reason).into();
        self.send_last(id);
        self.part(now, id, &[], None);
    }

    /// The peer ends the connection (IBA 12.6.10).
    pub(super) fn parted(&mut self, now: Time, id: CommId, ends: Ends, mad: &CmMad, dreq: &Dreq) {
        let Some(connection) = self.connections.get(&id) else { return };
        let state = connection.state;
        if state == State::TimeWait {
            self.counters.duplicates += 1;
            if let Some(answer) = answer_unknown(mad) {
                self.send(Some(id), ends, answer);
            }
            return;
        }
        if state == State::Requested || dreq.remote_qpn != connection.our_qpn {
            self.counters.unexpected += 1;
            return;
        }
        let drep = Drep { local_comm_id: id, remote_comm_id: dreq.local_comm_id, ..Drep::default() };
        if matches!(state, State::ReqSent | State::RepReceived) {
            // It was accepted, and taken back before we knew.
            let (reason, private_data) = (RejectReason::TIMEOUT, Box::default());
            let failure = Failure::Rejected { reason, private_data };
            self.counters.rejected += 1;
            self.finish(now, id, Some(drep.into()), Some(Event::Failed(failure)));
            return self.send_last(id);
        }
        // A peer that ends a connection has seen it stand.
        if state == State::RepSent {
            self.stands(id);
        }
        // Both at the same time: each of them ended it. What was stale has been told.
        let end = if state == State::DreqSent { End::Here } else { End::Peer };
        self.end(now, id, Some(drep.into()), end);
        self.send_last(id);
    }

    /// The peer confirms the end.
    pub(super) fn confirmed(&mut self, now: Time, id: CommId) {
        match self.connections.get(&id).map(|connection| connection.state) {
            Some(State::DreqSent) => self.end(now, id, None, End::Here),
            Some(State::TimeWait) => self.counters.duplicates += 1,
            _ => self.counters.unexpected += 1,
        }
    }

    fn mark_told(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.told = true;
        }
    }

    pub(super) fn end(&mut self, now: Time, id: CommId, answer: Option<CmMessage>, end: End) {
        self.counters.ended += 1;
        self.finish(now, id, answer, Some(Event::Ended(end)));
    }

    /// The peer refuses.
    pub(super) fn rejected(&mut self, now: Time, id: CommId, rej: &Rej) {
        let Some(connection) = self.connections.get(&id) else { return };
        // What names only our request was said before we were accepted, perhaps about another copy of it.
        let late = rej.message == AnswerTo::Req || rej.local_comm_id != connection.peer_id;
        let failure = match connection.state {
            State::RepReceived | State::Established | State::DreqSent if late => {
                self.counters.unexpected += 1;
                return;
            }
            State::ReqSent | State::RepSent | State::RepReceived => {
                Failure::Rejected { reason: rej.reason, private_data: Box::new(rej.private_data) }
            }
            State::Requested => Failure::Withdrawn,
            // It stands for us only: the process of the other side is another one by now, or did not hear of it in time.
            State::Established if rej.reason == RejectReason::INVALID_COMM_ID => {
                return self.end(now, id, None, End::Stale);
            }
            State::Established => return self.end(now, id, None, End::Peer),
            State::DreqSent => return self.end(now, id, None, End::Here),
            State::TimeWait => {
                self.counters.unexpected += 1;
                return;
            }
        };
        match failure {
            Failure::Withdrawn => self.counters.withdrawn += 1,
            _ => self.counters.rejected += 1,
        }
        self.finish(now, id, None, Some(Event::Failed(failure)));
    }

    /// The peer needs more time (IBA 12.6.6).
    pub(super) fn receipt(&mut self, now: Time, id: CommId, mra: &Mra) {
        let Some(connection) = self.connections.get(&id) else { return };
        let waits_for = match connection.state {
            State::ReqSent => AnswerTo::Req,
            State::RepSent => AnswerTo::Rep,
            _ => AnswerTo::Reserved,
        };
        if waits_for != mra.message {
            self.counters.unexpected += 1;
            return;
        }
        let patience = connection.patience;
        let longer = mra.service_timeout.duration().min(LONGEST_RECEIPT) + patience.response;
        self.set_timer(id, Some((now + longer).min(patience.deadline)));
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(id) = self.pop_due(now) {
            if self.questions.contains_key(&id) {
                self.ask_again(now, id);
            } else {
                self.due(now, id);
            }
        }
    }

    fn due(&mut self, now: Time, id: CommId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (state, patience) = (connection.state, connection.patience);
        if state == State::TimeWait {
            return self.remove_over(id);
        }
        if connection.questions > 0 && state == State::Established {
            return self.unanswered(now, id);
        }
        let retries = if state == State::DreqSent { PARTINGS } else { patience.retries.into() };
        let tried_enough = connection.attempts > retries;
        if !tried_enough && !connection.is_past_deadline(now) {
            connection.attempts += 1;
            let mut again = now + patience.response;
            if state != State::DreqSent {
                again = again.min(patience.deadline);
            }
            self.set_timer(id, Some(again));
            self.counters.repeated += 1;
            return self.send_last(id);
        }
        let (attempts, sent, peer_id) = (connection.attempts, connection.last.name(), connection.peer_id);
        let timed_out = Failure::TimedOut { sent, attempts };
        match state {
            State::ReqSent | State::RepReceived => {
                self.counters.timed_out += 1;
                self.give_up(now, id, peer_id, RejectReason::TIMEOUT, timed_out);
            }
            State::RepSent => {
                self.counters.timed_out += 1;
                self.tell(id, Event::Failed(timed_out));
                self.take_back(now, id, RejectReason::TIMEOUT);
            }
            State::Requested => {
                self.counters.withdrawn += 1;
                let rej = reject(id, peer_id, AnswerTo::Req, RejectReason::TIMEOUT);
                self.finish(now, id, Some(rej.into()), Some(Event::Failed(Failure::Withdrawn)));
                self.send_last(id);
            }
            State::DreqSent => {
                self.counters.timed_out += 1;
                self.end(now, id, None, End::Unanswered);
            }
            State::Established | State::TimeWait => {}
        }
    }
}
