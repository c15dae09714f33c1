//! Packets that no machine of ours would send now.

use ferroce_wire::{
    Aeth, AtomicAckEth, AtomicEth, AtomicMasks, Body, Datagram, Deth, Imm, Msn, Packet, Psn, Qpn,
    ReadSegment, Request, Response, Reth, Rkey, Segment, SendTail, Syndrome, UcRequest,
};

use super::HostilePacket;
use crate::pair::Pair;

static PAYLOAD: [u8; 4096] = [0x77; 4096];

/// What a hostile packet can know about the side that it is sent to.
#[derive(Clone, Copy)]
pub(super) struct Knowledge {
    pub(super) dest: Qpn,
    pub(super) psn: Psn,
    pub(super) key: Rkey,
    pub(super) window: Rkey,
    pub(super) base: u64,
}

/// Makes the packet.
pub(super) fn build(packet: HostilePacket, known: Knowledge) -> Packet<&'static [u8]> {
    let (body, ack_request) = match packet {
        HostilePacket::Request { kind, position, key, offset, length, payload, ack_request } => {
            let rkey = match key % 4 {
                0 | 1 => known.key,
                2 => known.window,
                _ => Rkey(u32::from(key) << 8),
            };
            // Just before the memory, inside, and just behind it.
            let address = known.base.wrapping_sub(64).wrapping_add(u64::from(offset));
            let reth = Reth { address, rkey, length: u32::from(length) };
            (Body::RcRequest(request(kind, position, reth, bytes(payload))), ack_request)
        }
        HostilePacket::Response { kind, syndrome, msn, payload } => {
            let aeth = Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(u32::from(msn)) };
            (Body::RcResponse(response(kind, aeth, bytes(payload))), false)
        }
        HostilePacket::Other { kind, payload } => (other(kind, bytes(payload)), false),
    };
    let mut packet = Packet::new(known.dest, known.psn, body);
    packet.ack_request = ack_request;
    packet
}

fn bytes(len: u16) -> &'static [u8] {
    &PAYLOAD[..usize::from(len) % (PAYLOAD.len() + 1)]
}

const fn segment<H, T>(position: u8, head: H, tail: T) -> Segment<H, T>
where
    H: Copy,
    T: Copy,
{
    match position % 4 {
        0 => Segment::Only(head, tail),
        1 => Segment::First(head),
        2 => Segment::Middle,
        _ => Segment::Last(tail),
    }
}

fn request(kind: u8, position: u8, reth: Reth, payload: &'static [u8]) -> Request<&'static [u8]> {
    let Reth { address, rkey, length } = reth;
    let atomic = AtomicEth { address, rkey, swap_or_add: u64::from(length), compare: 0 };
    let masks = AtomicMasks { swap_or_add: u64::from(length) << 3, compare: u64::from(position) };
    match kind % 10 {
        0 => Request::Send(segment(position, (), SendTail::Plain), payload),
        1 => Request::Send(segment(position, (), SendTail::Invalidate(rkey)), payload),
        2 => Request::Write(segment(position, reth, None), payload),
        3 => Request::Write(segment(position, reth, Some(Imm(7))), payload),
        4 => Request::Read(reth),
        5 => Request::CompareSwap(atomic),
        6 => Request::FetchAdd(atomic),
        7 => Request::MaskedCompareSwap(atomic, masks),
        8 => Request::MaskedFetchAdd(atomic, masks),
        _ => Request::AtomicWrite(reth, [position; 8]),
    }
}

fn response(kind: u8, aeth: Aeth, payload: &'static [u8]) -> Response<&'static [u8]> {
    match kind % 6 {
        0 => Response::Read(ReadSegment::First(aeth), payload),
        1 => Response::Read(ReadSegment::Middle, payload),
        2 => Response::Read(ReadSegment::Last(aeth), payload),
        3 => Response::Read(ReadSegment::Only(aeth), payload),
        4 => Response::AtomicAcknowledge(aeth, AtomicAckEth { original: 9 }),
        _ => Response::Acknowledge(aeth),
    }
}

fn other(kind: u8, payload: &'static [u8]) -> Body<&'static [u8]> {
    match kind % 4 {
        0 => Body::Congestion,
        1 => Body::Uc(UcRequest::Send(segment(kind / 4, (), None), payload)),
        2 => Body::Uc(UcRequest::Send(segment(kind / 4, (), Some(Imm(1))), payload)),
        _ => {
            let deth = Deth { qkey: Pair::QKEY, source_qp: Qpn::new(u32::from(kind)) };
            Body::Ud(Datagram { deth, imm: None, payload })
        }
    }
}
