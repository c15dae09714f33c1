//! Where packets that other processes have forwarded enter an engine: as freight, like those of another engine.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ferroce_sys::clock;

use super::forward::Arrival;
use super::membership::{Sink, Slot};
use super::refusals::Refusals;
use super::stats::QpStats;
use crate::engine::incoming::Sender;
use crate::engines::Engines;

/// How often to try to enter a busy engine for a look, how long to wait between, and how often to knock each
/// time: a program that polls leaves its engine for fractions of a microsecond.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_micros(10);
const KNOCKS: usize = 32;

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

    fn tell(&self, into: &mut Vec<QpStats>, most: usize, refused: &mut Refusals) -> Option<usize> {
        let engines = self.engines.upgrade()?;
        let station = engines.station(self.index);
        let inside = (0..TRIES).find_map(|attempt| {
            if attempt > 0 {
                clock::pause(PAUSE);
            }
            (0..KNOCKS).find_map(|_| {
                std::hint::spin_loop();
                station.turnstile.try_enter()
            })
        })?;
        let room = most.saturating_sub(into.len());
        into.extend(inside.qps.iter().take(room).map(|entry| QpStats::of(entry, self.index)));
        let count = inside.qps.count();
        refused.add_engine(&inside.counters);
        // Whoever called meanwhile is heard by the driver: this thread is no engine.
        if !inside.leave_ringing().is_empty() {
            station.driver.wake();
        }
        Some(count)
    }
}
