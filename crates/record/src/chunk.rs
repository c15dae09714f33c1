//! What was kept of a ring: events in the order of their numbers, behind the rings of the file.

use crate::event::EVENT_LEN;

/// Bytes of the head of a chunk.
pub(crate) const CHUNK_HEAD: usize = 32;

const MAGIC: [u8; 8] = *b"FTCHUNK\n";

/// Events of a chunk at most.
pub(crate) const MOST: u32 = 16_384;

/// The head of a chunk. It is written after its events: a chunk that has one is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The ring.
    pub(crate) ring: u32,
    /// Events.
    pub(crate) count: u32,
    /// The number of the first of them.
    pub(crate) first: u64,
    /// Events of this ring that were lost until then.
    pub(crate) lost: u64,
}

impl Chunk {
    /// Bytes with its events.
    pub(crate) const fn len(self) -> u64 {
        CHUNK_HEAD as u64 + self.count as u64 * EVENT_LEN as u64
    }

    pub(crate) fn emit(self) -> [u8; CHUNK_HEAD] {
        let mut bytes = [0; CHUNK_HEAD];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.ring.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..].copy_from_slice(&self.lost.to_le_bytes());
        bytes
    }

    /// The head that these bytes are, in a file with so many rings.
    pub(crate) fn parse(bytes: &[u8; CHUNK_HEAD], rings: u32) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let chunk = Self { ring: u32_at(8), count: u32_at(12), first: u64_at(16), lost: u64_at(24) };
        let is_one = bytes[..8] == MAGIC && chunk.ring < rings && (1..=MOST).contains(&chunk.count);
        is_one.then_some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_and_others_are_none() {
        let chunk = Chunk { ring: 2, count: 9, first: u64::MAX - 3, lost: 4 };
        let bytes = chunk.emit();
        assert_eq!(Chunk::parse(&bytes, 3), Some(chunk));
        assert_eq!(Chunk::parse(&bytes, 2), None, "no such ring");
        assert_eq!(Chunk::parse(&[0; CHUNK_HEAD], 3), None);
        assert_eq!(Chunk::parse(&Chunk { count: 0, ..chunk }.emit(), 3), None);
        assert_eq!(Chunk::parse(&Chunk { count: MOST + 1, ..chunk }.emit(), 3), None);
        assert_eq!(chunk.len(), 32 + 9 * 64);
    }
}
