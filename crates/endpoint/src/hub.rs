//! Where a connection's completions come from: a queue of its own, or one that many share.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use ferroce_verbs::{Completion, CompletionQueue, Context, CreateError, Haste, Qpn};

use crate::error::SetupError;

/// A completion queue that several connections share: see [`Options::completion_hub`](crate::Options::completion_hub).
/// Clones are the same hub.
///
/// A thread that looks for completions of its own connection hands out those of the others too, so no extra
/// thread is needed.
#[derive(Clone)]
pub struct CompletionHub {
    hub: Arc<Hub>,
}

struct Hub {
    queue: CompletionQueue,
    members: Mutex<Members>,
    /// How many calls have asked for a look since the one that is looking began.
    asked: AtomicU32,
    /// Connections that must be woken at once. Without any, the driver may be parked.
    hasty: AtomicU32,
    waker: Waker,
}

#[derive(Default)]
struct Members {
    inboxes: HashMap<Qpn, Arc<Inbox>>,
    /// Completions that they may have under way together.
    needed: u64,
}

/// The completions of one connection.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    inside: Mutex<Mail>,
}

#[derive(Debug, Default)]
struct Mail {
    arrived: VecDeque<Completion>,
    wakers: Vec<Waker>,
    /// One of the wakers must be called at once: the hub counts this one.
    hasty: bool,
}

const CHUNK: usize = 16;

impl CompletionHub {
    /// A hub for this many completions under way, of all its connections together.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn new(context: &Context, capacity: u32) -> Result<Self, CreateError> {
        let queue = context.completion_queue(capacity)?;
        let make = |weak: &Weak<Hub>| Hub {
            queue,
            members: Mutex::default(),
            asked: AtomicU32::new(0),
            hasty: AtomicU32::new(0),
            waker: Waker::from(Arc::new(Pump(weak.clone()))),
        };
        Ok(Self { hub: Arc::new_cyclic(make) })
    }

    pub(crate) fn queue(&self) -> &CompletionQueue {
        &self.hub.queue
    }

    /// Takes a connection in that may have so many completions under way.
    pub(crate) fn enter(&self, qpn: Qpn, needed: u32) -> Result<Arc<Inbox>, SetupError> {
        let mut members = self.hub.members();
        let (given, most) = (members.needed + u64::from(needed), u64::from(self.hub.queue.capacity()));
        if given > most {
            let option = "completions of all connections of the completion hub";
            return Err(SetupError::Option { option, given, least: 1, most });
        }
        members.needed = given;
        let inbox = Arc::<Inbox>::default();
        members.inboxes.insert(qpn, Arc::clone(&inbox));
        Ok(inbox)
    }

    fn leave(&self, qpn: Qpn, needed: u32) {
        let mut members = self.hub.members();
        let Some(inbox) = members.inboxes.remove(&qpn) else { return };
        members.needed -= u64::from(needed);
        drop(members);
        self.hub.relax(&inbox);
    }
}

impl fmt::Debug for CompletionHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionHub({} connections)", self.hub.members().inboxes.len())
    }
}

impl Hub {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out what there is, and asks to be called when there is more. One thread does it at a time, and
    /// looks once more if another asked meanwhile; so a call from within the look itself is no harm.
    fn pump(&self) {
        if self.asked.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        loop {
            let asked = self.asked.load(Ordering::Acquire);
            let mut found = [Completion::EMPTY; CHUNK];
            loop {
                let haste = match self.hasty.load(Ordering::SeqCst) {
                    0 => Haste::InTime,
                    _ => Haste::AtOnce,
                };
                let taken = self.queue.poll_or_wake(&mut found, &self.waker, haste);
                if taken == 0 {
                    break;
                }
                self.hand_out(&found[..taken]);
            }
            if self.asked.compare_exchange(asked, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
        }
    }

    fn hand_out(&self, found: &[Completion]) {
        for completion in found {
            // A connection that is gone does not ask what became of its work.
            let inbox = self.members().inboxes.get(&completion.qpn).cloned();
            let wakers = inbox.map_or_else(Vec::new, |inbox| {
                let mut inside = inbox.inside();
                inside.arrived.push_back(*completion);
                if std::mem::take(&mut inside.hasty) {
                    self.hasty.fetch_sub(1, Ordering::SeqCst);
                }
                std::mem::take(&mut inside.wakers)
            });
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Leaves a waker with a connection's completions.
    fn note_waker(&self, inbox: &Inbox, waker: &Waker, haste: Haste) {
        let mut inside = inbox.inside();
        if !inside.wakers.iter().any(|known| known.will_wake(waker)) {
            inside.wakers.push(waker.clone());
        }
        if haste == Haste::AtOnce && !std::mem::replace(&mut inside.hasty, true) {
            self.hasty.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What waits for this connection's completions has time from now on. A connection that becomes hasty meanwhile may
    /// wait a millisecond longer.
    fn relax(&self, inbox: &Inbox) {
        let was_hasty = std::mem::take(&mut inbox.inside().hasty);
        if was_hasty && self.hasty.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.queue.relax();
        }
    }
}

/// Hands out completions when there are some.
struct Pump(Weak<Hub>);

impl Wake for Pump {
    fn wake(self: Arc<Self>) {
        if let Some(hub) = self.0.upgrade() {
            hub.pump();
        }
    }
}

impl Inbox {
    fn inside(&self) -> MutexGuard<'_, Mail> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, into: &mut [Completion]) -> usize {
        let mut inside = self.inside();
        let count = into.len().min(inside.arrived.len());
        for (place, found) in into.iter_mut().zip(inside.arrived.drain(..count)) {
            *place = found;
        }
        count
    }
}

/// Where a connection's completions come from.
#[derive(Debug)]
pub(crate) enum Completions {
    Own(CompletionQueue),
    Shared { hub: CompletionHub, inbox: Arc<Inbox>, qpn: Qpn, needed: u32 },
}

impl Completions {
    /// Takes some off, if there are any.
    pub(crate) fn poll(&self, into: &mut [Completion]) -> usize {
        match self {
            Self::Own(queue) => queue.poll(into),
            Self::Shared { hub, inbox, .. } => match inbox.take(into) {
                0 => {
                    hub.hub.pump();
                    inbox.take(into)
                }
                taken => taken,
            },
        }
    }

    /// Whether some may be there already.
    pub(crate) fn may_have_some(&self) -> bool {
        match self {
            Self::Own(queue) => queue.may_have_some(),
            Self::Shared { .. } => true,
        }
    }

    /// Takes off those that are there, without a look at the device.
    pub(crate) fn take(&self, into: &mut [Completion]) -> usize {
        match self {
            Self::Own(queue) => queue.take(into),
            Self::Shared { inbox, .. } => inbox.take(into),
        }
    }

    /// Takes some off; if there are none, has `waker` called when there are.
    pub(crate) fn poll_or_wake(&self, into: &mut [Completion], waker: &Waker, haste: Haste) -> usize {
        match self {
            Self::Own(queue) => queue.poll_or_wake(into, waker, haste),
            Self::Shared { hub, inbox, .. } => {
                hub.hub.note_waker(inbox, waker, haste);
                hub.hub.pump();
                inbox.take(into)
            }
        }
    }

    /// What waits for them has time from now on.
    pub(crate) fn relax(&self) {
        match self {
            Self::Own(queue) => queue.relax(),
            Self::Shared { hub, inbox, .. } => hub.hub.relax(inbox),
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if let Self::Shared { hub, qpn, needed, .. } = self {
            hub.leave(*qpn, *needed);
        }
    }
}
