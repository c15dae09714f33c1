//! Flow level: how each probe ends is drawn from the faults on its way, without any packet.
//!
//! A flow that meets nothing that has its times (flaps, stalls) is drawn from three chances. Others are
//! followed probe by probe, from stall to stall. Nothing here is shared with the packet level but the
//! fabric, the plan and the constants below, so that each can be held against the other.

use ferroce_probe::{HostFault, Invalid, Outcome, ProberConfig};
use ferroce_sim::Dice;

use crate::fabric::Fabric;
use crate::fault::{Stall, Trouble};
use crate::hash::{Tuple, unit};
use crate::observation::Observation;
use crate::plan::{Flow, Plan};

/// A healthy link takes so long, in nanoseconds.
pub const LINK_DELAY: u64 = 500;
/// And up to so much more, in nanoseconds.
pub const LINK_JITTER: u64 = 500;
/// A delay of at least this much makes a round trip slow, whatever the jitter, in nanoseconds.
pub const SLOW: u64 = 50_000;

/// What is observed of a plan, one for each flow.
#[must_use]
pub fn observe(fabric: &Fabric, plan: &Plan, seed: u64) -> Vec<Observation> {
    let mut dice = Dice::new(seed);
    plan.flows.iter().map(|flow| observe_flow(fabric, flow, &mut dice)).collect()
}

/// What the agent of a host says of the host itself: how often it stood still, and how long at most.
///
/// It is an observation and not the truth: stalls that are too short for a prober to see are not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// Which host.
    pub host: u32,
    /// Stalls that ended within the window.
    pub stalls: u32,
    /// The longest of them, in nanoseconds.
    pub longest: u64,
}

/// What agents say of their hosts after a window that begins at 0 and lasts so long, in nanoseconds. Hosts with
/// nothing to say are left out.
#[must_use]
pub fn host_reports(fabric: &Fabric, window: u64) -> Vec<HostReport> {
    let shortest = ProberConfig::default().stall.as_nanos();
    let seen = fabric.stalls().filter(|stall| u128::from(stall.lasts) >= shortest);
    let reports = seen.map(|stall| {
        let ends = stall.ends(window);
        let longest = if ends.is_empty() { 0 } else { stall.lasts };
        HostReport { host: stall.host, stalls: u32::try_from(ends.len()).unwrap_or(u32::MAX), longest }
    });
    reports.filter(|report| report.stalls > 0).collect()
}

fn observe_flow(fabric: &Fabric, flow: &Flow, dice: &mut Dice) -> Observation {
    let there = Way::new(fabric, flow.tuple);
    let back = Way::new(fabric, flow.tuple.back(flow.reply_port));
    let stall = |rnic| fabric.stall_of(fabric.shape().host_of(rnic));
    let (own, other) = (stall(flow.tuple.from), stall(flow.tuple.to));
    let mut seen = flow.observation();
    if own.is_none() && other.is_none() && there.timed.is_empty() && back.timed.is_empty() {
        still(flow.count, &there, &back, &mut seen, dice);
        return seen;
    }
    let [ours, theirs] =
        [flow.tuple.from, flow.tuple.to].map(|rnic| fabric.clock_of(fabric.shape().host_of(rnic)));
    let drift = f64::from(ours.ppm - theirs.ppm) / 1e6;
    let probe = Probe { there, back, own, other, drift, config: ProberConfig::default() };
    for time in flow.times() {
        let (outcome, is_slow) = probe.ends(time, dice);
        seen.count(outcome, is_slow);
    }
    seen
}

/// Draws probes for which all times are alike.
fn still(count: u32, there: &Way, back: &Way, seen: &mut Observation, dice: &mut Dice) {
    let both = there.passes * back.passes * back.passes;
    let one = there.passes * back.passes * (1.0 - back.passes);
    let slow = 1.0 - there.on_time * back.on_time;
    if both >= 1.0 && slow <= 0.0 {
        seen.ok += count;
        return;
    }
    for _ in 0..count {
        let drawn = unit(dice.word());
        let outcome = match drawn {
            _ if drawn < both => Outcome::Ok,
            _ if drawn < both + one => Outcome::Ack2Lost,
            _ if drawn < both + 2.0 * one => Outcome::Ack1Lost,
            _ => Outcome::TimeOut,
        };
        let is_slow = slow > 0.0 && unit(dice.word()) < slow;
        seen.count(outcome, is_slow);
    }
}

/// One direction of a flow.
struct Way {
    hops: u32,
    /// The chance that a packet is not lost, flaps aside.
    passes: f64,
    /// The chance that a packet is not delayed.
    on_time: f64,
    delays: Vec<(f64, u64)>,
    /// What is down now and then.
    timed: Vec<Trouble>,
}

