//! Which probe is next: each pair at its own interval, all of them spread evenly.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::IpAddr;
use std::time::Duration;

use ferroce_probe::{Pace, Peer, Stamp};

/// Pairs of one RNIC at most.
pub(super) const PAIRS: usize = 4096;

/// Probes of a tuple of a service in a second at most.
const BORROWED_RATE: f64 = 10.0;

/// Probes of an RNIC in a second that are sent however busy the host is: fewer would relieve it of nothing, and say
/// nothing.
const HARMLESS: f64 = 5.0;

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

/// Why a target is probed: the controller wants it, or a service of this host talks to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Mesh,
    Service,
}

/// A target, which may be probed for both reasons, from other ports.
type Key = (IpAddr, Reason);

/// Probes in the order of their times.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    wanted: BTreeMap<Key, Pair>,
    due: BinaryHeap<Reverse<(Stamp, Key)>>,
    turns: BTreeMap<Key, Turn>,
    /// Pairs that were begun so far.
    begun: u32,
    /// At the slowest pace, one of so many probes is sent.
    slowest: u32,
}

/// What is next of a pair.
#[derive(Debug, Default)]
struct Turn {
    /// The place among its ports of the next probe.
    port: usize,
    /// Probes that were left out since the last one.
    left_out: u32,
}

impl Schedule {
    /// From now on, this is probed, and that from ports of services. Pairs that stay keep their time, so that a change
    /// of others moves nothing; where the interval is another one, so much of it is left as was left of the old one: a
    /// pair is probed in time however often its interval changes.
    pub(super) fn set(&mut self, wanted: Wanted, borrowed: Wanted, rate: u32, now: Stamp) {
        let wanted = bounded(wanted, rate);
        let borrowed = shared_out(borrowed, asked(&wanted), f64::from(rate.max(1)));
        let keyed = |wanted: Wanted, reason: Reason| {
            wanted.into_iter().map(move |(address, pair)| ((address, reason), pair))
        };
        let mut all: BTreeMap<Key, Pair> = keyed(wanted, Reason::Mesh).collect();
        all.extend(keyed(borrowed, Reason::Service));
        all.retain(|_, pair| !pair.ports.is_empty());
        let old = std::mem::replace(&mut self.wanted, all);
        let before = std::mem::take(&mut self.due);
        let mut new: BTreeSet<Key> = self.wanted.keys().copied().collect();
        for Reverse((due, key)) in before {
            let (Some(old), Some(pair)) = (old.get(&key), self.wanted.get(&key)) else { continue };
            new.remove(&key);
            let wait = due.since(now);
            let wait = if old.interval == pair.interval {
                wait
            } else {
                wait.mul_f64(pair.interval.div_duration_f64(old.interval)).min(pair.interval)
            };
            self.due.push(Reverse((if wait.is_zero() { due } else { now.plus(wait) }, key)));
        }
        self.turns.retain(|key, _| self.wanted.contains_key(key));
        let all: f64 = self.wanted.values().map(|pair| 1.0 / pair.interval.as_secs_f64()).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is within these bounds"
        )]
        {
            self.slowest = (all / HARMLESS).clamp(1.0, 1000.0) as u32;
        }
        for key in new {
            // Steps of the golden ratio: however many begin, they are spread over their interval.
            let part = (f64::from(self.begun) * 0.618_033_988_749_895).fract();
            self.begun = (self.begun + 1) % (1 << 20);
            // Those that are left out at a slower pace are not the same ones for all pairs.
            self.turns.insert(key, Turn { port: 0, left_out: self.begun % Pace::Tenth.intervals() });
            let wait = self.wanted[&key].interval.mul_f64(part);
            self.due.push(Reverse((now.plus(wait), key)));
        }
    }

    /// When the next probe is due.
    pub(super) fn wake_at(&self) -> Option<Stamp> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    /// The next probe that is due, and the port that it leaves from. What was missed is not made up for. At a slower
    /// pace, probes that are due are left out, so that all are sent again as soon as the pace is the full one.
    pub(super) fn next(&mut self, now: Stamp, pace: Pace) -> Option<(Peer, Option<u16>)> {
        let every = pace.intervals().min(self.slowest);
        loop {
            let Reverse((due, key)) = *self.due.peek().filter(|Reverse((due, _))| *due <= now)?;
            self.due.pop();
            let pair = self.wanted.get(&key)?;
            let next = due.plus(pair.interval);
            let next = if next <= now { now.plus(pair.interval) } else { next };
            self.due.push(Reverse((next, key)));
            let turn = self.turns.entry(key).or_default();
            turn.left_out += 1;
            if turn.left_out < every {
                continue;
            }
            turn.left_out = 0;
            let port = pair.ports.get(turn.port % pair.ports.len().max(1)).copied();
            turn.port = turn.port.wrapping_add(1);
            return Some((Peer { address: key.0, qpn: pair.qpn }, port));
        }
    }
}

