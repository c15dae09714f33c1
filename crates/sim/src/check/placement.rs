//! Bytes go where they were granted, once, in order, and they are the right ones.

use ferroce_transport::Accessor;
use ferroce_wire::Service;

use super::grants::Owner;
use super::model::{Content, Model};
use super::{Violation, broken};
use crate::memory::{Memory, first_difference};

impl Model {
    /// A peer's bytes were placed by remote key.
    ///
    /// `granted-range`: every byte that changes lies in a range that a request of exactly this peer
    /// was granted and that has not completed. A write outside, past the end, into another queue
    /// pair's range, or after the completion is seen at the instant when it happens.
    ///
    /// `placed-once-in-order`: on a reliable connection each byte of a message is placed exactly once,
    /// ascending, and only after everything posted before has taken effect. A duplicate that is
    /// executed again, a packet that overtakes, and a gap are seen at once, even though a second
    /// copy would leave the same bytes.
    ///
    /// `content`: byte `n` of a target is byte `n` of its message, whose content no other message shares.
    ///
    /// # Errors
    /// One of these does not hold.
    pub fn wrote_remote(
        &mut self,
        memory: &Memory,
        host: usize,
        by: Accessor,
        (address, len): (u64, usize),
    ) -> Result<(), Violation> {
        if let Some(end) = self.lied_to(host, by) {
            return self.lied_wrote_remote(memory, end, (address, len));
        }
        let Some((at, grant)) = self.grants[host].holding(address, len) else {
            return broken(
                "granted-range",
                format!("{len} bytes at 0x{address:x}, which no request was granted"),
            );
        };
        let Owner::Target { end, message, offset } = grant.owner else {
            return broken(
                "granted-range",
                format!("{len} bytes of a peer at 0x{address:x}, granted as {:?}", grant.owner),
            );
        };
        let peer = self.ends[end].peer.filter(|peer| self.ends[*peer].qpn == by.qpn);
        if peer.is_none() || self.ends[end].peer.is_some_and(|peer| self.ends[peer].at.host != host) {
            return broken(
                "granted-range",
                format!("queue pair {} wrote 0x{address:x}, granted to end {end}", by.qpn),
            );
        }
        self.advance(end, message, offset + at, len)?;
        let content = self.ends[end].messages[message].content;
        check_content(memory, address, len, content, offset + at)?;
        let message = &mut self.ends[end].messages[message];
        if message.placed == message.len && !message.op.takes_receive() {
            message.done = true;
        }
        Ok(())
    }

    /// Bytes were placed into the program's own memory: part of a receive, of a READ, or the value of an atomic.
    ///
    /// The promises are those of [`wrote_remote`](Self::wrote_remote): READ data arrives once and
    /// in order although responses are repeated, and nothing is placed after the completion.
    ///
    /// # Errors
    /// One of these does not hold.
    pub fn wrote_local(
        &mut self,
        memory: &Memory,
        by: usize,
        address: u64,
        len: usize,
    ) -> Result<(), Violation> {
        if self.is_lied_to(by) {
            return self.lied_wrote_local(by, address, len);
        }
        let host = self.ends[by].at.host;
        let Some((at, grant)) = self.grants[host].holding(address, len) else {
            return broken(
                "granted-range",
                format!("{len} bytes at 0x{address:x}, which no request was granted"),
            );
        };
        match grant.owner {
            Owner::Sink { end, message, offset } if end == by => {
                self.wrote_sink(memory, end, message, (address, offset + at, len))
            }
            Owner::Receive { id, offset } => {
                let front = self.ends[by].receives.front().map(|posted| posted.id);
                if front != Some(id) {
                    return broken(
                        "receive-order",
                        format!("a message goes into receive {id:#x}, but the next one is {front:x?}"),
                    );
                }
                match (self.ends[by].service, self.ends[by].peer) {
                    (Service::Rc, Some(peer)) => {
                        self.wrote_receive(memory, peer, (address, offset + at, len))
                    }
                    // Which message it is shows only when all of it has arrived.
                    _ => Ok(()),
                }
            }
            owner => broken("granted-range", format!("end {by} wrote 0x{address:x}, granted as {owner:?}")),
        }
    }

