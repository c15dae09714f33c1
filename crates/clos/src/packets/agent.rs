//! An RNIC's prober and responder, and the clock of its host.

use ferroce_probe::{
    Answer, Arrival, Packet, Peer, Ports, ProbeEvent, Prober, ProberConfig, Report, Responder,
    ResponderConfig, Sequence, StampSource, Ticket,
};

use super::Seen;
use crate::clock::Clock;

/// The queue pair of an RNIC's prober.
pub(super) const fn prober_of(rnic: u32) -> u32 {
    rnic * 2 + 2
}

/// The queue pair of an RNIC's responder.
pub(super) const fn responder_of(rnic: u32) -> u32 {
    rnic * 2 + 3
}

pub(super) struct Agent {
    prober: Prober,
    responder: Responder,
    clock: Clock,
    /// The earliest time at which it will be woken.
    wakes: Option<u64>,
}

impl Agent {
    pub(super) fn new(rnic: u32, clock: Clock, epoch: u32) -> Self {
        // Some counters wrap within the run.
        let first = Sequence::new(epoch, if rnic.is_multiple_of(3) { u32::MAX - 10 } else { 0 });
        let prober = Prober::new(ProberConfig::default(), first);
        Self { prober, responder: Responder::new(ResponderConfig::default()), clock, wakes: None }
    }

    pub(super) fn start(&mut self, target: Peer, port: u16, reply: u16, time: u64) -> Option<Packet> {
        self.prober.start(target, Ports { sent: port, reply }, self.clock.at(time)).ok()
    }

    pub(super) fn probe_left(&mut self, sequence: Sequence, left: u64) {
        self.prober.sent(sequence, self.clock.at(left), StampSource::Kernel);
    }

    pub(super) fn ack_left(&mut self, ticket: Ticket, left: u64) -> Option<Answer> {
        self.responder.sent(ticket, self.clock.at(left))
    }

    pub(super) fn take_ack(&mut self, bytes: &[u8], from: Peer, arrived: u64, time: u64) {
        let arrival = Arrival { bytes, from, at: self.clock.at(arrived), source: StampSource::Kernel };
        self.prober.take(&arrival, self.clock.at(time));
    }

    pub(super) fn take_probe(&mut self, bytes: &[u8], from: Peer, arrived: u64, time: u64) -> Option<Answer> {
        let arrival = Arrival { bytes, from, at: self.clock.at(arrived), source: StampSource::Kernel };
        let now = self.clock.at(time);
        self.responder.advance(now);
        self.responder.take(&arrival, now)
    }

    pub(super) fn stalled(&mut self, from: u64, to: u64) {
        self.prober.stalled(self.clock.at(from), self.clock.at(to));
    }

    pub(super) fn wake(&mut self, time: u64) {
        self.wakes = None;
        self.prober.advance(self.clock.at(time));
    }

    /// When to wake the prober, if that is sooner than what was said before.
    pub(super) fn next_wake(&mut self, now: u64) -> Option<u64> {
        let wake = self.clock.time_of(self.prober.wake_at()?).max(now);
        if self.wakes.is_some_and(|known| known <= wake) {
            return None;
        }
        self.wakes = Some(wake);
        Some(wake)
    }

    pub(super) fn report(&mut self) -> Option<Report> {
        loop {
            if let ProbeEvent::Ended(report) = self.prober.poll()? {
                return Some(report);
            }
        }
    }

    pub(super) fn add_to(&self, seen: &mut Seen) {
        seen.outcomes.add(self.prober.outcomes());
        seen.probers.add(self.prober.counters());
        seen.responders.add(self.responder.counters());
    }
}
