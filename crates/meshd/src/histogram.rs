//! Times in buckets, so that the histograms of many windows and agents can be put together.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::proto::v1;

/// Buckets that double the time, as a power of two.
const FINE: u32 = 4;

/// Buckets that there are.
const ALL: u32 = (64 - FINE + 1) << FINE;

/// How many times were how long: 16 buckets double the time, so each is known to within 6 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: BTreeMap<u32, u32>,
    min: u64,
    max: u64,
}

/// Why a message is no histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HistogramError {
    /// There are not as many counts as buckets.
    #[error("{buckets} buckets and {counts} counts; there is one count for each bucket")]
    Lengths {
        /// Numbers of buckets.
        buckets: usize,
        /// Counts.
        counts: usize,
    },
    /// A bucket that does not exist, is empty, or comes after a larger one.
    #[error("bucket {bucket} with {count} times is none, empty, or out of order")]
    Bucket {
        /// Its number.
        bucket: u32,
        /// What it should hold.
        count: u32,
    },
    /// The shortest and the longest time are not those of the first and the last bucket.
    #[error("times from {min} to {max} ns do not belong to the buckets")]
    Range {
        /// The shortest.
        min: u64,
        /// The longest.
        max: u64,
    },
}

impl Histogram {
    /// Adds a time.
    pub fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.min = if self.buckets.is_empty() { nanos } else { self.min.min(nanos) };
        self.max = self.max.max(nanos);
        let count = self.buckets.entry(bucket(nanos)).or_default();
        *count = count.saturating_add(1);
    }

    /// Adds all times of another one.
    pub fn merge(&mut self, other: &Self) {
        if other.buckets.is_empty() {
            return;
        }
        self.min = if self.buckets.is_empty() { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        for (bucket, more) in &other.buckets {
            let count = self.buckets.entry(*bucket).or_default();
            *count = count.saturating_add(*more);
        }
    }

    /// Forgets half of each bucket.
    pub(crate) fn halve(&mut self) {
        self.buckets.retain(|_, count| {
            *count /= 2;
            *count > 0
        });
    }

    /// How many times there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.values().map(|count| u64::from(*count)).sum()
    }

    /// A time that this part of all is no longer than, from 0 to 1; none if there is none.
    #[must_use]
    pub fn percentile(&self, part: f64) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "a rank, to within one in 2^52")]
        let rank = (self.count() as f64 * part.clamp(0.0, 1.0)).ceil().max(1.0);
        let mut sum = 0.0;
        let reaches = |(bucket, count): (&u32, &u32)| {
            sum += f64::from(*count);
            (sum >= rank).then_some(*bucket)
        };
        let found = self.buckets.iter().find_map(reaches)?;
        Some(Duration::from_nanos(end(found).clamp(self.min, self.max)))
    }

    /// Numbers of buckets that hold something, growing, and how many each holds.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.buckets.iter().map(|(bucket, count)| (*bucket, *count))
    }

    pub(crate) fn to_message(&self) -> v1::Histogram {
        let (buckets, counts) = self.buckets.iter().unzip();
        v1::Histogram { buckets, counts, min_ns: self.min, max_ns: self.max }
    }

    pub(crate) fn from_message(message: &v1::Histogram) -> Result<Self, HistogramError> {
        let v1::Histogram { buckets, counts, min_ns: min, max_ns: max } = message;
        if buckets.len() != counts.len() {
            return Err(HistogramError::Lengths { buckets: buckets.len(), counts: counts.len() });
        }
        let mut least = 0;
        for (bucket, count) in buckets.iter().zip(counts) {
            if *bucket < least || *bucket >= ALL || *count == 0 {
                return Err(HistogramError::Bucket { bucket: *bucket, count: *count });
            }
            least = bucket + 1;
        }
        let belongs = match (buckets.first(), buckets.last()) {
            (Some(first), Some(last)) => bucket(*min) == *first && bucket(*max) == *last && min <= max,
            _ => *min == 0 && *max == 0,
        };
        if !belongs {
            return Err(HistogramError::Range { min: *min, max: *max });
        }
        let buckets = buckets.iter().copied().zip(counts.iter().copied()).collect();
        Ok(Self { buckets, min: *min, max: *max })
    }
}

