//! Connections in a record: when they come, stand and go.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ferroce_record::{Connection, ConnectionStep, ProgramRing};
use ferroce_sys::clock;
use ferroce_transport::cm::{Accept, Connect, End, Event, Failure};
use ferroce_wire::mad::{CommId, RejectReason};

/// What is written down of connections.
#[derive(Debug)]
pub(super) struct Recording {
    ring: ProgramRing,
    /// What was said of connections when they came.
    known: BTreeMap<CommId, Known>,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
struct Known {
    remote: IpAddr,
    service: u64,
    qpn: u32,
}

impl Recording {
    pub(super) const fn new(ring: ProgramRing) -> Self {
        Self { ring, known: BTreeMap::new() }
    }

    fn push(&self, id: CommId, step: ConnectionStep, reason: u16) {
        // Those that were there before the record began are told of by their number alone.
        let unknown = Known { remote: IpAddr::V4(Ipv4Addr::UNSPECIFIED), service: 0, qpn: 0 };
        let Known { remote, service, qpn } = self.known.get(&id).copied().unwrap_or(unknown);
        let connection = Connection { step, number: id.0, qpn, service, remote, reason };
        self.ring.push(clock::now().nanos(), &connection.into());
    }

    /// A request leaves.
    pub(super) fn asked(&mut self, id: CommId, connect: &Connect) {
        let (remote, service, qpn) = (connect.ends.remote, connect.service.0, connect.req.local_qpn.get());
        self.known.insert(id, Known { remote, service, qpn });
        self.push(id, ConnectionStep::Asked, 0);
    }

    /// A request is accepted here.
    pub(super) fn accepted(&mut self, id: CommId, accept: &Accept) {
        if let Some(known) = self.known.get_mut(&id) {
            known.qpn = accept.rep.local_qpn.get();
        }
        self.push(id, ConnectionStep::Accepted, 0);
    }

    /// A request is refused here.
    pub(super) fn refused(&mut self, id: CommId, reason: RejectReason) {
        self.push(id, ConnectionStep::Refused, reason.0);
        self.known.remove(&id);
    }

    /// The program has no use for a connection any more.
    pub(super) fn left(&self, id: CommId) {
        if self.known.contains_key(&id) {
            self.push(id, ConnectionStep::Left, 0);
        }
    }

    /// The program has no use for a connection any more, and hears nothing of its end.
    pub(super) fn abandoned(&mut self, id: CommId) {
        self.left(id);
        self.known.remove(&id);
    }

    /// Something happened to a connection.
    pub(super) fn happened(&mut self, id: CommId, event: &Event) {
        let (step, reason, is_over) = match event {
            Event::Requested(request) => {
                let (remote, service) = (request.ends.remote, request.service_id().0);
                self.known.insert(id, Known { remote, service, qpn: 0 });
                (ConnectionStep::Wanted, 0, false)
            }
            Event::Replied(_) => (ConnectionStep::Accepted, 0, false),
            Event::Established => (ConnectionStep::Established, 0, false),
            Event::Failed(Failure::Rejected { reason, .. }) => (ConnectionStep::Refused, reason.0, true),
            Event::Failed(Failure::TimedOut { .. }) => (ConnectionStep::Unanswered, 0, true),
            Event::Failed(_) | Event::Ended(End::Peer | End::Stale) => (ConnectionStep::Ended, 0, true),
            // That the program wanted it to end was told when it did.
            Event::Ended(End::Here | End::Unanswered) => {
                self.known.remove(&id);
                return;
            }
            Event::Doubted | Event::Resolved(_) | Event::Forgotten => return,
        };
        self.push(id, step, reason);
        if is_over {
            self.known.remove(&id);
        }
    }
}
