//! Several requests with one doorbell.

use std::ops::Range;

use ferroce_transport::{Data, SendRequest, Sge};

use crate::card;
use crate::error::{BatchError, PostError, PostTarget};
use crate::queue_pair::{Of, QueuePair};
use crate::work::Work;

/// Requests that are handed to the device at once, in their order: one doorbell instead of many.
///
/// ```no_run
/// # use ferroce_verbs::{BatchError, MemoryRegion, QueuePair, RemoteRegion};
/// # fn f(qp: &QueuePair, region: &MemoryRegion, remote: RemoteRegion) -> Result<(), BatchError> {
/// let mut batch = qp.batch();
/// for part in 0..4 {
///     batch.add(qp.write(region.slice(part * 64..), remote).id(part as u64));
/// }
/// batch.post()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a batch is not done until `post`"]
pub struct Batch<'a> {
    queue_pair: &'a QueuePair,
    items: Vec<Item<'a>>,
    sges: Vec<Sge>,
    /// For a card, instead of the two.
    card: Vec<Work<'a>>,
    given: usize,
    /// Why the first request after `items` was refused.
    wrong: Option<PostError>,
}

/// A request whose pieces are elsewhere.
#[derive(Debug)]
struct Item<'a> {
    request: SendRequest<'a>,
    /// Its pieces, unless its bytes are in the request.
    pieces: Option<Range<usize>>,
}

impl<'a> Batch<'a> {
    pub(crate) const fn new(queue_pair: &'a QueuePair) -> Self {
        Self { queue_pair, items: Vec::new(), sges: Vec::new(), card: Vec::new(), given: 0, wrong: None }
    }

    /// Makes room for so many more, of one piece each.
    pub fn reserve(&mut self, more: usize) {
        match self.queue_pair.of() {
            Of::Soft(_) => {
                self.items.reserve(more);
                self.sges.reserve(more);
            }
            Of::Card(_) => self.card.reserve(more),
        }
    }

    /// Adds work of this queue pair. What is wrong with it comes to light with [`post`](Self::post).
    pub fn add(&mut self, work: Work<'a>) {
        self.given += 1;
        if self.wrong.is_some() {
            return;
        }
        if let Err(error) = self.try_add(&work) {
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
        let Self { queue_pair, items, sges, card, given, wrong } = self;
        let qp = match queue_pair.of() {
            Of::Soft(qp) => qp,
            Of::Card(qp) => return card::post::send_all(qp, &card, given, wrong),
        };
        let with_pieces = |item: &Item<'a>| match &item.pieces {
            Some(range) => SendRequest { data: Data::Gather(&sges[range.clone()]), ..item.request },
            None => item.request,
        };
        let requests: Vec<SendRequest<'_>> = items.iter().map(with_pieces).collect();
        if let Err(refused) = qp.post_send(&requests) {
            let (by, taken) = (PostTarget::QueuePair(queue_pair.qpn()), refused.taken);
            return Err(BatchError { taken, given, error: PostError::Refused { by, error: refused.error } });
        }
        match wrong {
            Some(error) => Err(BatchError { taken: items.len(), given, error }),
            None => Ok(()),
        }
    }

    fn try_add(&mut self, work: &Work<'a>) -> Result<(), PostError> {
        if !std::ptr::eq(work.queue_pair(), self.queue_pair) {
            let (work, batch) = (work.queue_pair().qpn(), self.queue_pair.qpn());
            return Err(PostError::OtherQueuePair { work, batch });
        }
        if let Of::Card(_) = self.queue_pair.of() {
            // Cards look at it when it is posted.
            self.card.push(*work);
            return Ok(());
        }
        let Self { items, sges, .. } = self;
        work.with_request(|request| {
            let SendRequest { id, op, data, flags, dest } = *request;
            let (data, pieces) = match (data, work.inline()) {
                (Data::Gather(pieces), _) => {
                    let start = sges.len();
                    sges.extend_from_slice(pieces);
                    (Data::Gather(&[]), Some(start..sges.len()))
                }
                (Data::Inline(_), bytes) => (Data::Inline(bytes.unwrap_or_default()), None),
            };
            items.push(Item { request: SendRequest { id, op, data, flags, dest }, pieces });
            Ok(())
        })
    }
}
