//! What a program hears back.
//!
//! There is one type of completion from the machine that ends the work to the program that takes it off a
//! queue.

use core::num::NonZeroU16;

use ferroce_wire::{Grh, Qpn, Rkey};
use thiserror::Error;

use crate::status::{Status, WorkKind};
use crate::time::Time;
use crate::vendor::VendorCode;

/// The end of one work request.
///
/// [`result`](Self::result) says whether it went well; [`classify`](Self::classify) sorts it by what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The program's name for the request.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// What is behind the status of a failed request; in C `vendor_err`.
    pub vendor_code: Option<VendorCode>,
    /// What it was. Of a failed request this is not reliable on other devices.
    pub kind: WorkKind,
    /// Bytes received or read. A datagram counts the 40 bytes of its header too.
    pub byte_len: u32,
    /// Immediate data that came along.
    pub imm: Option<u32>,
    /// A key of ours that the peer took out of use.
    pub invalidated: Option<Rkey>,
    /// The queue pair it is about.
    pub qpn: Qpn,
    /// The queue pair that sent a datagram.
    pub source_qp: Option<Qpn>,
    /// The UDP port that a datagram left from. The header in front of a datagram does not tell it.
    pub source_port: Option<NonZeroU16>,
    /// Whether a datagram came over IPv6: what stands before it in its buffer is a GRH then, and the header of IPv4 in the
    /// second half of that place if not.
    pub over_ipv6: bool,
    /// Whether the sender asked for an event.
    pub solicited: bool,
    /// When it ended, on the clock of the device. The machines know no clock and leave it at zero: the device
    /// sets it as it puts the completion into its queue.
    pub time: Time,
    /// How that time was found.
    pub time_source: TimeSource,
}

/// The end of a work request that went well, with nothing more to tell: that of nearly all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainCompletion {
    /// The program's name for the request.
    pub id: u64,
    /// What it was.
    pub kind: WorkKind,
    /// The queue pair it is about.
    pub qpn: Qpn,
    /// Bytes received or sent.
    pub byte_len: u32,
    /// Whether the sender asked for an event.
    pub solicited: bool,
}

impl PlainCompletion {
    /// The completion that it is.
    #[must_use]
    #[inline]
    pub const fn whole(&self) -> Completion {
        let Self { id, kind, qpn, byte_len, solicited } = *self;
        Completion { id, kind, qpn, byte_len, solicited, ..Completion::EMPTY }
    }
}

/// How the time of a completion was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeSource {
    /// It is the beginning of the turn in which the work ended: good for measuring programs, not networks.
    #[default]
    Turn,
    /// The kernel took it as the packet left or came.
    Kernel,
    /// The kernel said nothing in time: it was taken after the call that sent the packet.
    AfterCall,
    /// A card took it as the work ended.
    Card,
    /// The kernel took it, but its clock was set at that moment: no difference with it means anything.
    Unsure,
}

impl Completion {
    /// What an array is filled with before it is polled into.
    pub const EMPTY: Self = Self {
        id: 0,
        status: Status::Success,
        vendor_code: None,
        kind: WorkKind::Send,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qpn: Qpn::SMI,
        source_qp: None,
        source_port: None,
        over_ipv6: false,
        solicited: false,
        time: Time::ZERO,
        time_source: TimeSource::Turn,
    };

    /// Itself if the work was done, else why not.
    ///
    /// # Errors
    /// The status, and what to do about it.
    pub const fn result(&self) -> Result<&Self, WorkError> {
        match self.status {
            Status::Success => Ok(self),
            status => {
                let Self { id, qpn, kind, vendor_code, .. } = *self;
                Err(WorkError { id, qpn, kind, status, vendor_code })
            }
        }
    }

    /// Whether the work was done.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.status, Status::Success)
    }

    /// The completion, sorted by what it was.
    #[must_use]
    pub const fn classify(self) -> Classified {
        if let Err(error) = self.result() {
            return Classified::Failed(error);
        }
        match self.kind {
            WorkKind::Send => Classified::Sent(self),
            WorkKind::Write | WorkKind::AtomicWrite => Classified::Wrote(self),
            WorkKind::Read => Classified::Read(self),
            WorkKind::CompareSwap
            | WorkKind::FetchAdd
            | WorkKind::MaskedCompareSwap
            | WorkKind::MaskedFetchAdd => Classified::Atomic(self),
            WorkKind::Receive => Classified::Received(self),
            WorkKind::ReceiveWithImm => Classified::Written(self),
            WorkKind::BindWindow | WorkKind::LocalInvalidate => Classified::Local(self),
        }
    }
}

