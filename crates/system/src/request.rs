//! What each kind of work is as a request of C.

use std::sync::Arc;

use ferroce_cabi::{
    IBV_SEND_INLINE, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE,
    IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_recv_wr, ibv_send_wr, send_wr_atomic,
    send_wr_bind, send_wr_rdma, send_wr_to, send_wr_ud,
};
use ferroce_memory::WindowKind;
use ferroce_transport::{Remote, WorkKind};
use ferroce_wire::Service;

use crate::error::PostWorkError;
use crate::handle::Zero;
use crate::held::Held;
use crate::post::{Rules, Work};
use crate::region::Piece;
use crate::shadow::Posted;
use crate::window::Binding;
use crate::work::{Bytes, Operation, ReceiveWork, SendWork};

impl Work for SendWork<'_> {
    type Request = ibv_send_wr;

    #[inline(always)]
    fn pieces(&self) -> &[Piece<'_>] {
        match self.bytes {
            Bytes::Pieces(pieces) if !self.operation.is_local() => pieces,
            _ => &[],
        }
    }

    #[inline(always)]
    fn inline(&self) -> Option<&[u8]> {
        match self.bytes {
            Bytes::Inline(bytes) if !self.operation.is_local() => Some(bytes),
            _ => None,
        }
    }

    #[inline(always)]
    fn is_common(&self) -> bool {
        !self.operation.is_local()
    }

    #[inline(always)]
    fn has_destination(&self) -> bool {
        self.destination.is_some()
    }

    #[inline(always)]
    fn posted(&self) -> Posted {
        Posted { id: self.id, kind: self.operation.kind() }
    }

    #[inline(always)]
    fn empty() -> ibv_send_wr {
        ibv_send_wr::zero()
    }

    #[inline(always)]
    fn fill(&self, rules: &Rules<'_>, request: &mut ibv_send_wr) -> Result<(), PostWorkError> {
        if self.operation.is_local() {
            return fill_local(*self, rules, request);
        }
        let mut flags = u32::from(self.flags.bits());
        if let Bytes::Inline(bytes) = self.bytes {
            if self.operation.has_answer() {
                return Err(PostWorkError::InlineAnswer);
            }
            let (given, allowed) = (bytes.len(), rules.max_inline);
            if given > allowed as usize {
                return Err(PostWorkError::LongInline { given, allowed });
            }
            flags |= IBV_SEND_INLINE;
        }
        request.send_flags = flags;
        self.operation.fill(request);
        match (&self.destination, rules.service) {
            (None, service) if service != Service::Ud => Ok(()),
            (Some(to), Service::Ud) => {
                if !Arc::ptr_eq(&to.address.ah.domain, rules.domain) {
                    return Err(PostWorkError::OtherDomain { what: "address handle" });
                }
                let (ah, remote_qpn) = (to.address.ah.c.as_ptr(), to.qpn.get());
                request.wr = send_wr_to { ud: send_wr_ud { ah, remote_qpn, remote_qkey: to.qkey.0 } };
                Ok(())
            }
            _ => Err(PostWorkError::Destination),
        }
    }

    #[inline(always)]
    fn other(&self) -> Option<Held> {
        if let Some(to) = &self.destination {
            return Some(Held::Address(Arc::clone(&to.address.ah)));
        }
        match &self.operation {
            Operation::Bind(binding) => Some(binding.to_held()),
            _ => None,
        }
    }

    #[inline(always)]
    fn taken(&self) {
        if let Operation::Bind(binding) = self.operation {
            binding.window.window.posted(binding.key);
        }
    }

    /// What follows the binding of a window may name the window again, by the key that it has then.
    #[inline(always)]
    fn ends_list(&self) -> bool {
        matches!(self.operation, Operation::Bind(_))
    }
}

/// Work without bytes. It is handed over whole, so that other work need not be anywhere.
#[cold]
fn fill_local(work: SendWork<'_>, rules: &Rules<'_>, request: &mut ibv_send_wr) -> Result<(), PostWorkError> {
    request.send_flags = u32::from(work.flags.bits());
    work.operation.fill(request);
    if let Operation::Bind(binding) = work.operation {
        rules.check_binding(&binding, WindowKind::Type2)?;
        let mw = binding.window.window.c.as_ptr();
        request.bind_mw = send_wr_bind { mw, rkey: binding.key.0, bind_info: binding.to_c() };
    }
    Ok(())
}

