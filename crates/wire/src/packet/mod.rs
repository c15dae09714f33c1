//! A RoCEv2 packet, from the base transport header to the ICRC, as a type.
//!
//! [`Packet::parse`] judges the bytes once. What it returns can only be a packet
//! whose headers fit its opcode, so code that handles it matches on [`Body`] and has
//! no case left over. The same type writes packets: [`Packet::emit`] with a payload
//! at hand, or [`Packet::emit_headers`] when the payload is put in place by others.

mod describe;
mod emit;
mod parse;
mod payload;

pub use payload::{Kept, Payload, PayloadLen};

use crate::error::EmitError;
use crate::header::{Aeth, AtomicAckEth, AtomicEth, AtomicMasks, Bth, Deth, Feth, Imm, Reth, Xrceth};
use crate::icrc::ICRC_LEN;
use crate::num::{PKey, Psn, Qpn, Rkey, Srqn};
use crate::opcode::{Opcode, OpcodeInfo, Operation, Service};
use crate::payload_rule::PayloadRule;

/// The longest transport headers: BTH, XRCETH, AtomicETH and its masks.
pub const MAX_HEADER_LEN: usize = Bth::LEN + Xrceth::LEN + AtomicEth::LEN + AtomicMasks::LEN;

/// The longest packet, BTH to ICRC: an XRC WRITE with immediate data and 4 KiB.
pub const MAX_PACKET_LEN: usize = Bth::LEN + Xrceth::LEN + Reth::LEN + Imm::LEN + 4096 + ICRC_LEN;

/// A packet. `P` is its payload: bytes for a packet that was read, a [`PayloadLen`] for
/// one whose headers are written first, or [`Kept`] for one that a capture cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<P> {
    /// The queue pair that it is for.
    pub dest_qp: Qpn,
    /// Its place in the sequence of packets.
    pub psn: Psn,
    /// The partition.
    pub pkey: PKey,
    /// The receiver is asked to raise a completion event.
    pub solicited: bool,
    /// The path migration state is "migrated".
    pub migrated: bool,
    /// The responder is asked to acknowledge.
    pub ack_request: bool,
    /// The packet met congestion on its way.
    pub fecn: bool,
    /// The packet tells of congestion in the other direction.
    pub becn: bool,
    /// What it does.
    pub body: Body<P>,
}

/// What a packet does, by service and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<P> {
    /// A request on a reliable connection.
    RcRequest(Request<P>),
    /// A response on a reliable connection.
    RcResponse(Response<P>),
    /// A message on an unreliable connection.
    Uc(UcRequest<P>),
    /// A datagram.
    Ud(Datagram<P>),
    /// A request on an extended reliable connection, for this shared receive queue.
    XrcRequest(Srqn, Request<P>),
    /// A response on an extended reliable connection.
    XrcResponse(Response<P>),
    /// A congestion notification; [`Packet::congestion`] makes one with the right flags.
    Congestion,
}

/// A request on a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<P> {
    /// Part of a message into a receive of the peer.
    Send(Segment<(), SendTail>, P),
    /// Part of a message into memory of the peer.
    Write(Segment<Reth, Option<Imm>>, P),
    /// Asks for memory of the peer.
    Read(Reth),
    /// Compares and swaps eight bytes of the peer.
    CompareSwap(AtomicEth),
    /// Adds to eight bytes of the peer.
    FetchAdd(AtomicEth),
    /// Compares some bits of eight bytes of the peer and swaps some.
    MaskedCompareSwap(AtomicEth, AtomicMasks),
    /// Adds to several fields of eight bytes of the peer.
    MaskedFetchAdd(AtomicEth, AtomicMasks),
    /// Writes eight bytes of the peer at once.
    AtomicWrite(Reth, [u8; 8]),
    /// Makes earlier writes visible or persistent.
    Flush(Feth, Reth),
}

/// A response on a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<P> {
    /// Part of the memory that a READ asked for.
    Read(ReadSegment, P),
    /// Acknowledges, or refuses.
    Acknowledge(Aeth),
    /// Acknowledges an atomic.
    AtomicAcknowledge(Aeth, AtomicAckEth),
}

