//! The side that is asked.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_wire::mad::{
    AnswerTo, CmMad, CmMessage, CommId, Mra, PortSpace, RejectReason, Rep, Req, ServiceId, Timeout,
    TransportService,
};
use ferroce_wire::{Gid, Qpn};

use super::active::cut;
use super::connection::{Connection, Ends, Patience, State};
use super::event::{End, Event, Failure, Request};
use super::manager::{Listening, Manager, Refused};
use super::unknown::{answer_unknown, reject};
use crate::time::Time;

/// How a request is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// What to answer. The communication ids are filled in.
    pub rep: Rep,
    /// How long to wait for the confirmation.
    pub patience: Patience,
}

/// How long a program is granted to decide, each time that the peer asks again: 4.3 s (IBA 12.6.6).
pub(super) const DECISION: Timeout = Timeout::new(20);

/// A peer that says it waits longer than this for one answer is asked again after this.
const LONGEST_RESPONSE: Duration = Duration::from_secs(10);

/// How long a request is kept whose peer falls silent, at most.
const LONGEST_REQUEST: Duration = Duration::from_secs(120);

/// How long the peer of a connection in doubt has for its first answer. Each further question has twice the time of the
/// one before.
const FIRST_QUESTION: Duration = Duration::from_millis(50);

/// How often such a peer is asked before the connection ends: 1.55 s in all.
const QUESTIONS: u32 = 5;

impl Manager {
    /// Accepts a request: the queue pair must be in RTS, or at least in RTR. [`Event::Established`] comes when
    /// the peer has confirmed.
    ///
    /// # Errors
    /// The peer has given up.
    pub fn accept(&mut self, now: Time, id: CommId, accept: &Accept) -> Result<(), Refused> {
        let connection = self.connections.get_mut(&id).filter(|it| it.state == State::Requested);
        let Some(connection) = connection else { return Err(Refused::NotPending) };
        let Accept { rep, patience } = *accept;
        connection.our_qpn = rep.local_qpn;
        connection.last = Rep { local_comm_id: id, remote_comm_id: connection.peer_id, ..rep }.into();
        connection.patience = patience;
        connection.attempts = 1;
        self.set_state(id, State::RepSent);
        self.set_timer(id, Some((now + patience.response).min(patience.deadline)));
        self.send_last(id);
        Ok(())
    }

    /// Rejects a request, or an acceptance of ours that is not confirmed. What does not fit of the private data is cut
    /// off.
    ///
    /// # Errors
    /// The peer has given up.
    pub fn reject(
        &mut self,
        now: Time,
        id: CommId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), Refused> {
        let connection = self.connections.get(&id).ok_or(Refused::NotPending)?;
        let answers = match connection.state {
            State::Requested => AnswerTo::Req,
            State::RepReceived => AnswerTo::Rep,
            _ => return Err(Refused::NotPending),
        };
        let mut rej = reject(id, connection.peer_id, answers, reason);
        rej.private_data = cut(private_data);
        self.counters.rejected += 1;
        self.finish(now, id, Some(rej.into()), None);
        self.send_last(id);
        Ok(())
    }

    /// The first packet of a connection has arrived before its confirmation: that is as good
    /// (IBA 12.9).
    pub fn data_arrived(&mut self, id: CommId) {
        if self.awaits_ready(id) {
            self.stands(id);
        }
    }

    /// The peer has confirmed.
    pub(super) fn stands(&mut self, id: CommId) {
        self.set_timer(id, None);
        self.set_state(id, State::Established);
        self.counters.established += 1;
        self.tell(id, Event::Established);
    }

