//! The first 4096 bytes of a file: what it is, which program it is of, and how its clock is to be read.

use crate::layout::{HEADER_LEN, Rings};

/// What a file of ours begins with. Its line ends show a file that was changed as text.
pub(crate) const MAGIC: [u8; 8] = *b"FTRACE\r\n";

/// The version of the format.
pub(crate) const VERSION: u32 = 1;

/// Where the word stands that says that the writer is done; it is stored last.
pub(crate) const ENDED_WORD: usize = 8;

/// Bytes of a name at most; longer ones are cut.
const NAME: usize = 1024;

/// Where names stand.
const PROGRAM_AT: usize = 1024;
const HOST_AT: usize = PROGRAM_AT + 2 + NAME;

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The last events only: old ones are overwritten.
    Flight,
    /// All events.
    Whole,
}

/// What is known of a record before its first event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is for.
    pub mode: Mode,
    /// One of so many work requests is recorded.
    pub sample: u32,
    /// The process.
    pub pid: u32,
    /// The program and its arguments, with spaces between them.
    pub program: String,
    /// The host.
    pub host: String,
    /// The boot of the machine: records of the same one have the same clock.
    pub boot: u128,
    /// What the monotonic clock of the machine showed at time 0 of the events, in nanoseconds.
    pub clock_start: u64,
    /// What the clock of the wall showed then, in nanoseconds since 1970.
    pub wall_start: u64,
    /// Whether the writer came to its end; else it was killed, or goes on.
    pub has_ended: bool,
    pub(crate) rings: Rings,
}

/// Why these bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// There are none.
    Empty,
    /// They end too early.
    Cut,
    /// They are something else.
    Foreign,
    /// They are of a version that is not known here.
    Version(u32),
    /// They are not what any writer of this version writes.
    Damaged,
}

impl Header {
    /// The bytes of a file.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(8, &VERSION.to_le_bytes());
        put(
            12,
            &[match self.mode {
                Mode::Flight => 1,
                Mode::Whole => 2,
            }],
        );
        put(16, &self.rings.count.to_le_bytes());
        put(20, &self.rings.slots.to_le_bytes());
        put(24, &self.sample.to_le_bytes());
        put(28, &self.pid.to_le_bytes());
        put(32, &self.clock_start.to_le_bytes());
        put(40, &self.wall_start.to_le_bytes());
        put(48, &self.boot.to_le_bytes());
        put(ENDED_WORD * 8, &u64::from(self.has_ended).to_le_bytes());
        for (at, name) in [(PROGRAM_AT, &self.program), (HOST_AT, &self.host)] {
            let name = &name[..name.floor_char_boundary(NAME)];
            put(at, &u16::try_from(name.len()).unwrap_or(0).to_le_bytes());
            put(at + 2, name.as_bytes());
        }
        // It stands there last in memory, too, but the order in a file is that of the words: a reader that comes too
        // early finds no rings.
        put(0, &MAGIC);
        bytes
    }

    /// What these bytes say.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.is_empty() {
            return Err(HeaderError::Empty);
        }
        let begins = bytes.len().min(MAGIC.len());
        if bytes[..begins] != MAGIC[..begins] {
            return Err(HeaderError::Foreign);
        }
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else { return Err(HeaderError::Cut) };
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        if u32_at(8) != VERSION {
            return Err(HeaderError::Version(u32_at(8)));
        }
        let name = |at: usize| {
            let len = usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])).min(NAME);
            String::from_utf8_lossy(&bytes[at + 2..at + 2 + len]).into_owned()
        };
        let mode = match bytes[12] {
            1 => Mode::Flight,
            2 => Mode::Whole,
            _ => return Err(HeaderError::Damaged),
        };
        let rings = Rings { count: u32_at(16), slots: u32_at(20) };
        if !rings.are_possible() || u32_at(24) == 0 {
            return Err(HeaderError::Damaged);
        }
        Ok(Self {
            mode,
            sample: u32_at(24),
            pid: u32_at(28),
            clock_start: u64_at(32),
            wall_start: u64_at(40),
            boot: u128::from_le_bytes(std::array::from_fn(|place| bytes[48 + place])),
            has_ended: u64_at(ENDED_WORD * 8) != 0,
            program: name(PROGRAM_AT),
            host: name(HOST_AT),
            rings,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            mode: Mode::Whole,
            sample: 1,
            pid: 77,
            program: "ib_write_bw -d ferroce_lo".to_owned(),
            host: "host1".to_owned(),
            boot: u128::MAX - 5,
            clock_start: 123,
            wall_start: 456,
            has_ended: true,
            rings: Rings { count: 3, slots: 1024 },
        }
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        assert_eq!(Header::parse(&header().emit()), Ok(header()));
        let long = Header { program: "ö".repeat(NAME), ..header() };
        let back = Header::parse(&long.emit()).unwrap();
        assert_eq!(
            (back.program, back.host),
            ("ö".repeat(NAME / 2), "host1".to_owned()),
            "it is cut between letters"
        );
    }

    #[test]
    fn what_is_no_header_is_said_to_be_so() {
        let bytes = header().emit();
        assert_eq!(Header::parse(&[]), Err(HeaderError::Empty));
        assert_eq!(Header::parse(&bytes[..5]), Err(HeaderError::Cut));
        assert_eq!(Header::parse(&bytes[..4095]), Err(HeaderError::Cut));
        assert_eq!(Header::parse(b"\x0a\x0d\x0d\x0a"), Err(HeaderError::Foreign));
        assert_eq!(Header::parse(&[0; 4096]), Err(HeaderError::Foreign));
        for (at, value, error) in [
            (8, 2, HeaderError::Version(2)),
            (12, 9, HeaderError::Damaged),
            (16, 0, HeaderError::Damaged),
            (20, 3, HeaderError::Damaged),
            (24, 0, HeaderError::Damaged),
        ] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            assert_eq!(Header::parse(&bytes), Err(error), "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_not(
            mut bytes in proptest::collection::vec(any::<u8>(), HEADER_LEN),
            places in proptest::collection::vec((8_usize..80, any::<u8>()), 0..4),
        ) {
            let _ = Header::parse(&bytes);
            bytes[..64].copy_from_slice(&header().emit()[..64]);
            for (place, value) in places {
                bytes[place] = value;
            }
            let _ = Header::parse(&bytes);
        }
    }
}