/// A message on an unreliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UcRequest<P> {
    /// Part of a message into a receive of the peer.
    Send(Segment<(), Option<Imm>>, P),
    /// Part of a message into memory of the peer.
    Write(Segment<Reth, Option<Imm>>, P),
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<P> {
    /// Which queue pair sent it, and by what right.
    pub deth: Deth,
    /// Immediate data.
    pub imm: Option<Imm>,
    /// The message.
    pub payload: P,
}

/// A packet's place in its message: `H` heads the message, `T` closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<H, T> {
    /// The first of several packets.
    First(H),
    /// Neither the first nor the last.
    Middle,
    /// The last of several packets.
    Last(T),
    /// The whole message.
    Only(H, T),
}

impl<H: Copy, T: Copy> Segment<H, T> {
    /// The head, if the message begins here.
    pub const fn head(&self) -> Option<H> {
        match *self {
            Self::First(head) | Self::Only(head, _) => Some(head),
            Self::Middle | Self::Last(_) => None,
        }
    }

    /// The tail, if the message ends here.
    pub const fn tail(&self) -> Option<T> {
        match *self {
            Self::Last(tail) | Self::Only(_, tail) => Some(tail),
            Self::First(_) | Self::Middle => None,
        }
    }
}

/// A READ response packet's place in its message; all but the middle ones acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadSegment {
    /// The first of several packets.
    First(Aeth),
    /// Neither the first nor the last.
    Middle,
    /// The last of several packets.
    Last(Aeth),
    /// The whole response.
    Only(Aeth),
}

/// What the end of a SEND on a reliable connection brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTail {
    /// Nothing.
    Plain,
    /// Immediate data.
    Immediate(Imm),
    /// A key of the receiver that is to be invalidated.
    Invalidate(Rkey),
}

impl<P: Payload> Packet<P> {
    /// A packet to this queue pair with this PSN in the default partition, all flags off.
    pub const fn new(dest_qp: Qpn, psn: Psn, body: Body<P>) -> Self {
        Self {
            dest_qp,
            psn,
            pkey: PKey::DEFAULT,
            solicited: false,
            migrated: false,
            ack_request: false,
            fecn: false,
            becn: false,
            body,
        }
    }

    /// A congestion notification to this queue pair: its BECN is set, its PSN is 0 (annex A17).
    pub fn congestion(dest_qp: Qpn) -> Self {
        Self { becn: true, ..Self::new(dest_qp, Psn::new(0), Body::Congestion) }
    }

    /// The opcode that says what this packet is.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        self.body.opcode()
    }

    /// Bytes of payload after the headers, without pad.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.body.payload().map_or(0, Payload::len)
    }

    /// Bytes before the payload. The operand of an ATOMIC WRITE counts here.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.shape().header_len
    }

    /// Length of the packet, BTH to ICRC. A payload of impossible length gives one too.
    #[expect(clippy::len_without_is_empty, reason = "a packet is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.shape().len()
    }

    #[inline]
    fn shape(&self) -> Shape {
        let opcode = self.opcode();
        let info = opcode.info();
        let operand_len = if matches!(info.payload, PayloadRule::EightBytes) { 8 } else { 0 };
        let header_len = info.header_len + operand_len;
        Shape { opcode, info, operand_len, header_len, payload_len: self.payload_len() }
    }
}

/// Opcode and lengths of a packet: they follow from its body, and are worked out once.
struct Shape {
    opcode: Opcode,
    info: &'static OpcodeInfo,
    /// Bytes of payload that count as headers: the operand of an ATOMIC WRITE.
    operand_len: usize,
    header_len: usize,
    payload_len: usize,
}

impl Shape {
    #[inline]
    const fn len(&self) -> usize {
        let padded = self.payload_len.saturating_add(3) & !3;
        padded.saturating_add(self.header_len + ICRC_LEN)
    }

    /// Refuses what parsing would refuse.
    #[inline]
    const fn judge(&self) -> Result<(), EmitError> {
        if self.info.payload.permits(self.operand_len.saturating_add(self.payload_len)) {
            Ok(())
        } else {
            Err(EmitError::BadLength { opcode: self.opcode, len: self.payload_len })
        }
    }
}

