//! Ends of connections that programs hear of a little later, because they have not seen all that came before.
//!
//! A peer says goodbye after its last message, and after it has acknowledged ours. But messages of connection management take
//! another way into this process than those of queue pairs, and a program that hears of the end often gives everything up at
//! once, and with it the completions that it has not taken off (libfabric's `ofi_rxm` does). With a card and a kernel the
//! goodbye takes much longer than the rest; here it may even be faster. So what has arrived is taken in first, and a program
//! that polls has the time to take its completions off.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_transport::Time;
use ferroce_transport::cm::Event;
use ferroce_wire::mad::CommId;

/// How long a program has for its completions: more than it has to wait for a processor, as a rule. One that does not poll hears
/// of the end so much later.
const PATIENCE: Duration = Duration::from_millis(200);

/// The time between two looks whether it has taken them off.
const LOOK: Duration = Duration::from_millis(1);

/// Connections whose end waits at a time; the ends of more are told at once.
const MOST: usize = 64;

/// What is told later, in the order in which it happened.
#[derive(Debug, Default)]
pub(super) struct Partings {
    waiting: VecDeque<Parting>,
    next: Option<Time>,
}

/// Something that is told later.
#[derive(Debug)]
pub(super) struct Parting {
    pub(super) id: CommId,
    pub(super) event: Event,
    /// When it is told at the latest.
    pub(super) until: Time,
}

impl Parting {
    pub(super) fn new(id: CommId, event: Event) -> Self {
        Self { id, event, until: clock::now() + PATIENCE }
    }
}

impl Partings {
    /// When to look at them.
    pub(super) const fn looks_again(&self) -> Option<Time> {
        self.next
    }

    /// Whether something of a connection waits.
    pub(super) fn has(&self, id: CommId) -> bool {
        self.waiting.iter().any(|parting| parting.id == id)
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST
    }

    pub(super) fn push(&mut self, parting: Parting) {
        self.waiting.push_back(parting);
        self.next = Some(clock::now() + LOOK);
    }

    /// Takes all out, to be told or put back.
    pub(super) fn take(&mut self) -> VecDeque<Parting> {
        std::mem::take(self).waiting
    }
}
