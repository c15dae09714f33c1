//! The state of one end, behind one lock: what a completion means, and what can be done next.
//!
//! Nothing here waits or sleeps. The caller takes completions off, lets the end react to them
//! ([`Core::progress`]), looks whether the own wish can be met, and leaves a waker if not.

mod bulk;
mod closing;
mod delivery;
mod exposures;
mod operations;
mod posting;
mod receiving;
mod sending;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ferroce_verbs::time::now;
use ferroce_verbs::{Attributes, Completion, Haste, MemoryRegion, QueuePair, State as QpState, Status};

use smallvec::SmallVec;

use crate::error::{Cause, Error, Violation};
use crate::hello::Hello;
use crate::hub::Completions;
use crate::line::Line;
use crate::looking::{Happened, Looking};
use crate::options::Options;
use crate::pool::Pool;

pub(crate) use delivery::{Follow, Sent};
pub(crate) use exposures::Remote;
pub(crate) use operations::{Act, Begun, Held, OpKey, Part};
pub(crate) use receiving::{Ring, Taken};
pub(crate) use sending::{MIN_INLINE, Payload};

/// One end of a connection.
pub(crate) struct Core {
    qp: QueuePair,
    completions: Completions,
    line: Box<dyn Line>,
    sending: sending::Sending,
    receiving: receiving::Receiving,
    operations: operations::Operations,
    exposures: exposures::Exposures,
    /// What the peer told of itself.
    peer: Hello,
    /// Why it was lost.
    lost: Option<Cause>,
    /// The peer ended it after its goodbye.
    peer_gone: bool,
    /// This end has ended it in peace.
    closed: bool,
    /// The program has no handle of it any more.
    dropped: bool,
    /// Has the keeper look after this end when the program does not.
    service: Waker,
    /// To be called after the lock is left.
    wakes: Wakes,
    counters: Counters,
    heard: bool,
    happened: Happened,
    looking: Looking,
}

/// What happened on a connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages given to the device, or announced.
    pub sent: u64,
    /// Of these, those that the peer reads itself.
    pub announced: u64,
    /// Messages that the program took.
    pub received: u64,
    /// Of these, those that were read from the peer.
    pub pulled: u64,
    /// Messages that carried nothing but counters.
    pub updates: u64,
    /// How often a sender found the peer without room, or its own queue full.
    pub stalls: u64,
    /// One-sided operations.
    pub operations: u64,
    /// How often the peer broke the rules; the first one ends the connection.
    pub violations: u64,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Both ends may send.
    Open,
    /// This end has said goodbye and sends no more.
    Closing,
    /// The peer has said goodbye and sends no more.
    PeerClosing,
    /// It ended in peace.
    Closed,
    /// It ended otherwise.
    Lost(Cause),
}

/// What an end is made of.
pub(crate) struct Parts {
    pub(crate) qp: QueuePair,
    pub(crate) completions: Completions,
    pub(crate) receive_ring: MemoryRegion,
    pub(crate) send_ring: MemoryRegion,
    pub(crate) send_pool: Arc<Pool>,
    pub(crate) read_pool: Arc<Pool>,
    /// Keeps the window open.
    pub(crate) window: Option<MemoryRegion>,
}

/// Completions that are taken off at once.
const CHUNK: usize = 16;
/// Marks the work ids of receives.
const RECEIVE: u64 = 1 << 63;

impl Core {
    pub(crate) fn new(
        parts: Parts,
        peer: Hello,
        line: Box<dyn Line>,
        options: &Options,
        service: Waker,
    ) -> Self {
        let Parts { qp, completions, receive_ring, send_ring, send_pool, read_pool, window } = parts;
        Self {
            qp,
            completions,
            line,
            sending: sending::Sending::new(send_ring, send_pool, &peer, options),
            receiving: receiving::Receiving::new(receive_ring, Arc::clone(&read_pool), options),
            operations: operations::Operations::new(read_pool, options),
            exposures: exposures::Exposures::new(window),
            peer,
            lost: None,
            peer_gone: false,
            closed: false,
            dropped: false,
            service,
            wakes: Wakes::new(),
            counters: Counters::default(),
            heard: false,
            happened: Happened::default(),
            looking: Looking::new(),
        }
    }

