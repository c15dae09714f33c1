//! Registrations that are kept for later, because a card takes long to make one.
//!
//! Only memory is kept that this library has allocated itself, or that a program has lent for as long as it holds a
//! [`LentMemory`](crate::LentMemory). So nothing need be known of what the program does with its memory otherwise.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use ferroce_transport::Access;

use super::lock;
use crate::memory::Memory;

/// How much a protection domain keeps registered for later; see
/// [`ProtectionDomain::keep`](crate::ProtectionDomain::keep).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    /// Bytes of all of it together.
    pub bytes: usize,
    /// Regions.
    pub regions: usize,
}

impl KeepLimits {
    /// Nothing is kept.
    pub const NOTHING: Self = Self { bytes: 0, regions: 0 };
}

impl Default for KeepLimits {
    /// 64 MiB in 256 regions.
    fn default() -> Self {
        Self { bytes: 64 << 20, regions: 256 }
    }
}

/// What a protection domain keeps registered, and what that was good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptRegions {
    /// Regions that are kept now.
    pub regions: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Times that one was used again.
    pub reused: u64,
    /// Times that one was looked for, and there was none.
    pub missed: u64,
    /// Those that went because others needed their place, or because the card had no room.
    pub evicted: u64,
}

/// The regions that a protection domain of a card keeps.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    inside: Mutex<Inside<Kind, Region>>,
}

/// A region of a card with its memory.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) region: ferroce_system::MemoryRegion,
    pub(crate) memory: Memory,
    /// Where in the memory it begins.
    pub(crate) start: usize,
}

/// What regions have in common that can stand in for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of this library's own.
    Own { len: usize, access: Access },
    /// A part of memory that was lent.
    Lent { loan: Loan, start: usize, end: usize, access: Access },
}

impl Kind {
    const fn loan(&self) -> Option<Loan> {
        match self {
            Self::Own { .. } => None,
            Self::Lent { loan, .. } => Some(*loan),
        }
    }
}

/// The number of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Loan(u64);

/// Where a region goes back to when it is dropped.
#[derive(Debug)]
pub(crate) struct WayBack {
    pub(crate) kept: Arc<Kept>,
    pub(crate) kind: Kind,
    pub(crate) memory: Memory,
    pub(crate) start: usize,
}

impl WayBack {
    /// Keeps a region, or lets go of it.
    pub(crate) fn give(self, region: ferroce_system::MemoryRegion) {
        let Self { kept, kind, memory, start } = self;
        // What a process has from its parent is of no use to it.
        if region.is_ours() {
            region.set_aside();
            let bytes = region.len();
            // To deregister takes long: that is done outside of the lock.
            let gone = lock(&kept.inside).give(kind, bytes, Region { region, memory, start });
            drop(gone);
        }
    }
}

impl Kept {
    /// Keeps no more than this from now on.
    pub(crate) fn limit(&self, limits: KeepLimits) {
        let gone = {
            let mut inside = lock(&self.inside);
            inside.limits = limits;
            inside.shrink()
        };
        drop(gone);
    }

    pub(crate) fn report(&self) -> KeptRegions {
        let inside = lock(&self.inside);
        KeptRegions { regions: inside.entries.len(), bytes: inside.bytes, ..inside.told }
    }

    /// A region of this kind, if one is kept that can be used. Of this library's own memory, it is one that no work names any more;
    /// memory that was lent is the program's own affair.
    pub(crate) fn take(&self, kind: &Kind) -> Option<Region> {
        let own = kind.loan().is_none();
        lock(&self.inside).take(kind, |kept| !own || kept.region.is_idle())
    }

    /// Lets go of all that is kept; whether there was something.
    pub(crate) fn empty(&self) -> bool {
        let gone = lock(&self.inside).empty();
        !gone.is_empty()
    }

    pub(crate) fn begin_loan(&self) -> Loan {
        lock(&self.inside).begin_loan()
    }

    /// Nothing of this loan is kept any more, also what is given back later.
    pub(crate) fn end_loan(&self, loan: Loan) {
        let gone = lock(&self.inside).end_loan(loan);
        drop(gone);
    }
}

/// What is kept, the one that was given back longest ago first. It knows nothing of cards.
#[derive(Debug)]
struct Inside<K, R> {
    limits: KeepLimits,
    entries: VecDeque<(K, usize, R)>,
    bytes: usize,
    /// Loans that have not ended.
    loans: HashSet<Loan>,
    last_loan: u64,
    told: KeptRegions,
}

impl<K, R> Default for Inside<K, R> {
    fn default() -> Self {
        Self {
            limits: KeepLimits::default(),
            entries: VecDeque::new(),
            bytes: 0,
            loans: HashSet::new(),
            last_loan: 0,
            told: KeptRegions::default(),
        }
    }
}

impl<R> Inside<Kind, R> {
    /// Keeps one, and says which others had to go; this one, if its loan is over or it is too large.
    fn give(&mut self, kind: Kind, bytes: usize, region: R) -> Vec<R> {
        let is_over = kind.loan().is_some_and(|loan| !self.loans.contains(&loan));
        if is_over || bytes > self.limits.bytes || self.limits.regions == 0 {
            return vec![region];
        }
        self.bytes += bytes;
        self.entries.push_back((kind, bytes, region));
        self.shrink()
    }

