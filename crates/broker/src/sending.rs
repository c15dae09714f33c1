//! Work for one peer: gathered, under way, and done.

use std::collections::VecDeque;
use std::sync::Arc;

use ferroce_verbs::{
    Completion, CompletionQueue, LocalSlice, QueuePair, RemoteSlice, Status, Work, WorkKind,
};

use crate::buffer::{Piece, Post, Slots};
use crate::conn::{Conn, OWN_WORK};
use crate::error::{BrokerError, Full, Why, WorkFailure};
use crate::settings::Settings;

/// What became of work that was posted under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The member that it was posted to.
    pub peer: u32,
    /// The program's name for it.
    pub id: u64,
    /// What it was.
    pub kind: WorkKind,
    /// Whether it was done. A message that was is in the peer's memory; its program may not have seen it yet.
    pub result: Result<(), WorkFailure>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Send,
    Write(RemoteSlice),
    Read(RemoteSlice),
    CompareSwap {
        at: RemoteSlice,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        at: RemoteSlice,
        add: u64,
    },
    /// Tells the peer how many of its messages were taken off.
    Tell(RemoteSlice, [u8; 8]),
    /// A sign of life, to get one in return.
    Heartbeat(RemoteSlice),
}

impl Operation {
    const fn kind(&self) -> WorkKind {
        match self {
            Self::Send => WorkKind::Send,
            Self::Write(_) | Self::Tell(..) | Self::Heartbeat(_) => WorkKind::Write,
            Self::Read(_) => WorkKind::Read,
            Self::CompareSwap { .. } => WorkKind::CompareSwap,
            Self::FetchAdd { .. } => WorkKind::FetchAdd,
        }
    }

    const fn is_own(&self) -> bool {
        matches!(self, Self::Tell(..) | Self::Heartbeat(_))
    }
}

/// The memory that goes with it.
#[derive(Debug)]
pub(crate) enum Memory {
    Nothing,
    Slot { slot: u32, len: usize },
    Piece(Piece),
}

impl Memory {
    fn slice<'a>(&'a self, slots: &'a Slots) -> LocalSlice<'a> {
        match self {
            Self::Nothing => slots.slice(0, 0),
            Self::Slot { slot, len } => slots.slice(*slot, *len),
            Self::Piece(piece) => piece.slice(),
        }
    }
}

/// Work of the program or of our own.
#[derive(Debug)]
struct Entry {
    operation: Operation,
    memory: Memory,
    post: Post,
}

/// What is left of it while it is under way.
#[derive(Debug)]
struct Flying {
    kind: WorkKind,
    is_own: bool,
    id: Option<u64>,
    /// Held until it is done.
    memory: Memory,
}

/// The sending half of one peer.
pub(crate) struct Sending {
    peer: u32,
    ring: u32,
    batch: usize,
    conn: Option<Arc<Conn>>,
    /// Which connection it is; counts up.
    connection: u64,
    gathered: Vec<Entry>,
    flying: VecDeque<Flying>,
    /// The number of the first that is under way. Numbers are the names that the device knows.
    first: u64,
    done: VecDeque<Done>,
    /// Work of the program that has a place: reserved, gathered or under way.
    open: u32,
    /// Work of our own under way.
    own: u32,
    /// Messages that took room at the peer, since the beginning.
    messages: u64,
    /// How many of them it has taken off, as last seen.
    taken_off: u64,
    /// What the peer has to be told when there is a place.
    untold: Option<u64>,
    why: Why,
    doorbells: u64,
    slots: Arc<Slots>,
    /// Slots that hold no message.
    free_slots: Vec<u32>,
}

/// Completions that one look takes off.
const CHUNK: usize = 32;

impl Sending {
    pub(crate) fn new(peer: u32, settings: &Settings, slots: Arc<Slots>) -> Self {
        let batch = settings.batch.min(settings.ring) as usize;
        Self {
            peer,
            ring: settings.ring,
            batch,
            conn: None,
            connection: 0,
            gathered: Vec::with_capacity(batch),
            flying: VecDeque::with_capacity((settings.ring + OWN_WORK) as usize),
            first: 0,
            done: VecDeque::new(),
            open: 0,
            own: 0,
            messages: 0,
            taken_off: 0,
            untold: None,
            why: Why::NotYet,
            doorbells: 0,
            slots,
            free_slots: (0..settings.ring).rev().collect(),
        }
    }

