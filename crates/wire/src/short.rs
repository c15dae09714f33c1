//! The short form: one line per packet.

use core::fmt;

use crate::captured::Captured;
use crate::describe::Value;
use crate::frame::{Frame, Icrc};
use crate::header::{Aeth, AtomicEth, AtomicMasks, Imm, Reth, Syndrome};
use crate::mad::{CmMad, CmMessage, CommId, MAD_LEN, MadHeader};
use crate::num::Qpn;
use crate::packet::{
    Body, Datagram, Packet, Payload, ReadSegment, Request, Response, Segment, SendTail, UcRequest,
};

/// The one-line form: addresses, packet, and the ICRC only if it is wrong.
impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Captured::from(*self).fmt(f)
    }
}

/// The one-line form: addresses, packet, the ICRC only if it is wrong, and notes in brackets.
impl fmt::Display for Captured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} {}", self.ip.source(), self.ip.dest(), self.packet)?;
        if let Some(Icrc { seen, computed }) = self.icrc.filter(|icrc| !icrc.is_right()) {
            write!(f, " WRONG ICRC 0x{seen:08x}, computed 0x{computed:08x}")?;
        }
        self.notes.iter().try_for_each(|note| write!(f, " [{note}]"))
    }
}

/// The one-line form: opcode, queue pair, PSN, what the headers say, and the payload's length.
impl<P: Payload> fmt::Display for Packet<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} qp={} psn={}", self.opcode(), self.dest_qp, self.psn)?;
        let flags = [
            (self.ack_request, " ack-request"),
            (self.solicited, " solicited"),
            (self.migrated, " migrated"),
            (self.fecn, " fecn"),
            (self.becn, " becn"),
        ];
        for (_, name) in flags.iter().filter(|(set, _)| *set) {
            f.write_str(name)?;
        }
        match &self.body {
            Body::RcRequest(request) => short_request(request, f)?,
            Body::XrcRequest(srqn, request) => {
                write!(f, " srq={srqn}")?;
                short_request(request, f)?;
            }
            Body::RcResponse(response) | Body::XrcResponse(response) => short_response(response, f)?,
            Body::Uc(UcRequest::Send(segment, _)) => short_imm(segment.tail().flatten(), f)?,
            Body::Uc(UcRequest::Write(segment, _)) => short_write(segment, f)?,
            Body::Ud(datagram) => short_datagram(self.dest_qp, datagram, f)?,
            Body::Congestion => {}
        }
        match self.payload_len() {
            0 => Ok(()),
            len => write!(f, " data={len}"),
        }
    }
}

fn short_request<P>(request: &Request<P>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match request {
        Request::Send(segment, _) => match segment.tail() {
            None | Some(SendTail::Plain) => Ok(()),
            Some(SendTail::Immediate(imm)) => short_imm(Some(imm), f),
            Some(SendTail::Invalidate(rkey)) => write!(f, " invalidate={rkey}"),
        },
        Request::Write(segment, _) => short_write(segment, f),
        Request::Read(reth) => short_reth(reth, f),
        Request::CompareSwap(atomic) => short_compare_swap(atomic, f),
        Request::FetchAdd(atomic) => short_fetch_add(atomic, f),
        Request::MaskedCompareSwap(atomic, AtomicMasks { swap_or_add, compare }) => {
            short_compare_swap(atomic, f)?;
            write!(f, " compare-mask=0x{compare:x} swap-mask=0x{swap_or_add:x}")
        }
        Request::MaskedFetchAdd(atomic, AtomicMasks { swap_or_add, .. }) => {
            short_fetch_add(atomic, f)?;
            write!(f, " boundaries=0x{swap_or_add:x}")
        }
        Request::AtomicWrite(reth, operand) => {
            short_reth(reth, f)?;
            write!(f, " bytes={}", Value::Bytes(operand))
        }
        Request::Flush(feth, reth) => {
            write!(f, " placement=0x{:x} scope={:?}", feth.placement.bits(), feth.scope)?;
            short_reth(reth, f)
        }
    }
}

fn short_compare_swap(atomic: &AtomicEth, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let AtomicEth { address, rkey, swap_or_add, compare } = atomic;
    write!(f, " va=0x{address:016x} rkey={rkey} compare=0x{compare:x} swap=0x{swap_or_add:x}")
}

