//! The sizes that items come in.

use super::error::PoolError;

/// The most classes that a pool may have; more would not help.
const MOST_CLASSES: usize = 256;

/// A slab is one message at most.
const LARGEST_SLAB: usize = 1 << 31;

/// Sizes in ascending order. The last is the size of a slab.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    sizes: Box<[usize]>,
}

impl Classes {
    pub(super) fn new(slab: usize, first: usize, factor: f64, alignment: usize) -> Result<Self, PoolError> {
        if !alignment.is_power_of_two() || !(8..=4096).contains(&alignment) {
            return Err(PoolError::Alignment { alignment });
        }
        if !slab.is_multiple_of(alignment) || !(alignment..=LARGEST_SLAB).contains(&slab) {
            return Err(PoolError::SlabSize { slab, alignment, largest: LARGEST_SLAB });
        }
        if !(1..=slab).contains(&first) {
            return Err(PoolError::FirstSize { first, slab });
        }
        if !(1.001..=1024.0).contains(&factor) {
            return Err(PoolError::Factor { factor });
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is at most 1,024,000"
        )]
        let thousandths = (factor * 1000.0).round() as usize;
        let (mut sizes, mut size) = (Vec::new(), first.next_multiple_of(alignment));
        while size < slab {
            if sizes.len() + 1 == MOST_CLASSES {
                return Err(PoolError::TooManyClasses { first, factor, slab, limit: MOST_CLASSES });
            }
            sizes.push(size);
            let larger = (size * thousandths).div_ceil(1000).next_multiple_of(alignment);
            size = larger.max(size + alignment);
        }
        sizes.push(slab);
        Ok(Self { sizes: sizes.into() })
    }

    /// The class for items of this size.
    pub(super) fn of(&self, size: usize) -> Option<usize> {
        let class = self.sizes.partition_point(|&room| room < size);
        (class < self.sizes.len()).then_some(class)
    }

    pub(super) fn size(&self, class: usize) -> usize {
        self.sizes[class]
    }

    pub(super) fn largest(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
    }

    pub(super) const fn sizes(&self) -> &[usize] {
        &self.sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_double_up_to_the_slab() {
        let classes = Classes::new(1024, 64, 2.0, 8).unwrap();
        assert_eq!(classes.sizes(), [64, 128, 256, 512, 1024]);
        assert_eq!([0, 1, 64, 65, 1024].map(|size| classes.of(size)), [0, 0, 0, 1, 4].map(Some));
        assert_eq!(classes.of(1025), None);
    }

    #[test]
    fn small_factors_still_grow() {
        let classes = Classes::new(100 * 8, 3, 1.001, 8).unwrap();
        assert_eq!(classes.sizes().len(), 100);
        assert!(classes.sizes().is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn the_last_class_is_a_slab_whatever_the_factor() {
        let classes = Classes::new(1000, 24, 3.0, 8).unwrap();
        assert_eq!(classes.sizes(), [24, 72, 216, 648, 1000]);
        assert_eq!(Classes::new(64, 64, 2.0, 64).unwrap().sizes(), [64]);
        assert_eq!(Classes::new(64, 60, 2.0, 8).unwrap().sizes(), [64]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_both_values() {
        let error =
            |slab, first, factor, alignment| Classes::new(slab, first, factor, alignment).unwrap_err();
        assert!(matches!(error(64, 8, 2.0, 12), PoolError::Alignment { alignment: 12 }));
        assert!(matches!(error(64, 8, 2.0, 4), PoolError::Alignment { alignment: 4 }));
        assert!(matches!(error(100, 8, 2.0, 8), PoolError::SlabSize { slab: 100, alignment: 8, .. }));
        assert!(matches!(error(0, 8, 2.0, 8), PoolError::SlabSize { slab: 0, .. }));
        assert!(matches!(error(1 << 32, 8, 2.0, 8), PoolError::SlabSize { .. }));
        assert!(matches!(error(64, 0, 2.0, 8), PoolError::FirstSize { first: 0, slab: 64 }));
        assert!(matches!(error(64, 65, 2.0, 8), PoolError::FirstSize { first: 65, slab: 64 }));
        for factor in [1.0, 0.5, -2.0, f64::NAN, f64::INFINITY, 2000.0] {
            assert!(matches!(error(64, 8, factor, 8), PoolError::Factor { .. }), "{factor}");
        }
        assert!(matches!(error(1 << 20, 8, 1.001, 8), PoolError::TooManyClasses { limit: 256, .. }));
    }
}
