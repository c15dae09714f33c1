//! Events, made of what the machines know.

use ferroce_transport::{
    Alarm, Completion, Data, MaskedAdd, MaskedSwap, Obstacle, Remote, SendOp, SendRequest, Sge,
};
use ferroce_wire::{Qpn, Rkey};

use super::{
    Completed, CompletedFlags, Operands, Piece, Posted, PostedFlags, Queue, TimerKind, WaitReason, WorkOp,
};

impl Posted {
    /// A send of so many bytes.
    #[must_use]
    #[inline]
    pub fn send(qpn: Qpn, work: u32, request: &SendRequest<'_>, length: u32) -> Self {
        let SendRequest { id, op, data, flags, dest } = *request;
        let mut flags = PostedFlags::from_bits_truncate(flags.bits());
        let (pieces, first) = match data {
            Data::Gather(sges) => (sges.len(), sges.first().copied()),
            Data::Inline(_) => {
                flags |= PostedFlags::INLINE;
                (1, None)
            }
        };
        let first = first.unwrap_or_default();
        let (op, mut remote, mut key, imm) = parts(&op);
        if let Some(dest) = dest {
            flags |= PostedFlags::DATAGRAM;
            remote = u64::from(dest.handle) << 32 | u64::from(dest.qpn.get());
            key = Rkey(dest.qkey.0);
        }
        Self {
            queue: Queue::Send(qpn),
            work,
            id,
            op,
            flags,
            pieces: u16::try_from(pieces).unwrap_or(u16::MAX),
            length,
            address: first.address,
            lkey: first.lkey,
            remote,
            key,
            imm,
        }
    }

    /// A receive.
    #[must_use]
    #[inline]
    pub fn receive(queue: Queue, work: u32, id: u64, sges: &[Sge]) -> Self {
        let first = sges.first().copied().unwrap_or_default();
        Self {
            queue,
            work,
            id,
            op: WorkOp::Receive,
            flags: PostedFlags::empty(),
            pieces: u16::try_from(sges.len()).unwrap_or(u16::MAX),
            length: sges.iter().fold(0, |sum, sge| sge.length.saturating_add(sum)),
            address: first.address,
            lkey: first.lkey,
            remote: 0,
            key: Rkey(0),
            imm: 0,
        }
    }
}

/// What an operation is, where it goes to, and what it takes along.
#[inline]
const fn parts(op: &SendOp) -> (WorkOp, u64, Rkey, u32) {
    const NOWHERE: Remote = Remote { address: 0, rkey: Rkey(0) };
    let (op, Remote { address, rkey }, imm) = match *op {
        SendOp::Send => (WorkOp::Send, NOWHERE, 0),
        SendOp::SendImm(imm) => (WorkOp::SendImm, NOWHERE, imm.0),
        SendOp::SendInvalidate(rkey) => (WorkOp::SendInvalidate, Remote { address: 0, rkey }, 0),
        SendOp::Write(remote) => (WorkOp::Write, remote, 0),
        SendOp::WriteImm(remote, imm) => (WorkOp::WriteImm, remote, imm.0),
        SendOp::Read(remote) => (WorkOp::Read, remote, 0),
        SendOp::CompareSwap { remote, .. } => (WorkOp::CompareSwap, remote, 0),
        SendOp::FetchAdd { remote, .. } => (WorkOp::FetchAdd, remote, 0),
        SendOp::MaskedCompareSwap { remote, .. } => (WorkOp::MaskedCompareSwap, remote, 0),
        SendOp::MaskedFetchAdd { remote, .. } => (WorkOp::MaskedFetchAdd, remote, 0),
        SendOp::AtomicWrite(remote) => (WorkOp::AtomicWrite, remote, 0),
        SendOp::BindWindow(bind) => {
            (WorkOp::BindWindow, Remote { address: bind.address, rkey: bind.new_key }, 0)
        }
        SendOp::LocalInvalidate(rkey) => (WorkOp::LocalInvalidate, Remote { address: 0, rkey }, 0),
    };
    (op, address, rkey, imm)
}

impl Piece {
    /// The pieces of work that do not stand in [`Posted`].
    pub fn rest(queue: Queue, work: u32, sges: &[Sge]) -> impl Iterator<Item = Self> {
        let rest = (0..).zip(sges).skip(1);
        rest.map(move |(index, sge)| Self { queue, work, index, sge: *sge })
    }
}

impl Operands {
    /// The numbers of an atomic; none if the operation is another.
    #[must_use]
    #[inline]
    pub const fn of(qpn: Qpn, work: u32, op: &SendOp) -> Option<Self> {
        let (compare_add, swap, compare_mask, swap_mask) = match *op {
            SendOp::CompareSwap { compare, swap, .. } => (compare, swap, 0, 0),
            SendOp::FetchAdd { add, .. } => (add, 0, 0, 0),
            SendOp::MaskedCompareSwap { swap, .. } => {
                let MaskedSwap { compare, compare_mask, swap, swap_mask } = swap;
                (compare, swap, compare_mask, swap_mask)
            }
            SendOp::MaskedFetchAdd { add: MaskedAdd { add, boundaries }, .. } => (add, 0, boundaries, 0),
            _ => return None,
        };
        Some(Self { qpn, work, compare_add, swap, compare_mask, swap_mask })
    }
}

impl Completed {
    /// What a completion says of work.
    #[must_use]
    #[inline]
    pub fn of(queue: Queue, work: u32, completion: &Completion, cq: u32) -> Self {
        let mut flags = CompletedFlags::empty();
        flags.set(CompletedFlags::IMM, completion.imm.is_some());
        flags.set(CompletedFlags::INVALIDATED, completion.invalidated.is_some());
        flags.set(CompletedFlags::SOLICITED, completion.solicited);
        Self {
            queue,
            work,
            id: completion.id,
            status: completion.status,
            vendor_code: completion.vendor_code,
            kind: completion.kind,
            flags,
            byte_len: completion.byte_len,
            imm: completion.imm.unwrap_or(0),
            cq,
            qpn: completion.qpn,
            source_qp: completion.source_qp.map_or(0, Qpn::get),
            invalidated: completion.invalidated.unwrap_or(Rkey(0)),
        }
    }
}

impl From<Obstacle> for WaitReason {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::Window => Self::Window,
            Obstacle::Credit => Self::Credit,
            Obstacle::ReceiverNotReady => Self::ReceiverNotReady,
            Obstacle::Rate => Self::Rate,
            Obstacle::ReadDepth => Self::ReadDepth,
            Obstacle::Fence => Self::Fence,
            Obstacle::Drain => Self::Drain,
            Obstacle::Answer => Self::Answer,
            Obstacle::State => Self::State,
        }
    }
}

impl From<Alarm> for TimerKind {
    fn from(alarm: Alarm) -> Self {
        match alarm {
            Alarm::Acknowledgement => Self::Acknowledgement,
            Alarm::Tail => Self::Tail,
            Alarm::ReceiverNotReady => Self::ReceiverNotReady,
            Alarm::Rate => Self::Rate,
        }
    }
}
