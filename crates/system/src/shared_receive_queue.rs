//! Receives for several queue pairs.

use std::fmt;
use std::sync::Arc;

use ferroce_cabi::{IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use ferroce_sys::sync::Biased;
use ferroce_wire::Service;

use crate::domain::Domain;
use crate::error::{CallError, MakeError, PostWorkListError};
use crate::events::context_of;
use crate::handle::{Handle, Zero, answered};
use crate::held::SharedQueue;
use crate::post::{self, Door, MOST_PIECES, Rules};
use crate::shadow::Pool;
use crate::work::ReceiveWork;

/// A queue of receives that several queue pairs take from. Clones are the same queue.
///
/// A receive that a queue pair had begun when it was dropped keeps its memory registered until this queue is gone.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    pub(crate) srq: Arc<Srq>,
}

/// The queue as the library has it.
pub(crate) struct Srq {
    pub(crate) domain: Arc<Domain>,
    pub(crate) c: Handle<ibv_srq>,
    pub(crate) shadow: Arc<SharedQueue>,
    depth: std::sync::atomic::AtomicU32,
    max_pieces: u32,
}

impl SharedReceiveQueue {
    pub(crate) fn new(domain: &Arc<Domain>, depth: u32, max_sge: u32) -> Result<Self, MakeError> {
        let open = &domain.open;
        domain.c.check("ibv_create_srq")?;
        let number = open.number();
        let depth = whole(depth, open.is_soft);
        let attr = ibv_srq_attr { max_wr: depth, max_sge, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: context_of(number), attr };
        // SAFETY: a live domain, and attributes that live during the call. The number stands where C programs have a
        // pointer, which only we read.
        let c = unsafe { (open.library.verbs().ibv_create_srq)(domain.c.as_ptr(), &raw mut init) };
        let c = Handle::made("ibv_create_srq", c).inspect_err(|_| open.give_back(number))?;
        // What it has is written there, and is at least what was asked for.
        let (depth, max_pieces) =
            (init.attr.max_wr.max(depth), init.attr.max_sge.max(max_sge).min(MOST_PIECES));
        let pool = Biased::new(Pool::new(depth, max_pieces));
        let shadow = Arc::new(SharedQueue { number, pool });
        let srq = Srq { domain: Arc::clone(domain), c, shadow, depth: depth.into(), max_pieces };
        Ok(Self { srq: Arc::new(srq) })
    }

    /// Its number, by which events name it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.srq.shadow.number
    }

    /// Requests that it takes.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.srq.depth.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Pieces that a request may have.
    #[must_use]
    pub fn max_pieces(&self) -> u32 {
        self.srq.max_pieces
    }

    /// Requests that were posted and are not done, as far as this process has polled; those that were lost with queue
    /// pairs are among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.srq.shadow.pool.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts receives, in their order.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    pub fn post(&self, work: &[ReceiveWork<'_>]) -> Result<(), PostWorkListError> {
        const CALL: &str = "ibv_post_srq_recv";
        let srq = &self.srq;
        // SAFETY: a live context, whose table never changes.
        let give = unsafe { (*srq.domain.open.c.as_ptr()).ops.post_srq_recv };
        let give = give.ok_or_else(|| post::refused(CallError::unsupported(CALL), work.len()))?;
        srq.c.check(CALL).map_err(|error| post::refused(error, work.len()))?;
        post::post(srq.rules(), &srq.shadow.pool, work, Door { call: CALL, give, queue: &srq.c })
    }

    /// Makes it take another number of requests. What is posted stays posted.
    ///
    /// # Errors
    /// The card cannot, or what the library says.
    pub fn resize(&self, depth: u32) -> Result<(), CallError> {
        let depth = whole(depth, self.srq.domain.open.is_soft);
        let mut pool = self.srq.shadow.pool.lock();
        self.modify(ibv_srq_attr { max_wr: depth, ..ibv_srq_attr::zero() }, IBV_SRQ_MAX_WR)?;
        let depth = self.query().map_or(depth, |attr| attr.max_wr.max(depth));
        pool.set_depth(depth);
        self.srq.depth.store(depth, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// Has an [event](crate::Events) raised, once, when fewer than `limit` requests wait; 0 for never.
    ///
    /// # Errors
    /// What the library says.
    pub fn set_limit(&self, limit: u32) -> Result<(), CallError> {
        self.modify(ibv_srq_attr { srq_limit: limit, ..ibv_srq_attr::zero() }, IBV_SRQ_LIMIT)
    }

    fn modify(&self, mut attr: ibv_srq_attr, mask: libc::c_int) -> Result<(), CallError> {
        self.srq.c.check("ibv_modify_srq")?;
        let modify = self.srq.domain.open.library.verbs().ibv_modify_srq;
        // SAFETY: a live queue, and attributes that live during the call.
        answered("ibv_modify_srq", unsafe { modify(self.srq.c.as_ptr(), &raw mut attr, mask) })
    }

    fn query(&self) -> Result<ibv_srq_attr, CallError> {
        let mut attr = ibv_srq_attr::zero();
        let query = self.srq.domain.open.library.verbs().ibv_query_srq;
        // SAFETY: a live queue, and attributes that live during the call.
        answered("ibv_query_srq", unsafe { query(self.srq.c.as_ptr(), &raw mut attr) })?;
        Ok(attr)
    }
}

/// What to ask for. The kernel's soft device has room for one less than a power of two, and says that it has as much as was asked
/// for: so that is asked for.
fn whole(depth: u32, is_soft: bool) -> u32 {
    let rounded = depth.checked_add(1).and_then(u32::checked_next_power_of_two);
    if is_soft && depth > 0 { rounded.map_or(depth, |power| power - 1) } else { depth }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({})", self.number())
    }
}

impl Srq {
    fn rules(&self) -> Rules<'_> {
        Rules {
            domain: &self.domain,
            home: None,
            // What a receive is like does not depend on it.
            service: Service::Rc,
            queue: self.shadow.number,
            depth: self.depth.load(std::sync::atomic::Ordering::Relaxed),
            max_pieces: self.max_pieces,
            max_inline: 0,
        }
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        let open = &self.domain.open;
        // SAFETY: the queue is live, and neither the program nor a queue pair holds it any more.
        let answer = unsafe { (open.library.verbs().ibv_destroy_srq)(self.c.as_ptr()) };
        if answered("ibv_destroy_srq", answer).is_ok() {
            // Nothing else has its receives any more, so what they kept alive goes with them.
            open.give_back(self.shadow.number);
        } else {
            // The card may still write where its receives say, so their memory is given up for good.
            std::mem::forget(Arc::clone(&self.shadow));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_soft_device_is_asked_for_all_the_room_that_it_gives() {
        for (asked, soft) in
            [(0, 0), (1, 1), (2, 3), (3, 3), (4, 7), (8, 15), (100, 127), (u32::MAX, u32::MAX)]
        {
            assert_eq!((whole(asked, true), whole(asked, false)), (soft, asked));
        }
    }
}
