//! What a captured frame is: RoCEv2, RoCEv2 that cannot be decoded, or something else.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ferroce_wire::mad::{CmMad, CmMessage, MAD_LEN, SidrStatus};
use ferroce_wire::net::Udp;
use ferroce_wire::{Body, Captured, Kept, Packet, ParseError, Qpn, Response, Syndrome};

use super::capture::Record;

/// A judged frame.
#[derive(Debug)]
pub(super) enum Seen<'a> {
    /// A RoCEv2 frame, perhaps with a wrong ICRC, or cut behind its headers.
    Roce(Captured<'a>),
    /// A UDP datagram for the RoCEv2 port that cannot be decoded.
    Undecoded(Undecoded),
    /// Anything else.
    Other,
}

/// A RoCEv2 frame that cannot be decoded.
#[derive(Debug)]
pub(super) struct Undecoded {
    /// Where it came from and went to.
    pub(super) envelope: Envelope,
    /// What is wrong with it.
    pub(super) reason: Reason,
}

/// Why a RoCEv2 frame cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its bytes are wrong.
    Bytes(ParseError),
    /// The capture kept only the first `kept` bytes of `original`, not even all headers.
    Cut { kept: usize, original: u32 },
}

impl<'a> Seen<'a> {
    /// Judges a frame.
    pub(super) fn judge(record: &Record<'a>) -> Self {
        let Some((ethernet, ip)) = record.link.ip(record.bytes) else { return Self::Other };
        let (kept, original) = (record.bytes.len(), record.original_len);
        let cut = u32::try_from(kept).is_ok_and(|kept| kept < original);
        let error = match Captured::parse_ip(ip, cut) {
            Ok(captured) => return Self::Roce(Captured { ethernet, ..captured }),
            Err(error) => error,
        };
        let Some(envelope) = Envelope::of(ip) else { return Self::Other };
        let reason = match error {
            ParseError::TooShort { .. } if cut => Reason::Cut { kept, original },
            error => Reason::Bytes(error),
        };
        Self::Undecoded(Undecoded { envelope, reason })
    }

    /// The queue pair that the frame is for, if that much of it can be read.
    pub(super) fn dest_qp(&self) -> Option<Qpn> {
        match self {
            Self::Roce(captured) => Some(captured.packet.dest_qp),
            Self::Undecoded(undecoded) => undecoded.envelope.dest_qp,
            Self::Other => None,
        }
    }

    /// Whether the frame tells of trouble: its bytes are wrong, or it refuses something.
    pub(super) fn is_error(&self) -> bool {
        match self {
            Self::Roce(captured) => has_wrong_icrc(captured) || is_refusal(&captured.packet),
            Self::Undecoded(undecoded) => matches!(undecoded.reason, Reason::Bytes(_)),
            Self::Other => false,
        }
    }
}

/// Whether the ICRC was kept, and is wrong.
pub(super) fn has_wrong_icrc(captured: &Captured<'_>) -> bool {
    captured.icrc.is_some_and(|icrc| !icrc.is_right())
}

/// Whether a responder answers anything but yes, or a connection or a service is refused.
fn is_refusal(packet: &Packet<Kept<'_>>) -> bool {
    match &packet.body {
        Body::RcResponse(Response::Acknowledge(aeth)) | Body::XrcResponse(Response::Acknowledge(aeth)) => {
            !matches!(aeth.syndrome, Syndrome::Ack(_))
        }
        Body::Ud(datagram) if packet.dest_qp == Qpn::GSI && datagram.payload.len == MAD_LEN => {
            match CmMad::parse(datagram.payload.bytes).map(|mad| mad.message) {
                Ok(CmMessage::Rej(_)) => true,
                Ok(CmMessage::SidrRep(reply)) => reply.status != SidrStatus::VALID,
                _ => false,
            }
        }
        _ => false,
    }
}

impl Reason {
    /// What people call a frame with this reason.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Bytes(_) => "malformed",
            Self::Cut { .. } => "cut",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(error) => write!(f, "{error}"),
            Self::Cut { kept, original } => {
                write!(f, "the capture kept {kept} of {original} bytes")
            }
        }
    }
}

/// As much of a RoCEv2 frame as can be read when the rest is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    /// Address and port that it comes from.
    pub(super) source: SocketAddr,
    /// Address and port that it goes to.
    pub(super) dest: SocketAddr,
    /// The queue pair that it goes to.
    pub(super) dest_qp: Option<Qpn>,
}

impl Envelope {
    const UDP: u8 = 17;

    /// Looks into an IP packet without judging it, or `None` if it is not for the RoCEv2 port.
    fn of(ip: &[u8]) -> Option<Self> {
        let (source, dest, udp) = match ip.first()? >> 4 {
            4 => {
                let header = ip.first_chunk::<20>()?;
                let later_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
                if header[9] != Self::UDP || later_fragment {
                    return None;
                }
                let [.., a, b, c, d, e, f, g, h] = *header;
                let (source, dest) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
                (source.into(), dest.into(), ip.get(usize::from(header[0] & 0x0f) * 4..)?)
            }
            6 => {
                let (header, udp) = ip.split_first_chunk::<40>()?;
                if header[6] != Self::UDP {
                    return None;
                }
                let address = |at: usize| header[at..].first_chunk::<16>().copied().map(Ipv6Addr::from);
                (address(8)?.into(), address(24)?.into(), udp)
            }
            _ => return None,
        };
        let ([a, b, c, d], _) = udp.split_first_chunk()?;
        let (source_port, dest_port) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        let dest_qp = match udp.get(Udp::LEN..) {
            Some([_, _, _, _, _, a, b, c, ..]) => Some(Qpn::new(u32::from_be_bytes([0, *a, *b, *c]))),
            _ => None,
        };
        (dest_port == Udp::ROCE_PORT).then_some(Self {
            source: SocketAddr::new(source, source_port),
            dest: SocketAddr::new(dest, dest_port),
            dest_qp,
        })
    }
}
