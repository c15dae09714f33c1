//! The memory that the ends open to each other, by name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use ferroce_verbs::{Access, MemoryRegion};

use super::{Core, Waiters, Wakes};
use crate::error::{Error, Names, Violation};
use crate::frame::{Exposure, Kind};

/// What is open, in both directions.
pub(super) struct Exposures {
    /// What the peer has opened.
    theirs: HashMap<u32, Arc<Remote>>,
    /// What we have opened; without the region once we have closed it and wait for the peer to let go.
    ours: HashMap<u32, Opened>,
    next_id: u32,
    /// Closed by the peer, to be answered.
    to_answer: Vec<u32>,
    /// Closed by the program, to be told.
    to_conceal: Vec<u32>,
    seekers: Waiters,
    _window: Option<MemoryRegion>,
}

struct Opened {
    name: String,
    _region: Arc<MemoryRegion>,
    concealing: bool,
}

/// Memory that the peer has opened.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) exposure: Exposure,
    pub(crate) closed: AtomicBool,
}

/// Exposures of one connection.
pub(crate) const MOST_EXPOSURES: usize = 1024;

impl Exposures {
    pub(super) fn new(window: Option<MemoryRegion>) -> Self {
        Self {
            theirs: HashMap::new(),
            ours: HashMap::new(),
            next_id: 0,
            to_answer: Vec::new(),
            to_conceal: Vec::new(),
            seekers: Waiters::default(),
            _window: window,
        }
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        self.seekers.wake(wakes);
    }
}

impl Core {
    /// Opens memory to the peer.
    pub(crate) fn try_expose(
        &mut self,
        region: &Arc<MemoryRegion>,
        name: &str,
        access: Access,
        ticket: &mut Option<u64>,
    ) -> Poll<Result<u32, Error>> {
        if let Err(error) = self.check_standing() {
            return Poll::Ready(Err(error));
        }
        if self.exposures.ours.values().any(|opened| !opened.concealing && opened.name == name) {
            return Poll::Ready(Err(Error::NameTaken { name: name.to_owned() }));
        }
        if self.exposures.ours.len() >= MOST_EXPOSURES {
            return Poll::Ready(Err(Error::TooManyExposures { allowed: MOST_EXPOSURES }));
        }
        if !self.is_turn(*ticket) || !self.has_room() || !self.has_credit() {
            return self.wait_turn(ticket);
        }
        let id = self.exposures.next_id;
        let exposure = Exposure { id, access, region: region.remote(), name: name.to_owned() };
        let posted = self.post_frame(Kind::Expose, &exposure.emit());
        self.leave_queue(ticket);
        if let Err(error) = posted {
            return Poll::Ready(Err(self.refused(error)));
        }
        self.exposures.next_id = id.wrapping_add(1);
        let opened = Opened { name: name.to_owned(), _region: Arc::clone(region), concealing: false };
        self.exposures.ours.insert(id, opened);
        Poll::Ready(Ok(id))
    }

    /// Closes memory of ours: it stays until the peer has let go of it.
    pub(crate) fn conceal(&mut self, id: u32) {
        if let Some(opened) = self.exposures.ours.get_mut(&id)
            && !opened.concealing
        {
            opened.concealing = true;
            self.exposures.to_conceal.push(id);
            self.pump();
        }
    }

    /// Tells of exposures that end, as far as the peer has room.
    pub(super) fn answer_concealments(&mut self) {
        while let Some(id) = self.exposures.to_answer.last().copied() {
            if !self.has_credit() || !self.has_own_room() {
                return;
            }
            if self.post_frame(Kind::Concealed, &id.to_be_bytes()).is_err() {
                return;
            }
            self.exposures.to_answer.pop();
        }
        while let Some(id) = self.exposures.to_conceal.last().copied() {
            if !self.has_credit() || !self.has_own_room() {
                return;
            }
            if self.post_frame(Kind::Conceal, &id.to_be_bytes()).is_err() {
                return;
            }
            self.exposures.to_conceal.pop();
        }
    }

    /// Whether the end of an exposure is to be told.
    pub(super) fn has_concealments(&self) -> bool {
        !self.exposures.to_answer.is_empty() || !self.exposures.to_conceal.is_empty()
    }

    /// What the peer has opened under this name, if it has.
    pub(crate) fn find_remote(&self, name: &str) -> Poll<Result<Arc<Remote>, Error>> {
        let named = |remote: &&Arc<Remote>| remote.exposure.name == name;
        match self.exposures.theirs.values().filter(named).max_by_key(|remote| remote.exposure.id) {
            Some(remote) => Poll::Ready(Ok(Arc::clone(remote))),
            None => match self.check_standing() {
                Err(error) => Poll::Ready(Err(error)),
                Ok(()) if self.receiving.peer_said_goodbye() => Poll::Ready(Err(Error::ClosedByPeer)),
                Ok(()) => Poll::Pending,
            },
        }
    }

    /// All that the peer has opened, oldest first.
    pub(crate) fn remotes(&self) -> Vec<Arc<Remote>> {
        let mut all: Vec<_> = self.exposures.theirs.values().map(Arc::clone).collect();
        all.sort_unstable_by_key(|remote| remote.exposure.id);
        all
    }

    /// The names of all that the peer has opened.
    pub(crate) fn names(&self) -> Names {
        let mut names: Vec<String> =
            self.exposures.theirs.values().map(|remote| remote.exposure.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        Names(names)
    }

    pub(crate) fn add_seeker(&mut self, waker: &Waker) {
        self.exposures.seekers.add(waker);
    }

    pub(super) fn peer_exposes(&mut self, exposure: Exposure) -> Result<(), Violation> {
        let theirs = &mut self.exposures.theirs;
        if theirs.len() + self.exposures.to_answer.len() >= MOST_EXPOSURES
            || theirs.contains_key(&exposure.id)
        {
            return Err(Violation::Exposure);
        }
        theirs.insert(exposure.id, Arc::new(Remote { exposure, closed: false.into() }));
        self.exposures.seekers.wake(&mut self.wakes);
        Ok(())
    }

    pub(super) fn peer_conceals(&mut self, id: u32) -> Result<(), Violation> {
        let remote = self.exposures.theirs.remove(&id).ok_or(Violation::Exposure)?;
        remote.closed.store(true, Ordering::Release);
        self.exposures.to_answer.push(id);
        Ok(())
    }

    pub(super) fn peer_let_go(&mut self, id: u32) -> Result<(), Violation> {
        match self.exposures.ours.get(&id) {
            Some(Opened { concealing: true, .. }) => {
                self.exposures.ours.remove(&id);
                self.exposures.seekers.wake(&mut self.wakes);
                Ok(())
            }
            _ => Err(Violation::Exposure),
        }
    }
}
