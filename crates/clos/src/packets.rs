//! Packet level: the machines of `ferroce-probe` over the fabric, packet by packet, in virtual time.
//!
//! The machines get bytes, stamps of their host's clock and the time, and nothing else.

mod agent;
mod queue;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferroce_probe::{OutcomeCounters, Peer, ProberCounters, Report, ResponderCounters};
use ferroce_sim::Dice;

use crate::fabric::Fabric;
use crate::fault::Trouble;
use crate::flows::{LINK_DELAY, LINK_JITTER};
use crate::hash::{Tuple, unit};
use crate::observation::Observation;
use crate::plan::Plan;
use crate::shape::Node;
use agent::Agent;
use queue::{Event, Queue};

/// Late answers may come for so long after the last probe, in nanoseconds.
pub const AFTERWARDS: u64 = 6_000_000_000;

/// What came of a plan.
#[derive(Clone, Debug)]
pub struct Seen {
    /// One for each flow.
    pub observations: Vec<Observation>,
    /// How all probes ended.
    pub outcomes: OutcomeCounters,
    /// What all probers met.
    pub probers: ProberCounters,
    /// What all responders met.
    pub responders: ResponderCounters,
    /// Packets that cards dropped because a bit had flipped.
    pub corrupted: u64,
}

/// Runs a plan.
#[must_use]
pub fn observe(fabric: &Fabric, plan: &Plan, seed: u64) -> Seen {
    observe_each(fabric, plan, seed, |_, _| {})
}

/// Runs a plan, and shows each report as it comes, with the number of its flow.
#[must_use]
pub fn observe_each(fabric: &Fabric, plan: &Plan, seed: u64, each: impl FnMut(usize, &Report)) -> Seen {
    let mut world = World::new(fabric, plan, seed, each);
    while let Some((time, event)) = world.queue.pop() {
        world.happens(time, event);
    }
    world.seen()
}

struct World<'a, F> {
    fabric: &'a Fabric,
    plan: &'a Plan,
    dice: Dice,
    queue: Queue,
    agents: BTreeMap<u32, Agent>,
    /// Which flow has this tuple.
    flows: BTreeMap<Tuple, usize>,
    observations: Vec<Observation>,
    corrupted: u64,
    each: F,
}

/// A packet on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flying {
    bytes: [u8; 40],
    /// The RNIC of the queue pair that sent it, and whether that is a prober.
    from: u32,
    by_prober: bool,
    to: u32,
    corrupted: bool,
}

impl<'a, F: FnMut(usize, &Report)> World<'a, F> {
    fn new(fabric: &'a Fabric, plan: &'a Plan, seed: u64, each: F) -> Self {
        let mut world = Self {
            fabric,
            plan,
            dice: Dice::new(seed),
            queue: Queue::default(),
            agents: BTreeMap::new(),
            flows: plan.flows.iter().enumerate().map(|(index, flow)| (flow.tuple, index)).collect(),
            observations: plan.flows.iter().map(crate::plan::Flow::observation).collect(),
            corrupted: 0,
            each,
        };
        let mut end = 0;
        for (index, flow) in plan.flows.iter().enumerate() {
            for time in flow.times() {
                end = end.max(time);
                world.queue.push(time, Event::Send { flow: index });
            }
            for rnic in [flow.tuple.from, flow.tuple.to] {
                let clock = fabric.clock_of(fabric.shape().host_of(rnic));
                let epoch = u32::try_from(world.dice.below(1 << 32)).unwrap_or(0);
                world.agents.entry(rnic).or_insert_with(|| Agent::new(rnic, clock, epoch));
            }
        }
        // Stalls go on while late answers may come.
        for stall in fabric.stalls() {
            for time in stall.ends(end + AFTERWARDS) {
                world.queue.push(time, Event::StallEnds { host: stall.host });
            }
        }
        world
    }

    fn happens(&mut self, time: u64, event: Event) {
        if let Some(rnic) = self.rnic_of(&event)
            && let Some(end) = self.stalled_until(rnic, time)
        {
            // A host that stands still does it afterwards.
            self.queue.push(end, event);
            return;
        }
        match event {
            Event::StallEnds { host } => self.end_stall(host, time),
            Event::Send { flow } => self.send_probe(flow, time),
            Event::Arrive(packet) => self.arrive(packet, time),
            Event::Handle { packet, arrived } => self.handle(packet, arrived, time),
            Event::ProbeStamp { rnic, sequence, left } => {
                self.with_prober(rnic, time, |agent| agent.probe_left(sequence, left));
            }
            Event::AckStamp { rnic, ticket, left } => {
                let answer = self.agents.get_mut(&rnic).and_then(|agent| agent.ack_left(ticket, left));
                if let Some(answer) = answer {
                    let leaves = time + self.dice.between(100, 2000);
                    self.launch(rnic, false, &answer.packet.emit(), answer.to.address, answer.port, leaves);
                }
            }
            Event::Wake { rnic } => self.with_prober(rnic, time, |agent| agent.wake(time)),
        }
    }

    /// The RNIC whose host has to do something for this event; none for what cards do.
    fn rnic_of(&self, event: &Event) -> Option<u32> {
        match event {
            Event::Send { flow } => Some(self.plan.flows[*flow].tuple.from),
            Event::Handle { packet, .. } => Some(packet.to),
            Event::ProbeStamp { rnic, .. } | Event::AckStamp { rnic, .. } | Event::Wake { rnic } => {
                Some(*rnic)
            }
            Event::StallEnds { .. } | Event::Arrive(_) => None,
        }
    }

    fn stalled_until(&self, rnic: u32, time: u64) -> Option<u64> {
        let stall = self.fabric.stall_of(self.fabric.shape().host_of(rnic))?;
        stall.around(time).map(|(_, end)| end)
    }

