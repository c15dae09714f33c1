//! Why a capture could not be read to its end.

use std::error::Error;
use std::{fmt, io};

use super::MAX_FRAME_LEN;

/// What is wrong with a capture.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The file cannot be opened.
    Closed(io::Error),
    /// The file cannot be read, or not further.
    Unreadable(io::Error),
    /// The file has no bytes.
    Empty,
    /// The file is something else; these are its first bytes.
    Foreign(Vec<u8>),
    /// The file ends in the middle of something.
    Truncated {
        /// Of what.
        inside: Place,
        /// Bytes that were there.
        have: u64,
        /// Bytes that should have been there.
        need: u64,
    },
    /// A frame that announces more bytes than any frame has.
    Absurd(u64, u32),
    /// A field of the file, described in words, contradicts the format.
    Damaged(String),
    /// A link layer that we cannot read.
    UnknownLink(u32),
}

/// A place in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first header.
    FileHeader,
    /// The header in front of a frame.
    FrameHeader(u64),
    /// The bytes of a frame.
    Frame(u64),
    /// Type and length of a pcapng block.
    BlockHeader,
    /// The pcapng block with a frame.
    FrameBlock(u64),
    /// The pcapng block that begins a section.
    SectionHeader,
    /// Any other pcapng block, by its type.
    Block(u32),
}

/// What is wrong, and how much was read before.
#[derive(Debug)]
pub(crate) struct ReadError {
    pub(super) trouble: Trouble,
    pub(super) frames: u64,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.trouble)?;
        match (&self.trouble, self.frames) {
            (Trouble::Truncated { .. } | Trouble::Absurd(..) | Trouble::Damaged(_), 0) => {
                f.write_str("; no frame was read")
            }
            (_, 0) => Ok(()),
            (_, 1) => f.write_str("; 1 frame was read"),
            (_, frames) => write!(f, "; {frames} frames were read"),
        }
    }
}

impl Error for ReadError {}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(error) => write!(f, "cannot be opened: {error}"),
            Self::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Self::Empty => f.write_str("not a pcap or pcapng file (it is empty)"),
            Self::Foreign(start) => {
                f.write_str("not a pcap or pcapng file (starts with")?;
                start.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
                match start[..] {
                    [0x1f, 0x8b, ..] => f.write_str(": gzip; unpack it first)"),
                    [0x28, 0xb5, 0x2f, 0xfd] => f.write_str(": zstd; unpack it first)"),
                    _ => f.write_str(")"),
                }
            }
            Self::Truncated { inside, have, need } => {
                write!(f, "truncated inside {inside} ({have} of {need} bytes)")
            }
            Self::Absurd(frame, len) => write!(
                f,
                "foreign or damaged: frame {frame} announces {len} bytes, at most {MAX_FRAME_LEN} are possible"
            ),
            Self::Damaged(what) => write!(f, "foreign or damaged: {what}"),
            Self::UnknownLink(number) => write!(
                f,
                "link type {number} is not supported (supported: Ethernet, IP, Linux cooked, BSD loopback)"
            ),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileHeader => f.write_str("the file header"),
            Self::FrameHeader(number) => write!(f, "the header of frame {number}"),
            Self::Frame(number) => write!(f, "frame {number}"),
            Self::BlockHeader => f.write_str("the header of a block"),
            Self::FrameBlock(number) => write!(f, "the block of frame {number}"),
            Self::SectionHeader => f.write_str("a section header"),
            Self::Block(kind) => write!(f, "a block of type 0x{kind:08x}"),
        }
    }
}
