//! Queues of posted work. All memory is taken when a queue is made; posting copies into it.

use crate::work::{Data, DatagramDest, SendFlags, SendOp, SendRequest, Sge};
use ferroce_wire::{Lkey, Msn, Psn};

/// A posted send request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWork {
    pub(crate) id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) dest: Option<DatagramDest>,
    /// Bytes of the message.
    pub(crate) length: u32,
    /// PSN of its first packet.
    pub(crate) first_psn: Psn,
    /// How many PSNs it takes: packets sent, or packets of the response to a READ.
    pub(crate) packets: u32,
    /// Its number among the messages of this queue pair.
    pub(crate) message: Msn,
    /// READ: how many response packets one request asks for. Chosen when it is first sent
    /// and kept, so that a repeated request never crosses the end of its first form.
    pub(crate) read_chunk: u32,
    /// Local work: done already.
    pub(crate) executed: bool,
    sges: u8,
    inline: Option<u32>,
}

/// The send queue: a ring of requests with their pieces and inline bytes.
#[derive(Debug)]
pub(crate) struct SendQueue {
    work: Box<[SendWork]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    max_sge: usize,
    max_inline: usize,
    /// Number of the oldest request, and of the next to be posted. They count up and wrap.
    head: u32,
    tail: u32,
}

impl SendQueue {
    pub(crate) fn new(depth: u32, max_sge: usize, max_inline: usize) -> Self {
        let slots = depth.max(1).next_power_of_two() as usize;
        let empty = SendWork {
            id: 0,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            dest: None,
            length: 0,
            first_psn: Psn::default(),
            packets: 0,
            message: Msn::default(),
            read_chunk: 0,
            executed: false,
            sges: 0,
            inline: None,
        };
        Self {
            work: vec![empty; slots].into(),
            sges: vec![Sge::default(); slots * max_sge].into(),
            inline: vec![0; slots * max_inline].into(),
            max_sge,
            max_inline,
            head: 0,
            tail: 0,
        }
    }

    fn slot(&self, number: u32) -> usize {
        number as usize & (self.work.len() - 1)
    }

    /// Requests that are posted and not yet retired.
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// How many were posted and how many are done, ever. Both wrap.
    pub(crate) const fn totals(&self) -> (u32, u32) {
        (self.tail, self.head)
    }

    /// The request with this number, if it is posted.
    pub(crate) fn get(&self, number: u32) -> Option<&SendWork> {
        (number.wrapping_sub(self.head) < self.len()).then(|| &self.work[self.slot(number)])
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut SendWork> {
        let slot = self.slot(number);
        (number.wrapping_sub(self.head) < self.len()).then(|| &mut self.work[slot])
    }

    /// Appends a request; the caller has checked its size and that there is room.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        request: &SendRequest<'_>,
        length: u32,
        first_psn: Psn,
        packets: u32,
        message: Msn,
    ) {
        let SendRequest { id, op, flags, dest, data } = *request;
        let slot = self.slot(self.tail);
        let (mut sges, mut inline) = (0, None);
        match data {
            Data::Gather(list) => {
                match (list, self.sges.get_mut(slot * self.max_sge)) {
                    ([one], Some(place)) => *place = *one,
                    _ => self.sges[slot * self.max_sge..][..list.len()].copy_from_slice(list),
                }
                sges = u8::try_from(list.len()).unwrap_or(u8::MAX);
            }
            Data::Inline(bytes) => {
                self.inline[slot * self.max_inline..][..bytes.len()].copy_from_slice(bytes);
                inline = Some(length);
            }
        }
        self.work[slot] = SendWork {
            id,
            op,
            flags,
            dest,
            length,
            first_psn,
            packets,
            message,
            read_chunk: 0,
            executed: false,
            sges,
            inline,
        };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Removes the oldest request.
    pub(crate) fn retire_oldest(&mut self) {
        self.head = self.head.wrapping_add(u32::from(self.len() > 0));
    }

    /// Removes and returns the oldest request.
    pub(crate) fn pop(&mut self) -> Option<SendWork> {
        let work = *self.get(self.head)?;
        self.head = self.head.wrapping_add(1);
        Some(work)
    }

    /// The pieces of a request's bytes, none if they are inline.
    pub(crate) fn sges(&self, number: u32) -> &[Sge] {
        let slot = self.slot(number);
        &self.sges[slot * self.max_sge..][..usize::from(self.work[slot].sges)]
    }

    /// Where the bytes of a request are.
    #[inline(always)]
    pub(crate) fn data(&self, number: u32) -> Data<'_> {
        let slot = self.slot(number);
        let work = &self.work[slot];
        match work.inline {
            Some(len) => Data::Inline(&self.inline[slot * self.max_inline..][..len as usize]),
            None => Data::Gather(&self.sges[slot * self.max_sge..][..usize::from(work.sges)]),
        }
    }

    /// A request was posted, and is done already.
    #[inline]
    pub(crate) const fn skip_one(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.tail = self.tail.wrapping_add(1);
    }

