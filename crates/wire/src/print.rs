//! Packets as text: one line per header field, or one line per packet.
//!
//! ```text
//! IP 10.77.0.3.53077 > 10.77.0.2.4791: UDP, length 24
//!     Ethernet II, Src: 52:54:00:12:34:03, Dst: 52:54:00:12:34:02
//!     Internet Protocol Version 4, Src: 10.77.0.3, Dst: 10.77.0.2, ...
//!     User Datagram Protocol, Src Port: 53077, Dst Port: 4791, ...
//!     InfiniBand: Base Transport Header (12 bytes)
//!         Opcode: SEND Only (0x04)
//!         ...
//!     Data: 4 bytes
//!     InfiniBand: Invariant CRC (4 bytes)
//!         Value: 0x1a2b3c4d
//!         Check: correct
//! ```

use core::fmt;
use core::net::IpAddr;

use crate::describe::{Describe, Value, Visitor};
use crate::frame::Frame;
use crate::header::{Aeth, AtomicEth, Imm, Reth, Syndrome};
use crate::mad::CmMad;
use crate::num::Qpn;
use crate::packet::{Body, Datagram, Packet, ReadSegment, Request, Response, Segment, SendTail, UcRequest};

/// Prints a frame with one line per header field.
#[derive(Clone, Copy, Debug)]
pub struct Long<'a>(pub &'a Frame<'a>);

impl fmt::Display for Long<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { ethernet, ip, udp, packet, icrc } = self.0;
        let family = if ip.source().is_ipv4() { "IP" } else { "IP6" };
        let (from, to, len) = (ip.source(), ip.dest(), packet.len());
        writeln!(f, "{family} {from}.{} > {to}.{}: UDP, length {len}", udp.source_port, udp.dest_port)?;
        if let Some(ethernet) = ethernet {
            inline(ethernet, f)?;
        }
        inline(ip, f)?;
        inline(udp, f)?;
        packet.describe(&mut Blocks(f))?;
        icrc.describe(&mut Blocks(f))
    }
}

/// One header on one line.
fn inline(header: &dyn Describe, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    header.describe(&mut Inline(f))?;
    writeln!(f)
}

struct Inline<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Visitor for Inline<'_, '_> {
    fn header(&mut self, _key: &'static str, title: &'static str, _len: usize) -> fmt::Result {
        write!(self.0, "    {title}")
    }

    fn field(&mut self, _key: &'static str, label: &'static str, value: Value<'_>) -> fmt::Result {
        write!(self.0, ", {label}: {value}")
    }

    fn data(&mut self, bytes: &[u8]) -> fmt::Result {
        write!(self.0, ", Data: {} bytes", bytes.len())
    }
}

/// One header per block, one field per line.
struct Blocks<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Visitor for Blocks<'_, '_> {
    fn header(&mut self, _key: &'static str, title: &'static str, len: usize) -> fmt::Result {
        writeln!(self.0, "    InfiniBand: {title} ({len} bytes)")
    }

    fn field(&mut self, _key: &'static str, label: &'static str, value: Value<'_>) -> fmt::Result {
        writeln!(self.0, "        {label}: {value}")
    }

    fn data(&mut self, bytes: &[u8]) -> fmt::Result {
        writeln!(self.0, "    Data: {} bytes", bytes.len())
    }
}

/// The one-line form: addresses, packet, and the ICRC only if it is wrong.
impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to): (IpAddr, IpAddr) = (self.ip.source(), self.ip.dest());
        write!(f, "{from} > {to} {}", self.packet)?;
        if self.icrc.is_right() {
            Ok(())
        } else {
            write!(f, " WRONG ICRC 0x{:08x}, computed 0x{:08x}", self.icrc.seen, self.icrc.computed)
        }
    }
}

/// The one-line form: opcode, queue pair, PSN, what the headers say, and the payload's length.
impl fmt::Display for Packet<&[u8]> {
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
        match self.payload() {
            [] => Ok(()),
            payload => write!(f, " data={}", payload.len()),
        }
    }
}

fn short_request(request: &Request<&[u8]>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match request {
        Request::Send(segment, _) => match segment.tail() {
            None | Some(SendTail::Plain) => Ok(()),
            Some(SendTail::Immediate(imm)) => short_imm(Some(imm), f),
            Some(SendTail::Invalidate(rkey)) => write!(f, " invalidate={rkey}"),
        },
        Request::Write(segment, _) => short_write(segment, f),
        Request::Read(reth) => short_reth(reth, f),
        Request::CompareSwap(AtomicEth { address, rkey, swap_or_add, compare }) => {
            write!(f, " va=0x{address:016x} rkey={rkey} compare=0x{compare:x} swap=0x{swap_or_add:x}")
        }
        Request::FetchAdd(AtomicEth { address, rkey, swap_or_add, .. }) => {
            write!(f, " va=0x{address:016x} rkey={rkey} add=0x{swap_or_add:x}")
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

fn short_response(response: &Response<&[u8]>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

fn short_datagram(dest_qp: Qpn, datagram: &Datagram<&[u8]>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " from-qp={} qkey={}", datagram.deth.source_qp, datagram.deth.qkey)?;
    short_imm(datagram.imm, f)?;
    match CmMad::parse(datagram.payload) {
        Ok(mad) if dest_qp == Qpn::GSI => {
            write!(f, " CM {} transaction=0x{:x}", mad.message.name(), mad.transaction_id)
        }
        _ => Ok(()),
    }
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
        Syndrome::Reserved(byte) => write!(f, " syndrome=0x{byte:02x}"),
    }
}
