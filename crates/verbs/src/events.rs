//! Events that are not completions.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ferroce_device::{AsyncEvent, Nic};

use crate::error::WaitError;
use crate::wait::Deadline;

/// The events of a device: queue pairs in error, overrun completion queues, shared receive queues
/// that run low. All handles see the same events, and each event is seen once.
#[derive(Clone, Debug)]
pub struct Events {
    nic: Nic,
}

impl Events {
    pub(crate) const fn new(nic: Nic) -> Self {
        Self { nic }
    }

    /// The oldest event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<AsyncEvent> {
        self.nic.next_event()
    }

    /// The oldest event, waiting for one until the time is over; for ever with `None`.
    ///
    /// # Errors
    /// The time is over.
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<AsyncEvent, WaitError> {
        Deadline::after(timeout.into()).wait_for(self.as_fd(), || self.poll())
    }
}

/// Readable while events wait.
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.nic.events().as_fd()
    }
}
