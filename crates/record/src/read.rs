//! A file of a record, read: whatever has become of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::chunk::{CHUNK_HEAD, Chunk};
use crate::event::{EVENT_LEN, Event, WORDS, Words};
use crate::header::{Header, HeaderError, VERSION};
use crate::layout::{BEGUN, HEADER_LEN, KEPT, LOST, RING_HEAD};
use crate::merge::Events;

/// Why a file tells nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
    /// It ends within its first 4096 bytes.
    #[error("{} ends before its first event", .0.display())]
    Cut(PathBuf),
    /// It is something else.
    #[error("{} is no record of a device", .0.display())]
    Foreign(PathBuf),
    /// It was written by another version.
    #[error("{} is of version {version}, and this program reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Its first bytes are not what a writer writes.
    #[error("{} is damaged: its header says what cannot be", .0.display())]
    Damaged(PathBuf),
}

/// An event and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Nanoseconds of the clock of the device.
    pub time: u64,
    /// The ring that it was in: 0 is that of the program.
    pub ring: u32,
    /// Its number there.
    pub number: u64,
    /// What happened.
    pub event: Event,
}

/// What is to be known of a ring besides its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingNote {
    /// Events that were overwritten by later ones: a flight recorder does that.
    pub overwritten: u64,
    /// Events that could not be kept: there was no room for them in time, or on the disk.
    pub lost: u64,
}

/// A record that was opened.
#[derive(Debug)]
pub struct Trace {
    file: File,
    header: Header,
    rings: Vec<Stored>,
    /// Whether the file ends within something.
    is_cut: bool,
}

/// Where the events of a ring are, in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) parts: Vec<Part>,
    note: RingNote,
}

/// Events that lie side by side in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Where the first of them is.
    pub(crate) at: u64,
    /// Its number.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// The ring that they are still in, where an event may be unfinished, or another one by now.
    pub(crate) in_ring: Option<u32>,
}

