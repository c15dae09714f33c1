//! What the run knows about each queue pair: what was posted, what became of it, and what may still come.

use std::collections::{BTreeMap, VecDeque};

use ferroce_transport::{DomainId, SendOp, State, Status};
use ferroce_wire::{Qpn, Service};

use super::grants::{Arena, Grants, Owner};
use super::witness::Witness;
use crate::memory::mixed;
use crate::world::At;

/// All queue pairs and all granted memory.
#[derive(Debug)]
pub struct Model {
    /// The queue pairs.
    pub ends: Vec<End>,
    /// Granted ranges of each host.
    pub grants: Vec<Grants>,
    /// Memory that grants are cut from: one per end, then one per shared queue.
    pub arenas: Vec<Arena>,
    /// Receives that wait in the shared queue of each host, oldest first.
    pub shared: Vec<VecDeque<Posted>>,
    /// The value that each atomic cell must have, by host and address.
    pub cells: BTreeMap<(usize, u64), u64>,
    /// Whether the network may deliver packets of one sender twice or out of order.
    pub disorder: bool,
}

/// A queue pair.
#[derive(Debug)]
pub struct End {
    /// Where it lives.
    pub at: At,
    /// Its number.
    pub qpn: Qpn,
    /// Its service.
    pub service: Service,
    /// Its protection domain.
    pub domain: DomainId,
    /// The end that it is connected to, if it is connected.
    pub peer: Option<usize>,
    /// Everything posted to the send queue in this life, in order.
    pub messages: Vec<Message>,
    /// How many of them have completed.
    pub completed: usize,
    /// How many of them the peer has dealt with.
    pub cursor: usize,
    /// Receives that are posted, or taken from a shared queue, oldest first.
    pub receives: VecDeque<Posted>,
    /// Whether receives come from the host's shared queue.
    pub shared: bool,
    /// Why it is in error, or going to be.
    pub cause: Option<Cause>,
    /// Packets of this connection that the network lost, held back or doubled, in either direction.
    pub disturbances: u32,
    /// Whether it was ever in error, in this life or one before.
    pub failed: bool,
    /// Whether silence of the peer is explained: it was away, cut off or reset.
    pub silence: bool,
    /// How often a lost packet is sent again.
    pub retry_count: u8,
    /// The same after RNR.
    pub rnr_retry: u8,
    /// Whether the send queue is being drained.
    pub draining: bool,
    /// The state that it was last seen in.
    pub state: State,
    /// Whether it was reset and waits to be connected again.
    pub gone: bool,
    /// Packets of datagrams that the network delivered twice.
    pub doubled: u32,
    /// Looks on if a liar speaks to it.
    pub witness: Option<Box<Witness>>,
}

/// Why a queue pair is in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// One of its own requests failed.
    Request(Status),
    /// A receive failed.
    Receive(Status),
    /// The peer asked for something that was refused.
    Peer,
    /// The program moved it there.
    Program,
}

/// Bytes that are derived, not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Of which message.
    pub tag: u64,
    /// From which byte of it.
    pub offset: u64,
}

/// A posted send request.
#[derive(Clone, Debug)]
pub struct Message {
    /// The id that it was posted with.
    pub id: u64,
    /// What it does.
    pub op: SendOp,
    /// Bytes.
    pub len: u32,
    /// What the bytes are: at their source, and for a READ at the peer.
    pub content: Content,
    /// Whether success is to be reported.
    pub signaled: bool,
    /// Whether the peer is to be told at once.
    pub solicited: bool,
    /// Ranges granted on its own host, freed when it completes.
    pub local: Vec<u64>,
    /// Where the bytes come in (READ, atomics) with their lengths.
    pub sinks: Vec<(u64, u32)>,
    /// Range granted on the peer's host.
    pub target: Option<u64>,
    /// Bytes that arrived where they belong.
    pub placed: u32,
    /// Whether the peer has done all of it, or it was done here.
    pub done: bool,
    /// What an atomic found.
    pub found: Option<u64>,
    /// Statuses beside success that it may end with, by number.
    pub allowed: u32,
    /// The end that a datagram is for.
    pub dest: Option<usize>,
}

/// A posted receive request.
#[derive(Clone, Debug)]
pub struct Posted {
    /// The id that it was posted with.
    pub id: u64,
    /// Its pieces.
    pub pieces: Vec<(u64, u32)>,
    /// Bytes that it takes.
    pub len: u32,
    /// Whether its keys are right.
    pub good: bool,
}

impl Message {
    /// Whether it leaves no trace at the peer that the model could see.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        match self.op {
            SendOp::Write(_) => self.len == 0,
            SendOp::Read(_) | SendOp::BindWindow(_) | SendOp::LocalInvalidate(_) => true,
            _ => false,
        }
    }

    /// Allows it to end with this status.
    pub const fn allow(&mut self, status: Status) {
        self.allowed |= 1 << status as u8;
    }

    /// Whether it may end with this status.
    #[must_use]
    pub const fn allows(&self, status: Status) -> bool {
        self.allowed & 1 << status as u8 != 0
    }

    /// Whether the peer may refuse it.
    #[must_use]
    pub const fn may_be_refused(&self) -> bool {
        self.allows(Status::RemoteAccess)
            || self.allows(Status::RemoteInvalidRequest)
            || self.allows(Status::RemoteOperation)
    }
}

