//! What the connection manager tells: it only becomes an event, which the program fetches.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use ferroce_device::Qp;
use ferroce_device::cm::{ConnectionManager, Inquiry, Watcher};
use ferroce_transport::cm::{End, Event, Failure};
use ferroce_wire::Service;
use ferroce_wire::mad::{CommId, RejectReason};

use super::channel::Raw;
use super::id::Id;
use crate::object::lock;

/// What hears of a connection for an id, as long as there is one.
pub(crate) struct Watch(Weak<Id>);

impl Watch {
    pub(crate) fn of(id: &Arc<Id>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(id)))
    }

    fn qp(&self) -> Option<Arc<Qp>> {
        lock(&self.0.upgrade()?.queue_pair).upgrade()
    }
}

impl Watcher for Watch {
    fn happened(&self, _: &ConnectionManager, comm: CommId, event: Event) {
        let Some(id) = self.0.upgrade() else { return };
        // What happens to a request before it is accepted shows when it is.
        if id.passive && !id.accepted.load(Ordering::Acquire) {
            return;
        }
        let raw = match event {
            Event::Replied(rep) => Raw::Reply(comm, rep),
            // The side that asked knows it: it has confirmed it itself.
            Event::Established if !id.passive => return,
            Event::Established => Raw::Stands,
            Event::Failed(Failure::Rejected { reason, private_data }) => Raw::Rejected(reason, private_data),
            Event::Failed(Failure::TimedOut { .. }) => Raw::Unreachable(-libc::ETIMEDOUT),
            Event::Failed(Failure::Withdrawn) => Raw::Rejected(RejectReason::TIMEOUT, Box::default()),
            Event::Failed(Failure::Unresolved { status, private_data }) => {
                Raw::NotFound(status.0.into(), private_data)
            }
            Event::Ended(End::Unanswered) => Raw::Ended(-libc::ETIMEDOUT),
            Event::Ended(End::Here | End::Peer | End::Stale) => Raw::Ended(0),
            Event::Forgotten => Raw::TimeWaitOver,
            Event::Resolved(found) => Raw::Found(found),
            // Not of a connection of ours.
            Event::Requested(_) | Event::Doubted => return,
        };
        id.tell(raw);
    }

    fn unreachable(&self, error: io::Error) {
        if let Some(id) = self.0.upgrade() {
            id.tell(Raw::Unreachable(-error.raw_os_error().unwrap_or(libc::EHOSTUNREACH)));
        }
    }

    fn is_behind(&self) -> bool {
        self.qp().is_some_and(|qp| qp.has_untaken())
    }

    fn has_data(&self) -> bool {
        let known = self.qp().and_then(|qp| qp.query().ok());
        known.is_some_and(|known| known.counters.requests_received > 0)
    }

    fn ask(&self) -> Inquiry {
        let Some(qp) = self.qp() else { return Inquiry::Cannot };
        match qp.ask() {
            Ok(Some(signs)) => Inquiry::Sent(signs),
            Ok(None) if qp.service() != Service::Rc => Inquiry::Cannot,
            Ok(None) | Err(_) => Inquiry::Gone,
        }
    }

    fn signs_of_life(&self) -> u64 {
        let known = self.qp().and_then(|qp| qp.query().ok());
        known.map_or(0, |known| known.counters.signs_of_life())
    }
}

/// Hears of a request that no id wants.
pub(crate) struct Deaf;

impl Watcher for Deaf {
    fn happened(&self, _: &ConnectionManager, _: CommId, _: Event) {}

    fn unreachable(&self, _: io::Error) {}

    fn has_data(&self) -> bool {
        false
    }

    fn ask(&self) -> Inquiry {
        Inquiry::Gone
    }

    fn signs_of_life(&self) -> u64 {
        0
    }
}
