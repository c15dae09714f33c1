//! Packets told header by header.

use core::fmt;

use super::{Body, Packet, Payload, ReadSegment, Request, Response, Segment, SendTail, UcRequest};
use crate::describe::{Describe, Visitor};
use crate::header::{CNP_RESERVED_LEN, Ieth, Imm, Reth, Xrceth};
use crate::mad::{BODY_LEN, CmMad, MAD_LEN, MadHeader};
use crate::num::Qpn;

impl<P: Payload> Describe for Packet<P> {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        self.bth().describe(visitor)?;
        match &self.body {
            Body::RcRequest(request) => describe_request(request, visitor)?,
            Body::XrcRequest(srqn, request) => {
                Xrceth(*srqn).describe(visitor)?;
                describe_request(request, visitor)?;
            }
            Body::RcResponse(response) | Body::XrcResponse(response) => {
                describe_response(response, visitor)?;
            }
            Body::Uc(UcRequest::Send(segment, _)) => describe_imm(segment.tail().flatten(), visitor)?,
            Body::Uc(UcRequest::Write(segment, _)) => describe_write(segment, visitor)?,
            Body::Ud(datagram) => {
                datagram.deth.describe(visitor)?;
                describe_imm(datagram.imm, visitor)?;
                if self.dest_qp == Qpn::GSI && datagram.payload.len() == MAD_LEN {
                    return describe_mad(datagram.payload.bytes(), visitor);
                }
            }
            Body::Congestion => visitor.header("cnp", "Congestion Notification", CNP_RESERVED_LEN)?,
        }
        match self.body.payload() {
            Some(payload) if !payload.is_empty() => visitor.data(payload.len(), payload.bytes()),
            _ => Ok(()),
        }
    }
}

/// Tells as much of a management datagram as we know, and was kept.
fn describe_mad(bytes: &[u8], visitor: &mut dyn Visitor) -> fmt::Result {
    if let Ok(mad) = CmMad::parse(bytes) {
        return mad.describe(visitor);
    }
    match bytes.split_first_chunk() {
        Some((header, body)) => {
            MadHeader::parse(header).describe(visitor)?;
            visitor.data(BODY_LEN, body)
        }
        None => visitor.data(MAD_LEN, bytes),
    }
}

fn describe_request<P>(request: &Request<P>, visitor: &mut dyn Visitor) -> fmt::Result {
    match request {
        Request::Send(segment, _) => match segment.tail() {
            None | Some(SendTail::Plain) => Ok(()),
            Some(SendTail::Immediate(imm)) => imm.describe(visitor),
            Some(SendTail::Invalidate(rkey)) => Ieth(rkey).describe(visitor),
        },
        Request::Write(segment, _) => describe_write(segment, visitor),
        Request::Read(reth) => reth.describe(visitor),
        Request::CompareSwap(atomic) | Request::FetchAdd(atomic) => atomic.describe(visitor),
        Request::MaskedCompareSwap(atomic, masks) | Request::MaskedFetchAdd(atomic, masks) => {
            atomic.describe(visitor)?;
            masks.describe(visitor)
        }
        Request::AtomicWrite(reth, operand) => {
            reth.describe(visitor)?;
            visitor.data(operand.len(), operand)
        }
        Request::Flush(feth, reth) => {
            feth.describe(visitor)?;
            reth.describe(visitor)
        }
    }
}

fn describe_response<P>(response: &Response<P>, visitor: &mut dyn Visitor) -> fmt::Result {
    match response {
        Response::Read(ReadSegment::Middle, _) => Ok(()),
        Response::Read(ReadSegment::First(aeth) | ReadSegment::Last(aeth) | ReadSegment::Only(aeth), _)
        | Response::Acknowledge(aeth) => aeth.describe(visitor),
        Response::AtomicAcknowledge(aeth, original) => {
            aeth.describe(visitor)?;
            original.describe(visitor)
        }
    }
}

fn describe_write(segment: &Segment<Reth, Option<Imm>>, visitor: &mut dyn Visitor) -> fmt::Result {
    if let Some(reth) = segment.head() {
        reth.describe(visitor)?;
    }
    describe_imm(segment.tail().flatten(), visitor)
}

fn describe_imm(imm: Option<Imm>, visitor: &mut dyn Visitor) -> fmt::Result {
    imm.map_or(Ok(()), |imm| imm.describe(visitor))
}