    /// The one of this kind that was given back last, of those that can be used.
    fn take(&mut self, kind: &Kind, mut can_be_used: impl FnMut(&mut R) -> bool) -> Option<R> {
        let found =
            self.entries.iter_mut().rposition(|(known, _, region)| known == kind && can_be_used(region));
        let Some((_, bytes, region)) = found.and_then(|at| self.entries.remove(at)) else {
            self.told.missed += 1;
            return None;
        };
        self.bytes -= bytes;
        self.told.reused += 1;
        Some(region)
    }

    /// Those that are too many.
    fn shrink(&mut self) -> Vec<R> {
        let mut gone = Vec::new();
        while self.bytes > self.limits.bytes || self.entries.len() > self.limits.regions {
            let Some((_, bytes, region)) = self.entries.pop_front() else { break };
            self.bytes -= bytes;
            gone.push(region);
        }
        self.told.evicted += gone.len() as u64;
        gone
    }

    fn empty(&mut self) -> Vec<R> {
        let limits = std::mem::replace(&mut self.limits, KeepLimits::NOTHING);
        let gone = self.shrink();
        self.limits = limits;
        gone
    }

    fn begin_loan(&mut self) -> Loan {
        self.last_loan += 1;
        let loan = Loan(self.last_loan);
        self.loans.insert(loan);
        loan
    }

    fn end_loan(&mut self, loan: Loan) -> Vec<R> {
        self.loans.remove(&loan);
        let (gone, stays) =
            self.entries.drain(..).partition::<Vec<_>, _>(|(kind, ..)| kind.loan() == Some(loan));
        self.entries = stays.into();
        self.bytes -= gone.iter().map(|(_, bytes, _)| bytes).sum::<usize>();
        gone.into_iter().map(|(.., region)| region).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn own(len: usize) -> Kind {
        Kind::Own { len, access: Access::LOCAL_WRITE }
    }

    fn inside(bytes: usize, regions: usize) -> Inside<Kind, u32> {
        Inside { limits: KeepLimits { bytes, regions }, ..Inside::default() }
    }

    #[test]
    fn what_was_given_back_last_is_taken_first_if_it_is_of_the_same_kind_and_can_be_used() {
        let mut inside = inside(1000, 10);
        for number in 1..=3 {
            assert_eq!(inside.give(own(100), 100, number), [0; 0]);
        }
        assert_eq!(inside.give(own(50), 50, 9), [0; 0]);
        let other = Kind::Own { len: 100, access: Access::empty() };
        assert_eq!((inside.take(&own(10), |_| true), inside.take(&other, |_| true)), (None, None));
        assert_eq!(inside.take(&own(100), |number| *number != 3), Some(2));
        assert_eq!(inside.take(&own(100), |_| true), Some(3));
        assert_eq!((inside.bytes, inside.entries.len()), (150, 2));
        assert_eq!((inside.told.reused, inside.told.missed), (2, 2));
    }

    #[test]
    fn the_oldest_goes_when_bytes_or_regions_are_too_many() {
        let mut inside = inside(250, 3);
        assert_eq!((inside.give(own(100), 100, 1), inside.give(own(100), 100, 2)), (vec![], vec![]));
        assert_eq!(inside.give(own(100), 100, 3), [1]);
        assert_eq!((inside.give(own(1), 1, 4), inside.give(own(1), 1, 5)), (vec![], vec![2]));
        assert_eq!(inside.give(own(251), 251, 6), [6], "it would drive out all others");
        assert_eq!((inside.bytes, inside.told.evicted), (102, 2));
        inside.limits = KeepLimits { bytes: 250, regions: 1 };
        assert_eq!(inside.shrink(), [3, 4]);
        assert_eq!((inside.empty(), inside.bytes, inside.limits.regions), (vec![5], 0, 1));
        inside.limits = KeepLimits::NOTHING;
        assert_eq!((inside.give(own(0), 0, 7), inside.empty()), (vec![7], vec![]));
    }

    #[test]
    fn of_a_loan_that_is_over_nothing_is_kept_or_comes_back() {
        let mut inside = inside(1000, 10);
        let (ann, bob) = (inside.begin_loan(), inside.begin_loan());
        let of = |loan, start| Kind::Lent { loan, start, end: start + 10, access: Access::empty() };
        for (number, kind) in [(1, of(ann, 0)), (2, own(10)), (3, of(bob, 0)), (4, of(ann, 10))] {
            assert_eq!(inside.give(kind, 10, number), [0; 0]);
        }
        assert_eq!(inside.take(&of(ann, 5), |_| true), None, "another part of the memory");
        assert_eq!(inside.end_loan(ann), [1, 4]);
        assert_eq!((inside.take(&of(ann, 0), |_| true), inside.bytes), (None, 20));
        assert_eq!(inside.give(of(ann, 0), 10, 5), [5]);
        assert_eq!(inside.take(&of(bob, 0), |_| true), Some(3));
    }
}
