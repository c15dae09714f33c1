//! Sums since the start. They never go backwards.

use std::collections::{BTreeMap, HashMap};

use ferroce_mesh::Outcomes;

use super::finding::{BoardFinding, Kind};
use super::tors::TorPlace;
use crate::histogram::{self, Histogram};
use crate::window::named;

/// The longest time of each bucket of round trips, as a power of two of nanoseconds: then each bucket of a
/// [`Histogram`] is in one of these and no other.
pub(crate) const POWERS: [u32; 16] = [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 28, 30];

/// Round trips of one ToR: how many were in which bucket; the last one has those beyond all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// Beginning with the shortest.
    pub counts: [u64; POWERS.len() + 1],
    /// Their sum in nanoseconds, each as the longest time of its bucket, so to within 6 %.
    pub sum: u64,
}

impl RoundTrips {
    fn add(&mut self, trips: &Histogram) {
        for (bucket, count) in trips.iter() {
            let nanos = histogram::end(bucket);
            let place = POWERS.partition_point(|power| nanos >= 1 << power);
            self.counts[place] = self.counts[place].saturating_add(count.into());
            self.sum = self.sum.saturating_add(nanos.saturating_mul(count.into()));
        }
    }
}

/// Outcomes in the order of their names; `slow` is a part of `ok`.
pub type Counts = [u64; 8];

/// Sums since the start.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pairs: HashMap<(TorPlace, TorPlace), Counts>,
    trips: BTreeMap<TorPlace, RoundTrips>,
    opened: [u64; Kind::ALL.len()],
    over: [u64; Kind::ALL.len()],
    /// Findings that are open, as what they were when they opened.
    kinds: HashMap<(u64, u64), Kind>,
}

impl Totals {
    pub(super) fn flow(&mut self, from: TorPlace, to: TorPlace, outcomes: &Outcomes, trips: &Histogram) {
        let counts = self.pairs.entry((from, to)).or_default();
        for (count, (_, more)) in counts.iter_mut().zip(named(outcomes)) {
            *count = count.saturating_add(more);
        }
        self.trips.entry(from).or_default().add(trips);
    }

    /// Which findings are open now, and which ended.
    pub(super) fn findings(&mut self, open: &[BoardFinding], over: &[BoardFinding]) {
        let key = |finding: &BoardFinding| (finding.id, finding.since);
        for finding in open.iter().chain(over) {
            let Self { kinds, opened, .. } = self;
            kinds.entry(key(finding)).or_insert_with(|| {
                opened[finding.kind() as usize] += 1;
                finding.kind()
            });
        }
        // What is not open any more is over, also if nothing was said of it.
        self.kinds.retain(|known, kind| {
            let is_open = open.iter().any(|finding| key(finding) == *known);
            if !is_open {
                self.over[*kind as usize] += 1;
            }
            is_open
        });
    }

    /// Outcomes from each ToR, in the order of their names.
    #[must_use]
    pub fn by_tor(&self) -> BTreeMap<TorPlace, Counts> {
        let mut sums: BTreeMap<TorPlace, Counts> = BTreeMap::new();
        for ((from, _), counts) in &self.pairs {
            let sum = sums.entry(*from).or_default();
            sum.iter_mut().zip(counts).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        }
        sums
    }

    /// Outcomes from one ToR to another.
    #[must_use]
    pub fn pair(&self, from: TorPlace, to: TorPlace) -> Counts {
        self.pairs.get(&(from, to)).copied().unwrap_or_default()
    }

    /// Outcomes of all, in the order of their names.
    #[must_use]
    pub fn all(&self) -> Counts {
        let mut sums = Counts::default();
        for counts in self.pairs.values() {
            sums.iter_mut().zip(counts).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        }
        sums
    }

    /// Round trips of probes from each ToR.
    #[must_use]
    pub const fn round_trips(&self) -> &BTreeMap<TorPlace, RoundTrips> {
        &self.trips
    }

    /// For each kind: findings that were opened, and that are over.
    pub fn findings_by_kind(&self) -> impl Iterator<Item = (Kind, u64, u64)> + '_ {
        let sums = self.opened.iter().zip(&self.over);
        Kind::ALL.into_iter().zip(sums).map(|(kind, (opened, over))| (kind, *opened, *over))
    }

    pub(super) fn bytes(&self) -> usize {
        self.pairs.capacity() * (size_of::<((TorPlace, TorPlace), Counts)>() + 1)
            + self.trips.len() * size_of::<(TorPlace, RoundTrips)>()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_round_trip_is_in_the_bucket_that_it_belongs_to() {
        for (nanos, place) in
            [(0, 0), (4095, 0), (4096, 1), (8191, 1), (1 << 30, 16), ((1 << 30) - 1, 15), (u64::MAX, 16)]
        {
            let (mut trips, mut histogram) = (RoundTrips::default(), Histogram::default());
            histogram.add(Duration::from_nanos(nanos));
            trips.add(&histogram);
            assert_eq!(trips.counts[place], 1, "{nanos} ns: {trips:?}");
            assert!(trips.sum >= nanos);
        }
    }
}