    /// Takes completions off and reacts, until there are none.
    pub(crate) fn progress(&mut self) {
        let mut found = [Completion::EMPTY; CHUNK];
        loop {
            let taken = self.completions.poll(&mut found);
            self.handle_all(&found[..taken]);
            if taken < CHUNK {
                break;
            }
        }
        self.pump();
    }

    /// Reacts to completions that are there already, which costs next to nothing.
    pub(crate) fn react(&mut self) {
        if !self.completions.may_have_some() {
            return;
        }
        let mut found = [Completion::EMPTY; CHUNK];
        loop {
            let taken = self.completions.take(&mut found);
            self.handle_all(&found[..taken]);
            if taken < CHUNK {
                break;
            }
        }
    }

    /// Has `waker` called when something completes; true if something has, and was reacted to.
    pub(crate) fn wake_on_completion(&mut self, waker: &Waker) -> bool {
        let haste = if self.dropped { Haste::InTime } else { Haste::AtOnce };
        self.wake_with(waker, haste)
    }

    fn wake_with(&mut self, waker: &Waker, haste: Haste) -> bool {
        let mut found = [Completion::EMPTY; CHUNK];
        let taken = self.completions.poll_or_wake(&mut found, waker, haste);
        if taken > 0 {
            self.handle_all(&found[..taken]);
            self.pump();
        }
        taken > 0
    }

    /// A call of a task was done.
    pub(crate) const fn stir(&mut self) {
        self.looking.stir();
    }

    /// Whether a task with nothing to do looks again in a moment, for so long, instead of leaving a waker.
    pub(crate) fn looks_again(&mut self, time: Duration) -> bool {
        self.check_standing().is_ok() && self.looking.looks_again(time, self.happened, now)
    }

    /// Does what is due: reading announced messages, reporting to the peer.
    pub(crate) fn pump(&mut self) {
        if self.lost.is_none() && !self.closed && !self.peer_gone {
            self.start_pulls();
            self.report();
            self.answer_concealments();
        }
    }

    /// The program leaves. If there is something to say that has to wait for the peer, the keeper will say
    /// it. True if something has completed meanwhile, and was reacted to.
    pub(crate) fn leave(&mut self) -> bool {
        let mut reacted = false;
        while self.check_standing().is_ok() && (self.has_more_to_say() || self.has_concealments()) {
            let service = self.service.clone();
            if !self.wake_with(&service, Haste::InTime) {
                break;
            }
            reacted = true;
        }
        reacted
    }

    /// The program has dropped it. What is left to do has time: a program that polls the device for something else need
    /// not share it with the driver.
    pub(crate) fn drop_behind(&mut self) {
        self.dropped = true;
        self.completions.relax();
    }

    pub(crate) fn state(&self) -> State {
        match self.lost {
            Some(cause) => State::Lost(cause),
            None if self.closed || self.peer_gone => State::Closed,
            None if self.sending.has_said_goodbye() => State::Closing,
            None if self.receiving.peer_said_goodbye() => State::PeerClosing,
            None => State::Open,
        }
    }

