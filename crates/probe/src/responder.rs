//! The responder: a first ACK at once, and a second one as soon as it is known when the first one left.
//!
//! Every probe costs two packets, so each source is limited; and what a peer can make the responder keep is
//! bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::arrivals::{FlowName, Flows};
use crate::counters::ResponderCounters;
use crate::limit::{Limits, Verdict};
use crate::packet::{Kind, Packet, Ports, ProbePacketError};
use crate::prober::Arrival;
use crate::report::Peer;
use crate::stamp::Stamp;

/// What a responder does for a source, and how much it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderConfig {
    /// Probes of one source that are answered, for each second.
    pub rate: u32,
    /// Probes of one source that are answered at once after a pause.
    pub burst: u32,
    /// Sources that are limited at the same time.
    pub sources: usize,
    /// First ACKs that wait for the stamp of their send.
    pub pending: usize,
    /// How long they wait.
    pub stamp_wait: Duration,
    /// Pairs of source and port whose probes are counted.
    pub tallies: usize,
    /// Flows of probers that are told how many of their probes came; beyond these, the oldest begin anew.
    pub flows: usize,
}

impl Default for ResponderConfig {
    fn default() -> Self {
        Self {
            rate: 25_000,
            burst: 1000,
            sources: 4096,
            pending: 4096,
            stamp_wait: Duration::from_secs(1),
            tallies: 65_536,
            flows: 65_536,
        }
    }
}

/// An ACK that is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Where it goes.
    pub to: Peer,
    /// The port that it should leave from; 0 for any.
    pub port: u16,
    /// What it says.
    pub packet: Packet,
    /// Names a first ACK when its send is told.
    pub ticket: Ticket,
}

/// A first ACK under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A responder.
#[derive(Clone, Debug)]
pub struct Responder {
    config: ResponderConfig,
    limits: Limits,
    next: u64,
    pending: BTreeMap<Ticket, Waiting>,
    tallies: BTreeMap<(IpAddr, u16), u64>,
    flows: Flows,
    counters: ResponderCounters,
}

/// A first ACK whose send stamp has not come.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    first: Answer,
    since: Stamp,
}

impl Responder {
    /// A responder.
    #[must_use]
    pub fn new(config: ResponderConfig) -> Self {
        Self {
            config: ResponderConfig { pending: config.pending.max(1), ..config },
            limits: Limits::new(config.rate, config.burst, config.sources),
            next: 0,
            pending: BTreeMap::new(),
            tallies: BTreeMap::new(),
            flows: Flows::new(config.flows),
            counters: ResponderCounters::default(),
        }
    }

    /// A packet came, and is handled now. If it is a probe, the first ACK is to be sent at once.
    pub fn take(&mut self, arrival: &Arrival<'_>, now: Stamp) -> Option<Answer> {
        let probe = match Packet::parse(arrival.bytes) {
            Ok(probe) if probe.kind == Kind::Probe => probe,
            refused => {
                *self.counter_of(refused) += 1;
                return None;
            }
        };
        // By arrival, so that a source is not blamed for what waited while our own host stood still.
        match self.limits.ask(arrival.from.address, arrival.at) {
            Verdict::Answer => {}
            Verdict::OverLimit => {
                self.counters.over_limit += 1;
                if probe.arrivals.is_some() {
                    self.flows.refused(&flow(&probe, arrival.from), probe.sequence);
                }
                return None;
            }
            Verdict::Crowded => {
                self.counters.crowded += 1;
                return None;
            }
        }
        self.tally(arrival.from.address, &probe);
        Some(self.first_ack(&probe, arrival, now))
    }

    /// The first ACK left at this time (T4): the second ACK is to be sent now.
    pub fn sent(&mut self, ticket: Ticket, at: Stamp) -> Option<Answer> {
        let Some(Waiting { first, .. }) = self.pending.remove(&ticket) else {
            self.counters.stray_stamps += 1;
            return None;
        };
        self.counters.second_acks += 1;
        Some(Answer {
            packet: Packet { kind: Kind::SecondAck, t4: at, arrivals: None, ..first.packet },
            ..first
        })
    }

    /// The first ACK could not be sent.
    pub fn send_failed(&mut self, ticket: Ticket) {
        let counter = match self.pending.remove(&ticket) {
            Some(_) => &mut self.counters.send_failures,
            None => &mut self.counters.stray_stamps,
        };
        *counter += 1;
    }

    /// Time has come: stamps that did not come are not waited for.
    pub fn advance(&mut self, now: Stamp) {
        while self.wake_at().is_some_and(|deadline| deadline <= now) {
            self.pending.pop_first();
            self.counters.stamps_missing += 1;
        }
    }

    /// When [`advance`](Self::advance) has something to do; none while nothing is pending.
    #[must_use]
    pub fn wake_at(&self) -> Option<Stamp> {
        self.pending.first_key_value().map(|(_, waiting)| waiting.since.plus(self.config.stamp_wait))
    }

    /// First ACKs whose send stamp has not come.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What came, by kind.
    #[must_use]
    pub const fn counters(&self) -> &ResponderCounters {
        &self.counters
    }

    /// How many probes of each source and port were answered since this was asked last: what a prober sent
    /// more of was lost on the way here. Ports are those that probes tell; 0 for those that tell none.
    pub fn take_tallies(&mut self) -> BTreeMap<(IpAddr, u16), u64> {
        std::mem::take(&mut self.tallies)
    }

    fn first_ack(&mut self, probe: &Packet, arrival: &Arrival<'_>, now: Stamp) -> Answer {
        let ports = probe.ports.map(|Ports { sent, reply }| Ports { sent: reply, reply: sent });
        let ticket = Ticket(self.next);
        self.next += 1;
        let (t3, t4) = (arrival.at, Stamp::default());
        let arrivals = probe
            .arrivals
            .map(|_| self.flows.answered(flow(probe, arrival.from), probe.sequence, arrival.at));
        let packet = Packet { kind: Kind::FirstAck, t3, t4, ports, arrivals, ..*probe };
        let port = ports.map_or(0, |ports| ports.sent);
        let first = Answer { to: arrival.from, port, packet, ticket };
        if self.pending.len() >= self.config.pending {
            // Its prober has the first ACK, and counts the probe as delivered.
            self.pending.pop_first();
            self.counters.pushed_out += 1;
        }
        self.pending.insert(ticket, Waiting { first, since: now });
        self.counters.answered += 1;
        first
    }

    fn tally(&mut self, source: IpAddr, probe: &Packet) {
        let key = (source, probe.ports.map_or(0, |ports| ports.sent));
        if self.tallies.len() < self.config.tallies || self.tallies.contains_key(&key) {
            *self.tallies.entry(key).or_default() += 1;
        } else {
            self.counters.untallied += 1;
        }
    }

    fn counter_of(&mut self, refused: Result<Packet, ProbePacketError>) -> &mut u64 {
        match refused {
            Ok(_) => &mut self.counters.not_probes,
            Err(ProbePacketError::Length { .. }) => &mut self.counters.wrong_length,
            Err(ProbePacketError::Version(_)) => &mut self.counters.wrong_version,
            Err(ProbePacketError::Kind { .. }) => &mut self.counters.wrong_kind,
        }
    }
}

/// The flow of a probe, by what its sender says of itself and of the port.
fn flow(probe: &Packet, prober: Peer) -> FlowName {
    FlowName { prober, epoch: probe.sequence.epoch(), port: probe.ports.map_or(0, |ports| ports.sent) }
}
