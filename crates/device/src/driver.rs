//! The driver: a thread that turns the engine while no other thread does.
//!
//! It sleeps in epoll on the sockets (edge-triggered) and on its own bell. Programs that poll do
//! its work better than it can: after a few polls that found nothing it is *parked*, which means
//! that the sockets no longer wake it; it looks once a millisecond whether the program still
//! calls, and takes over when it does not. If the engine is taken when it wakes, it rings and
//! sleeps again: the thread inside looks at the bell when it leaves.

pub(crate) mod thread;

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::descriptor::EventFd;
use ferroce_sys::epoll::{Epoll, Watch as Arrivals};
use ferroce_sys::sync::Doze;
use ferroce_sys::sync::lock;
use ferroce_transport::Time;

/// Polls that found nothing before the driver is parked.
const PARK_AFTER: u32 = 4;

/// Polls that found something before the driver is parked: a program that keeps coming needs no driver to
/// go before it, although it never has to wait.
const PARK_AFTER_FINDING: u32 = 64;

/// How long only polls that found nothing count, once a program was found to look elsewhere than in its
/// completion queue: it may be one that waits for its memory to change.
const CAUGHT: Duration = Duration::from_secs(1);

/// How often a parked driver looks whether the program still calls.
const TICK: Duration = Duration::from_millis(1);

/// Looks without a call before the driver stops looking and waits for packets only.
const QUIET_TICKS: u32 = 16;

/// Completions after which the driver is armed at once, when a program was found gone.
const PERMISSIONS: u32 = 16;

/// What other threads see of the driver.
#[derive(Debug)]
pub(crate) struct Driver {
    epoll: Epoll,
    sockets: Vec<RawFd>,
    doze: Doze<EventFd>,
    stop: AtomicBool,
    /// The sockets wake it. Changed only together with what epoll knows, under the lock.
    armed: AtomicBool,
    arming: Mutex<()>,
    /// When it wakes by itself, in nanoseconds; `u64::MAX` for never.
    wakes_at: AtomicU64,
    /// Polls that found nothing since it was last armed.
    empty_polls: AtomicU32,
    /// Polls that found something since it was last armed.
    finding_polls: AtomicU32,
    /// Until when these do not count, in nanoseconds.
    caught_until: AtomicU64,
    /// Completions at which it may be armed again.
    permissions: AtomicU32,
    /// How many completion queues of the device the program sleeps for: then it must not be parked.
    slept_for: Arc<AtomicU32>,
    /// A thread that waits for a completion sits in its place: sockets are for that one to watch.
    seated: AtomicBool,
    /// How often programs had looked when it was last armed at a completion.
    armed_at: AtomicU64,
}

impl Driver {
    /// `slept_for` is shared by the drivers of a device.
    pub(crate) fn new(sockets: &[RawFd], slept_for: Arc<AtomicU32>) -> io::Result<Self> {
        let driver = Self {
            epoll: Epoll::new()?,
            sockets: sockets.to_vec(),
            doze: Doze::new(EventFd::new()?),
            stop: AtomicBool::new(false),
            armed: AtomicBool::new(true),
            arming: Mutex::new(()),
            armed_at: AtomicU64::new(0),
            slept_for,
            seated: AtomicBool::new(false),
            wakes_at: AtomicU64::new(u64::MAX),
            empty_polls: AtomicU32::new(0),
            finding_polls: AtomicU32::new(0),
            caught_until: AtomicU64::new(0),
            permissions: AtomicU32::new(0),
        };
        driver.epoll.add(driver.doze.alarm().as_fd().as_raw_fd(), Arrivals::WhileReadable)?;
        for socket in &driver.sockets {
            driver.epoll.add(*socket, Arrivals::EachArrival)?;
        }
        Ok(driver)
    }

    /// Wakes it, if it sleeps.
    pub(crate) fn wake(&self) {
        self.doze.wake_if_asleep();
    }

    /// Ends it.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// The engine was left and has to be turned at this time: sees to it that a thread does so.
    pub(crate) fn needed_at(&self, time: Option<Time>) {
        let Some(mut time) = time else { return };
        let parked = !self.armed.load(Ordering::SeqCst) && !self.seated.load(Ordering::SeqCst);
        let wakes_at = Time::from_nanos(self.wakes_at.load(Ordering::SeqCst));
        if parked && time < wakes_at {
            // A parked driver looks once a tick anyway, and the program that polls runs the timers itself, if late.
            time = time.max(clock::now()) + TICK;
        }
        if time < wakes_at && self.wakes_at.fetch_min(time.nanos(), Ordering::SeqCst) > time.nanos() {
            self.wake();
        }
    }

