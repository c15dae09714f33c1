//! What happens next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_probe::{Sequence, Ticket};

use super::Flying;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A host goes on.
    StallEnds { host: u32 },
    /// A packet has come to a card.
    Arrive(Flying),
    /// A host handles a packet that came at that time.
    Handle { packet: Flying, arrived: u64 },
    /// A host learns when a probe left.
    ProbeStamp { rnic: u32, sequence: Sequence, left: u64 },
    /// A host learns when a first ACK left.
    AckStamp { rnic: u32, ticket: Ticket, left: u64 },
    /// A probe of a flow is due.
    Send { flow: usize },
    /// A prober asked to be woken.
    Wake { rnic: u32 },
}

impl Event {
    /// Of all that happens at one time, what comes first: packets before stamps, and time last.
    const fn rank(&self) -> u8 {
        match self {
            Self::StallEnds { .. } => 0,
            Self::Arrive(_) => 1,
            Self::Handle { .. } => 2,
            Self::ProbeStamp { .. } | Self::AckStamp { .. } => 3,
            Self::Send { .. } => 4,
            Self::Wake { .. } => 5,
        }
    }
}

/// Events in order of time, then of rank, then of being pushed.
#[derive(Debug, Default)]
pub(super) struct Queue {
    order: BinaryHeap<Reverse<(u64, u8, u64, usize)>>,
    events: Vec<Event>,
    free: Vec<usize>,
    pushed: u64,
}

impl Queue {
    pub(super) fn push(&mut self, time: u64, event: Event) {
        let rank = event.rank();
        let place = if let Some(place) = self.free.pop() {
            self.events[place] = event;
            place
        } else {
            self.events.push(event);
            self.events.len() - 1
        };
        self.order.push(Reverse((time, rank, self.pushed, place)));
        self.pushed += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((time, _, _, place)) = self.order.pop()?;
        self.free.push(place);
        Some((time, self.events[place]))
    }
}
