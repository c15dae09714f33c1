//! One-sided work, and the memory that the ends open to each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use ferroce_verbs::{Access, MemoryRegion, RemoteSlice};
use slab::Slab;

use super::sending::What;
use super::{Core, Waiters};
use crate::buffer::Buffer;
use crate::error::{Error, Violation};
use crate::frame::{Exposure, Kind};
use crate::pool::Pool;

/// The state of one-sided work.
pub(super) struct Operations {
    pool: Arc<Pool>,
    under_way: Slab<Operation>,
    /// What the peer has opened.
    theirs: HashMap<u32, Arc<Remote>>,
    /// What we have opened; without the region once we have closed it and wait for the peer to let go.
    ours: HashMap<u32, Opened>,
    next_id: u32,
    /// Closed by the peer, to be answered.
    to_answer: Vec<u32>,
    /// Closed by the program, to be told.
    to_conceal: Vec<u32>,
    seekers: Waiters,
    _window: Option<MemoryRegion>,
}

struct Opened {
    _region: Arc<MemoryRegion>,
    concealing: bool,
}

/// Memory that the peer has opened.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) exposure: Exposure,
    pub(crate) closed: AtomicBool,
}

/// Work under way.
struct Operation {
    /// Memory that the device uses, there until the work is done.
    buffer: Option<Buffer>,
    result: Option<Result<(), Error>>,
    waker: Option<Waker>,
    abandoned: bool,
}

/// Names work under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpKey(usize);

/// One-sided work.
#[derive(Debug)]
pub(crate) enum Act<'a> {
    Write { bytes: &'a [u8], to: RemoteSlice, imm: Option<u32> },
    WriteFrom { buffer: Option<Buffer>, to: RemoteSlice, imm: Option<u32> },
    Read { len: usize, from: RemoteSlice },
    CompareSwap { at: RemoteSlice, compare: u64, swap: u64 },
    FetchAdd { at: RemoteSlice, add: u64 },
}

/// Exposures of one connection.
pub(crate) const MOST_EXPOSURES: usize = 1024;

impl Operations {
    pub(super) fn new(pool: Arc<Pool>, window: Option<MemoryRegion>) -> Self {
        Self {
            pool,
            under_way: Slab::new(),
            theirs: HashMap::new(),
            ours: HashMap::new(),
            next_id: 0,
            to_answer: Vec::new(),
            to_conceal: Vec::new(),
            seekers: Waiters::default(),
            _window: window,
        }
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Vec<Waker>) {
        self.seekers.wake(wakes);
        wakes.extend(self.under_way.iter_mut().filter_map(|(_, operation)| operation.waker.take()));
    }
}

impl Core {
    /// Begins work if it can begin now.
    pub(crate) fn try_begin(
        &mut self,
        act: &mut Act<'_>,
        on: Option<&Remote>,
        ticket: &mut Option<u64>,
    ) -> Poll<Result<OpKey, Error>> {
        if let Err(error) = self.check_standing() {
            return Poll::Ready(Err(error));
        }
        // Looked at here, where it cannot be closed before the work is posted.
        if let Some(remote) = on.filter(|remote| remote.closed.load(Ordering::Acquire)) {
            let name = remote.exposure.name.clone();
            return Poll::Ready(Err(Error::NotExposed { name }));
        }
        let takes_credit =
            matches!(act, Act::Write { imm: Some(_), .. } | Act::WriteFrom { imm: Some(_), .. });
        if !self.is_turn(*ticket) || !self.has_room() || takes_credit && !self.has_credit() {
            return self.wait_turn(ticket);
        }
        let begun = self.begin(act, takes_credit);
        self.leave_queue(ticket);
        Poll::Ready(begun)
    }

