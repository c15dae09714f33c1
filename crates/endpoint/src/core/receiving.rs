//! The way in: messages that arrived, and those that are read from the peer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ferroce_verbs::{Completion, MemoryRegion, PostError, QueuePair, RemoteRegion, WorkKind};

use super::sending::{What, low16, low32};
use super::{Core, RECEIVE, Waiters, Wakes};
use crate::buffer::{Body, Buffer, Message};
use crate::error::{Cause, Error, Violation};
use crate::frame::{Exposure, Header, Kind, Told, parse_id};
use crate::options::Options;
use crate::pool::Pool;

/// The state of the way in.
pub(super) struct Receiving {
    ring: Ring,
    pool: Arc<Pool>,
    max_message: u64,
    read_ahead: u64,
    /// Messages that the program has not taken, oldest first, and the number of the first.
    arrived: VecDeque<Arrived>,
    first: u64,
    /// The first that may have to be read from the peer.
    next_pull: u64,
    /// Bytes of messages that are being read or wait, read, for the program.
    ahead: u64,
    /// READs under way.
    pulling: u32,
    /// Slots that are free, to be given to the device, and how many of them were messages that took credit.
    free: Vec<u64>,
    free_credit: u64,
    /// Messages taken in, and how many of them the peer knows of.
    returned: u64,
    told_returned: u64,
    /// Announced messages that were read, and how many of them the peer knows of.
    pulled: u64,
    told_pulled: u64,
    /// Messages that the program has taken, and whether the peer waits to hear of one of them.
    taken: u64,
    taken_due: bool,
    depth: u64,
    goodbye: bool,
    readers: Waiters,
}

/// Where messages are placed by the device.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) region: MemoryRegion,
    pub(crate) slot: usize,
}

/// A message that arrived.
#[derive(Debug)]
struct Arrived {
    slot: u64,
    len: usize,
    imm: Option<u32>,
    /// Its sender wants to hear when the program has taken it.
    tell: bool,
    /// So many bytes of it were read by a stream.
    read: usize,
    what: Kept,
}

#[derive(Debug)]
enum Kept {
    /// Its bytes are in the slot.
    Here,
    /// The peer wrote elsewhere.
    Written,
    /// Its bytes are there.
    Announced(RemoteRegion),
    /// They are being read.
    Reading,
    /// They are here.
    Read(Buffer),
}

/// What a reader got.
#[derive(Debug)]
pub(crate) enum Taken {
    Message(Message),
    /// Bytes were copied into the reader's own: so many.
    Copied {
        len: usize,
        imm: Option<u32>,
    },
    /// The reader's own are too short for so many; the message stays.
    TooShort(usize),
    /// The peer sends no more.
    End,
}

/// Bytes that a stream's reader copies out at once: what it makes ready for them is still in the nearest cache.
const PART: usize = 16 * 1024;
/// READs that bring long messages, at a time.
const MOST_PULLS: u32 = 16;

impl Receiving {
    pub(super) fn new(ring: MemoryRegion, pool: Arc<Pool>, options: &Options) -> Self {
        Self {
            ring: Ring { region: ring, slot: options.slot() as usize },
            pool,
            max_message: options.max_message,
            read_ahead: options.read_ahead,
            arrived: VecDeque::new(),
            first: 0,
            next_pull: 0,
            ahead: 0,
            pulling: 0,
            free: Vec::new(),
            free_credit: 0,
            returned: 0,
            told_returned: 0,
            pulled: 0,
            told_pulled: 0,
            taken: 0,
            taken_due: false,
            depth: options.receive_depth.into(),
            goodbye: false,
            readers: Waiters::default(),
        }
    }

    pub(super) const fn peer_said_goodbye(&self) -> bool {
        self.goodbye
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        self.readers.wake(wakes);
    }

    /// What the next frame tells the peer.
    pub(super) const fn totals(&self) -> (u16, u32) {
        (low16(self.returned), low32(self.pulled))
    }

    /// How many messages the program has taken, for a frame that tells it.
    pub(super) const fn told(&self) -> Told {
        Told { taken: self.taken }
    }

    /// A frame of this kind has told it.
    pub(super) const fn reported(&mut self, kind: Kind) {
        self.told_returned = self.returned;
        self.told_pulled = self.pulled;
        self.taken_due &= !kind.tells_taken();
    }

