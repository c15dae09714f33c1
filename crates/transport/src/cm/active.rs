//! The side that asks.

use ferroce_wire::mad::{
    AnswerTo, CmMad, CmMessage, CommId, Mra, Opaque, RejectReason, Rep, Req, Rtu, ServiceId, Timeout,
};

use super::connection::{Connection, Ends, Patience, State};
use super::event::{Event, Failure};
use super::manager::{Manager, Refused};
use super::passive::DECISION;
use super::unknown::reject;
use crate::time::Time;

/// A connection that the program wants.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// Our address and the peer's.
    pub ends: Ends,
    /// What to ask for. Communication id, service, time-outs and retries of messages are filled in.
    pub req: Req,
    /// To which service.
    pub service: ServiceId,
    /// How long to try.
    pub patience: Patience,
}

impl Manager {
    /// Asks for a connection; what becomes of it is an event of the returned name.
    ///
    /// # Errors
    /// There are too many.
    pub fn connect(&mut self, now: Time, connect: &Connect) -> Result<CommId, Refused> {
        let given = self.open();
        let id = if given < self.config.limits.connections { self.deal() } else { None };
        let id = id.ok_or(Refused::TooMany { given })?;
        let Connect { ends, patience, service, req } = *connect;
        let response = Timeout::at_least(patience.response);
        let req = Req {
            local_comm_id: id,
            service_id: service,
            remote_cm_response_timeout: response,
            local_cm_response_timeout: response,
            max_cm_retries: patience.retries.min(15),
            ..req
        };
        self.insert(
            id,
            Connection {
                state: State::ReqSent,
                passive: false,
                ends,
                service,
                transaction: self.transaction(id),
                our_qpn: req.local_qpn,
                peer_id: CommId(0),
                peer_qpn: None,
                last: CmMessage::Req(req),
                patience,
                attempts: 1,
                timer: Some((now + patience.response).min(patience.deadline)),
                questions: 0,
                probed: false,
                stood: false,
                told: false,
                over: None,
            },
        );
        self.send_last(id);
        Ok(id)
    }

    /// The queue pair of a connection that was accepted is in RTS: confirms it. The connection stands.
    ///
    /// # Errors
    /// The peer has given up.
    pub fn ready(&mut self, id: CommId) -> Result<(), Refused> {
        let connection = self.connections.get_mut(&id).filter(|it| it.state == State::RepReceived);
        let Some(connection) = connection else { return Err(Refused::NotPending) };
        let remote_comm_id = connection.peer_id;
        connection.last = Rtu { local_comm_id: id, remote_comm_id, ..Rtu::default() }.into();
        self.set_timer(id, None);
        self.set_state(id, State::Established);
        self.send_last(id);
        self.counters.established += 1;
        self.tell(id, Event::Established);
        Ok(())
    }

    /// An acceptance arrived (IBA 12.6.8).
    pub(super) fn replied(&mut self, now: Time, id: CommId, rep: &Rep) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.state {
            State::ReqSent => {}
            // Our confirmation was lost, or the peer asks whether we live.
            State::Established if !connection.passive => return self.answer_again(id),
            State::Established => return self.gives_sign(id),
            // We had refused or given up, and this was on its way.
            State::TimeWait if matches!(connection.last, CmMessage::Rej(_)) => return self.answer_again(id),
            State::TimeWait => {
                let reason = RejectReason::INVALID_COMM_ID;
                let rej = reject(id, rep.local_comm_id, AnswerTo::Rep, reason);
                let mad = CmMad::new(connection.transaction, rej);
                let ends = connection.ends;
                self.counters.duplicates += 1;
                return self.send(Some(id), ends, mad);
            }
            // The program has not confirmed yet: the peer is asked to wait (IBA 12.6.6).
            State::RepReceived => return self.ask_for_patience(id),
            // What comes next is on its way already.
            State::DreqSent => {
                self.counters.duplicates += 1;
                return;
            }
            _ => {
                self.counters.unexpected += 1;
                return;
            }
        }
        let key = (connection.ends.remote, rep.local_qpn);
        if self.peers.contains_key(&key) {
            // It is connected to us already, or was a moment ago.
            self.counters.stale += 1;
            let reason = RejectReason::STALE_CONNECTION;
            return self.give_up(
                now,
                id,
                rep.local_comm_id,
                reason,
                Failure::Rejected { reason, private_data: Box::default() },
            );
        }
        connection.peer_id = rep.local_comm_id;
        connection.peer_qpn = Some(rep.local_qpn);
        let deadline = connection.patience.deadline;
        self.peers.insert(key, id);
        self.set_state(id, State::RepReceived);
        self.set_timer(id, Some(deadline));
        self.tell(id, Event::Replied(Box::new(*rep)));
    }

    /// The program takes its time to confirm an acceptance.
    fn ask_for_patience(&mut self, id: CommId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let mra = Mra {
            local_comm_id: id,
            remote_comm_id: connection.peer_id,
            message: AnswerTo::Rep,
            service_timeout: DECISION,
            ..Mra::default()
        };
        let (ends, mad) = (connection.ends, CmMad::new(connection.transaction, mra));
        self.counters.duplicates += 1;
        self.send(Some(id), ends, mad);
    }

    /// Refuses an acceptance, or gives up asking, and says so to the peer.
    pub(super) fn give_up(
        &mut self,
        now: Time,
        id: CommId,
        peer_id: CommId,
        reason: RejectReason,
        failure: Failure,
    ) {
        let answers = if peer_id == CommId(0) { AnswerTo::Req } else { AnswerTo::Rep };
        let rej = reject(id, peer_id, answers, reason);
        self.finish(now, id, Some(rej.into()), Some(Event::Failed(failure)));
        self.send_last(id);
    }

    /// The question came again, so does the answer.
    pub(super) fn answer_again(&mut self, id: CommId) {
        self.counters.duplicates += 1;
        self.send_last(id);
    }
}

/// Private data for a rejection, cut to what fits.
pub(super) fn cut<const N: usize>(bytes: &[u8]) -> Opaque<N> {
    Opaque::new(bytes.get(..N).unwrap_or(bytes)).unwrap_or_default()
}
