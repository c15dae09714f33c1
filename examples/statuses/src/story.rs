//! What is told of one status: the work, its completion, what it means and what to do.

use std::io::{self, Write};

use ferroce::{Completion, QueuePair, Status, WorkKind};
use serde_json::{Value, json};

use crate::hosts::End;

/// The entry that the program put into a work queue.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    /// Its owner.
    pub(crate) by: &'static str,
    /// The program's name for it.
    pub(crate) id: u64,
    pub(crate) opcode: &'static str,
    /// Address, length and local key of its memory; none if its bytes are inline, or it has none.
    pub(crate) memory: Option<(u64, usize, u32)>,
    /// The peer's memory: address, length and key.
    pub(crate) remote: Option<(u64, u64, u32)>,
}

/// One status, as it came about.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// What was done, in a sentence or two.
    pub(crate) what: &'static str,
    pub(crate) wqe: Wqe,
    pub(crate) completion: Completion,
    /// The number of the queue pair that the work was posted on.
    pub(crate) qpn: u32,
    /// The state of both queue pairs afterwards, Ann's first.
    pub(crate) states: [String; 2],
    /// How the peer's work ended, if it had any in this.
    pub(crate) peer: Option<(&'static str, Completion)>,
    /// What helps in this very case.
    pub(crate) here: &'static str,
}

/// The layout of what follows.
pub(crate) fn print_heading(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "Work is posted as an entry of a work queue (WQE): of the send queue (SQ) or the receive queue (RQ) of a\n\
         queue pair (QP). A WQE is POSTED, then PROCESSING, then COMPLETED or in ERROR; its end is an entry of a\n\
         completion queue (CQE). Ann and Bob are two network cards; each case has a connection of its own."
    )
}

impl Story {
    pub(crate) fn new(
        what: &'static str,
        wqe: Wqe,
        completion: Completion,
        (ann, bob): (&QueuePair, &QueuePair),
    ) -> Self {
        let qpn = if wqe.by == "Ann" { ann.qpn() } else { bob.qpn() };
        let states = [ann, bob].map(|qp| format!("{:?}", qp.state()));
        Self { what, wqe, completion, qpn: qpn.get(), states, peer: None, here: "" }
    }

    /// The peer's work ended, too.
    pub(crate) fn with_peer(self, by: &'static str, completion: Completion) -> Self {
        Self { peer: Some((by, completion)), ..self }
    }

    pub(crate) const fn status(&self) -> Status {
        self.completion.status
    }

    /// The states that the WQE went through. A queue pair in error ends work without looking at it; every other
    /// status is found while the card is at it.
    fn wqe_states(&self) -> &'static [&'static str] {
        match self.status() {
            Status::Success => &["POSTED", "PROCESSING", "COMPLETED"],
            Status::Flushed => &["POSTED", "ERROR"],
            _ => &["POSTED", "PROCESSING", "ERROR"],
        }
    }

    fn queue(&self) -> &'static str {
        match self.completion.kind {
            WorkKind::Receive | WorkKind::ReceiveWithImm => "RQ",
            _ => "SQ",
        }
    }

    fn remedy(&self) -> &'static str {
        self.completion.result().err().map_or("none is needed", |error| error.next_step())
    }

    pub(crate) fn print(&self, out: &mut impl Write, (place, all): (usize, usize)) -> io::Result<()> {
        let Self { what, wqe, completion, qpn, states, peer, here } = self;
        let status = self.status();
        writeln!(out, "\n== {place} of {all}: {status:?} ({}, {})", c_name(status), status.code())?;
        writeln!(out, "{what}")?;
        writeln!(
            out,
            "  WQE     {} of QP 0x{qpn:06x} ({}), wr_id {}, {}",
            self.queue(),
            wqe.by,
            wqe.id,
            wqe.opcode
        )?;
        if let Some((address, length, lkey)) = wqe.memory {
            writeln!(out, "          sge[0]  addr 0x{address:x}  length {length}  lkey 0x{lkey:08x}")?;
        }
        if let Some((address, length, rkey)) = wqe.remote {
            writeln!(out, "          remote  addr 0x{address:x}  length {length}  rkey 0x{rkey:08x}")?;
        }
        writeln!(out, "          {}", self.wqe_states().join(" -> "))?;
        writeln!(
            out,
            "  CQE     wr_id {}, status {} {status:?}, vendor error {VENDOR_ERROR}, byte length {}, QP 0x{:06x}",
            completion.id,
            status.code(),
            completion.byte_len,
            completion.qpn.get()
        )?;
        if let Some((by, peer)) = peer {
            writeln!(out, "  peer    {by}: wr_id {} ended as {:?}", peer.id, peer.status)?;
        }
        writeln!(out, "  QPs     Ann in {}, Bob in {}", states[0], states[1])?;
        writeln!(out, "  means   {status}")?;
        writeln!(out, "  remedy  {}", self.remedy())?;
        writeln!(out, "  here    {here}")
    }

    pub(crate) fn to_json(&self) -> Value {
        let Self { what, wqe, completion, qpn, states, peer, here } = self;
        let status = self.status();
        json!({
            "status": format!("{status:?}"),
            "code": status.code(),
            "c_name": c_name(status),
            "what": what,
            "wqe": {
                "queue": self.queue(),
                "by": wqe.by,
                "wr_id": wqe.id,
                "opcode": wqe.opcode,
                "qp": qpn,
                "sge": wqe.memory.map(|(addr, length, lkey)| json!({ "addr": addr, "length": length, "lkey": lkey })),
                "remote": wqe.remote.map(|(addr, length, rkey)| json!({ "addr": addr, "length": length, "rkey": rkey })),
                "states": self.wqe_states(),
            },
            "cqe": {
                "wr_id": completion.id,
                "status": status.code(),
                "vendor_error": VENDOR_ERROR,
                "byte_length": completion.byte_len,
                "qp": completion.qpn.get(),
            },
            "peer": peer.map(|(by, peer)| json!({ "by": by, "wr_id": peer.id, "status": format!("{:?}", peer.status) })),
            "qp_states": { "Ann": states[0], "Bob": states[1] },
            "means": status.text(),
            "remedy": self.remedy(),
            "here": here,
        })
    }
}

/// This card has no errors of its vendor's own.
const VENDOR_ERROR: u32 = 0;

/// The memory of a WQE.
pub(crate) const fn sge(end: &End, length: usize) -> Option<(u64, usize, u32)> {
    Some((end.region.address(), length, end.region.lkey().0))
}

/// The name in C.
const fn c_name(status: Status) -> &'static str {
    match status {
        Status::Success => "IBV_WC_SUCCESS",
        Status::LocalLength => "IBV_WC_LOC_LEN_ERR",
        Status::LocalQpOperation => "IBV_WC_LOC_QP_OP_ERR",
        Status::LocalProtection => "IBV_WC_LOC_PROT_ERR",
        Status::Flushed => "IBV_WC_WR_FLUSH_ERR",
        Status::WindowBind => "IBV_WC_MW_BIND_ERR",
        Status::BadResponse => "IBV_WC_BAD_RESP_ERR",
        Status::LocalAccess => "IBV_WC_LOC_ACCESS_ERR",
        Status::RemoteInvalidRequest => "IBV_WC_REM_INV_REQ_ERR",
        Status::RemoteAccess => "IBV_WC_REM_ACCESS_ERR",
        Status::RemoteOperation => "IBV_WC_REM_OP_ERR",
        Status::RetryExceeded => "IBV_WC_RETRY_EXC_ERR",
        Status::RnrRetryExceeded => "IBV_WC_RNR_RETRY_EXC_ERR",
    }
}
