//! The CRC-32 of short packets, in whole blocks of 16 bytes.
//!
//! A general CRC first asks what the processor can do and how long the bytes are, and treats a last piece that is no whole block by
//! itself. A packet has a multiple of four bytes, so that its first piece is made a whole block instead: bytes of zero before
//! all others change nothing, as long as the register is brought in behind them.

/// Computes the CRC-32 of short packets, if this processor multiplies without carry.
#[derive(Clone, Copy, Debug)]
pub struct ShortCrc {
    /// Bytes that it takes at most: none where the processor cannot.
    most: usize,
}

/// From here on a way that takes several blocks at a time is faster.
const LONGEST: usize = 128;

/// Bytes of a block.
const BLOCK: usize = 16;

impl ShortCrc {
    /// Computes nothing.
    pub const NONE: Self = Self { most: 0 };

    /// As this processor can.
    #[must_use]
    pub fn new() -> Self {
        Self { most: if blocks::can_multiply() { LONGEST } else { 0 } }
    }

    /// The CRC-32 of bytes before which the register is this. `None` if they are too few or too many, no multiple of four, or
    /// the processor cannot: another way has to.
    #[inline(always)]
    #[must_use]
    pub fn of(self, register: u32, bytes: &[u8]) -> Option<u32> {
        let len = bytes.len();
        if len > self.most || len < BLOCK || !len.is_multiple_of(4) {
            return None;
        }
        // SAFETY: `most` is not zero, so `can_multiply` said yes.
        Some(unsafe { blocks::crc(register, bytes) })
    }
}

impl Default for ShortCrc {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(any(miri, not(target_arch = "x86_64")))]
mod blocks {
    pub(super) const fn can_multiply() -> bool {
        false
    }

    /// # Safety
    /// [`can_multiply`] said yes.
    pub(super) const unsafe fn crc(register: u32, _: &[u8]) -> u32 {
        register
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod blocks {
    use std::arch::is_x86_feature_detected;
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_extract_epi32, _mm_loadu_si128,
        _mm_set_epi32, _mm_set_epi64x, _mm_slli_si128, _mm_srli_si128, _mm_xor_si128,
    };

    use super::BLOCK;
    use crate::copy::onward;

    /// Moves the two halves of a block on by one block; the first also by half a one.
    const BY_BLOCK: [i64; 2] = [onward(8 * BLOCK + 32).cast_signed(), onward(8 * BLOCK - 32).cast_signed()];

    /// Moves four bytes on by eight.
    const BY_HALF: i64 = onward(64).cast_signed();

    /// The generator with all of its 33 bits, reversed; and x^64 divided by it, for Barrett's reduction.
    const GENERATOR: i64 = 0x1_db71_0641;
    const QUOTIENT: i64 = 0x1_f701_1641;

    pub(super) fn can_multiply() -> bool {
        is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("avx")
    }

    /// # Safety
    /// [`can_multiply`] said yes. `bytes` are a block or more, and a multiple of four.
    #[target_feature(enable = "pclmulqdq,avx")]
    pub(super) unsafe fn crc(register: u32, bytes: &[u8]) -> u32 {
        let Some(first) = bytes.first_chunk() else { return !register };
        let first = _mm_xor_si128(load(first), _mm_cvtsi32_si128(register.cast_signed()));
        // What is behind the first piece comes again with the next block.
        let (mut sum, len) = match bytes.len() % BLOCK {
            4 => (_mm_slli_si128(first, 12), 4),
            8 => (_mm_slli_si128(first, 8), 8),
            12 => (_mm_slli_si128(first, 4), 12),
            _ => (first, BLOCK),
        };
        let by_block = _mm_set_epi64x(BY_BLOCK[1], BY_BLOCK[0]);
        let (blocks, _) = bytes[len..].as_chunks::<BLOCK>();
        for block in blocks {
            let low = _mm_clmulepi64_si128(sum, by_block, 0x00);
            let high = _mm_clmulepi64_si128(sum, by_block, 0x11);
            sum = _mm_xor_si128(_mm_xor_si128(low, high), load(block));
        }
        reduce(sum, by_block)
    }

    #[inline]
    #[target_feature(enable = "avx")]
    fn load(block: &[u8; BLOCK]) -> __m128i {
        // SAFETY: a block has the 16 bytes that are read, and they need no alignment.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    /// The remainder of a block.
    #[inline]
    #[target_feature(enable = "pclmulqdq,avx")]
    fn reduce(sum: __m128i, by_block: __m128i) -> u32 {
        let low_word = _mm_set_epi32(0, 0, 0, -1);
        // 16 bytes to 12, and these to 8.
        let sum = _mm_xor_si128(_mm_clmulepi64_si128(sum, by_block, 0x10), _mm_srli_si128(sum, 8));
        let first = _mm_and_si128(sum, low_word);
        let sum = _mm_xor_si128(
            _mm_clmulepi64_si128(first, _mm_set_epi64x(0, BY_HALF), 0x00),
            _mm_srli_si128(sum, 4),
        );
        let barrett = _mm_set_epi64x(QUOTIENT, GENERATOR);
        let times = _mm_clmulepi64_si128(_mm_and_si128(sum, low_word), barrett, 0x10);
        let whole = _mm_clmulepi64_si128(_mm_and_si128(times, low_word), barrett, 0x00);
        !_mm_extract_epi32(_mm_xor_si128(sum, whole), 1).cast_unsigned()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the general way has it.
    fn expected(register: u32, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(!register);
        hasher.update(bytes);
        hasher.finalize()
    }

    #[test]
    fn every_length_that_a_short_packet_has_gives_what_the_general_way_gives() {
        let crc = ShortCrc::new();
        let bytes: Vec<u8> = (0..200_u8).map(|at| at.wrapping_mul(37) ^ at >> 3).collect();
        for from in 0..16 {
            for len in 0..160 {
                let bytes = &bytes[from..from + len];
                let is_short = (BLOCK..=crc.most).contains(&len) && len % 4 == 0;
                for register in [0, 1, !0, 0x8000_0000, 0xdead_beef] {
                    let whole = expected(register, bytes);
                    assert_eq!(crc.of(register, bytes), is_short.then_some(whole), "{len} bytes");
                }
                assert_eq!(ShortCrc::NONE.of(0, bytes), None);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_what_the_general_way_gives(
            register: u32, words in prop::collection::vec(any::<[u8; 4]>(), 0..40)
        ) {
            let bytes = words.as_flattened();
            if let Some(crc) = ShortCrc::new().of(register, bytes) {
                prop_assert_eq!(crc, expected(register, bytes));
            }
        }
    }
}
