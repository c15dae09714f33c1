//! Packets told header by header.

use core::fmt;

use super::{Body, Packet, ReadSegment, Request, Response, Segment, SendTail, UcRequest};
use crate::describe::{Describe, Visitor};
use crate::header::{Ieth, Imm, Reth, Xrceth};
use crate::mad::CmMad;
use crate::num::Qpn;

impl Describe for Packet<&[u8]> {
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
                if self.dest_qp == Qpn::GSI
                    && let Ok(mad) = CmMad::parse(datagram.payload)
                {
                    return mad.describe(visitor);
                }
            }
            Body::Congestion => visitor.header("cnp", "Congestion Notification", 16)?,
        }
        match self.payload() {
            [] => Ok(()),
            payload => visitor.data(payload),
        }
    }
}

fn describe_request(request: &Request<&[u8]>, visitor: &mut dyn Visitor) -> fmt::Result {
    match request {
        Request::Send(segment, _) => match segment.tail() {
            None | Some(SendTail::Plain) => Ok(()),
            Some(SendTail::Immediate(imm)) => imm.describe(visitor),
            Some(SendTail::Invalidate(rkey)) => Ieth(rkey).describe(visitor),
        },
        Request::Write(segment, _) => describe_write(segment, visitor),
        Request::Read(reth) => reth.describe(visitor),
        Request::CompareSwap(atomic) | Request::FetchAdd(atomic) => atomic.describe(visitor),
        Request::AtomicWrite(reth, operand) => {
            reth.describe(visitor)?;
            visitor.data(operand)
        }
        Request::Flush(feth, reth) => {
            feth.describe(visitor)?;
            reth.describe(visitor)
        }
    }
}

fn describe_response(response: &Response<&[u8]>, visitor: &mut dyn Visitor) -> fmt::Result {
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
