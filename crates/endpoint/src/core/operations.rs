//! One-sided work: waited for one by one, or begun and collected later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use ferroce_verbs::{MemoryRegion, PostError, RemoteSlice};
use slab::Slab;

use super::exposures::Remote;
use super::sending::What;
use super::{Core, Waiters, Wakes};
use crate::buffer::Buffer;
use crate::done::{Done, DoneKind};
use crate::error::Error;
use crate::options::Options;
use crate::pool::Pool;

/// The state of one-sided work.
pub(super) struct Operations {
    pool: Arc<Pool>,
    under_way: Slab<Operation>,
    /// Work that was begun and is under way.
    begun: usize,
    /// Work that was begun and is done, which the program has not heard of; with the above never more than `most`.
    done: VecDeque<Done>,
    most: usize,
    /// Calls that wait for it, and calls that wait for room in it.
    collectors: Waiters,
    beginners: Waiters,
}

/// Work under way.
struct Operation {
    /// Its place in the order of all work.
    seq: u64,
    /// Memory that the device uses, there until the work is done.
    held: Option<Held>,
    result: Option<Result<(), Error>>,
    waker: Option<Waker>,
    abandoned: bool,
    /// How the program hears of it, if it does not wait for it.
    begun: Option<Begun>,
}

/// Memory of work.
#[derive(Debug)]
pub(crate) enum Held {
    /// Of the connection, which uses it again.
    Buffer(Buffer),
    /// Of the program.
    Region(Arc<MemoryRegion>),
}

/// Work that the program does not wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) tag: u64,
    pub(crate) kind: DoneKind,
    pub(crate) len: usize,
}

/// Names work under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpKey(usize);

