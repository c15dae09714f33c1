//! Waiting on a descriptor until something is there.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ferroce_device::{now, until, wait_readable};
use ferroce_transport::Time;

use crate::error::WaitError;

/// When waiting ends.
pub(crate) struct Deadline {
    timeout: Option<Duration>,
    end: Option<Time>,
}

impl Deadline {
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self { timeout, end: timeout.map(|timeout| now() + timeout) }
    }

    /// Looks until something is found, sleeping on the descriptor in between.
    pub(crate) fn wait_for<T>(
        &self,
        fd: BorrowedFd<'_>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            let left = self.end.map(until);
            if left == Some(Duration::ZERO) {
                return Err(WaitError::TimedOut(self.timeout.unwrap_or(Duration::MAX)));
            }
            wait_readable(fd, left).map_err(|error| WaitError::System(error.kind()))?;
        }
    }
}
