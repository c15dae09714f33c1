//! Communication ids.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use ferroce_wire::mad::CommId;

/// Numbers that nothing outside can foresee: from a generator of which even many numbers do not tell the next. What
/// it is, is for the caller to say; the machine itself makes no random numbers.
pub struct Chance(Box<dyn FnMut() -> u32 + Send>);

impl Chance {
    /// Takes numbers from this generator.
    pub fn new(draw: impl FnMut() -> u32 + Send + 'static) -> Self {
        Self(Box::new(draw))
    }

    pub(super) fn draw(&mut self) -> u32 {
        (self.0)()
    }
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chance")
    }
}

/// Deals out communication ids. Each is drawn for itself, so that those that were seen tell nothing about the next.
///
/// The top byte is given: it says which process of a host the answers are for.
#[derive(Debug)]
pub(super) struct Ids {
    top: u8,
    chance: Chance,
    /// The last that were dealt, oldest first: a peer remembers one for a while after it is over.
    recent: VecDeque<CommId>,
    is_recent: BTreeSet<CommId>,
}

/// Bits that are ours to choose.
const MASK: u32 = 0x00ff_ffff;

/// Ids that are not dealt again at once.
const RECENT: usize = 4096;

impl Ids {
    pub(super) const fn new(top: u8, chance: Chance) -> Self {
        Self { top, chance, recent: VecDeque::new(), is_recent: BTreeSet::new() }
    }

    /// One that is not taken, and was not dealt a moment ago; `None` if there is none, which the limits prevent.
    pub(super) fn deal(&mut self, is_taken: impl Fn(CommId) -> bool) -> Option<CommId> {
        let start = self.chance.draw();
        let name = |number: u32| CommId(u32::from(self.top) << 24 | number & MASK);
        // Zero stands for "none" in messages.
        let is_free = |id: &CommId| id.0 != 0 && !self.is_recent.contains(id) && !is_taken(*id);
        // As a rule the first is free: all that can be taken are few beside all that there are. If it is not, the
        // others are drawn too.
        let mut drawn = std::iter::once(start).chain((0..DRAWS).map(|_| self.chance.draw()));
        let id = drawn.by_ref().map(name).find(is_free);
        let id = id.or_else(|| (0..=MASK).map(|step| name(start.wrapping_add(step))).find(is_free))?;
        self.remember(id);
        Some(id)
    }

    fn remember(&mut self, id: CommId) {
        if self.recent.len() >= RECENT
            && let Some(oldest) = self.recent.pop_front()
        {
            self.is_recent.remove(&oldest);
        }
        self.recent.push_back(id);
        self.is_recent.insert(id);
    }
}

/// Ids that are drawn in vain before all are looked at in order.
const DRAWS: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A generator for tests: any will do here, because what is dealt is what was drawn. The device gives a strong
    /// one, and has a test of that.
    fn chance(mut seed: u64) -> Chance {
        Chance::new(move || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            u32::try_from((mixed ^ mixed >> 31) >> 32).unwrap_or(0)
        })
    }

    #[test]
    fn no_id_comes_again_soon() {
        let mut ids = Ids::new(7, chance(1));
        let mut seen = HashSet::new();
        let mut dealt = VecDeque::new();
        for _ in 0..100_000 {
            let id = ids.deal(|_| false).unwrap();
            assert_eq!(id.0 >> 24, 7);
            assert!(seen.insert(id), "{id} twice");
            dealt.push_back(id);
            if dealt.len() > RECENT {
                seen.remove(&dealt.pop_front().unwrap());
            }
            assert!(ids.recent.len() <= RECENT && ids.is_recent.len() == ids.recent.len());
        }
    }

    #[test]
    fn what_is_taken_is_not_dealt() {
        let first = Ids::new(0, chance(1)).deal(|_| false).unwrap();
        let second = Ids::new(0, chance(1)).deal(|id| id == first).unwrap();
        assert_ne!(first, second);
        assert_eq!(Ids::new(0, chance(1)).deal(|id| id != CommId(5)), Some(CommId(5)));
        assert_eq!(Ids::new(0, chance(1)).deal(|_| true), None);
        // A generator that is stuck does not keep ids from being dealt.
        let mut stuck = Ids::new(0, Chance::new(|| 0));
        assert_eq!((stuck.deal(|_| false), stuck.deal(|_| false)), (Some(CommId(1)), Some(CommId(2))));
    }

    /// What the ids were once: a counter times a number, with a key over it.
    fn old(key: u32, count: u32) -> u32 {
        (key.wrapping_add(1 + count).wrapping_mul(STRIDE) ^ key.rotate_left(13)) & MASK
    }

    const STRIDE: u32 = 0x9e_3779;

    /// The ids that can follow on these four, if they are made in that way: bit by bit, all keys are tried that explain
    /// what was seen.
    fn broken(seen: [u32; 4]) -> Vec<u32> {
        let mut keys = vec![0_u32];
        for bit in 0..24 {
            let low = (2_u32 << bit) - 1;
            let explains = |key: &u32| {
                seen.windows(2)
                    .all(|pair| (pair[1] ^ key).wrapping_sub(pair[0] ^ key).wrapping_sub(STRIDE) & low == 0)
            };
            keys = keys.iter().flat_map(|key| [*key, key | 1 << bit]).filter(explains).collect();
        }
        let mut next: Vec<u32> =
            keys.iter().map(|key| ((seen[3] ^ key).wrapping_add(STRIDE) ^ key) & MASK).collect();
        next.sort_unstable();
        next.dedup();
        next
    }

    /// It was: a peer that saw four ids knew the next, and could answer in the place of one that it had never heard.
    #[test]
    fn four_ids_do_not_reveal_the_fifth() {
        let mut known = 0;
        for key in 0..100_u32 {
            let key = key.wrapping_mul(0x0123_4567);
            let next = broken([0, 1, 2, 3].map(|count| old(key, count)));
            assert!(next.contains(&old(key, 4)), "the break works: {key:#x} {next:x?}");
            known += usize::from(next.len() <= 16);
        }
        assert!(known > 50, "as a rule few are left: {known}");
        for seed in 0..10_000 {
            let mut ids = Ids::new(7, chance(seed));
            let mut deal = || ids.deal(|_| false).unwrap().0 & MASK;
            let seen = [deal(), deal(), deal(), deal()];
            let fifth = deal();
            assert!(!broken(seen).contains(&fifth), "{seed}: {seen:x?} tell {fifth:x}");
        }
    }
}
