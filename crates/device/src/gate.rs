//! Where packets that other processes have forwarded enter an engine: as freight, like those of another
//! engine; and how an engine is asked what it has done.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_switchboard::{Arrival, LaneOffer, LaneRefusal, Report, Sink, Slot};
use ferroce_sys::sync::{Calls, lock};

use crate::engine::sender::Sender;
use crate::engines::Engines;
use crate::mail::{Parcel, Question};
use crate::meeting;
use crate::visit::Visit;

/// How long the thread of the switchboard waits for an engine that another thread is in. That one takes in
/// its mail when it leaves, which is microseconds away; only if the system keeps it from running does it take
/// longer.
const WAIT: Duration = Duration::from_millis(50);

/// The way from the switchboard into one engine.
pub(crate) struct Gate {
    engines: Weak<Engines>,
    index: usize,
    /// What was asked last and has no answer yet: an engine that is slow has one question in its mail, not
    /// many.
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

    fn lane(&self, offer: LaneOffer) -> Result<Vec<OwnedFd>, LaneRefusal> {
        let engines = self.engines.upgrade().ok_or(LaneRefusal::NotReady)?;
        meeting::answer(engines.station(self.index), offer)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ferroce_sys::clock;

    use super::*;
    use crate::config::Config;
    use crate::nic::Nic;

    /// A device, and a gate into its only engine.
    fn gate(last: u8) -> (Nic, Arc<Gate>) {
        let address = Some([127, 0, 48, last].into());
        let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
        let gate = Arc::clone(nic.first_gate());
        (nic, gate)
    }

    fn tells(gate: &Gate) -> bool {
        gate.tell(&mut Report::default(), 10)
    }

    #[test]
    fn a_free_engine_tells_at_once() {
        let (_nic, gate) = gate(210);
        assert!(tells(&gate));
        assert!(lock(&gate.asked).is_none(), "without any mail");
    }

    #[test]
    fn the_thread_inside_answers_for_its_engine() {
        let (nic, gate) = gate(211);
        let engines = nic.engines();
        let mut visit = engines.enter(0);
        visit.qps_made = 7;
        let mut report = Report::default();
        let told = thread::scope(|threads| {
            let asking = threads.spawn(|| gate.tell(&mut report, 10));
            let end = clock::now() + Duration::from_secs(20);
            while engines.station(0).mail.is_empty() {
                assert!(clock::now() < end, "no question came");
                thread::yield_now();
            }
            visit.take_mail();
            visit.leave();
            asking.join().unwrap()
        });
        // The thread that asks may have been kept from running for longer than it waits.
        assert!(!told || report.queue_pairs_made == 7);
        assert!(told || lock(&gate.asked).as_ref().is_some_and(|question| question.is_answered()));
    }

    #[test]
    fn an_engine_that_does_not_answer_is_busy_and_has_one_question_in_its_mail() {
        let (nic, gate) = gate(212);
        let engines = nic.engines();
        let mut visit = engines.enter(0);
        assert!(!tells(&gate) && !tells(&gate));
        let question = lock(&gate.asked).clone().unwrap();
        assert_eq!(Arc::strong_count(&question), 3, "here, in the gate, and once in the mail");
        visit.take_mail();
        assert!(question.is_answered());
        assert!(!tells(&gate), "that answer is an old one");
        assert!(!Arc::ptr_eq(&question, lock(&gate.asked).as_ref().unwrap()));
        visit.leave();
        assert!(tells(&gate));
    }

    #[test]
    fn a_device_that_is_gone_tells_nothing() {
        let (nic, gate) = gate(213);
        drop(nic);
        assert!(!tells(&gate));
    }
}
