//! Events of timers and waits.

use ferroce_wire::Qpn;

use super::work::numbered;
use super::{Head, Kind};
use crate::packing::{Body, Packer, Unpacker};

numbered! {
    /// What a timer was for.
    TimerKind {
        /// No answer came in time: packets are sent again.
        Acknowledgement = 1 "no acknowledgement in time",
        /// The last packets may be lost: one asks for an answer.
        Tail = 2 "a probe for a lost tail",
        /// The peer had no receive, and its pause is over.
        ReceiverNotReady = 3 "the pause for a receiver is over",
        /// The rate limit lets the next packet out.
        Rate = 4 "the rate limit lets go",
    }
}

/// A timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The queue pair.
    pub qpn: Qpn,
    /// What it was for.
    pub kind: TimerKind,
    /// The oldest packet that is not answered, which is sent again.
    pub psn: u32,
    /// The work of that packet.
    pub work: u32,
    /// How often this happened in a row.
    pub tries: u8,
    /// How often it may happen.
    pub most: u8,
}

impl Kind for Timer {
    const KIND: u8 = 19;

    fn head(&self) -> Head {
        Head::of(self.qpn)
    }

    fn body(&self) -> Body {
        let Self { psn, work, kind, tries, most, .. } = *self;
        Packer::default().u32(psn).u32(work).u8(kind.code()).u8(tries).u8(most).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (psn, work, kind) = (from.u32(), from.u32(), TimerKind::from_code(from.u8())?);
        Some(Self { qpn: head.qpn()?, kind, psn, work, tries: from.u8(), most: from.u8() })
    }
}

numbered! {
    /// What work waits for.
    WaitReason {
        /// Too much is under way to the same receiver.
        Window = 1 "the sending window",
        /// The peer has no receive left, by its own count.
        Credit = 2 "a receive of the peer, by its credits",
        /// The peer said that it has no receive.
        ReceiverNotReady = 3 "the pause that a peer without a receive asked for",
        /// The rate limit of the queue pair.
        Rate = 4 "the rate limit",
        /// As many READs and atomics are under way as may be.
        ReadDepth = 5 "the depth of READs and atomics",
        /// A fence: earlier READs and atomics are under way.
        Fence = 6 "earlier READs and atomics, by its fence",
        /// The send queue is being drained.
        Drain = 7 "the program, which drains the send queue",
        /// The peer has everything, and has not answered yet.
        Answer = 8 "an answer of the peer",
        /// The queue pair may not send in its state.
        State = 9 "a state in which the queue pair sends",
    }
}

/// Work waits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The queue pair.
    pub qpn: Qpn,
    /// What for.
    pub reason: WaitReason,
    /// The work that is next.
    pub work: u32,
    /// Until when, on the clock of the device; 0 if that is not known.
    pub until: u64,
}

impl Kind for Wait {
    const KIND: u8 = 20;

    fn head(&self) -> Head {
        Head::of(self.qpn)
    }

    fn body(&self) -> Body {
        Packer::default().u32(self.work).u8(self.reason.code()).u64(self.until).done()
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (work, reason) = (from.u32(), WaitReason::from_code(from.u8())?);
        Some(Self { qpn: head.qpn()?, reason, work, until: from.u64() })
    }
}
