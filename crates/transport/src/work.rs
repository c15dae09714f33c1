//! Work: what a program asks of a queue pair.

use bitflags::bitflags;
use ferroce_wire::{Imm, Lkey, QKey, Qpn, Rkey};

/// A piece of the program's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sge {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The key of the region that holds them.
    pub lkey: Lkey,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte.
    pub address: u64,
    /// The key that gives access to it.
    pub rkey: Rkey,
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// A message into a receive of the peer.
    Send,
    /// The same, with immediate data.
    SendImm(Imm),
    /// The same, and the peer takes this key of its own out of use.
    SendInvalidate(Rkey),
    /// A message into the peer's memory.
    Write(Remote),
    /// The same, with immediate data, which takes a receive of the peer.
    WriteImm(Remote, Imm),
    /// The peer's memory into ours.
    Read(Remote),
    /// Compare eight bytes of the peer and swap them if they are equal.
    CompareSwap {
        /// Where.
        remote: Remote,
        /// What must be there.
        compare: u64,
        /// What is stored then.
        swap: u64,
    },
    /// Add to eight bytes of the peer.
    FetchAdd {
        /// Where.
        remote: Remote,
        /// What is added.
        add: u64,
    },
    /// Compare some bits of eight bytes of the peer and swap some. Only a peer of our own make knows it:
    /// another drops it unseen, and the request ends as [`RetryExceeded`](crate::Status::RetryExceeded).
    MaskedCompareSwap {
        /// Where.
        remote: Remote,
        /// What must be there, and what is stored then.
        swap: MaskedSwap,
    },
    /// Add to the fields of eight bytes of the peer. Only a peer of our own make knows it, as above.
    MaskedFetchAdd {
        /// Where.
        remote: Remote,
        /// What is added to which fields.
        add: MaskedAdd,
    },
    /// Eight bytes into the peer's memory at once.
    AtomicWrite(Remote),
    /// Give a memory window this range of a region. No packet.
    BindWindow(Bind),
    /// Take a key of our own out of use. No packet.
    LocalInvalidate(Rkey),
}

/// The operands of a masked compare and swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedSwap {
    /// What must be there.
    pub compare: u64,
    /// The bits that are compared; the others may be anything.
    pub compare_mask: u64,
    /// What is stored then.
    pub swap: u64,
    /// The bits that are stored; the others stay.
    pub swap_mask: u64,
}

impl MaskedSwap {
    /// What it leaves where it found `original`.
    #[must_use]
    pub const fn applied(&self, original: u64) -> u64 {
        if (original ^ self.compare) & self.compare_mask == 0 {
            original & !self.swap_mask | self.swap & self.swap_mask
        } else {
            original
        }
    }
}

/// The operands of a masked fetch and add: several sums side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedAdd {
    /// What is added.
    pub add: u64,
    /// The highest bit of each field. A carry out of it is lost instead of going on to the next
    /// field; without any, all eight bytes are one field.
    pub boundaries: u64,
}

impl MaskedAdd {
    /// What it leaves where it found `original`.
    #[must_use]
    pub const fn applied(&self, original: u64) -> u64 {
        // Without the highest bits no field overflows into the next; those are added last, without carry.
        let Self { add, boundaries } = *self;
        let below = (original & !boundaries).wrapping_add(add & !boundaries);
        below ^ ((original ^ add) & boundaries)
    }
}

/// What a memory window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window, named by the key that it was made with: which one it has when its turn comes is not known
    /// yet.
    pub window: Rkey,
    /// Its key from now on.
    pub new_key: Rkey,
    /// The region that lies behind it.
    pub region: Lkey,
    /// First byte that it opens.
    pub address: u64,
    /// Bytes that it opens; 0 closes it.
    pub length: u64,
    /// What a peer may do with them.
    pub access: Access,
}

impl SendOp {
    /// Whether the answer is data or a value of the peer: such requests count
    /// against the READ and atomic depth, and a fence waits for them.
    #[must_use]
    pub const fn is_read_or_atomic(&self) -> bool {
        self.is_atomic() || matches!(self, Self::Read(_) | Self::AtomicWrite(_))
    }

    /// Whether the answer is the value that was there before.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(
            self,
            Self::CompareSwap { .. }
                | Self::FetchAdd { .. }
                | Self::MaskedCompareSwap { .. }
                | Self::MaskedFetchAdd { .. }
        )
    }

    /// Whether it takes a receive of the peer.
    #[must_use]
    pub const fn takes_receive(&self) -> bool {
        matches!(self, Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) | Self::WriteImm(..))
    }

    /// Whether it is done here, without a packet.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::BindWindow(_) | Self::LocalInvalidate(_))
    }
}

