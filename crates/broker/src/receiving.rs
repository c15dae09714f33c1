//! Messages of one peer, handed to the program one by one.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ferroce_verbs::{AccessError, Completion, MemoryRegion, Status, WorkKind};

use crate::conn::Conn;
use crate::error::{BrokerError, Why};
use crate::lock;
use crate::peer::Peer;
use crate::sending::Look;

/// A member came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A member is there: from now on it can be posted to, and its messages come.
    Joined {
        /// The member.
        peer: u32,
        /// Which life of it: another number means that it has begun anew, and remembers nothing.
        incarnation: u64,
    },
    /// A member is gone. All messages of it were handed over before.
    Left {
        /// The member.
        peer: u32,
        /// Which life of it.
        incarnation: u64,
        /// Whether it said goodbye, or what else is known.
        why: Why,
    },
}

impl Change {
    /// The member that came or went.
    #[must_use]
    pub const fn peer(&self) -> u32 {
        match self {
            Self::Joined { peer, .. } | Self::Left { peer, .. } => *peer,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { peer, incarnation } => {
                write!(f, "member {peer} is there (incarnation {incarnation:016x})")
            }
            Self::Left { peer, why, .. } => write!(f, "member {peer} is gone: {why}"),
        }
    }
}

/// A message, in the memory that it arrived in. That is used again when the function that got it returns.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    region: &'a MemoryRegion,
    start: usize,
    len: usize,
    peer: u32,
    imm: Option<u32>,
    incarnation: u64,
    is_write: bool,
}

impl Message<'_> {
    /// The member that sent it.
    #[must_use]
    pub const fn peer(&self) -> u32 {
        self.peer
    }

    /// The four bytes that its sender added, if it did.
    #[must_use]
    pub const fn imm(&self) -> Option<u32> {
        self.imm
    }

    /// Which life of the sender it comes from.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether it only tells that the peer has written into our memory: then it has no bytes of its own.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        self.is_write
    }

    /// Bytes; of a WRITE, those that were written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// The range is not inside.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        let size = if self.is_write { 0 } else { self.len };
        match offset.checked_add(bytes.len()) {
            Some(end) if end <= size => self.region.read_at(self.start + offset, bytes),
            _ => Err(AccessError::OutOfBounds { offset, len: bytes.len(), size }),
        }
    }

    /// A copy of it; of a WRITE, nothing.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        if self.is_write {
            return Vec::new();
        }
        // It is inside: the device has placed it there.
        self.region.to_vec(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes of member {}, imm {:?})", self.len, self.peer, self.imm)
    }
}

/// Completions that one look takes off.
const CHUNK: usize = 32;

/// The receiving half of one peer. The thread that has its lock hands messages over, so they stay in order.
pub(crate) struct Receiving {
    conn: Option<Arc<Conn>>,
    /// Whether the program knows that the peer is there.
    is_told: bool,
    /// Completions that were taken off and not handed over.
    found: [Completion; CHUNK],
    next: usize,
    end: usize,
    /// Messages that were taken off, since the beginning of the connection, and how many the peer knows of.
    taken_off: u64,
    told: u64,
    tell_after: u64,
    /// Slots of those that it does not know of. They go back to the device before it is told, all at once.
    used: Vec<u64>,
    /// There was no place to tell it.
    is_untold: bool,
}

/// What comes after messages.
enum Next {
    /// Nothing now.
    Nothing,
    /// The end of the connection.
    Ended(Status),
}

/// What the program does with what happens.
pub(crate) struct Callbacks<'a> {
    pub(crate) message: &'a mut dyn FnMut(Message<'_>),
    pub(crate) change: &'a dyn Fn(&Change),
}

impl Receiving {
    pub(crate) const fn new(tell_after: u64) -> Self {
        Self {
            conn: None,
            is_told: false,
            found: [Completion::EMPTY; CHUNK],
            next: 0,
            end: 0,
            taken_off: 0,
            told: 0,
            tell_after,
            used: Vec::new(),
            is_untold: false,
        }
    }

    /// Takes up a new connection, if there is one and the one before is over; whether there is one now.
    pub(crate) fn adopt(&mut self, peer: &Peer) -> bool {
        if self.conn.is_none()
            && let Some(conn) = peer.take_next()
        {
            lock(&peer.sending).adopt(Arc::clone(&conn));
            (self.conn, self.is_told) = (Some(conn), false);
            (self.taken_off, self.told, self.is_untold) = (0, 0, false);
            (self.next, self.end) = (0, 0);
            self.used.clear();
        }
        self.conn.is_some()
    }

