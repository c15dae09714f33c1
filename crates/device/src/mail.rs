//! Work that was posted while another thread had the engine: it waits here until that thread,
//! or the next one, takes it in.

use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ferroce_lane::Line;
use ferroce_switchboard::Report;
use ferroce_sys::clock;
use ferroce_sys::sync::{Mailbox, lock, wait_for};
use ferroce_transport::{
    Data, DatagramDest, ReceiveRequest, SendFlags, SendOp, SendRequest, Sge, SharedQueueId,
};
use ferroce_wire::Qpn;

use crate::engine::lanes::Neighbour;

/// Parcels that the mailbox has room for before it grows.
pub(crate) const MAIL: usize = 256;

/// The mailbox of an engine.
pub(crate) type Mail = Mailbox<Parcel>;

/// Posted work that owns what it needs.
#[derive(Debug)]
pub(crate) enum Parcel {
    Send(Qpn, SendParcel),
    Receive(Qpn, ReceiveParcel),
    Shared(SharedQueueId, ReceiveParcel),
    /// What the engine has done is to be told.
    Question(Arc<Question>),
    /// Where the engine is called from now on.
    Line(Line),
    /// A process that shares memory with this one from now on.
    Neighbour(Box<Neighbour>),
    /// One that does so no more: its slot and incarnation.
    Lost(u8, u64),
}

/// A question to an engine what it has done, which the thread answers that takes in the mail.
#[derive(Debug)]
pub(crate) struct Question {
    /// How many queues of a kind are told, at most.
    pub(crate) most: usize,
    answer: Mutex<Option<Report>>,
    answered: Condvar,
}

impl Question {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, answer: Mutex::default(), answered: Condvar::new() }
    }

    pub(crate) fn answer(&self, report: Report) {
        *lock(&self.answer) = Some(report);
        self.answered.notify_one();
    }

    pub(crate) fn is_answered(&self) -> bool {
        lock(&self.answer).is_some()
    }

    /// The answer, if it comes in time.
    pub(crate) fn wait(&self, limit: Duration) -> Option<Report> {
        let end = clock::now() + limit;
        let mut answer = lock(&self.answer);
        while answer.is_none() && clock::now() < end {
            answer = wait_for(&self.answered, answer, clock::until(end));
        }
        answer.take()
    }
}

/// A send request.
#[derive(Debug)]
pub(crate) struct SendParcel {
    /// When it was posted, if a record asks.
    at: Option<NonZeroU64>,
    id: u64,
    op: SendOp,
    flags: SendFlags,
    dest: Option<DatagramDest>,
    data: Contents,
}

/// Most inline data are short and need no memory of their own either.
#[derive(Debug)]
enum Contents {
    Pieces(Pieces),
    Short([u8; SHORT], usize),
    Inline(Box<[u8]>),
}

const SHORT: usize = 128;

impl Contents {
    fn inline(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Self::Short(short, bytes.len())
            }
            None => Self::Inline(bytes.into()),
        }
    }
}

/// A list of pieces. Most are short and need no memory of their own.
#[derive(Debug)]
enum Pieces {
    Few([Sge; 4], usize),
    Many(Box<[Sge]>),
}

impl Pieces {
    fn new(sges: &[Sge]) -> Self {
        let mut few = [Sge::default(); 4];
        match few.get_mut(..sges.len()) {
            Some(room) => {
                room.copy_from_slice(sges);
                Self::Few(few, sges.len())
            }
            None => Self::Many(sges.into()),
        }
    }

    fn get(&self) -> &[Sge] {
        match self {
            Self::Few(few, count) => &few[..*count],
            Self::Many(many) => many,
        }
    }
}

impl SendParcel {
    pub(crate) fn new(request: &SendRequest<'_>, at: Option<NonZeroU64>) -> Self {
        let SendRequest { id, op, data, flags, dest } = *request;
        let data = match data {
            Data::Gather(sges) => Contents::Pieces(Pieces::new(sges)),
            Data::Inline(bytes) => Contents::inline(bytes),
        };
        Self { at, id, op, flags, dest, data }
    }

    /// When it was posted, if a record asks.
    pub(crate) const fn posted_at(&self) -> Option<NonZeroU64> {
        self.at
    }

    pub(crate) fn request(&self) -> SendRequest<'_> {
        let data = match &self.data {
            Contents::Pieces(pieces) => Data::Gather(pieces.get()),
            Contents::Short(bytes, len) => Data::Inline(&bytes[..*len]),
            Contents::Inline(bytes) => Data::Inline(bytes),
        };
        SendRequest { id: self.id, op: self.op, data, flags: self.flags, dest: self.dest }
    }
}

/// A receive request.
#[derive(Debug)]
pub(crate) struct ReceiveParcel {
    /// When it was posted, if a record asks.
    at: Option<NonZeroU64>,
    id: u64,
    pieces: Pieces,
}

impl ReceiveParcel {
    pub(crate) fn new(request: &ReceiveRequest<'_>, at: Option<NonZeroU64>) -> Self {
        Self { at, id: request.id, pieces: Pieces::new(request.sges) }
    }

    /// When it was posted, if a record asks.
    pub(crate) const fn posted_at(&self) -> Option<NonZeroU64> {
        self.at
    }

    pub(crate) fn request(&self) -> ReceiveRequest<'_> {
        ReceiveRequest { id: self.id, sges: self.pieces.get() }
    }
}
