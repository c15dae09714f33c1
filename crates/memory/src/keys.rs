//! Keys: a handle of 24 bits and a tag of 8, both random, and how they are dealt.
//!
//! A key that was taken back must not help to guess the one that came after it. So a region and a window
//! of type 1 get another handle whenever their key changes; for a window of type 2, where the
//! handle is the window and only the tag may change, the tag is drawn.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use rand_chacha::ChaCha8Rng;
use rand_core::Rng;

/// Handles that were given back and are not dealt again yet. A peer that still has such a key would
/// reach what has nothing to do with it.
pub(super) const RESTING: usize = 1 << 16;

/// Keys that a window of type 1 has been promised and is not bound under: as many as the longest send queue
/// has places. If there are more, the oldest promise is taken back.
pub(super) const PROMISES: usize = 1 << 15;

/// Keys that are promised to all windows together. With [`RESTING`] and the limits of the table, more
/// than half of the handles stay free, so that few draws find one.
pub(super) const ALL_PROMISES: usize = 1 << 21;

/// Tags of a window of type 2 that are not dealt again at once: a key that it had lately opens nothing, and
/// of those that it may get next there are at least 192.
pub(super) const RECENT_TAGS: usize = 64;

/// The part of a key that things are found by.
#[inline]
pub(super) const fn handle(key: u32) -> u32 {
    key >> 8
}

const fn tag(key: u32) -> u32 {
    key & 0xff
}

type Hash = BuildHasherDefault<Spread>;

/// Deals keys, and knows which window a handle opens.
///
/// A window has a name: the handle that it was made with, by which work names it for as long as it lives.
/// Under which key it opens something is another matter. A window of type 1 gets a new handle with each
/// binding, which is promised when the binding is described, maybe long before its turn comes.
#[derive(Debug)]
pub(super) struct Dealer {
    random: ChaCha8Rng,
    /// Handles that are in use, promised, or at rest.
    taken: HashSet<u32, Hash>,
    /// Handles that were given back, the oldest first.
    resting: VecDeque<u32>,
    /// The names of windows by the handles that they are bound under, where those are others.
    doors: HashMap<u32, u32, Hash>,
    /// By the name of a window: for type 1 the keys that it was promised, for type 2 those that it was dealt
    /// last.
    dealt: HashMap<u32, VecDeque<u32>, Hash>,
    promises: usize,
}

impl Dealer {
    pub(super) fn new(random: ChaCha8Rng) -> Self {
        Self {
            random,
            taken: HashSet::default(),
            resting: VecDeque::new(),
            doors: HashMap::default(),
            dealt: HashMap::default(),
            promises: 0,
        }
    }

    /// A key whose handle nothing has, nor had lately. All zeros and all ones are for programs
    /// that use them for "no key".
    pub(super) fn key(&mut self) -> u32 {
        loop {
            let key = self.random.next_u32();
            let drawn = handle(key);
            if drawn != 0 && drawn != handle(u32::MAX) && self.taken.insert(drawn) {
                return key;
            }
        }
    }

    /// The handle is not in use any more.
    pub(super) fn give_back(&mut self, handle: u32) {
        self.resting.push_back(handle);
        if self.resting.len() > RESTING
            && let Some(rested) = self.resting.pop_front()
        {
            self.taken.remove(&rested);
        }
    }

    /// The key of the next binding of a window of type 1; `None` if too many are promised, and none of them
    /// to this one.
    pub(super) fn promise(&mut self, name: u32) -> Option<u32> {
        let promised = self.dealt.entry(name).or_default();
        if promised.len() >= PROMISES || self.promises >= ALL_PROMISES {
            let oldest = promised.pop_front()?;
            self.promises -= 1;
            self.give_back(handle(oldest));
        }
        let key = self.key();
        self.promises += 1;
        self.dealt.entry(name).or_default().push_back(key);
        Some(key)
    }

    /// A window of type 1 is bound under a key that it was promised, and the one that it had is worth nothing
    /// from now on; false, and nothing is changed, if it was not promised this one.
    pub(super) fn redeem(&mut self, name: u32, before: u32, key: u32) -> bool {
        let Some(promised) = self.dealt.get_mut(&name) else { return false };
        let Some(place) = promised.iter().position(|promised| *promised == key) else { return false };
        promised.remove(place);
        self.promises -= 1;
        self.close(name, before);
        self.doors.insert(handle(key), name);
        true
    }

