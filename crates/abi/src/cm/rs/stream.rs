//! A connected stream: the two buffers, the messages that fill them, and the credits that keep both sides from
//! overrunning each other.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use ferroce_cabi::{IBV_QPT_RC, ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp_cap, ibv_qp_init_attr};
use ferroce_device::{Channel, CompletionQueue, Notify};
use ferroce_transport::{
    Completion, Data, ReceiveRequest, Remote, SendFlags, SendOp, SendRequest, Sge, Status,
};
use ferroce_wire::{Imm, Lkey, Rkey};

use super::buffer::{Buffer, Parts};
use super::iomap::Maps;
use super::options::Sizes;
use super::proto::{ENTRIES, ENTRY, Introduction, MAPPED, Mapping, Place, Word};
use crate::channel::{CompChannel, ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::cm::id::Id;
use crate::cm::qp;
use crate::cq::{Cq, ibv_create_cq, ibv_destroy_cq};
use crate::qp::{Qp, ibv_create_qp};
use crate::refusal::{Answer, Refused, last_errno};

/// Messages without credits that may be on their way.
const CONTROL: u32 = 4;
/// The least room in the send buffer that is worth a message.
const LOW_WATER: usize = 2048;
/// The first piece of what is sent at once, and the largest. A small first piece would let the peer begin sooner, but each costs a
/// system call at both ends: with one of 16 KiB messages of 64 KiB had two thirds of this rate.
const FIRST_PIECE: usize = 65_536;
const LARGEST_PIECE: usize = 131_072;
/// Completions that are looked at together.
const BATCH: usize = 32;

/// Names of requests: what they were, and how many bytes of the send buffer they hold.
const RECEIVE: u64 = 0;
const DATA: u64 = 1 << 56;
const WORD: u64 = 2 << 56;

/// A connected stream, or one that is about to be.
pub(super) struct Stream {
    id: Arc<Id>,
    qp: Arc<ferroce_device::Qp>,
    cq: Arc<CompletionQueue>,
    channel: Arc<Channel>,
    /// As C knows them; they are destroyed with the stream.
    objects: (*mut ibv_cq, *mut ibv_comp_channel),
    pub(super) maps: Maps,
    sizes: Sizes,
    /// None once the queue pair is gone.
    send: Option<Buffer>,
    receive: Option<Buffer>,
    /// Our list of places in the peer's buffer, and our table of the peer's mapped memory: the peer writes both.
    target: Option<Buffer>,

    /// What the peer said of itself.
    peer: Option<Introduction>,
    /// The places in the peer's buffer, and which of them is written to.
    places: [Place; ENTRIES as usize],
    at_place: usize,
    sent: u16,
    may_send: u16,
    send_head: usize,
    send_room: usize,
    slots: u32,
    words: u32,

    messages: VecDeque<u32>,
    waiting: usize,
    head: usize,
    /// Bytes of the receive buffer that the peer was not told of, and where they begin.
    free: usize,
    free_at: usize,
    received: u16,
    tell_at: u16,
    at_entry: u32,

    under_way: u32,
    pub(super) stands: bool,
    /// Whether messages may come, and may go.
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// The program has said that it sends no more.
    pub(super) shut: bool,
    pub(super) error: Option<i32>,
    /// Nothing that is under way arrives any more.
    pub(super) over: bool,
}

// SAFETY: the pointers are to objects that every thread may use, and that only the stream destroys.
unsafe impl Send for Stream {}

impl Stream {
    /// The queue pair of an id that has its device, with buffers and receives.
    pub(super) fn new(id: &Arc<Id>, sizes: Sizes) -> Answer<Self> {
        let pd = id.pd();
        // SAFETY: the context of an id is an open one.
        let channel = unsafe { ibv_create_comp_channel(id.verbs()) };
        if channel.is_null() {
            return Err(last_errno("no completion channel"));
        }
        // SAFETY: as above.
        let cq = unsafe { ibv_create_cq(id.verbs(), sizes.entries(), std::ptr::null_mut(), channel, 0) };
        if cq.is_null() {
            let refused = last_errno("no completion queue");
            // SAFETY: it was made just now.
            unsafe { ibv_destroy_comp_channel(channel) };
            return Err(refused);
        }
        let made = Self::with_queue(id, sizes, pd, (cq, channel));
        if made.is_err() {
            qp::destroy(id);
            destroy((cq, channel));
        }
        made
    }

    fn with_queue(
        id: &Arc<Id>,
        sizes: Sizes,
        pd: *mut ibv_pd,
        objects: (*mut ibv_cq, *mut ibv_comp_channel),
    ) -> Answer<Self> {
        let mut attr = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: objects.0,
            recv_cq: objects.0,
            srq: std::ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: sizes.send_queue.into(),
                max_recv_wr: sizes.receive_queue.into(),
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: u32::try_from(sizes.inline.max(MAPPED)).unwrap_or(64),
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 1,
        };
        qp::create(id, pd, &mut attr, |pd, attr| {
            // SAFETY: the domain and the queue are live.
            unsafe { ibv_create_qp(pd, attr) }
        })?;
        // SAFETY: both were made just now.
        let (made, queue) = (unsafe { Qp::of(id.qp()) }?, unsafe { Cq::of(objects.0) }?);
        // SAFETY: as above.
        let channel = unsafe { CompChannel::of(objects.1) }?;
        let target = ENTRY * ENTRIES as usize + MAPPED * usize::from(sizes.mapped);
        let stream = Self {
            id: Arc::clone(id),
            qp: Arc::clone(&made.qp),
            cq: Arc::clone(&queue.queue),
            channel: Arc::clone(&channel.channel),
            objects,
            maps: Maps::default(),
            send: Some(Buffer::new(pd, sizes.send_buffer, false)?),
            receive: Some(Buffer::new(pd, sizes.receive_buffer, true)?),
            target: Some(Buffer::new(pd, target, true)?),
            peer: None,
            places: [Place::default(); ENTRIES as usize],
            at_place: 0,
            sent: 0,
            may_send: 0,
            send_head: 0,
            send_room: sizes.send_buffer,
            slots: u32::from(sizes.send_queue).saturating_sub(CONTROL),
            words: CONTROL,
            messages: VecDeque::with_capacity(sizes.receive_queue.into()),
            waiting: 0,
            head: 0,
            free: sizes.receive_buffer / 2,
            free_at: sizes.receive_buffer / 2,
            received: 0,
            tell_at: sizes.receive_queue / 2,
            at_entry: 1,
            under_way: 0,
            stands: false,
            reads: true,
            writes: true,
            shut: false,
            error: None,
            over: false,
            sizes,
        };
        stream.post_receives(usize::from(sizes.receive_queue))?;
        Ok(stream)
    }

    /// What the peer is told.
    pub(super) fn introduction(&self) -> Introduction {
        let place = |buffer: &Option<Buffer>, length: usize| {
            let (address, key) = buffer.as_ref().map_or((0, 0), |buffer| (buffer.address(0), buffer.rkey));
            Place { address, key, length: u32::try_from(length).unwrap_or(u32::MAX) }
        };
        Introduction {
            is_big_endian: cfg!(target_endian = "big"),
            maps_memory: true,
            credits: self.sizes.receive_queue,
            mapped: self.sizes.mapped,
            list: place(&self.target, ENTRIES as usize),
            buffer: place(&self.receive, self.sizes.receive_buffer / 2),
        }
    }

    /// What the peer said.
    pub(super) fn meet(&mut self, peer: Introduction) {
        self.peer = Some(peer);
        self.places[0] = peer.buffer;
        self.may_send = peer.credits;
        if peer.list.length < 2 {
            self.at_entry = 0;
        }
    }

    /// The connection stands, unless the peer has ended it already: its words may come before this is known.
    pub(super) fn begin(&mut self) {
        self.stands = self.reads || self.writes;
        self.progress();
        self.give_credits();
    }

    /// The descriptor that is readable when something has completed since it was armed.
    pub(super) fn descriptor(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    pub(super) fn arm(&self) {
        while self.channel.pop().is_some() {}
        self.cq.arm(Notify::Any);
    }

    fn post_receives(&self, mut count: usize) -> Answer<()> {
        const EMPTY: ReceiveRequest<'static> = ReceiveRequest { id: RECEIVE, sges: &[] };
        while count > 0 {
            let some = count.min(BATCH);
            let posted = self.qp.post_receive(&[EMPTY; BATCH][..some]);
            posted.map_err(|refused| Refused::from(refused.error))?;
            count -= some;
        }
        Ok(())
    }

    /// Sees what has completed; whether anything had.
    pub(super) fn progress(&mut self) -> bool {
        let mut batch = [Completion::EMPTY; BATCH];
        let mut any = false;
        loop {
            let count = self.cq.poll(&mut batch);
            let mut receives = 0;
            for completion in &batch[..count] {
                if completion.id == RECEIVE {
                    receives += usize::from(self.has_received(completion));
                } else {
                    self.has_sent(completion);
                }
            }
            any |= count > 0;
            if receives > 0 && self.post_receives(receives).is_err() {
                self.fails(libc::ECONNRESET);
            }
            if count < BATCH {
                break;
            }
        }
        if any {
            self.give_credits();
        }
        any
    }

    fn has_sent(&mut self, completion: &Completion) {
        self.under_way = self.under_way.saturating_sub(1);
        if completion.id & WORD != 0 {
            self.words += 1;
        } else {
            self.slots += 1;
        }
        let bytes = usize::try_from(completion.id & 0xffff_ffff).unwrap_or(0);
        self.send_room = (self.send_room + bytes).min(self.sizes.send_buffer);
        if completion.status != Status::Success {
            self.fails(libc::ECONNRESET);
        }
    }

    /// Whether the receive is to be posted again.
    fn has_received(&mut self, completion: &Completion) -> bool {
        if completion.status != Status::Success {
            self.fails(libc::ECONNRESET);
            return false;
        }
        match Word::parse(completion.imm.unwrap_or(u32::MAX)) {
            // There is nothing to read of it.
            Word::Data(0) => self.received = self.received.wrapping_add(1),
            Word::Data(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let room = self.sizes.receive_buffer.saturating_sub(self.free + self.waiting);
                if length > room || self.messages.len() >= usize::from(self.sizes.receive_queue) {
                    // It says that it wrote what it was given no place for.
                    self.fails(libc::EPROTO);
                    return false;
                }
                self.waiting += length;
                self.messages.push_back(u32::try_from(length).unwrap_or(0));
            }
            Word::Credits(number) => self.may_send = number,
            Word::Disconnect => self.parts(),
            Word::Shutdown => {
                self.reads = false;
                if !self.writes {
                    self.parts();
                }
            }
            Word::Mapped(_) | Word::KeepAlive | Word::Unknown => {}
        }
        true
    }

    /// Nothing comes or goes any more, as agreed.
    pub(super) const fn parts(&mut self) {
        (self.stands, self.reads, self.writes) = (false, false, false);
    }

    /// Nothing comes or goes any more. It is no error if both sides had said so before.
    pub(super) fn fails(&mut self, error: i32) {
        if self.stands || self.reads || self.writes {
            self.error = Some(error);
        }
        self.over = true;
        self.parts();
    }

    /// Whether there is something to read, if only the end.
    pub(super) fn can_read(&self) -> bool {
        self.waiting > 0 || !self.reads
    }

    pub(super) fn can_write(&mut self) -> bool {
        !self.writes || self.has_room() && self.sent != self.may_send && self.place().length > 0
    }

    fn has_room(&self) -> bool {
        self.slots > 0 && self.send_room >= LOW_WATER.min(self.sizes.send_buffer)
    }

    /// The place in the peer's buffer that is written to next.
    fn place(&mut self) -> Place {
        let place = &mut self.places[self.at_place];
        if place.length == 0
            && let Some(target) = &self.target
        {
            // The peer has put another one there since, or will.
            *place = Place::parse(target.read(self.at_place * ENTRY));
            if place.length > 0
                && let Some(target) = &mut self.target
            {
                target.write(self.at_place * ENTRY, &Place::default().emit(false));
            }
        }
        self.places[self.at_place]
    }

    /// Sends as much as there is room for; how much.
    pub(super) fn send(&mut self, parts: &mut Parts<'_>) -> Answer<usize> {
        self.send_maps()?;
        let (mut whole, mut piece) = (0, FIRST_PIECE);
        while self.writes && self.can_write() {
            let left = parts.left();
            if left == 0 {
                break;
            }
            let place = self.place();
            let room = self.send_room.min(usize::try_from(place.length).unwrap_or(usize::MAX));
            let len = left.min(piece).min(room);
            piece = (piece * 2).min(LARGEST_PIECE);
            let word = Word::Data(u32::try_from(len).unwrap_or(0));
            let remote = Remote { address: place.address, rkey: Rkey(place.key) };
            self.post(parts, len, SendOp::WriteImm(remote, Imm(word.emit())))?;
            self.sent = self.sent.wrapping_add(1);
            let used = u32::try_from(len).unwrap_or(u32::MAX);
            let place = &mut self.places[self.at_place];
            place.address = place.address.wrapping_add(used.into());
            place.length = place.length.saturating_sub(used);
            if place.length == 0 {
                self.at_place = (self.at_place + 1) % self.places.len();
            }
            whole += len;
        }
        Ok(whole)
    }

    /// Writes into memory that the peer has mapped; how much.
    pub(super) fn write_mapped(&mut self, parts: &mut Parts<'_>, offset: u64) -> Answer<usize> {
        self.send_maps()?;
        let mut whole = 0;
        while self.writes && self.has_room() && parts.left() > 0 {
            let place = self.mapped(offset + whole as u64)?;
            let len = parts.left().min(LARGEST_PIECE).min(self.send_room).min(place.length as usize);
            let remote = Remote { address: place.address, rkey: Rkey(place.key) };
            self.post(parts, len, SendOp::Write(remote))?;
            whole += len;
        }
        Ok(whole)
    }

    pub(super) fn can_write_mapped(&self) -> bool {
        !self.writes || self.has_room()
    }

    /// Where an offset of the peer's mapped memory is.
    fn mapped(&self, offset: u64) -> Answer<Place> {
        let first = ENTRY * ENTRIES as usize;
        let target = self.target.as_ref();
        let mut entries = (0..usize::from(self.sizes.mapped))
            .filter_map(|index| Some(Mapping::parse(target?.read(first + index * MAPPED))));
        let found = entries.find_map(|mapping| mapping.find(offset));
        found.ok_or_else(|| Refused::new(libc::EFAULT, "the peer has mapped nothing there"))
    }

    /// Copies bytes of the program into the send buffer, or into the request, and posts it.
    fn post(&mut self, parts: &mut Parts<'_>, len: usize, op: SendOp) -> Answer<()> {
        let id = DATA | len as u64;
        if len <= self.sizes.inline.min(INLINE) {
            let mut bytes = [0; INLINE];
            // SAFETY: the place has room for so many.
            unsafe { parts.take(bytes.as_mut_ptr(), len) };
            self.post_one(id, op, Data::Inline(&bytes[..len]))?;
        } else {
            let Some(send) = &self.send else { return Err(closed()) };
            let first = len.min(self.sizes.send_buffer - self.send_head);
            let sge = |offset: usize, len: usize| Sge {
                address: send.address(offset),
                length: u32::try_from(len).unwrap_or(0),
                lkey: Lkey(send.lkey),
            };
            let sges = [sge(self.send_head, first), sge(0, len - first)];
            // SAFETY: the part is inside of the buffer, and in no request that is under way: those hold other bytes.
            unsafe { parts.take(send.part(self.send_head, first), first) };
            // SAFETY: as above.
            unsafe { parts.take(send.part(0, len - first), len - first) };
            let used = if first < len { 2 } else { 1 };
            self.post_one(id, op, Data::Gather(&sges[..used]))?;
            self.send_head = (self.send_head + len) % self.sizes.send_buffer;
        }
        self.send_room -= len;
        self.slots -= 1;
        Ok(())
    }

    fn post_one(&mut self, id: u64, op: SendOp, data: Data<'_>) -> Answer<()> {
        let request = SendRequest { id, op, data, flags: SendFlags::SIGNALED, dest: None };
        match self.qp.post_send(&[request]) {
            Ok(()) => {
                self.under_way += 1;
                Ok(())
            }
            Err(refused) => {
                self.fails(libc::ECONNRESET);
                let mut refused = Refused::from(refused.error);
                refused.code = libc::ECONNRESET;
                Err(refused)
            }
        }
    }

    /// Sends a word that takes no credit, perhaps with bytes for the peer's list.
    fn post_word(&mut self, word: Word, remote: Remote, bytes: &[u8]) -> Answer<()> {
        self.post_one(WORD, SendOp::WriteImm(remote, Imm(word.emit())), Data::Inline(bytes))?;
        self.words -= 1;
        Ok(())
    }

    /// Tells the peer what the program has read, when it is time.
    fn give_credits(&mut self) {
        let half = self.sizes.receive_buffer / 2;
        let is_due = self.received.wrapping_sub(self.tell_at).cast_signed() >= 0;
        let has_half = self.free >= half;
        if !self.stands || self.words == 0 || !(has_half || is_due) {
            return;
        }
        let word = Word::Credits(self.received.wrapping_add(self.sizes.receive_queue));
        self.tell_at = self.received.wrapping_add(self.sizes.receive_queue / 2);
        let (Some(peer), Some(receive)) = (self.peer, &self.receive) else { return };
        if has_half && peer.list.length > 0 {
            let place = Place {
                address: receive.address(self.free_at),
                key: receive.rkey,
                length: u32::try_from(half).unwrap_or(u32::MAX),
            };
            let entry = place.emit(self.swaps());
            let address = peer.list.address.wrapping_add(u64::from(self.at_entry) * ENTRY as u64);
            let remote = Remote { address, rkey: Rkey(peer.list.key) };
            self.at_entry = (self.at_entry + 1) % peer.list.length;
            self.free -= half;
            self.free_at = (self.free_at + half) % (2 * half);
            // If it cannot be posted, the stream has failed, which shows at the next call.
            let _ = self.post_word(word, remote, &entry);
        } else {
            let _ = self.post_word(word, NOWHERE, &[]);
        }
    }

    fn swaps(&self) -> bool {
        self.peer.is_some_and(|peer| peer.is_big_endian != cfg!(target_endian = "big"))
    }

    /// Tells the peer of memory that was mapped or is not any more.
    fn send_maps(&mut self) -> Answer<()> {
        while self.writes && self.sent != self.may_send && self.slots > 0 {
            let Some((index, mapping)) = self.maps.next_change() else { break };
            let Some(peer) = self.peer.filter(|peer| index < u32::from(peer.mapped)) else { continue };
            let table = u64::from(peer.list.length) * ENTRY as u64 + u64::from(index) * MAPPED as u64;
            let remote = Remote { address: peer.list.address.wrapping_add(table), rkey: Rkey(peer.list.key) };
            let op = SendOp::WriteImm(remote, Imm(Word::Mapped(index).emit()));
            self.post_one(DATA, op, Data::Inline(&mapping.emit(self.swaps())))?;
            self.slots -= 1;
            self.sent = self.sent.wrapping_add(1);
        }
        Ok(())
    }

    /// How many entries the peer has for memory that we map.
    pub(super) fn most_maps(&self) -> u16 {
        self.peer.map_or(0, |peer| peer.mapped)
    }

    /// Copies what there is into the memory of the program; how much. What is only looked at stays.
    pub(super) fn receive(&mut self, parts: &mut Parts<'_>, peek: bool) -> usize {
        let Some(receive) = &self.receive else { return 0 };
        let (mut whole, mut head, mut index) = (0, self.head, 0);
        while let Some(&message) = self.messages.get(index) {
            let len = parts.left().min(message as usize);
            if len == 0 && message > 0 {
                break;
            }
            let first = len.min(self.sizes.receive_buffer - head);
            // SAFETY: the part is inside of the buffer.
            unsafe { parts.fill(receive.part(head, first), first) };
            // SAFETY: as above.
            unsafe { parts.fill(receive.part(0, len - first), len - first) };
            head = (head + len) % self.sizes.receive_buffer;
            whole += len;
            let is_done = len == message as usize;
            if peek {
                index += 1;
            } else if is_done {
                self.messages.pop_front();
                self.received = self.received.wrapping_add(1);
            } else if let Some(first) = self.messages.front_mut() {
                *first -= u32::try_from(len).unwrap_or(0);
            }
            if !is_done {
                break;
            }
        }
        if !peek {
            self.head = head;
            self.waiting -= whole;
            self.free += whole;
            self.give_credits();
        }
        whole
    }

    pub(super) const fn readable_bytes(&self) -> usize {
        self.waiting
    }

    /// Says that no more messages come, or that the connection ends. False if it must be tried again later.
    pub(super) fn say(&mut self, word: Word) -> bool {
        if self.words == 0 {
            return false;
        }
        let _ = self.post_word(word, NOWHERE, &[]);
        true
    }

    /// Asks whether the peer is still there, by a write of nothing: if it is not, the write fails. What is under way
    /// asks already.
    pub(super) fn knock(&mut self) {
        if self.stands
            && self.words > 0
            && self.under_way == 0
            && self.post_one(WORD, SendOp::Write(NOWHERE), Data::Inline(&[])).is_ok()
        {
            self.words -= 1;
        }
    }

    /// Requests that the peer has not acknowledged yet.
    pub(super) const fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Whether all that was sent has arrived, or never will.
    pub(super) const fn is_quiet(&self) -> bool {
        self.under_way == 0
    }
}

/// The largest message that goes along with its request.
const INLINE: usize = 256;

/// A write of no bytes needs no place.
const NOWHERE: Remote = Remote { address: 0, rkey: Rkey(0) };

fn closed() -> Refused {
    Refused::new(libc::EBADF, "the socket is closed")
}

fn destroy((cq, channel): (*mut ibv_cq, *mut ibv_comp_channel)) {
    // SAFETY: the queue pair is gone, and only the stream knew them.
    unsafe { ibv_destroy_cq(cq) };
    // SAFETY: as above; the queue that reported to it is gone.
    unsafe { ibv_destroy_comp_channel(channel) };
}

impl Drop for Stream {
    fn drop(&mut self) {
        qp::destroy(&self.id);
        self.maps.clear();
        (self.send, self.receive, self.target) = (None, None, None);
        destroy(self.objects);
    }
}
