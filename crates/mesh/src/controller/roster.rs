//! The RNICs of one moment, by ToR, and which of them probe which.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use super::registry::Rnic;

/// All RNICs, those of a ToR beside each other, in an order that depends on nothing but their names and addresses.
#[derive(Debug, Default)]
pub struct Roster {
    rnics: Vec<Rnic>,
    /// The RNICs of each ToR.
    tors: Vec<Range<usize>>,
    /// The ToR of each RNIC.
    tor_of: Vec<usize>,
    places: HashMap<IpAddr, usize>,
    /// Which RNICs of other ToRs probe each.
    probers: Vec<Vec<u32>>,
}

impl Roster {
    /// The roster of these RNICs.
    #[must_use]
    pub fn new(rnics: impl IntoIterator<Item = Rnic>) -> Self {
        let mut rnics: Vec<Rnic> = rnics.into_iter().collect();
        rnics.sort_unstable_by(|one, other| (&one.tor, one.address).cmp(&(&other.tor, other.address)));
        let (mut tors, mut tor_of) = (Vec::<Range<usize>>::new(), Vec::with_capacity(rnics.len()));
        for (index, rnic) in rnics.iter().enumerate() {
            match tors.last_mut().filter(|tor| rnics[tor.start].tor == rnic.tor) {
                Some(tor) => tor.end = index + 1,
                None => tors.push(index..index + 1),
            }
            tor_of.push(tors.len() - 1);
        }
        let places = rnics.iter().enumerate().map(|(index, rnic)| (rnic.address, index)).collect();
        let mut probers = vec![Vec::new(); rnics.len()];
        let mut roster = Self { rnics, tors, tor_of, places, probers: Vec::new() };
        for (index, number) in (0..roster.rnics.len()).zip(0_u32..) {
            roster.between(index).for_each(|target| probers[target].push(number));
        }
        roster.probers = probers;
        roster
    }

    /// All RNICs.
    #[must_use]
    pub fn rnics(&self) -> &[Rnic] {
        &self.rnics
    }

    /// How many ToRs there are.
    #[must_use]
    pub const fn tors(&self) -> usize {
        self.tors.len()
    }

    /// The RNIC with this address, by its number.
    #[must_use]
    pub fn find(&self, address: IpAddr) -> Option<usize> {
        self.places.get(&address).copied()
    }

    /// The RNICs of other ToRs that probe this one, in order.
    pub(super) fn probers(&self, index: usize) -> &[u32] {
        &self.probers[index]
    }

    /// The other RNICs below the same ToR.
    pub(super) fn below(&self, index: usize) -> impl ExactSizeIterator<Item = usize> + use<> {
        let tor = self.tors[self.tor_of[index]].clone();
        let (first, count) = (tor.start, tor.len());
        // Beginning after itself, so that not all of them begin with the same.
        (1..count).map(move |step| first + (index - first + step) % count)
    }

    /// RNICs of other ToRs: RNIC `j` of `R` below ToR `t` of `T` probes ToRs `t + 1 + ((j + R i) mod (T - 1))` for
    /// all `i < ceil((T - 1) / R)`, so that together those of a ToR probe all others, whatever their numbers are.
    /// Which RNIC of the other ToR is probed goes round with the ToR that probes. (A step of two for each number: as
    /// the number goes down when the ToR goes up, with a step of one they would all choose the same.)
    pub(super) fn between(&self, index: usize) -> impl ExactSizeIterator<Item = usize> {
        let tor = self.tor_of[index];
        let (first, count, others) = (self.tors[tor].start, self.tors[tor].len(), self.tors.len() - 1);
        let number = index - first;
        (0..others.div_ceil(count)).map(move |round| {
            let other = (tor + 1 + (number + count * round) % others) % self.tors.len();
            let Range { start, end } = self.tors[other];
            start + (tor + 2 * number) % (end - start)
        })
    }
}
