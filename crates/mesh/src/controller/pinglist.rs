//! What one RNIC probes: which others, how often, from which ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::ports::ports;
use super::registry::Rnic;
use super::roster::Roster;

/// How much is probed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PinglistConfig {
    /// Probes of an RNIC to others below its ToR, each second.
    pub below: f64,
    /// Probes of an RNIC to other ToRs, each second.
    pub between: f64,
    /// Probes from other ToRs that one RNIC answers each second, at most: one that stands alone below its ToR would
    /// be probed by all others.
    pub answered: f64,
    /// Ports for each pair between ToRs.
    pub ports: usize,
    /// What ports are drawn from.
    pub seed: u64,
}

impl Default for PinglistConfig {
    fn default() -> Self {
        Self { below: 10.0, between: 10.0, answered: 20.0, ports: 8, seed: 0 }
    }
}

/// An RNIC that is to be probed, or that probes are to be answered to.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The RNIC.
    pub rnic: Rnic,
    /// From one probe to the next.
    pub interval: Duration,
    /// The UDP source ports that take turns; none if it is not probed.
    pub ports: Vec<u16>,
    /// The ports of probes that come from there, and of the answers to them; none if none come.
    pub answer_ports: Vec<u16>,
}

/// What an RNIC probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pinglist {
    /// The others below its ToR.
    pub below: Vec<Target>,
    /// Those of other ToRs.
    pub between: Vec<Target>,
    /// Those of other ToRs that probe this one, and are not probed by it: the paths of answers are to be known, too.
    pub answered: Vec<Target>,
}

/// What is new in a pinglist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PinglistDelta {
    /// Targets to probe from now on, or otherwise than before.
    pub set: Vec<Target>,
    /// Targets to probe no more.
    pub removed: Vec<IpAddr>,
}

impl Roster {
    /// What the RNIC with this address probes, in the hour of this number; none if there is no such RNIC.
    #[must_use]
    pub fn pinglist(&self, address: IpAddr, config: &PinglistConfig, hour: u64) -> Option<Pinglist> {
        let index = self.find(address)?;
        let probers = self.probers(index);
        let probes_us =
            |other: usize| u32::try_from(other).is_ok_and(|other| probers.binary_search(&other).is_ok());
        let target = |to: usize, rate: f64, count: usize, answers: usize| {
            let rnic = self.rnics()[to].clone();
            let draw = |from, to, count| ports(config.seed, from, to, count, hour);
            let (ports, answer_ports) =
                (draw(address, rnic.address, count), draw(rnic.address, address, answers));
            Target { interval: interval(rate), ports, answer_ports, rnic }
        };
        let answers = |to: usize| if probes_us(to) { config.ports } else { 0 };
        let (below, between) = (self.below(index), self.between(index));
        let probed: Vec<usize> = self.between(index).collect();
        let (each_below, each) = (share(config.below, below.len()), share(config.between, between.len()));
        let allowed = |to| share(config.answered, self.probers(to).len());
        let only_answered =
            probers.iter().map(|prober| *prober as usize).filter(|prober| !probed.contains(prober));
        Some(Pinglist {
            below: below.map(|to| target(to, each_below, 1, 1)).collect(),
            between: between.map(|to| target(to, each.min(allowed(to)), config.ports, answers(to))).collect(),
            answered: only_answered.map(|from| target(from, 0.0, 0, config.ports)).collect(),
        })
    }
}