    /// The number of the last posted request that names memory of this key.
    pub(crate) fn last_use(&self, lkey: Lkey) -> Option<u32> {
        let mut numbers = (0..self.len()).rev().map(|ahead| self.head.wrapping_add(ahead));
        numbers.find(|number| self.sges(*number).iter().any(|sge| sge.lkey == lkey))
    }

    /// The bytes of an inline request.
    pub(crate) fn inline(&self, number: u32) -> Option<&[u8]> {
        let slot = self.slot(number);
        let len = self.work[slot].inline?;
        Some(&self.inline[slot * self.max_inline..][..len as usize])
    }
}

/// A receive request that was taken off its queue.
#[derive(Clone, Debug, Default)]
pub struct Receive {
    id: u64,
    sges: Vec<Sge>,
    length: u64,
}

impl Receive {
    /// Room for a request of up to `max_sge` pieces.
    #[must_use]
    pub fn with_capacity(max_sge: usize) -> Self {
        Self { id: 0, sges: Vec::with_capacity(max_sge), length: 0 }
    }

    /// Becomes this request. Allocates only if it has more pieces than there is capacity for.
    pub fn set(&mut self, id: u64, sges: &[Sge]) {
        self.id = id;
        self.sges.clear();
        self.sges.extend_from_slice(sges);
        self.length = sges.iter().map(|sge| u64::from(sge.length)).sum();
    }

    /// The program's name for it.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its pieces.
    #[must_use]
    pub fn sges(&self) -> &[Sge] {
        &self.sges
    }

    /// Bytes that it can take.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }
}

/// A receive queue, of one queue pair or shared: a ring of requests with their pieces.
#[derive(Debug)]
pub struct ReceiveQueue {
    ids: Box<[(u64, u8)]>,
    sges: Box<[Sge]>,
    max_sge: usize,
    depth: u32,
    head: u32,
    tail: u32,
}

impl ReceiveQueue {
    /// A queue for `depth` requests of up to `max_sge` pieces.
    #[must_use]
    pub fn new(depth: u32, max_sge: usize) -> Self {
        let slots = depth.max(1).next_power_of_two() as usize;
        Self {
            ids: vec![(0, 0); slots].into(),
            sges: vec![Sge::default(); slots * max_sge].into(),
            max_sge,
            depth,
            head: 0,
            tail: 0,
        }
    }

    /// Requests that wait.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// How many were posted and how many were taken, ever. Both wrap.
    #[must_use]
    pub const fn totals(&self) -> (u32, u32) {
        (self.tail, self.head)
    }

    /// Whether none waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// The number of the last waiting request that names memory of this key. It looks at all of them.
    #[must_use]
    pub fn last_use(&self, lkey: Lkey) -> Option<u32> {
        (0..self.len()).rev().map(|ahead| self.head.wrapping_add(ahead)).find(|number| {
            let slot = *number as usize & (self.ids.len() - 1);
            let sges = &self.sges[slot * self.max_sge..][..usize::from(self.ids[slot].1)];
            sges.iter().any(|sge| sge.lkey == lkey)
        })
    }

    /// Whether the request with this number waits.
    #[must_use]
    pub const fn has(&self, number: u32) -> bool {
        number.wrapping_sub(self.head) < self.len()
    }

    /// Appends a request. False, and nothing changed, if the queue is full or the request has too many pieces.
    pub fn push(&mut self, id: u64, sges: &[Sge]) -> bool {
        let Ok(count) = u8::try_from(sges.len()) else { return false };
        if self.len() >= self.depth || sges.len() > self.max_sge {
            return false;
        }
        let slot = self.tail as usize & (self.ids.len() - 1);
        self.ids[slot] = (id, count);
        self.sges[slot * self.max_sge..][..sges.len()].copy_from_slice(sges);
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Moves all waiting requests to another queue, which is empty and takes as many pieces, under the numbers
    /// that they have here. False, and nothing changed, if it has no room for them.
    pub fn move_to(&mut self, other: &mut Self) -> bool {
        if self.len() > other.depth || !other.is_empty() || self.max_sge > other.max_sge {
            return false;
        }
        (other.head, other.tail) = (self.head, self.head);
        while !self.is_empty() {
            let slot = self.head as usize & (self.ids.len() - 1);
            let (id, count) = self.ids[slot];
            let sges = &self.sges[slot * self.max_sge..][..usize::from(count)];
            other.push(id, sges);
            self.head = self.head.wrapping_add(1);
        }
        true
    }

    /// Moves the oldest request into `receive`; false if there is none.
    pub fn pop_into(&mut self, receive: &mut Receive) -> bool {
        if self.is_empty() {
            return false;
        }
        let slot = self.head as usize & (self.ids.len() - 1);
        let (id, count) = self.ids[slot];
        receive.set(id, &self.sges[slot * self.max_sge..][..usize::from(count)]);
        self.head = self.head.wrapping_add(1);
        true
    }
}
