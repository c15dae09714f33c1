//! How it is with something that leaves the analyzer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How it is with one outlet.
///
/// What is counted are requests, or for `windows` rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutletState {
    /// Which one.
    pub name: &'static str,
    /// Where it goes: a URL, or a directory.
    pub to: String,
    /// What waits to be taken.
    pub waiting: u64,
    /// What was taken.
    pub sent: u64,
    /// What was refused for good.
    pub refused: u64,
    /// What will never be taken, since too much waited, or since nothing could be written.
    pub dropped: u64,
    /// Times that something was not taken, and was tried again or given up.
    pub failures: u64,
    /// When something was taken last, in nanoseconds of the Unix clock; 0 if nothing was.
    pub last_success: u64,
    /// Why nothing is taken now; empty if something is, or nothing was tried.
    pub trouble: String,
    /// What lies in the directory.
    pub kept: Option<KeptFiles>,
}

/// Files that lie in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptFiles {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were removed, since they were too old or too many.
    pub removed: u64,
}

impl OutletState {
    /// An outlet that has done nothing yet.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }
}

/// A state that an outlet writes, and others read.
#[derive(Clone, Debug)]
pub(super) struct Cell(Arc<Mutex<OutletState>>);

impl Cell {
    pub(super) fn new(name: &'static str, to: String) -> Self {
        Self(Arc::new(Mutex::new(OutletState { to, ..OutletState::new(name) })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, OutletState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many were taken.
    pub(super) fn sent(&self, count: u64, now: u64) {
        let mut state = self.lock();
        state.sent += count;
        state.last_success = now;
        state.trouble.clear();
    }

    /// Something was not taken for now.
    pub(super) fn failed(&self, why: String) {
        let mut state = self.lock();
        state.failures += 1;
        state.trouble = why;
    }
}
