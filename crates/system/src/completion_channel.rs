//! Completion channels: one place to sleep for many completion queues.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ferroce_cabi::ibv_comp_channel;

use crate::completion_queue::{CompletionQueue, Cq};
use crate::context::Open;
use crate::error::CallError;
use crate::events::{never_wait, number};
use crate::handle::{Handle, answered, lock};

/// Where events of several completion queues arrive, with a descriptor for a poll loop. Clones are the same channel.
///
/// A queue reports once after each [`arm`](CompletionQueue::arm). An event is acknowledged as it is taken: the library does
/// not let a queue go while an event of it is not acknowledged.
#[derive(Clone)]
pub struct CompletionChannel {
    pub(crate) channel: Arc<Channel>,
}

/// The channel as the library has it.
pub(crate) struct Channel {
    pub(crate) open: Arc<Open>,
    pub(crate) c: Handle<ibv_comp_channel>,
    queues: Mutex<HashMap<u32, Weak<Cq>>>,
    taken: AtomicU64,
}

impl CompletionChannel {
    pub(crate) fn new(open: &Arc<Open>) -> Result<Self, CallError> {
        open.c.check("ibv_create_comp_channel")?;
        // SAFETY: a live context.
        let c = unsafe { (open.library.verbs().ibv_create_comp_channel)(open.c.as_ptr()) };
        let c = Handle::made("ibv_create_comp_channel", c)?;
        let (queues, taken) = (Mutex::default(), AtomicU64::new(0));
        let channel = Channel { open: Arc::clone(open), c, queues, taken };
        never_wait(channel.fd())?;
        Ok(Self { channel: Arc::new(channel) })
    }

    /// The queue of the oldest event, if there is one. It reports again when it is armed again. It never waits.
    ///
    /// # Errors
    /// The channel cannot be asked any more.
    pub fn poll(&self) -> Result<Option<CompletionQueue>, CallError> {
        loop {
            let Some(number) = self.channel.take()? else { return Ok(None) };
            // An event of a queue that was dropped meanwhile is skipped.
            let queue = lock(&self.channel.queues).get(&number).and_then(Weak::upgrade);
            if let Some(cq) = queue {
                return Ok(Some(CompletionQueue { cq }));
            }
        }
    }

    /// Events that were taken, and so acknowledged, since the channel was made.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.channel.taken.load(Ordering::Relaxed)
    }
}

/// Readable while events wait.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which is held.
        unsafe { BorrowedFd::borrow_raw(self.channel.fd()) }
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionChannel({} taken)", self.taken())
    }
}

impl Channel {
    fn fd(&self) -> libc::c_int {
        // SAFETY: a live channel, whose field never changes.
        unsafe { (*self.c.as_ptr()).fd }
    }

    pub(crate) fn enroll(&self, number: u32, cq: &Arc<Cq>) {
        lock(&self.queues).insert(number, Arc::downgrade(cq));
    }

    pub(crate) fn strike(&self, number: u32) {
        lock(&self.queues).remove(&number);
    }

    /// Takes the oldest event and acknowledges it: the number of its queue.
    fn take(&self) -> Result<Option<u32>, CallError> {
        self.c.check("ibv_get_cq_event")?;
        let verbs = self.open.library.verbs();
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live channel, and places that live during the call. The descriptor does not block.
        let answer = unsafe { (verbs.ibv_get_cq_event)(self.c.as_ptr(), &raw mut cq, &raw mut context) };
        match answered("ibv_get_cq_event", answer) {
            Err(error) if error.code == libc::EAGAIN || error.code == libc::EINTR => return Ok(None),
            taken => taken?,
        }
        // SAFETY: the event was taken just now, and its queue lives until it is acknowledged.
        unsafe { (verbs.ibv_ack_cq_events)(cq, 1) };
        self.taken.fetch_add(1, Ordering::Relaxed);
        Ok(Some(number(context)))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        // SAFETY: the channel is live, and no completion queue reports to it any more.
        unsafe { (self.open.library.verbs().ibv_destroy_comp_channel)(self.c.as_ptr()) };
    }
}
