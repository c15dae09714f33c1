//! Frames as captures show them: read kindly, with a note on what is odd.
//!
//! A receiver drops a packet with a wrong header checksum, and ignores reserved bits. A
//! reader of a capture wants to see the packet in the first case and the bits in the
//! second; and captures are often cut after the headers (`tcpdump -s 96`).

use core::fmt;

use crate::describe::{Describe, Visitor};
use crate::error::ParseError;
use crate::frame::{Frame, Icrc, datagram};
use crate::mad::CmMad;
use crate::net::{Ethernet, Ip, IpChecksum, Udp};
use crate::num::Qpn;
use crate::packet::{Body, Kept, MAX_HEADER_LEN, Packet};

/// A RoCEv2 frame of a capture, whole or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// The Ethernet header, if the capture has one.
    pub ethernet: Option<Ethernet>,
    /// The IP header.
    pub ip: Ip,
    /// The UDP header.
    pub udp: Udp,
    /// The RoCEv2 packet.
    pub packet: Packet<Kept<'a>>,
    /// Its ICRC, if the capture kept all of the packet.
    pub icrc: Option<Icrc>,
    /// What is odd about it.
    pub notes: Notes,
}

/// What is odd about a frame that can be read all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The IPv4 header checksum is wrong. On the sending machine captures show it before
    /// the network card has filled it in.
    IpChecksum(IpChecksum),
    /// A reserved bit of a transport header or of a connection management message is set.
    ReservedBits,
    /// The bytes that fill the payload up to a multiple of four are not zero.
    PadBytes,
    /// The capture kept only the beginning of the packet, so that its ICRC cannot be checked.
    Cut {
        /// Bytes of the packet that were kept, from the BTH on.
        kept: usize,
        /// Bytes that it had.
        len: usize,
    },
}

/// At most one [`Note`] of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Notes([Option<Note>; 4]);

impl Notes {
    /// The notes.
    pub fn iter(&self) -> impl Iterator<Item = Note> {
        self.0.into_iter().flatten()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IpChecksum(IpChecksum { seen, computed }) => {
                write!(f, "IPv4 header checksum 0x{seen:04x}, computed 0x{computed:04x}")
            }
            Self::ReservedBits => f.write_str("reserved bits set"),
            Self::PadBytes => f.write_str("pad bytes not zero"),
            Self::Cut { kept, len } => {
                write!(f, "cut by the capture, which kept {kept} of {len} bytes; ICRC not checked")
            }
        }
    }
}

impl<'a> Captured<'a> {
    /// Reads a frame that begins with its IP header, as [`Frame::parse_ip`] does, but
    /// whatever the checksum of an IPv4 header is. If the capture `cut` the frame, bytes
    /// may be missing behind the transport headers.
    ///
    /// # Errors
    /// The first reason why it is not a RoCEv2 frame.
    pub fn parse_ip(mut bytes: &'a [u8], cut: bool) -> Result<Self, ParseError> {
        let (ip, ip_payload_len, checksum) = Ip::parse_any_checksum(&mut bytes)?;
        let (udp, kept, len) = datagram(bytes, ip_payload_len, cut)?;
        let packet = Packet::parse_kept(kept, len)?;
        let whole = kept.len() == len;
        let icrc = if whole { Some(Icrc::of(&ip, &udp, kept)?) } else { None };
        let notes = Notes([
            checksum.filter(|checksum| !checksum.is_right()).map(Note::IpChecksum),
            has_reserved_bits(&packet, kept).then_some(Note::ReservedBits),
            has_pad_bytes(&packet, kept).then_some(Note::PadBytes),
            (!whole).then_some(Note::Cut { kept: kept.len(), len }),
        ]);
        Ok(Self { ethernet: None, ip, udp, packet, icrc, notes })
    }

    /// Whether the capture kept only the beginning of the packet.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.icrc.is_none()
    }
}

impl<'a> From<Frame<'a>> for Captured<'a> {
    fn from(Frame { ethernet, ip, udp, packet, icrc }: Frame<'a>) -> Self {
        let packet = packet.map_payload(Kept::from);
        Self { ethernet, ip, udp, packet, icrc: Some(icrc), notes: Notes::default() }
    }
}

/// Whether the packet, written again, would have other headers than the one that was read.
fn has_reserved_bits(packet: &Packet<Kept<'_>>, seen: &[u8]) -> bool {
    let mut again = [0; MAX_HEADER_LEN];
    let headers_differ = match packet.emit_headers(&mut again) {
        Ok(len) => seen.get(..len) != again.get(..len),
        Err(_) => false,
    };
    headers_differ || message_has_reserved_bits(packet)
}

fn message_has_reserved_bits(packet: &Packet<Kept<'_>>) -> bool {
    let Body::Ud(datagram) = &packet.body else { return false };
    match CmMad::parse(datagram.payload.bytes) {
        Ok(mad) if packet.dest_qp == Qpn::GSI => {
            let mut again = [0; CmMad::LEN];
            mad.emit(&mut again);
            datagram.payload.bytes.get(..CmMad::LEN) != Some(&again[..])
        }
        _ => false,
    }
}

fn has_pad_bytes(packet: &Packet<Kept<'_>>, seen: &[u8]) -> bool {
    let pad_len = usize::from(packet.bth().pad);
    let after_payload = seen.get(packet.header_len() + packet.payload_len()..).unwrap_or_default();
    after_payload.iter().take(pad_len).any(|byte| *byte != 0)
}

impl Describe for Captured<'_> {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        if let Some(ethernet) = &self.ethernet {
            ethernet.describe(visitor)?;
        }
        self.ip.describe(visitor)?;
        self.udp.describe(visitor)?;
        self.packet.describe(visitor)?;
        self.icrc.map_or(Ok(()), |icrc| icrc.describe(visitor))
    }
}