impl Way {
    fn new(fabric: &Fabric, tuple: Tuple) -> Self {
        let route = fabric.route(tuple);
        let hops = fabric.shape().hops(tuple.from, tuple.to);
        let mut passes = 1.0;
        let mut way = Self { hops, passes, on_time: 1.0, delays: Vec::new(), timed: Vec::new() };
        for link in route.links() {
            passes *= 1.0 - fabric.background();
            for trouble in fabric.troubles(*link) {
                passes *= 1.0 - trouble.loss(tuple);
                match *trouble {
                    Trouble::Delay { rate, extra } => {
                        way.on_time *= 1.0 - rate;
                        way.delays.push((rate, extra));
                    }
                    Trouble::Flap { .. } => way.timed.push(*trouble),
                    Trouble::Loss { .. } | Trouble::Corruption { .. } | Trouble::BlackHole { .. } => {}
                }
            }
        }
        Self { passes, ..way }
    }

    /// How long a packet takes that leaves at this time; none if it is lost.
    fn cross(&self, time: u64, dice: &mut Dice) -> Option<Crossing> {
        let usual: u64 = (0..self.hops).map(|_| LINK_DELAY + dice.below(LINK_JITTER)).sum();
        let delayed = self.delays.iter().filter(|(rate, _)| unit(dice.word()) < *rate);
        let extra: u64 = delayed.map(|(_, extra)| extra).sum();
        let is_down = self.timed.iter().any(|trouble| trouble.is_down(time));
        (!is_down && unit(dice.word()) < self.passes).then_some(Crossing { usual, extra })
    }
}

#[derive(Clone, Copy)]
struct Crossing {
    usual: u64,
    extra: u64,
}

impl Crossing {
    fn takes(self) -> u64 {
        self.usual + self.extra
    }
}

/// The probes of a flow that meets something that has its times.
struct Probe {
    there: Way,
    back: Way,
    own: Option<Stall>,
    other: Option<Stall>,
    /// By how much our clock is faster than the other one.
    drift: f64,
    config: ProberConfig,
}

impl Probe {
    /// How a probe that is due at this time ends, and whether it was slow.
    fn ends(&self, due: u64, dice: &mut Dice) -> (Outcome, bool) {
        let waits = self.own.and_then(|stall| stall.around(due));
        let posted = waits.map_or(due, |(_, end)| end);
        let Some(there) = self.there.cross(posted, dice) else {
            return (self.or_host(Outcome::TimeOut, posted), false);
        };
        let arrived = posted + there.takes();
        let mut answered = arrived;
        if let Some((stall, (_, end))) = self.other.and_then(|stall| Some((stall, stall.around(arrived)?))) {
            if unit(dice.word()) < stall.drops {
                return (self.or_host(Outcome::TimeOut, posted), false);
            }
            answered = end;
        }
        let acks = [self.ack(answered, dice), self.ack(answered, dice)];
        let outcome = match acks {
            [None, None] => Outcome::TimeOut,
            [None, Some(_)] => Outcome::Ack1Lost,
            [Some(_), None] => Outcome::Ack2Lost,
            [Some(first), Some(second)] => {
                let measured = self.round_trip(there, first, answered - arrived);
                let within = (answered + first.takes().max(second.takes())).saturating_sub(posted);
                return match measured {
                    Err(invalid) => (Outcome::Invalid(invalid), false),
                    Ok(slow) if u128::from(within) <= self.config.timeout.as_nanos() => (Outcome::Ok, slow),
                    Ok(slow) => (self.or_host(Outcome::Late, posted), slow),
                };
            }
        };
        (self.or_host(outcome, posted), false)
    }

    /// How an ACK that leaves at this time comes back.
    fn ack(&self, time: u64, dice: &mut Dice) -> Option<Crossing> {
        let back = self.back.cross(time, dice)?;
        let stall = self.own.filter(|stall| stall.around(time + back.takes()).is_some());
        let is_dropped = stall.is_some_and(|stall| unit(dice.word()) < stall.drops);
        (!is_dropped).then_some(back)
    }

    /// Whether the round trip is slow, as clocks show it that drift while the responder stands still.
    fn round_trip(&self, there: Crossing, back: Crossing, stood_still: u64) -> Result<bool, Invalid> {
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a probe are few")]
        let (true_time, still) = ((there.takes() + back.takes()) as f64, stood_still as f64);
        let shown = true_time + still * self.drift;
        let healthy = f64::from(self.there.hops + self.back.hops) * healthy_link();
        if shown < 0.0 { Err(Invalid::NegativeRoundTrip) } else { Ok(shown > healthy) }
    }

    fn or_host(&self, outcome: Outcome, posted: u64) -> Outcome {
        let timeout = u64::try_from(self.config.timeout.as_nanos()).unwrap_or(u64::MAX);
        let seen = self.own.filter(|stall| u128::from(stall.lasts) >= self.config.stall.as_nanos());
        // A stall that ended as the probe was posted counts, as it held the probe up.
        let touched = seen.is_some_and(|stall| {
            stall.touches(posted, posted + timeout) || stall.around(posted.saturating_sub(1)).is_some()
        });
        if touched { Outcome::Host(HostFault::Stalled) } else { outcome }
    }
}

/// A healthy link takes no longer, in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "a microsecond")]
fn healthy_link() -> f64 {
    (LINK_DELAY + LINK_JITTER) as f64
}
