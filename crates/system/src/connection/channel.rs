//! Where events of connections arrive.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_cabi::cm::rdma_event_channel;

use super::event::{self, ConnectionEvent};
use super::id::ConnectionId;
use crate::error::{CallError, ConnectionError};
use crate::events::never_wait;
use crate::handle::{Handle, answered};
use crate::library::Library;
use crate::symbols::Cm;

/// Where events of connections arrive, with a descriptor for a poll loop. Clones are the same channel.
///
/// An event is acknowledged as it is taken: the library does not let an id go while one of its events is not.
#[derive(Clone)]
pub struct ConnectionChannel {
    pub(super) channel: Arc<Channel>,
}

/// The channel as the library has it.
pub(super) struct Channel {
    pub(super) cm: &'static Cm,
    pub(super) c: Handle<rdma_event_channel>,
    last: AtomicU32,
}

impl Library {
    /// A channel for connections. It loads the library of connections, if that is not loaded yet.
    ///
    /// # Errors
    /// There is no such library, or this machine has no connections.
    pub fn connection_channel(self) -> Result<ConnectionChannel, ConnectionError> {
        let cm = self.cm()?;
        // SAFETY: a function without arguments.
        let c = Handle::made("rdma_create_event_channel", unsafe { (cm.rdma_create_event_channel)() })?;
        let channel = Channel { cm, c, last: AtomicU32::new(0) };
        never_wait(channel.fd())?;
        Ok(ConnectionChannel { channel: Arc::new(channel) })
    }
}

impl ConnectionChannel {
    /// An id, which can listen for connections or make one.
    ///
    /// # Errors
    /// What the library says.
    pub fn id(&self) -> Result<ConnectionId, CallError> {
        ConnectionId::new(&self.channel)
    }

    /// The oldest event, if there is one. It never waits.
    ///
    /// # Errors
    /// The channel cannot be asked any more.
    pub fn poll(&self) -> Result<Option<ConnectionEvent>, CallError> {
        const CALL: &str = "rdma_get_cm_event";
        let Channel { cm, c, .. } = &*self.channel;
        c.check(CALL)?;
        let mut event = std::ptr::null_mut();
        // SAFETY: a live channel, and a place that lives during the call. The descriptor does not block.
        let answer = unsafe { (cm.rdma_get_cm_event)(c.as_ptr(), &raw mut event) };
        match answered(CALL, answer) {
            Err(error) if error.code == libc::EAGAIN || error.code == libc::EINTR => return Ok(None),
            taken => taken?,
        }
        let event = Handle::made(CALL, event)?;
        // SAFETY: the event was taken just now, and lives until it is acknowledged.
        let seen = unsafe { &*event.as_ptr() };
        // SAFETY: it came from this channel, and its ids live as long.
        let told = unsafe { event::told(&self.channel, seen) };
        // SAFETY: it is acknowledged once, and what was told is a copy.
        unsafe { (cm.rdma_ack_cm_event)(event.as_ptr()) };
        Ok(Some(told))
    }
}

/// Readable while events wait.
impl AsFd for ConnectionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which is held.
        unsafe { BorrowedFd::borrow_raw(self.channel.fd()) }
    }
}

impl fmt::Debug for ConnectionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionChannel")
    }
}

impl Channel {
    /// The number of a new id.
    pub(super) fn number(&self) -> u32 {
        self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    fn fd(&self) -> libc::c_int {
        // SAFETY: a live channel, whose field never changes.
        unsafe { (*self.c.as_ptr()).fd }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.c.is_ours() {
            return;
        }
        // SAFETY: the channel is live, and no id reports to it any more.
        unsafe { (self.cm.rdma_destroy_event_channel)(self.c.as_ptr()) };
    }
}
