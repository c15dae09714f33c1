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
use ferroce_sys::sync::lock;
use ferroce_transport::Time;
use ferroce_transport::cm::{End, Event};
use ferroce_wire::mad::CommId;

use super::service::ConnectionManager;

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

#[derive(Debug)]
struct Parting {
    id: CommId,
    event: Event,
    until: Time,
}

impl Partings {
    /// When to look at them.
    pub(super) const fn looks_again(&self) -> Option<Time> {
        self.next
    }

    fn has(&self, id: CommId) -> bool {
        self.waiting.iter().any(|parting| parting.id == id)
    }

    fn push(&mut self, parting: Parting) {
        self.waiting.push_back(parting);
        self.next = Some(clock::now() + LOOK);
    }
}

impl ConnectionManager {
    /// An event that can be told now. Else it is told later, and so is everything that happens to the connection meanwhile.
    pub(super) fn in_time(&self, id: CommId, event: Event) -> Option<Event> {
        let (waits, is_full) = {
            let partings = &lock(&self.books).partings;
            (partings.has(id), partings.waiting.len() >= MOST)
        };
        // A program that ends a connection itself knows what it gives up.
        let is_goodbye = matches!(event, Event::Ended(End::Peer));
        if waits || is_goodbye && !is_full && self.is_behind(id) {
            lock(&self.books).partings.push(Parting { id, event, until: clock::now() + PATIENCE });
            return None;
        }
        Some(event)
    }

    /// Tells what has waited long enough.
    pub(super) fn tell_of_partings(&self) {
        let Partings { waiting, .. } = std::mem::take(&mut lock(&self.books).partings);
        for parting in waiting {
            let comes_first = lock(&self.books).partings.has(parting.id);
            if comes_first || parting.until > clock::now() && self.is_behind(parting.id) {
                lock(&self.books).partings.push(parting);
            } else {
                self.happened(parting.id, parting.event);
            }
        }
    }

    /// Whether the program has not seen yet all that a connection did. Asked outside of the lock: the watcher meets the device.
    fn is_behind(&self, id: CommId) -> bool {
        let watcher = lock(&self.books).watchers.get(&id).cloned();
        watcher.is_some_and(|watcher| watcher.is_behind())
    }
}