/// The same with no more probes in a second than this: all intervals are stretched alike.
fn bounded(mut wanted: Wanted, rate: u32) -> Wanted {
    while wanted.len() > PAIRS {
        wanted.pop_last();
    }
    let stretch = (asked(&wanted) / f64::from(rate.max(1))).max(1.0);
    for pair in wanted.values_mut() {
        pair.interval = pair.interval.max(LEAST).mul_f64(stretch);
    }
    wanted
}

/// No pair is probed more often.
const LEAST: Duration = Duration::from_micros(100);

/// Probes in a second.
fn asked(wanted: &Wanted) -> f64 {
    let probed = wanted.values().filter(|pair| !pair.ports.is_empty());
    probed.map(|pair| 1.0 / pair.interval.max(LEAST).as_secs_f64()).sum()
}

/// Probes from ports of services, with intervals: half as many as there are without them, but at least one in a second,
/// as far as the rate allows. Each tuple has the same share.
fn shared_out(mut borrowed: Wanted, asked: f64, rate: f64) -> Wanted {
    let tuples: usize = borrowed.values().map(|pair| pair.ports.len()).sum();
    let budget = (asked / 2.0).max(1.0).min(rate - asked);
    if budget < 0.01 {
        return Wanted::new();
    }
    let each = (budget / tuples.max(1) as f64).min(BORROWED_RATE);
    for pair in borrowed.values_mut() {
        let interval = 1.0 / (each * pair.ports.len().max(1) as f64);
        pair.interval = Duration::from_secs_f64(interval.min(3600.0)).max(LEAST);
    }
    borrowed
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
            schedule.set(pairs(count, 1000), Wanted::new(), 1000, at(0));
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
        schedule.set(pairs(3, 1000), Wanted::new(), 1000, at(0));
        let first = run(&mut schedule, at(1_000_000));
        schedule.set(pairs(5, 1000), Wanted::new(), 1000, at(1_000_000));
        let second = run(&mut schedule, at(2_000_000));
        for (due, to, _) in first {
            assert!(
                second
                    .iter()
                    .any(|(next, other, _)| *other == to && next.since(due) == Duration::from_secs(1))
            );
        }
        assert_eq!(second.len(), 5);
        schedule.set(pairs(1, 1000), Wanted::new(), 1000, at(2_000_000));
        assert_eq!(run(&mut schedule, at(3_000_000)).len(), 1);
    }

    /// When a controller takes over, agents come back one by one, and with each of them the lists of the others change.
    #[test]
    fn intervals_that_change_all_the_time_put_no_probe_off() {
        let mut schedule = Schedule::default();
        let (mut left, mut wanted) = (Vec::new(), 0.0);
        for step in 0..100 {
            let millis = 3000 + 100 * (step % 7);
            schedule.set(pairs(7, millis), Wanted::new(), 1000, at(step * 100_000));
            left.extend(run(&mut schedule, at((step + 1) * 100_000)));
            wanted += 7.0 * 100.0 / millis as f64;
        }
        assert!((left.len() as f64 - wanted).abs() <= 7.0, "{} of {wanted}", left.len());
        for last in 0..7 {
            let own: Vec<_> =
                left.iter().filter(|(_, to, _)| *to == IpAddr::from([10, 0, 0, last])).collect();
            let widest = own.windows(2).map(|two| two[1].0.since(two[0].0)).max().unwrap();
            assert!(widest <= Duration::from_millis(3600), "{widest:?}");
        }
    }

    #[test]
    fn a_busy_host_leaves_probes_out_down_to_a_few_and_sends_all_again_once_it_is_calm() {
        let sent = |schedule: &mut Schedule, from: u64, seconds: u64, pace: Pace| {
            let (mut sent, mut to) = (0_u64, BTreeSet::new());
            for milli in from * 1000..(from + seconds) * 1000 {
                while let Some((peer, _)) = schedule.next(at(milli * 1000), pace) {
                    sent += 1;
                    to.insert(peer.address);
                }
            }
            (sent, to.len())
        };
        let mut schedule = Schedule::default();
        schedule.set(pairs(100, 1000), Wanted::new(), 1000, at(0));
        assert_eq!(sent(&mut schedule, 0, 10, Pace::Tenth), (100, 100));
        assert_eq!(sent(&mut schedule, 10, 10, Pace::Full), (1000, 100));
        // Ten in a second: every second one at the slowest.
        schedule.set(pairs(10, 1000), Wanted::new(), 1000, at(20_000_000));
        assert_eq!(sent(&mut schedule, 20, 10, Pace::Tenth), (50, 10));
        assert_eq!(sent(&mut schedule, 30, 10, Pace::Half), (50, 10));
        schedule.set(pairs(2, 1000), Wanted::new(), 1000, at(40_000_000));
        assert_eq!(sent(&mut schedule, 40, 10, Pace::Tenth), (20, 2));
    }

    #[test]
    fn ports_of_services_are_probed_beside_the_others_within_the_budget() {
        let from = |ports: &[u16]| {
            let mut one = pairs(1, 1);
            one.values_mut().for_each(|pair| pair.ports = ports.to_vec());
            one
        };
        let count = |rate: u32, borrowed: &[u16]| {
            let mut schedule = Schedule::default();
            schedule.set(pairs(10, 1000), from(borrowed), rate, at(0));
            let left = run(&mut schedule, at(10_000_000));
            let of_services = left.iter().filter(|(_, _, port)| borrowed.contains(port)).count();
            (left.len() - of_services, of_services)
        };
        let (others, borrowed) = count(1000, &[60_000, 60_001]);
        assert!(others == 100 && (49..=51).contains(&borrowed), "half as many: {others} and {borrowed}");
        let (others, borrowed) = count(12, &[60_000]);
        assert!(
            others == 100 && (19..=21).contains(&borrowed),
            "the rest of the rate: {others} and {borrowed}"
        );
        assert_eq!(count(10, &[60_000]), (100, 0), "nothing is left");
        assert_eq!(count(1000, &[]), (100, 0), "no service costs nothing");
        let mut schedule = Schedule::default();
        schedule.set(Wanted::new(), from(&[60_000]), 1000, at(0));
        assert_eq!(run(&mut schedule, at(10_000_000)).len(), 10, "one in a second");
        schedule.set(Wanted::new(), Wanted::new(), 1000, at(10_000_000));
        assert!(schedule.wake_at().is_none(), "the service is gone");
    }

    #[test]
    fn what_was_missed_is_not_made_up_for_and_no_list_exceeds_the_rate() {
        let mut schedule = Schedule::default();
        schedule.set(pairs(1, 10), Wanted::new(), 1000, at(0));
        let late = at(5_000_000);
        assert!(schedule.next(late, Pace::Full).is_some());
        assert_eq!(schedule.next(late, Pace::Full), None);
        assert_eq!(schedule.wake_at(), Some(late.plus(Duration::from_millis(10))));
        let mut greedy = Schedule::default();
        greedy.set(pairs(100, 0), Wanted::new(), 50, at(0));
        assert!(run(&mut greedy, at(2_000_000)).len() <= 101);
    }
}
