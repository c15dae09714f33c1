//! Where packets that other processes have forwarded enter an engine: as freight, like those of another
//! engine.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ferroce_switchboard::{Arrival, QpStats, Refusals, Sink, Slot};
use ferroce_sys::clock;

use crate::engine::qps::Entry;
use crate::engine::sender::Sender;
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
    /// Lets forwarded packets for this slot into an engine, as long as the gate is held.
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
            // What finds no room is lost, and sent again by reliable peers.
            let _ = engines.station(self.index).freight.push(&sender, packet);
        }
        engines.send_for(self.index);
    }

    fn tell(&self, into: &mut Vec<QpStats>, most: usize, refused: &mut Refusals) -> Option<usize> {
        let engines = self.engines.upgrade()?;
        let visit = (0..TRIES).find_map(|attempt| {
            if attempt > 0 {
                clock::pause(PAUSE);
            }
            (0..KNOCKS).find_map(|_| {
                std::hint::spin_loop();
                engines.try_enter(self.index)
            })
        })?;
        let room = most.saturating_sub(into.len());
        into.extend(visit.qps.iter().take(room).map(|entry| row(entry, self.index)));
        let count = visit.qps.count();
        visit.counters.add_to(refused);
        // Calls that came meanwhile are for the driver: this thread is no engine.
        if visit.leave_ringing() {
            engines.station(self.index).driver.wake();
        }
        Some(count)
    }
}

/// What an engine knows of a queue pair.
fn row(entry: &Entry, engine: usize) -> QpStats {
    let machine = &entry.machine;
    let counters = machine.counters();
    let ((sends_posted, sends_done), (receives_posted, receives_done)) = machine.totals();
    QpStats {
        qpn: machine.qpn(),
        engine: u8::try_from(engine).unwrap_or(u8::MAX),
        service: machine.service(),
        state: machine.state(),
        path: entry.path.map(|choice| choice.path),
        peer: entry.way.as_ref().map(|way| (entry.peer, way.route.remote)),
        sends_posted,
        sends_done,
        receives_posted,
        receives_done,
        packets_sent: counters.requests_sent + counters.responses_sent + counters.acks_sent,
        packets_received: counters.requests_received + counters.responses_received,
        direct: counters.direct_requests + counters.direct_responses,
        retransmitted: counters.retransmitted,
        rnr_received: counters.rnr_received,
        rnr_sent: counters.rnr_sent,
        timeouts: counters.timeouts,
        errors: counters.nak_invalid_request_sent
            + counters.nak_remote_access_sent
            + counters.nak_remote_operation_sent
            + counters.nak_fatal_received
            + counters.uc_messages_dropped
            + counters.uc_refused
            + counters.no_receive
            + counters.wrong_qkey
            + counters.wrong_service,
        waits: counters.window_waits + counters.credit_waits + counters.depth_waits + counters.rate_waits,
    }
}
