//! The files that one process makes and another one accepts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::doors::DoorWords;
use crate::exchange::Exchange;
use crate::layout::{HAND_AT, HEADER_PAGE, WORDS_AT};
use crate::memory::Memory;
use crate::sealed::{Kind, LaneError, SealedFile, Writers};
use crate::{Caller, Consumer, Doors, Hand, Line, Producer, Visitor};

/// The version of what is in both files. Processes with another one are refused.
const VERSION: u64 = 2;

/// What the file of a lane begins with: "FERRLANE".
const LANE: Kind =
    Kind { name: c"ferroce-lane", magic: 0x4645_5252_4c41_4e45, version: VERSION, writers: Writers::All };

/// What the file of doors begins with: "FERRDOOR".
const DOORS: Kind =
    Kind { name: c"ferroce-doors", magic: 0x4645_5252_444f_4f52, version: VERSION, writers: Writers::Maker };

/// Bytes of the file of a line.
const LINE_LEN: usize = HEADER_PAGE;

/// Bytes of the file of doors: pages that they fill.
const DOORS_LEN: usize = (WORDS_AT + size_of::<DoorWords>()).next_multiple_of(HEADER_PAGE);

/// What the file of a line begins with: "FERRLINE".
const LINE: Kind =
    Kind { name: c"ferroce-line", magic: 0x4645_5252_4c49_4e45, version: VERSION, writers: Writers::All };

/// A lane before its ends are taken: a file in memory, sealed to its size.
///
/// One process makes it and sends the descriptor to the other, which accepts it; then one of them takes the end for the
/// producer, and the other one that for the consumer. Each end is taken once in the life of a lane: a new one begins at zero. The
/// descriptor is closed with it, and the memory stays for as long as one of them has it mapped.
///
/// The pages come as they are written. Where the system has none then, it ends the process that writes, as for all memory.
#[derive(Debug)]
pub struct LaneFile {
    file: SealedFile,
}

impl LaneFile {
    /// Bytes of the ring, if nothing else is said: with its page of words, and one each way, less than half of a megabyte.
    pub const RING: usize = 240 << 10;

    /// The shortest ring, in bytes.
    pub const LEAST_RING: usize = 4 << 10;

    /// The longest ring, in bytes.
    pub const MOST_RING: usize = 64 << 20;

    /// A new lane, with a ring of [`RING`](Self::RING) bytes.
    ///
    /// # Errors
    /// The system gives no file, no descriptor or no memory.
    pub fn create() -> Result<Self, LaneError> {
        Self::create_with(Self::RING)
    }

    /// A new lane with a ring of so many bytes, which are whole pages.
    ///
    /// # Errors
    /// As for [`create`](Self::create), or no ring has so many bytes.
    pub fn create_with(ring: usize) -> Result<Self, LaneError> {
        SealedFile::create(LANE, len_of(ring)?).map(|file| Self { file })
    }

    /// A lane of [`RING`](Self::RING) bytes that another process has made.
    ///
    /// # Errors
    /// The descriptor is not of such a file, or it cannot be mapped.
    pub fn accept(file: OwnedFd) -> Result<Self, LaneError> {
        Self::accept_with(file, Self::RING)
    }

    /// A lane that another process has made, with a ring of so many bytes.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept), or no ring has so many bytes.
    pub fn accept_with(file: OwnedFd, ring: usize) -> Result<Self, LaneError> {
        SealedFile::accept(file, LANE, len_of(ring)?).map(|file| Self { file })
    }

