//! What a machine wants sent.

use ferroce_wire::{DataPacket, Packet, PayloadLen, Rkey};

use crate::work::Sge;

/// A packet to send now. Its payload stays where it is until the device puts it into the packet.
#[derive(Debug)]
pub struct Transmit<'a> {
    /// Headers, and the length of the payload.
    pub packet: Packet<PayloadLen>,
    /// Where the payload is.
    pub payload: PayloadSource<'a>,
    /// Where the packet goes.
    pub dest: Destination,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the connected peer.
    Peer,
    /// To the peer behind this address handle.
    Datagram(u32),
}

/// Where the payload of a packet is. Access to it was checked in the same call.
#[derive(Clone, Copy, Debug)]
pub enum PayloadSource<'a> {
    /// There is none.
    Nothing,
    /// Copied into the queue when the work was posted.
    Inline(&'a [u8]),
    /// In the program's memory.
    Gather(Gather<'a>),
    /// In memory that a peer reads by its key.
    Remote {
        /// The key.
        rkey: Rkey,
        /// First byte.
        address: u64,
        /// Bytes.
        len: u32,
    },
}

/// A stretch of a list of pieces: an iterator over the parts of the pieces inside it.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    sges: &'a [Sge],
    skip: u64,
    len: u64,
}

impl<'a> Gather<'a> {
    /// The `len` bytes after the first `skip` of these pieces.
    #[must_use]
    pub const fn new(sges: &'a [Sge], skip: u64, len: u64) -> Self {
        Self { sges, skip, len }
    }

    /// All of it, if it lies in the one piece that there is.
    #[must_use]
    #[inline]
    pub fn whole(&self) -> Option<Sge> {
        let [Sge { address, length, lkey }] = *self.sges else { return None };
        let len = u32::try_from(self.len).ok()?;
        let fits = self.skip + self.len <= length.into();
        fits.then(|| Sge { address: address.wrapping_add(self.skip), length: len, lkey })
    }
}

impl Iterator for Gather<'_> {
    type Item = Sge;

    #[expect(
        clippy::cast_possible_truncation,
        reason = "no more than the length of a piece, which has 32 bits"
    )]
    fn next(&mut self) -> Option<Sge> {
        while self.len > 0 {
            let (first, rest) = self.sges.split_first()?;
            let available = u64::from(first.length);
            if self.skip >= available {
                self.skip -= available;
                self.sges = rest;
                continue;
            }
            let length = (available - self.skip).min(self.len);
            let piece = Sge {
                address: first.address.wrapping_add(self.skip),
                length: length as u32,
                lkey: first.lkey,
            };
            self.skip += length;
            self.len -= length;
            return Some(piece);
        }
        None
    }
}

/// Takes packets of SENDs, WRITEs and answers to READs as they are made.
pub trait DataSink<H> {
    /// Takes a packet; false if it cannot, and then the packet was not sent.
    fn take(&mut self, host: &mut H, data: &DataPacket, payload: &PayloadSource<'_>) -> bool;
}

impl<H, F: FnMut(&mut H, &DataPacket, &PayloadSource<'_>) -> bool> DataSink<H> for F {
    fn take(&mut self, host: &mut H, data: &DataPacket, payload: &PayloadSource<'_>) -> bool {
        self(host, data, payload)
    }
}

/// Whether a plain acknowledgement that is owed may leave now.
///
/// Holding it lets later ones take its place, or lets it ride behind the next packet to the same peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Keep it back.
    Hold,
    /// Send it.
    Send,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_wire::Lkey;

    #[test]
    fn a_stretch_crosses_pieces_and_skips_empty_ones() {
        let piece = |address, length| Sge { address, length, lkey: Lkey(1) };
        let sges = [piece(100, 4), piece(200, 0), piece(300, 10)];
        let parts = |skip, len| Gather::new(&sges, skip, len).collect::<Vec<_>>();
        assert_eq!(parts(0, 14), [piece(100, 4), piece(300, 10)]);
        assert_eq!(parts(3, 2), [piece(103, 1), piece(300, 1)]);
        assert_eq!(parts(4, 3), [piece(300, 3)]);
        assert_eq!(parts(0, 0), []);
        assert_eq!(parts(13, 5), [piece(309, 1)]);
        let whole = |skip, len| Gather::new(&sges[2..], skip, len).whole();
        assert_eq!(whole(3, 7), Some(piece(303, 7)));
        assert_eq!(whole(3, 8), None, "it goes on elsewhere, or nowhere");
        assert_eq!(Gather::new(&sges, 4, 3).whole(), None);
    }
}

/// What was sent in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// Packets with data.
    pub sent: usize,
    /// An acknowledgement went behind them.
    pub acknowledged: bool,
}
