//! Receives: where messages of a peer go.

use ferroce_transport::ReceiveRequest;

use crate::error::{PostError, PostTarget};
use crate::local_slice::Pieces;
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;

/// A receive that is being described; [`post`](Self::post) posts it.
#[derive(Clone, Copy, Debug)]
#[must_use = "a receive takes nothing in until `post`"]
pub struct Receive<'a> {
    queue: Queue<'a>,
    pieces: Pieces<'a>,
    id: u64,
}

#[derive(Clone, Copy, Debug)]
enum Queue<'a> {
    Own(&'a QueuePair),
    Shared(&'a SharedReceiveQueue),
}

impl<'a> Receive<'a> {
    pub(crate) const fn on_queue_pair(queue_pair: &'a QueuePair, pieces: Pieces<'a>) -> Self {
        Self { queue: Queue::Own(queue_pair), pieces, id: 0 }
    }

    pub(crate) const fn on_shared_queue(queue: &'a SharedReceiveQueue, pieces: Pieces<'a>) -> Self {
        Self { queue: Queue::Shared(queue), pieces, id: 0 }
    }

    /// The program's name for it, given back in the completion. 0 if nothing is said.
    pub const fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// Posts it.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn post(self) -> Result<(), PostError> {
        let Self { queue, pieces, id } = self;
        let (domain, by) = match queue {
            Queue::Own(qp) => (qp.domain(), PostTarget::QueuePair(qp.qpn())),
            Queue::Shared(srq) => (srq.domain(), PostTarget::SharedReceiveQueue(srq.id().0)),
        };
        pieces.with_sges(domain, by, |sges| {
            let request = [ReceiveRequest { id, sges }];
            let posted = match queue {
                Queue::Own(qp) => qp.as_device().post_receive(&request),
                Queue::Shared(srq) => srq.as_device().post(&request),
            };
            posted.map_err(|(_, error)| PostError::Refused { by, error })
        })
    }
}
