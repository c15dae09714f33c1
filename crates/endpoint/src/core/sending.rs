//! The way out: credits, frames, announced messages, goodbye.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ferroce_verbs::{MemoryRegion, PostError, RemoteRegion, Rkey};

use super::delivery::{Follow, Sent};
use super::operations::OpKey;
use super::posting::List;
use super::{Core, Queue, Slots, Waiters, Wakes};
use crate::buffer::Buffer;
use crate::error::{Error, Violation};
use crate::frame::{Header, Kind};
use crate::hello::Hello;
use crate::options::Options;
use crate::pieces::Pieces;
use crate::pool::Pool;

/// The state of the way out.
pub(super) struct Sending {
    pub(super) slots: Slots,
    /// Bytes of the longest message that is sent at once.
    most_eager: usize,
    pool: Arc<Pool>,
    /// Bytes of a frame that goes inline.
    pub(super) inline: usize,
    /// Requests of the program that may be under way.
    pub(super) depth: usize,
    pub(super) signal_every: u32,
    budget: u64,
    /// Messages sent that take credit, and how many of them the peer has taken in.
    pub(super) sent: u64,
    returned: u64,
    /// Announced messages, and how many of them the peer has read.
    pub(super) announced: u64,
    pub(super) pulled: u64,
    /// The announced messages that the peer has not read, with the bytes that they count for.
    pub(super) waiting: VecDeque<(Hold, u64)>,
    waiting_bytes: u64,
    /// Work under way, in order.
    pub(super) posted: VecDeque<Posted>,
    pub(super) next_seq: u64,
    /// How much of it is done, and went well.
    pub(super) delivered: u64,
    /// Work has failed: what comes after it is not delivered.
    broken: bool,
    /// Messages for the peer's program, and how many of them it has taken, as far as it was told.
    pub(super) messages: u64,
    pub(super) taken: u64,
    /// Work since the last that is reported.
    pub(super) unsignaled: u32,
    pub(super) signaled: u32,
    /// Updates that the peer has not answered.
    updates_out: u8,
    /// Updates of the peer that want an answer.
    acks_owed: u8,
    pub(super) goodbye: Goodbye,
    pub(super) farewell: Goodbye,
    /// A message has failed.
    pub(super) undelivered: bool,
    /// Calls that wait to send, in order.
    queue: Queue,
    next_ticket: u64,
    /// Messages that leave together.
    pub(super) list: List,
    /// Calls that wait for all to be delivered.
    pub(super) closers: Waiters,
    /// Calls that wait for a message to be delivered, or taken.
    pub(super) watchers: Waiters,
}

/// Memory of a message until the peer has read it.
#[derive(Debug)]
pub(super) enum Hold {
    /// Of the connection, which uses it again.
    Own(#[expect(dead_code, reason = "it is only kept")] Buffer),
    /// Of the program, which may send it again.
    Shared(#[expect(dead_code, reason = "it is only kept")] Arc<MemoryRegion>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goodbye {
    Unsaid,
    Said,
    Delivered,
}

/// Work under way.
#[derive(Debug)]
pub(super) struct Posted {
    seq: u64,
    pub(super) signaled: bool,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// A message of the program's, in a slot or none.
    Message(Option<u32>),
    /// A frame of our own.
    Frame(Option<u32>),
    Goodbye,
    Farewell,
    Fault,
    Probe,
    Pull {
        serial: u64,
        buffer: Buffer,
    },
    Operation(OpKey),
}

/// A message to send.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    Bytes(&'a [u8]),
    /// There until it is sent.
    Buffer(Option<Buffer>),
    Shared(&'a Arc<MemoryRegion>, usize, usize),
    /// Bytes of a stream, never announced.
    Pieces(Pieces<'a>),
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Buffer(buffer) => buffer.as_ref().map_or(0, Buffer::len),
            Self::Shared(_, _, len) => *len,
            Self::Pieces(pieces) => pieces.len(),
        }
    }
}

impl Sending {
    pub(super) fn new(ring: MemoryRegion, pool: Arc<Pool>, peer: &Hello, options: &Options) -> Self {
        let slot = options.slot();
        Self {
            slots: Slots::new(ring, slot as usize),
            most_eager: (peer.slot as usize).saturating_sub(Header::LEN).min(options.eager as usize),
            pool,
            inline: options.inline.max(MIN_INLINE) as usize,
            depth: options.send_depth as usize,
            signal_every: options.signal_every,
            budget: options.send_buffer,
            sent: 0,
            returned: 0,
            announced: 0,
            pulled: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            posted: VecDeque::new(),
            next_seq: 0,
            delivered: 0,
            broken: false,
            messages: 0,
            taken: 0,
            unsignaled: 0,
            signaled: 0,
            updates_out: 0,
            acks_owed: 0,
            goodbye: Goodbye::Unsaid,
            farewell: Goodbye::Unsaid,
            undelivered: false,
            queue: Queue::new(),
            next_ticket: 0,
            list: List::default(),
            closers: Waiters::default(),
            watchers: Waiters::default(),
        }
    }