    /// Works on this connection from now on. The one before has been let go.
    pub(crate) fn adopt(&mut self, conn: Arc<Conn>) {
        debug_assert!(self.conn.is_none() && self.gathered.is_empty() && self.flying.is_empty());
        self.connection += 1;
        self.conn = Some(conn);
        (self.first, self.open, self.own) = (0, 0, 0);
        (self.messages, self.taken_off, self.untold) = (0, 0, None);
    }

    /// The connection has ended: all work that is left has failed.
    pub(crate) fn let_go(&mut self, why: Why) {
        self.reap(Look::Take);
        for Flying { kind, is_own, id, memory } in std::mem::take(&mut self.flying) {
            self.finished(kind, is_own, id, memory, Err(WorkFailure::Ended));
        }
        for Entry { operation, memory, post } in std::mem::take(&mut self.gathered) {
            let is_own = operation.is_own();
            self.finished(operation.kind(), is_own, post.id, memory, Err(WorkFailure::Ended));
        }
        self.conn = None;
        self.why = why;
    }

    pub(crate) const fn conn(&self) -> Option<&Arc<Conn>> {
        self.conn.as_ref()
    }

    pub(crate) const fn connection(&self) -> u64 {
        self.connection
    }

    /// How often the doorbell was rung.
    pub(crate) const fn doorbells(&self) -> u64 {
        self.doorbells
    }

    /// The connection, if it is of use.
    pub(crate) fn working(&self) -> Result<&Arc<Conn>, BrokerError> {
        let gone = |why| BrokerError::Gone { peer: self.peer, why };
        let conn = self.conn.as_ref().ok_or(gone(self.why))?;
        match conn.broken() {
            None => Ok(conn),
            Some(why) => Err(gone(why)),
        }
    }

    /// A place in the ring and, for messages, room at the peer; which connection it is for.
    pub(crate) fn reserve(&mut self, takes_room: bool) -> Result<u64, BrokerError> {
        self.working()?;
        if self.full(takes_room).is_some() {
            // What is gathered may be what the place or the room waits for.
            self.ring_doorbell();
            self.reap(Look::Poll);
            self.working()?;
            if let Some(full) = self.full(takes_room) {
                return Err(BrokerError::WouldBlock { peer: self.peer, full });
            }
        }
        self.open += 1;
        self.messages += u64::from(takes_room);
        Ok(self.connection)
    }

    fn full(&mut self, takes_room: bool) -> Option<Full> {
        let ring = self.ring;
        let unpolled = u32::try_from(self.done.len()).unwrap_or(u32::MAX);
        if self.open.saturating_add(unpolled) >= ring {
            return Some(if self.open == 0 { Full::Unpolled { ring } } else { Full::Ring { ring } });
        }
        let conn = self.conn.as_ref()?;
        let room = conn.peer.room;
        if takes_room && self.messages.saturating_sub(self.taken_off) >= u64::from(room) {
            // A peer that claims to have taken off what was never sent gains nothing.
            self.taken_off = conn.taken_off().clamp(self.taken_off, self.messages);
            if self.messages - self.taken_off >= u64::from(room) {
                return Some(Full::Peer { room });
            }
        }
        None
    }

    /// A place for a message, and a slot for its bytes; which connection they are for.
    pub(crate) fn reserve_slot(&mut self) -> Result<(u64, u32), BrokerError> {
        let connection = self.reserve(true)?;
        match self.free_slots.pop() {
            Some(slot) => Ok((connection, slot)),
            None => {
                // Buffers from before the last connection are still held.
                self.give_up_place(connection);
                Err(BrokerError::WouldBlock { peer: self.peer, full: Full::Ring { ring: self.ring } })
            }
        }
    }

    /// Takes back what was reserved for a message that will not be posted.
    pub(crate) fn give_up(&mut self, connection: u64, slot: u32) {
        self.free_slots.push(slot);
        self.give_up_place(connection);
    }

