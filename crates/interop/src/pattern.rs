//! What travels, and how it is compared: both sides know the same pattern and the same checksum.

/// Bytes in which no two places look alike; the far side makes the same from the same seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// CRC-32, as the far side computes it.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_begins_like_a_longer_one() {
        let long = pattern(7, 100);
        assert_eq!(pattern(7, 13), long[..13]);
        assert_ne!(pattern(8, 100), long);
        assert_eq!(sum(b"123456789"), 0xcbf4_3926);
    }
}