fn short_fetch_add(atomic: &AtomicEth, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let AtomicEth { address, rkey, swap_or_add, .. } = atomic;
    write!(f, " va=0x{address:016x} rkey={rkey} add=0x{swap_or_add:x}")
}

fn short_response<P>(response: &Response<P>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match response {
        Response::Read(ReadSegment::Middle, _) => Ok(()),
        Response::Read(ReadSegment::First(aeth) | ReadSegment::Last(aeth) | ReadSegment::Only(aeth), _)
        | Response::Acknowledge(aeth) => short_aeth(aeth, f),
        Response::AtomicAcknowledge(aeth, original) => {
            short_aeth(aeth, f)?;
            write!(f, " original=0x{:x}", original.original)
        }
    }
}

fn short_datagram<P: Payload>(
    dest_qp: Qpn,
    datagram: &Datagram<P>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, " from-qp={} qkey={}", datagram.deth.source_qp, datagram.deth.qkey)?;
    short_imm(datagram.imm, f)?;
    if dest_qp == Qpn::GSI && datagram.payload.len() == MAD_LEN {
        short_mad(datagram.payload.bytes(), f)?;
    }
    Ok(())
}

/// As much of a management datagram as we know, and was kept.
fn short_mad(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Ok(mad) = CmMad::parse(bytes) {
        return write!(f, " {mad}");
    }
    match bytes.first_chunk().map(MadHeader::parse) {
        None => Ok(()),
        Some(MadHeader { class, method, attribute_id, transaction_id, .. }) => write!(
            f,
            " MAD class=0x{class:02x} method=0x{method:02x} attribute=0x{attribute_id:04x} \
             transaction=0x{transaction_id:x}"
        ),
    }
}

/// The one-line form: what it is, the names of its connection, and the reason of a refusal.
impl fmt::Display for CmMad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM {} transaction=0x{:x}", self.message.name(), self.transaction_id)?;
        match &self.message {
            CmMessage::Req(req) => write!(f, " local-id={}", req.local_comm_id),
            CmMessage::Mra(mra) => short_ids(mra.local_comm_id, mra.remote_comm_id, f),
            CmMessage::Rej(rej) => {
                short_ids(rej.local_comm_id, rej.remote_comm_id, f)?;
                write!(f, " reason={}", rej.reason)
            }
            CmMessage::Rep(rep) => short_ids(rep.local_comm_id, rep.remote_comm_id, f),
            CmMessage::Rtu(rtu) => short_ids(rtu.local_comm_id, rtu.remote_comm_id, f),
            CmMessage::Dreq(dreq) => short_ids(dreq.local_comm_id, dreq.remote_comm_id, f),
            CmMessage::Drep(drep) => short_ids(drep.local_comm_id, drep.remote_comm_id, f),
            CmMessage::SidrReq(request) => write!(f, " request-id=0x{:08x}", request.request_id),
            CmMessage::SidrRep(reply) => {
                write!(f, " request-id=0x{:08x} status={}", reply.request_id, reply.status)
            }
        }
    }
}

fn short_ids(local: CommId, remote: CommId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " local-id={local} remote-id={remote}")
}

fn short_write(segment: &Segment<Reth, Option<Imm>>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(reth) = segment.head() {
        short_reth(&reth, f)?;
    }
    short_imm(segment.tail().flatten(), f)
}

fn short_reth(reth: &Reth, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " va=0x{:016x} rkey={} len={}", reth.address, reth.rkey, reth.length)
}

fn short_imm(imm: Option<Imm>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    imm.map_or(Ok(()), |Imm(data)| write!(f, " imm=0x{data:08x}"))
}

fn short_aeth(aeth: &Aeth, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " {} msn={}", aeth.syndrome.name(), aeth.msn)?;
    match aeth.syndrome {
        Syndrome::Ack(code) => code.credits().map_or(Ok(()), |credits| write!(f, " credits={credits}")),
        Syndrome::RnrNak(timer) => write!(f, " wait={}us", timer.duration().as_micros()),
        Syndrome::Nak(_) => Ok(()),
        Syndrome::Reserved(reserved) => write!(f, " syndrome=0x{:02x}", reserved.byte()),
    }
}