    fn begin(&mut self, act: &mut Act<'_>, takes_credit: bool) -> Result<OpKey, Error> {
        let pool = &self.operations.pool;
        let buffer = match act {
            Act::Write { bytes, .. } => {
                let buffer = pool.take(bytes.len())?;
                // It has room for them.
                let _ = buffer.write_at(0, bytes);
                buffer
            }
            Act::WriteFrom { buffer, .. } => buffer.take().ok_or(Error::OtherConnection)?,
            Act::Read { len, .. } => pool.take(*len)?,
            Act::CompareSwap { .. } | Act::FetchAdd { .. } => pool.take(8)?,
        };
        let Some(region) = buffer.region() else { return Err(Error::OtherConnection) };
        let (seq, local) = (self.next_seq(), region.slice(..buffer.len()));
        let work = match *act {
            Act::Write { to, imm: Some(imm), .. } | Act::WriteFrom { to, imm: Some(imm), .. } => {
                self.qp.write(local, to).imm(imm)
            }
            Act::Write { to, .. } | Act::WriteFrom { to, .. } => self.qp.write(local, to),
            Act::Read { from, .. } => self.qp.read(local, from),
            Act::CompareSwap { at, compare, swap } => self.qp.compare_swap(local, at, compare, swap),
            Act::FetchAdd { at, add } => self.qp.fetch_add(local, at, add),
        };
        if let Err(error) = work.id(seq).signaled().post() {
            return Err(self.refused(error));
        }
        let operation = Operation { buffer: Some(buffer), result: None, waker: None, abandoned: false };
        let key = OpKey(self.operations.under_way.insert(operation));
        self.note_posted(What::Operation(key), true);
        if takes_credit {
            self.spend_credit();
        }
        self.counters.operations += 1;
        Ok(key)
    }

    /// What became of work, with its memory if it went well.
    pub(crate) fn try_end(&mut self, key: OpKey) -> Poll<Result<Buffer, Error>> {
        let done = self.operations.under_way.get(key.0).is_none_or(|operation| operation.result.is_some());
        if !done {
            return Poll::Pending;
        }
        let Some(operation) = self.operations.under_way.try_remove(key.0) else {
            return Poll::Ready(Err(Error::Closed));
        };
        Poll::Ready(match (operation.result, operation.buffer) {
            (Some(Ok(())), Some(buffer)) => Ok(buffer),
            (Some(Err(error)), _) => Err(error),
            (_, _) => Err(Error::Closed),
        })
    }

    pub(crate) fn add_operator(&mut self, key: OpKey, waker: &Waker) {
        if let Some(operation) = self.operations.under_way.get_mut(key.0) {
            operation.waker = Some(waker.clone());
        }
    }

    /// Gives up waiting for an operation: the device goes on, and its memory stays until it is done.
    pub(crate) fn abandon_operation(&mut self, key: OpKey) {
        let Some(operation) = self.operations.under_way.get_mut(key.0) else { return };
        if operation.result.is_none() {
            operation.abandoned = true;
            operation.waker = None;
            return;
        }
        // What is done is not used by the device; what failed was let go of.
        self.operations.under_way.remove(key.0);
    }

    pub(super) fn operation_done(&mut self, key: OpKey) {
        let Some(operation) = self.operations.under_way.get_mut(key.0) else { return };
        if operation.abandoned {
            self.operations.under_way.remove(key.0);
            return;
        }
        // It may have failed with the connection before.
        operation.result.get_or_insert(Ok(()));
        self.wakes.extend(operation.waker.take());
    }

    /// It failed itself; why is known when the connection is lost, which follows.
    pub(super) fn operation_failed(&mut self, key: OpKey) {
        if let Some(operation) = self.operations.under_way.get_mut(key.0)
            && let Some(buffer) = operation.buffer.take()
        {
            buffer.lose();
        }
    }

    pub(super) fn fail_operations(&mut self, error: &Error) {
        self.operations.under_way.retain(|_, operation| {
            if operation.result.is_none() {
                operation.result = Some(Err(error.clone()));
                // The device may be using it still.
                if let Some(buffer) = operation.buffer.take() {
                    buffer.lose();
                }
            }
            !operation.abandoned
        });
    }

