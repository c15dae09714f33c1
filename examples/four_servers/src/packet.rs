//! What a message looks like: a header with a checksum, and a body.

use anyhow::{Context as _, bail, ensure};

/// Bytes before the body.
pub(crate) const HEADER: usize = 32;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first one on a connection: where the sender's page for the receiver is.
    Hello = 1,
    /// Bytes that were copied, with immediate data 0.
    Copied = 2,
    /// Bytes that were written into a buffer of the ring, with their number as immediate data.
    Buffered = 3,
    /// Bytes that lie in an item of the pool, without immediate data.
    InItem = 4,
    /// Bytes that were written into the page at the receiver, with their place there as immediate data.
    Written = 5,
    /// Where the receiver finds bytes that are too many for a message.
    Long = 6,
    /// The answer to each of those: number and checksum of what arrived.
    Answer = 7,
    /// The last one: all servers are to leave.
    End = 8,
}

impl Kind {
    fn from_byte(byte: u8) -> anyhow::Result<Self> {
        let all = [
            Self::Hello,
            Self::Copied,
            Self::Buffered,
            Self::InItem,
            Self::Written,
            Self::Long,
            Self::Answer,
            Self::End,
        ];
        all.into_iter()
            .find(|kind| *kind as u8 == byte)
            .with_context(|| format!("no message is of kind {byte}"))
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) lane: u8,
    /// Counts all messages of a connection in one direction, from 0 on.
    pub(crate) sequence: u64,
    /// Which of the sender's requests it is, or which of the receiver's it answers.
    pub(crate) number: u64,
    /// A checksum of something else: of a long message, or of what is answered.
    pub(crate) other_sum: u32,
}

impl Header {
    /// The whole message.
    pub(crate) fn emit(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[1] = self.lane;
        bytes[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.other_sum.to_be_bytes());
        bytes.extend_from_slice(body);
        let sum = checksum(&bytes);
        bytes[4..8].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// The header of a message whose checksum is right.
    pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        ensure!(bytes.len() >= HEADER, "a message of {} bytes has no header", bytes.len());
        let (told, right) = (sum_of(bytes), checksum(bytes));
        if told != right {
            bail!("a message of {} bytes says checksum {told:#010x} and has {right:#010x}", bytes.len());
        }
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk));
        let short = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u32::from_be_bytes(*chunk));
        Ok(Self {
            kind: Kind::from_byte(bytes[0])?,
            lane: bytes[1],
            sequence: long(8),
            number: long(16),
            other_sum: short(24),
        })
    }
}

/// The checksum that a message carries.
pub(crate) fn sum_of(bytes: &[u8]) -> u32 {
    bytes.get(4..8).and_then(|sum| sum.first_chunk()).map_or(0, |sum| u32::from_be_bytes(*sum))
}

/// Over all but the four bytes that it stands in.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..4]);
    hasher.update(&bytes[8..]);
    hasher.finalize()
}

/// Bytes that follow from a number, so that no two messages are alike.
pub(crate) fn filling(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_parsed_and_any_changed_bit_is_noticed() {
        let header = Header { kind: Kind::Long, lane: 1, sequence: 7, number: u64::MAX, other_sum: 9 };
        let bytes = header.emit(&filling(3, 21));
        assert_eq!(bytes.len(), HEADER + 21);
        assert_eq!(Header::parse(&bytes).unwrap(), header);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&changed).is_err(), "bit {bit}");
        }
        assert!(Header::parse(&bytes[..31]).is_err());
    }
}
