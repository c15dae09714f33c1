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
    /// Its bytes are in the queue, all of them.
    is_inline: bool,
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
            is_inline: false,
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
        let (mut sges, mut is_inline) = (0, false);
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
                is_inline = true;
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
            is_inline,
        };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Removes the oldest request.
    pub(crate) fn retire_oldest(&mut self) {
        self.head = self.head.wrapping_add(u32::from(self.len() > 0));
    }

    /// Removes and returns the oldest request, and its number.
    pub(crate) fn pop(&mut self) -> Option<(u32, SendWork)> {
        let number = self.head;
        let work = *self.get(number)?;
        self.head = number.wrapping_add(1);
        Some((number, work))
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
        if work.is_inline {
            Data::Inline(&self.inline[slot * self.max_inline..][..work.length as usize])
        } else {
            Data::Gather(&self.sges[slot * self.max_sge..][..usize::from(work.sges)])
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
        let SendWork { length, is_inline, .. } = self.work[slot];
        is_inline.then(|| &self.inline[slot * self.max_inline..][..length as usize])
    }
}

/// A receive request that was taken off its queue.
#[derive(Clone, Debug, Default)]
pub struct Receive {
    id: u64,
    number: u32,
    sges: Vec<Sge>,
    length: u64,
}

impl Receive {
    /// Room for a request of up to `max_sge` pieces.
    #[must_use]
    pub fn with_capacity(max_sge: usize) -> Self {
        Self { id: 0, number: 0, sges: Vec::with_capacity(max_sge), length: 0 }
    }

    /// Becomes this request, which has this number in its queue. Allocates only if it has more pieces than there is
    /// capacity for.
    #[inline(always)]
    pub fn set(&mut self, number: u32, id: u64, sges: &[Sge]) {
        self.number = number;
        self.id = id;
        // Most have one piece, as the one before had.
        if let ([sge], [place]) = (sges, &mut self.sges[..]) {
            *place = *sge;
            self.length = sge.length.into();
            return;
        }
        self.sges.clear();
        self.sges.extend_from_slice(sges);
        self.length = sges.iter().map(|sge| u64::from(sge.length)).sum();
    }

    /// The program's name for it.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its number in its queue.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
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

