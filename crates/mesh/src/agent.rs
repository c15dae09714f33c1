//! What an agent decides by itself: which paths it traces, and when.
//!
//! Paths are those of its own packets: of the probes that it sends, and of the answers to probes that it gets, since an
//! answer need not come back the way that its probe went. Each is traced once as soon as may be, and then again now and then,
//! since routes change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ferroce_probe::{Peer, Stamp};

/// How often paths are traced, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePlanConfig {
    /// From one trace of a path to the next.
    pub again: Duration,
    /// A path that no packet took for so long is forgotten.
    pub keep: Duration,
    /// From one round of traces to the next: routers answer only so often.
    pub pause: Duration,
    /// Ports to one target that are traced in a round.
    pub at_once: usize,
    /// Paths that are kept.
    pub most: usize,
}

impl Default for TracePlanConfig {
    fn default() -> Self {
        Self {
            again: Duration::from_secs(300),
            keep: Duration::from_secs(600),
            pause: Duration::from_millis(100),
            at_once: 8,
            most: 4096,
        }
    }
}

/// Which paths are traced next.
#[derive(Clone, Debug)]
pub struct TracePlan {
    config: TracePlanConfig,
    paths: BTreeMap<(IpAddr, u16), Known>,
    /// When each is to be traced, with its target.
    due: BTreeSet<(Stamp, IpAddr, u16)>,
    next_round: Stamp,
    refused: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    qpn: u32,
    due: Stamp,
    used: Stamp,
}

/// What to trace now: ports to one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRound {
    /// Where to.
    pub target: Peer,
    /// From which UDP source ports.
    pub ports: Vec<u16>,
}

impl TracePlan {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(config: TracePlanConfig) -> Self {
        let config = TracePlanConfig { at_once: config.at_once.max(1), most: config.most.max(1), ..config };
        let (paths, due) = (BTreeMap::new(), BTreeSet::new());
        Self { config, paths, due, next_round: Stamp::default(), refused: 0 }
    }

    /// A packet takes this path now, or will.
    pub fn want(&mut self, target: Peer, port: u16, now: Stamp) {
        let key = (target.address, port);
        if let Some(known) = self.paths.get_mut(&key) {
            (known.qpn, known.used) = (target.qpn, now);
            return;
        }
        if self.paths.len() >= self.config.most && !self.forget_oldest(now) {
            self.refused += 1;
            return;
        }
        self.paths.insert(key, Known { qpn: target.qpn, due: now, used: now });
        self.due.insert((now, key.0, key.1));
    }

    /// What to trace now, if it is the time: what waits the longest, and other ports of its target that wait.
    pub fn round(&mut self, now: Stamp) -> Option<TraceRound> {
        if now < self.next_round {
            return None;
        }
        let first = loop {
            let (due, target, port) = *self.due.first()?;
            if due > now {
                return None;
            }
            let is_used = self.paths.get(&(target, port)).is_some_and(|known| self.is_used(known, now));
            if is_used {
                break target;
            }
            self.due.pop_first();
            self.paths.remove(&(target, port));
        };
        let waits = self.paths.range((first, 0)..=(first, u16::MAX));
        let mut waits: Vec<(Stamp, u16, u32)> = waits
            .filter(|(_, known)| known.due <= now && self.is_used(known, now))
            .map(|((_, port), known)| (known.due, *port, known.qpn))
            .collect();
        waits.sort_unstable();
        waits.truncate(self.config.at_once);
        let qpn = waits.first()?.2;
        for (due, port, _) in &waits {
            self.due.remove(&(*due, first, *port));
            let next = now.plus(self.config.again).plus(apart(first, *port, self.config.again));
            self.due.insert((next, first, *port));
            if let Some(known) = self.paths.get_mut(&(first, *port)) {
                known.due = next;
            }
        }
        self.next_round = now.plus(self.config.pause);
        let ports = waits.into_iter().map(|(_, port, _)| port).collect();
        Some(TraceRound { target: Peer { address: first, qpn }, ports })
    }