    fn end_stall(&mut self, host: u32, time: u64) {
        let Some(lasts) = self.fabric.stall_of(host).map(|stall| stall.lasts) else { return };
        let per_host = self.fabric.shape().rnics;
        for rnic in host * per_host..(host + 1) * per_host {
            if let Some(agent) = self.agents.get_mut(&rnic) {
                agent.stalled(time.saturating_sub(lasts), time);
            }
        }
    }

    fn send_probe(&mut self, flow: usize, time: u64) {
        let flow = self.plan.flows[flow];
        let Tuple { from, to, port } = flow.tuple;
        let target =
            Peer { address: self.fabric.shape().address(Node::Rnic(to)), qpn: agent::responder_of(to) };
        let mut probe = None;
        self.with_prober(from, time, |agent| probe = agent.start(target, port, flow.reply_port, time));
        let Some(probe) = probe else { return };
        let leaves = time + self.dice.between(100, 2000);
        let told = leaves + self.dice.below(100_000);
        self.queue.push(told, Event::ProbeStamp { rnic: from, sequence: probe.sequence, left: leaves });
        self.launch(from, true, &probe.emit(), target.address, port, leaves);
    }

    /// A packet leaves a card, and arrives or does not.
    fn launch(&mut self, from: u32, by_prober: bool, bytes: &[u8; 40], to: IpAddr, port: u16, leaves: u64) {
        let Some(Node::Rnic(to)) = self.fabric.shape().node(to) else { return };
        let tuple = Tuple { from, to, port };
        let mut packet = Flying { bytes: *bytes, from, by_prober, to, corrupted: false };
        let mut time = leaves;
        for link in self.fabric.route(tuple).links() {
            if unit(self.dice.word()) < self.fabric.background() {
                return;
            }
            for trouble in self.fabric.troubles(*link) {
                match *trouble {
                    Trouble::Corruption { rate } if unit(self.dice.word()) < rate => {
                        let bit = self.dice.index(320);
                        packet.bytes[bit / 8] ^= 1 << (bit % 8);
                        packet.corrupted = true;
                    }
                    Trouble::Delay { rate, extra } if unit(self.dice.word()) < rate => time += extra,
                    Trouble::Corruption { .. } | Trouble::Delay { .. } => {}
                    _ if trouble.is_down(time) => return,
                    _ if unit(self.dice.word()) < trouble.loss(tuple) => return,
                    Trouble::Loss { .. } | Trouble::BlackHole { .. } | Trouble::Flap { .. } => {}
                }
            }
            time += LINK_DELAY + self.dice.below(LINK_JITTER);
        }
        self.queue.push(time, Event::Arrive(packet));
    }

    /// A packet has come to a card: the ICRC, and room in memory while the host stands still.
    fn arrive(&mut self, packet: Flying, time: u64) {
        if packet.corrupted {
            self.corrupted += 1;
            return;
        }
        let stall = self.fabric.stall_of(self.fabric.shape().host_of(packet.to));
        let is_still = stall.filter(|stall| stall.around(time).is_some());
        if is_still.is_some_and(|stall| unit(self.dice.word()) < stall.drops) {
            return;
        }
        let handled = time + self.dice.between(200, 5000);
        self.queue.push(handled, Event::Handle { packet, arrived: time });
    }

    fn handle(&mut self, packet: Flying, arrived: u64, time: u64) {
        let address = self.fabric.shape().address(Node::Rnic(packet.from));
        if !packet.by_prober {
            let from = Peer { address, qpn: agent::responder_of(packet.from) };
            self.with_prober(packet.to, time, |agent| agent.take_ack(&packet.bytes, from, arrived, time));
            return;
        }
        let from = Peer { address, qpn: agent::prober_of(packet.from) };
        let Some(agent) = self.agents.get_mut(&packet.to) else { return };
        let Some(answer) = agent.take_probe(&packet.bytes, from, arrived, time) else { return };
        let leaves = time + self.dice.between(100, 20_000);
        let told = leaves + self.dice.below(50_000);
        self.queue.push(told, Event::AckStamp { rnic: packet.to, ticket: answer.ticket, left: leaves });
        self.launch(packet.to, false, &answer.packet.emit(), answer.to.address, answer.port, leaves);
    }

    /// Does something with a prober, and then what it asks for.
    fn with_prober(&mut self, rnic: u32, time: u64, what: impl FnOnce(&mut Agent)) {
        let Some(agent) = self.agents.get_mut(&rnic) else { return };
        what(agent);
        if let Some(wake) = agent.next_wake(time) {
            self.queue.push(wake, Event::Wake { rnic });
        }
        while let Some(report) = agent.report() {
            let Some(Node::Rnic(to)) = self.fabric.shape().node(report.target.address) else { continue };
            let Some(flow) = self.flows.get(&Tuple { from: rnic, to, port: report.port }) else { continue };
            let healthy =
                u128::from(2 * self.fabric.shape().hops(rnic, to)) * u128::from(LINK_DELAY + LINK_JITTER);
            let is_slow = report.delays.is_some_and(|delays| delays.round_trip.as_nanos() > healthy);
            self.observations[*flow].count(report.outcome, is_slow);
            (self.each)(*flow, &report);
        }
    }

    fn seen(self) -> Seen {
        let mut seen = Seen {
            observations: self.observations,
            outcomes: OutcomeCounters::default(),
            probers: ProberCounters::default(),
            responders: ResponderCounters::default(),
            corrupted: self.corrupted,
        };
        for agent in self.agents.values() {
            agent.add_to(&mut seen);
        }
        seen
    }
}