    /// Requests that it takes.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth
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
    #[inline]
    pub fn push(&mut self, id: u64, sges: &[Sge]) -> bool {
        let Ok(count) = u8::try_from(sges.len()) else { return false };
        if self.len() >= self.depth || sges.len() > self.max_sge {
            return false;
        }
        let slot = self.tail as usize & (self.ids.len() - 1);
        self.ids[slot] = (id, count);
        match (sges, self.sges.get_mut(slot * self.max_sge)) {
            ([one], Some(place)) => *place = *one,
            _ => self.sges[slot * self.max_sge..][..sges.len()].copy_from_slice(sges),
        }
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// A request was posted, and is done already.
    pub(crate) const fn skip_one(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.tail = self.tail.wrapping_add(1);
    }

    /// The requests that wait, oldest first: number, name and pieces.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64, &[Sge])> {
        (0..self.len()).map(|ahead| {
            let number = self.head.wrapping_add(ahead);
            let slot = number as usize & (self.ids.len() - 1);
            let (id, count) = self.ids[slot];
            (number, id, &self.sges[slot * self.max_sge..][..usize::from(count)])
        })
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

    /// The oldest request, if it has one piece: its number, its name and the piece.
    #[inline(always)]
    pub(crate) fn oldest_in_one(&self) -> Option<(u32, u64, &Sge)> {
        let slot = self.head as usize & (self.ids.len() - 1);
        let &(id, 1) = self.ids.get(slot).filter(|_| !self.is_empty())? else { return None };
        Some((self.head, id, self.sges.get(slot * self.max_sge)?))
    }

    /// Moves the oldest request into `receive`; false if there is none.
    #[inline]
    pub fn pop_into(&mut self, receive: &mut Receive) -> bool {
        let taken = self.peek_into(receive);
        self.head = self.head.wrapping_add(u32::from(taken));
        taken
    }

    /// Takes the oldest request off, which is there.
    #[inline]
    pub(crate) const fn drop_oldest(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    /// Copies the oldest request into `receive`, and leaves it in the queue; false if there is none.
    #[inline]
    pub fn peek_into(&self, receive: &mut Receive) -> bool {
        if self.is_empty() {
            return false;
        }
        let slot = self.head as usize & (self.ids.len() - 1);
        let (id, count) = self.ids[slot];
        receive.set(self.head, id, &self.sges[slot * self.max_sge..][..usize::from(count)]);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are as many of them as a queue is deep, of each queue pair.
    #[test]
    fn a_posted_request_takes_no_more_memory_than_it_needs() {
        assert_eq!(size_of::<SendWork>(), 104);
    }

    fn sge(lkey: u32) -> Sge {
        Sge { address: 0x1000, length: 10, lkey: Lkey(lkey) }
    }

    fn post(queue: &mut SendQueue, id: u64, data: Data<'_>) {
        let request = SendRequest { id, op: SendOp::Send, data, flags: SendFlags::empty(), dest: None };
        let length = match data {
            Data::Gather(sges) => sges.iter().map(|sge| sge.length).sum(),
            Data::Inline(bytes) => u32::try_from(bytes.len()).unwrap(),
        };
        queue.push(&request, length, Psn::default(), 1, Msn::default());
    }

    #[test]
    fn sends_keep_their_pieces_and_bytes_however_often_the_ring_goes_round() {
        let mut queue = SendQueue::new(3, 2, 4);
        for round in 0..20_u8 {
            let number = queue.totals().0;
            let both = [sge(round.into()), sge(200)];
            post(&mut queue, 1, Data::Gather(&both));
            post(&mut queue, 2, Data::Inline(&[round; 3]));
            post(&mut queue, 3, Data::Gather(&both[..1]));
            assert_eq!((queue.len(), queue.head()), (3, number));
            assert_eq!(queue.sges(number), both);
            assert_eq!((queue.inline(number), queue.inline(number + 1)), (None, Some(&[round; 3][..])));
            assert_eq!(queue.data(number + 1), Data::Inline(&[round; 3]));
            assert_eq!(queue.data(number + 2), Data::Gather(&both[..1]));
            assert_eq!(queue.last_use(Lkey(round.into())), Some(number + 2), "the last that names it");
            assert_eq!((queue.last_use(Lkey(200)), queue.last_use(Lkey(201))), (Some(number), None));
            assert_eq!(queue.get(number + 1).map(|work| work.id), Some(2));
            assert!(queue.get(number.wrapping_sub(1)).is_none() && queue.get(number + 3).is_none());
            assert!(queue.get_mut(number + 2).is_some() && queue.get_mut(number + 3).is_none());
            queue.retire_oldest();
            assert_eq!(
                [queue.pop(), queue.pop()].map(|work| work.map(|(_, work)| work.id)),
                [Some(2), Some(3)]
            );
            assert!(queue.pop().is_none());
            queue.retire_oldest();
            assert_eq!((queue.len(), queue.totals()), (0, (number + 3, number + 3)), "none is left");
            queue.skip_one();
            assert_eq!((queue.len(), queue.totals()), (0, (number + 4, number + 4)));
        }
    }

    #[test]
    fn receives_come_out_as_they_went_in() {
        let mut queue = ReceiveQueue::new(3, 2);
        let mut receive = Receive::with_capacity(2);
        assert!(queue.is_empty() && !queue.pop_into(&mut receive) && !queue.peek_into(&mut receive));
        for round in 0..20 {
            let first = queue.totals().0;
            assert!(queue.push(round, &[sge(1), sge(2)]));
            assert!(queue.push(round + 1, &[sge(2)]));
            assert!(!queue.push(9, &[sge(3); 3]), "more pieces than it was made for");
            assert!(queue.push(round + 2, &[]));
            assert!(!queue.push(9, &[]), "as many as it was made for");
            assert_eq!((queue.len(), queue.is_empty(), queue.totals()), (3, false, (first + 3, first)));
            let last = [1, 2, 3].map(|key| queue.last_use(Lkey(key)));
            assert_eq!(last, [Some(first), Some(first + 1), None]);
            for number in first..first + 3 {
                assert!(queue.has(number) && !queue.has(number + 3) && !queue.has(first.wrapping_sub(1)));
            }
            for (id, pieces, length) in [(round, 2, 20), (round + 1, 1, 10), (round + 2, 0, 0)] {
                let waiting = queue.len();
                assert!(queue.peek_into(&mut receive) && queue.len() == waiting, "it stays");
                assert_eq!((receive.id(), receive.sges().len(), receive.length()), (id, pieces, length));
                receive.set(0, 99, &[]);
                assert!(queue.pop_into(&mut receive) && queue.len() == waiting - 1);
                assert_eq!((receive.id(), receive.sges().len(), receive.length()), (id, pieces, length));
            }
            assert!(!queue.has(first + 2) && !queue.pop_into(&mut receive));
        }
        assert!(!ReceiveQueue::new(1, 1000).push(1, &[sge(1); 256]), "a number of pieces is a byte");
    }

    #[test]
    fn receives_move_to_another_queue_under_their_numbers() {
        let filled = |depth| {
            let mut queue = ReceiveQueue::new(4, 2);
            let mut receive = Receive::default();
            assert!(queue.push(0, &[]) && queue.pop_into(&mut receive));
            assert!((0..depth).all(|id| queue.push(id, &[sge(7), sge(8)])));
            queue
        };
        let mut other = ReceiveQueue::new(3, 3);
        assert!(filled(3).move_to(&mut other), "just as many, and room for more pieces");
        assert_eq!((other.len(), other.totals(), other.last_use(Lkey(8))), (3, (4, 1), Some(3)));
        let mut receive = Receive::default();
        for id in 0..3 {
            assert!(other.pop_into(&mut receive));
            assert_eq!((receive.id(), receive.sges()), (id, &[sge(7), sge(8)][..]));
        }
        let mut full = ReceiveQueue::new(3, 2);
        assert!(full.push(1, &[]));
        for (mut from, mut to) in
            [(filled(4), ReceiveQueue::new(3, 2)), (filled(1), ReceiveQueue::new(3, 1)), (filled(1), full)]
        {
            let before = (from.len(), to.len());
            assert!(!from.move_to(&mut to));
            assert_eq!((from.len(), to.len()), before, "nothing has changed");
        }
        let mut to = ReceiveQueue::new(3, 2);
        let mut from = filled(2);
        assert!(from.move_to(&mut to) && from.is_empty());
    }
}
