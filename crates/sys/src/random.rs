//! Numbers that nothing outside can guess: keys, queue pair numbers, packet sequence numbers, communication
//! ids.

use rand_chacha::{ChaCha8Rng, ChaCha12Rng};
use rand_core::{Rng, SeedableRng};

/// A generator that was seeded by the operating system.
pub struct Random(ChaCha12Rng);

impl Random {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers to give.
    pub fn from_system() -> std::io::Result<Self> {
        let mut seed = [0_u8; 32];
        // SAFETY: the pointer and length are of an array that lives during the call.
        let filled = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
        if usize::try_from(filled) == Ok(seed.len()) {
            Ok(Self(ChaCha12Rng::from_seed(seed)))
        } else {
            Err(std::io::Error::last_os_error())
        }
    }

    /// A number of 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number of 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Another generator, with a seed from this one.
    pub fn fork(&mut self) -> ChaCha8Rng {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        ChaCha8Rng::from_seed(seed)
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator is `ChaCha` with 12 rounds: the beginning of its stream for a key and a nonce of zeroes.
    #[test]
    fn the_generator_is_chacha() {
        let mut random = Random(ChaCha12Rng::from_seed([0; 32]));
        let stream: Vec<u8> = (0..8).flat_map(|_| random.next_u32().to_le_bytes()).collect();
        let known = [
            0x9b, 0xf4, 0x9a, 0x6a, 0x07, 0x55, 0xf9, 0x53, 0x81, 0x1f, 0xce, 0x12, 0x5f, 0x26, 0x83, 0xd5,
            0x04, 0x29, 0xc3, 0xbb, 0x49, 0xe0, 0x74, 0x14, 0x7e, 0x00, 0x89, 0xa5, 0x2e, 0xae, 0x15, 0x5f,
        ];
        assert_eq!(stream, known);
    }

    /// Every value of every byte is as frequent as the others, and two generators have nothing in common.
    #[test]
    fn numbers_of_the_system_are_spread_evenly() {
        const DRAWS: u32 = 1 << 16;
        let mut random = Random::from_system().unwrap();
        let mut counts = [[0_u32; 256]; 4];
        for _ in 0..DRAWS {
            for (counts, byte) in counts.iter_mut().zip(random.next_u32().to_le_bytes()) {
                counts[usize::from(byte)] += 1;
            }
        }
        // Expected are 256 of each, with a deviation of 16: ten of these never happen by chance.
        for (byte, counts) in counts.iter().enumerate() {
            assert!(counts.iter().all(|count| (96..=416).contains(count)), "byte {byte}: {counts:?}");
        }
        let mut other = Random::from_system().unwrap();
        assert_ne!([random.next_u64(), random.next_u64()], [other.next_u64(), other.next_u64()]);
    }
}
