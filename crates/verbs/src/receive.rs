//! Receives: where messages of a peer go.

use std::sync::Arc;

use ferroce_device::{Qp, SharedQueue};
use ferroce_system::{Piece, ReceiveWork};
use ferroce_transport::{PostListError, ReceiveRequest, Sge};

use crate::card::Receiver;
use crate::error::{BatchError, PostError, PostTarget};
use crate::local_slice::Pieces;
use crate::protection_domain::Domain;
use crate::queue_pair::{self, QueuePair};
use crate::shared_receive_queue::{self, SharedReceiveQueue};

/// A receive that is being described; [`post`](Self::post) posts it.
#[derive(Clone, Copy, Debug)]
#[must_use = "a receive takes nothing in until `post`"]
pub struct Receive<'a> {
    queue: Queue<'a>,
    pieces: Pieces<'a>,
    id: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue<'a> {
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
        match queue.taker() {
            Taker::Soft(soft) => pieces.with_sges(queue.domain(), queue.target(), |sges| {
                soft.post(&[ReceiveRequest { id, sges }]).map_err(|refused| queue.refusal(refused))
            }),
            Taker::Card(card) => pieces.with_card_pieces(queue.domain(), queue.target(), |pieces| {
                card.post(queue.target(), &[ReceiveWork { id, pieces }]).map_err(|(_, error)| error)
            }),
        }
    }
}

/// The queue of the device.
#[derive(Clone, Copy)]
enum Taker<'a> {
    Soft(SoftTaker<'a>),
    Card(Receiver<'a>),
}

#[derive(Clone, Copy)]
enum SoftTaker<'a> {
    Own(&'a Qp),
    Shared(&'a SharedQueue),
}

impl SoftTaker<'_> {
    #[inline]
    fn post(self, requests: &[ReceiveRequest<'_>]) -> Result<(), PostListError> {
        match self {
            Self::Own(qp) => qp.post_receive(requests),
            Self::Shared(srq) => srq.post(requests),
        }
    }
}

impl<'a> Queue<'a> {
    #[inline]
    fn taker(self) -> Taker<'a> {
        match self {
            Self::Own(qp) => match qp.of() {
                queue_pair::Of::Soft(qp) => Taker::Soft(SoftTaker::Own(qp)),
                queue_pair::Of::Card(qp) => Taker::Card(Receiver::Own(qp)),
            },
            Self::Shared(srq) => match srq.of() {
                shared_receive_queue::Of::Soft(srq) => Taker::Soft(SoftTaker::Shared(srq)),
                shared_receive_queue::Of::Card(srq) => Taker::Card(Receiver::Shared(srq)),
            },
        }
    }

    fn domain(self) -> &'a Arc<Domain> {
        match self {
            Self::Own(qp) => qp.domain(),
            Self::Shared(srq) => srq.domain(),
        }
    }

    fn target(self) -> PostTarget {
        match self {
            Self::Own(qp) => PostTarget::QueuePair(qp.qpn()),
            Self::Shared(srq) => PostTarget::SharedReceiveQueue(srq.id().0),
        }
    }

    /// Whether it is the same object, or a clone of it.
    fn is(self, other: Queue<'_>) -> bool {
        match (self, other) {
            (Self::Own(one), Queue::Own(other)) => std::ptr::eq(one, other),
            (Self::Shared(one), Queue::Shared(other)) => one.is(other),
            _ => false,
        }
    }

    /// Why this queue refused the first request that it did not take.
    fn refusal(self, refused: PostListError) -> PostError {
        PostError::Refused { by: self.target(), error: refused.error }
    }
}

/// Receives that are handed to the device at once, in their order: it is entered once instead of once for
/// each.
///
/// ```no_run
/// # use ferroce_verbs::{BatchError, MemoryRegion, QueuePair};
/// # fn f(qp: &QueuePair, region: &MemoryRegion) -> Result<(), BatchError> {
/// let mut batch = qp.receive_batch();
/// for slot in 0..16 {
///     batch.add(qp.receive(region.slice(slot * 64..(slot + 1) * 64)).id(slot as u64));
/// }
/// batch.post()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "receives take nothing in until `post`"]
pub struct ReceiveBatch<'a> {
    queue: Queue<'a>,
    /// Names, and where the pieces of each end in `sges`.
    items: Vec<(u64, usize)>,
    sges: Vec<Sge>,
    /// For a card, instead of `sges`.
    pieces: Vec<Piece<'a>>,
    given: usize,
    /// Why the first receive after `items` was refused.
    wrong: Option<PostError>,
}

