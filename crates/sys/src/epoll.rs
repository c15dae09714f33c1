//! Sleeping until one of many descriptors is ready, or a time has come.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_transport::Time;

use crate::clock;
use crate::descriptor::{owned, timespec};

/// When a descriptor wakes the sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// As long as it is readable.
    WhileReadable,
    /// Once for each arrival.
    EachArrival,
    /// As long as it has errors to tell.
    WhileErrors,
}

impl Watch {
    const fn events(self) -> u32 {
        match self {
            Self::WhileReadable => libc::EPOLLIN.cast_unsigned(),
            Self::EachArrival => (libc::EPOLLIN | libc::EPOLLET).cast_unsigned(),
            // These are told without being asked for.
            Self::WhileErrors => 0,
        }
    }
}

/// Descriptors that one look finds ready at most.
const READY: usize = 16;

/// A set of descriptors that one thread sleeps on.
#[derive(Debug)]
pub struct Epoll {
    set: OwnedFd,
    /// The kernel, or a container around us, has no sleep that is exact to the nanosecond.
    coarse: AtomicBool,
}

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a system call without pointers.
        let set = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self { set, coarse: AtomicBool::new(false) })
    }

    /// Adds a descriptor. What is there already counts as if it had just come.
    ///
    /// # Errors
    /// The descriptor is not open, or is in the set.
    pub fn add(&self, fd: RawFd, watch: Watch) -> io::Result<()> {
        self.add_marked(fd, watch, 0)
    }

    /// Adds a descriptor that [`ready`](Self::ready) tells by this mark.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_marked(&self, fd: RawFd, watch: Watch, mark: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, watch.events(), mark)
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// It is not in the set.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// The marks of some descriptors that would end a sleep at once, without sleeping. Those that are left out
    /// come first the next time.
    pub fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY];
        let most = i32::try_from(READY).unwrap_or(1);
        // SAFETY: the pointer is to so many events, which live during the call.
        let found = unsafe { libc::epoll_wait(self.set.as_raw_fd(), events.as_mut_ptr(), most, 0) };
        events.into_iter().take(usize::try_from(found).unwrap_or(0)).map(|event| event.u64)
    }

    /// The descriptor of the set itself: readable while one of its descriptors would end a sleep.
    #[must_use]
    pub fn raw(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    fn control(&self, action: libc::c_int, fd: RawFd, events: u32, mark: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: mark };
        // SAFETY: the pointer is to an event that lives during the call.
        let done = unsafe { libc::epoll_ctl(self.set.as_raw_fd(), action, fd, &raw mut event) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sleeps until a descriptor of the set wakes it, or the time has come; a signal may end it sooner.
    pub fn sleep(&self, until: Option<Time>) {
        if self.coarse.load(Ordering::Relaxed) {
            return self.sleep_by_milliseconds(until);
        }
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let limit = until.map(|until| timespec(clock::until(until)));
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the pointers are to values that live during the call, or null.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.set.as_raw_fd(),
                &raw mut event,
                1,
                limit,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // Not known here, or not allowed in this container.
            self.coarse.store(true, Ordering::Relaxed);
            self.sleep_by_milliseconds(until);
        }
    }

    /// The same on kernels before 5.11.
    fn sleep_by_milliseconds(&self, until: Option<Time>) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let limit = until.map_or(-1, |until| {
            i32::try_from(clock::until(until).as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
        });
        // SAFETY: the pointer is to an event that lives during the call.
        unsafe { libc::epoll_wait(self.set.as_raw_fd(), &raw mut event, 1, limit) };
    }
}
