//! What a queue pair knows about itself and its peer.

use ferroce_wire::{PKey, PathMtu, QKey, Qpn, RnrTimer};

use crate::completion::{Completion, PlainCompletion};
use crate::counters::Counters;
use crate::host::{Accessor, DomainId, Host, SharedQueueId};
use crate::pacing::Pacer;
use crate::planted::{Bug, is_planted};
use crate::status::{Status, WorkKind};
use crate::time::Time;
use crate::vendor::VendorCode;
use crate::window::Window;
use crate::work::{Access, SendOp};

/// The attributes of a queue pair, as they were last set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) qpn: Qpn,
    pub(crate) domain: DomainId,
    pub(crate) shared_queue: Option<SharedQueueId>,
    pub(crate) signal_all: bool,
    pub(crate) dest_qpn: Qpn,
    pub(crate) pkey: PKey,
    pub(crate) qkey: QKey,
    pub(crate) mtu: PathMtu,
    pub(crate) access: Access,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
}

impl Connection {
    pub(crate) const fn accessor(&self) -> Accessor {
        Accessor { domain: self.domain, qpn: self.qpn }
    }

    /// Whether a peer may do what needs this right (IBA 9.7.4.1.4).
    #[inline]
    pub(crate) fn lets(&self, needed: Access) -> bool {
        self.access.contains(needed) || is_planted(Bug::RightsUnchecked)
    }

    /// How long an acknowledgement may take (IBA 9.7.6.1.3): 4.096 us times a power of
    /// two, or for ever; in nanoseconds.
    #[inline]
    pub(crate) const fn ack_timeout_nanos(&self) -> Option<u64> {
        match self.timeout {
            0 => None,
            code => Some(4096 << (code & 31)),
        }
    }

    /// How many packets a message of `length` bytes takes; an empty one takes one.
    pub(crate) const fn packets(&self, length: u32) -> u32 {
        let mtu = self.mtu_bytes();
        // Most have one, and need no division.
        if length <= mtu { 1 } else { length.div_ceil(mtu) }
    }

    /// How many PSNs work of so many bytes takes.
    #[inline]
    pub(crate) const fn packets_of(&self, op: &SendOp, length: u32) -> u32 {
        match op {
            op if op.is_local() => 0,
            op if op.is_atomic() => 1,
            SendOp::AtomicWrite(_) => 1,
            _ => self.packets(length),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 4096")]
    pub(crate) const fn mtu_bytes(&self) -> u32 {
        self.mtu.bytes() as u32
    }

    /// A completion of this queue pair for work that failed.
    pub(crate) const fn failure(&self, id: u64, code: VendorCode, kind: WorkKind) -> Completion {
        Completion { vendor_code: Some(code), ..self.completion(id, code.status(), kind) }
    }

    /// A completion of this queue pair with nothing to tell but how it ended.
    pub(crate) const fn completion(&self, id: u64, status: Status, kind: WorkKind) -> Completion {
        Completion { id, status, kind, qpn: self.qpn, ..Completion::EMPTY }
    }
}

/// The world around a machine during one call.
pub(crate) struct Context<'a, H> {
    pub(crate) now: Time,
    pub(crate) connection: &'a Connection,
    pub(crate) counters: &'a mut Counters,
    pub(crate) pacer: &'a mut Pacer,
    pub(crate) window: &'a mut Window,
    pub(crate) host: &'a mut H,
}

/// Work that cannot go on: it is over for the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

impl<H: Host> Context<'_, H> {
    pub(crate) fn complete_send(&mut self, number: u32, completion: Completion) {
        self.host.complete_send(number, completion);
    }

    /// A message was sent and acknowledged, or brought what was asked.
    #[inline(always)]
    pub(crate) fn complete_sent(&mut self, number: u32, (id, kind, byte_len): (u64, WorkKind, u32)) {
        let qpn = self.connection.qpn;
        self.host.complete_plain_send(number, &PlainCompletion { id, kind, qpn, byte_len, solicited: false });
    }
}

impl SendOp {
    /// What a completion calls it.
    #[must_use]
    pub const fn kind(&self) -> WorkKind {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) => WorkKind::Send,
            Self::Write(_) | Self::WriteImm(..) => WorkKind::Write,
            Self::Read(_) => WorkKind::Read,
            Self::CompareSwap { .. } => WorkKind::CompareSwap,
            Self::FetchAdd { .. } => WorkKind::FetchAdd,
            Self::MaskedCompareSwap { .. } => WorkKind::MaskedCompareSwap,
            Self::MaskedFetchAdd { .. } => WorkKind::MaskedFetchAdd,
            Self::AtomicWrite(_) => WorkKind::AtomicWrite,
            Self::BindWindow(_) => WorkKind::BindWindow,
            Self::LocalInvalidate(_) => WorkKind::LocalInvalidate,
        }
    }
}
