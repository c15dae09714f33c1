//! ToRs by small numbers that stay, so that what was counted of one is never counted of another.

use std::collections::HashMap;

/// No more ToRs are told apart: agents choose the names, and each has series of its own.
pub(super) const MOST: usize = 1024;

/// ToRs beyond those that are told apart.
const OTHER: &str = "(other)";

/// Where nothing says which ToR it is.
const UNKNOWN: &str = "(unknown)";

/// A ToR on the board, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TorPlace(pub u16);

impl TorPlace {
    pub(super) const OTHER: Self = Self(0);
    pub(super) const UNKNOWN: Self = Self(1);
}

/// All ToRs that were ever seen, in the order in which they came.
#[derive(Clone, Debug)]
pub(super) struct Tors {
    names: Vec<String>,
    places: HashMap<String, TorPlace>,
}

impl Default for Tors {
    fn default() -> Self {
        let names = [OTHER, UNKNOWN].map(str::to_owned).to_vec();
        let places =
            [(OTHER, TorPlace::OTHER), (UNKNOWN, TorPlace::UNKNOWN)].map(|(name, at)| (name.to_owned(), at));
        Self { names, places: places.into() }
    }
}

impl Tors {
    /// The number of a ToR, which it has from now on.
    pub(super) fn place(&mut self, name: &str) -> TorPlace {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        match u16::try_from(self.names.len()) {
            Ok(place) if self.names.len() < MOST + 2 => {
                self.names.push(name.to_owned());
                self.places.insert(name.to_owned(), TorPlace(place));
                TorPlace(place)
            }
            _ => TorPlace::OTHER,
        }
    }

    /// The number of a ToR; none if it was never seen.
    pub(super) fn find(&self, name: &str) -> Option<TorPlace> {
        self.places.get(name).copied()
    }

    pub(super) fn name(&self, place: TorPlace) -> &str {
        self.names.get(usize::from(place.0)).map_or(UNKNOWN, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_numbers_and_too_many_share_one() {
        let mut tors = Tors::default();
        let first = tors.place("t1");
        assert_eq!((tors.place("t2") == first, tors.place("t1") == first), (false, true));
        for number in 0..10_000 {
            tors.place(&format!("hostile{number}"));
        }
        assert_eq!((tors.names.len(), tors.places.len()), (MOST + 2, MOST + 2));
        assert_eq!(tors.place("one more"), TorPlace::OTHER);
        assert_eq!((tors.place("t1"), tors.name(first)), (first, "t1"));
        assert_eq!(tors.place("(other)"), TorPlace::OTHER, "a ToR that calls itself so");
        assert_eq!((tors.find("no such"), tors.name(TorPlace(9999))), (None, UNKNOWN));
    }
}
