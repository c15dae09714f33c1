//! Messages as they arrive, packet by packet: what reliable and unreliable connections share.

use ferroce_wire::{Imm, Lkey, Reth, Rkey, Segment};

use crate::completion::Completion;
use crate::connection::{Connection, Context};
use crate::host::{Denied, Host, SharedQueueId};
use crate::planted::{Bug, is_planted};
use crate::queue::{Receive, ReceiveQueue};
use crate::status::{Status, WorkKind};
use crate::transmit::Gather;
use crate::work::Access;

/// No message is longer (IBA 9.7.2).
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;

/// The message that is arriving, and the receives that wait for messages.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) message: Message,
    pub(crate) queue: ReceiveQueue,
    /// The receive that the arriving message has taken, if `taken`.
    receive: Receive,
    taken: bool,
    /// How many were taken so far.
    takes: u32,
}

/// Which receives name some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveMark {
    queued: Option<u32>,
    taken: Option<u32>,
}

/// The message that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// None: the next packet must begin one.
    None,
    /// A SEND of which so many bytes have arrived.
    Send { received: u32 },
    /// A WRITE that goes on at `address`.
    Write { rkey: Rkey, address: u64, remaining: u32, total: u32 },
}

/// Why an arriving message cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The packet does not continue the message, or begins another one inside it.
    Sequence,
    /// The payload is not as long as path MTU, message or receive allow.
    Length,
    /// The message is longer than the receive.
    TooLong,
    /// No receive is posted.
    NoReceive,
    /// The remote key does not open this memory.
    Key(Denied),
    /// The receive itself names memory that cannot be written.
    Receive(Denied),
}

impl Inbound {
    pub(crate) fn new(queue: ReceiveQueue, max_sge: usize) -> Self {
        Self {
            message: Message::None,
            queue,
            receive: Receive::with_capacity(max_sge),
            taken: false,
            takes: 0,
        }
    }

    /// The last receive that names memory of this key: its number in the queue, or that of the one
    /// that was taken, which is counted apart.
    pub(crate) fn last_use(&self, lkey: Lkey) -> Option<ReceiveMark> {
        let taken = self.taken && self.receive.sges().iter().any(|sge| sge.lkey == lkey);
        let queued = self.queue.last_use(lkey);
        (taken || queued.is_some()).then_some(ReceiveMark { queued, taken: taken.then_some(self.takes) })
    }

    /// Whether it has not come to its end.
    pub(crate) fn still_has(&self, mark: ReceiveMark) -> bool {
        mark.queued.is_some_and(|number| self.queue.has(number))
            || (self.taken && mark.taken == Some(self.takes))
    }

    /// Whether a packet of a SEND may come now (IBA 9.7.4.1.3).
    pub(crate) const fn check_send<T>(&self, segment: &Segment<(), T>) -> Result<(), Fault> {
        match (self.message, segment) {
            (Message::None, Segment::First(()) | Segment::Only((), _))
            | (Message::Send { .. }, Segment::Middle | Segment::Last(_)) => Ok(()),
            _ => Err(Fault::Sequence),
        }
    }

    /// Whether a packet of a WRITE may come now (IBA 9.7.4.1.3).
    pub(crate) const fn check_write<T>(&self, segment: &Segment<Reth, T>) -> Result<(), Fault> {
        match (self.message, segment) {
            (Message::None, Segment::First(_) | Segment::Only(..))
            | (Message::Write { .. }, Segment::Middle | Segment::Last(_)) => Ok(()),
            _ => Err(Fault::Sequence),
        }
    }

    /// Takes the next receive, unless the message has one already.
    pub(crate) fn take_receive<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Result<(), Fault> {
        self.take_receive_from(cx.connection.shared_queue, cx.host)
    }

