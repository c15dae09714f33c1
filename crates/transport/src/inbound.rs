//! Messages as they arrive, packet by packet: what reliable and unreliable connections share.

use ferroce_wire::{Lkey, Rkey};

use crate::arrival::Fault;
use crate::completion::{Completion, PlainCompletion};
use crate::connection::{Connection, Context};
use crate::host::{Host, SharedQueueId};
use crate::planted::{Bug, is_planted};
use crate::queue::{Receive, ReceiveQueue};
use crate::status::{Status, WorkKind};
use crate::transmit::Gather;
use crate::vendor::VendorCode;
use crate::work::Sge;

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

    /// How many receives were taken so far.
    pub(crate) const fn takes(&self) -> u32 {
        self.takes
    }

    /// Whether a receive is there for the next message: the one that
    /// [`take_receive_from`](Self::take_receive_from) would take. It stays where it is;
    /// [`receive`](Self::receive) shows it.
    pub(crate) fn peek_receive<H: Host>(
        &mut self,
        shared: Option<SharedQueueId>,
        host: &mut H,
    ) -> Result<(), Fault> {
        let is_there = self.taken
            || match shared {
                Some(shared) => host.peek_shared(shared, &mut self.receive),
                None => self.queue.peek_into(&mut self.receive),
            };
        if is_there { Ok(()) } else { Err(Fault::NoReceive) }
    }

    /// The receive that was taken, or looked at last.
    pub(crate) const fn receive(&self) -> &Receive {
        &self.receive
    }

    /// Receives that a peer may count on: those that wait and the one that its message holds.
    pub(crate) fn credits(&self) -> u32 {
        self.queue.len() + u32::from(self.taken)
    }

    /// Takes a SEND of one packet, whose payload is as long as its connection allows, into the next receive, if that has one piece
    /// and nothing is out of the ordinary. Else false, and no byte was placed, or the same are placed again.
    #[inline(always)]
    pub(crate) fn take_whole<H: Host>(
        &mut self,
        payload: &[u8],
        solicited: bool,
        cx: &mut Context<'_, H>,
    ) -> bool {
        if self.taken || self.message != Message::None || cx.connection.shared_queue.is_some() {
            return false;
        }
        let Some((number, id, &place)) = self.queue.oldest_in_one() else { return false };
        let Ok(byte_len) = u32::try_from(payload.len()) else { return false };
        if byte_len > place.length {
            return false;
        }
        if byte_len > 0 {
            let piece = Sge { length: byte_len, ..place };
            if cx.host.place_local(cx.connection.domain, piece, payload).is_err() {
                return false;
            }
        }
        self.receive.set(number, id, &[place]);
        self.queue.drop_oldest();
        self.takes = self.takes.wrapping_add(1);
        let qpn = cx.connection.qpn;
        let plain = PlainCompletion { id, kind: WorkKind::Receive, qpn, byte_len, solicited };
        cx.host.complete_plain_receive(number, &plain);
        true
    }

    /// Places a packet of a SEND.
    #[inline]
    pub(crate) fn place_send<H: Host>(
        &mut self,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        let received = received_of(self.message);
        let end = self.end_of_send(payload.len())?;
        self.scatter(u64::from(received), payload, cx)?;
        self.message = Message::Send { received: end };
        Ok(())
    }

    /// How many bytes of a SEND there are after so many more, if the receive has room for them.
    pub(crate) fn end_of_send(&self, more: usize) -> Result<u32, Fault> {
        end_of(received_of(self.message), more, self.receive.length())
    }

    /// Writes bytes into the taken receive.
    #[inline]
    pub(crate) fn scatter<H: Host>(
        &self,
        offset: u64,
        bytes: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        let pieces = Gather::new(self.receive.sges(), offset, bytes.len() as u64);
        if let Some(piece) = pieces.whole().filter(|_| !bytes.is_empty()) {
            return cx.host.place_local(cx.connection.domain, piece, bytes).map_err(Fault::Receive);
        }
        let mut rest = bytes;
        for mut piece in pieces {
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

    /// The message has arrived: completes its receive, if it took one.
    pub(crate) fn finish<H: Host>(&mut self, fill: impl FnOnce(&mut Completion), cx: &mut Context<'_, H>) {
        self.finish_for(fill, cx.connection, cx.host);
    }

    /// The same of a SEND that brings nothing but its bytes.
    #[inline]
    pub(crate) fn finish_plain<H: Host>(&mut self, solicited: bool, connection: &Connection, host: &mut H) {
        let byte_len = received_of(self.message);
        self.message = Message::None;
        if core::mem::take(&mut self.taken) {
            let (id, kind, qpn) = (self.receive.id(), WorkKind::Receive, connection.qpn);
            let plain = PlainCompletion { id, kind, qpn, byte_len, solicited };
            host.complete_plain_receive(self.receive.number(), &plain);
        }
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
            host.complete_receive(self.receive.number(), completion);
        }
    }

    /// The message is given up: its receive, if it took one, fails for this.
    pub(crate) fn abandon<H: Host>(&mut self, code: VendorCode, cx: &mut Context<'_, H>) {
        self.message = Message::None;
        if self.taken {
            self.taken = false;
            let completion = cx.connection.failure(self.receive.id(), code, WorkKind::Receive);
            cx.host.complete_receive(self.receive.number(), completion);
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
        self.abandon(VendorCode::FlushedUnderWay, cx);
        if is_planted(Bug::ReceivesNotFlushed) {
            return;
        }
        while self.queue.pop_into(&mut self.receive) {
            let completion =
                cx.connection.failure(self.receive.id(), VendorCode::FlushedUnderWay, WorkKind::Receive);
            cx.host.complete_receive(self.receive.number(), completion);
        }
    }

    /// Forgets everything that was posted.
    pub(crate) fn clear(&mut self) {
        self.message = Message::None;
        self.taken = false;
        while self.queue.pop_into(&mut self.receive) {}
    }
}

/// How many bytes of a SEND have arrived.
const fn received_of(message: Message) -> u32 {
    match message {
        Message::Send { received } => received,
        Message::None | Message::Write { .. } => 0,
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
