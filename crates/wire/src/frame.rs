//! A whole frame: link, IP and UDP headers, the packet and its ICRC.

use core::fmt;

use crate::bytes::take;
use crate::captured::Captured;
use crate::describe::{Describe, Value, Visitor};
use crate::error::{BufferTooSmall, EmitError, ParseError};
use crate::icrc::{Flow, ICRC_LEN};
use crate::net::{Ethernet, Ip, Udp};
use crate::packet::Packet;

/// A RoCEv2 frame from the network. Everything in it but the ICRC has been judged;
/// [`Captured`] is the same read kindly, for programs that show captures.
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
        let announced = match ethertype {
            Ethernet::IPV4 => 4,
            Ethernet::IPV6 => 6,
            other => return Err(ParseError::NotIp(other)),
        };
        match bytes.first().map(|first| first >> 4) {
            Some(version) if version != announced => Err(ParseError::UnknownIpVersion(version)),
            _ => Ok(Self { ethernet: Some(ethernet), ..Self::parse_ip(bytes)? }),
        }
    }

    /// Reads a frame that begins with its IP header. Bytes after the end of the IP
    /// packet, as short Ethernet frames have them, are ignored.
    ///
    /// # Errors
    /// The first reason why it is not a RoCEv2 frame.
    pub fn parse_ip(mut bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (ip, ip_payload_len) = Ip::parse(&mut bytes)?;
        let (udp, bytes, _) = datagram(bytes, ip_payload_len, false)?;
        let packet = Packet::parse(bytes)?;
        let icrc = Icrc::of(&ip, &udp, bytes)?;
        Ok(Self { ethernet: None, ip, udp, packet, icrc })
    }

    /// Length of the frame.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packet.len().saturating_add(self.headers_len())
    }

    /// Length of what stands in front of the packet.
    fn headers_len(&self) -> usize {
        self.ethernet.map_or(0, |ethernet| ethernet.len()) + self.ip.len() + Udp::LEN
    }

    /// Writes the frame to the front of `buffer` and returns its length. All that follows
    /// from the values is worked out anew: lengths, the IPv4 header checksum, and the ICRC,
    /// whatever [`icrc`](Self::icrc) says. Reserved bits and pad bytes are zero.
    ///
    /// # Errors
    /// The packet cannot be written, or the buffer is shorter than [`len`](Self::len);
    /// nothing is written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let packet_len = self.packet.checked_len()?;
        let (need, have) = (self.len(), buffer.len());
        let mut rest = buffer.get_mut(..need).ok_or(BufferTooSmall { need, have })?;
        if let Some(ethernet) = self.ethernet {
            let ethertype = match self.ip {
                Ip::V4(_) => Ethernet::IPV4,
                Ip::V6(_) => Ethernet::IPV6,
            };
            let len = ethernet.emit(ethertype, rest)?;
            rest = &mut rest[len..];
        }
        #[expect(clippy::cast_possible_truncation, reason = "a packet has at most MAX_PACKET_LEN bytes")]
        let udp_payload_len = packet_len as u16;
        #[expect(clippy::cast_possible_truncation, reason = "8")]
        let ip_payload_len = udp_payload_len + Udp::LEN as u16;
        let len = self.ip.emit(ip_payload_len, rest)?;
        let (udp, packet) = rest[len..].split_at_mut(Udp::LEN);
        let too_small = BufferTooSmall { need, have };
        self.udp.emit(udp_payload_len, udp.first_chunk_mut().ok_or(too_small)?);
        self.packet.emit(&Flow::of(&self.ip, &self.udp), self.ip.id(), packet)?;
        Ok(need)
    }

    /// Writes the frame as [`emit`](Self::emit) does, but with the ICRC that was seen, right
    /// or wrong. What the ICRC was made over and the values do not hold, reserved bits
    /// and pad bytes that are not zero, is not brought back.
    ///
    /// # Errors
    /// Those of [`emit`](Self::emit).
    pub fn emit_with_icrc_as_seen(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let len = self.emit(buffer)?;
        if let Some(icrc) = buffer.get_mut(..len).and_then(<[u8]>::last_chunk_mut) {
            *icrc = self.icrc.seen.to_le_bytes();
        }
        Ok(len)
    }
}

impl Icrc {
    /// The ICRC at the end of a packet with these headers.
    pub(crate) fn of(ip: &Ip, udp: &Udp, packet: &[u8]) -> Result<Self, ParseError> {
        let (seen, computed) = Flow::of(ip, udp).both(packet, ip.id())?;
        Ok(Self { seen, computed })
    }
}

/// The UDP header at the front of an IP payload of `said` bytes, the packet behind it, and
/// the length that this packet had on the network: if a capture `cut` the frame, bytes may
/// be missing at its end.
pub(crate) fn datagram(bytes: &[u8], said: u16, cut: bool) -> Result<(Udp, &[u8], usize), ParseError> {
    let (said, have) = (usize::from(said), bytes.len());
    let mut bytes = match bytes.get(..said) {
        Some(exactly) => exactly,
        None if cut => bytes,
        None => return Err(ParseError::LengthMismatch { what: "IP", said, have }),
    };
    let (udp, udp_payload_len) = Udp::parse(take(&mut bytes, "UDP header")?)?;
    if udp.dest_port != Udp::ROCE_PORT {
        return Err(ParseError::NotRoce(udp.dest_port));
    }
    let packet_len = usize::from(udp_payload_len);
    if packet_len + Udp::LEN != said {
        let udp_len = packet_len + Udp::LEN;
        return Err(ParseError::LengthMismatch { what: "UDP", said: udp_len, have: said });
    }
    Ok((udp, bytes, packet_len))
}

impl Describe for Frame<'_> {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        Captured::from(*self).describe(visitor)
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