    fn wrote_sink(
        &mut self,
        memory: &Memory,
        end: usize,
        message: usize,
        (address, at, len): (u64, u32, usize),
    ) -> Result<(), Violation> {
        let known = &mut self.ends[end].messages[message];
        if known.placed != at {
            let what =
                format!("response data at byte {at} of message {message}, wanted byte {}", known.placed);
            return broken("placed-once-in-order", what);
        }
        known.placed += u32::try_from(len).unwrap_or(u32::MAX);
        if let Some(found) = known.found {
            let seen = memory.word(address);
            let what = format!("the program was told 0x{seen:x}, the atomic found 0x{found:x}");
            return if seen == found { Ok(()) } else { broken("atomic-once", what) };
        }
        if matches!(known.op, ferroce_transport::SendOp::Read(_)) {
            return check_content(memory, address, len, known.content, at);
        }
        broken("atomic-once", format!("a value for message {message} before it was executed"))
    }

    fn wrote_receive(
        &mut self,
        memory: &Memory,
        sender: usize,
        (address, at, len): (u64, u32, usize),
    ) -> Result<(), Violation> {
        let Some(message) = self.next_to_deliver(sender) else {
            return broken(
                "send-once-in-order",
                format!("bytes for a receive, but end {sender} sent nothing"),
            );
        };
        self.advance(sender, message, at, len)?;
        check_content(memory, address, len, self.ends[sender].messages[message].content, at)
    }

    /// The next message of `sender` that takes a receive.
    pub(super) fn next_to_deliver(&self, sender: usize) -> Option<usize> {
        let end = &self.ends[sender];
        (end.cursor..end.messages.len())
            .find(|index| end.messages[*index].op.takes_receive() && !end.messages[*index].done)
    }

    /// `len` bytes of a message take effect at the peer.
    fn advance(&mut self, end: usize, message: usize, at: u32, len: usize) -> Result<(), Violation> {
        let reliable = self.ends[end].service == Service::Rc;
        if reliable {
            self.reach(end, message)?;
        }
        let known = &mut self.ends[end].messages[message];
        if known.placed != at && (reliable || !self.disorder && at != 0) {
            let what = format!("byte {at} of message {message} of end {end}, wanted byte {}", known.placed);
            return broken("placed-once-in-order", what);
        }
        known.placed = at + u32::try_from(len).unwrap_or(u32::MAX);
        Ok(())
    }

    /// A message takes effect at the peer: everything before it must have, and it must not have yet.
    pub(super) fn reach(&mut self, end: usize, message: usize) -> Result<(), Violation> {
        let known = &mut self.ends[end];
        if message < known.cursor || known.messages[message].done {
            return broken(
                "placed-once-in-order",
                format!("message {message} of end {end} is executed again"),
            );
        }
        if let Some(skipped) = (known.cursor..message)
            .find(|index| !known.messages[*index].done && !known.messages[*index].is_silent())
        {
            let what = format!("message {message} of end {end} takes effect before message {skipped}");
            return broken("placed-once-in-order", what);
        }
        known.cursor = message;
        Ok(())
    }
}

/// Whether the bytes at an address are those of a message from byte `at` on.
pub(super) fn check_content(
    memory: &Memory,
    address: u64,
    len: usize,
    content: Content,
    at: u32,
) -> Result<(), Violation> {
    let bytes = memory.slice(address, len);
    match first_difference(content.tag, content.offset + u64::from(at), bytes) {
        None => Ok(()),
        Some(wrong) => {
            let what = format!(
                "byte {} of the message, at 0x{:x}",
                u64::from(at) + wrong as u64,
                address + wrong as u64
            );
            broken("content", format!("{what}, is 0x{:02x} and not what was posted", bytes[wrong]))
        }
    }
}
