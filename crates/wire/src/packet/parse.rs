//! Bytes to packets.

use super::{Body, Datagram, Kept, Packet, ReadSegment, Request, Response, Segment, SendTail, UcRequest};
use crate::bytes::take;
use crate::error::ParseError;
use crate::header::{Aeth, AtomicAckEth, AtomicEth, AtomicMasks, Bth, Deth, Feth, Ieth, Imm, Reth, Xrceth};
use crate::icrc::ICRC_LEN;
use crate::opcode::{OpcodeInfo, Operation, Role, Service};

impl<'a> Packet<&'a [u8]> {
    /// Reads a packet from the BTH to the ICRC. The ICRC is left to
    /// [`Flow::verify`](crate::Flow::verify), because it covers the IP header too.
    ///
    /// # Errors
    /// The first reason why the bytes are no packet.
    #[inline]
    pub fn parse(packet: &'a [u8]) -> Result<Self, ParseError> {
        let mut rest = packet;
        let bth = Bth::parse(take(&mut rest, "base transport header")?)?;
        let info = bth.opcode.info();
        let payload = payload(packet, &bth, info)?;
        assembled(&bth, info, Rest(rest), payload)
    }
}

impl<'a> Packet<Kept<'a>> {
    /// Reads a packet of `len` bytes of which a capture kept these first ones. With all
    /// of them there it is [`Packet::parse`].
    ///
    /// # Errors
    /// The first reason why they cannot begin a packet of this length, or that they end
    /// inside its headers.
    pub fn parse_kept(kept: &'a [u8], len: usize) -> Result<Self, ParseError> {
        let mut rest = kept;
        let bth = Bth::parse(take(&mut rest, "base transport header")?)?;
        let info = bth.opcode.info();
        let len = payload_len(len, &bth, info)?;
        let (what, need) = ("transport headers", info.header_len);
        let too_short = ParseError::TooShort { what, need, have: kept.len() };
        let bytes = kept.get(need..).ok_or(too_short)?;
        let bytes = bytes.get(..len).unwrap_or(bytes);
        Ok(assembled(&bth, info, Rest(rest), bytes)?.map_payload(|bytes| Kept { bytes, len }))
    }
}

/// The packet of these headers and this payload, or what there is of it.
#[inline]
fn assembled<'a>(
    bth: &Bth,
    info: &OpcodeInfo,
    rest: Rest<'a>,
    payload: &'a [u8],
) -> Result<Packet<&'a [u8]>, ParseError> {
    Ok(Packet {
        dest_qp: bth.dest_qp,
        psn: bth.psn,
        pkey: bth.pkey,
        solicited: bth.solicited,
        migrated: bth.migrated,
        ack_request: bth.ack_request,
        fecn: bth.fecn,
        becn: bth.becn,
        body: body(info, rest, payload)?,
    })
}

/// The payload of a whole packet.
#[inline]
fn payload<'a>(packet: &'a [u8], bth: &Bth, info: &OpcodeInfo) -> Result<&'a [u8], ParseError> {
    let len = payload_len(packet.len(), bth, info)?;
    Ok(&packet[info.header_len..info.header_len + len])
}

/// The length of the payload between the headers and the pad in a packet of `len` bytes,
/// if the opcode allows it.
#[inline]
fn payload_len(len: usize, bth: &Bth, info: &OpcodeInfo) -> Result<usize, ParseError> {
    let need = info.header_len + ICRC_LEN;
    let Some(padded) = len.checked_sub(need) else {
        return Err(ParseError::TooShort { what: "transport headers and ICRC", need, have: len });
    };
    if !len.is_multiple_of(4) {
        return Err(ParseError::NotWords(len));
    }
    let Some(payload_len) = padded.checked_sub(usize::from(bth.pad)) else {
        return Err(ParseError::BadPad { pad: bth.pad, have: padded });
    };
    if !info.payload.permits(payload_len) {
        let allowed = info.payload.words();
        return Err(ParseError::BadLength { opcode: bth.opcode, len: payload_len, allowed });
    }
    Ok(payload_len)
}

#[inline]
fn body<'a>(info: &OpcodeInfo, mut rest: Rest<'a>, payload: &'a [u8]) -> Result<Body<&'a [u8]>, ParseError> {
    Ok(match (info.service, info.role) {
        (Service::Rc | Service::RcOwn, Role::Request) => {
            Body::RcRequest(request(info.operation, rest, payload)?)
        }
        (Service::Rc | Service::RcOwn, Role::Response) => {
            Body::RcResponse(response(info.operation, rest, payload)?)
        }
        (Service::Uc, _) => Body::Uc(uc_request(info.operation, rest, payload)?),
        (Service::Ud, _) => {
            let deth = Deth::parse(rest.take()?);
            let imm = if info.operation == Operation::SendOnlyImm { Some(rest.imm()?) } else { None };
            Body::Ud(Datagram { deth, imm, payload })
        }
        (Service::Xrc | Service::XrcOwn, Role::Request) => {
            let Xrceth(srqn) = Xrceth::parse(rest.take()?);
            Body::XrcRequest(srqn, request(info.operation, rest, payload)?)
        }
        (Service::Xrc | Service::XrcOwn, Role::Response) => {
            Body::XrcResponse(response(info.operation, rest, payload)?)
        }
        (Service::Cnp, _) => Body::Congestion,
    })
}

