//! A simulated network as an analyzer may see it: a description, traces, windows. The truth stays in `Fabric`,
//! which only the score and the baselines look at.

use ferroce_clos::flows::{host_reports, observe};
use ferroce_clos::{Fabric, Flow, Node as Place, Plan, PlanConfig, ScenarioConfig, Shape};
use ferroce_mesh::{
    FlowKey, HostId, HostReport, Observation, Outcomes, Paths, RnicId, Tier, Topology, Tuple, Window,
};
use ferroce_sim::Dice;

/// A window, in nanoseconds.
const WINDOW: u64 = 20_000_000_000;

/// What is made harder than usual.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// The chance that a router answers a trace.
    pub(crate) answers: f64,
    /// The chance that a tuple was never traced.
    pub(crate) untraced: f64,
    /// All switches have one hash.
    pub(crate) polarised: bool,
    /// This share of the hosts has no agent: it neither probes nor answers.
    pub(crate) missing: f64,
    /// This share of the hosts and of the cables is described wrongly.
    pub(crate) stale: f64,
    pub(crate) scenario: ScenarioConfig,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            answers: 0.95,
            untraced: 0.02,
            polarised: false,
            missing: 0.0,
            stale: 0.0,
            scenario: ScenarioConfig::default(),
        }
    }
}

/// A network with faults, and all that follows from it.
pub(crate) struct Scene {
    pub(crate) fabric: Fabric,
    pub(crate) plan: Plan,
    missing: Vec<bool>,
    conditions: Conditions,
    seed: u64,
}

impl Scene {
    /// Chance chooses the faults.
    pub(crate) fn new(shape: Shape, conditions: Conditions, seed: u64) -> Self {
        let fabric = Fabric::drawn(shape, &conditions.scenario, seed);
        Self::of(if conditions.polarised { fabric.polarised() } else { fabric }, conditions, seed)
    }

    /// A network with these faults.
    pub(crate) fn of(fabric: Fabric, conditions: Conditions, seed: u64) -> Self {
        let shape = *fabric.shape();
        let plan = Plan::mesh(&shape, &PlanConfig { window: WINDOW, ..PlanConfig::default() }, seed ^ 1);
        let mut dice = Dice::new(seed ^ 2);
        let missing = (0..shape.all_hosts()).map(|_| chance(&mut dice) < conditions.missing).collect();
        Self { fabric, plan, missing, conditions, seed }
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.fabric.shape()
    }

    /// Whether the host of a card has no agent.
    pub(crate) fn is_missing(&self, rnic: u32) -> bool {
        self.missing[self.shape().host_of(rnic) as usize]
    }

    /// What is known of the paths: the description and all traces.
    pub(crate) fn paths(&self) -> Paths {
        let mut dice = Dice::new(self.seed ^ 3);
        let mut paths = Paths::new(self.topology(&mut dice));
        for flow in &self.plan.flows {
            for tuple in [flow.tuple, flow.tuple.back(flow.reply_port)] {
                if self.is_missing(tuple.from) || chance(&mut dice) < self.conditions.untraced {
                    continue;
                }
                let trace = self.fabric.trace(tuple, self.conditions.answers, &mut dice);
                paths.trace(own_tuple(tuple), &trace.path());
            }
        }
        paths
    }

