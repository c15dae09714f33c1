//! Source ports that cannot be had.

use std::io;

use thiserror::Error;

/// Why packets cannot leave from a source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PortRefusal {
    /// Another program has it.
    #[error("another program has it, and does not share it or runs for another user")]
    InUse,
    /// The user may not use it.
    #[error("this user may not use it (ports below 1024 need CAP_NET_BIND_SERVICE)")]
    NotPermitted,
    /// The process, or the machine, has no more descriptors.
    #[error("there are no more descriptors for it; `ulimit -n` shows and raises their number")]
    NoDescriptors,
    /// Too many other ports are in use.
    #[error("{most} other ports are in use at this moment, which is the most")]
    TooMany {
        /// How many there may be.
        most: usize,
    },
    /// Packets to this peer have their port.
    #[error("packets to this peer leave from port {port} alone")]
    Fixed {
        /// That port.
        port: u16,
    },
    /// Anything else that the system said.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    System(i32),
}

impl PortRefusal {
    /// What an error of the system means here.
    pub(crate) const fn from_errno(errno: i32) -> Self {
        match errno {
            libc::EADDRINUSE => Self::InUse,
            libc::EACCES | libc::EPERM => Self::NotPermitted,
            libc::EMFILE | libc::ENFILE => Self::NoDescriptors,
            other => Self::System(other),
        }
    }
}