    pub(super) fn has_said_goodbye(&self) -> bool {
        self.goodbye != Goodbye::Unsaid
    }

    /// Whether nothing is under way that would tell of a silent peer.
    pub(super) const fn nothing_signaled(&self) -> bool {
        self.signaled == 0
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        wakes.extend(self.queue.iter_mut().filter_map(|(_, waker)| waker.take()));
        self.closers.wake(wakes);
        self.watchers.wake(wakes);
    }

    /// Room for work of the program's.
    fn has_room(&self) -> bool {
        self.posted.len() < self.depth
    }

    /// Room for work of the library's own, of which there is never more than that.
    fn has_own_room(&self) -> bool {
        self.posted.len() < self.depth + Options::OWN_WORK as usize
    }
}

/// Every frame of control goes inline.
pub(crate) const MIN_INLINE: u32 = 128;

impl Core {
    /// Sends a message if it can be sent now; `ticket` is the place in the queue of calls that wait.
    pub(crate) fn try_send(
        &mut self,
        payload: &mut Payload<'_>,
        imm: Option<u32>,
        follow: Follow,
        ticket: &mut Option<u64>,
    ) -> Poll<Result<Sent, Error>> {
        let len = payload.len();
        if let Err(error) = self.check_sending() {
            return Poll::Ready(Err(error));
        }
        // What fits into a slot at the peer costs it nothing more.
        let allowed = self.peer.max_message.max(self.most_eager() as u64);
        if len as u64 > allowed {
            return Poll::Ready(Err(Error::TooLong { len, allowed }));
        }
        if !self.is_turn(*ticket) || !self.has_credit() || !self.sending.has_room() {
            return self.wait_turn(ticket);
        }
        let sent = if len <= self.most_eager() {
            self.send_eager(payload, imm, follow)
        } else {
            self.send_announced(payload, imm, follow)
        };
        match sent {
            Poll::Pending => self.wait_turn(ticket),
            Poll::Ready(result) => {
                self.leave_queue(ticket);
                self.counters.sent += u64::from(result.is_ok());
                Poll::Ready(result)
            }
        }
    }

    /// Bytes of the longest message that is sent at once.
    pub(crate) const fn most_eager(&self) -> usize {
        self.sending.most_eager
    }

    pub(super) fn check_sending(&self) -> Result<(), Error> {
        self.check_standing()?;
        match self.sending.goodbye {
            Goodbye::Unsaid => Ok(()),
            Goodbye::Said | Goodbye::Delivered => Err(Error::Closed),
        }
    }

    /// Whether the peer has room for one more message.
    pub(super) fn has_credit(&self) -> bool {
        self.sending.sent - self.sending.returned < u64::from(self.peer.depth)
    }

