//! Atomics.

use ferroce_transport::{Accessor, AtomicOp, SendOp};

use super::grants::Owner;
use super::model::Model;
use super::{Violation, broken};
use crate::host::applied;
use crate::memory::Memory;

impl Model {
    /// An atomic was executed.
    ///
    /// `atomic-once`: each posted atomic is executed exactly once, in its place among the requests
    /// of its connection, on the right cell with the right operands, and finds the value that all
    /// executions before it have left. Since a cell belongs to no connection alone, this also says
    /// that a lost answer never leads to a second execution, whatever others do in between.
    ///
    /// # Errors
    /// It does not hold.
    pub fn atomic(
        &mut self,
        memory: &Memory,
        host: usize,
        by: Accessor,
        (address, op, original): (u64, AtomicOp, u64),
    ) -> Result<(), Violation> {
        if let Some(end) = self.lied_to(host, by) {
            return self.lied_atomic(memory, (host, end), (address, op, original));
        }
        let responder = self.ends.iter().position(|end| end.at.host == host && end.qpn == by.qpn);
        let Some(requester) = responder.and_then(|end| self.ends[end].peer) else {
            return broken("atomic-once", format!("an atomic for queue pair {}, which has no peer", by.qpn));
        };
        let end = &self.ends[requester];
        let next = (end.cursor..end.messages.len()).find(|index| {
            let message = &end.messages[*index];
            !message.done && message.op.is_read_or_atomic() && !matches!(message.op, SendOp::Read(_))
        });
        let Some(index) = next else {
            return broken(
                "atomic-once",
                format!("end {requester} has no atomic that is still to be executed"),
            );
        };
        let message = &end.messages[index];
        let mut bytes = [0; 8];
        crate::memory::fill(message.content.tag, message.content.offset, &mut bytes);
        let wanted = match message.op {
            SendOp::CompareSwap { remote, compare, swap } => {
                (remote.address, AtomicOp::CompareSwap { compare, swap })
            }
            SendOp::FetchAdd { remote, add } => (remote.address, AtomicOp::FetchAdd(add)),
            SendOp::MaskedCompareSwap { remote, swap } => (remote.address, AtomicOp::MaskedCompareSwap(swap)),
            SendOp::MaskedFetchAdd { remote, add } => (remote.address, AtomicOp::MaskedFetchAdd(add)),
            SendOp::AtomicWrite(remote) => (remote.address, AtomicOp::Store(bytes)),
            _ => return broken("atomic-once", format!("message {index} of end {requester} is no atomic")),
        };
        if wanted != (address, op) {
            let what = format!("message {index} of end {requester} wants {wanted:x?}");
            return broken("atomic-once", format!("{what}, executed was {:x?}", (address, op)));
        }
        self.reach(requester, index)?;
        match self.cells.get_mut(&(host, address)) {
            Some(cell) => {
                if *cell != original || memory.word(address) != applied(original, op) {
                    let what =
                        format!("the cell at 0x{address:x} held 0x{cell:x}, the atomic found 0x{original:x}");
                    return broken("atomic-once", what);
                }
                *cell = applied(original, op);
            }
            None => match self.grants[host].holding(address, 8) {
                Some((_, grant)) if matches!(grant.owner, Owner::Target { end, message, .. } if (end, message) == (requester, index)) =>
                    {}
                _ => return broken("granted-range", format!("an atomic at 0x{address:x}, which is no cell")),
            },
        }
        let message = &mut self.ends[requester].messages[index];
        if matches!(message.op, SendOp::AtomicWrite(_)) {
            message.placed = 8;
        } else {
            message.found = Some(original);
        }
        message.done = true;
        Ok(())
    }
}
