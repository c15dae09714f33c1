//! What each end tells the other before the first message: it travels with the connection request and its answer.

use ferroce_verbs::{RemoteRegion, Rkey};

use crate::error::HelloError;

/// The first words of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Messages that it has room for.
    pub(crate) depth: u16,
    /// Bytes of the longest message that comes at once, with its header.
    pub(crate) slot: u32,
    /// Bytes of the longest message that it takes at all.
    pub(crate) max_message: u64,
    /// Memory that the other end may use by address.
    pub(crate) window: Grant,
}

/// What became of the wish to use memory by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// There is no window.
    None,
    /// There is one, and not for this peer.
    Refused,
    /// It may be read.
    ReadOnly(RemoteRegion),
    /// It may be read and written.
    ReadWrite(RemoteRegion),
}

impl Hello {
    /// A request for an IP port has room for 56 bytes.
    pub(crate) const LEN: usize = 20 + 1 + RemoteRegion::LEN;
    const MAGIC: [u8; 4] = *b"FrEp";
    const VERSION: u8 = 2;

    pub(crate) fn emit(&self) -> [u8; Self::LEN] {
        let nothing = RemoteRegion { address: 0, length: 0, rkey: Rkey(0) };
        let (state, region) = match self.window {
            Grant::None => (0, nothing),
            Grant::Refused => (1, nothing),
            Grant::ReadOnly(region) => (2, region),
            Grant::ReadWrite(region) => (3, region),
        };
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4] = Self::VERSION;
        bytes[6..8].copy_from_slice(&self.depth.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.slot.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.max_message.to_be_bytes());
        bytes[20] = state;
        bytes[21..].copy_from_slice(&region.to_bytes());
        bytes
    }

    /// Reads it from private data, which may be longer.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, HelloError> {
        let bytes = bytes.get(..Self::LEN).ok_or(HelloError::NotOurs)?;
        let number =
            |at: usize, len: usize| bytes[at..at + len].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        if bytes[..4] != Self::MAGIC {
            return Err(HelloError::NotOurs);
        }
        if bytes[4] != Self::VERSION {
            return Err(HelloError::Version { given: bytes[4], known: Self::VERSION });
        }
        let region = RemoteRegion::from_bytes(&bytes[21..]).map_err(|_| HelloError::NotOurs)?;
        let around = region.address.checked_add(region.length).is_none();
        let window = match bytes[20] {
            0 => Grant::None,
            1 => Grant::Refused,
            2 if !around => Grant::ReadOnly(region),
            3 if !around => Grant::ReadWrite(region),
            _ => return Err(HelloError::Senseless { what: "window" }),
        };
        let (depth, slot) = (number(6, 2), number(8, 4));
        if !(2..=1 << 14).contains(&depth) {
            return Err(HelloError::Senseless { what: "number of messages" });
        }
        if !(256..=1 << 24).contains(&slot) {
            return Err(HelloError::Senseless { what: "length of messages" });
        }
        Ok(Self {
            depth: u16::try_from(depth).unwrap_or(u16::MAX),
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            max_message: number(12, 8),
            window,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_the_way_and_fits() {
        const { assert!(Hello::LEN <= 56) };
        let region = RemoteRegion { address: 0x1000, length: 64, rkey: Rkey(3) };
        for window in [Grant::None, Grant::Refused, Grant::ReadOnly(region), Grant::ReadWrite(region)] {
            let hello = Hello { depth: 64, slot: 16384, max_message: 1 << 40, window };
            let mut bytes = hello.emit().to_vec();
            bytes.resize(56, 0);
            assert_eq!(Hello::parse(&bytes), Ok(hello));
        }
    }

    #[test]
    fn a_hello_without_sense_is_refused() {
        let hello = Hello { depth: 64, slot: 16384, max_message: 1 << 20, window: Grant::None };
        assert_eq!(Hello::parse(&[0; 56]), Err(HelloError::NotOurs));
        assert_eq!(Hello::parse(&hello.emit()[..40]), Err(HelloError::NotOurs));
        let with = |at: usize, value: u8| {
            let mut bytes = hello.emit();
            bytes[at] = value;
            Hello::parse(&bytes).unwrap_err()
        };
        assert_eq!(with(4, 9), HelloError::Version { given: 9, known: 2 });
        assert_eq!(with(20, 4), HelloError::Senseless { what: "window" });
        assert_eq!(with(6, 0xff), HelloError::Senseless { what: "number of messages" });
        assert_eq!(with(8, 0xff), HelloError::Senseless { what: "length of messages" });
    }
}
