//! Traces under way: probes whose hop limits end at routers, with sequence numbers of their own.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::packet::{Kind, Packet, Ports, Sequence};
use crate::paths::{Ask, Tracer, TracerConfig};
use crate::prober::{Arrival, ProbeEvent, ProbeStartError, Prober, ProberConfig};
use crate::report::Peer;
use crate::stamp::{Stamp, StampSource};

/// Traces of ports to one target. Most of these probes are meant to be lost, so they are kept apart from
/// those that measure.
#[derive(Debug)]
pub(super) struct Tracing {
    pub(super) target: Peer,
    pub(super) tracer: Tracer,
    prober: Prober,
    asked: HashMap<Sequence, Ask>,
    epoch: u32,
}

impl Tracing {
    pub(super) fn new(target: Peer, config: TracerConfig, epoch: u32) -> Self {
        let (timeout, late) = (config.wait, config.wait);
        // Most of these are not meant to come.
        let waits = ProberConfig { timeout, late, asks_arrivals: false, ..ProberConfig::default() };
        Self {
            target,
            tracer: Tracer::new(config, []),
            prober: Prober::new(waits, Sequence::new(epoch, 0)),
            asked: HashMap::new(),
            epoch,
        }
    }

    /// Whether a probe, or the answer to it, is one of these.
    pub(super) const fn has(&self, sequence: Sequence) -> bool {
        sequence.epoch() == self.epoch
    }

    /// What to send now, if it is the time.
    pub(super) fn ask(&mut self, now: Stamp) -> Option<Result<(Ask, Packet), ProbeStartError>> {
        let ask = self.tracer.ask(now)?;
        let ports = Ports { sent: ask.port, reply: ask.port };
        Some(self.prober.start(self.target, ports, now).map(|packet| {
            self.asked.insert(packet.sequence, ask);
            (ask, packet)
        }))
    }

    pub(super) fn sent(&mut self, sequence: Sequence, at: Stamp, source: StampSource) {
        self.prober.sent(sequence, at, source);
        self.hear();
    }

    pub(super) fn send_failed(&mut self, sequence: Sequence) {
        self.prober.send_failed(sequence);
        self.hear();
    }

    pub(super) fn take(&mut self, arrival: &Arrival<'_>, now: Stamp) {
        self.prober.take(arrival, now);
        self.hear();
    }

    pub(super) fn advance(&mut self, now: Stamp) {
        self.prober.advance(now);
        self.hear();
    }

    /// A router sent back what begins like this, from this port to this host. Whether it is one of these
    /// probes; what does not fit together is none.
    pub(super) fn sent_back(&mut self, quoted: &[u8], offender: IpAddr, remote: IpAddr, port: u16) -> bool {
        let Some(packet) = quoted.get(..Packet::LEN).and_then(|bytes| Packet::parse(bytes).ok()) else {
            return false;
        };
        let asked = self.asked.get(&packet.sequence).filter(|ask| ask.port == port);
        let is_ours =
            packet.kind == Kind::Probe && remote.to_canonical() == self.target.address.to_canonical();
        match asked.filter(|_| is_ours) {
            Some(ask) => {
                self.tracer.router(ask.port, ask.hop_limit, offender.to_canonical());
                true
            }
            None => false,
        }
    }

    /// Probes that were answered have reached the target.
    fn hear(&mut self) {
        while let Some(event) = self.prober.poll() {
            let ProbeEvent::Ended(report) = event else { continue };
            let Some(ask) = self.asked.remove(&report.sequence) else { continue };
            if report.times.t5.is_some() || report.times.t7.is_some() {
                self.tracer.reached(ask.port, ask.hop_limit);
            }
        }
    }
}
