//! Events that are not completions, and where a program hears of them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use ferroce_transport::{Event, SharedQueueId};
use ferroce_wire::Qpn;

use crate::completion::CqId;
use crate::descriptor::EventFd;

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

/// Events that nobody has fetched yet.
#[derive(Debug)]
pub struct EventQueue {
    waiting: Mutex<VecDeque<AsyncEvent>>,
    ready: EventFd,
}

impl EventQueue {
    /// The most that are kept; the oldest go first. A program that never looks must not cost memory.
    pub const LIMIT: usize = 4096;

    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { waiting: Mutex::default(), ready: EventFd::new()? })
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
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