/// One-sided work.
#[derive(Debug)]
pub(crate) enum Act<'a> {
    Write { bytes: &'a [u8], to: RemoteSlice, imm: Option<u32> },
    WriteBuffer { buffer: Option<Buffer>, to: RemoteSlice, imm: Option<u32> },
    WriteFrom { from: Part<'a>, to: RemoteSlice, imm: Option<u32> },
    Read { len: usize, from: RemoteSlice },
    ReadInto { into: Part<'a>, from: RemoteSlice },
    CompareSwap { at: RemoteSlice, compare: u64, swap: u64 },
    FetchAdd { at: RemoteSlice, add: u64 },
}

/// A part of a region of the program's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) region: &'a Arc<MemoryRegion>,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Act<'_> {
    /// Whether it takes a place at the peer, like a message.
    const fn takes_credit(&self) -> bool {
        matches!(
            self,
            Self::Write { imm: Some(_), .. }
                | Self::WriteBuffer { imm: Some(_), .. }
                | Self::WriteFrom { imm: Some(_), .. }
        )
    }
}

impl Held {
    /// The buffer that was given, or taken, for the work.
    pub(crate) fn into_buffer(self) -> Result<Buffer, Error> {
        match self {
            Self::Buffer(buffer) => Ok(buffer),
            Self::Region(_) => Err(Error::OtherConnection),
        }
    }

    /// The device may be using it still.
    fn lose(self) {
        if let Self::Buffer(buffer) = self {
            buffer.lose();
        }
    }
}

impl Operations {
    pub(super) fn new(pool: Arc<Pool>, options: &Options) -> Self {
        let most = options.send_depth as usize;
        Self {
            pool,
            under_way: Slab::new(),
            begun: 0,
            done: VecDeque::new(),
            most,
            collectors: Waiters::default(),
            beginners: Waiters::default(),
        }
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        wakes.extend(self.under_way.iter_mut().filter_map(|(_, operation)| operation.waker.take()));
        self.collectors.wake(wakes);
        self.beginners.wake(wakes);
    }

    /// Memory for this work: of the connection, unless the program has given some.
    fn hold(&self, act: &mut Act<'_>) -> Result<Held, Error> {
        Ok(Held::Buffer(match act {
            Act::Write { bytes, .. } => {
                let buffer = self.pool.take(bytes.len())?;
                // It has room for them.
                let _ = buffer.write_at(0, bytes);
                buffer
            }
            Act::WriteBuffer { buffer, .. } => buffer.take().ok_or(Error::OtherConnection)?,
            Act::Read { len, .. } => self.pool.take(*len)?,
            Act::CompareSwap { .. } | Act::FetchAdd { .. } => self.pool.take(8)?,
            Act::WriteFrom { from: part, .. } | Act::ReadInto { into: part, .. } => {
                return Ok(Held::Region(Arc::clone(part.region)));
            }
        }))
    }
}

impl Core {
    /// Begins work if it can begin now.
    pub(crate) fn try_begin(
        &mut self,
        act: &mut Act<'_>,
        on: Option<&Remote>,
        begun: Option<Begun>,
        ticket: &mut Option<u64>,
    ) -> Poll<Result<OpKey, Error>> {
        // What the peer's program is told of is a message, and none comes after the goodbye.
        let standing = if act.takes_credit() { self.check_sending() } else { self.check_standing() };
        if let Err(error) = standing {
            return Poll::Ready(Err(error));
        }
        // Looked at here, where it cannot be closed before the work is posted.
        if let Some(remote) = on.filter(|remote| remote.closed.load(Ordering::Acquire)) {
            let name = remote.exposure.name.clone();
            return Poll::Ready(Err(Error::NotExposed { name }));
        }
        if begun.is_some() && !self.may_begin() {
            // Not in the queue of those that send: the program makes this room, and may have to send something first.
            self.leave_queue(ticket);
            return Poll::Pending;
        }
        if !self.is_turn(*ticket) || !self.has_room() || act.takes_credit() && !self.has_credit() {
            return self.wait_turn(ticket);
        }
        let key = self.begin(act, begun);
        self.leave_queue(ticket);
        Poll::Ready(key)
    }

    /// Whether there is room for one more piece of work that is collected later.
    fn may_begin(&self) -> bool {
        self.operations.begun + self.operations.done.len() < self.operations.most
    }

    fn begin(&mut self, act: &mut Act<'_>, begun: Option<Begun>) -> Result<OpKey, Error> {
        let held = self.operations.hold(act)?;
        let local = match (&held, &*act) {
            (Held::Buffer(buffer), _) => {
                let region = buffer.region().ok_or(Error::OtherConnection)?;
                region.slice(..buffer.len())
            }
            (
                Held::Region(region),
                Act::WriteFrom { from: Part { start, len, .. }, .. }
                | Act::ReadInto { into: Part { start, len, .. }, .. },
            ) => region.slice(*start..*start + *len),
            (Held::Region(_), _) => return Err(Error::OtherConnection),
        };
        let seq = self.next_seq();
        let work = match *act {
            Act::Write { to, imm, .. }
            | Act::WriteBuffer { to, imm, .. }
            | Act::WriteFrom { to, imm, .. } => match imm {
                Some(imm) => self.qp.write(local, to).imm(imm),
                None => self.qp.write(local, to),
            },
            Act::Read { from, .. } | Act::ReadInto { from, .. } => self.qp.read(local, from),
            Act::CompareSwap { at, compare, swap } => self.qp.compare_swap(local, at, compare, swap),
            Act::FetchAdd { at, add } => self.qp.fetch_add(local, at, add),
        };
        match work.id(seq).signaled().post() {
            Ok(()) => {}
            Err(PostError::OtherDomain { .. }) => return Err(Error::OtherConnection),
            Err(error) => return Err(self.refused(error)),
        }
        let operation =
            Operation { seq, held: Some(held), result: None, waker: None, abandoned: false, begun };
        let key = OpKey(self.operations.under_way.insert(operation));
        self.operations.begun += usize::from(begun.is_some());
        self.note_posted(What::Operation(key), true);
        if act.takes_credit() {
            self.spend_credit();
        }
        self.counters.operations += 1;
        Ok(key)
    }

    /// What became of work, with its memory if it went well.
    pub(crate) fn try_end(&mut self, key: OpKey) -> Poll<Result<Held, Error>> {
        let done = self.operations.under_way.get(key.0).is_none_or(|operation| operation.result.is_some());
        if !done {
            return Poll::Pending;
        }
        let Some(operation) = self.operations.under_way.try_remove(key.0) else {
            return Poll::Ready(Err(Error::Closed));
        };
        Poll::Ready(match (operation.result, operation.held) {
            (Some(Ok(())), Some(held)) => Ok(held),
            (Some(Err(error)), _) => Err(error),
            (_, _) => Err(Error::Closed),
        })
    }

    /// The next piece of work that was begun and is done; nothing if none is under way.
    pub(crate) fn try_collect(&mut self) -> Poll<Option<Done>> {
        match self.operations.done.pop_front() {
            Some(done) => {
                self.operations.beginners.wake(&mut self.wakes);
                Poll::Ready(Some(done))
            }
            None if self.operations.begun == 0 => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    pub(crate) fn add_collector(&mut self, waker: &Waker) {
        self.operations.collectors.add(waker);
    }

    /// Has `waker` called when there is room for more work that is collected later.
    pub(crate) fn add_beginner(&mut self, waker: &Waker) {
        self.operations.beginners.add(waker);
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
        if let Some(begun) = operation.begun {
            self.operations.under_way.remove(key.0);
            self.operations.begun -= 1;
            self.operations.done.push_back(begun.done(Ok(())));
            self.operations.collectors.wake(&mut self.wakes);
            return;
        }
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
            && let Some(held) = operation.held.take()
        {
            held.lose();
        }
    }

    pub(super) fn fail_operations(&mut self, error: &Error) {
        let Operations { under_way, begun, done, .. } = &mut self.operations;
        let mut failed = Vec::new();
        under_way.retain(|_, operation| {
            if operation.result.is_none() {
                operation.result = Some(Err(error.clone()));
                // The device may be using it still.
                if let Some(held) = operation.held.take() {
                    held.lose();
                }
                if let Some(one) = operation.begun {
                    failed.push((operation.seq, one));
                    return false;
                }
            }
            !operation.abandoned
        });
        // They are told in the order in which they were begun.
        failed.sort_unstable_by_key(|(seq, _)| *seq);
        *begun -= failed.len();
        done.extend(failed.into_iter().map(|(_, one)| one.done(Err(error.clone()))));
    }
}

impl Begun {
    const fn done(self, result: Result<(), Error>) -> Done {
        let Self { tag, kind, len } = self;
        Done { tag, kind, len, result }
    }
}