    /// A key for the next binding of a window of type 2: its tag is none of those that it had lately.
    pub(super) fn with_other_tag(&mut self, present: u32) -> u32 {
        let recent = self.dealt.entry(handle(present)).or_default();
        loop {
            let key = present & !0xff | tag(self.random.next_u32());
            if key != present && !recent.contains(&key) {
                recent.push_back(key);
                if recent.len() > RECENT_TAGS {
                    recent.pop_front();
                }
                return key;
            }
        }
    }

    /// The name of the window that is bound under this handle, if that is not its name.
    pub(super) fn behind(&self, handle: u32) -> Option<u32> {
        self.doors.get(&handle).copied()
    }

    /// A window is gone, with its present key and those that it was promised.
    pub(super) fn forget(&mut self, name: u32, present: u32) {
        for key in self.dealt.remove(&name).unwrap_or_default() {
            if handle(key) != name {
                self.promises -= 1;
                self.give_back(handle(key));
            }
        }
        self.close(name, present);
        self.give_back(name);
    }

    fn close(&mut self, name: u32, key: u32) {
        if handle(key) != name {
            self.doors.remove(&handle(key));
            self.give_back(handle(key));
        }
    }

    /// Handles that cannot be dealt, and those of them that are promised.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.taken.len() - self.resting.len(), self.promises)
    }
}

/// Hashes a handle. Handles are random already; the product moves some of that to the high bits,
/// where the map looks too.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, handle: u32) {
        self.0 = (self.0 ^ u64::from(handle)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;

    use super::*;

    fn dealer() -> Dealer {
        Dealer::new(ChaCha8Rng::seed_from_u64(5))
    }

    #[test]
    fn a_handle_rests_before_it_is_dealt_again() {
        let mut dealer = dealer();
        let first = handle(dealer.key());
        dealer.give_back(first);
        for _ in 1..RESTING {
            let next = handle(dealer.key());
            assert_ne!(next, first);
            dealer.give_back(next);
        }
        assert!(dealer.taken.contains(&first));
        let last = handle(dealer.key());
        dealer.give_back(last);
        assert!(!dealer.taken.contains(&first), "it may come again, one draw of sixteen million");
        assert_eq!((dealer.resting.len(), dealer.held()), (RESTING, (0, 0)));
    }

    #[test]
    fn a_window_that_is_only_promised_keys_holds_no_more_than_its_share() {
        let mut dealer = dealer();
        let name = handle(dealer.key());
        let first = dealer.promise(name).unwrap();
        for _ in 0..PROMISES {
            dealer.promise(name).unwrap();
        }
        assert_eq!(dealer.held(), (1 + PROMISES, PROMISES));
        assert!(!dealer.redeem(name, name << 8, first), "the oldest promise was taken back");
        let last = dealer.promise(name).unwrap();
        assert!(dealer.redeem(name, name << 8, last));
        assert!(!dealer.redeem(name, last, last), "it is kept once");
        assert!(!dealer.redeem(name ^ 1, last, last));
        dealer.forget(name, last);
        assert_eq!(dealer.held(), (0, 0));
        assert_eq!(dealer.behind(handle(last)), None);
    }

    #[test]
    fn all_windows_together_are_promised_no_more_than_there_may_be() {
        let mut dealer = dealer();
        let (rich, poor) = (handle(dealer.key()), handle(dealer.key()));
        dealer.promise(rich).unwrap();
        dealer.promises = ALL_PROMISES;
        assert_eq!(dealer.promise(poor), None);
        assert!(dealer.promise(rich).is_some(), "in the place of one that it had");
        assert_eq!((dealer.promises, dealer.dealt[&rich].len()), (ALL_PROMISES, 1));
    }

    #[test]
    fn a_tag_does_not_return_at_once() {
        let mut dealer = dealer();
        let mut keys = vec![dealer.key()];
        for turn in 1..2000 {
            let next = dealer.with_other_tag(keys[turn - 1]);
            assert_eq!(handle(next), handle(keys[0]));
            assert!(!keys[turn.saturating_sub(RECENT_TAGS)..].contains(&next), "turn {turn}");
            keys.push(next);
        }
    }
}