    /// Which file it is on this machine: device and number. A process that is sent a lane of its own back finds it by that, and
    /// should refuse: it would be at both ends.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn id(&self) -> Result<(u64, u64), LaneError> {
        self.file.id()
    }

    /// Takes the end that records go into.
    #[must_use]
    pub fn into_producer(self) -> Producer {
        Producer::new(self.memory())
    }

    /// Takes the end that records come out of.
    #[must_use]
    pub fn into_consumer(self) -> Consumer {
        Consumer::new(self.memory())
    }

    /// Takes both ends, for two threads of one process.
    #[must_use]
    pub fn split(self) -> (Producer, Consumer) {
        (Producer::new(self.memory()), self.into_consumer())
    }

    /// A visitor at the doors of the process that has the end for the consumer. To be taken by the producer, once.
    #[must_use]
    pub fn visitor(&self, doors: &ForeignDoors) -> Visitor {
        let doors = Exchange::new(doors.file.mapping(), WORDS_AT);
        Visitor::new(doors, Exchange::new(self.file.mapping(), HAND_AT))
    }

    /// The hand of the producer, for the consumer.
    #[must_use]
    pub fn hand(&self) -> Hand {
        Hand::new(Exchange::new(self.file.mapping(), HAND_AT))
    }

    fn memory(&self) -> Memory {
        Memory::new(self.file.mapping())
    }
}

impl AsFd for LaneFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A line before its ends are taken: a file of one page in memory, sealed to its size.
///
/// The owner of a slot makes it, sends the descriptor to all that may call, and takes its own end; those accept it and
/// take theirs. Each thread that calls has an end of its own.
#[derive(Debug)]
pub struct LineFile {
    file: SealedFile,
}

impl LineFile {
    /// A new line, on which nothing calls.
    ///
    /// # Errors
    /// The system gives no file, no descriptor or no memory.
    pub fn create() -> Result<Self, LaneError> {
        SealedFile::create(LINE, LINE_LEN).map(|file| Self { file })
    }

    /// The line of another process.
    ///
    /// # Errors
    /// The descriptor is not of such a file, or it cannot be mapped.
    pub fn accept(file: OwnedFd) -> Result<Self, LaneError> {
        SealedFile::accept(file, LINE, LINE_LEN).map(|file| Self { file })
    }

    /// Takes the end of the owner.
    #[must_use]
    pub fn into_line(self) -> Line {
        Line::new(Exchange::new(self.file.mapping(), WORDS_AT))
    }

    /// An end to call from.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller::new(Exchange::new(self.file.mapping(), WORDS_AT))
    }
}

impl AsFd for LineFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The doors of this process: a file in memory, sealed to its size, to which no other process can write.
///
/// The owner makes it, sends the descriptor to all that may visit, and takes its own end; those accept it as [`ForeignDoors`].
#[derive(Debug)]
pub struct DoorsFile {
    file: SealedFile,
}

impl DoorsFile {
    /// New doors, all closed.
    ///
    /// # Errors
    /// The system gives no file, no descriptor or no memory, or it is older than Linux 5.1, and cannot keep others from writing.
    pub fn create() -> Result<Self, LaneError> {
        SealedFile::create(DOORS, DOORS_LEN).map(|file| Self { file })
    }

    /// Takes the end of the owner.
    #[must_use]
    pub fn doors(&self) -> Doors {
        Doors::new(Exchange::new(self.file.mapping(), WORDS_AT))
    }
}

impl AsFd for DoorsFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The doors of another process, to be looked at.
#[derive(Debug)]
pub struct ForeignDoors {
    file: SealedFile,
}

impl ForeignDoors {
    /// The doors whose file this is.
    ///
    /// # Errors
    /// The descriptor is not of such a file, or it cannot be mapped.
    pub fn accept(file: OwnedFd) -> Result<Self, LaneError> {
        SealedFile::accept(file, DOORS, DOORS_LEN).map(|file| Self { file })
    }
}

/// Bytes of the file of a lane.
fn len_of(ring: usize) -> Result<usize, LaneError> {
    let (least, most) = (LaneFile::LEAST_RING, LaneFile::MOST_RING);
    if ring.is_multiple_of(HEADER_PAGE) && (least..=most).contains(&ring) {
        Ok(HEADER_PAGE + ring)
    } else {
        Err(LaneError::RingSize { given: ring, least, most })
    }
}
