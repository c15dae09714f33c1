//! The classic format: a file header of 24 bytes, then frames, each behind 16 bytes.

use super::input::{Input, Order};
use super::trouble::{Place, Trouble};
use super::{Info, MAX_FRAME_LEN, Time};

/// A classic capture after its file header.
#[derive(Debug)]
pub(super) struct Pcap {
    order: Order,
    /// Decimal places of its time stamps: 6 or 9.
    digits: u8,
    link: u32,
}

impl Pcap {
    /// The byte order and the decimal places that the first four bytes stand for.
    pub(super) fn recognise(magic: [u8; 4]) -> Option<(Order, u8)> {
        match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => Some((Order::Big, 6)),
            [0xd4, 0xc3, 0xb2, 0xa1] => Some((Order::Little, 6)),
            [0xa1, 0xb2, 0x3c, 0x4d] => Some((Order::Big, 9)),
            [0x4d, 0x3c, 0xb2, 0xa1] => Some((Order::Little, 9)),
            _ => None,
        }
    }

    /// Reads the file header.
    pub(super) fn open(input: &mut Input, (order, digits): (Order, u8)) -> Result<Self, Trouble> {
        let header: [u8; 24] = input.array(Place::FileHeader)?.ok_or(Trouble::Empty)?;
        let (major, minor) = (order.u16([header[4], header[5]]), order.u16([header[6], header[7]]));
        if major != 2 {
            return Err(Trouble::Damaged(format!("pcap version {major}.{minor}, expected 2.4")));
        }
        let [_, _, _, _, _, link] = order.words(&header);
        // The high bits tell of a frame check sequence, which comes after the IP packet and is ignored.
        Ok(Self { order, digits, link: link & 0xffff })
    }

    /// The link type of all frames.
    pub(super) fn link(&self) -> u32 {
        self.link
    }

    /// Reads the next frame into `bytes`, or `None` at the end.
    pub(super) fn next(
        &self,
        input: &mut Input,
        number: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Info>, Trouble> {
        let Some(header) = input.array::<16>(Place::FrameHeader(number))? else { return Ok(None) };
        let [seconds, fraction, len, original_len] = self.order.words(&header);
        if len > MAX_FRAME_LEN {
            return Err(Trouble::Absurd(number, len));
        }
        bytes.resize(len as usize, 0);
        let have = input.fill(bytes)?;
        if have < bytes.len() {
            let (have, need) = (have as u64, len.into());
            return Err(Trouble::Truncated { inside: Place::Frame(number), have, need });
        }
        let time = Some(Time::new(seconds.into(), fraction.into(), self.digits));
        Ok(Some(Info { time, link: self.link, original_len }))
    }
}
