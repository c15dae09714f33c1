//! Events of work requests, from the call that posts them to the call that takes their completion.

use bitflags::bitflags;
use ferroce_transport::{Sge, Status, VendorCode, WorkKind};
use ferroce_wire::{Lkey, Qpn, Rkey};

use super::{Head, Kind};
use crate::packing::{Body, Packer, Unpacker};

/// A queue that work is posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// The send queue of a queue pair.
    Send(Qpn),
    /// The receive queue of a queue pair.
    Receive(Qpn),
    /// A shared receive queue, by its number.
    Shared(u32),
}

impl Queue {
    /// Its head: what kind of queue it is stands in the lowest two flags.
    const fn head(self, flags: u8) -> Head {
        let flags = (flags as u16) << 8;
        match self {
            Self::Send(qpn) => Head { flags, number: qpn.get() },
            Self::Receive(qpn) => Head { flags: flags | 1, number: qpn.get() },
            Self::Shared(number) => Head { flags: flags | 2, number },
        }
    }

    fn read(head: Head) -> Option<Self> {
        Some(match head.flags & 3 {
            0 => Self::Send(head.qpn()?),
            1 => Self::Receive(head.qpn()?),
            2 => Self::Shared(head.number),
            _ => return None,
        })
    }

    /// The queue pair that it belongs to, if it is of one.
    #[must_use]
    pub const fn qpn(self) -> Option<Qpn> {
        match self {
            Self::Send(qpn) | Self::Receive(qpn) => Some(qpn),
            Self::Shared(_) => None,
        }
    }
}

impl std::fmt::Display for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Send(qpn) => write!(f, "the send queue of queue pair {qpn}"),
            Self::Receive(qpn) => write!(f, "the receive queue of queue pair {qpn}"),
            Self::Shared(number) => write!(f, "shared receive queue {number}"),
        }
    }
}

/// What flags a head has besides the queue.
const fn flags_of(head: Head) -> u8 {
    head.flags.to_be_bytes()[0]
}

/// Makes an enum with numbers that stand in files.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $item:ident = $number:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$each])* $item = $number,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$item,)*];

            /// Its number.
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The one with this number.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                Some(match code {
                    $($number => Self::$item,)*
                    _ => return None,
                })
            }

            /// What it is called.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$item => $text,)*
                }
            }
        }
    };
}
pub(super) use numbered;

numbered! {
    /// What work does. Numbers of sends are those of `ibv_wr_opcode`, where there is one.
    WorkOp {
        /// RDMA WRITE.
        Write = 0 "RDMA WRITE",
        /// RDMA WRITE with immediate data.
        WriteImm = 1 "RDMA WRITE with immediate",
        /// SEND.
        Send = 2 "SEND",
        /// SEND with immediate data.
        SendImm = 3 "SEND with immediate",
        /// RDMA READ.
        Read = 4 "RDMA READ",
        /// Compare and swap.
        CompareSwap = 5 "ATOMIC compare and swap",
        /// Fetch and add.
        FetchAdd = 6 "ATOMIC fetch and add",
        /// Local invalidation.
        LocalInvalidate = 7 "local invalidate",
        /// Memory window bind.
        BindWindow = 8 "bind window",
        /// SEND that takes a key of the peer out of use.
        SendInvalidate = 9 "SEND with invalidate",
        /// ATOMIC WRITE.
        AtomicWrite = 15 "ATOMIC WRITE",
        /// Masked compare and swap; the number is our own.
        MaskedCompareSwap = 100 "masked compare and swap",
        /// Masked fetch and add; the number is our own.
        MaskedFetchAdd = 101 "masked fetch and add",
        /// A receive; the number is that of `ibv_wc_opcode`.
        Receive = 128 "RECEIVE",
    }
}

impl WorkOp {
    /// What a completion calls it.
    #[must_use]
    pub const fn kind(self) -> WorkKind {
        match self {
            Self::Write | Self::WriteImm => WorkKind::Write,
            Self::Send | Self::SendImm | Self::SendInvalidate => WorkKind::Send,
            Self::Read => WorkKind::Read,
            Self::CompareSwap => WorkKind::CompareSwap,
            Self::FetchAdd => WorkKind::FetchAdd,
            Self::LocalInvalidate => WorkKind::LocalInvalidate,
            Self::BindWindow => WorkKind::BindWindow,
            Self::AtomicWrite => WorkKind::AtomicWrite,
            Self::MaskedCompareSwap => WorkKind::MaskedCompareSwap,
            Self::MaskedFetchAdd => WorkKind::MaskedFetchAdd,
            Self::Receive => WorkKind::Receive,
        }
    }
}

