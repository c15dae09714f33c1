//! What the machines ask of the device: memory, completions, events, shared receives.

use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ferroce_memory::MemoryTable;
use ferroce_record::PacketFlags;
use ferroce_sys::sync::Share;
use ferroce_transport::{
    Access, Accessor, AtomicOp, Bind, Completion, Denied, DomainId, Event, Host, PlainCompletion, Receive,
    Sge, SharedQueueId, Status, Time,
};
use ferroce_wire::{Lkey, Qpn, Rkey};
use slab::Slab;

use super::hand::Hand;
use super::qps::Tally;
use super::recording::{Bytes, Recording};
use super::srq_side::{self, SrqSide};
use crate::completion::{CqId, CqSide, Wake};
use crate::event::{AsyncEvent, EventQueue};

/// Everything that queue pairs of an engine share.
#[derive(Debug)]
pub(crate) struct Tables {
    /// This engine's share of the memory table, which all engines of the device have in common.
    pub(crate) memory: Share<MemoryTable>,
    /// The completion queues that queue pairs of this engine complete into, by number.
    pub(crate) cqs: Vec<Option<CqSide>>,
    /// The shared receive queues whose home this is.
    pub(crate) srqs: Slab<SrqSide>,
    pub(crate) events: Arc<EventQueue>,
    /// Completion queues that were added to.
    touched: Vec<CqId>,
    /// Completion queues whose events wait for more completions, and how long.
    put_off: Vec<(Time, CqId)>,
    pub(crate) wakes: Vec<Wake>,
    /// What a thread that polls is handed past its completion queue.
    pub(crate) hand: Hand,
    pub(crate) now: Time,
    /// What happens is written down, if so.
    pub(crate) record: Option<Box<Recording>>,
}

impl Tables {
    /// Whether what happens is written down. That is rare, so the code of it stands aside; it is not slow for that.
    #[inline(always)]
    pub(crate) fn is_recorded(&self) -> bool {
        let is_recorded = self.record.is_some();
        if is_recorded {
            cold_path();
        }
        is_recorded
    }

    pub(crate) fn new(memory: Share<MemoryTable>, events: Arc<EventQueue>) -> Self {
        Self {
            memory,
            cqs: Vec::new(),
            srqs: Slab::new(),
            events,
            touched: Vec::new(),
            put_off: Vec::new(),
            wakes: Vec::new(),
            hand: Hand::default(),
            now: Time::ZERO,
            record: None,
        }
    }

    /// Whether a completion has room.
    fn has_room(&self, cq: CqId) -> bool {
        self.cqs.get(cq.0 as usize).and_then(Option::as_ref).is_none_or(CqSide::has_room)
    }

    /// Adds a completion; false if it was lost.
    fn complete(&mut self, cq: CqId, completion: &Completion) -> bool {
        let Some(Some(side)) = self.cqs.get_mut(cq.0 as usize) else { return true };
        self.hand.close_for(cq);
        if !side.touched {
            self.touched.push(cq);
        }
        side.push(completion, self.now)
    }

    /// As [`complete`](Self::complete), of one that a record tells of.
    #[inline(never)]
    fn complete_told(&mut self, cq: CqId, completion: &Completion) -> bool {
        let Some(Some(side)) = self.cqs.get_mut(cq.0 as usize) else { return true };
        self.hand.close_for(cq);
        if !side.touched {
            self.touched.push(cq);
        }
        side.push_told(completion, self.now)
    }

    /// A thread polls this queue, takes so many completions, and takes in what has come: it may be handed them past the queue.
    #[inline]
    pub(crate) fn open_hand(&mut self, cq: CqId, room: usize) {
        let side = self.cqs.get(cq.0 as usize).and_then(Option::as_ref);
        self.hand.open(cq, side, room);
    }

    /// A thread that was to be handed completions has panicked: they go into their queue.
    pub(super) fn take_back_hand(&mut self) {
        let (cq, held) = self.hand.take_back();
        for plain in held {
            self.complete(cq, &plain.whole());
        }
    }

    /// A completion queue gets its first queue pair in this engine; false if it had one.
    pub(crate) fn add_cq(&mut self, cq: CqId, side: impl FnOnce() -> CqSide) -> bool {
        let place = cq.0 as usize;
        if self.cqs.len() <= place {
            self.cqs.resize_with(place + 1, || None);
        }
        let vacant = self.cqs[place].is_none();
        if vacant {
            let side = side();
            if let Some(record) = &self.record {
                side.shared().record(Some(record.program_ring()));
            }
            self.cqs[place] = Some(side);
        }
        vacant
    }

    /// This engine's side of a completion queue, if it completes there.
    pub(crate) fn cq(&mut self, cq: CqId) -> Option<&mut CqSide> {
        self.cqs.get_mut(cq.0 as usize)?.as_mut()
    }

