//! Which RNIC probes which, from which port, and when.

use std::collections::BTreeSet;

use ferroce_probe::paths::FIRST_PORT;
use ferroce_sim::Dice;

use crate::hash::Tuple;
use crate::observation::Observation;
use crate::shape::Shape;

/// The probes of one tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where they come from, where they go, and the port that they leave from.
    pub tuple: Tuple,
    /// The port that answers leave from.
    pub reply_port: u16,
    /// When the first one is due, in nanoseconds.
    pub first: u64,
    /// From one to the next, in nanoseconds.
    pub interval: u64,
    /// How many.
    pub count: u32,
}

impl Flow {
    /// When each probe is due.
    pub fn times(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { first, interval, count, .. } = *self;
        (0..u64::from(count)).map(move |number| first + number * interval)
    }

    /// Nothing observed yet.
    pub(crate) fn observation(&self) -> Observation {
        let Tuple { from, to, port } = self.tuple;
        Observation { from, to, port, reply_port: self.reply_port, ..Observation::default() }
    }
}

/// How much is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanConfig {
    /// How long, in nanoseconds.
    pub window: u64,
    /// Probes of each RNIC to others below its ToR, for each second.
    pub below_tor: u32,
    /// Probes of each RNIC to other ToRs, for each second.
    pub between_tors: u32,
    /// Ports for each pair between ToRs.
    pub ports: u32,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self { window: 20_000_000_000, below_tor: 10, between_tors: 10, ports: 8 }
    }
}

/// All flows of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The flows.
    pub flows: Vec<Flow>,
}

impl Plan {
    /// All ordered pairs below each ToR, and between ToRs a circulant: each ordered pair of ToRs is probed.
    #[must_use]
    pub fn mesh(shape: &Shape, config: &PlanConfig, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut flows = Vec::new();
        for rnic in 0..shape.all_rnics() {
            let tuples: Vec<_> = neighbours(shape, rnic).map(|to| (to, port(&mut dice))).collect();
            spread(&mut flows, rnic, &tuples, config.below_tor, config.window, &mut dice);
            let mut tuples = Vec::new();
            for to in other_tors(shape, rnic) {
                let mut ports = BTreeSet::new();
                while ports.len() < config.ports.min(0x4000) as usize {
                    ports.insert(port(&mut dice));
                }
                tuples.extend(ports.into_iter().map(|port| (to, port)));
            }
            spread(&mut flows, rnic, &tuples, config.between_tors, config.window, &mut dice);
        }
        Self { flows }
    }

    /// All probes of it.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.flows.iter().map(|flow| u64::from(flow.count)).sum()
    }
}

/// The other RNICs below the same ToR.
fn neighbours(shape: &Shape, rnic: u32) -> impl Iterator<Item = u32> {
    let first = shape.tor_of(rnic) * shape.rnics_per_tor();
    (first..first + shape.rnics_per_tor()).filter(move |other| *other != rnic)
}

/// For RNIC `j` of `R` below ToR `t` of `T`: ToRs `t + 1 + ((j + R i) mod (T - 1))` for all `i < ceil((T -
/// 1) / R)`.
fn other_tors(shape: &Shape, rnic: u32) -> impl Iterator<Item = u32> {
    let (tors, below) = (shape.all_tors(), shape.rnics_per_tor());
    let (tor, index) = (shape.tor_of(rnic), rnic % below);
    let others = tors - 1;
    (0..others.div_ceil(below)).map(move |round| {
        let target = (tor + 1 + (index + below * round) % others) % tors;
        target * below + (index + round) % below
    })
}

fn port(dice: &mut Dice) -> u16 {
    FIRST_PORT + u16::try_from(dice.below(0x4000)).unwrap_or(0)
}

/// So many probes a second, over these targets and ports in turn.
fn spread(flows: &mut Vec<Flow>, from: u32, tuples: &[(u32, u16)], rate: u32, window: u64, dice: &mut Dice) {
    let budget = u64::from(rate) * window / 1_000_000_000;
    if budget == 0 || tuples.is_empty() {
        return;
    }
    let (count, step) = (tuples.len() as u64, window / budget);
    // Which of them get one more is up to chance, as is the beginning.
    let (start, phase) = (dice.below(count), dice.below(step));
    for (index, (to, port)) in (0_u64..).zip(tuples) {
        let turn = (index + start) % count;
        let probes = budget / count + u64::from(turn < budget % count);
        if probes == 0 {
            continue;
        }
        flows.push(Flow {
            tuple: Tuple { from, to: *to, port: *port },
            reply_port: self::port(dice),
            first: phase + turn * step,
            interval: count * step,
            count: u32::try_from(probes).unwrap_or(u32::MAX),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ordered_pair_of_tors_is_probed_and_all_pairs_below_a_tor() {
        for shape in [Shape::SMALL, Shape { hosts: 1, ..Shape::SMALL }, Shape::LARGE] {
            let mut tors = BTreeSet::new();
            for rnic in 0..shape.all_rnics() {
                assert_eq!(neighbours(&shape, rnic).count(), shape.rnics_per_tor() as usize - 1);
                for to in other_tors(&shape, rnic) {
                    assert!(shape.tor_of(to) != shape.tor_of(rnic) && to < shape.all_rnics());
                    tors.insert((shape.tor_of(rnic), shape.tor_of(to)));
                }
            }
            let pairs = shape.all_tors() * (shape.all_tors() - 1);
            assert_eq!(tors.len(), pairs as usize);
        }
    }

    #[test]
    fn probes_are_spread_over_the_window() {
        let config = PlanConfig { window: 2_000_000_000, below_tor: 5, between_tors: 10, ports: 4 };
        let plan = Plan::mesh(&Shape::SMALL, &config, 3);
        assert_eq!(plan.probes(), 32 * (10 + 20));
        for rnic in [0, 31] {
            let mine = plan.flows.iter().filter(|flow| flow.tuple.from == rnic);
            let mut times: Vec<u64> = mine.flat_map(Flow::times).collect();
            times.sort_unstable();
            assert!(times.len() == 30 && times[29] < config.window, "{times:?}");
            let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(longest <= 200_000_000, "{longest}");
        }
        assert_eq!(plan, Plan::mesh(&Shape::SMALL, &config, 3), "a seed is a plan");
    }
}