bitflags! {
    /// How work was posted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct PostedFlags: u8 {
        /// It waits until earlier READs and atomics are done.
        const FENCE = 1 << 0;
        /// It has a completion also on success.
        const SIGNALED = 1 << 1;
        /// The peer's completion raises an event.
        const SOLICITED = 1 << 2;
        /// Its bytes were copied as it was posted.
        const INLINE = 1 << 3;
        /// It goes to a queue pair of its own choice: `remote` holds handle and number, `key` the Q_Key.
        const DATAGRAM = 1 << 4;
        /// It was posted before the record began, and was found as that began.
        const EARLIER = 1 << 5;
        /// It has a completion in any case, by its own flag or by its queue pair.
        const REPORTS = 1 << 6;
    }
}

/// A program posted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// To this queue.
    pub queue: Queue,
    /// Which one of that queue it is; the numbers go round.
    pub work: u32,
    /// The program's name for it.
    pub id: u64,
    /// What it does.
    pub op: WorkOp,
    /// How.
    pub flags: PostedFlags,
    /// Pieces of memory.
    pub pieces: u16,
    /// Bytes of all pieces.
    pub length: u32,
    /// Where the first piece is.
    pub address: u64,
    /// The key of the first piece.
    pub lkey: Lkey,
    /// Where it goes to in the peer's memory.
    pub remote: u64,
    /// The key of that memory, or the one that is taken out of use.
    pub key: Rkey,
    /// Immediate data.
    pub imm: u32,
}

impl Kind for Posted {
    const KIND: u8 = 1;

    fn head(&self) -> Head {
        self.queue.head(self.flags.bits())
    }

    #[inline]
    fn body(&self) -> Body {
        let Self { work, id, op, pieces, length, address, lkey, remote, key, imm, .. } = *self;
        let body = Packer::default().u32(work).u8(op.code()).u16(pieces).u64(id).u32(length).u32(lkey.0);
        body.u64(address).u64(remote).u32(key.0).u32(imm).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        Some(Self {
            queue: Queue::read(head)?,
            flags: PostedFlags::from_bits(flags_of(head))?,
            work: from.u32(),
            op: WorkOp::from_code(from.u8())?,
            pieces: from.u16(),
            id: from.u64(),
            length: from.u32(),
            lkey: Lkey(from.u32()),
            address: from.u64(),
            remote: from.u64(),
            key: Rkey(from.u32()),
            imm: from.u32(),
        })
    }
}

/// One more piece of memory of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The queue of the work.
    pub queue: Queue,
    /// Which one of that queue it is.
    pub work: u32,
    /// Which piece; the first is 0.
    pub index: u16,
    /// The piece.
    pub sge: Sge,
}

impl Kind for Piece {
    const KIND: u8 = 2;

    fn head(&self) -> Head {
        self.queue.head(0)
    }

    fn body(&self) -> Body {
        let Sge { address, length, lkey } = self.sge;
        Packer::default().u32(self.work).u16(self.index).u64(address).u32(length).u32(lkey.0).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (work, index) = (from.u32(), from.u16());
        let sge = Sge { address: from.u64(), length: from.u32(), lkey: Lkey(from.u32()) };
        Some(Self { queue: Queue::read(head)?, work, index, sge })
    }
}

/// The numbers of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// The queue pair.
    pub qpn: Qpn,
    /// Which work of its send queue it is.
    pub work: u32,
    /// What must be there, or what is added.
    pub compare_add: u64,
    /// What is stored then.
    pub swap: u64,
    /// The bits that are compared, or the highest of each field that is added to.
    pub compare_mask: u64,
    /// The bits that are stored.
    pub swap_mask: u64,
}

impl Kind for Operands {
    const KIND: u8 = 3;

    fn head(&self) -> Head {
        Head::of(self.qpn)
    }

    fn body(&self) -> Body {
        let body = Packer::default().u32(self.work).u64(self.compare_add).u64(self.swap);
        body.u64(self.compare_mask).u64(self.swap_mask).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        Some(Self {
            qpn: head.qpn()?,
            work: from.u32(),
            compare_add: from.u64(),
            swap: from.u64(),
            compare_mask: from.u64(),
            swap_mask: from.u64(),
        })
    }
}

/// A program told the device that it has posted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// Of this queue.
    pub queue: Queue,
    /// The first that it is about.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Kind for Doorbell {
    const KIND: u8 = 4;

    fn head(&self) -> Head {
        self.queue.head(0)
    }

    fn body(&self) -> Body {
        Packer::default().u32(self.first).u32(self.count).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        Some(Self { queue: Queue::read(head)?, first: from.u32(), count: from.u32() })
    }
}

/// The machine began with work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The queue pair.
    pub qpn: Qpn,
    /// Which work of its send queue it is.
    pub work: u32,
    /// The number of its first packet.
    pub psn: u32,
    /// Packets that it has, or that its answer has; none on the local path.
    pub packets: u32,
}

impl Kind for Begun {
    const KIND: u8 = 5;