/// A completion by what it was: all but [`Failed`](Self::Failed) went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classified {
    /// A message or datagram of ours left; on a reliable connection it arrived.
    Sent(Completion),
    /// A WRITE of ours is in the peer's memory.
    Wrote(Completion),
    /// A READ brought its bytes.
    Read(Completion),
    /// An atomic brought what was there before.
    Atomic(Completion),
    /// A message of the peer arrived in a receive of ours.
    Received(Completion),
    /// The peer wrote into our memory, and says so with immediate data.
    Written(Completion),
    /// Work without packets, such as binding a memory window.
    Local(Completion),
    /// It did not go well.
    Failed(WorkError),
}

/// Work that failed: which, why, and what to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("work {id} ({kind:?}) of queue pair {qpn}: {status}{}; {}", Behind(*vendor_code), self.next_step())]
pub struct WorkError {
    /// The program's name for the request.
    pub id: u64,
    /// The queue pair.
    pub qpn: Qpn,
    /// What it was.
    pub kind: WorkKind,
    /// Why it failed.
    pub status: Status,
    /// What is behind the status; in C `vendor_err`.
    pub vendor_code: Option<VendorCode>,
}

/// What is behind a status, as it follows it.
struct Behind(Option<VendorCode>);

impl core::fmt::Display for Behind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(code) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

impl WorkError {
    /// What to do about it, in a few words.
    #[must_use]
    pub const fn next_step(&self) -> &'static str {
        match self.status {
            Status::Success => "nothing is wrong",
            Status::LocalLength => "post longer receives, or send less at once",
            Status::LocalQpOperation => "see whether the request fits the queue pair's limits",
            Status::LocalProtection => {
                "see whether the region was deregistered too early, or lacks LOCAL_WRITE for what is received"
            }
            Status::Flushed => {
                "look at the first failure of this queue pair, then reset and connect it again"
            }
            Status::WindowBind => "see whether the region allows windows to be bound",
            Status::BadResponse => "see whether the peer speaks RoCEv2 as the IBA has it",
            Status::LocalAccess => "do not deregister memory that a peer is writing",
            Status::RemoteInvalidRequest => {
                "see whether the peer's receive is long enough and its queue pair allows this operation"
            }
            Status::RemoteAccess => {
                "see whether the peer's region is still registered, has this range and allows this access"
            }
            Status::RemoteOperation => "look at the peer's own completions and events",
            Status::RetryExceeded => {
                "see whether the peer is up, its queue pair connected to this one, and port 4791 open"
            }
            Status::RnrRetryExceeded => "have the peer post receives sooner, or raise rnr_retry",
        }
    }
}

/// What came with a datagram beside the packet itself: the way that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The forty bytes that its receiver finds before it: a GRH, or an IPv4 header in the second half.
    pub header: [u8; Grh::LEN],
    /// The UDP port that it left from, 0 if that is not known.
    pub source_port: u16,
    /// When it came and how that is known, if it is known better than by the turn.
    pub came: Option<(Time, TimeSource)>,
}

impl Envelope {
    /// Nothing is known.
    pub const EMPTY: Self = Self { header: [0; Grh::LEN], source_port: 0, came: None };

    /// Whether it came over IPv6. Before a datagram over IPv4 there are twenty zeros.
    const fn is_over_ipv6(&self) -> bool {
        self.header[0] >> 4 == 6
    }

    /// Says in a completion which way its datagram took.
    pub(crate) fn tell(&self, completion: &mut Completion) {
        completion.source_port = NonZeroU16::new(self.source_port);
        completion.over_ipv6 = self.is_over_ipv6();
        if let Some((time, source)) = self.came {
            (completion.time, completion.time_source) = (time, source);
        }
    }
}

/// Something that happened to a queue pair beside its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A first packet arrived before the program moved to RTS.
    Established,
    /// Everything sent before SQD is done.
    SendQueueDrained,
    /// A queue pair in error has taken its last receive from the shared queue.
    LastWorkRequestReached,
    /// The peer broke the protocol.
    RequestError,
    /// The peer reached for memory that it may not touch.
    AccessError,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_work_and_the_next_step() {
        let failed =
            Completion { id: 5, status: Status::RetryExceeded, qpn: Qpn::new(0x11), ..Completion::EMPTY };
        let error = failed.result().unwrap_err();
        assert_eq!(failed.classify(), Classified::Failed(error));
        let text = error.to_string();
        assert!(text.starts_with("work 5 (Send) of queue pair 0x000011: retry exceeded"), "{text}");
        assert!(text.contains("see whether the peer is up"), "{text}");
    }

    #[test]
    fn a_completion_is_no_longer_than_a_cache_line() {
        assert_eq!(size_of::<Completion>(), 56);
    }

    #[test]
    fn every_kind_has_its_class() {
        let of = |kind| Completion { kind, ..Completion::EMPTY }.classify();
        assert!(matches!(of(WorkKind::Send), Classified::Sent(_)));
        assert!(matches!(of(WorkKind::AtomicWrite), Classified::Wrote(_)));
        assert!(matches!(of(WorkKind::FetchAdd), Classified::Atomic(_)));
        assert!(matches!(of(WorkKind::ReceiveWithImm), Classified::Written(_)));
    }
}
