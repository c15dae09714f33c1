//! What a range of Rust means as a part of memory: its first byte and the one after its last.

use std::ops::{Bound, RangeBounds};

/// A number that counts bytes.
pub trait Offset: Copy + Ord {
    /// The first.
    const FIRST: Self;

    /// The one after it, or the greatest there is.
    #[must_use]
    fn after(self) -> Self;
}

impl Offset for usize {
    const FIRST: Self = 0;

    #[inline]
    fn after(self) -> Self {
        self.saturating_add(1)
    }
}

impl Offset for u64 {
    const FIRST: Self = 0;

    #[inline]
    fn after(self) -> Self {
        self.saturating_add(1)
    }
}

/// First byte and the one after the last, of something with `len` bytes.
///
/// Nothing is checked: a range may lie outside, or end before it begins. A range without an end that begins
/// outside is empty.
#[inline]
pub fn bounds<T: Offset>(range: &impl RangeBounds<T>, len: T) -> (T, T) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.after(),
        Bound::Unbounded => T::FIRST,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.after(),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len.max(start),
    };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_they_mean_elsewhere() {
        assert_eq!(bounds(&.., 10_usize), (0, 10));
        assert_eq!(bounds(&(3..), 10_usize), (3, 10));
        assert_eq!(bounds(&(3..=5), 10_usize), (3, 6));
        assert_eq!(bounds(&(..4), 10_usize), (0, 4));
        assert_eq!(bounds(&(12..), 10_usize), (12, 12));
        assert_eq!(bounds(&(0..=usize::MAX), 10), (0, usize::MAX));
        assert_eq!(bounds(&(0..=u64::MAX), 10), (0, u64::MAX));
        assert_eq!(bounds(&(Bound::Excluded(u64::MAX), Bound::Unbounded), 10), (u64::MAX, u64::MAX));
    }
}