/// The bucket of a time: exact below 32 ns, then by the highest bit and the four below it.
#[expect(clippy::cast_possible_truncation, reason = "no more than five bits are left")]
const fn bucket(nanos: u64) -> u32 {
    let high = 63 - (nanos | 1).leading_zeros();
    if high <= FINE {
        return nanos as u32;
    }
    let shift = high - FINE;
    (shift << FINE) + (nanos >> shift) as u32
}

/// The longest time of a bucket, in nanoseconds.
pub(crate) const fn end(bucket: u32) -> u64 {
    if bucket < 2 << FINE {
        return bucket as u64;
    }
    let shift = (bucket >> FINE) - 1;
    let top = (bucket - (shift << FINE)) as u64;
    // Of the last bucket, one more would not fit.
    ((top << shift) - 1) + (1 << shift)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        times.iter().for_each(|nanos| histogram.add(Duration::from_nanos(*nanos)));
        histogram
    }

    proptest! {
        #[test]
        fn a_bucket_is_no_wider_than_a_sixteenth_of_its_times(nanos in any::<u64>()) {
            let bucket = bucket(nanos);
            prop_assert!(bucket < ALL && nanos <= end(bucket));
            prop_assert!(end(bucket) - nanos <= nanos / 16);
            prop_assert!(bucket == 0 || end(bucket - 1) < nanos);
        }

        #[test]
        fn merged_is_as_if_all_were_added_to_one(
            one in proptest::collection::vec(0_u64..1 << 40, 0..50),
            other in proptest::collection::vec(0_u64..1 << 40, 0..50),
        ) {
            let mut merged = of(&one);
            merged.merge(&of(&other));
            let all = of(&[one, other].concat());
            prop_assert_eq!(&merged, &all);
            prop_assert_eq!(Histogram::from_message(&all.to_message()), Ok(all));
        }

        #[test]
        fn a_percentile_is_within_a_sixteenth_of_the_true_one(
            mut times in proptest::collection::vec(0_u64..1 << 40, 1..200), part in 0.0..=1.0_f64,
        ) {
            let found = u64::try_from(of(&times).percentile(part).unwrap().as_nanos()).unwrap();
            times.sort_unstable();
            // The first of which no fewer than this part are no longer.
            let all = f64::from(u32::try_from(times.len()).unwrap());
            let place = (1..=times.len()).find(|rank| f64::from(u32::try_from(*rank).unwrap()) >= all * part);
            let exact = times[place.unwrap() - 1];
            prop_assert!(found >= exact && found - exact <= exact / 16, "{found} for {exact}");
        }
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        let good = of(&[5, 700, 700, 90_000]).to_message();
        let with = |change: fn(&mut v1::Histogram)| {
            let mut other = good.clone();
            change(&mut other);
            Histogram::from_message(&other)
        };
        assert!(with(|_| ()).is_ok());
        assert_eq!(with(|h| h.counts.truncate(2)), Err(HistogramError::Lengths { buckets: 3, counts: 2 }));
        assert!(matches!(with(|h| h.buckets.swap(0, 1)), Err(HistogramError::Bucket { .. })));
        assert!(matches!(with(|h| h.buckets[1] = 5), Err(HistogramError::Bucket { bucket: 5, .. })));
        assert!(matches!(with(|h| h.buckets[2] = ALL), Err(HistogramError::Bucket { bucket: ALL, .. })));
        assert!(matches!(with(|h| h.counts[0] = 0), Err(HistogramError::Bucket { count: 0, .. })));
        assert!(matches!(with(|h| h.max_ns = 89), Err(HistogramError::Range { max: 89, .. })));
        assert!(matches!(with(|h| h.min_ns = 4), Err(HistogramError::Range { min: 4, .. })));
    }
}
