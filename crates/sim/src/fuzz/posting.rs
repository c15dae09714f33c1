//! Send requests of every kind, in order and out of order.

use ferroce_transport::{
    Access, Bind, Data, DatagramDest, MaskedAdd, MaskedSwap, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use ferroce_wire::{Imm, Lkey, Rkey, Service};

use super::Work;
use super::rig::{REGION, Rig, base, qpn, service};
use crate::pair::Pair;

/// What a send request looks like.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) place: u8,
    pub(super) length: u16,
    pub(super) pieces: u8,
    pub(super) flags: u8,
    pub(super) oddity: Oddity,
}

/// What is special about it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Oddity {
    Nothing,
    Inline,
    InlineTooLong,
    WindowKey,
    OldKey,
    BeyondOurs,
    BeyondTheirs,
    Misaligned,
    WrongLength,
}

impl Oddity {
    pub(super) const fn from_byte(byte: u8) -> Self {
        match byte {
            160..200 => Self::Inline,
            200..220 => Self::WindowKey,
            250 => Self::InlineTooLong,
            251 => Self::OldKey,
            252 => Self::BeyondOurs,
            253 => Self::BeyondTheirs,
            254 => Self::Misaligned,
            255 => Self::WrongLength,
            _ => Self::Nothing,
        }
    }

    fn is(self, other: Self) -> u64 {
        u64::from(self == other)
    }
}

/// Posts a send request; the ledger hears of it first, because it may end within the call.
pub(super) fn post_send(rig: &mut Rig, side: usize, work: Work, shape: &Shape) {
    rig.next_id += 1;
    let id = rig.next_id;
    let op = operation(rig, side, work, shape);
    let odd = u32::from(shape.oddity == Oddity::WrongLength);
    let length = match work {
        Work::CompareSwap
        | Work::FetchAdd
        | Work::MaskedCompareSwap
        | Work::MaskedFetchAdd
        | Work::AtomicWrite => 8 + odd,
        Work::Bind | Work::LocalInvalidate => odd,
        _ => u32::from(shape.length) % 8192,
    };
    let sges = gather(rig, side, length, shape);
    let count = if length == 0 { 0 } else { sges.len() };
    let inline = [0x33; 65];
    let data = match shape.oddity {
        Oddity::Inline => Data::Inline(&inline[..(length as usize).min(64)]),
        Oddity::InlineTooLong => Data::Inline(&inline),
        _ => Data::Gather(&sges[..count]),
    };
    let dest = (service(rig.config.service) == Service::Ud).then(|| DatagramDest {
        handle: u32::from(side == 0),
        qpn: qpn(1 - side),
        qkey: Pair::QKEY,
    });
    let flags = SendFlags::from_bits_truncate(shape.flags);
    let answered = op.is_atomic() || matches!(op, SendOp::Read(_));
    let into = if answered { &sges[..count] } else { &[] };
    let signaled = rig.config.signal_all || flags.contains(SendFlags::SIGNALED);
    let waiting = rig.queue_pair(side).sends_waiting();
    rig.ledgers[side].post_send(id, signaled, into);
    let request = SendRequest { id, op, data, flags, dest };
    if rig.nodes[side].post_send(0, &request).is_err() {
        rig.ledgers[side].withdraw_send();
        assert_eq!(rig.queue_pair(side).sends_waiting(), waiting, "refused, and yet changed");
    }
    rig.collect(side);
}

/// One to three pieces that together have this length.
fn gather(rig: &Rig, side: usize, length: u32, shape: &Shape) -> [Sge; 3] {
    let Shape { place, pieces, oddity, .. } = *shape;
    let lkey = Lkey(rig.keys[side].wrapping_sub(0x100 * u32::from(oddity == Oddity::OldKey)));
    let start = base(side) + u64::from(place) * 8 + oddity.is(Oddity::BeyondOurs) * (REGION - 64);
    let first = length * u32::from(pieces & 3) / 3;
    let second = (length - first) * u32::from(pieces >> 2 & 3) / 3;
    let third = length - first - second;
    let piece = |offset: u64, length| Sge { address: start + offset, length, lkey };
    [piece(0, first), piece(8192, second), piece(u64::from(first), third)]
}

fn operation(rig: &Rig, side: usize, work: Work, shape: &Shape) -> SendOp {
    let Shape { place, oddity, .. } = *shape;
    let peer = 1 - side;
    let beyond = oddity.is(Oddity::BeyondTheirs) * (REGION - 4);
    let address = base(peer) + u64::from(place) * 8 + beyond + oddity.is(Oddity::Misaligned);
    let key = if oddity == Oddity::WindowKey { rig.windows[peer] } else { rig.keys[peer] };
    let remote = Remote { address, rkey: Rkey(key) };
    match work {
        Work::Send => SendOp::Send,
        Work::SendImm => SendOp::SendImm(Imm(u32::from(place))),
        Work::SendInvalidate => SendOp::SendInvalidate(Rkey(rig.windows[peer])),
        Work::Write => SendOp::Write(remote),
        Work::WriteImm => SendOp::WriteImm(remote, Imm(u32::from(place))),
        Work::Read => SendOp::Read(remote),
        Work::CompareSwap => SendOp::CompareSwap { remote, compare: 0, swap: u64::from(place) },
        Work::FetchAdd => SendOp::FetchAdd { remote, add: u64::from(place) },
        Work::MaskedCompareSwap => {
            let (compare_mask, swap_mask) = (u64::from(shape.length), !u64::from(shape.length) << 8);
            let swap = MaskedSwap { compare: 0, compare_mask, swap: u64::from(place) << 20, swap_mask };
            SendOp::MaskedCompareSwap { remote, swap }
        }
        Work::MaskedFetchAdd => {
            let add = MaskedAdd { add: u64::from(place) << 4, boundaries: u64::from(shape.length) };
            SendOp::MaskedFetchAdd { remote, add }
        }
        Work::AtomicWrite => SendOp::AtomicWrite(remote),
        Work::Bind => SendOp::BindWindow(Bind {
            window: Rkey(rig.windows[side]),
            new_key: Rkey(rig.windows[side]),
            region: Lkey(rig.keys[side]),
            address: base(side),
            length: u64::from(place) * 64,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
        }),
        Work::LocalInvalidate => SendOp::LocalInvalidate(Rkey(rig.windows[side])),
    }
}
