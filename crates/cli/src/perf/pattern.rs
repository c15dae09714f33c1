//! Contents that can be told apart: each message is another part of one long pattern.

use anyhow::{bail, ensure};
use ferroce::MemoryRegion;

use super::task::slot;

/// Messages with different contents before they begin again; a prime, so that it
/// meets no other cycle.
const CYCLE: usize = 251;

/// What messages of one size contain.
#[derive(Debug)]
pub(crate) struct Pattern {
    bytes: Vec<u8>,
    seen: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new(size: usize) -> Self {
        // A generator that is good enough for neighbours to differ (Knuth's MMIX).
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        let bytes = (0..size + CYCLE).map(|_| next()).collect();
        Self { bytes, seen: vec![0; size] }
    }

    fn of(&self, message: u64) -> &[u8] {
        let start = slot(message, CYCLE);
        &self.bytes[start..start + self.seen.len()]
    }

    /// Puts a message into memory.
    pub(crate) fn fill(&self, region: &MemoryRegion, offset: usize, message: u64) -> anyhow::Result<()> {
        Ok(region.write_at(offset, self.of(message))?)
    }

    /// Looks whether a message is there.
    pub(crate) fn check(&mut self, region: &MemoryRegion, offset: usize, message: u64) -> anyhow::Result<()> {
        let mut seen = std::mem::take(&mut self.seen);
        let read = region.read_at(offset, &mut seen);
        self.seen = seen;
        read?;
        let wrong = self.of(message).iter().zip(&self.seen).position(|(wanted, seen)| wanted != seen);
        match wrong {
            None => Ok(()),
            Some(at) => {
                let (wanted, seen) = (self.of(message)[at], self.seen[at]);
                bail!("message {message} is wrong at byte {at}: 0x{seen:02x} instead of 0x{wanted:02x}")
            }
        }
    }

    /// The same without the last byte, which a thread spins on.
    pub(crate) fn check_but_last(
        &mut self,
        region: &MemoryRegion,
        offset: usize,
        message: u64,
        last: u8,
    ) -> anyhow::Result<()> {
        let Some(end) = self.seen.len().checked_sub(1) else { return Ok(()) };
        let start = slot(message, CYCLE);
        let kept = std::mem::replace(&mut self.bytes[start + end], last);
        let found = self.check(region, offset, message);
        self.bytes[start + end] = kept;
        found
    }
}

/// Looks whether an atomic brought the number that was to come.
pub(crate) fn check_number(region: &MemoryRegion, offset: usize, wanted: u64) -> anyhow::Result<()> {
    let seen = region.load_u64(offset)?;
    ensure!(seen == wanted, "an atomic brought {seen}, and {wanted} was to come");
    Ok(())
}
