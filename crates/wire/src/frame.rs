//! A whole captured frame: link, IP and UDP headers, the packet and its ICRC.

use core::fmt;

use crate::bytes::take;
use crate::describe::{Describe, Value, Visitor};
use crate::error::{BufferTooSmall, ParseError};
use crate::icrc::{Flow, ICRC_LEN};
use crate::net::{Ethernet, Ip, Ipv4, Ipv6, Udp};
use crate::packet::Packet;

/// A RoCEv2 frame as a capture shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The Ethernet header, if the capture has one.
    pub ethernet: Option<Ethernet>,
    /// The IP header.
    pub ip: Ip,
    /// The UDP header.
    pub udp: Udp,
    /// The RoCEv2 packet.
    pub packet: Packet<&'a [u8]>,
    /// Its ICRC.
    pub icrc: Icrc,
}

/// The ICRC of a frame, seen and computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icrc {
    /// As the frame carries it.
    pub seen: u32,
    /// As the bytes of the frame give it.
    pub computed: u32,
}

impl Icrc {
    /// Whether the frame arrived as it was sent.
    #[must_use]
    pub const fn is_right(self) -> bool {
        self.seen == self.computed
    }
}

impl<'a> Frame<'a> {
    /// Reads a frame that begins with an Ethernet header.
    ///
    /// # Errors
    /// The first reason why it is not a RoCEv2 frame.
    pub fn parse_ethernet(mut bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (ethernet, ethertype) = Ethernet::parse(&mut bytes)?;
        let frame = match ethertype {
            Ethernet::IPV4 | Ethernet::IPV6 => Self::parse_ip(bytes)?,
            other => return Err(ParseError::NotIp(other)),
        };
        match (ethertype, frame.ip) {
            (Ethernet::IPV4, Ip::V4(_)) | (Ethernet::IPV6, Ip::V6(_)) => {
                Ok(Self { ethernet: Some(ethernet), ..frame })
            }
            (_, Ip::V4(_)) => Err(ParseError::UnknownIpVersion(4)),
            (_, Ip::V6(_)) => Err(ParseError::UnknownIpVersion(6)),
        }
    }

    /// Reads a frame that begins with its IP header. Bytes after the end of the IP
    /// packet, as short Ethernet frames have them, are ignored.
    ///
    /// # Errors
    /// The first reason why it is not a RoCEv2 frame.
    pub fn parse_ip(mut bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (ip, ip_payload_len) = match bytes.first().map(|first| first >> 4) {
            Some(4) => {
                let (ip, len) = Ipv4::parse(take(&mut bytes, "IPv4 header")?)?;
                (Ip::V4(ip), len)
            }
            Some(6) => {
                let (ip, len) = Ipv6::parse(take(&mut bytes, "IPv6 header")?)?;
                (Ip::V6(ip), len)
            }
            Some(version) => return Err(ParseError::UnknownIpVersion(version)),
            None => return Err(ParseError::TooShort { what: "IP header", need: Ipv4::LEN, have: 0 }),
        };
        let mut bytes = exactly(bytes, ip_payload_len, "IP")?;
        let (udp, udp_payload_len) = Udp::parse(take(&mut bytes, "UDP header")?)?;
        if udp.dest_port != Udp::ROCE_PORT {
            return Err(ParseError::NotRoce(udp.dest_port));
        }
        if usize::from(udp_payload_len) != bytes.len() {
            let said = usize::from(udp_payload_len) + Udp::LEN;
            return Err(ParseError::LengthMismatch { what: "UDP", said, have: bytes.len() + Udp::LEN });
        }
        let packet = Packet::parse(bytes)?;
        let (seen, computed) = Flow::of(&ip, &udp).both(bytes, ip_id(&ip))?;
        Ok(Self { ethernet: None, ip, udp, packet, icrc: Icrc { seen, computed } })
    }

    /// Length of the frame.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ethernet.map_or(0, |ethernet| ethernet.len()) + self.ip.len() + Udp::LEN + self.packet.len()
    }

    /// Writes the frame, with the ICRC that was seen, to the front of `buffer` and returns its length.
    ///
    /// # Errors
    /// The buffer is shorter than [`len`](Self::len); nothing is written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let (need, have) = (self.len(), buffer.len());
        let Some(mut rest) = buffer.get_mut(..need) else {
            return Err(BufferTooSmall { need, have });
        };
        if let Some(ethernet) = self.ethernet {
            let ethertype = match self.ip {
                Ip::V4(_) => Ethernet::IPV4,
                Ip::V6(_) => Ethernet::IPV6,
            };
            let (header, after) = rest.split_at_mut(ethernet.len());
            ethernet.emit(ethertype, header);
            rest = after;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a packet has at most MAX_PACKET_LEN bytes")]
        let packet_len = self.packet.len() as u16;
        let (header, after) = rest.split_at_mut(self.ip.len());
        self.ip.emit(packet_len + 8, header);
        let (header, packet) = after.split_at_mut(Udp::LEN);
        if let Some(header) = header.first_chunk_mut() {
            self.udp.emit(packet_len, header);
        }
        self.packet.emit(&Flow::of(&self.ip, &self.udp), ip_id(&self.ip), packet)?;
        if let Some(icrc) = packet.last_chunk_mut() {
            *icrc = self.icrc.seen.to_le_bytes();
        }
        Ok(need)
    }
}

/// The first `len` bytes, or the contradiction between length field and bytes.
fn exactly<'a>(bytes: &'a [u8], len: u16, what: &'static str) -> Result<&'a [u8], ParseError> {
    let said = usize::from(len);
    bytes.get(..said).ok_or(ParseError::LengthMismatch { what, said, have: bytes.len() })
}

const fn ip_id(ip: &Ip) -> u16 {
    match ip {
        Ip::V4(ip) => ip.id,
        Ip::V6(_) => 0,
    }
}

impl Describe for Frame<'_> {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        if let Some(ethernet) = &self.ethernet {
            ethernet.describe(visitor)?;
        }
        self.ip.describe(visitor)?;
        self.udp.describe(visitor)?;
        self.packet.describe(visitor)?;
        self.icrc.describe(visitor)
    }
}

impl Describe for Icrc {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("icrc", "Invariant CRC", ICRC_LEN)?;
        visitor.field("value", "Value", Value::hex(self.seen, 32))?;
        if self.is_right() {
            visitor.field("check", "Check", Value::Text("correct"))
        } else {
            visitor.field("check", "Check", Value::Text("wrong"))?;
            visitor.field("computed", "Computed", Value::hex(self.computed, 32))
        }
    }
}