    const fn give_up_place(&mut self, connection: u64) {
        if self.connection == connection && self.conn.is_some() {
            self.open = self.open.saturating_sub(1);
            self.messages = self.messages.saturating_sub(1);
        }
    }

    /// Adds work that has a place, and rings the doorbell if that makes a batch.
    pub(crate) fn gather(&mut self, operation: Operation, memory: Memory, post: Post) {
        self.gathered.push(Entry { operation, memory, post });
        if self.gathered.len() >= self.batch {
            self.ring_doorbell();
        }
    }

    pub(crate) const fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Whether nothing of the program or of our own waits for the peer.
    pub(crate) fn is_idle(&self) -> bool {
        self.flying.is_empty()
    }

    /// Whether nothing is gathered, under way or to be told.
    pub(crate) fn is_settled(&self) -> bool {
        self.flying.is_empty() && self.gathered.is_empty()
    }

    /// Tells the peer how many of its messages were taken off; whether there is a place for that now.
    pub(crate) fn tell(&mut self, taken_off: u64) -> bool {
        self.untold = Some(taken_off);
        self.tell_now();
        self.tell_again(Look::Take)
    }

    /// Looks for a place to tell what could not be told; whether that is done.
    pub(crate) fn tell_again(&mut self, look: Look) -> bool {
        if self.untold.is_some() {
            self.reap(look);
        }
        self.untold.is_none()
    }

    fn tell_now(&mut self) {
        // One place stays for signs of life.
        if self.own + 1 >= OWN_WORK || self.working().is_err() {
            return;
        }
        if let (Some(taken_off), Some(conn)) = (self.untold.take(), &self.conn) {
            let at = conn.peer.credit.slice(..8);
            self.post_own(Operation::Tell(at, taken_off.to_le_bytes()));
        }
    }

    /// Asks the peer for a sign of life.
    pub(crate) fn send_heartbeat(&mut self) {
        if self.own < OWN_WORK
            && let Ok(conn) = self.working()
        {
            let at = conn.peer.credit.slice(..0);
            self.post_own(Operation::Heartbeat(at));
        }
    }

    fn post_own(&mut self, operation: Operation) {
        let Some(conn) = self.conn.clone() else { return };
        let entry = Entry { operation, memory: Memory::Nothing, post: Post::new() };
        let number = self.next_number();
        match entry.work(&conn.qp, &self.slots).id(number).signaled().post() {
            Ok(()) => self.fly(entry),
            // Its places are counted, so it is the queue pair that does not work any more.
            Err(_) => conn.end_failed(Status::LocalQpOperation),
        }
        self.doorbells += 1;
    }

    /// Hands all that is gathered to the device, as one list.
    pub(crate) fn ring_doorbell(&mut self) {
        while !self.gathered.is_empty() {
            let Some(conn) = self.conn.clone() else { return };
            let mut gathered = std::mem::take(&mut self.gathered);
            let number = self.next_number();
            let slots = Arc::clone(&self.slots);
            let (taken, refused) = post_list(&conn.qp, &slots, &gathered, number);
            self.doorbells += 1;
            let mut entries = gathered.drain(..);
            for entry in entries.by_ref().take(taken) {
                self.fly(entry);
            }
            if let Some((error, Entry { operation, memory, post })) = refused.zip(entries.next()) {
                let (kind, failed) = (operation.kind(), Err(WorkFailure::Refused(error)));
                self.finished(kind, operation.is_own(), post.id, memory, failed);
            }
            let rest: Vec<_> = entries.collect();
            if rest.is_empty() {
                self.gathered = gathered;
                // The last of the list, which was refused, would have told when the others are done.
                if refused.is_some() && taken > 0 {
                    self.send_heartbeat();
                }
            } else {
                self.gathered = rest;
            }
        }
    }

    fn next_number(&self) -> u64 {
        self.first + self.flying.len() as u64
    }

