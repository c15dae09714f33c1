//! Record locks on the shared file: which process owns a slot.
//!
//! They are the classic ones of POSIX and belong to a *table of descriptors*, which as a rule is the one that all threads of a
//! process have: the kernel releases them however it ends, a forked child does not have them, and a descriptor that was
//! passed on does not carry them. The price is that closing *any* descriptor of the file in that table releases all of
//! them; so they are had through a [`LockKeeper`](crate::lock_keeper::LockKeeper), which has a table of its own.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Locks one byte for the descriptor table of this thread; false if another has it.
pub fn lock(file: BorrowedFd<'_>, byte: u64) -> io::Result<bool> {
    match command(file, libc::F_SETLK, &mut record(byte, libc::F_WRLCK)) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Gives one byte back.
pub fn unlock(file: BorrowedFd<'_>, byte: u64) -> io::Result<()> {
    command(file, libc::F_SETLK, &mut record(byte, libc::F_UNLCK))
}

/// Whether another owner has locked this byte. What the table of this thread has locked itself is not seen.
#[must_use]
pub fn is_locked_by_another(file: BorrowedFd<'_>, byte: u64) -> bool {
    let mut record = record(byte, libc::F_WRLCK);
    command(file, libc::F_GETLK, &mut record).is_ok() && c_int(record.l_type) != libc::F_UNLCK
}

fn c_int(value: libc::c_short) -> libc::c_int {
    value.into()
}

fn record(byte: u64, kind: libc::c_int) -> libc::flock {
    // SAFETY: a record of C is numbers, for which zero is a value.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = libc::c_short::try_from(kind).unwrap_or(0);
    record.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0);
    record.l_start = byte.cast_signed();
    record.l_len = 1;
    record
}

fn command(file: BorrowedFd<'_>, command: libc::c_int, record: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the pointer is to a record that is borrowed for longer than the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(record)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
