//! What happened when: a fixed number of stretches, which double in length as a record goes on.

/// Stretches at most.
pub(super) const STRETCHES: usize = 64;

/// How long a stretch is at first: a millisecond.
const SHORTEST: u64 = 1_000_000;

/// What happened in one stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) posted: u64,
    pub(super) ended: u64,
    pub(super) errors: u64,
    pub(super) out: u64,
    pub(super) came: u64,
    pub(super) bytes_out: u64,
    pub(super) bytes_came: u64,
    /// Sends of all queues that were not over, at most.
    pub(super) depth: u64,
}

impl Bucket {
    pub(super) const fn plus(self, other: &Self) -> Self {
        Self {
            posted: self.posted + other.posted,
            ended: self.ended + other.ended,
            errors: self.errors + other.errors,
            out: self.out + other.out,
            came: self.came + other.came,
            bytes_out: self.bytes_out + other.bytes_out,
            bytes_came: self.bytes_came + other.bytes_came,
            depth: if self.depth > other.depth { self.depth } else { other.depth },
        }
    }
}

/// All stretches.
#[derive(Debug)]
pub(super) struct Series {
    /// When the first one begins.
    first: Option<u64>,
    pub(super) width: u64,
    buckets: Vec<Bucket>,
}

impl Default for Series {
    fn default() -> Self {
        Self { first: None, width: SHORTEST, buckets: Vec::new() }
    }
}

impl Series {
    /// The stretch of this time; what is a little before the first belongs to it.
    pub(super) fn at(&mut self, time: u64) -> &mut Bucket {
        let first = *self.first.get_or_insert(time);
        let ahead = time.saturating_sub(first);
        while ahead / self.width >= STRETCHES as u64 {
            self.width = self.width.saturating_mul(2);
            self.buckets =
                self.buckets.chunks(2).map(|two| two.iter().fold(Bucket::default(), Bucket::plus)).collect();
        }
        let place = usize::try_from(ahead / self.width).unwrap_or(STRETCHES - 1);
        if self.buckets.len() <= place {
            self.buckets.resize(place + 1, Bucket::default());
        }
        &mut self.buckets[place]
    }

    /// Each stretch and when it begins, so many put together that there are no more than this.
    pub(super) fn rows(&self, most: usize) -> (u64, Vec<(u64, Bucket)>) {
        let together = self.buckets.len().div_ceil(most).max(1);
        let width = self.width * together as u64;
        let sums =
            self.buckets.chunks(together).map(|some| some.iter().fold(Bucket::default(), Bucket::plus));
        let first = self.first.unwrap_or(0);
        let rows = (0..).zip(sums).map(|(place, sum): (u64, _)| (first + place * width, sum));
        (width, rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However long a record is, nothing is lost, and there are only so many stretches.
        #[test]
        fn all_that_happened_is_in_a_stretch(start in 0_u64..1 << 40, steps in vec(0_u64..1 << 33, 1..200), most in 1_usize..70) {
            let mut series = Series::default();
            let (mut time, mut times) = (start, Vec::new());
            for step in &steps {
                time += step;
                times.push(time);
                series.at(time).posted += 1;
            }
            let (width, rows) = series.rows(most);
            prop_assert!(rows.len() <= most.min(STRETCHES));
            for (begin, bucket) in rows {
                let within = times.iter().filter(|time| (begin..begin + width).contains(time)).count();
                prop_assert_eq!(bucket.posted, within as u64);
            }
        }
    }
}
