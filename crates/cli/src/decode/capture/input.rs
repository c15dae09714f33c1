//! The bytes of a capture, in order.

use std::io::{self, BufReader, Cursor, Read};

use super::trouble::{Place, Trouble};

/// A stream of bytes that knows how to say where it ended.
pub(super) struct Input(BufReader<Box<dyn Read>>);

impl Input {
    pub(super) fn new(reader: Box<dyn Read>) -> Self {
        Self(BufReader::with_capacity(1 << 16, reader))
    }

    /// The same input from the start, of which `bytes` were read.
    pub(super) fn unread<const N: usize>(self, bytes: [u8; N]) -> Self {
        Self::new(Box::new(Cursor::new(bytes).chain(self.0)))
    }

    /// Whether the next read asks the operating system, which may take as long as it likes.
    pub(super) fn may_block(&self) -> bool {
        self.0.buffer().is_empty()
    }

    /// Reads until `bytes` is full or the input ends, and returns how much it was.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, Trouble> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.0.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble::Unreadable(error)),
            }
        }
        Ok(filled)
    }

    /// The next bytes, all of them, or `None` if the input ends before the first.
    pub(super) fn array<const N: usize>(&mut self, inside: Place) -> Result<Option<[u8; N]>, Trouble> {
        let mut bytes = [0; N];
        match self.fill(&mut bytes)? {
            0 => Ok(None),
            filled if filled == N => Ok(Some(bytes)),
            filled => Err(Trouble::Truncated { inside, have: filled as u64, need: N as u64 }),
        }
    }

    /// Reads and forgets up to `len` bytes, and returns how many there were.
    pub(super) fn skip(&mut self, len: u64) -> Result<u64, Trouble> {
        io::copy(&mut self.0.by_ref().take(len), &mut io::sink()).map_err(Trouble::Unreadable)
    }
}

/// The byte order of the machine that wrote a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Big,
    Little,
}

impl Order {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    pub(super) fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Big => i64::from_be_bytes(bytes),
            Self::Little => i64::from_le_bytes(bytes),
        }
    }

    /// The `N` words of a header.
    pub(super) fn words<const N: usize>(self, bytes: &[u8]) -> [u32; N] {
        let (chunks, _) = bytes.as_chunks::<4>();
        let mut words = [0; N];
        for (word, chunk) in words.iter_mut().zip(chunks) {
            *word = self.u32(*chunk);
        }
        words
    }
}