impl End {
    /// Requests that have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.messages.len() - self.completed
    }

    /// Messages that still need a receive of the peer.
    #[must_use]
    pub fn awaiting_receive(&self) -> usize {
        self.messages[self.cursor..]
            .iter()
            .filter(|message| message.op.takes_receive() && !message.done)
            .count()
    }

    /// Whether a program would go on using it.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.cause.is_none() && !self.gone
    }
}

impl Model {
    /// The bytes of the request with this id.
    #[must_use]
    pub const fn content(id: u64) -> Content {
        Content { tag: mixed(id), offset: 0 }
    }

    /// What lies in the constant part of a host.
    #[must_use]
    pub const fn constant(host: usize) -> Content {
        Content { tag: mixed(!(host as u64)), offset: 0 }
    }

    /// The end that lives there.
    ///
    /// # Panics
    /// None does.
    #[must_use]
    pub fn end_at(&self, at: At) -> usize {
        self.ends.iter().position(|end| end.at == at).expect("every queue pair has an end")
    }

    /// Cuts a range from an arena.
    pub fn cut(&mut self, arena: usize, len: u32, skew: u64, owner: Owner) -> Option<u64> {
        let host = self.arenas[arena].host;
        self.grants[host].cut(&mut self.arenas, arena, (len, skew), owner)
    }

    /// Ends a grant on a host.
    pub fn free(&mut self, host: usize, start: u64) {
        self.grants[host].end(&mut self.arenas, start);
    }

    /// Ends the grants of a completed message. A target that packets may still reach stays.
    pub(super) fn release(&mut self, end: usize, message: usize, target_too: bool) {
        let host = self.ends[end].at.host;
        for start in std::mem::take(&mut self.ends[end].messages[message].local) {
            self.free(host, start);
        }
        if target_too {
            self.release_target(end, message);
        }
    }

    fn release_target(&mut self, end: usize, message: usize) {
        let target = self.ends[end].messages[message].target.take();
        if let (Some(start), Some(peer)) = (target, self.ends[end].peer) {
            self.free(self.ends[peer].at.host, start);
        }
    }

    /// Ends the grants of a receive.
    pub(super) fn release_receive(&mut self, host: usize, posted: &Posted) {
        for &(start, len) in &posted.pieces {
            if len > 0 {
                self.free(host, start);
            }
        }
    }

    /// Forgets the present life of both ends of a connection: they are in RESET.
    pub fn forget(&mut self, ends: [usize; 2]) {
        for end in ends {
            for message in 0..self.ends[end].messages.len() {
                self.release(end, message, true);
            }
            let host = self.ends[end].at.host;
            for posted in std::mem::take(&mut self.ends[end].receives) {
                self.release_receive(host, &posted);
            }
            let end = &mut self.ends[end];
            end.messages.clear();
            (end.completed, end.cursor, end.disturbances, end.doubled) = (0, 0, 0, 0);
            (end.silence, end.draining, end.gone) = (false, false, false);
            end.failed |= end.cause.is_some();
            end.cause = None;
        }
    }
}

impl Model {
    /// A receive was taken from a shared queue for an end.
    ///
    /// # Errors
    /// It was not the oldest.
    pub fn took_shared(&mut self, end: usize, queue: usize, id: u64) -> Result<(), super::Violation> {
        match self.shared[queue].pop_front() {
            Some(posted) if posted.id == id => {
                self.ends[end].receives.push_back(posted);
                Ok(())
            }
            other => {
                let oldest = other.map(|posted| posted.id);
                super::broken(
                    "receive-order",
                    format!("took shared receive {id:#x}, the oldest is {oldest:x?}"),
                )
            }
        }
    }

    /// Local work of an end was done.
    ///
    /// # Errors
    /// None was waiting.
    pub fn done_here(&mut self, end: usize, is_it: impl Fn(&SendOp) -> bool) -> Result<(), super::Violation> {
        let end = &mut self.ends[end];
        let waiting =
            end.messages[end.completed..].iter_mut().find(|message| !message.done && is_it(&message.op));
        match waiting {
            Some(message) => {
                message.done = true;
                Ok(())
            }
            None => super::broken("completion-order", "local work was done that no program posted"),
        }
    }

    /// A key of an end was taken out of use, by its own request or by its peer's.
    ///
    /// # Errors
    /// Neither asked for it.
    pub fn invalidated(&mut self, end: usize, key: ferroce_wire::Rkey) -> Result<(), super::Violation> {
        if self.done_here(end, |op| matches!(op, SendOp::LocalInvalidate(rkey) if *rkey == key)).is_ok() {
            return Ok(());
        }
        if self.lied_invalidates(end, key) {
            return Ok(());
        }
        let asked = self.ends[end].peer.filter(|_| !self.is_lied_to(end)).is_some_and(|peer| {
            let index = self.next_to_deliver(peer);
            index.is_some_and(|index| self.ends[peer].messages[index].op == SendOp::SendInvalidate(key))
        });
        let what = format!("key {key} of end {end} was invalidated, and no peer asked for it");
        if asked { Ok(()) } else { super::broken("granted-range", what) }
    }
}