    /// Whether the peer should be told now: it may be waiting for room, or for its memory. Of messages that were read it is
    /// told when no more of them are being read: with those, it has enough to go on for as long again.
    pub(super) const fn report_is_due(&self) -> bool {
        let (read, being_read) = (self.pulled - self.told_pulled, self.pulling as u64);
        self.taken_due
            || (read > 0 && read >= being_read)
            || (self.returned - self.told_returned) * 2 >= self.depth
    }

    fn at(&mut self, serial: u64) -> Option<&mut Arrived> {
        let index = usize::try_from(serial.checked_sub(self.first)?).ok()?;
        self.arrived.get_mut(index)
    }
}

impl Ring {
    /// Where a slot begins.
    fn start(&self, slot: u64) -> usize {
        usize::try_from(slot).unwrap_or(usize::MAX).saturating_mul(self.slot)
    }

    /// Gives a slot to the device for the next message.
    pub(crate) fn post(&self, qp: &QueuePair, slot: u64) -> Result<(), PostError> {
        let offset = self.start(slot);
        qp.receive(self.region.slice(offset..offset.saturating_add(self.slot))).id(RECEIVE | slot).post()
    }
}

impl Ring {
    /// Gives slots to the device, in one list.
    fn post_all(&self, qp: &QueuePair, slots: impl ExactSizeIterator<Item = u64>) {
        let mut batch = qp.receive_batch();
        batch.reserve(slots.len());
        for slot in slots {
            let start = self.start(slot);
            batch.add(qp.receive(self.region.slice(start..start + self.slot)).id(RECEIVE | slot));
        }
        // A queue pair in error takes none, and needs none.
        let _ = batch.post();
    }
}

impl Core {
    /// A message arrived in a slot.
    pub(super) fn received(&mut self, completion: &Completion) {
        if self.lost.is_some() || self.closed {
            return;
        }
        let slot = completion.id & !RECEIVE;
        if let Err(violation) = self.take_in(slot, completion) {
            self.lose(violation.into());
        }
    }

    fn take_in(&mut self, slot: u64, completion: &Completion) -> Result<(), Violation> {
        let total = completion.byte_len as usize;
        if completion.kind == WorkKind::ReceiveWithImm {
            if self.receiving.goodbye {
                return Err(Violation::OutOfTurn);
            }
            let (len, imm) = (total, completion.imm);
            return self.keep(Arrived { slot, len, imm, tell: false, read: 0, what: Kept::Written });
        }
        let offset = self.receiving.ring.start(slot);
        let mut header = [0; Header::LEN];
        self.receiving.ring.region.read_at(offset, &mut header).map_err(|_| Violation::Header)?;
        let Header { kind, tell, imm, returned, pulled, len } = Header::parse(&header, total)?;
        self.take_counters(returned, pulled)?;
        if self.receiving.goodbye && (kind.is_message() || kind == Kind::Goodbye) {
            return Err(Violation::OutOfTurn);
        }
        let len = len as usize;
        let body = |core: &Self| -> Result<Vec<u8>, Violation> {
            let start = offset + Header::LEN;
            core.receiving.ring.region.to_vec(start..start + len).map_err(|_| Violation::Length)
        };
        if kind.tells_taken() {
            self.peer_took(Told::parse(&body(self)?)?)?;
        }
        match kind {
            Kind::Data => return self.keep(Arrived { slot, len, imm, tell, read: 0, what: Kept::Here }),
            Kind::Announce => {
                let place = RemoteRegion::from_bytes(&body(self)?).map_err(|_| Violation::Length)?;
                if place.length == 0 || place.length > self.receiving.max_message {
                    return Err(Violation::TooLong);
                }
                place.address.checked_add(place.length).ok_or(Violation::Key)?;
                let len = usize::try_from(place.length).map_err(|_| Violation::TooLong)?;
                return self.keep(Arrived { slot, len, imm, tell, read: 0, what: Kept::Announced(place) });
            }
            Kind::Update => self.owe_ack()?,
            Kind::Ack => match body(self)?[..] {
                [count] => self.updates_answered(count)?,
                _ => return Err(Violation::Length),
            },
            Kind::Expose => self.peer_exposes(Exposure::parse(&body(self)?)?)?,
            Kind::Conceal => self.peer_conceals(parse_id(&body(self)?).ok_or(Violation::Exposure)?)?,
            Kind::Concealed => self.peer_let_go(parse_id(&body(self)?).ok_or(Violation::Exposure)?)?,
            Kind::Goodbye => {
                self.receiving.goodbye = true;
                self.receiving.readers.wake(&mut self.wakes);
            }
            Kind::Farewell if !self.receiving.goodbye || !self.sending.has_said_goodbye() => {
                return Err(Violation::OutOfTurn);
            }
            Kind::Farewell => self.peer_goes(),
            Kind::Fault => {
                let code = body(self)?.first().copied();
                let accused = code.and_then(Violation::from_code).ok_or(Violation::Header)?;
                self.lose(Cause::Accused(accused));
                return Ok(());
            }
        }
        self.release(slot, kind.takes_credit());
        Ok(())
    }

