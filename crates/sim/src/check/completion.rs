//! Send completions.

use ferroce_transport::{Completion, SendOp, Status, WorkKind};
use ferroce_wire::Service;

use super::model::{Cause, Message, Model};
use super::placement::check_content;
use super::{Violation, broken};
use crate::world::HostState;

impl Model {
    /// A send request ended.
    ///
    /// `completion-order`: completions come in posting order and each request has at most one.
    /// A signaled request is never passed over; an unsignaled one only if it succeeded.
    ///
    /// `unsignaled`: a request that did not ask for it gives no completion on success.
    ///
    /// `success-means-done`: at the instant of a success, and of every success before it that was
    /// not signaled, the data is where it belongs: the peer's memory holds the bytes of a WRITE,
    /// the peer's receive of a SEND has completed, the program's memory holds what a READ read, an
    /// atomic was executed and the program's memory holds the value it found.
    ///
    /// # Errors
    /// One of these does not hold, or the status is not justified (see `fate.rs`).
    pub fn send_done(
        &mut self,
        hosts: &[HostState],
        by: usize,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let end = &self.ends[by];
        let Some(index) = end.messages.iter().position(|message| message.id == completion.id) else {
            return broken(
                "completion-order",
                format!("{:#x} completes, but was never posted", completion.id),
            );
        };
        if index < end.completed {
            return broken("completion-order", format!("message {index} of end {by} completes again"));
        }
        for passed in end.completed..index {
            let strict = matches!(end.cause, Some(Cause::Request(_)));
            if end.messages[passed].signaled || strict {
                return broken(
                    "completion-order",
                    format!("message {index} of end {by} completes before {passed}"),
                );
            }
        }
        let message = &end.messages[index];
        if kind(&message.op) != completion.kind {
            let what = format!("message {index} of end {by} is {:?}", message.op);
            return broken("completion-order", format!("{what}, completed as {:?}", completion.kind));
        }
        for passed in end.completed..index {
            self.check_done(hosts, by, passed)?;
            self.retire(by, passed, Status::Success);
        }
        match completion.status {
            Status::Success => {
                let message = &self.ends[by].messages[index];
                if !message.signaled {
                    return broken(
                        "unsignaled",
                        format!("message {index} of end {by} did not ask for a completion"),
                    );
                }
                if matches!(message.op, SendOp::Read(_)) && completion.byte_len != message.len {
                    let what = format!("a READ of {} bytes reports {}", message.len, completion.byte_len);
                    return broken("success-means-done", what);
                }
                self.check_done(hosts, by, index)?;
            }
            Status::Flushed if self.ends[by].cause.is_some() => {}
            // What a liar brings about may look like anything.
            Status::Flushed if self.is_lied_to(by) => self.ends[by].cause = Some(Cause::Peer),
            status if self.is_lied_to(by) => self.ends[by].cause = Some(Cause::Request(status)),
            status => {
                self.check_status(by, index, status)?;
                self.ends[by].cause = Some(Cause::Request(status));
            }
        }
        self.retire(by, index, completion.status);
        Ok(())
    }

    fn retire(&mut self, by: usize, index: usize, status: Status) {
        self.lied_retire(by, index);
        self.ends[by].completed = index + 1;
        // Packets of a failed request, and of an unreliable one, may still be under way.
        let settled = status == Status::Success && self.ends[by].service == Service::Rc;
        self.release(by, index, settled);
    }

    /// Whether a request that succeeded has had its effect.
    ///
    /// # Errors
    /// It has not.
    pub fn check_done(&self, hosts: &[HostState], by: usize, index: usize) -> Result<(), Violation> {
        if self.is_lied_to(by) {
            return self.lied_check_done(by, index);
        }
        let end = &self.ends[by];
        let message = &end.messages[index];
        let (Service::Rc, Some(peer)) = (end.service, end.peer) else { return Ok(()) };
        let whole = match message.op {
            SendOp::Read(_) => message.placed == message.len,
            SendOp::Write(_) => message.len == 0 || message.done,
            op if op.is_atomic() => message.done && message.placed == 8,
            _ => message.done,
        };
        if !whole {
            let what = format!("message {index} of end {by} ({:?}) is reported done", kind(&message.op));
            let placed = format!("{} of {} bytes are placed", message.placed, message.len);
            return broken(
                "success-means-done",
                format!("{what}, but {placed} and the peer's part is not over"),
            );
        }
        let late = |violation: Violation| Violation::new("success-means-done", violation.what);
        match message.op {
            SendOp::Write(remote) | SendOp::WriteImm(remote, _) | SendOp::AtomicWrite(remote)
                if message.len > 0 && message.target.is_some() =>
            {
                let memory = &hosts[self.ends[peer].at.host].node.device.memory;
                check_content(memory, remote.address, message.len as usize, message.content, 0).map_err(late)
            }
            SendOp::Read(_) => check_sinks(hosts, end.at.host, message).map_err(late),
            _ => Ok(()),
        }
    }
}

fn check_sinks(hosts: &[HostState], host: usize, message: &Message) -> Result<(), Violation> {
    let mut at = 0;
    for &(start, len) in message.sinks.iter().filter(|(_, len)| *len > 0) {
        check_content(&hosts[host].node.device.memory, start, len as usize, message.content, at)?;
        at += len;
    }
    Ok(())
}

/// What a completion calls a request.
const fn kind(op: &SendOp) -> WorkKind {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => WorkKind::Send,
        SendOp::Write(_) | SendOp::WriteImm(..) => WorkKind::Write,
        SendOp::Read(_) => WorkKind::Read,
        SendOp::CompareSwap { .. } => WorkKind::CompareSwap,
        SendOp::FetchAdd { .. } => WorkKind::FetchAdd,
        SendOp::MaskedCompareSwap { .. } => WorkKind::MaskedCompareSwap,
        SendOp::MaskedFetchAdd { .. } => WorkKind::MaskedFetchAdd,
        SendOp::AtomicWrite(_) => WorkKind::AtomicWrite,
        SendOp::BindWindow(_) => WorkKind::BindWindow,
        SendOp::LocalInvalidate(_) => WorkKind::LocalInvalidate,
    }
}