    /// A request arrived (IBA 12.6.5).
    pub(super) fn requested(&mut self, now: Time, ends: Ends, mad: &CmMad, req: &Req) {
        if let Some(id) = self.requests.get(&(ends.remote, req.local_comm_id)).copied() {
            let Some(connection) = self.connections.get(&id) else { return };
            let (state, same) = (connection.state, connection.peer_qpn == Some(req.local_qpn));
            match state {
                // The name is used again for something else.
                State::TimeWait if !same => self.remove_over(id),
                _ if !same => {
                    self.counters.invalid += 1;
                    return self.refuse(ends, mad, req, RejectReason::DUPLICATE_LOCAL_COMM_ID, &[]);
                }
                State::Requested => {
                    let deadline = now + kept_for(req);
                    self.extend(id, deadline);
                    return self.answer_again(id);
                }
                State::RepSent => return self.answer_again(id),
                State::TimeWait if matches!(connection.last, CmMessage::Rej(_)) => {
                    return self.answer_again(id);
                }
                // It was sent before what we have heard since.
                _ => {
                    self.counters.duplicates += 1;
                    return;
                }
            }
        }
        if !self.listeners.contains_key(&req.service_id) {
            self.counters.unserved += 1;
            if let Some(answer) = answer_unknown(mad) {
                self.send(None, ends, answer);
            }
            return;
        }
        if let Err((reason, info)) = self.check(&ends, req) {
            self.counters.invalid += 1;
            self.counters.wrong_pkey += u64::from(!self.config.pkeys.admits(req.pkey));
            return self.refuse(ends, mad, req, reason, info);
        }
        if let Some(id) = self.peers.get(&(ends.remote, req.local_qpn)).copied() {
            self.counters.stale += 1;
            self.refuse(ends, mad, req, RejectReason::STALE_CONNECTION, &[]);
            return self.doubt(now, id);
        }
        let limits = self.config.limits;
        if self.half_open() >= limits.half_open || self.open() >= limits.connections {
            // A peer that wants a connection asks again.
            self.counters.half_open_full += 1;
            return;
        }
        if self.half_open_of(ends.remote) >= limits.half_open_of_one {
            self.counters.source_full += 1;
            return;
        }
        if !self.makes_room(now, req.service_id, ends.remote) {
            self.counters.backlog_full += 1;
            return self.refuse(ends, mad, req, RejectReason::NO_RESOURCES, &[]);
        }
        let Some(id) = self.deal() else { return };
        self.admit(now, id, ends, mad, req);
    }

    /// Whether one more request of this address can wait at a listener. If no place is free, a request of the address
    /// with the most makes room.
    fn makes_room(&mut self, now: Time, service: ServiceId, remote: IpAddr) -> bool {
        let Some(Listening { backlog, waiting }) = self.listeners.get(&service) else { return false };
        if waiting.len() < *backlog {
            return true;
        }
        let Some(id) = waiting.makes_room_for(remote) else { return false };
        let Some(connection) = self.connections.get(&id) else { return false };
        let rej = reject(id, connection.peer_id, AnswerTo::Req, RejectReason::NO_RESOURCES);
        self.counters.crowded_out += 1;
        self.finish(now, id, Some(rej.into()), Some(Event::Failed(Failure::Withdrawn)));
        self.send_last(id);
        true
    }

    fn admit(&mut self, now: Time, id: CommId, ends: Ends, mad: &CmMad, req: &Req) {
        let wait = Mra {
            local_comm_id: id,
            remote_comm_id: req.local_comm_id,
            message: AnswerTo::Req,
            service_timeout: DECISION,
            ..Mra::default()
        };
        let response = req.local_cm_response_timeout.duration().min(LONGEST_RESPONSE);
        let time_wait = req.primary.local_ack_timeout.duration().min(LONGEST_RESPONSE);
        let deadline = now + kept_for(req);
        self.insert(
            id,
            Connection {
                state: State::Requested,
                passive: true,
                ends,
                service: req.service_id,
                transaction: mad.transaction_id,
                our_qpn: Qpn::SMI,
                peer_id: req.local_comm_id,
                peer_qpn: Some(req.local_qpn),
                last: wait.into(),
                patience: Patience {
                    response,
                    retries: req.max_cm_retries,
                    deadline,
                    time_wait,
                    tell_end: false,
                    watched: false,
                },
                attempts: 0,
                timer: Some(deadline),
                questions: 0,
                probed: false,
                stood: false,
                told: false,
                over: None,
            },
        );
        self.tell(id, Event::Requested(Box::new(Request { id, ends, req: *req })));
    }

