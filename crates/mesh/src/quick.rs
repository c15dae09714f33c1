//! Maps by small numbers, without the cost of a hash for strangers' bytes: keys are a few words, and mixed with a
//! number that chance has chosen, so that no agent can choose keys that collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map by a few numbers.
pub(crate) type QuickMap<K, V> = HashMap<K, V, Quick>;

/// Makes hashes of one map.
#[derive(Clone, Debug)]
pub(crate) struct Quick(u64);

impl Default for Quick {
    fn default() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for Quick {
    type Hasher = QuickHasher;

    fn build_hasher(&self) -> QuickHasher {
        QuickHasher(self.0)
    }
}

/// A hash of a few numbers.
#[derive(Clone, Debug)]
pub(crate) struct QuickHasher(u64);

impl QuickHasher {
    const fn mix(&mut self, word: u64) {
        let bits = (self.0 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = (bits ^ bits >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    }
}

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.mix(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_isize(&mut self, number: isize) {
        self.mix(number.unsigned_abs() as u64);
    }
}
