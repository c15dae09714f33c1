//! What a card tells of work that is done.

use ferroce_cabi::{IBV_WC_GRH, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, ibv_wc};
use ferroce_transport::{Completion, Status, WorkKind};
use ferroce_wire::{Qpn, Rkey, Service};
use libc::c_int;

use crate::shadow::Posted;

/// The end of one work request, as a card tells it. [`Completion`] can be made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardCompletion {
    /// The program's name for the request.
    pub id: u64,
    /// How it ended, as the library numbers it: [`status`](Self::status) is the name.
    pub status_code: u32,
    /// What is behind the status of a failed request, in the words of the card's maker.
    pub vendor_error: u32,
    /// What it was, also if it failed.
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
    /// Whether the place before a datagram holds its header.
    pub has_header: bool,
    /// The service level, in which some cards say what came with a datagram on Ethernet.
    pub service_level: u8,
    /// When it ended, in ticks of the card's clock, on a queue that tells times.
    pub ticks: Option<u64>,
}

impl CardCompletion {
    /// What an array is filled with before it is polled into.
    pub const EMPTY: Self = Self {
        id: 0,
        status_code: 0,
        vendor_error: 0,
        kind: WorkKind::Send,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qpn: Qpn::SMI,
        source_qp: None,
        has_header: false,
        service_level: 0,
        ticks: None,
    };

    /// How it ended.
    ///
    /// Statuses that only older transports and other kinds of queues have are the nearest of those that there are.
    #[must_use]
    #[inline]
    pub fn status(&self) -> Status {
        if self.is_success() {
            return Status::Success;
        }
        let known = u8::try_from(self.status_code).ok().and_then(Status::from_code);
        known.unwrap_or(match self.status_code {
            // The peer's request for a READ was invalid.
            15 => Status::RemoteInvalidRequest,
            // The peer ended it.
            16 => Status::RemoteOperation,
            // No answer in time.
            20 => Status::RetryExceeded,
            _ => Status::LocalQpOperation,
        })
    }

    /// Whether the work was done.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.status_code == 0
    }

    /// The end of work that went well, and brought nothing along.
    #[inline(always)]
    pub(crate) const fn plain(wc: &ibv_wc, Posted { id, kind }: Posted) -> Self {
        let (byte_len, qpn, service_level) = (wc.byte_len, Qpn::new(wc.qp_num), wc.sl);
        Self { id, kind, byte_len, qpn, service_level, ..Self::EMPTY }
    }

    /// Whether a completion with this opcode is that of another kind of work than was posted, if it went well.
    #[inline(always)]
    pub(crate) const fn is_special(opcode: c_int) -> bool {
        opcode.cast_unsigned() == RECEIVED_WITH_IMM
    }

    #[inline]
    pub(crate) fn new(told: &Told, posted: Posted, service: Service) -> Self {
        let receives = matches!(posted.kind, WorkKind::Receive);
        let well = told.status == 0;
        let has = |flag| receives && well && told.flags & flag != 0;
        let with_imm = has(IBV_WC_WITH_IMM);
        let kind = match told.opcode {
            RECEIVED_WITH_IMM if receives && well => WorkKind::ReceiveWithImm,
            _ => posted.kind,
        };
        Self {
            id: posted.id,
            status_code: told.status,
            vendor_error: if well { 0 } else { told.vendor_error },
            kind,
            byte_len: if well { told.byte_len } else { 0 },
            imm: with_imm.then(|| u32::from_be(told.imm)),
            invalidated: has(IBV_WC_WITH_INV).then_some(Rkey(told.imm)),
            qpn: Qpn::new(told.qpn),
            source_qp: (receives && well && service == Service::Ud).then(|| Qpn::new(told.source_qp)),
            has_header: has(IBV_WC_GRH),
            service_level: told.service_level,
            ticks: told.ticks,
        }
    }
}

/// `IBV_WC_RECV_RDMA_WITH_IMM`.
const RECEIVED_WITH_IMM: u32 = WorkKind::ReceiveWithImm as u32;

impl From<CardCompletion> for Completion {
    #[inline(always)]
    fn from(told: CardCompletion) -> Self {
        Self {
            id: told.id,
            status: told.status(),
            kind: told.kind,
            byte_len: told.byte_len,
            imm: told.imm,
            invalidated: told.invalidated,
            qpn: told.qpn,
            source_qp: told.source_qp,
            ..Self::EMPTY
        }
    }
}

/// What the library tells, before it is known which work it is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_error: u32,
    pub(crate) byte_len: u32,
    /// In network byte order; or a key that was invalidated, in the order of this machine.
    pub(crate) imm: u32,
    pub(crate) qpn: u32,
    pub(crate) source_qp: u32,
    pub(crate) flags: u32,
    pub(crate) service_level: u8,
    pub(crate) ticks: Option<u64>,
}

impl From<&ibv_wc> for Told {
    #[inline(always)]
    fn from(wc: &ibv_wc) -> Self {
        Self {
            wr_id: wc.wr_id,
            status: wc.status.cast_unsigned(),
            opcode: wc.opcode.cast_unsigned(),
            vendor_error: wc.vendor_err,
            byte_len: wc.byte_len,
            imm: wc.imm_data,
            qpn: wc.qp_num,
            source_qp: wc.src_qp,
            flags: wc.wc_flags,
            service_level: wc.sl,
            ticks: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: Told = Told {
        wr_id: 0,
        status: 0,
        opcode: 0,
        vendor_error: 9,
        byte_len: 5,
        imm: 7_u32.to_be(),
        qpn: 3,
        source_qp: 4,
        flags: IBV_WC_WITH_IMM,
        service_level: 0,
        ticks: None,
    };

    fn of(told: Told, kind: WorkKind, service: Service) -> CardCompletion {
        CardCompletion::new(&told, Posted { id: 8, kind }, service)
    }

    #[test]
    fn only_a_receive_has_what_came_along() {
        let sent = of(TOLD, WorkKind::Send, Service::Rc);
        assert_eq!((sent.imm, sent.source_qp, sent.kind), (None, None, WorkKind::Send));
        let received = of(Told { opcode: 129, ..TOLD }, WorkKind::Receive, Service::Ud);
        assert_eq!((received.imm, received.source_qp), (Some(7), Some(Qpn::new(4))));
        assert_eq!((received.kind, received.id, received.vendor_error), (WorkKind::ReceiveWithImm, 8, 0));
        let invalidated = of(Told { flags: IBV_WC_WITH_INV, imm: 6, ..TOLD }, WorkKind::Receive, Service::Rc);
        assert_eq!((invalidated.imm, invalidated.invalidated), (None, Some(Rkey(6))));
    }

    #[test]
    fn of_failed_work_nothing_is_believed_but_which_and_why() {
        let failed = of(Told { status: 5, opcode: 129, ..TOLD }, WorkKind::Read, Service::Rc);
        assert_eq!((failed.kind, failed.byte_len, failed.vendor_error), (WorkKind::Read, 0, 9));
        assert_eq!(Completion::from(failed).status, Status::Flushed);
    }

    #[test]
    fn every_status_has_a_name() {
        let of = |status_code| CardCompletion { status_code, ..CardCompletion::EMPTY }.status();
        assert_eq!(
            (of(0), of(13), of(20)),
            (Status::Success, Status::RnrRetryExceeded, Status::RetryExceeded)
        );
        assert!((1..64).all(|code| of(code) != Status::Success));
    }
}