    /// Paths that are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Paths that found no place.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn is_used(&self, known: &Known, now: Stamp) -> bool {
        known.used.plus(self.config.keep) > now
    }

    /// Makes room: one that no packet takes any more goes. Whether there was one.
    fn forget_oldest(&mut self, now: Stamp) -> bool {
        let old = self.paths.iter().find(|(_, known)| !self.is_used(known, now));
        let Some((key, due)) = old.map(|(key, known)| (*key, known.due)) else { return false };
        self.paths.remove(&key);
        self.due.remove(&(due, key.0, key.1));
        true
    }
}

/// Up to a fifth of the time more, so that what began together does not stay together.
fn apart(target: IpAddr, port: u16, again: Duration) -> Duration {
    let address = match target {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => u64::try_from(address.to_bits() & u128::from(u64::MAX)).unwrap_or(0),
    };
    let mixed = (address ^ u64::from(port) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    again / 5 * u32::try_from(mixed).unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer { address: [10, 0, 0, last].into(), qpn: u32::from(last) }
    }

    fn at(millis: u64) -> Stamp {
        Stamp::from_nanos(1_000_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn new_paths_are_traced_in_rounds_of_one_target() {
        let mut plan = TracePlan::new(TracePlanConfig { at_once: 2, ..TracePlanConfig::default() });
        for (last, port) in [(1, 5), (2, 5), (1, 6), (1, 7)] {
            plan.want(peer(last), port, at(u64::from(port)));
        }
        let round =
            |target: u8, ports: &[u16]| Some(TraceRound { target: peer(target), ports: ports.to_vec() });
        assert_eq!(plan.round(at(10)), round(1, &[5, 6]));
        assert_eq!(plan.round(at(50)), None, "routers answer only so often");
        assert_eq!(plan.round(at(110)), round(2, &[5]));
        assert_eq!(plan.round(at(210)), round(1, &[7]));
        assert_eq!(plan.round(at(310)), None, "all are traced");
        plan.want(Peer { qpn: 77, ..peer(2) }, 5, at(299_000));
        assert_eq!(plan.round(at(299_000)), None);
        let again = plan.round(at(400_000)).unwrap();
        assert_eq!(again.target.qpn, if again.target.address == peer(2).address { 77 } else { 1 });
    }

    #[test]
    fn what_no_packet_takes_is_forgotten() {
        let mut plan = TracePlan::new(TracePlanConfig { most: 2, ..TracePlanConfig::default() });
        plan.want(peer(1), 5, at(0));
        plan.want(peer(2), 5, at(0));
        plan.want(peer(3), 5, at(0));
        assert_eq!((plan.len(), plan.refused()), (2, 1));
        plan.want(peer(3), 5, at(700_000));
        assert_eq!((plan.len(), plan.refused()), (2, 1), "one has made room");
        let rounds: Vec<_> = (0..20).filter_map(|number| plan.round(at(700_000 + number * 100))).collect();
        assert_eq!(rounds, [TraceRound { target: peer(3), ports: vec![5] }]);
        assert_eq!(plan.len(), 1);
    }

    proptest! {
        /// Paths in use are traced within the time of all rounds before them, and not more often than they should be.
        #[test]
        fn every_path_in_use_is_traced_now_and_then(
            paths in prop::collection::btree_set((1_u8..20, 50_000_u16..50_010), 1..100),
        ) {
            let config = TracePlanConfig::default();
            let mut plan = TracePlan::new(config);
            let mut last: BTreeMap<(u8, u16), u64> = BTreeMap::new();
            for step in 0..20_000_u64 {
                let millis = step * 100;
                if step % 100 == 0 {
                    paths.iter().for_each(|(target, port)| plan.want(peer(*target), *port, at(millis)));
                }
                let Some(round) = plan.round(at(millis)) else { continue };
                prop_assert!(round.ports.len() <= config.at_once);
                for port in round.ports {
                    let IpAddr::V4(address) = round.target.address else { continue };
                    if let Some(before) = last.insert((address.octets()[3], port), millis) {
                        prop_assert!(millis - before >= 300_000 && millis - before <= 370_100, "{}", millis - before);
                    }
                }
                prop_assert_eq!(plan.due.len(), plan.paths.len());
            }
            prop_assert_eq!(last.len(), paths.len());
            prop_assert!(last.values().all(|millis| *millis > 2_000_000 - 371_000));
        }
    }
}