    /// No thread that waits has to be told of anything.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.touched.is_empty() && self.put_off.is_empty() && self.wakes.is_empty()
    }

    /// Notes what to wake for the completions of this turn.
    pub(crate) fn settle(&mut self) {
        if !self.put_off.is_empty() {
            self.call_put_off();
        }
        if self.touched.is_empty() {
            return;
        }
        // A thread that arms a queue looks into it afterwards, with a fence between: so either it sees
        // what was added, or we see here that it is armed.
        fence(Ordering::SeqCst);
        for cq in self.touched.drain(..) {
            let Some(Some(side)) = self.cqs.get_mut(cq.0 as usize) else { continue };
            let again = side.settle(self.now, &mut self.wakes);
            // An event is put off once, however many completions come until then.
            if let Some(again) = again
                && !self.put_off.iter().any(|(_, known)| *known == cq)
            {
                self.put_off.push((again, cq));
            }
        }
    }

    /// What an event of this completion queue waits for has changed: looks at it anew with the next turn.
    pub(crate) fn reconsider(&mut self, cq: CqId) {
        self.put_off.retain(|(_, known)| *known != cq);
        if let Some(Some(side)) = self.cqs.get_mut(cq.0 as usize)
            && !self.touched.contains(&cq)
        {
            side.touched = true;
            self.touched.push(cq);
        }
    }

    /// Looks again at the completion queues whose events have waited long enough.
    fn call_put_off(&mut self) {
        let Self { put_off, cqs, touched, now, .. } = self;
        put_off.retain(|(when, cq)| {
            let due = *when <= *now;
            if due
                && let Some(Some(side)) = cqs.get_mut(cq.0 as usize)
                && !side.touched
            {
                side.touched = true;
                touched.push(*cq);
            }
            !due
        });
    }

    /// When an event has waited long enough.
    pub(crate) fn next_put_off(&self) -> Option<Time> {
        self.put_off.iter().map(|(when, _)| *when).min()
    }
}

/// The device as one queue pair sees it during one call.
pub(crate) struct View<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) send_cq: CqId,
    pub(crate) receive_cq: CqId,
    /// What is added to its completion queues.
    pub(crate) tally: &'a mut Tally,
}

impl View<'_> {
    /// Adds a completion; false if it was lost.
    fn complete(&mut self, cq: CqId, completion: &Completion) -> bool {
        let is_there = self.tables.complete(cq, completion);
        self.noted(cq, is_there)
    }

    /// As [`complete`](Self::complete), of one that a record tells of, or not.
    #[inline(never)]
    fn complete_recorded(&mut self, cq: CqId, completion: &Completion, is_told: bool) -> bool {
        if !is_told {
            return self.complete(cq, completion);
        }
        let is_there = self.tables.complete_told(cq, completion);
        self.noted(cq, is_there)
    }

    /// As [`complete`](Self::complete), of work that went well and has nothing more to tell.
    #[inline]
    fn complete_plain(&mut self, cq: CqId, plain: &PlainCompletion) -> bool {
        let Tables { cqs, touched, hand, now, .. } = &mut *self.tables;
        let Some(Some(side)) = cqs.get_mut(cq.0 as usize) else { return self.noted(cq, true) };
        hand.close_for(cq);
        if !side.touched {
            touched.push(cq);
        }
        let is_there = side.push_plain(plain, *now);
        self.noted(cq, is_there)
    }

    /// Takes note whether a completion is in its queue.
    #[inline]
    fn noted(&mut self, cq: CqId, is_there: bool) -> bool {
        if !is_there && !self.tally.overrun {
            self.tally.overrun = true;
            self.tables.events.push(AsyncEvent::CompletionQueueOverrun(cq));
        }
        is_there
    }
}

impl View<'_> {
    /// The end of a send, now: also of one whose completion was held back.
    #[inline(always)]
    pub(super) fn finish_send(&mut self, number: u32, completion: &Completion) {
        let is_there = if self.tables.is_recorded() {
            let is_told = self.tell_send(number, completion);
            self.complete_recorded(self.send_cq, completion, is_told)
        } else {
            self.complete(self.send_cq, completion)
        };
        if is_there {
            self.tally.ended.count_send(completion.status);
        }
    }

    /// Writes a packet down that leaves, and that was never sent before.
    #[inline(never)]
    pub(super) fn tell_packet(&mut self, headers: &[u8], payload: usize) {
        if let (Some(record), Some(watch)) = (&mut self.tables.record, &mut self.tally.watch) {
            record.packet_out(watch, Bytes { headers, payload }, (0, false), PacketFlags::empty());
        }
    }

    /// Writes the end of a send down, if it is one that is told of.
    #[inline(never)]
    fn tell_send(&mut self, number: u32, completion: &Completion) -> bool {
        let has_room = self.tables.has_room(self.send_cq);
        let (Some(record), Some(watch)) = (&mut self.tables.record, &mut self.tally.watch) else {
            return false;
        };
        record.send_ended(watch, number, completion, (self.send_cq, has_room)) && has_room
    }

    /// Writes the end of a receive down, if it is one that is told of.
    #[inline(never)]
    fn tell_receive(&mut self, number: u32, completion: &Completion) -> bool {
        let has_room = self.tables.has_room(self.receive_cq);
        let (Some(record), Some(watch)) = (&mut self.tables.record, &mut self.tally.watch) else {
            return false;
        };
        record.receive_ended(watch, number, completion, (self.receive_cq, has_room)) && has_room
    }
}