bitflags! {
    /// What a peer, or the owner, may do with memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// The owner may have it written.
        const LOCAL_WRITE = 1 << 0;
        /// A peer may write.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may read.
        const REMOTE_READ = 1 << 2;
        /// A peer may do atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const BIND_WINDOW = 1 << 4;
    }
}

bitflags! {
    /// How a send request is treated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u8 {
        /// Wait until earlier READs and atomics are done.
        const FENCE = 1 << 0;
        /// A completion also on success.
        const SIGNALED = 1 << 1;
        /// The peer's completion raises an event also where only solicited ones were asked for.
        const SOLICITED = 1 << 2;
    }
}

/// Where the bytes of a send request are, or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// In registered memory.
    Gather(&'a [Sge]),
    /// Here: copied when the request is posted.
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// How many bytes, or how many a READ is to bring.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Gather(pieces) => pieces.iter().map(|piece| u64::from(piece.length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// Where a datagram goes. What the handle stands for is the device's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramDest {
    /// The address handle.
    pub handle: u32,
    /// The queue pair there.
    pub qpn: Qpn,
    /// The Q_Key to show; with its top bit set, the queue pair's own is shown instead.
    pub qkey: QKey,
}

/// A send request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The program's name for it, given back in the completion.
    pub id: u64,
    /// What it does.
    pub op: SendOp,
    /// The bytes.
    pub data: Data<'a>,
    /// How it is treated.
    pub flags: SendFlags,
    /// Where it goes, on a UD queue pair.
    pub dest: Option<DatagramDest>,
}

/// A receive request.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest<'a> {
    /// The program's name for it, given back in the completion.
    pub id: u64,
    /// Where a message goes, piece after piece.
    pub sges: &'a [Sge],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_says_what_it_is() {
        let remote = Remote { address: 0, rkey: Rkey(1) };
        let swap = MaskedSwap { compare: 0, compare_mask: 0, swap: 0, swap_mask: 0 };
        let add = MaskedAdd { add: 1, boundaries: 0 };
        let bind = Bind {
            window: Rkey(1),
            new_key: Rkey(2),
            region: Lkey(3),
            address: 0,
            length: 0,
            access: Access::empty(),
        };
        // In order: read or atomic, atomic, takes a receive, local.
        let all = [
            (SendOp::Send, [false, false, true, false]),
            (SendOp::SendImm(Imm(1)), [false, false, true, false]),
            (SendOp::SendInvalidate(Rkey(1)), [false, false, true, false]),
            (SendOp::Write(remote), [false; 4]),
            (SendOp::WriteImm(remote, Imm(1)), [false, false, true, false]),
            (SendOp::Read(remote), [true, false, false, false]),
            (SendOp::CompareSwap { remote, compare: 0, swap: 0 }, [true, true, false, false]),
            (SendOp::FetchAdd { remote, add: 0 }, [true, true, false, false]),
            (SendOp::MaskedCompareSwap { remote, swap }, [true, true, false, false]),
            (SendOp::MaskedFetchAdd { remote, add }, [true, true, false, false]),
            (SendOp::AtomicWrite(remote), [true, false, false, false]),
            (SendOp::BindWindow(bind), [false, false, false, true]),
            (SendOp::LocalInvalidate(Rkey(1)), [false, false, false, true]),
        ];
        for (op, is) in all {
            let seen = [op.is_read_or_atomic(), op.is_atomic(), op.takes_receive(), op.is_local()];
            assert_eq!(seen, is, "{op:?}");
        }
    }

    #[test]
    fn a_masked_swap_looks_at_some_bits_and_stores_others() {
        let swap = MaskedSwap { compare: 0xab12, compare_mask: 0xff00, swap: 0x77cd, swap_mask: 0x00ff };
        assert_eq!(swap.applied(0xab99), 0xabcd);
        assert_eq!(swap.applied(0x5_ab99), 0x5_abcd, "bits outside of both masks stay");
        assert_eq!(swap.applied(0xaa99), 0xaa99, "another value");
        let all = MaskedSwap { compare: 5, compare_mask: u64::MAX, swap: 9, swap_mask: u64::MAX };
        assert_eq!((all.applied(5), all.applied(4)), (9, 4));
    }

    #[test]
    fn a_masked_add_keeps_carries_inside_of_their_fields() {
        let bytes = MaskedAdd { add: 0x0102_ff01, boundaries: 0x8080_8080 };
        assert_eq!(bytes.applied(0x01ff_02ff), 0x0201_0100);
        let whole = MaskedAdd { add: 1, boundaries: 0 };
        assert_eq!((whole.applied(0xffff), whole.applied(u64::MAX)), (0x1_0000, 0));
        let top = MaskedAdd { add: 1 << 63 | 1, boundaries: 1 << 63 };
        assert_eq!(top.applied(u64::MAX), 1 << 63, "the carry out of the highest bit is lost");
    }
}
