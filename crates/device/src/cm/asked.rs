//! Questions for datagram services that the program itself answers.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_transport::Time;
use ferroce_transport::cm::{CmCounters, Ends};
use ferroce_wire::mad::{CmMad, CmMessage, MAD_LEN, ServiceId, SidrRep, SidrReq, SidrStatus};

use super::mailer::Mailer;

/// A question for a datagram service. Nothing is kept of it elsewhere: if the answer is lost, it is asked
/// again.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Which of our addresses it came to, and from where.
    pub ends: Ends,
    /// When it came.
    pub time: Time,
    /// What it asks for, as it came.
    pub req: SidrReq,
    transaction_id: u64,
}

/// What hears of questions for a datagram service. Called by the connection manager's thread: it must not
/// wait.
pub trait Hearer: Send + Sync {
    /// A peer asks, or asks again; false if there is no room for the question. Then the peer hears nothing,
    /// and asks again.
    fn asked(&self, question: Box<Asked>) -> bool;
}

impl Asked {
    /// The peer: the address that it asks from, with the port of its IP service, or 0.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.ends.remote, self.req.ip().map_or(0, |(header, _)| header.source_port))
    }

    /// Which of our addresses is asked, and the port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.ends.local, self.req.service_id.as_rdma_ip().map_or(0, |(_, port)| port))
    }

    /// What the program on the other side added, zeros at the end included: the wire has no length for it.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.req.ip().map_or(&self.req.private_data.0, |(_, consumer)| consumer)
    }
}

/// The services whose questions the program answers, and what happened to them.
#[derive(Default)]
pub(super) struct Hearing {
    pub(super) hearers: BTreeMap<ServiceId, Arc<dyn Hearer>>,
    counters: CmCounters,
}

impl Hearing {
    /// The question in a message, if the program answers it.
    pub(super) fn question(&mut self, time: Time, ends: Ends, mad: &CmMad) -> Option<Box<Asked>> {
        let CmMessage::SidrReq(req) = mad.message else { return None };
        if !self.hearers.contains_key(&req.service_id) {
            return None;
        }
        self.counters.received += 1;
        Some(Box::new(Asked { ends, time, req, transaction_id: mad.transaction_id }))
    }

    /// A question found no room.
    pub(super) const fn no_room(&mut self) {
        self.counters.backlog_full += 1;
    }

    /// Sends an answer; name and service of the question are filled in.
    pub(super) fn answer(&mut self, mailer: &mut Mailer, asked: &Asked, answer: &SidrRep) -> io::Result<()> {
        let SidrReq { request_id, service_id, .. } = asked.req;
        let answer = SidrRep { request_id, service_id, ..*answer };
        match answer.status {
            SidrStatus::VALID => self.counters.resolved += 1,
            _ => self.counters.rejected += 1,
        }
        self.counters.sent += 1;
        let mut bytes = [0; MAD_LEN];
        CmMad::new(asked.transaction_id, answer).emit(&mut bytes);
        mailer.send(&asked.ends, &bytes)
    }

    /// Adds what happened here to what happened to connections.
    pub(super) const fn add_to(&self, mut counters: CmCounters) -> CmCounters {
        let CmCounters { received, sent, rejected, backlog_full, resolved, .. } = self.counters;
        counters.received += received;
        counters.sent += sent;
        counters.rejected += rejected;
        counters.backlog_full += backlog_full;
        counters.resolved += resolved;
        counters
    }
}