impl<'a> Packet<&'a [u8]> {
    /// The payload. The operand of an ATOMIC WRITE is not part of it.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        match self.body.payload() {
            Some(payload) => payload,
            None => &[],
        }
    }
}

impl<P> Packet<P> {
    /// The same packet with another kind of payload.
    pub fn map_payload<Q>(self, map: impl FnOnce(P) -> Q) -> Packet<Q> {
        Packet {
            dest_qp: self.dest_qp,
            psn: self.psn,
            pkey: self.pkey,
            solicited: self.solicited,
            migrated: self.migrated,
            ack_request: self.ack_request,
            fecn: self.fecn,
            becn: self.becn,
            body: self.body.map_payload(map),
        }
    }
}

impl<P> Body<P> {
    fn map_payload<Q>(self, map: impl FnOnce(P) -> Q) -> Body<Q> {
        match self {
            Self::RcRequest(request) => Body::RcRequest(request.map_payload(map)),
            Self::RcResponse(response) => Body::RcResponse(response.map_payload(map)),
            Self::Uc(UcRequest::Send(segment, payload)) => Body::Uc(UcRequest::Send(segment, map(payload))),
            Self::Uc(UcRequest::Write(segment, payload)) => Body::Uc(UcRequest::Write(segment, map(payload))),
            Self::Ud(Datagram { deth, imm, payload }) => {
                Body::Ud(Datagram { deth, imm, payload: map(payload) })
            }
            Self::XrcRequest(srqn, request) => Body::XrcRequest(srqn, request.map_payload(map)),
            Self::XrcResponse(response) => Body::XrcResponse(response.map_payload(map)),
            Self::Congestion => Body::Congestion,
        }
    }

    /// The opcode of a packet with this body.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::RcRequest(request) if request.is_own() => {
                Opcode::known(Service::RcOwn, request.operation())
            }
            Self::RcRequest(request) => Opcode::known(Service::Rc, request.operation()),
            Self::RcResponse(response) => Opcode::known(Service::Rc, response.operation()),
            Self::XrcRequest(_, request) if request.is_own() => {
                Opcode::known(Service::XrcOwn, request.operation())
            }
            Self::XrcRequest(_, request) => Opcode::known(Service::Xrc, request.operation()),
            Self::XrcResponse(response) => Opcode::known(Service::Xrc, response.operation()),
            Self::Uc(request) => Opcode::known(Service::Uc, request.operation()),
            Self::Ud(Datagram { imm: None, .. }) => Opcode::known(Service::Ud, Operation::SendOnly),
            Self::Ud(Datagram { imm: Some(_), .. }) => Opcode::known(Service::Ud, Operation::SendOnlyImm),
            Self::Congestion => Opcode::known(Service::Cnp, Operation::Congestion),
        }
    }

    /// The payload, where there is one.
    const fn payload(&self) -> Option<&P> {
        match self {
            Self::RcRequest(request) | Self::XrcRequest(_, request) => match request {
                Request::Send(_, payload) | Request::Write(_, payload) => Some(payload),
                Request::Read(_)
                | Request::CompareSwap(_)
                | Request::FetchAdd(_)
                | Request::MaskedCompareSwap(..)
                | Request::MaskedFetchAdd(..)
                | Request::AtomicWrite(..)
                | Request::Flush(..) => None,
            },
            Self::RcResponse(response) | Self::XrcResponse(response) => match response {
                Response::Read(_, payload) => Some(payload),
                Response::Acknowledge(_) | Response::AtomicAcknowledge(..) => None,
            },
            Self::Uc(UcRequest::Send(_, payload) | UcRequest::Write(_, payload)) => Some(payload),
            Self::Ud(datagram) => Some(&datagram.payload),
            Self::Congestion => None,
        }
    }
}