    /// The same, from this shared queue or from the queue pair's own.
    pub(crate) fn take_receive_from<H: Host>(
        &mut self,
        shared: Option<SharedQueueId>,
        host: &mut H,
    ) -> Result<(), Fault> {
        if self.taken {
            return Ok(());
        }
        self.taken = match shared {
            Some(shared) => host.take_shared(shared, &mut self.receive),
            None => self.queue.pop_into(&mut self.receive),
        };
        self.takes = self.takes.wrapping_add(u32::from(self.taken));
        if self.taken { Ok(()) } else { Err(Fault::NoReceive) }
    }

    /// Whether a message has taken a receive and not ended.
    pub(crate) const fn has_taken(&self) -> bool {
        self.taken
    }

    /// The receive that was taken.
    pub(crate) const fn taken_receive(&self) -> &Receive {
        &self.receive
    }

    /// Receives that a peer may count on: those that wait and the one that its message holds.
    pub(crate) fn credits(&self) -> u32 {
        self.queue.len() + u32::from(self.taken)
    }

    /// Places a packet of a SEND.
    pub(crate) fn place_send<H: Host>(
        &mut self,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        let received = match self.message {
            Message::Send { received } => received,
            Message::None | Message::Write { .. } => 0,
        };
        let end = end_of(received, payload.len(), self.receive.length())?;
        self.scatter(u64::from(received), payload, cx)?;
        self.message = Message::Send { received: end };
        Ok(())
    }

    /// Writes bytes into the taken receive.
    pub(crate) fn scatter<H: Host>(
        &self,
        offset: u64,
        bytes: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        let mut rest = bytes;
        for mut piece in Gather::new(self.receive.sges(), offset, bytes.len() as u64) {
            let (part, after) = rest.split_at(piece.length as usize);
            if is_planted(Bug::ScatterOffset) && rest.len() < bytes.len() {
                piece.address -= 1;
            }
            cx.host.check_local(cx.connection.domain, piece, true).map_err(Fault::Receive)?;
            cx.host.write_local(piece.lkey, piece.address, part).map_err(Fault::Receive)?;
            rest = after;
        }
        Ok(())
    }

    /// Whether a packet of a WRITE has the length that its message leaves (IBA 9.7.4.1.6).
    pub(crate) fn check_write_length(
        &self,
        segment: &Segment<Reth, Option<Imm>>,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let remaining = match (segment.head(), self.message) {
            (Some(reth), _) if reth.length > MAX_MESSAGE => return Err(Fault::Length),
            (Some(reth), _) => reth.length,
            (None, Message::Write { remaining, .. }) => remaining,
            (None, _) => return Err(Fault::Sequence),
        };
        let len = payload.len() as u64;
        let fits = match segment.tail() {
            Some(_) => len == u64::from(remaining) || is_planted(Bug::WriteEndUnchecked),
            None => len < u64::from(remaining) || is_planted(Bug::WriteGoesOn),
        };
        if fits { Ok(()) } else { Err(Fault::Length) }
    }

    /// Whether a WRITE may begin: its key must open the whole of it (IBA 9.7.4.1.5). A
    /// WRITE of nothing needs no key.
    pub(crate) fn check_write_key<H: Host>(
        segment: &Segment<Reth, Option<Imm>>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        match segment.head() {
            Some(Reth { address, rkey, length }) if length > 0 => {
                let by = cx.connection.accessor();
                let checked = cx.host.check_remote(by, rkey, address, length, Access::REMOTE_WRITE);
                checked.map_err(Fault::Key)
            }
            _ => Ok(()),
        }
    }