    /// What it watches.
    pub(crate) fn sockets(&self) -> &[RawFd] {
        &self.sockets
    }

    /// Lets a thread that is going to sleep watch the sockets; false if another thread does so already, or
    /// others rely on the driver.
    pub(crate) fn give_place(&self) -> bool {
        if self.slept_for.load(Ordering::SeqCst) > 0 || self.seated.swap(true, Ordering::SeqCst) {
            return false;
        }
        if self.armed.load(Ordering::Relaxed) {
            self.park();
        }
        true
    }

    /// That thread is awake. Should it never call again, this has to be noticed soon.
    pub(crate) fn take_place_back(&self) {
        self.seated.store(false, Ordering::SeqCst);
        let soon = clock::now() + TICK;
        if self.wakes_at.load(Ordering::SeqCst) > (soon + TICK).nanos() {
            self.needed_at(Some(soon));
        }
    }

    /// Whether it leaves the sockets to programs that poll.
    pub(crate) fn is_parked(&self) -> bool {
        !self.armed.load(Ordering::Relaxed)
    }

    /// A poll found completions or packets. Only an estimate: threads that do this at once may count as one.
    #[inline]
    pub(crate) fn found_something(&self) {
        if self.armed.load(Ordering::Relaxed) {
            let polls = self.finding_polls.load(Ordering::Relaxed) + 1;
            self.finding_polls.store(polls, Ordering::Relaxed);
            if polls >= PARK_AFTER_FINDING {
                self.park_if_not_caught();
            }
        }
    }

    #[cold]
    fn park_if_not_caught(&self) {
        self.finding_polls.store(0, Ordering::Relaxed);
        let caught = clock::now().nanos() < self.caught_until.load(Ordering::Relaxed);
        if !caught && self.slept_for.load(Ordering::SeqCst) == 0 {
            self.park();
        }
    }

    /// A poll found nothing, or something.
    pub(crate) fn polled(&self, empty: bool, looks: u64) {
        if !empty {
            if !self.armed.load(Ordering::Relaxed) && self.permissions.load(Ordering::Relaxed) > 0 {
                self.permissions.fetch_sub(1, Ordering::Relaxed);
                self.armed_at.store(looks, Ordering::Relaxed);
                self.arm();
            } else {
                self.found_something();
            }
            return;
        }
        let empty = self.empty_polls.load(Ordering::Relaxed) + 1;
        self.empty_polls.store(empty, Ordering::Relaxed);
        let nobody_sleeps = self.slept_for.load(Ordering::SeqCst) == 0;
        if empty >= PARK_AFTER && self.armed.load(Ordering::Relaxed) && nobody_sleeps {
            self.park();
        }
    }

    fn park(&self) {
        self.set_armed(false);
        // From now on it has to look by itself.
        self.needed_at(Some(clock::now()));
    }

    fn arm(&self) {
        self.empty_polls.store(0, Ordering::Relaxed);
        self.finding_polls.store(0, Ordering::Relaxed);
        // Whatever is in the socket already is reported as if it had just come.
        self.set_armed(true);
    }

    fn set_armed(&self, armed: bool) {
        let _both = lock(&self.arming);
        if self.armed.swap(armed, Ordering::SeqCst) != armed {
            // Taken out, not only silenced: a socket that no thread waits for wakes none when a packet comes,
            // and the thread that sent it is done sooner.
            for socket in &self.sockets {
                // Cannot fail: the descriptors live as long as the driver.
                drop(match armed {
                    true => self.epoll.add(*socket, Arrivals::EachArrival),
                    false => self.epoll.remove(*socket),
                });
            }
        }
    }

    /// The program is going to sleep until something completes: no thread will poll.
    pub(crate) fn expect_sleep(&self) {
        self.empty_polls.store(0, Ordering::Relaxed);
        self.finding_polls.store(0, Ordering::Relaxed);
        if !self.armed.load(Ordering::SeqCst) {
            self.arm();
        }
    }
}