    fn head(&self) -> Head {
        Head::of(self.qpn)
    }

    #[inline]
    fn body(&self) -> Body {
        Packer::default().u32(self.work).u32(self.psn).u32(self.packets).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        Some(Self { qpn: head.qpn()?, work: from.u32(), psn: from.u32(), packets: from.u32() })
    }
}

bitflags! {
    /// What a completion has besides.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct CompletedFlags: u8 {
        /// Immediate data came along.
        const IMM = 1 << 0;
        /// The peer took a key of ours out of use.
        const INVALIDATED = 1 << 1;
        /// The sender asked for an event.
        const SOLICITED = 1 << 2;
        /// The work ended well and was not signaled: no completion was written.
        const QUIET = 1 << 3;
        /// The queue pair was reset: the work is forgotten, and no completion was written.
        const FORGOTTEN = 1 << 4;
        /// The completion queue was full: the completion is lost.
        const OVERRUN = 1 << 5;
    }
}

/// Work ended. If it is a send, all sends of its queue before it that have not ended have ended, too: well, and without a
/// completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The queue that it was posted to.
    pub queue: Queue,
    /// Which one of that queue it is.
    pub work: u32,
    /// The program's name for it.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// What is behind that.
    pub vendor_code: Option<VendorCode>,
    /// What it was.
    pub kind: WorkKind,
    /// What else there is.
    pub flags: CompletedFlags,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data, if the flag says so.
    pub imm: u32,
    /// The completion queue.
    pub cq: u32,
    /// The queue pair: work of a shared queue has one now.
    pub qpn: Qpn,
    /// The queue pair that sent a datagram, or 0.
    pub source_qp: u32,
    /// The key that was taken out of use, if the flag says so.
    pub invalidated: Rkey,
}

impl Kind for Completed {
    const KIND: u8 = 6;

    fn head(&self) -> Head {
        self.queue.head(self.flags.bits())
    }

    #[inline]
    fn body(&self) -> Body {
        let Self { work, id, status, vendor_code, kind, byte_len, imm, cq, qpn, .. } = *self;
        let vendor = vendor_code.map_or(0, VendorCode::code);
        let body = Packer::default().u32(work).u8(status.code()).u8(vendor).u8(kind.code());
        let body = body.u64(id).u32(byte_len).u32(imm).u32(cq).u32(qpn.get());
        body.u32(self.source_qp).u32(self.invalidated.0).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        Some(Self {
            queue: Queue::read(head)?,
            flags: CompletedFlags::from_bits(flags_of(head))?,
            work: from.u32(),
            status: Status::from_code(from.u8())?,
            vendor_code: match from.u8() {
                0 => None,
                code => Some(VendorCode::from_code(code)?),
            },
            kind: WorkKind::from_code(from.u8())?,
            id: from.u64(),
            byte_len: from.u32(),
            imm: from.u32(),
            cq: from.u32(),
            qpn: super::qpn(from.u32())?,
            source_qp: from.u32(),
            invalidated: Rkey(from.u32()),
        })
    }
}

/// A program took a completion from its queue. Those of one queue are taken in the order in which they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// The queue pair that the completion is about.
    pub qpn: Qpn,
    /// The completion queue.
    pub cq: u32,
    /// The program's name for the work.
    pub id: u64,
    /// Whether it is of the receive side.
    pub is_receive: bool,
    /// Whether it was thrown away: its queue pair was reset or destroyed before the program took it.
    pub is_forgotten: bool,
}

impl Kind for Polled {
    const KIND: u8 = 7;

    fn head(&self) -> Head {
        let flags = u16::from(self.is_receive) | u16::from(self.is_forgotten) << 1;
        Head { flags, number: self.qpn.get() }
    }

    #[inline]
    fn body(&self) -> Body {
        Packer::default().u32(self.cq).u64(self.id).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (is_receive, is_forgotten) = (head.flags & 1 != 0, head.flags & 2 != 0);
        Some(Self { qpn: head.qpn()?, is_receive, is_forgotten, cq: from.u32(), id: from.u64() })
    }
}

/// A message took a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The queue pair that the message came to.
    pub qpn: Qpn,
    /// The queue that the receive was posted to.
    pub queue: Queue,
    /// Which one of that queue it is.
    pub work: u32,
    /// The program's name for it.
    pub id: u64,
    /// The number of the first packet of the message.
    pub psn: u32,
}

impl Kind for Matched {
    const KIND: u8 = 8;

    fn head(&self) -> Head {
        self.queue.head(0)
    }

    fn body(&self) -> Body {
        Packer::default().u32(self.work).u32(self.qpn.get()).u64(self.id).u32(self.psn).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        Some(Self {
            queue: Queue::read(head)?,
            work: from.u32(),
            qpn: super::qpn(from.u32())?,
            id: from.u64(),
            psn: from.u32(),
        })
    }
}
