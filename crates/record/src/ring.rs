//! A ring of events, and those that write into it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ferroce_sys::shared_file::SharedFile;

use crate::event::{Event, PacketHead, WORDS, Words};
use crate::layout::{BEGUN, KEPT, LOST, RING_HEAD, Rings};

/// Where the kind and the lap of an event stand.
const FIRST: usize = 1;
const LAP_BITS: u32 = 8;

/// How many events before it is written the place of one is fetched.
const AHEAD: u64 = 8;

/// A ring in a file.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    map: Arc<SharedFile>,
    rings: Rings,
    /// The first word of its head.
    at: usize,
    /// Whether events that are not kept yet are never overwritten.
    waits: bool,
}

impl Ring {
    pub(crate) fn new(map: &Arc<SharedFile>, rings: Rings, number: u32, waits: bool) -> Self {
        Self { map: Arc::clone(map), rings, at: rings.at(number), waits }
    }

    #[inline]
    fn word(&self, place: usize) -> &AtomicU64 {
        &self.map.words()[self.at + place]
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "places have fewer than 32 bits")]
        let place = (number & u64::from(self.rings.slots - 1)) as usize;
        self.at + RING_HEAD + place * WORDS
    }

    #[inline]
    fn slot(&self, number: u64) -> &[AtomicU64; WORDS] {
        let slot = self.map.words()[self.place(number)..].first_chunk();
        slot.expect("a ring ends with a whole place")
    }

    /// Has the place of an event at hand that comes soon: it was last written a whole lap ago, and is far from the processor.
    #[inline]
    fn expect(&self, number: u64) {
        self.map.prefetch(self.place(number));
    }

    /// Whether there is no room for an event that is not to overwrite another.
    #[inline]
    fn is_full(&self, number: u64) -> bool {
        self.waits
            && number.wrapping_sub(self.word(KEPT).load(Ordering::Acquire)) >= u64::from(self.rings.slots)
    }

    fn lose(&self) {
        self.word(LOST).fetch_add(1, Ordering::Relaxed);
    }

    /// Writes an event to its place; it is one for readers when this is over.
    #[inline]
    fn write(&self, (number, lap): (u64, u64), time: u64, words: &Words) {
        let [at, first, rest @ ..] = self.slot(number);
        let [_, word, others @ ..] = words;
        at.store(time, Ordering::Relaxed);
        for place in 0..rest.len() {
            rest[place].store(others[place], Ordering::Relaxed);
        }
        first.store(word | lap << LAP_BITS, Ordering::Release);
    }

    /// Events that were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.word(BEGUN).load(Ordering::Acquire)
    }

    /// Events that are in chunks.
    pub(crate) fn kept(&self) -> u64 {
        self.word(KEPT).load(Ordering::Relaxed)
    }

    /// Events up to this one are in chunks: their places are free.
    pub(crate) fn keep(&self, number: u64) {
        self.word(KEPT).store(number, Ordering::Release);
    }

    /// Events that there was no room for.
    pub(crate) fn lost(&self) -> u64 {
        self.word(LOST).load(Ordering::Relaxed)
    }

    /// The event with this number, if it was written to its end.
    pub(crate) fn read(&self, number: u64) -> Option<Words> {
        let slot = self.slot(number);
        let first = slot[FIRST].load(Ordering::Acquire);
        if first >> LAP_BITS & 0xff != self.rings.lap(number) {
            return None;
        }
        Some(std::array::from_fn(|place| slot[place].load(Ordering::Relaxed)))
    }
}

/// The ring of an engine: one thread at a time writes into it.
#[derive(Debug)]
pub struct EngineRing {
    ring: Ring,
    /// The number of the next event.
    next: u64,
    /// Its lap, which takes a division to find.
    lap: u64,
}

impl EngineRing {
    pub(crate) fn new(ring: Ring) -> Self {
        let next = ring.begun();
        Self { next, lap: ring.rings.lap(next), ring }
    }

    /// Writes what happened at this time, in nanoseconds of the clock of the device.
    #[inline(always)]
    pub fn push(&mut self, time: u64, event: &Event) {
        self.push_words(time, &event.words());
    }

    /// Writes a packet down with these headers: the same as an event of it, for packets that are many.
    #[inline(always)]
    pub fn push_packet(&mut self, time: u64, head: &PacketHead, headers: &[u8]) {
        let (words, more) = head.words(headers);
        self.push_words(time, &words);
        if let Some(more) = more {
            self.push(time, &more.into());
        }
    }

    #[inline(always)]
    fn push_words(&mut self, time: u64, words: &Words) {
        if self.ring.is_full(self.next) {
            return self.ring.lose();
        }
        self.ring.write((self.next, self.lap), time, words);
        self.next += 1;
        self.ring.expect(self.next + AHEAD);
        if self.next & u64::from(self.ring.rings.slots - 1) == 0 {
            self.lap = self.ring.rings.lap(self.next);
        }
        self.ring.word(BEGUN).store(self.next, Ordering::Release);
    }
}

/// The ring of the program: all of its threads write into it at once.
#[derive(Clone, Debug)]
pub struct ProgramRing {
    ring: Ring,
}

impl ProgramRing {
    pub(crate) const fn new(ring: Ring) -> Self {
        Self { ring }
    }

    /// Writes what happened at this time, in nanoseconds of the clock of the device.
    pub fn push(&self, time: u64, event: &Event) {
        self.push_words(time, &event.words());
    }

    /// Writes a packet down with these headers.
    pub fn push_packet(&self, time: u64, head: &PacketHead, headers: &[u8]) {
        let (words, more) = head.words(headers);
        self.push_words(time, &words);
        if let Some(more) = more {
            self.push(time, &more.into());
        }
    }

    fn push_words(&self, time: u64, words: &Words) {
        let Some(number) = self.claim() else { return self.ring.lose() };
        // From here on the event that stood here is none, before any of its words is another.
        self.ring.slot(number)[FIRST].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.ring.write((number, self.ring.rings.lap(number)), time, words);
        self.ring.expect(number + AHEAD);
    }

    /// A place of its own for a thread, if there is room.
    fn claim(&self) -> Option<u64> {
        let begun = self.ring.word(BEGUN);
        if !self.ring.waits {
            return Some(begun.fetch_add(1, Ordering::AcqRel));
        }
        let next = |number| (!self.ring.is_full(number)).then_some(number + 1);
        begun.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()
    }
}
