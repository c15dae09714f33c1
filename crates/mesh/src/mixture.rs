//! The middle of a way that is not known: all paths that it may be, each as likely as the others.

/// No more paths are kept for one way; beyond them, nothing is said of its middle.
pub(crate) const MOST_CANDIDATES: usize = 256;

/// What paths cross of which one is taken.
#[derive(Clone, Debug)]
pub(crate) struct Mixture {
    choices: usize,
    /// Places in order, with the share of the paths that cross them.
    weights: Vec<(u32, f32)>,
    /// For each of the weights, the paths that cross the place: a bit each, in whole words.
    through: Vec<u64>,
}

impl Mixture {
    /// So many paths, no more than [`MOST_CANDIDATES`], and what is crossed: places with numbers of paths.
    pub(crate) fn new(choices: usize, mut crossed: Vec<(u32, u16)>) -> Self {
        crossed.sort_unstable();
        crossed.dedup();
        let (mut weights, mut through) = (Vec::new(), Vec::new());
        for same in crossed.chunk_by(|one, other| one.0 == other.0) {
            #[expect(clippy::cast_precision_loss, reason = "at most 256")]
            let share = same.len() as f32 / choices.max(1) as f32;
            weights.push((same[0].0, share));
            let mut paths = Choices::default();
            same.iter().for_each(|(_, path)| paths.insert(usize::from(*path)));
            through.extend(&paths.0[..words(choices)]);
        }
        Self { choices, weights, through }
    }

    pub(crate) const fn choices(&self) -> usize {
        self.choices
    }

    pub(crate) fn weights(&self) -> &[(u32, f32)] {
        &self.weights
    }

    /// The paths that cross a place.
    pub(crate) fn through(&self, place: u32) -> Choices {
        let mut paths = Choices::default();
        if let Ok(number) = self.weights.binary_search_by_key(&place, |weight| weight.0) {
            let words = words(self.choices);
            paths.0[..words].copy_from_slice(&self.through[number * words..][..words]);
        }
        paths
    }
}

fn words(choices: usize) -> usize {
    choices.div_ceil(64).min(MOST_CANDIDATES / 64)
}

/// Some of the paths that a way may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices([u64; MOST_CANDIDATES / 64]);

impl Choices {
    /// All that there can be.
    pub(crate) const ALL: Self = Self([u64::MAX; MOST_CANDIDATES / 64]);

    /// All of so many.
    pub(crate) fn first(count: usize) -> Self {
        let mut all = Self::default();
        (0..count).for_each(|path| all.insert(path));
        all
    }

    /// Beyond [`MOST_CANDIDATES`], nothing is kept.
    pub(crate) const fn insert(&mut self, path: usize) {
        if path < MOST_CANDIDATES {
            self.0[path / 64] |= 1 << (path % 64);
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_knows_which_paths_cross_a_place() {
        let crossed = (0..130).flat_map(|path| [(7, path), (100 + u32::from(path) / 65, path)]).collect();
        let mixture = Mixture::new(130, crossed);
        assert_eq!((mixture.choices(), mixture.weights()), (130, &[(7, 1.0), (100, 0.5), (101, 0.5)][..]));
        assert_eq!(mixture.through(7), Choices::first(130));
        let [one, other] = [100, 101].map(|place| mixture.through(place));
        assert_eq!((one, one.count(), one.and(&other).count()), (Choices::first(65), 65, 0));
        assert_eq!((one.or(&other), mixture.through(7).without(&one)), (Choices::first(130), other));
        assert_eq!(mixture.through(8).count(), 0);
    }
}