    pub(crate) const fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) const fn peer(&self) -> &Hello {
        &self.peer
    }

    /// The protocol's own choice of words for why nothing goes any more, if so.
    pub(crate) fn check_standing(&self) -> Result<(), Error> {
        match self.lost {
            Some(cause) => Err(Error::Lost(cause)),
            None if self.closed => Err(Error::Closed),
            None if self.peer_gone => Err(Error::ClosedByPeer),
            None => Ok(()),
        }
    }

    /// Breaks it off at once.
    pub(crate) fn abort(&mut self, cause: Cause) {
        self.lose(cause);
        self.line.end();
    }

    /// Whether nothing has come since this was asked last; then the peer is asked for a sign of life, unless it
    /// still owes one.
    pub(crate) fn probe_if_silent(&mut self) {
        if std::mem::take(&mut self.heard) || self.lost.is_some() || self.closed || self.peer_gone {
            return;
        }
        if self.sending.nothing_signaled() {
            self.post_probe();
        }
    }

    /// The connection ends here, and its device's work with it.
    pub(crate) fn lose(&mut self, cause: Cause) {
        if self.lost.is_some() || self.closed {
            return;
        }
        if matches!(cause, Cause::Violation(_)) {
            self.counters.violations += 1;
        }
        self.lost = Some(cause);
        let says_why = match cause {
            Cause::Violation(violation) if violation != Violation::Access => self.post_fault(violation),
            _ => false,
        };
        if !says_why {
            self.end_queue_pair();
        }
        self.fail_operations(&Error::Lost(cause));
        self.wake_all();
    }

    /// The peer closed it after its goodbye: all that it sent is here.
    fn peer_left(&mut self) {
        if self.lost.is_none() && !self.closed && !self.peer_gone {
            self.peer_gone = true;
            self.end_queue_pair();
            self.fail_operations(&Error::ClosedByPeer);
            self.wake_all();
        }
    }

    fn end_queue_pair(&self) {
        // In error it stays in error.
        let _ = self.qp.modify(&Attributes::to(QpState::Err), None);
    }

    fn handle_all(&mut self, found: &[Completion]) {
        for completion in found {
            self.heard |= completion.is_success();
            match (completion.id & RECEIVE != 0, completion.status) {
                (true, Status::Success) => {
                    self.happened.arrivals += 1;
                    self.received(completion);
                }
                (true, Status::LocalLength) => self.lose(Violation::TooLong.into()),
                (true, status) => self.failed(status, false),
                (false, Status::Success) => self.retire(completion.id),
                (false, status) => {
                    let pulling = self.retire_failed(completion.id);
                    self.failed(status, pulling);
                }
            }
        }
    }

    /// Work failed: what that says about the connection.
    fn failed(&mut self, status: Status, pulling: bool) {
        if self.lost.is_some() || self.closed || self.peer_gone {
            return;
        }
        let in_peace = self.receiving.peer_said_goodbye();
        match status {
            // A peer that has said goodbye may go at any time.
            Status::Flushed | Status::RetryExceeded if in_peace => self.peer_left(),
            // Flushed without a failure of ours: the peer ended it, or was refused something.
            Status::Flushed if self.refused_the_peer() => self.lose(Violation::Access.into()),
            Status::Flushed => self.lose(Cause::PeerReset),
            Status::RetryExceeded => self.lose(Cause::PeerSilent),
            Status::RemoteAccess | Status::RemoteInvalidRequest | Status::RemoteOperation if pulling => {
                self.lose(Violation::Key.into());
            }
            Status::RemoteAccess | Status::RemoteInvalidRequest | Status::RemoteOperation => {
                self.lose(Cause::PeerRefused(status));
            }
            status => self.lose(Cause::Device(status)),
        }
    }

    /// Whether our device has refused the peer something that it should not have asked for.
    fn refused_the_peer(&self) -> bool {
        let counted = self.qp.counters();
        counted.nak_remote_access_sent + counted.nak_invalid_request_sent + counted.nak_remote_operation_sent
            > 0
    }

    fn wake_all(&mut self) {
        self.sending.wake_all(&mut self.wakes);
        self.receiving.wake_all(&mut self.wakes);
        self.operations.wake_all(&mut self.wakes);
        self.exposures.wake_all(&mut self.wakes);
    }

    pub(crate) fn take_wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }
}

/// Wakers to be called after the lock is left: rarely more than a few, so that calling them needs no allocation.
pub(crate) type Wakes = SmallVec<[Waker; 4]>;

/// Wakers that wait for the same.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<Waker>);

impl Waiters {
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// This one does not wait any more.
    pub(crate) fn remove(&mut self, waker: &Waker) {
        self.0.retain(|known| !known.will_wake(waker));
    }

    pub(crate) fn wake(&mut self, wakes: &mut Wakes) {
        wakes.extend(self.0.drain(..));
    }
}

/// Places in a ring that are free.
#[derive(Debug)]
struct Slots {
    ring: MemoryRegion,
    size: usize,
    free: Vec<u32>,
}

impl Slots {
    fn new(ring: MemoryRegion, size: usize) -> Self {
        let count = u32::try_from(ring.len() / size).unwrap_or(u32::MAX);
        Self { ring, size, free: (0..count).rev().collect() }
    }

    const fn offset(&self, slot: u32) -> usize {
        slot as usize * self.size
    }
}

/// What the waiting order of senders is made of.
type Queue = VecDeque<(u64, Option<Waker>)>;
