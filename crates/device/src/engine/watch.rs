//! What a record has to know of a queue pair.

use std::collections::VecDeque;

use ferroce_record::{Queue, Shadow};
use ferroce_transport::{Obstacle, QueuePair, State};
use ferroce_wire::{Psn, Qpn, Service};

/// What a record has to know of a queue pair.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(super) qpn: Qpn,
    pub(super) service: Service,
    pub(super) sends: Shadow,
    /// The queue that its receives come from.
    pub(super) receives: Queue,
    /// The state that was told last.
    pub(super) state: State,
    /// What was told last of what it waits for.
    pub(super) waits: Option<(u32, Obstacle)>,
    /// The first send that the doorbell was not told of, and how many.
    pub(super) unrung: (u32, u32),
    /// The packet that is being taken in.
    pub(super) psn: u32,
    /// The receive that was last told to be taken by a message.
    pub(super) matched: Option<u32>,
    /// The last packets that left of work that is over when they have left, and which work that is.
    pub(super) recent: VecDeque<(Psn, u32)>,
}

/// Packets that left, of which it may be told later what became of them.
pub(super) const RECENT: usize = 256;

impl Watch {
    /// The queue that its receives come from.
    pub(crate) const fn receives(&self) -> Queue {
        self.receives
    }

    /// The device knows of all that was posted.
    pub(crate) const fn rung(&mut self) {
        self.unrung = (0, 0);
    }

    /// Of a queue pair that is new, or that a record begins to tell of.
    pub(crate) fn new(machine: &QueuePair, shared: Option<Queue>) -> Self {
        let qpn = machine.qpn();
        Self {
            qpn,
            service: machine.service(),
            sends: Shadow::with_capacity(machine.caps().max_send as usize),
            receives: shared.unwrap_or(Queue::Receive(qpn)),
            state: machine.state(),
            waits: None,
            unrung: (0, 0),
            psn: 0,
            matched: None,
            recent: VecDeque::new(),
        }
    }
}
