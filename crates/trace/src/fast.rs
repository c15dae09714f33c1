//! Maps for small keys that are looked up for each event.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with a quick hash. Its keys are numbers of a record that the user opens: no other program chooses them.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// A multiplication and a rotation for each word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quick(u64);

/// An odd number with bits everywhere.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(FACTOR);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        // The map takes the lowest bits for places, and those of a product depend on few.
        self.0 ^ self.0 >> 32
    }
}
