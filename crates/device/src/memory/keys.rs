//! What a key is made of: a random handle of 24 bits, and a tag of 8 that changes.

use std::hash::Hasher;

/// The part of a key that stays.
#[inline]
pub(super) const fn handle(key: u32) -> u32 {
    key >> 8
}

/// The same handle, with the tag after this one.
pub(super) const fn with_next_tag(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
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
