//! What posted work keeps alive, and the queues that do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_sys::sync::Biased;
use ferroce_wire::Service;

use crate::address::Ah;
use crate::region::Registration;
use crate::shadow::{Pool, Posted, Ring};
use crate::window::Window;

/// An object that posted work names.
pub(crate) enum Held {
    Region(Arc<Registration>),
    Address(Arc<Ah>),
    /// A window, and the region that lies behind it once the binding is done.
    Binding(Arc<Window>, Option<Arc<Registration>>),
}

impl Held {
    /// The work is done, and went well or not.
    #[inline]
    fn done(self, well: bool) {
        match self {
            Self::Binding(window, region) if well => window.bound_to(region),
            Self::Binding(..) => {}
            Self::Region(region) => drop(region),
            Self::Address(address) => drop(address),
        }
    }
}

/// The shadow of a queue of one queue pair: each request in it has a place of its own, which the card tells when it is done.
pub(crate) struct Queue {
    /// The first half of the numbers that its work is posted with.
    pub(crate) number: u32,
    pub(crate) service: Service,
    /// Held while work is posted, so that it reaches the card in the order in which it stands here.
    pub(crate) ring: Biased<Ring<Held>>,
    /// Some of its work has failed since its queue pair left the error state last.
    pub(crate) has_failed: AtomicBool,
}

impl Queue {
    /// A region is not named any more from now on: it goes with the last of the work that names it.
    pub(crate) fn let_go(&self, registration: &Arc<Registration>) {
        let hold = self.ring.lock().let_go(Arc::as_ptr(registration).addr());
        // It may be the last holder, and to deregister takes long.
        drop(hold);
    }
}

/// The shadow of a shared receive queue.
pub(crate) struct SharedQueue {
    pub(crate) number: u32,
    pub(crate) pool: Biased<Pool<Held>>,
}

/// A queue that completes into a completion queue.
#[derive(Clone)]
pub(crate) enum Source {
    Sends(Arc<Queue>),
    Receives(Arc<Queue>),
    Shared(Arc<SharedQueue>),
}

impl Source {
    pub(crate) fn number(&self) -> u32 {
        match self {
            Self::Sends(queue) | Self::Receives(queue) => queue.number,
            Self::Shared(queue) => queue.number,
        }
    }

    /// The work at this place is done; what it was, if it is there.
    #[inline(always)]
    pub(crate) fn done(&self, place: u32, well: bool) -> Option<Posted> {
        match self {
            Self::Sends(queue) | Self::Receives(queue) => {
                if !well {
                    queue.has_failed.store(true, Ordering::Relaxed);
                }
                // What came before it and said nothing went well: work that fails says so.
                queue.ring.lock().retire(place, |held, is_it| held.done(well || !is_it))
            }
            Self::Shared(queue) => queue.pool.lock().remove(place, |held| held.done(well)),
        }
    }
}
