//! Everything that a neighbour can say.

use ferroce_wire::header::AtomicAckEth;
use ferroce_wire::{
    Aeth, AtomicEth, Body, Datagram, Deth, Flow, Imm, Msn, Packet, Psn, QKey, Qpn, ReadSegment, Request,
    Response, Reth, Segment, SendTail, Syndrome, UcRequest,
};
use rand_core::Rng;

use super::{FALSE_BYTE, Target, mads};

/// One kind of packet. Each is right in all but its sender, as far as the liar knows what is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lie {
    /// REQ in the name of the connected peer: its queue pair asks for a new connection.
    Request,
    /// REQ under the peer's own name for the connection.
    RequestAgain,
    /// REQ of ever new queue pairs to the listener.
    RequestFlood,
    /// REP to the connection.
    Reply,
    /// RTU to the connection.
    Ready,
    /// REJ of the connection.
    Reject,
    /// REJ that names no connection but the peer's.
    RejectUnnamed,
    /// MRA to the connection.
    Wait,
    /// DREQ to the connection.
    Disconnect,
    /// DREP to the connection.
    Disconnected,
    /// SIDR REQ to the listener.
    Resolve,
    /// SIDR REP under the name of the connection.
    Resolved,
    /// RC SEND.
    Send,
    /// RC SEND that looks like a frame of an endpoint: goodbyes, faults, exposures.
    Frame,
    /// RC SEND that takes away the right to the memory.
    SendInvalidate,
    /// RC WRITE.
    Write,
    /// RC WRITE with immediate data.
    WriteImmediate,
    /// RC READ of a megabyte.
    Read,
    /// FETCH AND ADD.
    FetchAdd,
    /// COMPARE AND SWAP.
    CompareSwap,
    /// ACK of what is under way.
    Acknowledge,
    /// NAK that ends a connection.
    Refuse,
    /// RNR NAK: wait for long.
    NotReady,
    /// READ response.
    ReadResponse,
    /// Answer to an atomic.
    AtomicAnswer,
    /// UC SEND.
    UcSend,
    /// UC WRITE.
    UcWrite,
    /// UD datagram.
    Datagram,
    /// Congestion notification.
    Congestion,
    /// Datagram to queue pair 0.
    Subnet,
}

impl Lie {
    /// Those of connection management: to queue pair 1.
    pub const MADS: [Self; 12] = [
        Self::Request,
        Self::RequestAgain,
        Self::RequestFlood,
        Self::Reply,
        Self::Ready,
        Self::Reject,
        Self::RejectUnnamed,
        Self::Wait,
        Self::Disconnect,
        Self::Disconnected,
        Self::Resolve,
        Self::Resolved,
    ];

    /// Those to queue pairs of programs.
    pub const DATA: [Self; 18] = [
        Self::Send,
        Self::Frame,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImmediate,
        Self::Read,
        Self::FetchAdd,
        Self::CompareSwap,
        Self::Acknowledge,
        Self::Refuse,
        Self::NotReady,
        Self::ReadResponse,
        Self::AtomicAnswer,
        Self::UcSend,
        Self::UcWrite,
        Self::Datagram,
        Self::Congestion,
        Self::Subnet,
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        Self::MADS.into_iter().chain(Self::DATA)
    }

    /// Whether it is a message of connection management.
    #[must_use]
    pub fn is_mad(self) -> bool {
        Self::MADS.contains(&self)
    }

    /// The bytes of one such packet, sealed for the way that it goes.
    ///
    /// # Panics
    /// If the packet cannot be written; then this table is wrong.
    #[must_use]
    pub fn build(self, target: &Target, flow: &Flow, random: &mut impl Rng) -> Vec<u8> {
        let payload = [FALSE_BYTE; 64];
        let mad = mads::build(self, target, random);
        let packet = match &mad {
            Some(mad) => {
                let deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
                let body = Body::Ud(Datagram { deth, imm: None, payload: &mad[..] });
                Packet::new(Qpn::GSI, Psn::new(random.next_u32() & 0xff_ffff), body)
            }
            None => self.data(target, &payload, random),
        };
        let mut bytes = vec![0; packet.len()];
        packet.emit(flow, 0, &mut bytes).expect("a legal packet");
        bytes
    }