    fn send_eager(
        &mut self,
        payload: &mut Payload<'_>,
        imm: Option<u32>,
        follow: Follow,
    ) -> Poll<Result<Sent, Error>> {
        let total = payload.len() + Header::LEN;
        if total > self.sending.inline && self.sending.slots.free.is_empty() {
            return Poll::Pending;
        }
        let (copied, one);
        let bytes = match payload {
            Payload::Bytes(bytes) => *bytes,
            Payload::Pieces(pieces) => {
                let posted = self.post_message(Kind::Data, imm, *pieces, follow);
                return Poll::Ready(self.sent(posted));
            }
            Payload::Buffer(buffer) => {
                copied = buffer.take().and_then(|buffer| buffer.to_vec(..).ok()).unwrap_or_default();
                &copied
            }
            Payload::Shared(region, offset, len) => {
                copied = region.to_vec(*offset..*offset + *len).unwrap_or_default();
                &copied
            }
        };
        one = [IoSlice::new(bytes)];
        let posted = self.post_message(Kind::Data, imm, Pieces::new(&one), follow);
        Poll::Ready(self.sent(posted))
    }

    /// A message was posted that is sent at once.
    fn sent(&mut self, posted: Result<(), PostError>) -> Result<Sent, Error> {
        posted.map_err(|error| self.refused(error))?;
        let sending = &self.sending;
        Ok(Sent { work: sending.next_seq, announced: None, messages: sending.messages })
    }

    fn send_announced(
        &mut self,
        payload: &mut Payload<'_>,
        imm: Option<u32>,
        follow: Follow,
    ) -> Poll<Result<Sent, Error>> {
        let len = payload.len();
        // What is shared costs no memory of ours.
        let cost = match payload {
            Payload::Bytes(_) => len.next_power_of_two() as u64,
            Payload::Buffer(buffer) => buffer.as_ref().map_or(0, Buffer::capacity) as u64,
            Payload::Shared(..) | Payload::Pieces(_) => 0,
        };
        let sending = &mut self.sending;
        if cost > 0 && sending.waiting_bytes > 0 && sending.waiting_bytes + cost > sending.budget {
            return Poll::Pending;
        }
        let (hold, place, offset) = match payload {
            Payload::Bytes(bytes) => {
                let buffer = match sending.pool.take(len) {
                    Ok(buffer) => buffer,
                    Err(error) => return Poll::Ready(Err(error.into())),
                };
                // It has room for them.
                let _ = buffer.write_at(0, bytes);
                let place = buffer.region().map(MemoryRegion::remote);
                (Hold::Own(buffer), place, 0)
            }
            Payload::Buffer(buffer) => {
                let place = buffer.as_ref().and_then(Buffer::region).map(MemoryRegion::remote);
                match buffer.take() {
                    Some(buffer) => (Hold::Own(buffer), place, 0),
                    None => return Poll::Ready(Err(Error::OtherConnection)),
                }
            }
            Payload::Shared(region, offset, _) => {
                (Hold::Shared(Arc::clone(region)), Some(region.remote()), *offset)
            }
            Payload::Pieces(_) => return Poll::Ready(Err(Error::OtherConnection)),
        };
        let Some(place) = place else { return Poll::Ready(Err(Error::OtherConnection)) };
        let address = place.address + offset as u64;
        let place = RemoteRegion { address, length: len as u64, rkey: place.rkey };
        if let Err(error) =
            self.post_message(Kind::Announce, imm, Pieces::new(&[IoSlice::new(&place.to_bytes())]), follow)
        {
            return Poll::Ready(Err(self.refused(error)));
        }
        let sending = &mut self.sending;
        sending.waiting.push_back((hold, cost));
        sending.waiting_bytes += cost;
        sending.announced += 1;
        self.counters.announced += 1;
        let (announced, messages) = (Some(sending.announced), sending.messages);
        Poll::Ready(Ok(Sent { work: sending.next_seq, announced, messages }))
    }

    /// The id that the next work gets.
    pub(super) const fn next_seq(&self) -> u64 {
        self.sending.next_seq
    }

    pub(super) fn note_posted(&mut self, what: What, signaled: bool) {
        let sending = &mut self.sending;
        sending.posted.push_back(Posted { seq: sending.next_seq, signaled, what });
        sending.next_seq += 1;
        sending.signaled += u32::from(signaled);
        sending.unsignaled = if signaled { 0 } else { sending.unsignaled + 1 };
    }

