//! How many probes of one source a responder answers: a bucket of tokens for each source, in a bounded table.
//!
//! A bucket is kept as the time at which it is full again. One that is full says nothing that a new one
//! would not say, so it can be forgotten; to keep a place in the table, a source has to go on sending.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::stamp::Stamp;

/// The buckets of all sources.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Time that one probe costs.
    cost: Duration,
    /// A bucket holds so much.
    depth: Duration,
    capacity: usize,
    full_at: BTreeMap<IpAddr, Stamp>,
    /// The same by time.
    order: BTreeSet<(Stamp, IpAddr)>,
}

/// Whether a probe is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Answer,
    /// Its source has sent too many.
    OverLimit,
    /// Too many other sources have sent something a moment ago.
    Crowded,
}

impl Limits {
    /// So many probes a second of one source, so many at once, and so many sources.
    pub(crate) fn new(rate: u32, burst: u32, capacity: usize) -> Self {
        let cost = Duration::from_secs(1) / rate.max(1);
        let depth = cost.saturating_mul(burst.max(1));
        Self { cost, depth, capacity: capacity.max(1), full_at: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// A probe of this source came.
    pub(crate) fn ask(&mut self, source: IpAddr, now: Stamp) -> Verdict {
        let source = network_of(source);
        let known = self.full_at.get(&source).copied();
        if known.is_none() && !self.has_room(now) {
            return Verdict::Crowded;
        }
        let full_at = known.map_or(now, |full_at| full_at.max(now)).plus(self.cost);
        if full_at.since(now) > self.depth {
            return Verdict::OverLimit;
        }
        if let Some(known) = known {
            self.order.remove(&(known, source));
        }
        self.full_at.insert(source, full_at);
        self.order.insert((full_at, source));
        Verdict::Answer
    }

    /// Whether there is a place for one more, after a bucket that is full has made room.
    fn has_room(&mut self, now: Stamp) -> bool {
        if self.full_at.len() < self.capacity {
            return true;
        }
        let is_full = self.order.first().is_some_and(|(full_at, _)| *full_at <= now);
        if is_full && let Some((_, source)) = self.order.pop_first() {
            self.full_at.remove(&source);
        }
        is_full
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        assert_eq!(self.full_at.len(), self.order.len());
        self.full_at.len()
    }
}

/// An IPv4 address, or the network of an IPv6 address: a host has as many of its addresses as it likes.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !0 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn at(millis: u64) -> Stamp {
        Stamp::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn a_source_gets_a_burst_and_then_its_rate() {
        let mut limits = Limits::new(1000, 10, 100);
        let mut answered =
            |millis| (0..100).filter(|_| limits.ask(address(1), at(millis)) == Verdict::Answer).count();
        assert_eq!(answered(0), 10);
        assert_eq!(answered(0), 0);
        assert_eq!(answered(3), 3);
        assert_eq!(answered(1000), 10, "no more than a burst is saved up");
        assert_eq!(limits.ask(address(1), at(1000)), Verdict::OverLimit);
        assert_eq!(limits.ask(address(2), at(1000)), Verdict::Answer, "others do not suffer");
    }

    #[test]
    fn sources_keep_a_place_only_while_it_says_something() {
        let mut limits = Limits::new(1000, 10, 2);
        for source in 1..=2 {
            assert_eq!(limits.ask(address(source), at(0)), Verdict::Answer);
        }
        assert_eq!(limits.ask(address(3), at(0)), Verdict::Crowded);
        assert_eq!(limits.ask(address(1), at(0)), Verdict::Answer, "those inside go on");
        assert_eq!(limits.ask(address(3), at(1)), Verdict::Answer, "the bucket of 2 is full again");
        assert_eq!(limits.ask(address(2), at(1)), Verdict::Crowded);
        assert_eq!(limits.ask(address(2), at(2)), Verdict::Answer);
        assert_eq!(limits.count(), 2);
    }

    #[test]
    fn addresses_of_one_network_are_one_source() {
        let six = |last: u16| IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, last]);
        let mut limits = Limits::new(1, 1, 10);
        assert_eq!(limits.ask(six(1), at(0)), Verdict::Answer);
        assert_eq!(limits.ask(six(2), at(0)), Verdict::OverLimit);
        assert_eq!(limits.ask(IpAddr::from([0xfd00, 0, 0, 2, 0, 0, 0, 1]), at(0)), Verdict::Answer);
        assert_eq!(limits.ask(address(1), at(0)), Verdict::Answer);
        let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 1]);
        assert_eq!(limits.ask(mapped, at(0)), Verdict::OverLimit, "10.0.0.1 by another name");
        assert_eq!(limits.count(), 3);
    }
}
