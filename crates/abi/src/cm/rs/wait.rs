//! Threads that wait for sockets: they poll descriptors of the kernel, and one of their own that others ring.

use std::cell::RefCell;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use ferroce_device::{EventFd, now};
use ferroce_transport::Time;
use libc::{POLLIN, pollfd};

use crate::fork;
use crate::refusal::{Answer, Refused, last_errno};

/// What a thread hears while it waits: another thread may have taken what it waits for out of a queue.
pub(super) type Bell = Arc<EventFd>;

/// The bell of the calling thread, silent.
pub(super) fn own_bell() -> Answer<Bell> {
    thread_local! {
        static BELL: RefCell<Option<(u32, Bell)>> = const { RefCell::new(None) };
    }
    let fresh = || EventFd::new().map(Arc::new).map_err(|error| Refused::new(libc::EMFILE, error));
    let known = BELL.try_with(|known| {
        let mut known = known.try_borrow_mut().ok()?;
        // The parent of a fork has the same one.
        if let Some((_, bell)) = known.as_ref().filter(|(made_in, _)| fork::is_ours(*made_in)) {
            bell.clear();
            return Some(Ok(Arc::clone(bell)));
        }
        let bell = fresh();
        if let Ok(bell) = &bell {
            *known = Some((fork::generation(), Arc::clone(bell)));
        }
        Some(bell)
    });
    // A thread that ends may still close sockets, when what it kept is gone; and so may a handler of a signal.
    known.ok().flatten().unwrap_or_else(fresh)
}

/// An entry that waits until a descriptor is readable.
pub(super) const fn readable(fd: RawFd) -> pollfd {
    pollfd { fd, events: POLLIN, revents: 0 }
}

pub(super) fn of_bell(bell: &Bell) -> pollfd {
    readable(bell.as_fd().as_raw_fd())
}

/// A thread that has waited for so many milliseconds asks whether the peer is still there.
const SILENCE: c_int = 1000;

/// Polls until a time, or until it has been silent for a while.
pub(super) fn poll(entries: &mut [pollfd], until: Option<Time>) -> Answer<c_int> {
    let timeout = until.map(|until| {
        let left = until.since(now());
        // A part of a millisecond is one more, so that the time is over when we are back.
        let left = left.as_nanos().div_ceil(1_000_000);
        c_int::try_from(left).unwrap_or(c_int::MAX)
    });
    poll_for(entries, timeout.unwrap_or(SILENCE).min(SILENCE))
}

/// Polls for so many milliseconds.
pub(super) fn poll_for(entries: &mut [pollfd], timeout: c_int) -> Answer<c_int> {
    let count = entries.len() as libc::nfds_t;
    // SAFETY: the entries live during the call, and are so many.
    match unsafe { libc::poll(entries.as_mut_ptr(), count, timeout) } {
        -1 => Err(last_errno("poll")),
        ready => Ok(ready),
    }
}
