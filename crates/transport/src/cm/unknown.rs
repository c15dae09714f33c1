//! Answers to messages that nothing is known about.

use ferroce_wire::mad::{AnswerTo, CmMad, CmMessage, CommId, Drep, Rej, RejectReason, SidrRep, SidrStatus};

/// What to answer to a message for a service or a connection that does not exist; nothing to most of them,
/// and never something that is answered in its turn.
///
/// Needs no memory: a process that reads messages for processes that are gone answers with it too.
#[must_use]
pub fn answer_unknown(mad: &CmMad) -> Option<CmMad> {
    let answer: CmMessage = match mad.message {
        CmMessage::Req(req) => {
            reject(CommId(0), req.local_comm_id, AnswerTo::Req, RejectReason::INVALID_SERVICE_ID).into()
        }
        // A peer that accepted must not wait for a process that is gone.
        CmMessage::Rep(rep) => {
            let reason = RejectReason::INVALID_COMM_ID;
            reject(rep.remote_comm_id, rep.local_comm_id, AnswerTo::Rep, reason).into()
        }
        // A peer that ends what is over shall have its confirmation (IBA 12.6.10).
        CmMessage::Dreq(dreq) => {
            Drep { local_comm_id: dreq.remote_comm_id, remote_comm_id: dreq.local_comm_id, ..Drep::default() }
                .into()
        }
        CmMessage::SidrReq(req) => SidrRep {
            request_id: req.request_id,
            status: SidrStatus::SERVICE_ID_NOT_SUPPORTED,
            service_id: req.service_id,
            ..SidrRep::default()
        }
        .into(),
        CmMessage::Mra(_)
        | CmMessage::Rej(_)
        | CmMessage::Rtu(_)
        | CmMessage::Drep(_)
        | CmMessage::SidrRep(_) => return None,
    };
    Some(CmMad::new(mad.transaction_id, answer))
}

pub(super) fn reject(ours: CommId, theirs: CommId, message: AnswerTo, reason: RejectReason) -> Rej {
    Rej { local_comm_id: ours, remote_comm_id: theirs, message, reason, ..Rej::default() }
}
