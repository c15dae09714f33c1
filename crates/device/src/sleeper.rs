//! A thread that sleeps for a completion and takes the driver's place meanwhile.
//!
//! Waking the driver, so that it wakes the thread that waits, makes two wakes of one. Instead, the thread
//! itself waits for packets: it sits down in the driver's place, sleeps on the sockets and on a bell of its
//! own, and turns the engine when it wakes. The driver goes on to see to the timers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use ferroce_progress::table::SEAT_SOCKETS;
use ferroce_sys::descriptor::{self, EventFd};

use crate::driver::Driver;

/// The place of a driver, taken by a thread that sleeps there. Dropping this leaves it.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    driver: &'a Driver,
}

impl<'a> Seat<'a> {
    /// Sits down, if the place is free and no other thread relies on the driver.
    pub(crate) fn take(driver: &'a Driver) -> Option<Self> {
        (driver.sockets().len() <= SEAT_SOCKETS && driver.give_place()).then_some(Self { driver })
    }

    /// Sleeps until a packet arrives or the bell rings, or the time is over; for ever without one. Where other processes share
    /// memory with this one, the engine is turned before, so that they know.
    pub(crate) fn sleep(&self, bell: &Bell, timeout: Option<Duration>, turn: impl FnOnce()) {
        if self.driver.is_rung() {
            turn();
        }
        let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let own = bell.event.as_fd().as_raw_fd();
        // Negative ones are left out by the kernel.
        let mut entries = [entry(-1); 1 + SEAT_SOCKETS];
        entries[0] = entry(own);
        for (place, socket) in entries[1..].iter_mut().zip(self.driver.sockets()) {
            place.fd = *socket;
        }
        let count = 1 + self.driver.sockets().len();
        descriptor::poll(&mut entries[..count], timeout);
        // Whatever woke it, a signal too: the thread looks for completions and comes back.
        if entries[0].revents != 0 {
            bell.event.clear();
        }
        // Before the next turn tells others that this engine sleeps again.
        if let Some(rung) = self.driver.bell()
            && entries[count - 1].revents != 0
        {
            rung.clear();
            self.driver.note_woken();
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.driver.take_place_back();
    }
}

/// What wakes one thread while it sits in a driver's place.
#[derive(Debug)]
pub(crate) struct Bell {
    event: Arc<Ringing>,
    pub(crate) waker: Waker,
}

#[derive(Debug)]
struct Ringing(EventFd);

impl std::ops::Deref for Ringing {
    type Target = EventFd;

    fn deref(&self) -> &EventFd {
        &self.0
    }
}

impl Wake for Ringing {
    fn wake(self: Arc<Self>) {
        self.0.signal();
    }
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let event = Arc::new(Ringing(EventFd::new()?));
        let waker = Waker::from(Arc::clone(&event));
        Ok(Self { event, waker })
    }
}
