//! The end of a lane that records come out of.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{Mark, WORD, behind, longest, space};
use crate::lie::Lie;
use crate::memory::Memory;

/// The end of a lane that records come out of.
///
/// [`look`](Self::look) reads the producer's word, [`next`](Self::next) takes records one by one up to there, and
/// [`release`](Self::release) gives the room of all that were taken back by one store. All that the other process writes is
/// read once, into memory of this process, and believed only if it can be true.
#[derive(Debug)]
pub struct Consumer {
    memory: Memory,
    /// Bytes that were ever taken, with those that were skipped.
    taken: u64,
    /// Where in the ring the next record is.
    at: usize,
    /// The producer's head when it was last looked at: it may have moved on since, never back.
    head: u64,
    /// What the producer was told to be free again.
    released: u64,
    lie: Option<Lie>,
}

impl Consumer {
    /// A lane begins at zero on both sides: each of its ends is taken once.
    pub(crate) const fn new(memory: Memory) -> Self {
        Self { memory, taken: 0, at: 0, head: 0, released: 0, lie: None }
    }

    /// Whether there is a record to take. It reads the producer's word only if all records that are known of were taken.
    #[inline]
    pub fn look(&mut self) -> bool {
        if self.taken != self.head {
            return self.lie.is_none();
        }
        // Acquire: marks and bytes of the records before it are there to be read.
        let said = self.memory.head().load(Acquire);
        said != self.head && self.believes(said)
    }

    /// Whether there may be a record to take. It only reads, believes nothing, and may be a moment late: a
    /// [`look`](Self::look) says more.
    #[must_use]
    #[inline]
    pub fn has_more(&self) -> bool {
        self.taken != self.head || self.memory.head().load(Relaxed) != self.head
    }

    /// Takes the next record of those that the last [`look`](Self::look) has seen. Its room is the producer's again only with
    /// [`release`](Self::release).
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a record borrows the consumer, which no iterator can say"
    )]
    pub fn next(&mut self) -> Option<Record<'_>> {
        if self.taken == self.head || self.lie.is_some() {
            return None;
        }
        match self.read() {
            Ok(Found { at, len, kind, skipped }) => {
                self.at = behind(at - WORD + space(len), self.memory.len());
                self.taken = self.taken.wrapping_add((skipped + space(len)) as u64);
                Some(Record { memory: &self.memory, at, len, kind })
            }
            Err(lie) => {
                self.lie = Some(lie);
                None
            }
        }
    }

    /// Gives the room of all records that were taken back to the producer.
    #[inline]
    pub fn release(&mut self) {
        if self.taken != self.released {
            // Release: what was read of these records comes before it.
            self.memory.tail().store(self.taken, Release);
            self.released = self.taken;
        }
    }

    /// Whether the producer has lied: then there is never a record again.
    #[must_use]
    #[inline]
    pub const fn is_broken(&self) -> bool {
        self.lie.is_some()
    }

    /// What broke the lane.
    #[must_use]
    pub const fn lie(&self) -> Option<Lie> {
        self.lie
    }

    /// Whether a new head can be true; if so, it is what is known from now on.
    fn believes(&mut self, said: u64) -> bool {
        if self.lie.is_some() {
            return false;
        }
        // All that was released is behind both, so that this also finds a head that went back.
        let (ahead, known) = (said.wrapping_sub(self.released), self.head.wrapping_sub(self.released));
        if ahead < known || ahead > self.memory.len() as u64 {
            self.lie = Some(Lie::Head { known: self.head, said });
        } else if !said.is_multiple_of(WORD as u64) {
            self.lie = Some(Lie::Alignment { said });
        } else {
            self.head = said;
        }
        self.lie.is_none()
    }

    /// The record at the place that has been reached, behind a skip if there is one.
    #[inline]
    fn read(&self) -> Result<Found, Lie> {
        let word = self.memory.mark(self.at);
        match Mark::parse(word) {
            Some(Mark::Record { kind, len }) => self.found(0, kind, len),
            Some(Mark::Skip { len }) => {
                let to_end = self.memory.len() - self.at;
                // A skip leads to the end, is never all of a ring, and a record comes with it.
                if self.at == 0 || len != to_end - WORD || self.left() <= to_end as u64 {
                    return Err(Lie::Mark { said: word });
                }
                let word = self.memory.mark(0);
                match Mark::parse(word) {
                    Some(Mark::Record { kind, len }) => self.found(to_end, kind, len),
                    _ => Err(Lie::Mark { said: word }),
                }
            }
            None => Err(Lie::Mark { said: word }),
        }
    }

    /// The record behind so many bytes that are skipped, or none.
    #[inline]
    fn found(&self, skipped: usize, kind: u8, len: usize) -> Result<Found, Lie> {
        let ring = self.memory.len();
        let at = if skipped > 0 { 0 } else { self.at };
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX) - skipped;
        // All three are multiples of 8 and not 0, so that there is a word to take off.
        let most = longest(ring).min(ring - at - WORD).min(left - WORD);
        if len > most {
            return Err(Lie::Length { said: len, most });
        }
        Ok(Found { at: at + WORD, len, kind, skipped })
    }

    /// Bytes that are published and not taken.
    #[inline]
    const fn left(&self) -> u64 {
        self.head.wrapping_sub(self.taken)
    }
}

/// Where a record is.
struct Found {
    at: usize,
    len: usize,
    kind: u8,
    /// Bytes up to the end of the ring that are skipped before it.
    skipped: usize,
}

/// A record in the ring.
///
/// **On trust.** Length and kind were read once and checked, and never change. The bytes lie in memory that the producer's
/// process maps too. A producer that follows the rules leaves them alone until they are released. One that does not may change
/// them while they are read: two looks at the same byte may then see two values, in [`bytes`](Self::bytes) also where the
/// source code looks only once, for the compiler takes them for bytes that stay as they are, and may read them again. What is
/// promised is that they are memory of the lane, and readable. So:
///
/// - what a decision depends on, such as the headers of a packet, is copied first ([`copy_head`](Self::copy_head)) and then
///   checked and used from the copy alone;
/// - what is merely moved, such as a payload, may be moved from [`bytes`](Self::bytes); what was computed over them, such as
///   a checksum, says nothing about what a second look finds.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    memory: &'a Memory,
    at: usize,
    len: usize,
    kind: u8,
}

impl<'a> Record<'a> {
    /// What the producer has called it.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> u8 {
        self.kind
    }

    /// Bytes that it has.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its bytes, to be moved elsewhere and not to be decided on: see above.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.memory.bytes(self.at, self.len)
    }

    /// Copies its first bytes, as many as there are and as fit, and says how many. Each is read once: whatever the other process
    /// does, the copy is one value.
    #[inline]
    pub fn copy_head(&self, into: &mut [u8]) -> usize {
        let len = into.len().min(self.len);
        self.memory.copy(self.at, &mut into[..len]);
        len
    }
}
