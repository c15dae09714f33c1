//! Round trips of one flow, in little room.

use smallvec::SmallVec;

use crate::histogram::{self, Histogram};

/// How many round trips were in which bucket of a [`Histogram`]: most flows have one or two in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trips(SmallVec<[(u16, u32); 2]>);

impl Trips {
    /// Adds all round trips of a histogram.
    pub fn add(&mut self, histogram: &Histogram) {
        for (bucket, more) in histogram.iter() {
            // There are fewer than a thousand buckets.
            let bucket = u16::try_from(bucket).unwrap_or(u16::MAX);
            match self.0.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
                Ok(place) => self.0[place].1 = self.0[place].1.saturating_add(more),
                Err(place) => self.0.insert(place, (bucket, more)),
            }
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// A time that this part of all is no longer than, in nanoseconds; none if there is none.
    #[must_use]
    pub fn percentile(&self, part: f64) -> Option<u64> {
        quantile(&self.0, part).map(nanos)
    }

    /// The longest time of each bucket in nanoseconds, and how many it holds.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.0.iter().map(|(bucket, count)| (nanos(*bucket), *count))
    }

    /// Buckets and their counts.
    pub(super) fn buckets(&self) -> &[(u16, u32)] {
        &self.0
    }

    /// Bytes beside those of the value itself.
    pub(super) fn heap(&self) -> usize {
        if self.0.spilled() { self.0.capacity() * size_of::<(u16, u32)>() } else { 0 }
    }
}

/// The longest time of a bucket, in nanoseconds.
pub(super) const fn nanos(bucket: u16) -> u64 {
    histogram::end(bucket as u32)
}

/// The bucket of the time that this part of all is no longer than; buckets grow, and may come more than once.
pub(super) fn quantile(buckets: &[(u16, u32)], part: f64) -> Option<u16> {
    let all: u64 = buckets.iter().map(|(_, count)| u64::from(*count)).sum();
    #[expect(clippy::cast_precision_loss, reason = "a rank, to within one in 2^52")]
    let rank = (all as f64 * part.clamp(0.0, 1.0)).ceil().max(1.0);
    let mut sum = 0.0;
    let reaches = |(bucket, count): &(u16, u32)| {
        sum += f64::from(*count);
        (sum >= rank).then_some(*bucket)
    };
    buckets.iter().find_map(reaches)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn histogram(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        times.iter().for_each(|nanos| histogram.add(Duration::from_nanos(*nanos)));
        histogram
    }

    proptest! {
        #[test]
        fn round_trips_are_those_of_the_histograms(
            one in proptest::collection::vec(0_u64..1 << 40, 0..30),
            other in proptest::collection::vec(0_u64..1 << 40, 1..30),
            part in 0.0..=1.0_f64,
        ) {
            let mut trips = Trips::default();
            trips.add(&histogram(&one));
            trips.add(&histogram(&other));
            let whole = histogram(&[one, other].concat());
            prop_assert_eq!(trips.count(), whole.count());
            let exact = u64::try_from(whole.percentile(part).unwrap().as_nanos()).unwrap();
            let found = trips.percentile(part).unwrap();
            // The histogram also knows its longest time.
            prop_assert!(found >= exact && found - exact <= exact / 16 + 1, "{} for {}", found, exact);
        }
    }

    #[test]
    fn without_round_trips_there_is_no_percentile() {
        assert_eq!(Trips::default().percentile(0.5), None);
    }
}
