//! Scenarios: which faults a network has, drawn from a seed.

use ferroce_sim::Dice;

use crate::fabric::Fabric;
use crate::fault::{Fault, Place, Stall, Trouble};
use crate::hash::unit;
use crate::shape::{Link, Node, Shape};

/// What may be wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScenarioConfig {
    /// No fewer faults.
    pub fewest: u32,
    /// No more faults.
    pub most: u32,
    /// The smallest loss of a fault; every order of magnitude up to the largest is as likely.
    pub smallest: f64,
    /// The largest loss of a fault that is no black hole: 1 for all packets.
    pub largest: f64,
    /// This share of the hosts stalls.
    pub stalling: f64,
    /// Loss on each link, which is no fault.
    pub background: f64,
    /// Clocks are too fast or too slow by up to so many millionths.
    pub drift: u32,
}

impl Default for ScenarioConfig {
    fn default() -> Self {
        Self { fewest: 1, most: 8, smallest: 0.01, largest: 1.0, stalling: 0.01, background: 0.0, drift: 1 }
    }
}

impl Fabric {
    /// A network with faults that chance has chosen: in links, switches and cards, of loss and of black
    /// holes.
    #[must_use]
    pub fn drawn(shape: Shape, config: &ScenarioConfig, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut fabric =
            Self::new(shape, dice.word()).with_clocks(config.drift).with_background(config.background);
        let faults = dice.between_u32(config.fewest, config.most);
        let mut places: Vec<Place> = Vec::new();
        while places.len() < faults as usize {
            let place = draw_place(&shape, &mut dice);
            if !places.contains(&place) {
                places.push(place);
                let trouble = draw_trouble(config, &mut dice);
                fabric = fabric.with_fault(Fault { place, trouble });
            }
        }
        for host in 0..shape.all_hosts() {
            if unit(dice.word()) < config.stalling {
                fabric = fabric.with_stall(draw_stall(host, &mut dice));
            }
        }
        fabric
    }
}

fn draw_place(shape: &Shape, dice: &mut Dice) -> Place {
    let number = |dice: &mut Dice, count: u32| u32::try_from(dice.below(u64::from(count))).unwrap_or(0);
    match dice.below(10) {
        0..6 => {
            // Links between switches: those of cards look like their cards.
            let cards = 2 * shape.all_rnics();
            Place::Link(Link(cards + number(dice, shape.all_links() - cards)))
        }
        6 | 7 => Place::Node(Node::Rnic(number(dice, shape.all_rnics()))),
        8 => Place::Node(Node::Tor(number(dice, shape.all_tors()))),
        _ if dice.one_in(2) => Place::Node(Node::Aggregation(number(dice, shape.all_aggregations()))),
        _ => Place::Node(Node::Core(number(dice, shape.all_cores()))),
    }
}

fn draw_trouble(config: &ScenarioConfig, dice: &mut Dice) -> Trouble {
    let place = unit(dice.word());
    let rate = config.smallest.powf(place) * config.largest.powf(1.0 - place);
    match dice.below(10) {
        0 => Trouble::BlackHole { share: 1.0, salt: dice.word() },
        1 => Trouble::BlackHole { share: rate.max(0.1), salt: dice.word() },
        2 => Trouble::Corruption { rate },
        _ => Trouble::Loss { rate },
    }
}

/// A stall of 50 to 800 milliseconds, every 2 to 20 seconds.
fn draw_stall(host: u32, dice: &mut Dice) -> Stall {
    let period = dice.between(2_000_000_000, 20_000_000_000);
    Stall {
        host,
        period,
        lasts: dice.between(50_000_000, 800_000_000),
        phase: dice.below(period),
        drops: unit(dice.word()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_scenario_within_its_bounds() {
        let config = ScenarioConfig::default();
        let mut kinds = [0; 3];
        for seed in 0..100 {
            let fabric = Fabric::drawn(Shape::LARGE, &config, seed);
            assert_eq!(fabric.faults(), Fabric::drawn(Shape::LARGE, &config, seed).faults());
            assert!((1..=8).contains(&fabric.faults().len()));
            for fault in fabric.faults() {
                kinds[match fault.place {
                    Place::Link(_) => 0,
                    Place::Node(Node::Rnic(_)) => 1,
                    Place::Node(_) => 2,
                }] += 1;
                match fault.trouble {
                    Trouble::Loss { rate } | Trouble::Corruption { rate } => {
                        assert!((0.01..=1.0).contains(&rate));
                    }
                    Trouble::BlackHole { share, .. } => assert!((0.1..=1.0).contains(&share)),
                    Trouble::Delay { .. } | Trouble::Flap { .. } => panic!("not drawn"),
                }
            }
            let stalling = fabric.stalls().count();
            assert!((5..=60).contains(&stalling), "{stalling} of 2560 hosts");
        }
        assert!(kinds.iter().all(|count| *count > 20), "{kinds:?}");
    }
}