    pub(super) fn has_own_room(&self) -> bool {
        self.sending.has_own_room()
    }

    pub(super) fn has_room(&self) -> bool {
        self.sending.has_room()
    }

    /// A WRITE with immediate data takes a place at the peer, and its program takes it like a message.
    pub(super) const fn spend_credit(&mut self) {
        self.sending.sent += 1;
        self.sending.messages += 1;
    }

    /// Work up to this is done.
    pub(super) fn retire(&mut self, seq: u64) {
        if !self.sending.broken {
            self.sending.delivered = self.sending.delivered.max(seq + 1);
        }
        while self.sending.posted.front().is_some_and(|front| front.seq <= seq) {
            self.happened.done += 1;
            if let Some(posted) = self.sending.posted.pop_front() {
                self.sending.signaled -= u32::from(posted.signaled);
                self.finish(posted.what);
            }
        }
        self.sending.watchers.wake(&mut self.wakes);
        self.wake_next();
    }

    fn finish(&mut self, what: What) {
        match what {
            What::Message(slot) | What::Frame(slot) => self.sending.slots.free.extend(slot),
            What::Goodbye => {
                self.sending.goodbye = Goodbye::Delivered;
                self.sending.closers.wake(&mut self.wakes);
            }
            What::Farewell => {
                self.sending.farewell = Goodbye::Delivered;
                self.sending.closers.wake(&mut self.wakes);
            }
            // The peer knows why.
            What::Fault => self.abandon(),
            What::Probe => {}
            What::Pull { serial, buffer } => {
                self.happened.arrivals += 1;
                self.pulled(serial, buffer);
            }
            What::Operation(key) => {
                self.happened.arrivals += 1;
                self.operation_done(key);
            }
        }
    }

    fn abandon(&mut self) {
        self.line.end();
        let err = ferroce_verbs::Attributes::to(ferroce_verbs::State::Err);
        // In error it stays in error.
        let _ = self.qp.modify(&err, None);
    }

    /// This work failed, and what was before it is done; whether it was reading an announced message.
    pub(super) fn retire_failed(&mut self, seq: u64) -> bool {
        if seq > 0 {
            self.retire(seq - 1);
        }
        self.sending.broken = true;
        let Some(posted) = self.sending.posted.pop_front() else { return false };
        self.sending.signaled -= u32::from(posted.signaled);
        let pulling = matches!(posted.what, What::Pull { .. });
        match posted.what {
            What::Fault => self.abandon(),
            What::Pull { buffer, .. } => buffer.lose(),
            What::Operation(key) => self.operation_failed(key),
            What::Message(_) => self.sending.undelivered = true,
            What::Frame(_) | What::Goodbye | What::Farewell | What::Probe => {}
        }
        pulling
    }

    /// The peer's counters, as they came with a message.
    pub(super) fn take_counters(&mut self, returned: u16, pulled: u32) -> Result<(), Violation> {
        let sending = &mut self.sending;
        // The distance from what was known; it is small, so the low bits are enough.
        let more = u64::from(returned.wrapping_sub(low16(sending.returned)));
        if sending.returned + more > sending.sent {
            return Err(Violation::Credit);
        }
        sending.returned += more;
        let read = u64::from(pulled.wrapping_sub(low32(sending.pulled)));
        if sending.pulled + read > sending.announced {
            return Err(Violation::Pulled);
        }
        sending.pulled += read;
        for _ in 0..read {
            let Some((_, cost)) = sending.waiting.pop_front() else { break };
            sending.waiting_bytes -= cost;
        }
        // The goodbye was the last of them.
        let all_taken = more > 0 && sending.returned == sending.sent && sending.goodbye == Goodbye::Said;
        if all_taken {
            sending.goodbye = Goodbye::Delivered;
        }
        if all_taken || read > 0 && sending.waiting.is_empty() {
            sending.closers.wake(&mut self.wakes);
        }
        if read > 0 {
            sending.watchers.wake(&mut self.wakes);
        }
        if more > 0 || read > 0 {
            self.wake_next();
        }
        Ok(())
    }

