//! How many descriptors this process may have.

use std::io;

/// The limit of descriptors: the soft one that holds, and the hard one up to which a process may raise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// What holds.
    pub soft: u64,
    /// What the soft limit may become.
    pub hard: u64,
}

impl DescriptorLimit {
    /// What the limits are now.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn get() -> io::Result<Self> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a limit that lives during the call.
        let refused = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        if refused == 0 {
            Ok(Self { soft: limit.rlim_cur, hard: limit.rlim_max })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Makes these the limits.
    ///
    /// # Errors
    /// The soft limit is beyond the hard one, or this process may not raise the hard one.
    pub fn set(self) -> io::Result<()> {
        let limit = libc::rlimit { rlim_cur: self.soft, rlim_max: self.hard };
        // SAFETY: the pointer is to a limit that lives during the call.
        let refused = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Descriptors that this process has open, as well as can be told.
#[must_use]
pub fn open_descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}