    /// What must be right about a request before the program sees it.
    fn check(&self, ends: &Ends, req: &Req) -> Result<(), (RejectReason, &'static [u8])> {
        let wrong = |reason| Err((reason, &[][..]));
        if !matches!(req.transport_service, TransportService::Rc | TransportService::Uc) {
            return wrong(RejectReason::INVALID_TRANSPORT_SERVICE);
        }
        if [Qpn::SMI, Qpn::GSI, Qpn::MULTICAST].contains(&req.local_qpn) {
            return wrong(RejectReason::UNSUPPORTED_REQUEST);
        }
        // The IBA has no reason of its own for a partition that we are not in.
        if !self.config.pkeys.admits(req.pkey) {
            return wrong(RejectReason::UNSUPPORTED_REQUEST);
        }
        // Packets go to the address that asks, and to no other.
        let (local, remote) = (Gid::from(ends.local), Gid::from(ends.remote));
        if req.primary.local_gid != remote || req.primary.remote_gid != local {
            return wrong(RejectReason::INVALID_PRIMARY_GID);
        }
        let most = self.config.path_mtu;
        match req.mtu() {
            Some(mtu) if mtu <= most => {}
            // What would have been acceptable goes with it (IBA 12.6.7).
            _ => return Err((RejectReason::INVALID_PATH_MTU, acceptable(most.code()))),
        }
        // Those of `RDMA_PS_IB` may do without addresses.
        let has_addresses = matches!(req.service_id.as_rdma_ip(), Some((PortSpace::Tcp | PortSpace::Udp, _)));
        if has_addresses && req.ip().is_none() {
            return wrong(RejectReason::UNSUPPORTED_REQUEST);
        }
        Ok(())
    }

    /// Rejects out of nothing: no memory of it is kept.
    fn refuse(&mut self, ends: Ends, mad: &CmMad, req: &Req, reason: RejectReason, info: &[u8]) {
        let mut rej = reject(CommId(0), req.local_comm_id, AnswerTo::Req, reason);
        rej.info = cut(info);
        rej.info_len = u8::try_from(info.len()).unwrap_or(0);
        self.send(None, ends, CmMad::new(mad.transaction_id, rej));
    }

    /// The peer's queue pair asks for another connection, so it seems to have forgotten this one (IBA 12.9.8). Anything
    /// can claim that which can send from the peer's address. So a connection that stands is asked first, and one that is
    /// being set up has a time limit of its own.
    fn doubt(&mut self, now: Time, id: CommId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state == State::Established && connection.questions == 0 {
            connection.questions = 1;
            self.set_timer(id, Some(now + FIRST_QUESTION));
            self.tell(id, Event::Doubted);
        }
    }

    /// The queue pair of a connection in doubt has heard from its peer, or cannot ask: the connection goes on.
    pub fn vouched(&mut self, id: CommId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if std::mem::take(&mut connection.questions) > 0 {
            self.counters.stale_refuted += 1;
            self.set_timer(id, None);
        }
    }

    /// Whether [`Event::Doubted`] was told of a connection and its peer has not answered since.
    #[must_use]
    pub fn is_doubted(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.questions > 0)
    }

    /// The peer of a connection in doubt has not answered in time: it is asked again, or the connection ends.
    pub(super) fn unanswered(&mut self, now: Time, id: CommId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.questions < QUESTIONS {
            let again = now + FIRST_QUESTION.saturating_mul(1 << connection.questions);
            connection.questions += 1;
            self.set_timer(id, Some(again));
            self.tell(id, Event::Doubted);
        } else {
            connection.questions = 0;
            self.part(now, id, &[], Some(End::Stale));
        }
    }

    /// A request is kept for longer.
    fn extend(&mut self, id: CommId, deadline: Time) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.patience.deadline = deadline;
        }
        self.set_timer(id, Some(deadline));
    }
}

/// How long after its last sign of life a request is kept: until its peer has surely given up.
fn kept_for(req: &Req) -> Duration {
    let tries = u32::from(req.max_cm_retries) + 1;
    let peer = req.remote_cm_response_timeout.duration().saturating_mul(tries);
    peer.saturating_add(DECISION.duration()).min(LONGEST_REQUEST)
}

/// The code of an MTU as bytes that live long enough.
const fn acceptable(code: u8) -> &'static [u8] {
    match code {
        1 => &[1],
        2 => &[2],
        3 => &[3],
        4 => &[4],
        _ => &[5],
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::PathMtu;

    use super::acceptable;

    #[test]
    fn what_would_be_acceptable_is_the_code_of_that_mtu() {
        for mtu in PathMtu::ALL {
            assert_eq!(acceptable(mtu.code()), [mtu.code()]);
        }
    }
}