impl Host for View<'_> {
    #[inline]
    fn check_local(&mut self, domain: DomainId, sge: Sge, write: bool) -> Result<(), Denied> {
        self.tables.memory.local(domain, sge, write).map(drop)
    }

    fn write_local(&mut self, lkey: Lkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.tables.memory.local_again(piece(lkey, address, bytes.len())?, true)?.write(bytes)
    }

    #[inline]
    fn place_local(&mut self, domain: DomainId, sge: Sge, bytes: &[u8]) -> Result<(), Denied> {
        self.tables.memory.local(domain, sge, true)?.write(bytes)
    }

    #[inline]
    fn complete_plain_send(&mut self, number: u32, plain: &PlainCompletion) {
        if self.tally.held.is_some() || self.tables.is_recorded() {
            return self.complete_send(number, plain.whole());
        }
        if self.tables.hand.takes(self.send_cq, plain) {
            // Its place is free at once: the program hears of it before it can post again.
            self.tally.ended.count_send(Status::Success);
            return;
        }
        self.tally.sends += 1;
        if self.complete_plain(self.send_cq, plain) {
            self.tally.ended.count_send(Status::Success);
        }
    }

    #[inline]
    fn complete_plain_receive(&mut self, number: u32, plain: &PlainCompletion) {
        if self.tables.is_recorded() {
            return self.complete_receive(number, plain.whole());
        }
        if self.tables.hand.takes(self.receive_cq, plain) {
            self.tally.receives_handed += 1;
            self.tally.ended.count_receive(Status::Success);
            return;
        }
        self.tally.receives += 1;
        if self.complete_plain(self.receive_cq, plain) {
            self.tally.ended.count_receive(Status::Success);
        }
    }

    fn read_local(&mut self, lkey: Lkey, address: u64, bytes: &mut [u8]) -> Result<(), Denied> {
        self.tables.memory.local_again(piece(lkey, address, bytes.len())?, false)?.read(bytes)
    }

    fn check_remote(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), Denied> {
        self.tables.memory.remote(by, rkey, address, len, access).map(drop)
    }

    fn write_remote(&mut self, by: Accessor, rkey: Rkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        let len = u32::try_from(bytes.len()).map_err(|_| Denied::OutOfRange)?;
        self.tables.memory.write_remote(by, rkey, address, len, |place| place.write(bytes))
    }

    fn atomic(&mut self, by: Accessor, rkey: Rkey, address: u64, op: AtomicOp) -> Result<u64, Denied> {
        if !address.is_multiple_of(8) {
            return Err(Denied::Misaligned);
        }
        self.tables.memory.remote(by, rkey, address, 8, op.access())?.atomic(op)
    }

    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), Denied> {
        self.tables.memory.invalidate(by, rkey)?;
        if let Some(record) = &mut self.tables.record {
            record.unbound(by.domain, rkey);
        }
        Ok(())
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        self.tables.memory.bind(by, bind)?;
        if let Some(record) = &mut self.tables.record {
            record.bound(by.domain, bind);
        }
        Ok(())
    }

    fn take_shared(&mut self, queue: SharedQueueId, receive: &mut Receive) -> bool {
        let Some(side) = self.tables.srqs.get_mut(srq_side::place_of(queue)) else { return false };
        let taken = side.pop_into(receive);
        if taken && side.reached_limit() {
            self.tables.events.push(AsyncEvent::SharedQueueLimit(queue));
        }
        taken
    }

    fn peek_shared(&mut self, queue: SharedQueueId, receive: &mut Receive) -> bool {
        let side = self.tables.srqs.get(srq_side::place_of(queue));
        side.is_some_and(|side| side.queue.peek_into(receive))
    }

    fn complete_send(&mut self, number: u32, completion: Completion) {
        self.tally.sends += 1;
        if let Some(held) = &mut self.tally.held {
            held.done(number, completion, self.tables.now);
            return;
        }
        self.finish_send(number, &completion);
    }

    fn complete_receive(&mut self, number: u32, completion: Completion) {
        self.tally.receives += 1;
        let is_there = if self.tables.is_recorded() {
            let is_told = self.tell_receive(number, &completion);
            self.complete_recorded(self.receive_cq, &completion, is_told)
        } else {
            self.complete(self.receive_cq, &completion)
        };
        if is_there {
            self.tally.ended.count_receive(completion.status);
        }
    }

    fn event(&mut self, qpn: Qpn, event: Event) {
        self.tables.events.push(AsyncEvent::QueuePair(qpn, event));
    }
}

fn piece(lkey: Lkey, address: u64, len: usize) -> Result<Sge, Denied> {
    let length = u32::try_from(len).map_err(|_| Denied::OutOfRange)?;
    Ok(Sge { address, length, lkey })
}

/// The device as one queue pair sees it.
pub(super) fn view<'a>(
    tables: &'a mut Tables,
    send_cq: CqId,
    receive_cq: CqId,
    tally: &'a mut Tally,
) -> View<'a> {
    View { tables, send_cq, receive_cq, tally }
}
