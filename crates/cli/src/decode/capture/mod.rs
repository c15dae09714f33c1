//! Capture files to frames: pcap and pcapng, in either byte order.
//!
//! Captures come from strangers. They are read as a stream, in memory that does not
//! grow with the file; a length field is believed only up to [`MAX_FRAME_LEN`]; and
//! whatever is wrong is a [`Trouble`] that comes after all frames in front of it.
//!
//! Both formats are read here rather than by a library, because a truncated file must
//! still give its whole frames and say where it ends, and because time stamps
//! must keep the unit and the offset that a pcapng interface gives them.

mod input;
mod pcap;
mod pcapng;
mod time;
mod trouble;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use input::Input;
use pcap::Pcap;
use pcapng::PcapNg;
pub(super) use time::Time;
pub(super) use trouble::{ReadError, Trouble};

use super::link::Link;

/// Bytes of the longest frame that is read: four times the longest IP packet, and
/// what other tools allow too.
pub(super) const MAX_FRAME_LEN: u32 = 1 << 18;

/// A capture file that is open.
pub(super) struct Capture {
    input: Input,
    format: Format,
    /// Frames read.
    frames: u64,
    /// The last one's bytes.
    bytes: Vec<u8>,
}

enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// A frame as it was captured.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// Its number in the file, from 1.
    pub(super) number: u64,
    /// When it was captured, if the file says so.
    pub(super) time: Option<Time>,
    /// How it begins.
    pub(super) link: Link,
    /// Bytes that it had on the network.
    pub(super) original_len: u32,
    /// The bytes that were kept.
    pub(super) bytes: &'a [u8],
}

/// What a format says about a frame besides its bytes.
struct Info {
    time: Option<Time>,
    link: u32,
    original_len: u32,
}

impl Capture {
    /// Opens a file, or standard input for `-`, and reads its first header.
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let opened: io::Result<Box<dyn Read>> = if path == "-" {
            Ok(Box::new(io::stdin().lock()))
        } else {
            File::open(path).map(|file| Box::new(file) as Box<dyn Read>)
        };
        opened
            .map_err(Trouble::Closed)
            .and_then(Self::new)
            .map_err(|trouble| ReadError { trouble, frames: 0 })
    }

    fn new(reader: Box<dyn Read>) -> Result<Self, Trouble> {
        let mut input = Input::new(reader);
        let mut magic = [0; 4];
        match input.fill(&mut magic)? {
            4 => {}
            0 => return Err(Trouble::Empty),
            short => return Err(Trouble::Foreign(magic[..short].to_vec())),
        }
        let mut input = input.unread(magic);
        let format = if PcapNg::recognise(magic) {
            Format::PcapNg(PcapNg::new())
        } else if let Some(variant) = Pcap::recognise(magic) {
            let pcap = Pcap::open(&mut input, variant)?;
            known(pcap.link())?;
            Format::Pcap(pcap)
        } else {
            return Err(Trouble::Foreign(magic.to_vec()));
        };
        Ok(Self { input, format, frames: 0, bytes: Vec::new() })
    }

    /// Whether [`next`](Self::next) may have to wait for its input.
    pub(super) fn may_block(&self) -> bool {
        self.input.may_block()
    }

    /// The next frame, or `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let frames = self.frames;
        let number = frames + 1;
        let next = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.input, number, &mut self.bytes),
            Format::PcapNg(pcapng) => pcapng.next(&mut self.input, number, &mut self.bytes),
        };
        let record = next.and_then(|info| {
            let Some(Info { time, link, original_len }) = info else { return Ok(None) };
            Ok(Some(Record { number, time, link: known(link)?, original_len, bytes: &self.bytes }))
        });
        if let Ok(Some(_)) = record {
            self.frames = number;
        }
        record.map_err(|trouble| ReadError { trouble, frames })
    }
}

fn known(link: u32) -> Result<Link, Trouble> {
    Link::from_number(link).ok_or(Trouble::UnknownLink(link))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Reads a capture to its end or to its first mistake, and returns how many frames it gave.
    fn read(file: Vec<u8>) -> u64 {
        let Ok(mut capture) = Capture::new(Box::new(Cursor::new(file))) else { return 0 };
        while let Ok(Some(record)) = capture.next() {
            assert!(record.bytes.len() <= MAX_FRAME_LEN as usize);
        }
        assert!(capture.bytes.capacity() <= MAX_FRAME_LEN as usize);
        capture.frames
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn pcap() -> Vec<u8> {
        let frame = [7, 8, 4, 4, 0x0102_0304];
        words(&[&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, 1][..], &frame, &frame].concat())
    }

    fn pcapng() -> Vec<u8> {
        let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
        let interface = [1, 40, 1, 0, 0x0001_0009, 9, 0x0008_000e, 5, 0, 40];
        let enhanced = [6, 36, 0, 7, 8, 4, 4, 0x0102_0304, 36];
        let simple = [3, 20, 4, 0x0102_0304, 20];
        let obsolete = [2, 36, 0, 7, 8, 4, 4, 0x0102_0304, 36];
        words(&[&section[..], &interface, &enhanced, &simple, &obsolete].concat())
    }

    #[test]
    fn damage_anywhere_is_survived() {
        for (file, frames) in [(pcap(), 2), (pcapng(), 3)] {
            assert_eq!(read(file.clone()), frames);
            for at in 0..file.len() {
                read(file[..at].to_vec());
                for byte in 0..=u8::MAX {
                    let mut damaged = file.clone();
                    damaged[at] = byte;
                    read(damaged);
                }
            }
            for at in 0..file.len() / 4 {
                for value in
                    [0, 1, 11, 12, 16, MAX_FRAME_LEN, MAX_FRAME_LEN + 1, 1 << 31, u32::MAX - 3, u32::MAX]
                {
                    let mut damaged = file.clone();
                    damaged[at * 4..][..4].copy_from_slice(&value.to_le_bytes());
                    read(damaged);
                }
            }
        }
    }

    #[test]
    fn interfaces_have_a_limit() {
        let mut file = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
        for _ in 0..=1 << 16 {
            file.extend(words(&[1, 20, 1, 0, 20]));
        }
        let mut capture = Capture::new(Box::new(Cursor::new(file))).unwrap();
        let error = capture.next().unwrap_err().to_string();
        assert_eq!(error, "foreign or damaged: more than 65536 interfaces; no frame was read");
    }
}
