//! Packets of every opcode.

use ferroce_wire::header::{Feth, FlushPlacement, FlushScope};
use ferroce_wire::{
    Aeth, AtomicAckEth, AtomicEth, AtomicMasks, Body, Datagram, Deth, Imm, Msn, Opcode, Operation, PKey,
    Packet, PathMtu, PayloadLen, PayloadRule, Psn, QKey, Qpn, ReadSegment, Request, Response, Reth, Rkey,
    Role, Segment, SendTail, Service, Srqn, Syndrome, UcRequest,
};
use proptest::prelude::*;

/// Numbers from which the headers of a packet are made. Whatever they are, the packet is legal.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Address, operands: three numbers of 64 bits.
    pub wide: [u64; 3],
    /// Keys, lengths, immediate data, sequence numbers: six numbers of 32 bits.
    pub words: [u32; 6],
    /// P_Key.
    pub pkey: u16,
    /// Flags of the base transport header.
    pub flags: u8,
    /// Syndrome of an acknowledgement, or what a FLUSH asks for.
    pub code: u8,
    /// Operand of an ATOMIC WRITE.
    pub operand: [u8; 8],
}

impl Numbers {
    /// No two fields have the same value, or the same bytes.
    pub const DISTINCT: Self = Self {
        wide: [0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 0x2122_2324_2526_2728],
        words: [0x00a2_a3a4, 0x00b2_b3b4, 0xc1c2_c3c4, 0xd1d2_d3d4, 0xe1e2_e3e4, 0x00f2_f3f4],
        pkey: 0x8182,
        flags: 0b10101,
        code: 0x1d,
        operand: [0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38],
    };
}

/// All numbers, and for each packet a payload of a length that its opcode allows.
pub fn packets() -> impl Strategy<Value = (Packet<PayloadLen>, Vec<u8>)> {
    let opcodes: Vec<Opcode> = Opcode::all().collect();
    (prop::sample::select(opcodes), numbers(), 0..=4096_usize, any::<prop::sample::Index>()).prop_flat_map(
        |(opcode, numbers, up_to, mtu)| {
            let len = match opcode.info().payload {
                PayloadRule::Nothing | PayloadRule::EightBytes => 0,
                PayloadRule::FullMtu => PathMtu::ALL[mtu.index(5)].bytes(),
                PayloadRule::OneToMtu => up_to.max(1),
                PayloadRule::UpToMtu => up_to,
            };
            let bytes = prop::collection::vec(any::<u8>(), len);
            (Just(packet(opcode, len, &numbers)), bytes)
        },
    )
}

/// Any numbers.
pub fn numbers() -> impl Strategy<Value = Numbers> {
    let small = (any::<u16>(), any::<u8>(), any::<u8>(), any::<[u8; 8]>());
    (any::<[u64; 3]>(), any::<[u32; 6]>(), small).prop_map(|(wide, words, (pkey, flags, code, operand))| {
        Numbers { wide, words, pkey, flags, code, operand }
    })
}

/// The packet with this opcode, this length of payload and these numbers in its headers.
#[must_use]
pub fn packet(opcode: Opcode, payload: usize, numbers: &Numbers) -> Packet<PayloadLen> {
    let flag = |bit: u8| numbers.flags >> bit & 1 == 1;
    Packet {
        dest_qp: Qpn::new(numbers.words[0]),
        psn: Psn::new(numbers.words[1]),
        pkey: PKey(numbers.pkey),
        solicited: flag(0),
        migrated: flag(1),
        ack_request: flag(2),
        fecn: flag(3),
        becn: flag(4),
        body: body(opcode, PayloadLen(payload), numbers),
    }
}

fn body(opcode: Opcode, payload: PayloadLen, n: &Numbers) -> Body<PayloadLen> {
    let info = opcode.info();
    match (info.service, info.role) {
        (Service::Rc | Service::RcOwn, Role::Request) => Body::RcRequest(request(info.operation, payload, n)),
        (Service::Rc | Service::RcOwn, Role::Response) => {
            Body::RcResponse(response(info.operation, payload, n))
        }
        (Service::Xrc | Service::XrcOwn, Role::Request) => {
            Body::XrcRequest(Srqn::new(n.words[5]), request(info.operation, payload, n))
        }
        (Service::Xrc | Service::XrcOwn, Role::Response) => {
            Body::XrcResponse(response(info.operation, payload, n))
        }
        (Service::Uc, _) => Body::Uc(uc_request(info.operation, payload, n)),
        (Service::Ud, _) => Body::Ud(Datagram {
            deth: Deth { qkey: QKey(n.words[2]), source_qp: Qpn::new(n.words[3]) },
            imm: (info.operation == Operation::SendOnlyImm).then_some(Imm(n.words[4])),
            payload,
        }),
        (Service::Cnp, _) => Body::Congestion,
    }
}

