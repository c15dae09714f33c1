//! Memory that a program lends for registrations that are made again and again.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use ferroce_transport::Access;

use crate::card::kept::{Kind, Loan};
use crate::error::CreateError;
use crate::memory::Memory;
use crate::memory_region::MemoryRegion;
use crate::protection_domain::Domain;
use crate::ranges::bounds;

/// Memory that is lent to a protection domain: regions of it that are dropped stay registered, and the next of the same bytes and access
/// are the same. A card takes long to register, so this is for programs that do it for each message.
///
/// Dropping it ends that: what is kept is deregistered, and regions that are there still go as others do. The memory is freed with the
/// last of its handles, regions and work, as always.
///
/// A region that is kept has a key, and a peer that knows it can use it though the region was dropped: lend memory for remote
/// access only if that is meant.
///
/// ```
/// # use ferroce_verbs::{Access, Context};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = Context::builder("ferroce_lo").address([127, 0, 41, 21]).open()?;
/// let pd = context.protection_domain()?;
/// let pictures = pd.lend(vec![0; 1 << 20]);
/// for number in 0..100 {
///     // Registered four times, on a card.
///     let start = number % 4 * 4096;
///     let region = pictures.region(start..start + 4096, Access::empty())?;
///     // Work that names the region.
/// }
/// assert_eq!(pictures.take_back().len(), 1 << 20);
/// # Ok(())
/// # }
/// ```
pub struct LentMemory {
    domain: Arc<Domain>,
    memory: Memory,
    /// On a card.
    loan: Option<Loan>,
}

impl LentMemory {
    pub(crate) fn new(domain: &Arc<Domain>, memory: Memory) -> Self {
        let loan = match &**domain {
            Domain::Card { kept, .. } => Some(kept.begin_loan()),
            Domain::Soft { .. } => None,
        };
        Self { domain: Arc::clone(domain), memory, loan }
    }

    /// A region of some of its bytes: one that was dropped, or a new one.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    #[track_caller]
    pub fn region(
        &self,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        let (start, end) = bounds(&range, self.memory.len());
        match self.loan {
            Some(loan) => {
                let kind = Kind::Lent { loan, start, end, access };
                MemoryRegion::kept(&self.domain, kind, || Ok((self.memory.clone(), (start, end))), access)
            }
            None => {
                let address = self.memory.address().saturating_add(start as u64);
                MemoryRegion::new(&self.domain, self.memory.clone(), (start, end), (address, false), access)
            }
        }
    }

    /// The memory.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Ends the loan. The memory turns back into what it was made of once its regions and the work that names them are gone.
    #[must_use]
    pub fn take_back(self) -> Memory {
        self.memory.clone()
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        // A process that was forked has none, and a thread that it does not have may hold the lock.
        if let (Some(loan), Domain::Card { kept, card, .. }) = (self.loan, &*self.domain)
            && card.is_ours()
        {
            kept.end_loan(loan);
        }
    }
}

impl fmt::Debug for LentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentMemory({} bytes at 0x{:x})", self.memory.len(), self.memory.address())
    }
}
