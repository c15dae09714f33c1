//! What a case waits for: if it never comes, that is what is told.

use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use ferroce_verbs::time::now;
use ferroce_verbs::{Completion, CompletionChannel, CompletionQueue, WaitError};

use crate::SOON;

/// What is waited for, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    what: &'static str,
    at: &'static Location<'static>,
}

/// What this process has begun to wait for last; if several threads wait, this is one of them.
static NOW: Mutex<Option<Wait>> = Mutex::new(None);
/// What this process has waited for in vain.
static IN_VAIN: Mutex<Option<Wait>> = Mutex::new(None);

/// A completion of a queue, which comes soon.
#[track_caller]
pub(crate) fn completion(
    queue: &CompletionQueue,
    what: &'static str,
    known: impl FnOnce() -> String,
) -> Completion {
    let wait = Wait::begin(what);
    let ended = queue.wait(SOON);
    wait.end();
    match ended {
        Ok(completion) => completion,
        Err(error) => wait.fail(&error, &known()),
    }
}

/// A queue of a channel with news, which come soon.
#[track_caller]
pub(crate) fn reported(channel: &CompletionChannel) -> CompletionQueue {
    let wait = Wait::begin("an event of a completion channel");
    let ended = channel.wait(SOON);
    wait.end();
    match ended {
        Ok(queue) => queue,
        Err(error) => wait.fail(&error, "no queue has news"),
    }
}

/// Looks until something holds, giving way to others in between.
#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let wait = Wait::begin("what must hold in the end");
    let end = now() + SOON;
    while !holds() {
        if now() >= end {
            wait.in_vain();
            panic!("it never happened");
        }
        std::thread::yield_now();
    }
    wait.end();
}

/// What this process waits for just now, if that is known.
pub(crate) fn known() -> Option<Wait> {
    *NOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process has waited for in vain, if there is such a thing.
pub(crate) fn in_vain() -> Option<Wait> {
    *IN_VAIN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wait {
    #[track_caller]
    pub(crate) fn begin(what: &'static str) -> Self {
        let wait = Self { what, at: Location::caller() };
        *NOW.lock().unwrap_or_else(PoisonError::into_inner) = Some(wait);
        wait
    }

    pub(crate) fn end(self) {
        *NOW.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// It did not come.
    pub(crate) fn in_vain(self) {
        IN_VAIN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(self);
    }

    #[track_caller]
    fn fail(self, error: &WaitError, known: &str) -> ! {
        if matches!(error, WaitError::TimedOut(_)) {
            self.in_vain();
        }
        panic!("{}: {error}: {known}", self.what)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, place(self.at))
    }
}

/// A place of this crate by the name of its file and its line.
pub(crate) fn place(at: &Location<'_>) -> String {
    let file = at.file().rsplit('/').next().unwrap_or_default();
    format!("{file}:{}", at.line())
}
