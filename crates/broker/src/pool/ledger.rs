//! Which posted work holds which items.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferroce_verbs::{LocalSlice, QueuePair};

use super::item::{Item, Loan};

/// The items that posted work of one queue pair holds. It is the one way from an [`Item`] to work, so that no
/// item is dealt out again while the device reads or writes it.
///
/// ```
/// # use ferroce_broker::pool::{Ledger, Pool};
/// # use ferroce_verbs::{Access, Context, Service};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = Context::builder("ferroce_lo").address([127, 0, 151, 2]).open()?;
/// # let domain = context.protection_domain()?;
/// # let cq = context.completion_queue(16)?;
/// # let ann = domain.queue_pair(Service::Rc).completion_queue(&cq).build()?;
/// # let bob = domain.queue_pair(Service::Rc).completion_queue(&cq).build()?;
/// # ann.connect(&bob.local_address())?;
/// # bob.connect(&ann.local_address())?;
/// # let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// # let pool = Pool::builder().slab_size(1 << 16).allocate(&domain, 1 << 20, access)?;
/// let (item, target, ledger) = (pool.alloc(1, 5)?, pool.alloc(2, 5)?, Ledger::new());
/// item.write_at(0, b"hello")?;
/// ledger.post([&item], |[slice], id| ann.write(slice, target.remote()).id(id).post())?;
/// drop(item); // Its memory stays until the work is done.
/// let completion = cq.wait(None)?;
/// ledger.complete(completion.id);
/// assert_eq!(target.to_vec(..)?, b"hello");
/// # Ok(())
/// # }
/// ```
///
/// The program gives the work the number that it is told, and says when that number has completed, well or
/// badly. Work that asks for no completion of its own is done when later work of its queue pair is:
/// [`complete_through`](Self::complete_through).
///
/// A ledger that is dropped while work is under way never frees the items, because the device may still use
/// them. [`end`](Self::end) ends the queue pair first, and frees them then.
#[derive(Debug, Default)]
pub struct Ledger {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The number of the last work.
    last: u64,
    /// By number, from the oldest: `None` are done, and go when they come first. Work with several items has
    /// several.
    loans: VecDeque<(u64, Option<Loan>)>,
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has work posted that names these items. `post` gets them as slices, in their order, and the number for
    /// the completion. If it fails, the items are as before: it must not have posted anything then.
    ///
    /// `post` runs while the ledger is locked, so that numbers rise in the order of posting. It must not call
    /// the ledger.
    ///
    /// # Errors
    /// What `post` gives.
    pub fn post<const N: usize, T, E>(
        &self,
        items: [&Item; N],
        post: impl FnOnce([LocalSlice<'_>; N], u64) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut open = self.open();
        let id = open.last + 1;
        let loans = items.map(Item::lend);
        let posted = post(loans.each_ref().map(Loan::slice), id)?;
        open.last = id;
        open.loans.extend(loans.map(|loan| (id, Some(loan))));
        Ok(posted)
    }

    /// The work of this number has completed, whatever came of it. Its items are free if nothing else holds
    /// them. Returns how many items it held: 0 if the number is not open.
    pub fn complete(&self, id: u64) -> usize {
        let mut open = self.open();
        let from = open.loans.partition_point(|&(other, _)| other < id);
        let to = open.loans.partition_point(|&(other, _)| other <= id);
        let done = open.loans.range_mut(from..to).filter_map(|(_, loan)| loan.take()).count();
        while open.loans.front().is_some_and(|(_, loan)| loan.is_none()) {
            open.loans.pop_front();
        }
        done
    }

    /// The work of this number has completed, and all work before it on the same queue pair.
    /// Returns how many items they held.
    pub fn complete_through(&self, id: u64) -> usize {
        let mut open = self.open();
        let to = open.loans.partition_point(|&(other, _)| other <= id);
        open.loans.drain(..to).filter_map(|(_, loan)| loan).count()
    }

    /// How many items posted work holds; an item that is lent twice counts twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open().loans.iter().filter(|(_, loan)| loan.is_some()).count()
    }

    /// Whether posted work holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue pair with all its work, and then lets go of the items. It must be the one that all the
    /// work was posted on.
    pub fn end(self, queue_pair: QueuePair) {
        drop(queue_pair);
        self.open().loans.clear();
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // The device may still be at work on these.
        for (_, loan) in self.open().loans.drain(..) {
            std::mem::forget(loan);
        }
    }
}