    /// Opens memory to the peer.
    pub(crate) fn try_expose(
        &mut self,
        region: &Arc<MemoryRegion>,
        name: &str,
        access: Access,
        ticket: &mut Option<u64>,
    ) -> Poll<Result<u32, Error>> {
        if let Err(error) = self.check_standing() {
            return Poll::Ready(Err(error));
        }
        if self.operations.ours.len() >= MOST_EXPOSURES {
            return Poll::Ready(Err(Error::TooManyExposures { allowed: MOST_EXPOSURES }));
        }
        if !self.is_turn(*ticket) || !self.has_room() || !self.has_credit() {
            return self.wait_turn(ticket);
        }
        let id = self.operations.next_id;
        let exposure = Exposure { id, access, region: region.remote(), name: name.to_owned() };
        let posted = self.post_frame(Kind::Expose, None, &exposure.emit());
        self.leave_queue(ticket);
        if let Err(error) = posted {
            return Poll::Ready(Err(self.refused(error)));
        }
        self.operations.next_id = id.wrapping_add(1);
        self.operations.ours.insert(id, Opened { _region: Arc::clone(region), concealing: false });
        Poll::Ready(Ok(id))
    }

    /// Closes memory of ours: it stays until the peer has let go of it.
    pub(crate) fn conceal(&mut self, id: u32) {
        if let Some(opened) = self.operations.ours.get_mut(&id)
            && !opened.concealing
        {
            opened.concealing = true;
            self.operations.to_conceal.push(id);
            self.pump();
        }
    }

    /// Tells of exposures that end, as far as the peer has room.
    pub(super) fn answer_concealments(&mut self) {
        while let Some(id) = self.operations.to_answer.last().copied() {
            if !self.has_credit() || !self.has_own_room() {
                return;
            }
            if self.post_frame(Kind::Concealed, None, &id.to_be_bytes()).is_err() {
                return;
            }
            self.operations.to_answer.pop();
        }
        while let Some(id) = self.operations.to_conceal.last().copied() {
            if !self.has_credit() || !self.has_own_room() {
                return;
            }
            if self.post_frame(Kind::Conceal, None, &id.to_be_bytes()).is_err() {
                return;
            }
            self.operations.to_conceal.pop();
        }
    }

    /// Whether the end of an exposure is to be told.
    pub(super) fn has_concealments(&self) -> bool {
        !self.operations.to_answer.is_empty() || !self.operations.to_conceal.is_empty()
    }

    /// What the peer has opened under this name, if it has.
    pub(crate) fn find_remote(&self, name: &str) -> Poll<Result<Arc<Remote>, Error>> {
        let named = |remote: &&Arc<Remote>| remote.exposure.name == name;
        match self.operations.theirs.values().filter(named).max_by_key(|remote| remote.exposure.id) {
            Some(remote) => Poll::Ready(Ok(Arc::clone(remote))),
            None => match self.check_standing() {
                Err(error) => Poll::Ready(Err(error)),
                Ok(()) if self.receiving.peer_said_goodbye() => Poll::Ready(Err(Error::ClosedByPeer)),
                Ok(()) => Poll::Pending,
            },
        }
    }

    pub(crate) fn add_seeker(&mut self, waker: &Waker) {
        self.operations.seekers.add(waker);
    }

    pub(super) fn peer_exposes(&mut self, exposure: Exposure) -> Result<(), Violation> {
        let theirs = &mut self.operations.theirs;
        if theirs.len() + self.operations.to_answer.len() >= MOST_EXPOSURES
            || theirs.contains_key(&exposure.id)
        {
            return Err(Violation::Exposure);
        }
        theirs.insert(exposure.id, Arc::new(Remote { exposure, closed: false.into() }));
        self.operations.seekers.wake(&mut self.wakes);
        Ok(())
    }

    pub(super) fn peer_conceals(&mut self, id: u32) -> Result<(), Violation> {
        let remote = self.operations.theirs.remove(&id).ok_or(Violation::Exposure)?;
        remote.closed.store(true, Ordering::Release);
        self.operations.to_answer.push(id);
        Ok(())
    }

    pub(super) fn peer_let_go(&mut self, id: u32) -> Result<(), Violation> {
        match self.operations.ours.get(&id) {
            Some(Opened { concealing: true, .. }) => {
                self.operations.ours.remove(&id);
                self.operations.seekers.wake(&mut self.wakes);
                Ok(())
            }
            _ => Err(Violation::Exposure),
        }
    }
}