    /// Places a packet of a WRITE.
    pub(crate) fn place_write<H: Host>(
        &mut self,
        segment: &Segment<Reth, Option<Imm>>,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        let (rkey, address, remaining, total) = match (segment.head(), self.message) {
            (Some(reth), _) => (reth.rkey, reth.address, reth.length, reth.length),
            (None, Message::Write { rkey, address, remaining, total }) => (rkey, address, remaining, total),
            (None, _) => return Err(Fault::Sequence),
        };
        let forgotten = is_planted(Bug::AcknowledgedBeforePlacement) && matches!(segment, Segment::Last(_));
        if !payload.is_empty() && !forgotten {
            let placed = cx.host.write_remote(cx.connection.accessor(), rkey, address, payload);
            placed.map_err(Fault::Key)?;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a payload has at most 4096 bytes")]
        let len = payload.len() as u32;
        self.message = Message::Write {
            rkey,
            address: address.wrapping_add(u64::from(len)),
            remaining: remaining.saturating_sub(len),
            total,
        };
        Ok(())
    }

    /// The message has arrived: completes its receive, if it took one.
    pub(crate) fn finish<H: Host>(&mut self, fill: impl FnOnce(&mut Completion), cx: &mut Context<'_, H>) {
        self.finish_for(fill, cx.connection, cx.host);
    }

    /// The same, outside of a call of the machine.
    pub(crate) fn finish_for<H: Host>(
        &mut self,
        fill: impl FnOnce(&mut Completion),
        connection: &Connection,
        host: &mut H,
    ) {
        let (kind, byte_len) = match self.message {
            Message::Write { total, .. } => (WorkKind::ReceiveWithImm, total),
            Message::Send { received } => (WorkKind::Receive, received),
            Message::None => (WorkKind::Receive, 0),
        };
        self.message = Message::None;
        if self.taken {
            self.taken = false;
            let mut completion = connection.completion(self.receive.id(), Status::Success, kind);
            completion.byte_len = byte_len;
            fill(&mut completion);
            host.complete_receive(completion);
        }
    }

    /// The message is given up: its receive, if it took one, ends with this status.
    pub(crate) fn abandon<H: Host>(&mut self, status: Status, cx: &mut Context<'_, H>) {
        self.message = Message::None;
        if self.taken {
            self.taken = false;
            let completion = cx.connection.completion(self.receive.id(), status, WorkKind::Receive);
            cx.host.complete_receive(completion);
        }
    }

    /// Whether no message is arriving.
    pub(crate) fn is_idle(&self) -> bool {
        self.message == Message::None
    }

    /// The message is given up; its receive goes to the next one.
    pub(crate) const fn forget_message(&mut self) {
        self.message = Message::None;
    }

    /// Every receive that waits ends as flushed. Those of a shared queue stay there.
    pub(crate) fn flush<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        self.abandon(Status::Flushed, cx);
        if is_planted(Bug::ReceivesNotFlushed) {
            return;
        }
        while self.queue.pop_into(&mut self.receive) {
            let completion = cx.connection.completion(self.receive.id(), Status::Flushed, WorkKind::Receive);
            cx.host.complete_receive(completion);
        }
    }

    /// Forgets everything that was posted.
    pub(crate) fn clear(&mut self) {
        self.message = Message::None;
        self.taken = false;
        while self.queue.pop_into(&mut self.receive) {}
    }
}

/// How many bytes of a SEND there are after so many more, if its receive has room for them and no limit is broken.
fn end_of(received: u32, more: usize, room: u64) -> Result<u32, Fault> {
    let end = u64::from(received) + more as u64;
    let end = u32::try_from(end).ok().filter(|end| u64::from(*end) <= room && *end <= MAX_MESSAGE);
    end.ok_or(Fault::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_ends_with_its_receive_and_with_the_longest_message() {
        assert_eq!(end_of(0, 0, 0), Ok(0));
        assert_eq!((end_of(100, 28, 128), end_of(100, 29, 128)), (Ok(128), Err(Fault::TooLong)));
        let almost = MAX_MESSAGE - 4096;
        assert_eq!(end_of(almost, 4096, u64::MAX), Ok(MAX_MESSAGE));
        assert_eq!(end_of(almost, 4097, u64::MAX), Err(Fault::TooLong));
        assert_eq!(
            end_of(u32::MAX, 1, u64::MAX),
            Err(Fault::TooLong),
            "not beyond what can be counted either"
        );
    }
}