impl Operation<'_> {
    /// What a request says of it, but for the binding of a window.
    #[inline(always)]
    fn fill(&self, request: &mut ibv_send_wr) {
        let to = |remote: Remote| send_wr_to {
            rdma: send_wr_rdma { remote_addr: remote.address, rkey: remote.rkey.0 },
        };
        let at = |remote: Remote, compare_add, swap| send_wr_to {
            atomic: send_wr_atomic { remote_addr: remote.address, compare_add, swap, rkey: remote.rkey.0 },
        };
        match *self {
            Operation::Send => request.opcode = IBV_WR_SEND,
            Operation::SendImm(imm) => {
                (request.opcode, request.imm_data) = (IBV_WR_SEND_WITH_IMM, imm.to_be());
            }
            Operation::SendInvalidate(key) => {
                (request.opcode, request.imm_data) = (IBV_WR_SEND_WITH_INV, key.0);
            }
            Operation::Write(remote) => (request.opcode, request.wr) = (IBV_WR_RDMA_WRITE, to(remote)),
            Operation::WriteImm(remote, imm) => {
                (request.opcode, request.wr) = (IBV_WR_RDMA_WRITE_WITH_IMM, to(remote));
                request.imm_data = imm.to_be();
            }
            Operation::Read(remote) => (request.opcode, request.wr) = (IBV_WR_RDMA_READ, to(remote)),
            Operation::CompareSwap { remote, compare, swap } => {
                (request.opcode, request.wr) = (IBV_WR_ATOMIC_CMP_AND_SWP, at(remote, compare, swap));
            }
            Operation::FetchAdd { remote, add } => {
                (request.opcode, request.wr) = (IBV_WR_ATOMIC_FETCH_AND_ADD, at(remote, add, 0));
            }
            Operation::AtomicWrite(remote) => {
                (request.opcode, request.wr) = (IBV_WR_ATOMIC_WRITE, to(remote));
            }
            Operation::LocalInvalidate(key) => (request.opcode, request.imm_data) = (IBV_WR_LOCAL_INV, key.0),
            Operation::Bind(_) => request.opcode = IBV_WR_BIND_MW,
        }
    }
}

impl Rules<'_> {
    /// Whether a binding of a window of this kind may be posted here.
    pub(crate) fn check_binding(&self, binding: &Binding<'_>, kind: WindowKind) -> Result<(), PostWorkError> {
        if binding.window.kind() != kind {
            return Err(PostWorkError::OtherWay);
        }
        if !Arc::ptr_eq(&binding.window.window.domain, self.domain) {
            return Err(PostWorkError::OtherDomain { what: "memory window" });
        }
        match binding.part {
            Some((region, ..)) if !Arc::ptr_eq(&region.registration.domain, self.domain) => {
                Err(PostWorkError::OtherDomain { what: "memory region" })
            }
            _ => Ok(()),
        }
    }
}

impl Work for ReceiveWork<'_> {
    type Request = ibv_recv_wr;

    #[inline(always)]
    fn pieces(&self) -> &[Piece<'_>] {
        self.pieces
    }

    #[inline(always)]
    fn inline(&self) -> Option<&[u8]> {
        None
    }

    #[inline(always)]
    fn is_common(&self) -> bool {
        true
    }

    #[inline(always)]
    fn has_destination(&self) -> bool {
        false
    }

    #[inline(always)]
    fn posted(&self) -> Posted {
        Posted { id: self.id, kind: WorkKind::Receive }
    }

    #[inline(always)]
    fn empty() -> ibv_recv_wr {
        ibv_recv_wr { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 }
    }

    #[inline(always)]
    fn fill(&self, _: &Rules<'_>, _: &mut ibv_recv_wr) -> Result<(), PostWorkError> {
        Ok(())
    }

    #[inline(always)]
    fn other(&self) -> Option<Held> {
        None
    }

    #[inline(always)]
    fn taken(&self) {}

    #[inline(always)]
    fn ends_list(&self) -> bool {
        false
    }
}