    /// Tells the peer what it should know, if it is time.
    pub(super) fn report(&mut self) {
        if self.sending.acks_owed > 0 && self.has_own_room() {
            if self.post_frame(Kind::Ack, &[self.sending.acks_owed]).is_err() {
                return;
            }
            self.sending.acks_owed = 0;
        }
        let due = self.receiving.report_is_due();
        if due && self.sending.updates_out < Kind::UPDATES && self.has_own_room() {
            if self.post_frame(Kind::Update, &[]).is_err() {
                return;
            }
            self.sending.updates_out += 1;
            self.counters.updates += 1;
        }
    }

    /// The peer has sent an update.
    pub(super) fn owe_ack(&mut self) -> Result<(), Violation> {
        if self.sending.acks_owed >= Kind::UPDATES {
            return Err(Violation::OutOfTurn);
        }
        self.sending.acks_owed += 1;
        Ok(())
    }

    /// The peer has taken notice of so many updates.
    pub(super) fn updates_answered(&mut self, count: u8) -> Result<(), Violation> {
        let left = self.sending.updates_out.checked_sub(count);
        self.sending.updates_out = left.filter(|_| count > 0).ok_or(Violation::OutOfTurn)?;
        Ok(())
    }

    /// Whether something is to be said that has to wait for the peer.
    pub(super) fn has_more_to_say(&self) -> bool {
        self.sending.acks_owed > 0 || self.receiving.report_is_due()
    }

    /// Tells the peer which rule it broke, if it has room for that.
    pub(super) fn post_fault(&mut self, violation: Violation) -> bool {
        self.has_credit() && self.has_own_room() && self.post_frame(Kind::Fault, &[violation as u8]).is_ok()
    }

    /// A WRITE of nothing: the peer's device answers, or is gone. False if there is no room for it now.
    pub(super) fn post_probe(&mut self) -> bool {
        if !self.has_own_room() {
            return false;
        }
        let nowhere = RemoteRegion { address: 0, length: 0, rkey: Rkey(0) };
        let seq = self.next_seq();
        let posted = self.qp.write_inline(&[], nowhere).id(seq).signaled().post().is_ok();
        if posted {
            self.note_posted(What::Probe, true);
        }
        posted
    }

    /// The device did not take work: the queue pair has ended, or something is wrong with us.
    pub(super) fn refused(&mut self, error: PostError) -> Error {
        self.progress();
        match self.check_standing() {
            Err(reason) => reason,
            Ok(()) => Error::Post(error),
        }
    }

    /// Whether the call with this ticket may go on.
    pub(super) fn is_turn(&self, ticket: Option<u64>) -> bool {
        self.sending.queue.front().is_none_or(|(first, _)| Some(*first) == ticket)
    }

    pub(super) fn wait_turn<T>(&mut self, ticket: &mut Option<u64>) -> Poll<T> {
        if ticket.is_none() {
            self.counters.stalls += 1;
            let sending = &mut self.sending;
            *ticket = Some(sending.next_ticket);
            sending.queue.push_back((sending.next_ticket, None));
            sending.next_ticket += 1;
        }
        Poll::Pending
    }

    /// Has the one with this ticket woken when it is its turn.
    pub(crate) fn add_sender(&mut self, ticket: Option<u64>, waker: &Waker) {
        let mut queue = self.sending.queue.iter_mut();
        if let Some((_, place)) = queue.find(|(waiting, _)| Some(*waiting) == ticket) {
            *place = Some(waker.clone());
        }
    }

    /// The call with this ticket is done, or has given up.
    pub(crate) fn leave_queue(&mut self, ticket: &mut Option<u64>) {
        let Some(ticket) = ticket.take() else { return };
        self.sending.queue.retain(|(waiting, _)| *waiting != ticket);
        self.wake_next();
    }

    pub(super) fn wake_next(&mut self) {
        if let Some((_, waker)) = self.sending.queue.front_mut() {
            self.wakes.extend(waker.take());
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what travels")]
pub(super) const fn low16(count: u64) -> u16 {
    count as u16
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what travels")]
pub(super) const fn low32(count: u64) -> u32 {
    count as u32
}
