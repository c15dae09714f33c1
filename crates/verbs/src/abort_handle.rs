//! Ending a queue pair from elsewhere.

use std::sync::{Arc, Weak};

use ferroce_device::Qp;
use ferroce_transport::{Attributes, State};

use crate::card::CardQueuePair;
use crate::queue_pair;

/// Ends a queue pair that another part of the program holds: see
/// [`QueuePair::abort_handle`](crate::QueuePair::abort_handle). Clones end the same one.
///
/// ```
/// # use std::time::Duration;
/// # use ferroce_verbs::{Access, Context, Service, State, Status};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = Context::builder("ferroce_lo").address([127, 0, 41, 13]).open()?;
/// # let pd = context.protection_domain()?;
/// # let cq = context.completion_queue(16)?;
/// # let peer = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
/// let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
/// # qp.connect(&peer.local_address())?;
/// # let region = pd.allocate(64, Access::LOCAL_WRITE)?;
/// let guard = qp.abort_handle();
/// qp.receive(&region).post()?;
/// guard.abort();
/// assert_eq!(qp.state(), State::Err);
/// assert_eq!(cq.wait(Duration::from_secs(5))?.status, Status::Flushed);
/// drop(qp);
/// guard.abort(); // Nothing is left to end.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AbortHandle {
    of: Of,
}

#[derive(Clone, Debug)]
enum Of {
    Soft(Weak<Qp>),
    Card(Weak<CardQueuePair>),
}

impl AbortHandle {
    pub(crate) fn new(qp: &queue_pair::Of) -> Self {
        let of = match qp {
            queue_pair::Of::Soft(qp) => Of::Soft(Arc::downgrade(qp)),
            queue_pair::Of::Card(qp) => Of::Card(Arc::downgrade(qp)),
        };
        Self { of }
    }

    /// Moves the queue pair into the error state: all its work that is not done completes as
    /// [`Flushed`](crate::Status::Flushed). A queue pair that is gone, or of a device that was opened before
    /// a fork, is over already.
    pub fn abort(&self) {
        // Cannot fail while it is there: every state leads to error.
        match &self.of {
            Of::Soft(qp) => {
                if let Some(qp) = qp.upgrade() {
                    let _ = qp.modify(&Attributes::to(State::Err), None);
                }
            }
            Of::Card(qp) => {
                if let Some(qp) = qp.upgrade() {
                    let _ = qp.modify(&Attributes::to(State::Err), None);
                }
            }
        }
    }
}