    fn fly(&mut self, entry: Entry) {
        let Entry { operation, memory, post } = entry;
        let (kind, is_own) = (operation.kind(), operation.is_own());
        self.own += u32::from(is_own);
        self.flying.push_back(Flying { kind, is_own, id: post.id, memory });
    }

    /// Looks what is done; whether anything is.
    pub(crate) fn reap(&mut self, look: Look) -> bool {
        let Some(conn) = self.conn.clone() else { return false };
        let mut found = [Completion::EMPTY; CHUNK];
        let mut any = false;
        loop {
            let taken = look.at(&conn.send_queue, &mut found);
            for completion in &found[..taken] {
                any = true;
                self.completed(&conn, completion.id, completion.status);
            }
            if taken < CHUNK {
                break;
            }
        }
        if any && self.untold.is_some() {
            self.tell_now();
        }
        any
    }

    /// Work completes in order, so all before it is done.
    fn completed(&mut self, conn: &Conn, number: u64, status: Status) {
        while self.first <= number {
            let Some(Flying { kind, is_own, id, memory }) = self.flying.pop_front() else { break };
            let is_last = self.first == number;
            self.first += 1;
            let result = match status {
                Status::Success => Ok(()),
                _ if !is_last => Ok(()),
                Status::Flushed => Err(WorkFailure::Ended),
                status => Err(WorkFailure::Failed(status)),
            };
            self.finished(kind, is_own, id, memory, result);
        }
        if status != Status::Success {
            conn.end_failed(status);
        }
    }

    fn finished(
        &mut self,
        kind: WorkKind,
        is_own: bool,
        id: Option<u64>,
        memory: Memory,
        result: Result<(), WorkFailure>,
    ) {
        match is_own {
            true => self.own = self.own.saturating_sub(1),
            false => self.open = self.open.saturating_sub(1),
        }
        if let Memory::Slot { slot, .. } = memory {
            self.free_slots.push(slot);
        }
        if let Some(id) = id {
            self.done.push_back(Done { peer: self.peer, id, kind, result });
        }
    }

    /// What is done and has not been told, oldest first.
    pub(crate) fn next_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }
}

/// How to look for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// What is there.
    Take,
    /// The same, but if nothing is, the device works for a moment.
    Poll,
}

impl Look {
    pub(crate) fn at(self, queue: &CompletionQueue, into: &mut [Completion]) -> usize {
        match self {
            Self::Take => queue.take(into),
            Self::Poll => queue.poll(into),
        }
    }
}

/// Posts a list with one doorbell; how many were taken, and why the next was not.
fn post_list(
    qp: &QueuePair,
    slots: &Slots,
    list: &[Entry],
    number: u64,
) -> (usize, Option<ferroce_verbs::PostError>) {
    if let [entry] = list {
        return match entry.work(qp, slots).id(number).signaled().post() {
            Ok(()) => (1, None),
            Err(error) => (0, Some(error)),
        };
    }
    let mut batch = qp.batch();
    batch.reserve(list.len());
    for (place, entry) in list.iter().enumerate() {
        let work = entry.work(qp, slots).id(number + place as u64);
        batch.add(if place + 1 == list.len() { work.signaled() } else { work });
    }
    match batch.post() {
        Ok(()) => (list.len(), None),
        Err(refused) => (refused.taken, Some(refused.error)),
    }
}

impl Entry {
    fn work<'a>(&'a self, qp: &'a QueuePair, slots: &'a Slots) -> Work<'a> {
        let local = self.memory.slice(slots);
        let work = match &self.operation {
            Operation::Send => qp.send(local),
            Operation::Write(to) => qp.write(local, *to),
            Operation::Read(from) => qp.read(local, *from),
            Operation::CompareSwap { at, compare, swap } => qp.compare_swap(local, *at, *compare, *swap),
            Operation::FetchAdd { at, add } => qp.fetch_add(local, *at, *add),
            Operation::Tell(to, bytes) => qp.write_inline(bytes, *to),
            Operation::Heartbeat(to) => qp.write_inline(&[], *to),
        };
        let work = if self.post.fence { work.fence() } else { work };
        match self.post.imm {
            Some(imm) => work.imm(imm),
            None => work,
        }
    }
}
