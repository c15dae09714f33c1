//! Messages reach receives.

use std::num::NonZeroU16;

use ferroce_transport::{Completion, SendOp, Status, WorkKind};
use ferroce_wire::Service;

use super::model::{Cause, Message, Model, Posted};
use super::placement::check_content;
use super::{Violation, broken};
use crate::memory::{Memory, first_difference};
use crate::node::{port, prefix};

/// Bytes before a datagram in a receive.
const PREFIX: u32 = 40;

impl Model {
    /// A receive ended.
    ///
    /// `receive-order`: receives are used in the order in which they were posted, or taken from a
    /// shared queue, and each completes exactly once.
    ///
    /// `send-once-in-order`: on a reliable connection every SEND and every WRITE with immediate
    /// data takes one receive, exactly once, in posting order, with its length, immediate data,
    /// invalidated key and solicited flag, and all its bytes are in place by then. On an
    /// unreliable connection messages may be missing, but none comes twice or out of order.
    ///
    /// `datagram`: a datagram is delivered at most once, whole, with the headers that it came
    /// with, and the completion names its sender.
    ///
    /// # Errors
    /// One of these does not hold.
    pub fn receive_done(
        &mut self,
        memory: &Memory,
        by: usize,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let Some(posted) = self.ends[by].receives.pop_front() else {
            return broken(
                "receive-order",
                format!("receive {:#x} completes, but none is posted", completion.id),
            );
        };
        if posted.id != completion.id {
            let what = format!("receive {:#x} completes before receive {:#x}", completion.id, posted.id);
            return broken("receive-order", what);
        }
        if self.is_lied_to(by) {
            let result = self.lied_receive_done(by, completion, &posted);
            self.release_receive(self.ends[by].at.host, &posted);
            return result;
        }
        let result = match (completion.status, self.ends[by].service, self.ends[by].peer) {
            (Status::Success, Service::Rc, Some(peer)) => {
                self.delivered(memory, by, peer, completion, &posted)
            }
            (Status::Success, Service::Uc, Some(peer)) => {
                self.maybe_delivered(memory, peer, completion, &posted)
            }
            (Status::Success, ..) => self.datagram(memory, by, completion, &posted),
            (status, ..) => self.receive_failed(by, status, &posted),
        };
        self.release_receive(self.ends[by].at.host, &posted);
        result
    }

    fn delivered(
        &mut self,
        memory: &Memory,
        by: usize,
        sender: usize,
        completion: &Completion,
        posted: &Posted,
    ) -> Result<(), Violation> {
        let Some(index) = self.next_to_deliver(sender) else {
            return broken("send-once-in-order", format!("end {by} received what end {sender} never sent"));
        };
        self.reach(sender, index)?;
        let message = &self.ends[sender].messages[index];
        if let Some(wrong) = mismatch(message, completion) {
            return broken("send-once-in-order", format!("message {index} of end {sender}: {wrong}"));
        }
        if message.placed != message.len {
            let what = format!("message {index} of end {sender} has {} bytes", message.len);
            return broken("send-once-in-order", format!("{what}, only {} were placed", message.placed));
        }
        check_all(memory, message, posted, 0)?;
        self.ends[sender].messages[index].done = true;
        Ok(())
    }

    fn maybe_delivered(
        &mut self,
        memory: &Memory,
        sender: usize,
        completion: &Completion,
        posted: &Posted,
    ) -> Result<(), Violation> {
        let end = &self.ends[sender];
        let fits = |index: &usize| {
            let message = &end.messages[*index];
            message.op.takes_receive()
                && mismatch(message, completion).is_none()
                && check_all(memory, message, posted, 0).is_ok()
        };
        let next = (end.cursor..end.messages.len()).find(fits);
        let any = || (0..end.cursor).find(fits).filter(|_| self.disorder);
        match next {
            Some(index) => self.ends[sender].cursor = index + 1,
            None if any().is_some() => {}
            None => {
                let what = format!("a message of {} bytes from end {sender}", completion.byte_len);
                return broken("send-once-in-order", format!("{what} that is none of those still to come"));
            }
        }
        Ok(())
    }