#[inline]
fn request<'a>(
    operation: Operation,
    mut rest: Rest<'a>,
    payload: &'a [u8],
) -> Result<Request<&'a [u8]>, ParseError> {
    use Operation as Op;
    Ok(match operation {
        Op::SendFirst => Request::Send(Segment::First(()), payload),
        Op::SendMiddle => Request::Send(Segment::Middle, payload),
        Op::SendLast => Request::Send(Segment::Last(SendTail::Plain), payload),
        Op::SendLastImm => Request::Send(Segment::Last(SendTail::Immediate(rest.imm()?)), payload),
        Op::SendLastInv => Request::Send(Segment::Last(SendTail::Invalidate(rest.ieth()?.0)), payload),
        Op::SendOnly => Request::Send(Segment::Only((), SendTail::Plain), payload),
        Op::SendOnlyImm => Request::Send(Segment::Only((), SendTail::Immediate(rest.imm()?)), payload),
        Op::SendOnlyInv => Request::Send(Segment::Only((), SendTail::Invalidate(rest.ieth()?.0)), payload),
        Op::ReadRequest => Request::Read(rest.reth()?),
        Op::CompareSwap => Request::CompareSwap(AtomicEth::parse(rest.take()?)),
        Op::FetchAdd => Request::FetchAdd(AtomicEth::parse(rest.take()?)),
        Op::MaskedCompareSwap => {
            Request::MaskedCompareSwap(AtomicEth::parse(rest.take()?), AtomicMasks::parse(rest.take()?))
        }
        Op::MaskedFetchAdd => {
            Request::MaskedFetchAdd(AtomicEth::parse(rest.take()?), AtomicMasks::parse(rest.take()?))
        }
        Op::AtomicWrite => Request::AtomicWrite(rest.reth()?, *rest.take()?),
        Op::Flush => Request::Flush(Feth::parse(rest.take()?), rest.reth()?),
        write => Request::Write(write_segment(write, rest)?, payload),
    })
}

#[inline]
fn response<'a>(
    operation: Operation,
    mut rest: Rest<'a>,
    payload: &'a [u8],
) -> Result<Response<&'a [u8]>, ParseError> {
    use Operation as Op;
    Ok(match operation {
        Op::ReadResponseFirst => Response::Read(ReadSegment::First(rest.aeth()?), payload),
        Op::ReadResponseMiddle => Response::Read(ReadSegment::Middle, payload),
        Op::ReadResponseLast => Response::Read(ReadSegment::Last(rest.aeth()?), payload),
        Op::ReadResponseOnly => Response::Read(ReadSegment::Only(rest.aeth()?), payload),
        Op::Acknowledge => Response::Acknowledge(rest.aeth()?),
        Op::AtomicAcknowledge => Response::AtomicAcknowledge(rest.aeth()?, AtomicAckEth::parse(rest.take()?)),
        request => return Err(misplaced(request)),
    })
}

#[inline]
fn uc_request<'a>(
    operation: Operation,
    mut rest: Rest<'a>,
    payload: &'a [u8],
) -> Result<UcRequest<&'a [u8]>, ParseError> {
    use Operation as Op;
    Ok(match operation {
        Op::SendFirst => UcRequest::Send(Segment::First(()), payload),
        Op::SendMiddle => UcRequest::Send(Segment::Middle, payload),
        Op::SendLast => UcRequest::Send(Segment::Last(None), payload),
        Op::SendLastImm => UcRequest::Send(Segment::Last(Some(rest.imm()?)), payload),
        Op::SendOnly => UcRequest::Send(Segment::Only((), None), payload),
        Op::SendOnlyImm => UcRequest::Send(Segment::Only((), Some(rest.imm()?)), payload),
        write => UcRequest::Write(write_segment(write, rest)?, payload),
    })
}

#[inline]
fn write_segment(operation: Operation, mut rest: Rest<'_>) -> Result<Segment<Reth, Option<Imm>>, ParseError> {
    Ok(match operation {
        Operation::WriteFirst => Segment::First(rest.reth()?),
        Operation::WriteMiddle => Segment::Middle,
        Operation::WriteLast => Segment::Last(None),
        Operation::WriteLastImm => Segment::Last(Some(rest.imm()?)),
        Operation::WriteOnly => Segment::Only(rest.reth()?, None),
        Operation::WriteOnlyImm => Segment::Only(rest.reth()?, Some(rest.imm()?)),
        other => return Err(misplaced(other)),
    })
}

/// An operation that the opcode table lists for this service and direction but
/// that has no case here. The test over all opcodes shows that there is none.
#[cold]
const fn misplaced(operation: Operation) -> ParseError {
    ParseError::UnknownOpcode(operation.code())
}

/// The bytes after the headers that were read. They are there, since the table
/// gave the length; asking again costs nothing and keeps panics out.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], ParseError> {
        take(&mut self.0, "extended transport header")
    }

    #[inline]
    fn imm(&mut self) -> Result<Imm, ParseError> {
        self.take().map(Imm::parse)
    }

    #[inline]
    fn ieth(&mut self) -> Result<Ieth, ParseError> {
        self.take().map(Ieth::parse)
    }

    #[inline]
    fn reth(&mut self) -> Result<Reth, ParseError> {
        self.take().map(Reth::parse)
    }

    #[inline]
    fn aeth(&mut self) -> Result<Aeth, ParseError> {
        self.take().map(Aeth::parse)
    }
}