    /// Keeps a message for the program.
    fn keep(&mut self, arrived: Arrived) -> Result<(), Violation> {
        if self.receiving.arrived.len() as u64 >= self.receiving.depth {
            return Err(Violation::Overdrawn);
        }
        self.receiving.arrived.push_back(arrived);
        self.receiving.readers.wake(&mut self.wakes);
        Ok(())
    }

    /// Gives a slot back to the device, together with others if the peer waits for no word of it.
    fn release(&mut self, slot: u64, credit: bool) {
        let receiving = &mut self.receiving;
        receiving.free.push(slot);
        receiving.free_credit += u64::from(credit);
        if !credit || receiving.free.len() as u64 * 4 >= receiving.depth {
            self.post_receives();
        }
    }

    /// Gives the slots that are free to the device. It is done when there is nothing better to do, or when there
    /// are many: an answer to a message should not wait for it.
    pub(crate) fn post_receives(&mut self) {
        let receiving = &mut self.receiving;
        if receiving.free.is_empty() {
            return;
        }
        receiving.ring.post_all(&self.qp, receiving.free.drain(..));
        receiving.returned += std::mem::take(&mut receiving.free_credit);
    }

    /// Begins to read announced messages, as far ahead as is allowed.
    pub(super) fn start_pulls(&mut self) {
        let receiving = &mut self.receiving;
        receiving.next_pull = receiving.next_pull.max(receiving.first);
        while self.receiving.pulling < MOST_PULLS && self.has_own_room() {
            let serial = self.receiving.next_pull;
            let receiving = &mut self.receiving;
            let (ahead, most) = (receiving.ahead, receiving.read_ahead);
            let Some(arrived) = receiving.at(serial) else { return };
            let Kept::Announced(place) = arrived.what else {
                receiving.next_pull += 1;
                continue;
            };
            let len = arrived.len;
            let cost = len.next_power_of_two() as u64;
            if ahead > 0 && ahead + cost > most {
                return;
            }
            // Memory may be there later.
            let Ok(buffer) = receiving.pool.take(len) else { return };
            let Some(region) = buffer.region() else { return };
            let seq = self.next_seq();
            if self.qp.read(region.slice(..len), place).id(seq).signaled().post().is_err() {
                return;
            }
            self.note_posted(What::Pull { serial, buffer }, true);
            let receiving = &mut self.receiving;
            if let Some(arrived) = receiving.at(serial) {
                arrived.what = Kept::Reading;
            }
            receiving.ahead += cost;
            receiving.pulling += 1;
            receiving.next_pull += 1;
        }
    }

    /// An announced message was read.
    pub(super) fn pulled(&mut self, serial: u64, buffer: Buffer) {
        let receiving = &mut self.receiving;
        receiving.pulled += 1;
        receiving.pulling -= 1;
        if let Some(arrived) = receiving.at(serial) {
            arrived.what = Kept::Read(buffer);
        }
        receiving.readers.wake(&mut self.wakes);
    }

