//! Which probe is next: each pair at its own interval, all of them spread evenly.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;
use std::time::Duration;

use ferroce_probe::{Pace, Peer, Stamp};

/// Pairs of one RNIC at most.
pub(super) const PAIRS: usize = 4096;

/// What an RNIC probes, by address.
pub(super) type Wanted = BTreeMap<IpAddr, Pair>;

/// How one target is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) qpn: u32,
    pub(super) interval: Duration,
    /// None if it is not probed.
    pub(super) ports: Vec<u16>,
    /// Those of probes that come from there.
    pub(super) answer_ports: Vec<u16>,
}

/// Probes in the order of their times.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    wanted: Wanted,
    due: BinaryHeap<Reverse<(Stamp, IpAddr)>>,
    /// The place among its ports of the next probe of each.
    turn: BTreeMap<IpAddr, usize>,
    /// Pairs that were begun so far.
    begun: u32,
}

impl Schedule {
    /// From now on, this is probed. Pairs that stay keep their time, so that a change of others moves nothing.
    pub(super) fn set(&mut self, wanted: Wanted, rate: u32, now: Stamp) {
        let mut wanted = bounded(wanted, rate);
        wanted.retain(|_, pair| !pair.ports.is_empty());
        let old = std::mem::replace(&mut self.wanted, wanted);
        let stays = |address: &IpAddr| {
            old.get(address).map(|pair| pair.interval) == self.wanted.get(address).map(|pair| pair.interval)
        };
        self.due.retain(|Reverse((_, address))| stays(address));
        self.turn.retain(|address, _| self.wanted.contains_key(address));
        let new: Vec<IpAddr> = self.wanted.keys().filter(|address| !stays(address)).copied().collect();
        for address in new {
            // Steps of the golden ratio: however many begin, they are spread over their interval.
            let part = (f64::from(self.begun) * 0.618_033_988_749_895).fract();
            self.begun = (self.begun + 1) % (1 << 20);
            let wait = self.wanted[&address].interval.mul_f64(part);
            self.due.push(Reverse((now.plus(wait), address)));
        }
    }

    /// When the next probe is due.
    pub(super) fn wake_at(&self) -> Option<Stamp> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    /// The next probe that is due, and the port that it leaves from. What was missed is not made up for.
    pub(super) fn next(&mut self, now: Stamp, pace: Pace) -> Option<(Peer, Option<u16>)> {
        let Reverse((due, address)) = *self.due.peek().filter(|Reverse((due, _))| *due <= now)?;
        self.due.pop();
        let pair = self.wanted.get(&address)?;
        let interval = pace.stretch(pair.interval);
        let next = due.plus(interval);
        let next = if next <= now { now.plus(interval) } else { next };
        self.due.push(Reverse((next, address)));
        let turn = self.turn.entry(address).or_default();
        let port = pair.ports.get(*turn % pair.ports.len().max(1)).copied();
        *turn = turn.wrapping_add(1);
        Some((Peer { address, qpn: pair.qpn }, port))
    }
}

/// The same with no more probes in a second than this: all intervals are stretched alike.
fn bounded(mut wanted: Wanted, rate: u32) -> Wanted {
    while wanted.len() > PAIRS {
        wanted.pop_last();
    }
    let least = Duration::from_micros(100);
    let asked: f64 = wanted
        .values()
        .filter(|pair| !pair.ports.is_empty())
        .map(|pair| 1.0 / pair.interval.max(least).as_secs_f64())
        .sum();
    let stretch = (asked / f64::from(rate.max(1))).max(1.0);
    for pair in wanted.values_mut() {
        pair.interval = pair.interval.max(least).mul_f64(stretch);
    }
    wanted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(count: u8, millis: u64) -> Wanted {
        let pair = |last| {
            let pair = Pair {
                qpn: 5,
                interval: Duration::from_millis(millis),
                ports: vec![50_000, 50_001],
                answer_ports: vec![],
            };
            (IpAddr::from([10, 0, 0, last]), pair)
        };
        (0..count).map(pair).collect()
    }

    fn at(micros: u64) -> Stamp {
        Stamp::from_nanos(micros * 1000)
    }

    /// Everything that leaves in this time, as it is due.
    fn run(schedule: &mut Schedule, until: Stamp) -> Vec<(Stamp, IpAddr, u16)> {
        let mut left = Vec::new();
        while let Some(due) = schedule.wake_at().filter(|due| *due < until) {
            let (peer, port) = schedule.next(due, Pace::Full).unwrap();
            left.push((due, peer.address, port.unwrap()));
        }
        left
    }

    proptest! {
        #[test]
        fn each_pair_is_probed_at_its_interval_from_its_ports_in_turn(count in 1_u8..60) {
            let mut schedule = Schedule::default();
            schedule.set(pairs(count, 1000), 1000, at(0));
            let left = run(&mut schedule, at(4_000_000));
            prop_assert_eq!(left.len(), usize::from(count) * 4);
            for last in 0..count {
                let own: Vec<_> = left.iter().filter(|(_, to, _)| *to == IpAddr::from([10, 0, 0, last])).collect();
                prop_assert!(own.windows(2).all(|two| two[1].0.since(two[0].0) == Duration::from_secs(1)));
                prop_assert!(own.windows(2).all(|two| two[1].2 != two[0].2));
            }
            // No two gaps of one second differ by much: they are spread.
            let times: Vec<_> = left.iter().map(|(due, ..)| *due).take(usize::from(count)).collect();
            let widest = times.windows(2).map(|two| two[1].since(two[0])).max().unwrap_or_default();
            prop_assert!(widest.as_secs_f64() <= 3.0 / f64::from(count), "{widest:?} of {count}");
        }
    }

    #[test]
    fn pairs_that_stay_keep_their_times() {
        let mut schedule = Schedule::default();
        schedule.set(pairs(3, 1000), 1000, at(0));
        let first = run(&mut schedule, at(1_000_000));
        schedule.set(pairs(5, 1000), 1000, at(1_000_000));
        let second = run(&mut schedule, at(2_000_000));
        for (due, to, _) in first {
            assert!(
                second
                    .iter()
                    .any(|(next, other, _)| *other == to && next.since(due) == Duration::from_secs(1))
            );
        }
        assert_eq!(second.len(), 5);
        schedule.set(pairs(1, 1000), 1000, at(2_000_000));
        assert_eq!(run(&mut schedule, at(3_000_000)).len(), 1);
    }

    #[test]
    fn what_was_missed_is_not_made_up_for_and_no_list_exceeds_the_rate() {
        let mut schedule = Schedule::default();
        schedule.set(pairs(1, 10), 1000, at(0));
        let late = at(5_000_000);
        assert!(schedule.next(late, Pace::Full).is_some());
        assert_eq!(schedule.next(late, Pace::Full), None);
        assert_eq!(schedule.wake_at(), Some(late.plus(Duration::from_millis(10))));
        let mut greedy = Schedule::default();
        greedy.set(pairs(100, 0), 50, at(0));
        assert!(run(&mut greedy, at(2_000_000)).len() <= 101);
    }
}