impl Pinglist {
    /// All targets, with those that are only answered.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.below.iter().chain(&self.between).chain(&self.answered)
    }

    /// What has to be said to an agent that has the other list.
    #[must_use]
    pub fn since(&self, before: &Self) -> PinglistDelta {
        let mut old: BTreeMap<IpAddr, &Target> =
            before.targets().map(|target| (target.rnic.address, target)).collect();
        let is_new = |target: &&Target| old.remove(&target.rnic.address) != Some(*target);
        let set = self.targets().filter(is_new).cloned().collect();
        PinglistDelta { set, removed: old.into_keys().collect() }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand")]
fn share(rate: f64, among: usize) -> f64 {
    rate / among.max(1) as f64
}

/// The longest interval: a pair is probed once an hour at least.
const LONGEST: Duration = Duration::from_hours(1);

fn interval(rate: f64) -> Duration {
    Duration::try_from_secs_f64(1.0 / rate).unwrap_or(LONGEST).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::*;

    fn roster(sizes: &[u8]) -> Roster {
        let rnics = sizes.iter().zip(0_u8..).flat_map(|(size, tor)| {
            (0..*size).map(move |number| Rnic {
                address: IpAddr::from([10, 0, tor, number]),
                qpn: 17,
                host: format!("host{tor}-{number}"),
                tor: format!("tor{tor:03}"),
                device: "rxe0".into(),
            })
        });
        Roster::new(rnics)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn every_ordered_pair_of_tors_is_probed_and_no_rnic_has_too_much(
            sizes in proptest::collection::vec(1_u8..12, 1..40),
        ) {
            let (roster, config) = (roster(&sizes), PinglistConfig::default());
            let (mut pairs, mut sent, mut answered) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
            let (mut answers, mut below) = (HashMap::<IpAddr, f64>::new(), 0);
            for rnic in roster.rnics() {
                let list = roster.pinglist(rnic.address, &config, 7).unwrap();
                below += list.below.len();
                for target in list.targets() {
                    let (here, there) = (rnic.address, target.rnic.address);
                    sent.extend(target.ports.iter().map(|port| (here, there, *port)));
                    answered.extend(target.answer_ports.iter().map(|port| (there, here, *port)));
                }
                prop_assert!(list.answered.iter().all(|target| target.ports.is_empty()));
                for (targets, most) in [(&list.below, config.below), (&list.between, config.between)] {
                    let rate: f64 = targets.iter().map(|target| 1.0 / target.interval.as_secs_f64()).sum();
                    prop_assert!(rate <= most * 1.001, "{rate}");
                }
                for target in &list.below {
                    prop_assert!(target.rnic.tor == rnic.tor && target.rnic.address != rnic.address);
                    prop_assert_eq!(target.ports.len(), 1);
                }
                for target in &list.between {
                    prop_assert!(target.rnic.tor != rnic.tor);
                    prop_assert_eq!(target.ports.len(), config.ports);
                    pairs.insert((rnic.tor.clone(), target.rnic.tor.clone()));
                    let rate = 1.0 / target.interval.as_secs_f64();
                    *answers.entry(target.rnic.address).or_default() += rate;
                }
            }
            prop_assert_eq!(sent, answered, "every path of answers is known where answers begin");
            prop_assert_eq!(pairs.len(), sizes.len() * (sizes.len() - 1));
            prop_assert_eq!(below, sizes.iter().map(|size| usize::from(*size) * (usize::from(*size) - 1)).sum::<usize>());
            for (address, rate) in answers {
                prop_assert!(rate <= config.answered * 1.001, "{address} answers {rate} each second");
            }
        }

        #[test]
        fn what_an_agent_was_told_makes_the_new_list(
            before in proptest::collection::vec(0_u8..5, 1..12),
            after in proptest::collection::vec(0_u8..5, 1..12),
            hours in (0_u64..3, 0_u64..3),
        ) {
            let config = PinglistConfig::default();
            let address = IpAddr::from([10, 0, 0, 0]);
            let list = |sizes: &[u8], hour| {
                let sizes: Vec<u8> = sizes.iter().enumerate().map(|(i, size)| if i == 0 { size + 1 } else { *size }).collect();
                roster(&sizes).pinglist(address, &config, hour).unwrap()
            };
            let (old, new) = (list(&before, hours.0), list(&after, hours.1));
            let delta = new.since(&old);
            let mut known: BTreeMap<IpAddr, Target> =
                old.targets().map(|target| (target.rnic.address, target.clone())).collect();
            for gone in &delta.removed {
                prop_assert!(known.remove(gone).is_some());
            }
            for target in &delta.set {
                prop_assert!(known.insert(target.rnic.address, target.clone()).as_ref() != Some(target));
            }
            let wanted: BTreeMap<IpAddr, Target> =
                new.targets().map(|target| (target.rnic.address, target.clone())).collect();
            prop_assert_eq!(known, wanted);
        }
    }

    #[test]
    fn of_320_tors_with_32_rnics_each_has_ten_targets_and_is_probed_by_ten() {
        let roster = roster_of(320, 32);
        for index in 0..roster.rnics().len() {
            assert_eq!(roster.between(index).len(), 10);
            assert!((9..=11).contains(&roster.probers(index).len()), "{:?}", roster.probers(index));
        }
    }

    fn roster_of(tors: u16, each: u8) -> Roster {
        let rnics = (0..tors).flat_map(|tor| {
            (0..each).map(move |number| {
                let [high, low] = tor.to_be_bytes();
                Rnic {
                    address: IpAddr::from([10, high, low, number]),
                    qpn: 17,
                    host: "host".into(),
                    tor: format!("tor{tor}"),
                    device: "rxe0".into(),
                }
            })
        });
        Roster::new(rnics)
    }

    #[test]
    fn an_rnic_that_no_agent_registered_has_no_list() {
        assert_eq!(roster(&[2]).pinglist(IpAddr::from([1, 1, 1, 1]), &PinglistConfig::default(), 0), None);
        let alone = roster(&[1]).pinglist(IpAddr::from([10, 0, 0, 0]), &PinglistConfig::default(), 0);
        assert_eq!(alone, Some(Pinglist::default()));
    }

    #[test]
    fn a_rate_of_nothing_is_once_an_hour() {
        assert_eq!(interval(0.0), LONGEST);
        assert_eq!(interval(-1.0), LONGEST);
        assert_eq!(interval(f64::NAN), LONGEST);
        assert_eq!(interval(2.0), Duration::from_millis(500));
    }
}
