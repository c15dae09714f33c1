//! What a packet carries: bytes, a length, or what a capture kept of it.

/// Something with the length of a payload.
pub trait Payload {
    /// Its length in bytes.
    fn len(&self) -> usize;

    /// Its first bytes, as many as are at hand.
    fn bytes(&self) -> &[u8] {
        &[]
    }

    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Payload for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}

/// The length of a payload that is not at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLen(pub usize);

impl Payload for PayloadLen {
    fn len(&self) -> usize {
        self.0
    }
}

/// A payload of which a capture kept the first bytes, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept<'a> {
    /// Those that were kept.
    pub bytes: &'a [u8],
    /// How many there were.
    pub len: usize,
}

impl<'a> From<&'a [u8]> for Kept<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, len: bytes.len() }
    }
}

impl Payload for Kept<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> &[u8] {
        self.bytes
    }
}
