//! Memory of a peer.

use std::ops::RangeBounds;

use ferroce_transport::Remote;
use ferroce_wire::Rkey;

use crate::error::{ParseAddressError, PostError};
use crate::ranges::bounds;

/// What one must know of a peer's memory to use it. The peer gets it from
/// [`MemoryRegion::remote`](crate::MemoryRegion::remote) and sends it in any way it likes.
///
/// It is only knowledge: the peer's device checks every access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// The address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The key that opens it.
    pub rkey: Rkey,
}

impl RemoteRegion {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 20;

    /// A part of it. Whether the part is inside is checked when work is posted.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<u64>) -> RemoteSlice {
        let (start, end) = bounds(&range, self.length);
        RemoteSlice { region: *self, start, end }
    }

    /// For sending it to a peer.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..].copy_from_slice(&self.rkey.0.to_be_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// The number of bytes is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ParseAddressError> {
        let wrong = ParseAddressError::Length { given: bytes.len(), needed: Self::LEN };
        let bytes: &[u8; Self::LEN] = bytes.try_into().map_err(|_| wrong)?;
        let number = |at: usize| (0..8).fold(0, |value, i| value << 8 | u64::from(bytes[at + i]));
        let rkey = Rkey(u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]));
        Ok(Self { address: number(0), length: number(8), rkey })
    }
}

/// A part of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a slice does nothing until work that names it is posted"]
pub struct RemoteSlice {
    region: RemoteRegion,
    start: u64,
    end: u64,
}

impl RemoteSlice {
    /// None of a peer's memory.
    pub(crate) const NONE: Self =
        Self { region: RemoteRegion { address: 0, length: 0, rkey: Rkey(0) }, start: 0, end: 0 };

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As a card wants it, if it is inside its region and has room for `local` bytes; [`to_remote`](Self::to_remote) says why not.
    #[inline(always)]
    pub(crate) const fn remote(&self, local: u64) -> Option<Remote> {
        let Self { region: RemoteRegion { address, length: size, rkey }, start, end } = self;
        if *start > *end || *end > *size || local > *end - *start {
            return None;
        }
        Some(Remote { address: address.wrapping_add(*start), rkey: *rkey })
    }

    /// As the device wants it, if it is inside its region and has room for `local` bytes.
    pub(crate) fn to_remote(self, local: u64) -> Result<Remote, PostError> {
        let Self { region: RemoteRegion { address, length: size, rkey }, start, end } = self;
        if start > end || end > size {
            return Err(PostError::OutsideRemote { start, end, size });
        }
        if local > self.len() {
            return Err(PostError::RemoteTooShort { local, remote: self.len() });
        }
        Ok(Remote { address: address.wrapping_add(start), rkey })
    }
}

impl From<RemoteRegion> for RemoteSlice {
    #[inline]
    fn from(region: RemoteRegion) -> Self {
        region.slice(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: RemoteRegion = RemoteRegion { address: 0x0102_0304_0506_0708, length: 100, rkey: Rkey(9) };

    #[test]
    fn it_survives_the_way_to_a_peer() {
        assert_eq!(RemoteRegion::from_bytes(&REGION.to_bytes()), Ok(REGION));
        let error = RemoteRegion::from_bytes(&[0; 19]).unwrap_err();
        assert_eq!(error, ParseAddressError::Length { given: 19, needed: 20 });
    }

    #[test]
    fn a_slice_must_be_inside_and_long_enough() {
        let remote = REGION.slice(10..20).to_remote(10).unwrap();
        assert_eq!(REGION.slice(10..20).remote(10), Some(remote));
        assert_eq!(remote, Remote { address: REGION.address + 10, rkey: Rkey(9) });
        let short = REGION.slice(10..20).to_remote(11);
        assert_eq!(REGION.slice(10..20).remote(11), None);
        assert_eq!(short, Err(PostError::RemoteTooShort { local: 11, remote: 10 }));
        let outside = REGION.slice(99..=100).to_remote(1);
        assert_eq!(REGION.slice(99..=100).remote(1), None);
        assert_eq!(outside, Err(PostError::OutsideRemote { start: 99, end: 101, size: 100 }));
        #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
        let reversed = REGION.slice(7..3);
        assert_eq!(reversed.remote(0), None);
        let reversed = reversed.to_remote(0);
        assert_eq!(reversed, Err(PostError::OutsideRemote { start: 7, end: 3, size: 100 }));
    }
}
