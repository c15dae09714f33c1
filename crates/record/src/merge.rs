//! The events of all rings, in the order of their times.
//!
//! An event may be of a time before the one that was written before it: work that was left for a busy engine was
//! posted earlier than it was taken in. It keeps its time, and its place.

use std::io;

use crate::event::EVENT_LEN;
use crate::read::{Part, Stamped, Trace};

/// Bytes that are read at once, of each ring.
const BUFFER: usize = 1024 * EVENT_LEN;

/// All events of a record: those of one ring in the order in which they were written, rings in the order of their times.
#[derive(Debug)]
pub struct Events<'a> {
    trace: &'a Trace,
    rings: Vec<Cursor<'a>>,
    /// Places that held no event that is known here.
    skipped: u64,
    trouble: Option<io::Error>,
}

/// Where the reader is in a ring.
#[derive(Debug)]
struct Cursor<'a> {
    ring: u32,
    parts: &'a [Part],
    /// Events of the first part that were read.
    done: u64,
    buffer: Vec<u8>,
    /// Events of the buffer that were taken, and that it has.
    taken: usize,
    filled: usize,
    /// What is older in the buffer may be half another event.
    oldest: u64,
    /// The next event of this ring.
    next: Option<Stamped>,
    /// The latest time so far: events of one ring never change places.
    latest: u64,
}

impl<'a> Events<'a> {
    pub(crate) fn new(trace: &'a Trace, rings: impl Iterator<Item = &'a [Part]>) -> Self {
        let cursor = |(ring, parts)| Cursor {
            ring,
            parts,
            done: 0,
            buffer: Vec::new(),
            taken: 0,
            filled: 0,
            oldest: 0,
            next: None,
            latest: 0,
        };
        let mut events =
            Self { trace, rings: (0..).zip(rings).map(cursor).collect(), skipped: 0, trouble: None };
        for ring in 0..events.rings.len() {
            events.advance(ring);
        }
        events
    }

    /// Places that held no event that is known here: it was not finished, or is of a newer writer.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Why the events ended early, if the file could not be read.
    pub fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Finds the next event of a ring.
    fn advance(&mut self, ring: usize) {
        let cursor = &mut self.rings[ring];
        cursor.next = None;
        while let Some(part) = cursor.parts.first().copied() {
            if cursor.taken == cursor.filled {
                cursor.done += cursor.filled as u64;
                (cursor.taken, cursor.filled) = (0, 0);
                if cursor.done < part.count {
                    cursor.buffer.resize(BUFFER, 0);
                    match self.trace.read_part(part, cursor.done, &mut cursor.buffer) {
                        Ok((count, oldest)) => (cursor.filled, cursor.oldest) = (count, oldest),
                        Err(error) => self.trouble = Some(error),
                    }
                }
                if cursor.filled == 0 {
                    // The part is over, or the file is.
                    cursor.parts = &cursor.parts[1..];
                    cursor.done = 0;
                    continue;
                }
            }
            let number = part.first + cursor.done + cursor.taken as u64;
            let place = cursor.taken * EVENT_LEN;
            cursor.taken += 1;
            let bytes = cursor.buffer[place..].first_chunk().filter(|_| number >= cursor.oldest);
            let event = bytes.and_then(|bytes| self.trace.event(part, number, bytes));
            if let Some((time, event)) = event {
                cursor.latest = cursor.latest.max(time);
                cursor.next = Some(Stamped { time, ring: cursor.ring, number, event });
                return;
            }
            self.skipped += 1;
        }
    }
}

impl Iterator for Events<'_> {
    type Item = Stamped;

    fn next(&mut self) -> Option<Stamped> {
        let rings = self.rings.iter().enumerate();
        // What the program did comes after what engines did at the same time: it takes completions that are there.
        let next =
            |(ring, cursor): (usize, &Cursor<'_>)| cursor.next.map(|_| (cursor.latest, ring == 0, ring));
        let (_, _, ring) = rings.filter_map(next).min()?;
        let found = self.rings[ring].next;
        self.advance(ring);
        found
    }
}
