//! Where packets that other processes have forwarded enter an engine: as freight, like those of another engine.

use std::sync::{Arc, Weak};

use super::forward::Arrival;
use super::membership::{Sink, Slot};
use crate::engine::incoming::Sender;
use crate::engines::Engines;

/// The way from the switchboard into one engine.
pub(crate) struct Gate {
    engines: Weak<Engines>,
    index: usize,
}

impl Gate {
    /// Lets forwarded packets for this slot into an engine, as long as somebody holds the gate.
    pub(crate) fn open(slot: &Slot, engines: &Arc<Engines>, index: usize) -> Arc<Self> {
        let gate = Arc::new(Self { engines: Arc::downgrade(engines), index });
        let sink = Arc::downgrade(&gate);
        slot.attach(sink);
        gate
    }
}

impl Sink for Gate {
    fn arrived(&self, arrival: &Arrival<'_>) {
        let Some(engines) = self.engines.upgrade() else { return };
        let sender = Sender::forwarded(arrival);
        for packet in arrival.bytes.chunks(arrival.received.segment.max(1)) {
            // What finds no room is lost, and sent again by those who care.
            let _ = engines.station(self.index).freight.push(&sender, packet);
        }
        engines.send_for(self.index);
    }
}