    fn datagram(
        &mut self,
        memory: &Memory,
        by: usize,
        completion: &Completion,
        posted: &Posted,
    ) -> Result<(), Violation> {
        let sender = self.ends.iter().position(|end| Some(end.qpn) == completion.source_qp);
        let Some(sender) = sender else {
            return broken(
                "datagram",
                format!("from queue pair {:?}, which does not exist", completion.source_qp),
            );
        };
        let fits = |message: &&mut Message| {
            message.dest == Some(by)
                && mismatch(message, completion).is_none()
                && check_all(memory, message, posted, PREFIX).is_ok()
        };
        let found = self.ends[sender].messages.iter_mut().filter(fits).min_by_key(|message| message.done);
        let Some(message) = found else {
            let what =
                format!("{} bytes from end {sender}, which sent no such datagram", completion.byte_len);
            return broken("datagram", what);
        };
        let (again, op, len) = (message.done, message.op, message.len);
        message.done = true;
        if again {
            if self.ends[sender].doubled == 0 {
                return broken("datagram", format!("a datagram of end {sender} is delivered twice"));
            }
            self.ends[sender].doubled -= 1;
        }
        let imm = if matches!(op, SendOp::SendImm(_)) { 4 } else { 0 };
        let packet = 12 + 8 + imm + (len as usize).next_multiple_of(4) + 4;
        let left_from = port(self.ends[sender].at.host);
        if completion.source_port.map(NonZeroU16::get) != Some(left_from) {
            let what = format!("it left from port {left_from}, not from {:?}", completion.source_port);
            return broken("datagram", what);
        }
        let wanted = prefix(self.ends[sender].at.host, self.ends[by].at.host, packet);
        let mut seen = gathered(memory, posted);
        seen.truncate(wanted.len());
        let what = format!("the headers before it are {seen:02x?}, wanted {wanted:02x?}");
        if seen == wanted { Ok(()) } else { broken("datagram", what) }
    }

    /// A receive may fail because it is too short or its key is wrong, and then the peer's message
    /// fails too; or because the queue pair is in error.
    fn receive_failed(&mut self, by: usize, status: Status, posted: &Posted) -> Result<(), Violation> {
        if status == Status::Flushed && self.ends[by].cause.is_some() {
            return Ok(());
        }
        let next = self.ends[by].peer.and_then(|peer| Some((peer, self.next_to_deliver(peer)?)));
        let message = next.map(|(peer, index)| &mut self.ends[peer].messages[index]);
        match (status, message) {
            (Status::LocalLength, Some(message)) if message.len > posted.len => {
                message.allow(Status::RemoteInvalidRequest);
            }
            (Status::LocalProtection, Some(message)) if !posted.good => {
                message.allow(Status::RemoteOperation);
            }
            // A WRITE with immediate data takes its receive before its key is looked at.
            (Status::LocalAccess, Some(message)) if message.allows(Status::RemoteAccess) => {}
            // The length of a datagram is known only to its sender; its own receive is not there to answer.
            (Status::LocalLength | Status::LocalProtection, None) if !posted.good || posted.len < PREFIX => {}
            (Status::LocalProtection, _) if !posted.good => {}
            _ => {
                let what = format!("receive {:#x} of end {by} ended with {status:?}", posted.id);
                return broken("justified-status", format!("{what} without a reason"));
            }
        }
        self.ends[by].cause = Some(Cause::Receive(status));
        Ok(())
    }
}

/// What a completion says that the message does not.
fn mismatch(message: &Message, completion: &Completion) -> Option<String> {
    let (imm, invalidated, kind) = match message.op {
        SendOp::SendImm(imm) => (Some(imm.0), None, WorkKind::Receive),
        SendOp::SendInvalidate(key) => (None, Some(key), WorkKind::Receive),
        SendOp::WriteImm(_, imm) => (Some(imm.0), None, WorkKind::ReceiveWithImm),
        _ => (None, None, WorkKind::Receive),
    };
    let len = message.len + if message.dest.is_some() { PREFIX } else { 0 };
    let seen =
        (completion.byte_len, completion.imm, completion.invalidated, completion.kind, completion.solicited);
    let wanted = (len, imm, invalidated, kind, message.solicited);
    (seen != wanted).then(|| format!("received as {seen:?}, sent as {wanted:?}"))
}

/// Whether all bytes of a message are where its receive, or its target, has them.
fn check_all(memory: &Memory, message: &Message, posted: &Posted, skip: u32) -> Result<(), Violation> {
    if let SendOp::WriteImm(remote, _) = message.op {
        return check_content(memory, remote.address, message.len as usize, message.content, 0);
    }
    let mut bytes = gathered(memory, posted);
    bytes.drain(..(skip as usize).min(bytes.len()));
    bytes.truncate(message.len as usize);
    if bytes.len() == message.len as usize
        && first_difference(message.content.tag, message.content.offset, &bytes).is_none()
    {
        return Ok(());
    }
    broken("content", format!("the receive does not hold the {} bytes that were sent", message.len))
}

fn gathered(memory: &Memory, posted: &Posted) -> Vec<u8> {
    let pieces = posted.pieces.iter().filter(|(_, len)| *len > 0);
    pieces.flat_map(|&(start, len)| memory.slice(start, len as usize)).copied().collect()
}