/// Receives that reach the device in one list; longer batches are cut.
const LIST: usize = 64;

impl<'a> ReceiveBatch<'a> {
    pub(crate) const fn on_queue_pair(queue_pair: &'a QueuePair) -> Self {
        Self::new(Queue::Own(queue_pair))
    }

    pub(crate) const fn on_shared_queue(queue: &'a SharedReceiveQueue) -> Self {
        Self::new(Queue::Shared(queue))
    }

    const fn new(queue: Queue<'a>) -> Self {
        Self { queue, items: Vec::new(), sges: Vec::new(), pieces: Vec::new(), given: 0, wrong: None }
    }

    /// Makes room for so many more, of one piece each.
    pub fn reserve(&mut self, more: usize) {
        self.items.reserve(more);
        match self.queue.taker() {
            Taker::Soft(_) => self.sges.reserve(more),
            Taker::Card(_) => self.pieces.reserve(more),
        }
    }

    /// Adds a receive of this queue. What is wrong with it comes to light with [`post`](Self::post).
    pub fn add(&mut self, receive: Receive<'a>) {
        self.given += 1;
        if self.wrong.is_some() {
            return;
        }
        if let Err(error) = self.try_add(&receive) {
            self.wrong = Some(error);
        }
    }

    /// How many were added.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.given
    }

    /// Whether none were.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.given == 0
    }

    /// Posts all of it.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    pub fn post(self) -> Result<(), BatchError> {
        let Self { queue, items, sges, pieces, given, wrong } = self;
        let mut start = 0;
        let soft = match queue.taker() {
            Taker::Soft(soft) => soft,
            Taker::Card(card) => {
                for (number, part) in items.chunks(LIST).enumerate() {
                    let mut work = [ReceiveWork { id: 0, pieces: &[] }; LIST];
                    for (receive, (id, end)) in work.iter_mut().zip(part) {
                        *receive = ReceiveWork { id: *id, pieces: &pieces[start..*end] };
                        start = *end;
                    }
                    let posted = card.post(queue.target(), &work[..part.len()]);
                    posted.map_err(|(taken, error)| BatchError {
                        taken: number * LIST + taken,
                        given,
                        error,
                    })?;
                }
                return match wrong {
                    Some(error) => Err(BatchError { taken: items.len(), given, error }),
                    None => Ok(()),
                };
            }
        };
        for (number, part) in items.chunks(LIST).enumerate() {
            let mut requests = [ReceiveRequest { id: 0, sges: &[] }; LIST];
            for (request, (id, end)) in requests.iter_mut().zip(part) {
                *request = ReceiveRequest { id: *id, sges: &sges[start..*end] };
                start = *end;
            }
            if let Err(refused) = soft.post(&requests[..part.len()]) {
                let taken = refused.after(number * LIST).taken;
                return Err(BatchError { taken, given, error: queue.refusal(refused) });
            }
        }
        match wrong {
            Some(error) => Err(BatchError { taken: items.len(), given, error }),
            None => Ok(()),
        }
    }

    fn try_add(&mut self, receive: &Receive<'a>) -> Result<(), PostError> {
        let (queue, by) = (self.queue, self.queue.target());
        if !queue.is(receive.queue) {
            return Err(PostError::OtherQueue { work: receive.queue.target(), batch: by });
        }
        match queue.taker() {
            Taker::Soft(_) => receive.pieces.with_sges(queue.domain(), by, |sges| {
                self.sges.extend_from_slice(sges);
                self.items.push((receive.id, self.sges.len()));
                Ok(())
            }),
            Taker::Card(_) => receive.pieces.with_card_pieces(queue.domain(), by, |pieces| {
                self.pieces.extend_from_slice(pieces);
                self.items.push((receive.id, self.pieces.len()));
                Ok(())
            }),
        }
    }
}
