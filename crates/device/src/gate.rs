//! Where packets that other processes have forwarded enter an engine: as freight, like those of another
//! engine; and how an engine is asked what it has done.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_switchboard::{Arrival, Report, Sink, Slot};
use ferroce_sys::sync::{Calls, lock};

use crate::engine::sender::Sender;
use crate::engines::Engines;
use crate::mail::{Parcel, Question};
use crate::visit::Visit;

/// How long the thread of the switchboard waits for an engine that another thread is in. That one takes in its mail
/// when it leaves, which is microseconds away; only if the system keeps it from running does it take longer.
const WAIT: Duration = Duration::from_millis(50);

/// The way from the switchboard into one engine.
pub(crate) struct Gate {
    engines: Weak<Engines>,
    index: usize,
    /// What was asked last and has no answer yet: an engine that is slow has one question in its mail, not many.
    asked: Mutex<Option<Arc<Question>>>,
}

impl Gate {
    /// Lets forwarded packets for this slot into an engine, as long as the gate is held.
    pub(crate) fn open(slot: &Slot, engines: &Arc<Engines>, index: usize) -> Arc<Self> {
        let gate = Arc::new(Self { engines: Arc::downgrade(engines), index, asked: Mutex::default() });
        let sink = Arc::downgrade(&gate);
        slot.attach(sink);
        gate
    }

    /// What the engine tells, by this thread if it is free, else by the one that is inside.
    fn look(&self, engines: &Engines, most: usize) -> Option<Report> {
        let station = engines.station(self.index);
        // Calls that came meanwhile are for the driver: this thread is no engine.
        let leave = |visit: Visit<'_>| {
            if visit.leave_ringing() {
                station.driver.wake();
            }
        };
        let mut asked = lock(&self.asked);
        if let Some(visit) = engines.try_enter(self.index) {
            let report = visit.report(most);
            leave(visit);
            return Some(report);
        }
        // An answer that came too late for the look that asked is too old for this one.
        let known = asked.take().filter(|question| !question.is_answered());
        let question = known.unwrap_or_else(|| {
            let question = Arc::new(Question::new(most));
            station.mail.push(Parcel::Question(Arc::clone(&question)));
            question
        });
        // The thread inside sees the bell when it leaves; if it has just left, this one goes in itself.
        station.turnstile.ring(Calls::POSTED);
        if let Some(mut visit) = engines.try_enter(self.index) {
            visit.take_mail();
            leave(visit);
        }
        let report = question.wait(WAIT);
        if report.is_none() {
            *asked = Some(question);
        }
        report
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

    fn tell(&self, into: &mut Report, most: usize) -> bool {
        let told = self.engines.upgrade().and_then(|engines| self.look(&engines, most));
        let is_told = told.is_some();
        if let Some(more) = told {
            into.add(more, most);
        }
        is_told
    }
}
