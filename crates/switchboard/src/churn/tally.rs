//! What happened, in a file that all processes of a run have mapped.

use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many processes count.
#[derive(Debug)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn max(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[repr(C)]
        #[derive(Debug)]
        pub(super) struct Counts {
            $($(#[$doc])* pub(super) $name: Count,)*
        }

        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(write!(f, concat!(stringify!($name), " {} "), self.$name.get())?;)*
                Ok(())
            }
        }
    };
}

counts! {
    processes,
    leader_kills,
    kills,
    kills_of_all,
    /// The process that leads.
    leader,
    joined,
    /// Joins that returned an error.
    failed_joins,
    /// The longest join, in microseconds.
    longest_join,
    pings,
    echoed,
    /// Echoes of pings that travelled in a run for another slot.
    echoed_riders,
    /// Packets that came to a slot that they were not for, and not in a run.
    misdelivered,
    /// Packets for an earlier owner of the slot.
    stale,
    /// Pings without an echo, although their target was there all the time.
    lost,
    /// Slots that another process took while their owner lived.
    two_owners,
    forwarded,
}

/// Shared files that can be remembered; the kill of all makes a new one every few seconds.
const FILES: usize = 256;

/// Where they stand in the file.
const FILES_AT: usize = 4096;

/// Bytes of the file.
const LEN: usize = FILES_AT + FILES * 8;

/// The counts, mapped.
pub(super) struct Tally(*const Counts);

impl Tally {
    pub(super) fn create(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        file.set_len(LEN as u64).unwrap();
        Self::open(path)
    }

    pub(super) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping wherever the kernel likes, of a file that no process shortens.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), LEN, access, kind, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at.cast())
    }

    /// The inodes of the shared files of all switchboards of this run.
    fn files(&self) -> &[Count; FILES] {
        // SAFETY: the mapping is as long as that, is never unmapped, and everything in it is atomic.
        unsafe { &*self.0.wrapping_byte_add(FILES_AT).cast() }
    }

    /// Remembers a shared file.
    pub(super) fn note_file(&self, inode: u64) {
        let place = |count: &Count| {
            let new = count.0.compare_exchange(0, inode, Ordering::SeqCst, Ordering::SeqCst);
            new.is_ok() || new == Err(inode)
        };
        let _ = self.files().iter().any(place);
    }

    /// Those that were remembered.
    pub(super) fn noted_files(&self) -> Vec<u64> {
        self.files().iter().map(Count::get).filter(|inode| *inode != 0).collect()
    }
}

impl std::ops::Deref for Tally {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        // SAFETY: the mapping is longer than the counts, is never unmapped, and everything in it is atomic.
        unsafe { &*self.0 }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