impl Trace {
    /// Opens a file, which may be written still.
    ///
    /// # Errors
    /// It cannot be read, or is no record. A record that was cut off is opened, and tells what it has.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let unreadable = |source| TraceError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let mut bytes = vec![0; HEADER_LEN];
        let len = read_at(&file, &mut bytes, 0).map_err(unreadable)?;
        let header = Header::parse(&bytes[..len]).map_err(|error| {
            let path = path.to_owned();
            match error {
                HeaderError::Empty => TraceError::Empty(path),
                HeaderError::Cut => TraceError::Cut(path),
                HeaderError::Foreign => TraceError::Foreign(path),
                HeaderError::Version(version) => TraceError::Version { path, version },
                HeaderError::Damaged => TraceError::Damaged(path),
            }
        })?;
        let rings = vec![Stored::default(); header.rings.count as usize];
        let mut trace = Self { file, header, rings, is_cut: false };
        // Rings first: what is moved from them into chunks meanwhile is in both, and never in none.
        let heads = trace.ring_heads().map_err(unreadable)?;
        trace.find_chunks().map_err(unreadable)?;
        trace.find_rings(&heads);
        Ok(trace)
    }

    /// What is known of it.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What is to be known of each ring besides its events.
    pub fn rings(&self) -> impl Iterator<Item = RingNote> + '_ {
        self.rings.iter().map(|ring| ring.note)
    }

    /// Whether the file ends within something: the rest of it is missing.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many events there are at most: of those in a ring, some may turn out to be unfinished.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.rings.iter().flat_map(|ring| &ring.parts).map(|part| part.count).sum()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All events in the order of their times; those of one ring in the order in which they were written.
    #[must_use]
    pub fn events(&self) -> Events<'_> {
        Events::new(self, self.rings.iter().map(|ring| &ring.parts[..]))
    }

    /// What the head of each ring says: events begun, lost, kept.
    fn ring_heads(&mut self) -> io::Result<Vec<[u64; 3]>> {
        let rings = self.header.rings;
        let mut heads = Vec::new();
        for ring in 0..rings.count {
            let mut bytes = [0; RING_HEAD * 8];
            let len = read_at(&self.file, &mut bytes, rings.at(ring) as u64 * 8)?;
            self.is_cut |= len < bytes.len();
            let word = |place: usize| u64::from_le_bytes(std::array::from_fn(|at| bytes[place * 8 + at]));
            heads.push([BEGUN, LOST, KEPT].map(word));
        }
        Ok(heads)
    }

    fn find_chunks(&mut self) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        let mut at = self.header.rings.words() as u64 * 8;
        loop {
            let mut bytes = [0; CHUNK_HEAD];
            if read_at(&self.file, &mut bytes, at)? < CHUNK_HEAD {
                return Ok(());
            }
            let Some(chunk) = Chunk::parse(&bytes, self.header.rings.count) else { return Ok(()) };
            let stored = &mut self.rings[chunk.ring as usize];
            let first = at + CHUNK_HEAD as u64;
            let there = len.saturating_sub(first) / EVENT_LEN as u64;
            let count = u64::from(chunk.count).min(there);
            // Numbers ascend; a file where they do not is damaged, and ends there.
            let end = stored.parts.last().map_or(0, |part| part.first + part.count);
            if chunk.first < end || chunk.first.checked_add(count).is_none() {
                self.is_cut = true;
                return Ok(());
            }
            stored.parts.push(Part { at: first, first: chunk.first, count, in_ring: None });
            stored.note.lost = stored.note.lost.max(chunk.lost);
            if count < u64::from(chunk.count) {
                self.is_cut = true;
                return Ok(());
            }
            at += chunk.len();
        }
    }

    /// Adds what is in the rings and in no chunk.
    fn find_rings(&mut self, heads: &[[u64; 3]]) {
        let rings = self.header.rings;
        let slots = u64::from(rings.slots);
        for (number, (stored, [begun, lost, _])) in (0..).zip(self.rings.iter_mut().zip(heads)) {
            stored.note.lost = stored.note.lost.max(*lost);
            let kept = stored.parts.last().map_or(0, |part| part.first + part.count);
            let oldest = rings.oldest(*begun);
            let first = kept.max(oldest);
            stored.note.overwritten = oldest.saturating_sub(kept);
            let events = (rings.at(number) + RING_HEAD) as u64 * 8;
            let mut from = first;
            while from < *begun {
                let place = from % slots;
                let count = (begun - from).min(slots - place);
                let at = events + place * EVENT_LEN as u64;
                stored.parts.push(Part { at, first: from, count, in_ring: Some(number) });
                from += count;
            }
        }
    }

    /// Reads events of a part into a buffer, as many as fit; how many, and the oldest that is to be believed.
    pub(crate) fn read_part(&self, part: Part, skip: u64, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        let left = usize::try_from(part.count - skip).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len() / EVENT_LEN);
        let len = read_at(&self.file, &mut buffer[..wanted * EVENT_LEN], part.at + skip * EVENT_LEN as u64)?;
        let oldest = part.in_ring.map_or(Ok(0), |ring| self.oldest(ring))?;
        Ok((len / EVENT_LEN, oldest))
    }

    /// The oldest event that a ring has by now: older ones that were just read may be half another.
    fn oldest(&self, ring: u32) -> io::Result<u64> {
        let mut bytes = [0; 8];
        read_at(&self.file, &mut bytes, (self.header.rings.at(ring) + BEGUN) as u64 * 8)?;
        Ok(self.header.rings.oldest(u64::from_le_bytes(bytes)))
    }

    /// The event that these bytes are; none if it was not finished, or is of a kind that is not known here.
    pub(crate) fn event(&self, part: Part, number: u64, bytes: &[u8; EVENT_LEN]) -> Option<(u64, Event)> {
        let mut words: Words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        if part.in_ring.is_some() && words[1] >> 8 & 0xff != self.header.rings.lap(number) {
            return None;
        }
        Some((words[0], Event::from_words(&words)?))
    }
}

/// Reads until the buffer is full or the file ends; how much.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
