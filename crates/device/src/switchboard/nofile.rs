//! Whether the process may have the descriptors that a switchboard needs.

use std::io;

use super::SOCKETS;
use super::error::{SwitchError, refused};

/// Descriptors that joining needs: the sockets, the shared file, and a few of the member's own.
const NEEDED: u64 = SOCKETS as u64 + 16;

/// Descriptors beyond that a program should have for itself after a limit was raised.
const SPARE: u64 = 256;

/// Sees to it that there is room for the sockets of all slots: raises the soft limit towards the hard
/// one if need be.
pub(super) fn make_room() -> Result<(), SwitchError> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let needs = open + NEEDED;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit that lives during the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(refused("the limit of descriptors")(io::Error::last_os_error()));
    }
    if limit.rlim_cur >= needs {
        return Ok(());
    }
    if limit.rlim_max < needs {
        return Err(SwitchError::TooFewDescriptors { limit: limit.rlim_max, needs });
    }
    limit.rlim_cur = limit.rlim_max.min(needs + SPARE);
    // SAFETY: the pointer is to a limit that lives during the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(SwitchError::TooFewDescriptors { limit: limit.rlim_cur, needs });
    }
    Ok(())
}