impl<P> Request<P> {
    fn map_payload<Q>(self, map: impl FnOnce(P) -> Q) -> Request<Q> {
        match self {
            Self::Send(segment, payload) => Request::Send(segment, map(payload)),
            Self::Write(segment, payload) => Request::Write(segment, map(payload)),
            Self::Read(reth) => Request::Read(reth),
            Self::CompareSwap(atomic) => Request::CompareSwap(atomic),
            Self::FetchAdd(atomic) => Request::FetchAdd(atomic),
            Self::MaskedCompareSwap(atomic, masks) => Request::MaskedCompareSwap(atomic, masks),
            Self::MaskedFetchAdd(atomic, masks) => Request::MaskedFetchAdd(atomic, masks),
            Self::AtomicWrite(reth, operand) => Request::AtomicWrite(reth, operand),
            Self::Flush(feth, reth) => Request::Flush(feth, reth),
        }
    }

    const fn operation(&self) -> Operation {
        match self {
            Self::Send(segment, _) => match segment {
                Segment::First(()) => Operation::SendFirst,
                Segment::Middle => Operation::SendMiddle,
                Segment::Last(SendTail::Plain) => Operation::SendLast,
                Segment::Last(SendTail::Immediate(_)) => Operation::SendLastImm,
                Segment::Last(SendTail::Invalidate(_)) => Operation::SendLastInv,
                Segment::Only((), SendTail::Plain) => Operation::SendOnly,
                Segment::Only((), SendTail::Immediate(_)) => Operation::SendOnlyImm,
                Segment::Only((), SendTail::Invalidate(_)) => Operation::SendOnlyInv,
            },
            Self::Write(segment, _) => write_operation(segment),
            Self::Read(_) => Operation::ReadRequest,
            Self::CompareSwap(_) => Operation::CompareSwap,
            Self::FetchAdd(_) => Operation::FetchAdd,
            Self::MaskedCompareSwap(..) => Operation::MaskedCompareSwap,
            Self::MaskedFetchAdd(..) => Operation::MaskedFetchAdd,
            Self::AtomicWrite(..) => Operation::AtomicWrite,
            Self::Flush(..) => Operation::Flush,
        }
    }

    /// Whether its opcode lies in the range for manufacturers.
    const fn is_own(&self) -> bool {
        matches!(self, Self::MaskedCompareSwap(..) | Self::MaskedFetchAdd(..))
    }
}

impl<P> Response<P> {
    fn map_payload<Q>(self, map: impl FnOnce(P) -> Q) -> Response<Q> {
        match self {
            Self::Read(segment, payload) => Response::Read(segment, map(payload)),
            Self::Acknowledge(aeth) => Response::Acknowledge(aeth),
            Self::AtomicAcknowledge(aeth, original) => Response::AtomicAcknowledge(aeth, original),
        }
    }

    const fn operation(&self) -> Operation {
        match self {
            Self::Read(ReadSegment::First(_), _) => Operation::ReadResponseFirst,
            Self::Read(ReadSegment::Middle, _) => Operation::ReadResponseMiddle,
            Self::Read(ReadSegment::Last(_), _) => Operation::ReadResponseLast,
            Self::Read(ReadSegment::Only(_), _) => Operation::ReadResponseOnly,
            Self::Acknowledge(_) => Operation::Acknowledge,
            Self::AtomicAcknowledge(..) => Operation::AtomicAcknowledge,
        }
    }
}

impl<P> UcRequest<P> {
    const fn operation(&self) -> Operation {
        match self {
            Self::Send(segment, _) => match segment {
                Segment::First(()) => Operation::SendFirst,
                Segment::Middle => Operation::SendMiddle,
                Segment::Last(None) => Operation::SendLast,
                Segment::Last(Some(_)) => Operation::SendLastImm,
                Segment::Only((), None) => Operation::SendOnly,
                Segment::Only((), Some(_)) => Operation::SendOnlyImm,
            },
            Self::Write(segment, _) => write_operation(segment),
        }
    }
}

const fn write_operation(segment: &Segment<Reth, Option<Imm>>) -> Operation {
    match segment {
        Segment::First(_) => Operation::WriteFirst,
        Segment::Middle => Operation::WriteMiddle,
        Segment::Last(None) => Operation::WriteLast,
        Segment::Last(Some(_)) => Operation::WriteLastImm,
        Segment::Only(_, None) => Operation::WriteOnly,
        Segment::Only(_, Some(_)) => Operation::WriteOnlyImm,
    }
}
