//! Shared receive queues.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_sys::sync::lock;
use ferroce_transport::{
    DomainId, Level, PostError, PostListError, ReceiveQueue, ReceiveRequest, SharedQueueId,
};

use crate::engine::host::Tables;
use crate::engine::qp_shared::note_most;
use crate::engine::srq_side::{PLACE_BITS, SrqSide, place_of};
use crate::error::NicCreateError;
use crate::limits::Limits;
use crate::mail::{Parcel, ReceiveParcel};
use crate::nic::Nic;

/// A queue of receives that several queue pairs take from. It lives in one engine, and so do they.
#[derive(Debug)]
pub struct SharedQueue {
    nic: Nic,
    id: SharedQueueId,
    domain: DomainId,
    depth: AtomicU32,
    /// One thread at a time changes the depth.
    resizing: Mutex<()>,
    max_sge: u32,
    waiting: Arc<AtomicU32>,
    /// The most that waited at a time.
    most: Arc<AtomicU32>,
}

impl SharedQueue {
    /// A queue for `depth` requests of up to `max_sge` pieces.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn new(nic: &Nic, domain: DomainId, depth: u32, max_sge: u32) -> Result<Arc<Self>, NicCreateError> {
        nic.check_ours()?;
        NicCreateError::check("requests of a shared receive queue", depth, 1_u32, Limits::QUEUE_DEPTH)?;
        NicCreateError::check("pieces of a receive", max_sge, 1_u32, Limits::SGE)?;
        let waiting = Arc::new(AtomicU32::new(0));
        let queue = ReceiveQueue::new(depth, max_sge as usize);
        let most = Arc::new(AtomicU32::new(0));
        let side = SrqSide { queue, limit: 0, waiting: Arc::clone(&waiting), most: Arc::clone(&most) };
        nic.use_domain(domain)?;
        let home = nic.engines().emptiest();
        let place = nic.engines().control(home, |engine| {
            if engine.tables.srqs.len() >= Limits::SHARED_QUEUES {
                return Err(NicCreateError::TooMany {
                    what: "shared receive queues",
                    allowed: Limits::SHARED_QUEUES,
                });
            }
            Ok(engine.tables.srqs.insert(side))
        });
        let place = place.inspect_err(|_| nic.leave_domain(domain))?;
        nic.engines().station(home).settle_in();
        let id = SharedQueueId(u32::try_from(home << PLACE_BITS | place).unwrap_or(u32::MAX));
        let (depth, resizing) = (AtomicU32::new(depth), Mutex::default());
        Ok(Arc::new(Self { nic: nic.clone(), id, domain, depth, resizing, max_sge, waiting, most }))
    }

    /// The number of the queue.
    #[must_use]
    pub const fn id(&self) -> SharedQueueId {
        self.id
    }

    /// The device.
    #[must_use]
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The engine that it lives in.
    pub(crate) const fn home(&self) -> usize {
        (self.id.0 >> PLACE_BITS) as usize
    }

    /// The protection domain of the queue.
    #[must_use]
    pub const fn domain(&self) -> DomainId {
        self.domain
    }

    /// Requests that it takes.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::SeqCst)
    }

    /// Makes it take another number of requests. What is posted stays posted.
    ///
    /// # Errors
    /// More requests wait than it would take, its limit is larger, or what is allowed; nothing has changed.
    pub fn resize(&self, depth: u32) -> Result<(), NicCreateError> {
        self.nic.check_ours()?;
        NicCreateError::check("requests of a shared receive queue", depth, 1_u32, Limits::QUEUE_DEPTH)?;
        let _alone = lock(&self.resizing);
        let mut queue = ReceiveQueue::new(depth, self.max_sge as usize);
        let before = self.depth();
        // From here on no thread takes a place that the smaller of the two does not have.
        self.depth.store(depth.min(before), Ordering::SeqCst);
        let moved = self.nic.engines().control(self.home(), |engine| {
            let Some(side) = engine.tables.srqs.get_mut(place_of(self.id)) else { return Ok(()) };
            let needed = side.waiting.load(Ordering::SeqCst).max(side.limit).max(1);
            NicCreateError::check("requests of a shared receive queue", depth, needed, Limits::QUEUE_DEPTH)?;
            if side.queue.move_to(&mut queue) {
                std::mem::swap(&mut side.queue, &mut queue);
            }
            Ok(())
        });
        self.depth.store(if moved.is_ok() { depth } else { before }, Ordering::SeqCst);
        moved
    }

    /// Pieces that a request may have.
    #[must_use]
    pub const fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Posts receives, in order, all at once.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    pub fn post(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), PostListError> {
        if requests.is_empty() {
            return Ok(());
        }
        if !self.nic.is_ours() {
            return Err(PostListError::new(0, PostError::OtherProcess));
        }
        let allowed = self.max_sge;
        let is_too_long = |request: &ReceiveRequest<'_>| request.sges.len() > allowed as usize;
        let fitting = requests.iter().position(is_too_long).unwrap_or(requests.len());
        let (taken, refused) = requests.split_at(self.reserve(fitting));
        if !taken.is_empty() {
            self.nic.engines().post(
                self.home(),
                |engine| {
                    for request in taken {
                        engine.post_shared(self.id, request);
                    }
                },
                taken.iter().map(|request| {
                    let at = self.nic.engines().time_of_posting();
                    Parcel::Shared(self.id, ReceiveParcel::new(request, at))
                }),
            );
        }
        match refused.first().map(|request| request.sges.len()) {
            None => Ok(()),
            Some(_) if taken.len() < fitting => Err(PostListError::new(
                taken.len(),
                PostError::QueueFull { what: "shared receive", depth: self.depth() },
            )),
            Some(given) => Err(PostListError::new(taken.len(), PostError::TooManyPieces { given, allowed })),
        }
    }

    /// Takes up to `wanted` places, as many as there are; how many.
    fn reserve(&self, wanted: usize) -> usize {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let mut taken = 0;
        // Sequentially consistent, together with the depth: either we see afterwards that it was made
        // smaller, or the thread that does that sees these.
        let before = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |waiting| {
            taken = self.depth().saturating_sub(waiting).min(wanted);
            (taken > 0).then_some(waiting + taken)
        });
        let Ok(before) = before else { return 0 };
        // If it was made smaller in between, places beyond its end are none.
        let beyond = (before + taken).saturating_sub(self.depth()).min(taken);
        if beyond > 0 {
            self.waiting.fetch_sub(beyond, Ordering::SeqCst);
        }
        note_most(&self.most, before + taken - beyond);
        (taken - beyond) as usize
    }

    /// Has an event raised once when fewer than `limit` requests are left; 0 for never.
    ///
    /// # Errors
    /// The limit is larger than the queue.
    pub fn set_limit(&self, limit: u32) -> Result<(), NicCreateError> {
        self.nic.check_ours()?;
        NicCreateError::check("limit of a shared receive queue", limit, 0_u32, self.depth())?;
        self.nic.engines().control(self.home(), |engine| {
            if let Some(side) = engine.tables.srqs.get_mut(place_of(self.id)) {
                side.limit = limit;
            }
        });
        Ok(())
    }

    /// How many requests wait, and how many waited at most.
    #[must_use]
    pub fn level(&self) -> Level {
        Level::new(self.len(), self.most.load(Ordering::Relaxed), self.depth())
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether no receive waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        if !self.nic.is_ours() {
            return;
        }
        self.nic.engines().control(self.home(), |engine| {
            let Tables { srqs, record, .. } = &mut engine.tables;
            let side = srqs.try_remove(place_of(self.id));
            if let (Some(record), Some(side)) = (record, side) {
                record.forgotten_queue(self.id, &side.queue);
            }
            engine.release_regions();
        });
        self.nic.engines().station(self.home()).move_out();
        self.nic.leave_domain(self.domain);
    }
}
