//! Packets to bytes.

use super::{Body, Packet, Payload, ReadSegment, Request, Response, Segment, SendTail, Shape, UcRequest};
use crate::error::{BufferTooSmall, EmitError};
use crate::header::{Bth, CNP_RESERVED_LEN, Ieth, Imm, Reth, Xrceth};
use crate::icrc::Flow;

impl Packet<&[u8]> {
    /// Writes the whole packet to the front of `buffer`, with the ICRC that it has
    /// in this flow with this IPv4 identification, and returns its length.
    ///
    /// # Errors
    /// The payload has a length that [`parse`](Self::parse) would refuse, or the buffer
    /// is shorter than [`len`](Self::len); nothing is written.
    #[inline]
    pub fn emit(&self, flow: &Flow, ip_id: u16, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let shape = self.shape();
        shape.judge()?;
        let (need, have) = (shape.len(), buffer.len());
        let Some(packet) = buffer.get_mut(..need) else {
            return Err(BufferTooSmall { need, have }.into());
        };
        let headers = shape.header_len;
        self.emit_shaped(&shape, &mut packet[..headers]);
        let payload = self.payload();
        let (body, end) = packet[headers..].split_at_mut(payload.len());
        body.copy_from_slice(payload);
        end.fill(0);
        flow.seal(packet, ip_id)?;
        Ok(need)
    }
}

impl<P: Payload> Packet<P> {
    /// Writes everything before the payload to the front of `buffer` and returns
    /// its length. Payload, zero pad and ICRC ([`Flow::seal`]) are the caller's.
    ///
    /// # Errors
    /// The payload has a length that [`parse`](Packet::parse) would refuse, or the buffer
    /// is shorter than [`header_len`](Self::header_len); nothing is written.
    #[inline]
    pub fn emit_headers(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let shape = self.shape();
        shape.judge()?;
        let (need, have) = (shape.header_len, buffer.len());
        let Some(headers) = buffer.get_mut(..need) else {
            return Err(BufferTooSmall { need, have }.into());
        };
        self.emit_shaped(&shape, headers);
        Ok(need)
    }

    #[inline]
    fn emit_shaped(&self, shape: &Shape, headers: &mut [u8]) {
        let mut rest = Rest(headers);
        rest.put(|header| self.shaped_bth(shape).emit(header));
        match &self.body {
            Body::RcRequest(request) => rest.request(request),
            Body::XrcRequest(srqn, request) => {
                rest.put(|header| Xrceth(*srqn).emit(header));
                rest.request(request);
            }
            Body::RcResponse(response) | Body::XrcResponse(response) => rest.response(response),
            Body::Uc(UcRequest::Send(segment, _)) => rest.imm(segment.tail().flatten()),
            Body::Uc(UcRequest::Write(segment, _)) => rest.write_segment(segment),
            Body::Ud(datagram) => {
                rest.put(|header| datagram.deth.emit(header));
                rest.imm(datagram.imm);
            }
            Body::Congestion => rest.put(|reserved| *reserved = [0; CNP_RESERVED_LEN]),
        }
        debug_assert!(rest.0.is_empty(), "{:?} wrote less than its table says", self.opcode());
    }

    /// The length of the packet, if it can be written.
    pub(crate) fn checked_len(&self) -> Result<usize, EmitError> {
        let shape = self.shape();
        shape.judge()?;
        Ok(shape.len())
    }

    /// Its base transport header.
    #[inline]
    pub fn bth(&self) -> Bth {
        self.shaped_bth(&self.shape())
    }

    #[inline]
    fn shaped_bth(&self, shape: &Shape) -> Bth {
        Bth {
            opcode: shape.opcode,
            solicited: self.solicited,
            migrated: self.migrated,
            pad: pad(shape.payload_len),
            pkey: self.pkey,
            fecn: self.fecn,
            becn: self.becn,
            dest_qp: self.dest_qp,
            ack_request: self.ack_request,
            psn: self.psn,
        }
    }
}

/// Zero bytes that fill a payload of this length up to a multiple of four.
#[expect(clippy::cast_possible_truncation, reason = "at most 3")]
const fn pad(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// Room for the headers that are still to be written: exactly as much as the
/// opcode table says, so running out is a contradiction in this crate.
struct Rest<'a>(&'a mut [u8]);

impl Rest<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, emit: impl FnOnce(&mut [u8; N])) {
        let Some((header, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut() else {
            debug_assert!(false, "more headers than the opcode table says");
            return;
        };
        emit(header);
        self.0 = rest;
    }

    #[inline]
    fn request<P>(&mut self, request: &Request<P>) {
        match request {
            Request::Send(segment, _) => match segment.tail() {
                None | Some(SendTail::Plain) => {}
                Some(SendTail::Immediate(imm)) => self.imm(Some(imm)),
                Some(SendTail::Invalidate(rkey)) => self.put(|header| Ieth(rkey).emit(header)),
            },
            Request::Write(segment, _) => self.write_segment(segment),
            Request::Read(reth) => self.put(|header| reth.emit(header)),
            Request::CompareSwap(atomic) | Request::FetchAdd(atomic) => {
                self.put(|header| atomic.emit(header));
            }
            Request::MaskedCompareSwap(atomic, masks) | Request::MaskedFetchAdd(atomic, masks) => {
                self.put(|header| atomic.emit(header));
                self.put(|header| masks.emit(header));
            }
            Request::AtomicWrite(reth, operand) => {
                self.put(|header| reth.emit(header));
                self.put(|bytes| *bytes = *operand);
            }
            Request::Flush(feth, reth) => {
                self.put(|header| feth.emit(header));
                self.put(|header| reth.emit(header));
            }
        }
    }

    #[inline]
    fn response<P>(&mut self, response: &Response<P>) {
        match response {
            Response::Read(ReadSegment::Middle, _) => {}
            Response::Read(
                ReadSegment::First(aeth) | ReadSegment::Last(aeth) | ReadSegment::Only(aeth),
                _,
            )
            | Response::Acknowledge(aeth) => self.put(|header| aeth.emit(header)),
            Response::AtomicAcknowledge(aeth, original) => {
                self.put(|header| aeth.emit(header));
                self.put(|header| original.emit(header));
            }
        }
    }

    #[inline]
    fn write_segment(&mut self, segment: &Segment<Reth, Option<Imm>>) {
        if let Some(reth) = segment.head() {
            self.put(|header| reth.emit(header));
        }
        self.imm(segment.tail().flatten());
    }

    #[inline]
    fn imm(&mut self, imm: Option<Imm>) {
        if let Some(imm) = imm {
            self.put(|header| imm.emit(header));
        }
    }
}
