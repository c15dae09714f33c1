//! What the owners of two slots have of a hand-over, and whether this process takes part in any.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ferroce_sys::fork::{Record, Tracked};
use ferroce_sys::lock_keeper::{self, Owner};
use ferroce_sys::{Random, descriptor, unix, users};

use super::names;
use super::no_lane::NoLane;

/// Descriptors that one offer may carry.
pub const MOST_OFFERED: usize = 4;

/// Descriptors that one answer may carry.
pub const MOST_ANSWERED: usize = 3;

/// What the owner of another slot offers.
#[derive(Debug)]
#[non_exhaustive]
pub struct LaneOffer {
    /// Its slot.
    pub from: u8,
    /// What tells it from all other owners that the slot has had.
    pub incarnation: u64,
    /// What it offers, which may be anything. No forked child keeps it.
    pub descriptors: Vec<Tracked>,
    /// What tells when it is gone.
    pub lifeline: Lifeline,
}

/// What the owner of another slot answers to an offer that it has taken.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reached {
    /// What tells it from all other owners that the slot has had.
    pub incarnation: u64,
    /// What it answers with, which may be anything. No forked child keeps it.
    pub descriptors: Vec<Tracked>,
    /// What tells when it is gone.
    pub lifeline: Lifeline,
}

/// A connection to another process over which nothing is said: it is readable as soon as that process is gone, or has
/// dropped its end. To drop this end tells the other one.
#[derive(Debug)]
pub struct Lifeline(Arc<Tracked>);

impl Lifeline {
    pub(super) const fn new(socket: Arc<Tracked>) -> Self {
        Self(socket)
    }

    /// Whether the other process is gone, or has dropped its end. Never waits.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let mut entry = [libc::pollfd { fd: self.0.raw(), events: libc::POLLIN, revents: 0 }];
        descriptor::poll(&mut entry, Some(Duration::ZERO));
        // Bytes would be as much against the rules as their end.
        entry[0].revents != 0
    }
}

impl AsFd for Lifeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether this process takes part, and where it listens.
#[derive(Debug)]
pub(super) struct Lanes {
    unfit: Option<NoLane>,
    listener: Option<(u64, Tracked)>,
}

impl Lanes {
    /// Listens at a name that nothing outside can foresee. Where that is refused, there are no lanes, and everything else works.
    pub(super) fn open(record: &'static Record, random: &mut Random) -> Self {
        let uid = unix::own_uid();
        let unfit = if users::is_overflow(uid) {
            Some(NoLane::UserUnknown { uid })
        } else if lock_keeper::owner().ok() != Some(Owner::Thread) {
            Some(NoLane::LocksOfProcess)
        } else {
            None
        };
        let drawn = random.next_u64().max(1);
        let listen = || Tracked::open(record, || unix::listen(names::of_lanes(drawn).as_bytes())).ok();
        let listener = if unfit.is_none() { listen() } else { None };
        Self { unfit, listener: listener.map(|listener| (drawn, listener)) }
    }

    /// Why this process takes no part, if it does not.
    pub(super) const fn unfit(&self) -> Option<&NoLane> {
        self.unfit.as_ref()
    }

    /// Where it listens.
    pub(super) fn listener(&self) -> Option<&Tracked> {
        self.listener.as_ref().map(|(_, listener)| listener)
    }

    /// As it stands in the shared file: no name is made from zero.
    pub(super) fn word(&self) -> u64 {
        self.listener.as_ref().map_or(0, |(drawn, _)| *drawn)
    }
}