    fn data<'a>(self, target: &Target, payload: &'a [u8; 64], random: &mut impl Rng) -> Packet<&'a [u8]> {
        let Target { place: address, rkey, .. } = *target;
        let reth = Reth { address, rkey, length: 64 };
        let imm = Imm(random.next_u32());
        let atomic = AtomicEth { address, rkey, swap_or_add: 0x0bad_0bad, compare: 0 };
        let payload = &payload[..];
        let request = |request| (target.expects, Body::RcRequest(request));
        let aeth = |syndrome| Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(1) };
        // The last that was asked, or one before it.
        let under_way = target.asks + ((1 << 24) - 1 - random.next_u32() % 4);
        let answer = |response| (under_way, Body::RcResponse(response));
        let (psn, body) = match self {
            Self::Send => request(Request::Send(Segment::Only((), SendTail::Plain), payload)),
            Self::Frame => request(Request::Send(Segment::Only((), SendTail::Plain), frame(random))),
            Self::SendInvalidate => {
                request(Request::Send(Segment::Only((), SendTail::Invalidate(rkey)), payload))
            }
            Self::Write => request(Request::Write(Segment::Only(reth, None), payload)),
            Self::WriteImmediate => request(Request::Write(Segment::Only(reth, Some(imm)), payload)),
            Self::Read => request(Request::Read(Reth { length: 1 << 20, ..reth })),
            Self::FetchAdd => request(Request::FetchAdd(atomic)),
            Self::CompareSwap => request(Request::CompareSwap(atomic)),
            // The upper three bits of a syndrome say what it is: 0 is yes, 1 is wait, 3 is no.
            Self::Acknowledge => answer(Response::Acknowledge(aeth(0x1f))),
            Self::Refuse => answer(Response::Acknowledge(aeth(0x60 | low_bits(random, 5)))),
            Self::NotReady => answer(Response::Acknowledge(aeth(0x20 | low_bits(random, 32)))),
            Self::ReadResponse => answer(Response::Read(ReadSegment::Only(aeth(0x1f)), payload)),
            Self::AtomicAnswer => {
                answer(Response::AtomicAcknowledge(aeth(0x1f), AtomicAckEth { original: 7 }))
            }
            Self::UcSend => (target.expects, Body::Uc(UcRequest::Send(Segment::Only((), None), payload))),
            Self::UcWrite => (target.expects, Body::Uc(UcRequest::Write(Segment::Only(reth, None), payload))),
            Self::Datagram | Self::Subnet => {
                let deth = Deth { qkey: target.qkey, source_qp: target.peer_qpn };
                (target.expects, Body::Ud(Datagram { deth, imm: None, payload }))
            }
            _ => return Packet::congestion(target.qpn).map_payload(|_: &[u8]| &[][..]),
        };
        let dest = if self == Self::Subnet { Qpn::SMI } else { target.qpn };
        Packet { ack_request: true, ..Packet::new(dest, psn, body) }
    }
}

/// A byte below this.
fn low_bits(random: &mut impl Rng, below: u32) -> u8 {
    u8::try_from(random.next_u32() % below).unwrap_or(0)
}

/// A frame as endpoints send it: kind, flags, two counters and a length, then what belongs to the kind.
fn frame(random: &mut impl Rng) -> &'static [u8] {
    const fn of_kind(kind: u8) -> [u8; 24] {
        let mut frame = [0; 24];
        frame[0] = kind;
        // Bytes that follow.
        frame[15] = 8;
        frame
    }
    static FRAMES: [[u8; 24]; 10] = [
        of_kind(1),
        of_kind(2),
        of_kind(3),
        of_kind(4),
        of_kind(5),
        of_kind(6),
        of_kind(7),
        of_kind(8),
        of_kind(9),
        of_kind(10),
    ];
    &FRAMES[random.next_u32() as usize % FRAMES.len()]
}