    /// The oldest message, if it is here; into the reader's own bytes, if there are some and they suffice.
    pub(crate) fn try_receive(&mut self, into: Option<&mut [u8]>) -> Poll<Result<Taken, Error>> {
        let front = match self.front() {
            Poll::Ready(Ok(Some(front))) => front,
            Poll::Ready(Ok(None)) => return Poll::Ready(Ok(Taken::End)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        if let Some(room) = &into
            && room.len() < front.left()
        {
            return Poll::Ready(Ok(Taken::TooShort(front.left())));
        }
        let Some(arrived) = self.take_front() else { return Poll::Pending };
        let slot = arrived.slot;
        let taken = self.receiving.hand_over(arrived, into);
        self.release(slot, true);
        Poll::Ready(Ok(taken))
    }

    /// Bytes of the messages that are here, as if there were no borders between them, at most so many; none when the
    /// peer sends no more. `take` is called with the length of each part, and with what copies it out.
    pub(crate) fn try_read(
        &mut self,
        most: usize,
        mut take: impl FnMut(usize, &dyn Fn(&mut [u8])),
    ) -> Poll<Result<usize, Error>> {
        let mut filled = 0;
        while filled < most {
            match self.front() {
                Poll::Ready(Ok(Some(_))) => {}
                _ if filled > 0 => break,
                Poll::Ready(Ok(None)) => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
            let Receiving { arrived, ring, .. } = &mut self.receiving;
            let Some(front) = arrived.front_mut() else { break };
            // What was written elsewhere has none.
            let count = front.left().min(most - filled).min(PART);
            take(count, &|into| front.copy_to(ring, into));
            front.read += count;
            filled += count;
            if front.left() == 0
                && let Some(arrived) = self.take_front()
            {
                self.release(arrived.slot, true);
            }
        }
        Poll::Ready(Ok(filled))
    }

    /// The oldest message, if it is here; none when the peer sends no more.
    fn front(&self) -> Poll<Result<Option<&Arrived>, Error>> {
        match self.receiving.arrived.front() {
            Some(Arrived { what: Kept::Announced(_) | Kept::Reading, .. }) => {}
            Some(front) => return Poll::Ready(Ok(Some(front))),
            None if self.receiving.goodbye => return Poll::Ready(Ok(None)),
            None => {}
        }
        match self.check_standing() {
            Ok(()) => Poll::Pending,
            Err(Error::ClosedByPeer) if self.receiving.arrived.is_empty() => Poll::Ready(Ok(None)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// The program takes the oldest message. Its slot has to be released when its bytes are out.
    fn take_front(&mut self) -> Option<Arrived> {
        let receiving = &mut self.receiving;
        let arrived = receiving.arrived.pop_front()?;
        receiving.first += 1;
        receiving.taken += 1;
        receiving.taken_due |= arrived.tell;
        if matches!(arrived.what, Kept::Read(_)) {
            receiving.ahead -= arrived.len.next_power_of_two() as u64;
            self.counters.pulled += 1;
        }
        self.counters.received += 1;
        Some(arrived)
    }

    pub(crate) fn add_reader(&mut self, waker: &Waker) {
        self.receiving.readers.add(waker);
    }
}

impl Receiving {
    fn hand_over(&self, arrived: Arrived, into: Option<&mut [u8]>) -> Taken {
        let (len, imm) = (arrived.left(), arrived.imm);
        match (&arrived.what, into) {
            (Kept::Here | Kept::Read(_), Some(into)) => {
                arrived.copy_to(&self.ring, &mut into[..len]);
                return Taken::Copied { len, imm };
            }
            (Kept::Here, None) => {
                let start = self.ring.start(arrived.slot) + Header::LEN + arrived.read;
                // Its length was checked when it arrived.
                let bytes = self.ring.region.to_vec(start..start + len).unwrap_or_default();
                return Taken::Message(Message { body: Body::Bytes(bytes), imm });
            }
            // A stream has read its beginning.
            (Kept::Read(buffer), None) if arrived.read > 0 => {
                let bytes = buffer.to_vec(arrived.read..).unwrap_or_default();
                return Taken::Message(Message { body: Body::Bytes(bytes), imm });
            }
            _ => {}
        }
        let body = match arrived.what {
            Kept::Read(buffer) => Body::Placed(buffer),
            _ => Body::Written(u32::try_from(arrived.len).unwrap_or(u32::MAX)),
        };
        Taken::Message(Message { body, imm })
    }
}

impl Arrived {
    /// Bytes that are still to be read.
    const fn left(&self) -> usize {
        match self.what {
            Kept::Written => 0,
            _ => self.len - self.read,
        }
    }

    /// Copies the next bytes out, of which there are enough.
    fn copy_to(&self, ring: &Ring, into: &mut [u8]) {
        // Its length was checked when it arrived, so neither fails.
        let _ = match &self.what {
            Kept::Here => ring.region.read_at(ring.start(self.slot) + Header::LEN + self.read, into),
            Kept::Read(buffer) => buffer.read_at(self.read, into),
            _ => Ok(()),
        };
    }
}