    fn topology(&self, dice: &mut Dice) -> Topology {
        let shape = self.shape();
        let mut builder = Topology::builder();
        let tiers = [
            (Tier::Tor, shape.all_tors()),
            (Tier::Aggregation, shape.all_aggregations()),
            (Tier::Core, shape.all_cores()),
        ];
        for (tier, count) in tiers {
            for number in 0..count {
                let node = node(tier, number);
                builder.switch(&name(node), tier, [shape.address(node)]).unwrap();
            }
        }
        let mut above: Vec<u32> =
            (0..shape.all_hosts()).map(|host| shape.tor_of(host * shape.rnics)).collect();
        for host in 0..above.len() {
            if chance(dice) < self.conditions.stale {
                let other = usize::try_from(dice.below(above.len() as u64)).unwrap();
                above.swap(host, other);
            }
        }
        for rnic in 0..shape.all_rnics() {
            let host = shape.host_of(rnic);
            let tor = name(Place::Tor(above[host as usize]));
            let card = Place::Rnic(rnic);
            builder.rnic(&name(card), shape.address(card), &format!("host-{host}"), &tor).unwrap();
        }
        let mut cable = |one, other, dice: &mut Dice| {
            if chance(dice) >= self.conditions.stale {
                builder.cable(&name(one), &name(other)).unwrap();
            }
        };
        for tor in 0..shape.all_tors() {
            let first = tor / shape.tors * shape.aggregations;
            for number in first..first + shape.aggregations {
                cable(Place::Tor(tor), Place::Aggregation(number), dice);
            }
        }
        for number in 0..shape.all_aggregations() {
            let first = number % shape.aggregations * shape.cores;
            for core in first..first + shape.cores {
                cable(Place::Aggregation(number), Place::Core(core), dice);
            }
        }
        builder.build()
    }

    /// What agents say of a window.
    pub(crate) fn window(&self, number: u64) -> Window {
        let begin = number * WINDOW;
        let shifted = |flow: &Flow| Flow { first: flow.first + begin, ..*flow };
        let plan = Plan { flows: self.plan.flows.iter().map(shifted).collect() };
        let seen =
            observe(&self.fabric, &plan, self.seed ^ (number + 10).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut observations = Vec::with_capacity(seen.len());
        for one in seen.iter().filter(|one| !self.is_missing(one.from)) {
            let mut outcomes = Outcomes {
                ok: one.ok,
                slow: one.slow,
                ack2_lost: one.ack2_lost,
                ack1_lost: one.ack1_lost,
                time_out: one.time_out,
                late: one.late,
                invalid: one.invalid,
                host: one.host,
            };
            if self.is_missing(one.to) {
                outcomes = Outcomes { time_out: one.sent(), ..Outcomes::default() };
            }
            let (port, reply_port) = (one.port, one.reply_port);
            let flow = FlowKey { from: RnicId(one.from), to: RnicId(one.to), port, reply_port };
            observations.push(Observation { flow, outcomes });
        }
        Window { observations, hosts: self.hosts(begin) }
    }

    fn hosts(&self, begin: u64) -> Vec<HostReport> {
        let before = host_reports(&self.fabric, begin);
        let mut hosts = Vec::new();
        for report in host_reports(&self.fabric, begin + WINDOW) {
            let earlier = before.iter().find(|one| one.host == report.host).map_or(0, |one| one.stalls);
            let stalls = report.stalls - earlier;
            if stalls > 0 && !self.missing[report.host as usize] {
                let host = HostId(report.host);
                hosts.push(HostReport { stalls, longest: report.longest, ..HostReport::of(host) });
            }
        }
        let missing = (0_u32..).zip(&self.missing).filter(|(_, missing)| **missing);
        hosts.extend(missing.map(|(host, _)| HostReport { lapsed: true, ..HostReport::of(HostId(host)) }));
        hosts
    }
}

pub(crate) fn node(tier: Tier, number: u32) -> Place {
    match tier {
        Tier::Tor => Place::Tor(number),
        Tier::Aggregation => Place::Aggregation(number),
        Tier::Core => Place::Core(number),
    }
}

fn name(node: Place) -> String {
    match node {
        Place::Rnic(number) => format!("rnic-{number}"),
        Place::Tor(number) => format!("tor-{number}"),
        Place::Aggregation(number) => format!("agg-{number}"),
        Place::Core(number) => format!("core-{number}"),
    }
}

fn own_tuple(tuple: ferroce_clos::Tuple) -> Tuple {
    Tuple { from: RnicId(tuple.from), to: RnicId(tuple.to), port: tuple.port }
}

#[expect(clippy::cast_precision_loss, reason = "32 bits fit")]
pub(crate) fn chance(dice: &mut Dice) -> f64 {
    (dice.word() >> 32) as f64 / (1_u64 << 32) as f64
}