    /// The connection whose completions are to be slept for, and whether its sends matter too.
    pub(crate) fn sleeps_for(&self) -> Option<(&Arc<Conn>, bool)> {
        self.conn.as_ref().map(|conn| (conn, self.is_untold))
    }

    /// Hands over up to `most` messages, and what changed; how many of both.
    pub(crate) fn hand_over(
        &mut self,
        peer: &Peer,
        look: Look,
        most: usize,
        callbacks: &mut Callbacks<'_>,
    ) -> Result<usize, BrokerError> {
        if self.is_untold {
            self.is_untold = !lock(&peer.sending).tell_again(look);
        }
        let mut count = 0;
        while count < most && self.adopt(peer) {
            let Some(conn) = self.conn.clone() else { break };
            let (id, incarnation) = (peer.member.id, conn.incarnation);
            if !self.is_told {
                self.is_told = true;
                count += 1;
                call(id, || (callbacks.change)(&Change::Joined { peer: id, incarnation }))?;
                continue;
            }
            let most = most - count;
            let (messages, outcome) = self.hand_over_messages(peer, &conn, look, most, callbacks);
            count += messages;
            match outcome? {
                Next::Nothing => break,
                Next::Ended(status) => {
                    count += 1;
                    // Nothing but failures comes after the first one. Sends know best why, if they do.
                    lock(&peer.sending).reap(Look::Take);
                    conn.end_failed(status);
                    let why = conn.broken().unwrap_or(Why::Lost(status));
                    self.conn = None;
                    lock(&peer.sending).let_go(why);
                    call(id, || (callbacks.change)(&Change::Left { peer: id, incarnation, why }))?;
                }
            }
        }
        Ok(count)
    }

    /// Hands over up to `most` messages of a connection; how many, and what is next.
    fn hand_over_messages(
        &mut self,
        peer: &Peer,
        conn: &Conn,
        look: Look,
        most: usize,
        callbacks: &mut Callbacks<'_>,
    ) -> (usize, Result<Next, BrokerError>) {
        let mut count = 0;
        while count < most {
            if self.next == self.end && !self.look(conn, look) {
                break;
            }
            let completion = self.found[self.next];
            self.next += 1;
            if completion.status != Status::Success {
                return (count, Ok(Next::Ended(completion.status)));
            }
            count += 1;
            let (region, start) = conn.message_at(completion.id);
            let message = Message {
                region,
                start,
                len: completion.byte_len as usize,
                peer: peer.member.id,
                imm: completion.imm,
                incarnation: conn.incarnation,
                is_write: completion.kind == WorkKind::ReceiveWithImm,
            };
            let called = call(peer.member.id, || (callbacks.message)(message));
            self.taken_off(peer, conn, completion.id);
            if let Err(panicked) = called {
                return (count, Err(panicked));
            }
        }
        (count, Ok(Next::Nothing))
    }

    /// The program is done with what is in a slot.
    fn taken_off(&mut self, peer: &Peer, conn: &Conn, slot: u64) {
        self.used.push(slot);
        self.taken_off += 1;
        if self.taken_off - self.told >= self.tell_after {
            // The peer never has room for more than there are receives, so none of its messages waits for
            // one.
            conn.post_receives(self.used.drain(..));
            self.told = self.taken_off;
            self.is_untold = !lock(&peer.sending).tell(self.taken_off);
        }
    }

    /// Looks for completions; whether there are any.
    fn look(&mut self, conn: &Conn, look: Look) -> bool {
        self.next = 0;
        self.end = look.at(&conn.receive_queue, &mut self.found);
        if self.end == 0 && conn.has_refused() && conn.broken().is_some() {
            // Receives that the device did not take cannot show that it is over.
            self.found[0] = Completion { status: Status::Flushed, ..Completion::EMPTY };
            self.end = 1;
        }
        self.end > 0
    }
}

/// Calls a function of the program. If it panics, that ends here.
pub(crate) fn call(peer: u32, function: impl FnOnce()) -> Result<(), BrokerError> {
    // What it captured is the program's own business; nothing of ours is half done meanwhile.
    catch_unwind(AssertUnwindSafe(function)).map_err(|_| BrokerError::Panicked { peer })
}
