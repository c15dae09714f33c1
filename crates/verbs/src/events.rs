//! Events that are not completions.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::Nic;

use crate::card::OpenCard;
use crate::card::event::AsyncEvent;
use crate::device::Device;
use crate::error::WaitError;
use crate::wait::Deadline;

/// The events of a device: queue pairs in error, overrun completion queues, shared receive queues
/// that run low. All handles see the same events, and each event is seen once.
#[derive(Clone, Debug)]
pub struct Events {
    of: Of,
}

#[derive(Clone, Debug)]
enum Of {
    Soft(Nic),
    Card(Arc<OpenCard>, ferroce_system::Events),
}

impl Events {
    pub(crate) fn new(device: &Device) -> Self {
        let of = match device {
            Device::Soft(nic) => Of::Soft(nic.clone()),
            Device::Card(card) => Of::Card(Arc::clone(card), card.system.events()),
        };
        Self { of }
    }

    /// The oldest event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<AsyncEvent> {
        match &self.of {
            Of::Soft(nic) => nic.next_event().map(AsyncEvent::from),
            Of::Card(card, _) => card.next_event(),
        }
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
        match &self.of {
            Of::Soft(nic) => nic.events().as_fd(),
            Of::Card(_, events) => events.as_fd(),
        }
    }
}
