//! Numbers that nobody outside can guess: keys, queue pair numbers.

use rand_chacha::{ChaCha8Rng, ChaCha12Rng};
use rand_core::{Rng, SeedableRng};

/// A generator that was seeded by the operating system.
pub(crate) struct Random(ChaCha12Rng);

impl Random {
    pub(crate) fn from_system() -> std::io::Result<Self> {
        let mut seed = [0_u8; 32];
        // SAFETY: the pointer and length are of an array that lives during the call.
        let filled = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
        if usize::try_from(filled) == Ok(seed.len()) {
            Ok(Self(ChaCha12Rng::from_seed(seed)))
        } else {
            Err(std::io::Error::last_os_error())
        }
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A generator of its own for somebody else.
    pub(crate) fn fork(&mut self) -> ChaCha8Rng {
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
