//! Events that are not completions, and where a program hears of them.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use ferroce_sys::descriptor::EventFd;
use ferroce_transport::{Event, SharedQueueId};
use ferroce_wire::Qpn;

use crate::completion::CqId;

/// Something that happened to an object of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// To a queue pair.
    QueuePair(Qpn, Event),
    /// A completion queue was full when something completed. What did not fit is lost, and the
    /// queue pairs that completed into it are in error.
    CompletionQueueOverrun(CqId),
    /// A shared receive queue has fewer requests than its limit.
    SharedQueueLimit(SharedQueueId),
    /// The device cannot go on: its socket failed.
    DeviceFatal,
}

/// Events that the program has not fetched yet.
pub struct EventQueue {
    waiting: Mutex<VecDeque<AsyncEvent>>,
    ready: EventFd,
    /// Takes events over, if there is one.
    router: OnceLock<Box<Router>>,
}

type Router = dyn Fn(AsyncEvent) + Send + Sync;

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routed = self.router.get().is_some();
        f.debug_struct("EventQueue").field("routed", &routed).finish_non_exhaustive()
    }
}

impl EventQueue {
    /// The most that are kept; the oldest go first. A program that never looks must not cost memory.
    pub const LIMIT: usize = 4096;

    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { waiting: Mutex::default(), ready: EventFd::new()?, router: OnceLock::new() })
    }

    /// Has `router` called with every event from now on, instead of keeping them here. The first stays.
    ///
    /// It is called by the engine: it must neither call the device nor wait for a thread that does.
    pub fn route(&self, router: impl Fn(AsyncEvent) + Send + Sync + 'static) {
        if self.router.get().is_none() {
            // A thread that was faster has set one that is as good.
            let _ = self.router.set(Box::new(router));
        }
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
        if let Some(router) = self.router.get() {
            return router(event);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == Self::LIMIT {
            waiting.pop_front();
        }
        waiting.push_back(event);
        self.ready.signal();
    }

    /// The oldest event, if there is one.
    pub fn pop(&self) -> Option<AsyncEvent> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let event = waiting.pop_front();
        if waiting.is_empty() {
            self.ready.clear();
        }
        event
    }
}

/// Readable while events wait.
impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
