//! File descriptors that threads sleep on.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use ferroce_transport::Time;

use crate::clock;
use crate::sync::Alarm;

/// A descriptor that is readable from [`signal`](Self::signal) until [`clear`](Self::clear).
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, not readable.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable. Never waits.
    pub fn signal(&self) {
        signal(self.0.as_fd());
    }

    /// Makes it unreadable again. Never waits, also if the program has made the descriptor blocking.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // A position of -1 is that of the descriptor, and an eventfd has none.
        let read = preadv2(&self.0, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT);
        let is_refused = read.is_err_and(|error| error != Errno::AGAIN);
        if is_refused && self.wait(Some(Duration::ZERO)).unwrap_or(false) {
            // An old kernel: no other thread reads it, so what was just seen is still there.
            let _ = rustix::io::read(&self.0, &mut count);
        }
    }

    /// Waits until it is readable, or until the time is over; for ever without one.
    ///
    /// # Errors
    /// The descriptor is broken.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        wait_readable(self.0.as_fd(), timeout)
    }
}

impl Alarm for EventFd {
    fn sound(&self) {
        self.signal();
    }

    fn silence(&self) {
        self.clear();
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes an event readable that may be of another process ([`is_event`]).
pub fn signal(event: BorrowedFd<'_>) {
    // A full counter is readable too.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Whether a descriptor that came from another process may be an event which is signalled without waiting: it is of no file,
/// no pipe and no socket, and does not block. A process that means harm can make it block later, and could as well stop this
/// one by a signal.
#[must_use]
pub fn is_event(fd: BorrowedFd<'_>) -> bool {
    // What is behind the descriptors of events has no type.
    let has_no_type = rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == 0);
    let flags = rustix::fs::fcntl_getfl(fd);
    has_no_type
        && flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::RDWR))
}

/// A descriptor that is readable from a certain time on.
#[derive(Debug)]
pub struct AlarmClock(OwnedFd);

impl AlarmClock {
    /// One that is not set.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Has it readable from this time on, and not before. Never waits.
    pub fn set(&self, time: Time) {
        let nanos = clock::shared(time).max(1);
        let it_value =
            Timespec { tv_sec: (nanos / NANOS).cast_signed(), tv_nsec: (nanos % NANOS).cast_signed() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // Cannot fail: the time is well formed.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once);
    }
}

impl AsFd for AlarmClock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// Waits until a descriptor is readable, or until the time is over; for ever without one.
///
/// # Errors
/// The descriptor is broken. A signal counts as the end of the time.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    wait_either([fd], timeout)
}

/// The same with several of them.
pub fn wait_either<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> io::Result<bool> {
    let mut entries = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let limit = timeout.map(timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = N as libc::nfds_t;
    // SAFETY: both pointers are to values that live during the call, or null, which means for ever.
    let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, limit, std::ptr::null()) };
    match ready {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
        ready => Ok(ready > 0),
    }
}

/// Waits until one of these is ready for what its entry asks, or until the time is over; for ever without
/// one. A signal may end it sooner. The system call is made directly: it is no place where a thread may be
/// cancelled.
pub fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) {
    let limit = timeout.map(timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (no_signals, none) = (std::ptr::null::<libc::sigset_t>(), 0_usize);
    // SAFETY: the pointers are to that many entries and to a time that live during the call, or null for no
    // limit and for no signals to be blocked.
    let ready = unsafe {
        libc::syscall(libc::SYS_ppoll, entries.as_mut_ptr(), entries.len(), limit, no_signals, none)
    };
    if ready < 0 {
        for entry in entries {
            entry.revents = 0;
        }
    }
}

/// A time span as the kernel takes it.
#[must_use]
pub fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos().cast_signed()),
    }
}

/// Takes over what a system call returned.
pub fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel gave it to us just now, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_from_what_could_block() {
        let event = EventFd::new().unwrap();
        assert!(is_event(event.as_fd()));
        let copy = event.as_fd().try_clone_to_owned().unwrap();
        signal(copy.as_fd());
        assert!(event.wait(Some(Duration::ZERO)).unwrap());
        assert!(!is_event(std::fs::File::open("/dev/null").unwrap().as_fd()));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        assert!(!is_event(one.as_fd()));
        // SAFETY: a system call without pointers.
        let blocking = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }).unwrap();
        assert!(!is_event(blocking.as_fd()));
    }

    #[test]
    fn clearing_never_waits_also_on_a_blocking_descriptor() {
        let event = EventFd::new().unwrap();
        // SAFETY: a system call without pointers, on a descriptor of this test.
        let flags = unsafe { libc::fcntl(event.0.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: as above.
        let set = unsafe { libc::fcntl(event.0.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) };
        assert_eq!(set, 0);
        event.clear();
        event.signal();
        assert!(event.wait(Some(Duration::ZERO)).unwrap());
        event.clear();
        event.clear();
        assert!(!event.wait(Some(Duration::ZERO)).unwrap());
    }
}
