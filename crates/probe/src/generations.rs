//! A map of bounded size that forgets what was not asked for the longest, roughly: two halves, a young and an old
//! one. Whatever is asked for moves into the young half; when that is full, it becomes the old one, and what was
//! old is gone.

use std::collections::HashMap;
use std::hash::Hash;

/// The map.
#[derive(Clone, Debug)]
pub(crate) struct Generations<K, V> {
    half: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    has_forgotten: bool,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// A map of at most so many places.
    pub(crate) fn new(places: usize) -> Self {
        let half = (places / 2).max(1);
        Self { half, young: HashMap::new(), old: HashMap::new(), has_forgotten: false }
    }

    /// What is known of the key, or else what is made now.
    pub(crate) fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let mut known = None;
        if !self.young.contains_key(&key) {
            known = self.old.remove(&key);
            if self.young.len() >= self.half {
                self.has_forgotten |= !self.old.is_empty();
                self.old = std::mem::take(&mut self.young);
            }
        }
        self.young.entry(key).or_insert_with(|| known.unwrap_or_else(make))
    }

    /// What is known of the key. It does not become younger by this.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self.young.get_mut(key) {
            Some(known) => Some(known),
            None => self.old.get_mut(key),
        }
    }

    /// Whether something was ever forgotten.
    pub(crate) const fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_is_bounded() {
        let mut map = Generations::new(8);
        for number in 0..1000_u32 {
            *map.entry(0, || 0) += 1;
            assert_eq!(*map.entry(number + 1, || number), number);
            assert!(map.young.len() + map.old.len() <= 8);
        }
        assert_eq!(map.get(&0), Some(&1000));
        assert_eq!(map.get(&1000), Some(&999));
        assert_eq!(map.get(&900), None);
        assert!(map.has_forgotten());
    }

    #[test]
    fn nothing_is_forgotten_while_there_is_room() {
        let mut map = Generations::new(8);
        for number in 0..4_u32 {
            map.entry(number, || number);
        }
        for number in 0..4_u32 {
            *map.get_mut(&number).unwrap() += 10;
            assert_eq!(*map.entry(number, || 0), number + 10);
        }
        assert!(!map.has_forgotten());
    }
}
