//! Whether the kernel can tell this user's processes from others'.
//!
//! It shows a user that the reader's user namespace does not know as the overflow uid, 65534 as a rule. A
//! process that runs as that uid in such a namespace would take every stranger for itself.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::descriptor::owned;

/// What the kernel shows for users that it cannot name, if it does not tell.
const OVERFLOW: u32 = 65_534;

/// Asks a namespace which user namespace it belongs to: `_IO(0xb7, 1)`.
const NS_GET_USERNS: libc::Ioctl = 0xb701;

/// Whether processes of other users may look like those of this one.
#[must_use]
pub fn are_mixed_up(uid: u32) -> bool {
    // Only a process in such a place has to look further.
    is_overflow(uid)
        && !knows_all(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
        && is_guest()
}

/// Whether this is what the kernel shows for users that it cannot name: two that are shown so may be two users.
#[must_use]
pub fn is_overflow(uid: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    // Where the file cannot be read, another number than the usual one would not be noticed: that needs root.
    uid == overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW)
}

/// Whether a map of users has them all: it is a list of first uid inside, first outside, and how many.
fn knows_all(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    // The last uid means none.
    counts.sum::<u64>() >= u64::from(u32::MAX)
}

/// Whether the network namespace belongs to another user namespace than this process: then users that this
/// one does not know may be there. In a network namespace of its own there are only those that it let in.
fn is_guest() -> bool {
    let network = File::open("/proc/thread-self/ns/net").ok().and_then(|network| {
        // SAFETY: takes a descriptor that is open, and gives a new one.
        owned(unsafe { libc::ioctl(network.as_raw_fd(), NS_GET_USERNS) }).ok()
    });
    let identity = |file: File| file.metadata().ok().map(|file| (file.dev(), file.ino()));
    let owner = network.and_then(|owner: OwnedFd| identity(File::from(owner)));
    let ours = File::open("/proc/thread-self/ns/user").ok().and_then(identity);
    owner.is_none() || owner != ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uid_of_all_unknown_users_is_none_of_the_others() {
        assert_eq!([0, 1000, 65_533, 65_535].map(is_overflow), [false; 4]);
        let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap();
        assert!(is_overflow(overflow.trim().parse().unwrap()));
    }

    #[test]
    fn a_map_of_all_users_is_told_from_others() {
        assert!(knows_all("         0          0 4294967295\n"));
        assert!(knows_all("0 100000 65536\n65536 0 4294901759\n"));
        for map in ["", "0 1000 1\n", "65534 1000 1\n", "0 100000 65536\n", "x y z\n"] {
            assert!(!knows_all(map), "{map}");
        }
    }
}
