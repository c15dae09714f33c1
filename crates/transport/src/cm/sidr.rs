//! Finding the queue pair of a datagram service (IBA 12.11).

use ferroce_wire::mad::{CmMad, CommId, Opaque, ServiceId, SidrRep, SidrReq, SidrStatus};
use ferroce_wire::{QKey, Qpn};

use super::connection::{Ends, Patience};
use super::event::{Event, Failure, Resolved};
use super::manager::{Manager, Refused};
use super::unknown::answer_unknown;
use crate::time::Time;

/// A datagram service that the program offers. Questions for it are answered out of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramService {
    /// The queue pair.
    pub qpn: Qpn,
    /// The key that datagrams to it must show.
    pub qkey: QKey,
    /// What the program adds.
    pub private_data: Opaque<136>,
}

/// A question for a datagram service.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Our address and the peer's.
    pub ends: Ends,
    /// What to ask. The name of the question is filled in.
    pub req: SidrReq,
    /// How long to try.
    pub patience: Patience,
}

/// A question under way.
#[derive(Clone, Debug)]
pub(super) struct Question {
    query: Query,
    attempts: u32,
    pub(super) timer: Option<Time>,
}

impl Manager {
    /// Offers a datagram service.
    ///
    /// # Errors
    /// It is offered already.
    pub fn serve(&mut self, service: ServiceId, offer: DatagramService) -> Result<(), Refused> {
        if self.datagrams.contains_key(&service) {
            return Err(Refused::Listening(service));
        }
        self.datagrams.insert(service, offer);
        Ok(())
    }

    /// Offers a datagram service no more.
    pub fn stop_serving(&mut self, service: ServiceId) {
        self.datagrams.remove(&service);
    }

    /// Asks for a datagram service; the answer is an event of the returned name.
    ///
    /// # Errors
    /// There are too many questions under way.
    pub fn resolve(&mut self, now: Time, query: &Query) -> Result<CommId, Refused> {
        let given = self.questions.len();
        let id = if given < self.config.limits.queries { self.deal() } else { None };
        let id = id.ok_or(Refused::TooMany { given })?;
        let query = Query { req: SidrReq { request_id: id.0, ..query.req }, ..*query };
        self.questions.insert(id, Question { query, attempts: 0, timer: None });
        self.ask_again(now, id);
        Ok(id)
    }

    pub(super) fn ask_again(&mut self, now: Time, id: CommId) {
        let Some(question) = self.questions.get_mut(&id) else { return };
        let Patience { response, retries, deadline, .. } = question.query.patience;
        let attempts = question.attempts;
        if attempts > u32::from(retries) || now >= deadline {
            self.questions.remove(&id);
            self.counters.timed_out += 1;
            return self.tell(id, Event::Failed(Failure::TimedOut { sent: "SIDR_REQ", attempts }));
        }
        question.attempts += 1;
        let query = question.query;
        self.counters.repeated += u64::from(attempts > 0);
        self.set_timer(id, Some((now + response).min(deadline)));
        self.send(Some(id), query.ends, CmMad::new(self.transaction(id), query.req));
    }

    /// A peer asks for a datagram service.
    pub(super) fn asked(&mut self, ends: Ends, mad: &CmMad, req: &SidrReq) {
        let answer = match self.datagrams.get(&req.service_id) {
            _ if !self.config.pkeys.admits(req.pkey) => {
                self.counters.wrong_pkey += 1;
                let (request_id, service_id) = (req.request_id, req.service_id);
                let rejected =
                    SidrRep { request_id, service_id, status: SidrStatus::REJECTED, ..SidrRep::default() };
                Some(CmMad::new(mad.transaction_id, rejected))
            }
            Some(offer) => {
                self.counters.resolved += 1;
                let rep = SidrRep {
                    request_id: req.request_id,
                    status: SidrStatus::VALID,
                    qpn: offer.qpn,
                    service_id: req.service_id,
                    qkey: offer.qkey,
                    private_data: offer.private_data,
                    ..SidrRep::default()
                };
                Some(CmMad::new(mad.transaction_id, rep))
            }
            None => {
                self.counters.unserved += 1;
                answer_unknown(mad)
            }
        };
        if let Some(answer) = answer {
            self.send(None, ends, answer);
        }
    }

    /// An answer to a question of ours.
    pub(super) fn answered(&mut self, ends: Ends, rep: &SidrRep) {
        let id = CommId(rep.request_id);
        let Some(question) = self.questions.get(&id) else {
            self.counters.unknown += 1;
            return;
        };
        if question.query.ends != ends {
            self.counters.strangers += 1;
            return;
        }
        self.set_timer(id, None);
        self.questions.remove(&id);
        let event = if rep.status == SidrStatus::VALID {
            let (qpn, qkey, private_data) = (rep.qpn, rep.qkey, rep.private_data);
            Event::Resolved(Box::new(Resolved { address: ends.remote, qpn, qkey, private_data }))
        } else {
            let (status, private_data) = (rep.status, Box::new(rep.private_data));
            Event::Failed(Failure::Unresolved { status, private_data })
        };
        self.tell(id, event);
    }
}
