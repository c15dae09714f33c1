//! The end of a lane that records go into.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::layout::{Mark, WORD, behind, front, longest, space};
use crate::lie::Lie;
use crate::memory::Memory;

/// The end of a lane that records go into.
///
/// A record is made in three steps: [`room`](Self::room) gives the bytes for it, in one piece; [`commit`](Self::commit) says
/// that they are written; [`publish`](Self::publish) shows the consumer all that was committed since the last time, by one
/// store. The consumer's own word is read only when the ring seems full, and when the front of a long ring was written: if the
/// consumer has kept up, that is used again, and the rest of the ring is for the moments in which it does not.
#[derive(Debug)]
pub struct Producer {
    memory: Memory,
    /// Bytes that were ever committed, with those that were skipped.
    head: u64,
    /// Where in the ring the next record goes.
    at: usize,
    /// Bytes at the beginning of the ring that are used again as long as the consumer keeps up.
    front: usize,
    /// From where on it is worth a look whether it does.
    turns_at: usize,
    /// The head as the consumer was told it.
    published: u64,
    /// The consumer's tail when it was last looked at: it may have moved on since, never back.
    tail: u64,
    offered: Option<Offer>,
    lie: Option<Lie>,
}

/// Room that was handed out.
#[derive(Clone, Copy, Debug)]
struct Offer {
    /// Bytes up to the end of the ring that are skipped before it.
    skipped: usize,
    /// Bytes that the record may have.
    len: usize,
}

impl Producer {
    /// A lane begins at zero on both sides: each of its ends is taken once.
    pub(crate) const fn new(memory: Memory) -> Self {
        let front = front(memory.len());
        Self {
            memory,
            head: 0,
            at: 0,
            front,
            turns_at: front,
            published: 0,
            tail: 0,
            offered: None,
            lie: None,
        }
    }

    /// The same with another front.
    #[cfg(loom)]
    pub(crate) const fn with_front(self, front: usize) -> Self {
        Self { front, turns_at: front, ..self }
    }

    /// The longest record, in bytes.
    #[must_use]
    #[inline]
    pub fn longest(&self) -> usize {
        longest(self.memory.len())
    }

    /// Room for a record of so many bytes; `None` if there is none now, if no record is so long, or if the lane is broken.
    ///
    /// What is in it is left over from earlier records. Another call before [`commit`](Self::commit) gives other room in
    /// place of this. The consumer's process maps these bytes too: write to them, and do not rely on what they hold.
    #[inline]
    pub fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.longest() || self.lie.is_some() {
            return None;
        }
        let to_end = self.memory.len() - self.at;
        let skips = space(len) > to_end || (self.at >= self.turns_at && self.front_is_free());
        let skipped = if skips { to_end } else { 0 };
        let needed = (skipped + space(len)) as u64;
        if needed > self.free() {
            self.look_at_tail();
            if needed > self.free() || self.lie.is_some() {
                return None;
            }
        }
        self.offered = Some(Offer { skipped, len });
        let start = if skips { 0 } else { self.at };
        Some(self.memory.room(start + WORD, len))
    }

    /// Whether so many bytes of the ring are free now. Not all of them need to be in one piece, and each record takes some more
    /// than its own.
    #[inline]
    pub fn has_free(&mut self, bytes: usize) -> bool {
        if self.free() < bytes as u64 {
            self.look_at_tail();
        }
        self.lie.is_none() && self.free() >= bytes as u64
    }

    /// Ends a record of this kind, with the first `len` bytes of the room that was given last. The consumer does not see it yet.
    ///
    /// # Panics
    /// There was no [`room`](Self::room), or it was shorter.
    #[inline]
    pub fn commit(&mut self, kind: u8, len: usize) {
        let offer = self.offered.take().expect("room was asked for");
        assert!(len <= offer.len, "{len} bytes are more than the {} that there was room for", offer.len);
        let mut start = self.at;
        if offer.skipped > 0 {
            self.memory.set_mark(start, Mark::Skip { len: offer.skipped - WORD }.emit());
            start = 0;
        }
        self.memory.written(start + WORD, len);
        self.memory.set_mark(start, Mark::Record { kind, len }.emit());
        let end = behind(start + space(len), self.memory.len());
        if offer.skipped > 0 || end == 0 {
            self.turns_at = self.front;
        }
        self.at = end;
        self.head = self.head.wrapping_add((offer.skipped + space(len)) as u64);
    }

    /// Shows the consumer all that was committed; whether there was anything it had not seen.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.head == self.published || self.lie.is_some() {
            return false;
        }
        // Release: marks and bytes of all these records come before it.
        self.memory.head().store(self.head, Release);
        self.published = self.head;
        true
    }

    /// Whether the consumer has given back the room of every record, and none waits to be published. Never true of a
    /// lane that is broken.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.look_at_tail();
        self.tail == self.head && self.lie.is_none()
    }

    /// Whether the consumer has lied: then there is never room again.
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

    /// Gives the pages of a lane in which nothing is under way back to the system; whether it was so. They come back as they
    /// are written again, which costs a page fault each: this is for lanes that have been idle for long.
    ///
    /// # Errors
    /// The system keeps the pages. The lane is as it was.
    #[cfg(not(loom))]
    pub fn give_pages_back(&mut self) -> std::io::Result<bool> {
        // Room that was handed out is as zeroes then, as it may be.
        if !self.is_empty() {
            return Ok(false);
        }
        self.memory.forget().map(|()| true)
    }

    /// Whether the consumer has kept up, and so the front is free but for a little. If not, it is asked again a little later.
    ///
    /// A consumer that stops just then leaves no more room than the front has, since the rest of the ring is skipped until it
    /// has passed there.
    #[cold]
    fn front_is_free(&mut self) -> bool {
        self.look_at_tail();
        let unread = usize::try_from(self.head.wrapping_sub(self.tail)).unwrap_or(usize::MAX);
        let is_free = unread <= self.front / 8 * 3;
        if !is_free {
            self.turns_at = self.at + self.front / 4;
        }
        is_free
    }

    /// Bytes that are free, as far as is known.
    #[inline]
    fn free(&self) -> u64 {
        self.memory.len() as u64 - self.head.wrapping_sub(self.tail)
    }

    /// Reads the consumer's word, once, and believes it only if it can be true.
    fn look_at_tail(&mut self) {
        if self.lie.is_some() {
            return;
        }
        // Acquire: what the consumer has read of its records came before, so that we may write there.
        let said = self.memory.tail().load(Acquire);
        if said.wrapping_sub(self.tail) > self.published.wrapping_sub(self.tail) {
            self.lie = Some(Lie::Tail { known: self.tail, said });
        } else if !said.is_multiple_of(WORD as u64) {
            self.lie = Some(Lie::Alignment { said });
        } else {
            self.tail = said;
        }
    }
}