fn request(operation: Operation, payload: PayloadLen, n: &Numbers) -> Request<PayloadLen> {
    let (plain, immediate) = (SendTail::Plain, SendTail::Immediate(Imm(n.words[4])));
    let invalidate = SendTail::Invalidate(Rkey(n.words[2]));
    match operation {
        Operation::SendFirst => Request::Send(Segment::First(()), payload),
        Operation::SendMiddle => Request::Send(Segment::Middle, payload),
        Operation::SendLast => Request::Send(Segment::Last(plain), payload),
        Operation::SendLastImm => Request::Send(Segment::Last(immediate), payload),
        Operation::SendLastInv => Request::Send(Segment::Last(invalidate), payload),
        Operation::SendOnly => Request::Send(Segment::Only((), plain), payload),
        Operation::SendOnlyImm => Request::Send(Segment::Only((), immediate), payload),
        Operation::SendOnlyInv => Request::Send(Segment::Only((), invalidate), payload),
        Operation::ReadRequest => Request::Read(reth(n)),
        Operation::CompareSwap => Request::CompareSwap(atomic(n)),
        Operation::FetchAdd => Request::FetchAdd(atomic(n)),
        Operation::MaskedCompareSwap => Request::MaskedCompareSwap(atomic(n), masks(n)),
        Operation::MaskedFetchAdd => Request::MaskedFetchAdd(atomic(n), masks(n)),
        Operation::AtomicWrite => Request::AtomicWrite(reth(n), n.operand),
        Operation::Flush => Request::Flush(feth(n), reth(n)),
        write => Request::Write(write_segment(write, n), payload),
    }
}

fn response(operation: Operation, payload: PayloadLen, n: &Numbers) -> Response<PayloadLen> {
    match operation {
        Operation::ReadResponseFirst => Response::Read(ReadSegment::First(aeth(n)), payload),
        Operation::ReadResponseMiddle => Response::Read(ReadSegment::Middle, payload),
        Operation::ReadResponseLast => Response::Read(ReadSegment::Last(aeth(n)), payload),
        Operation::ReadResponseOnly => Response::Read(ReadSegment::Only(aeth(n)), payload),
        Operation::Acknowledge => Response::Acknowledge(aeth(n)),
        Operation::AtomicAcknowledge => {
            Response::AtomicAcknowledge(aeth(n), AtomicAckEth { original: n.wide[1] })
        }
        other => panic!("{other:?} is no response"),
    }
}

fn uc_request(operation: Operation, payload: PayloadLen, n: &Numbers) -> UcRequest<PayloadLen> {
    let imm = Some(Imm(n.words[4]));
    match operation {
        Operation::SendFirst => UcRequest::Send(Segment::First(()), payload),
        Operation::SendMiddle => UcRequest::Send(Segment::Middle, payload),
        Operation::SendLast => UcRequest::Send(Segment::Last(None), payload),
        Operation::SendLastImm => UcRequest::Send(Segment::Last(imm), payload),
        Operation::SendOnly => UcRequest::Send(Segment::Only((), None), payload),
        Operation::SendOnlyImm => UcRequest::Send(Segment::Only((), imm), payload),
        write => UcRequest::Write(write_segment(write, n), payload),
    }
}

fn write_segment(operation: Operation, n: &Numbers) -> Segment<Reth, Option<Imm>> {
    let imm = Some(Imm(n.words[4]));
    match operation {
        Operation::WriteFirst => Segment::First(reth(n)),
        Operation::WriteMiddle => Segment::Middle,
        Operation::WriteLast => Segment::Last(None),
        Operation::WriteLastImm => Segment::Last(imm),
        Operation::WriteOnly => Segment::Only(reth(n), None),
        Operation::WriteOnlyImm => Segment::Only(reth(n), imm),
        other => panic!("{other:?} is no WRITE"),
    }
}

const fn reth(n: &Numbers) -> Reth {
    Reth { address: n.wide[0], rkey: Rkey(n.words[2]), length: n.words[3] }
}

const fn atomic(n: &Numbers) -> AtomicEth {
    AtomicEth { address: n.wide[0], rkey: Rkey(n.words[2]), swap_or_add: n.wide[1], compare: n.wide[2] }
}

/// Other numbers than those of the operands.
const fn masks(n: &Numbers) -> AtomicMasks {
    AtomicMasks { swap_or_add: n.wide[1].rotate_left(20), compare: n.wide[2].rotate_left(20) }
}

const fn aeth(n: &Numbers) -> Aeth {
    Aeth { syndrome: Syndrome::from_byte(n.code), msn: Msn::new(n.words[3]) }
}

const fn feth(n: &Numbers) -> Feth {
    Feth { placement: FlushPlacement::new(n.code), scope: FlushScope::new(n.code >> 4) }
}
