//! The multicast groups that a process listens to.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use ferroce_fabric::udp::Socket;
use ferroce_sys::sync::wait_for;

use super::error::SwitchError;

/// Groups of a network that one process listens to, at most: each has a socket.
pub(super) const MOST_HEARD: usize = 256;

/// What became of a datagram to a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Processes that got it.
    pub sent: u64,
    /// Processes that have no room for it just now.
    pub no_room: u64,
}

/// The groups of a network that a process listens to.
#[derive(Debug, Default)]
pub(super) struct HeardGroups {
    pub(super) state: Mutex<Hearing>,
    /// A socket was opened, or refused.
    pub(super) answered: Condvar,
    /// How often something has changed.
    pub(super) changes: AtomicU64,
}

impl HeardGroups {
    /// Waits for an answer, but not longer than that.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, Hearing>, time: Duration) -> MutexGuard<'a, Hearing> {
        wait_for(&self.answered, state, time)
    }
}

#[derive(Debug, Default)]
pub(super) struct Hearing {
    pub(super) all: Vec<Arc<Heard>>,
    /// Groups that sockets are to be opened for, with the slot that gets what arrives.
    pub(super) wanted: Vec<(IpAddr, u8)>,
    pub(super) answers: Vec<(IpAddr, io::Result<()>)>,
}

impl Hearing {
    /// Asks for a socket, if there is room for one more.
    pub(super) fn want(&mut self, group: IpAddr, slot: u8) -> Result<(), SwitchError> {
        if self.all.len() + self.wanted.len() >= MOST_HEARD {
            return Err(SwitchError::TooManyListeners { allowed: MOST_HEARD });
        }
        self.wanted.push((group, slot));
        Ok(())
    }

    /// What became of that, if it is known.
    pub(super) fn take_answer(&mut self, group: IpAddr) -> Option<io::Result<()>> {
        let at = self.answers.iter().position(|(of, _)| *of == group)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// Takes the wish back: a socket that is opened later would be read by no queue pair.
    pub(super) fn forget(&mut self, group: IpAddr) {
        self.wanted.retain(|(of, _)| *of != group);
    }
}

/// A group of a network that this process listens to.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) group: IpAddr,
    pub(super) slot: u8,
    pub(super) socket: Socket,
    /// This process has not left the group since.
    pub(super) open: AtomicBool,
}
