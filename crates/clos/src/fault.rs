//! What is wrong with a network: the truth that programs under test have to find.

use crate::hash::{Tuple, is_among};
use crate::shape::{Link, Node};

/// Something that is wrong somewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What.
    pub trouble: Trouble,
}

/// Where something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// One direction of a link.
    Link(Link),
    /// A switch: all that passes it. Or a card: all that it sends and receives.
    Node(Node),
}

/// What is wrong. Rates and shares are from 0 to 1, times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    /// So many packets are lost.
    Loss {
        /// Of all packets.
        rate: f64,
    },
    /// In so many packets a bit flips; the receiving card drops them.
    Corruption {
        /// Of all packets.
        rate: f64,
    },
    /// All packets of some tuples are lost.
    BlackHole {
        /// Of all tuples.
        share: f64,
        /// Decides which tuples.
        salt: u64,
    },
    /// So many packets take longer.
    Delay {
        /// Of all packets.
        rate: f64,
        /// By so much; at least [`SLOW`](crate::flows::SLOW), so that it can be told from the usual jitter.
        extra: u64,
    },
    /// Everything is lost now and then.
    Flap {
        /// From one time to the next.
        period: u64,
        /// How long.
        down: u64,
        /// When.
        phase: u64,
    },
}

impl Trouble {
    /// The chance that a packet of this tuple is lost, apart from flaps, which have their times.
    pub(crate) fn loss(&self, tuple: Tuple) -> f64 {
        match *self {
            Self::Loss { rate } | Self::Corruption { rate } => rate,
            Self::BlackHole { share, salt } if is_among(salt, tuple, share) => 1.0,
            Self::BlackHole { .. } | Self::Delay { .. } | Self::Flap { .. } => 0.0,
        }
    }

    /// Whether everything is lost at this time.
    pub(crate) fn is_down(&self, time: u64) -> bool {
        match *self {
            Self::Flap { period, down, phase } => (time + phase) % period.max(1) < down,
            _ => false,
        }
    }
}

/// A host that stands still now and then. Packets that arrive meanwhile wait, or find no room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// Which host.
    pub host: u32,
    /// From one stall to the next, in nanoseconds.
    pub period: u64,
    /// How long one lasts, in nanoseconds; less than the period.
    pub lasts: u64,
    /// When, in nanoseconds.
    pub phase: u64,
    /// So many of the packets that arrive meanwhile find no room and are dropped, from 0 to 1.
    pub drops: f64,
}

impl Stall {
    /// If the host stands still at this time, from when until when.
    #[must_use]
    pub fn around(&self, time: u64) -> Option<(u64, u64)> {
        let into = (time + self.phase) % self.period.max(1);
        (into < self.lasts).then(|| (time.saturating_sub(into), time + self.lasts - into))
    }

    /// When its stalls end, up to this time.
    #[must_use]
    pub fn ends(&self, until: u64) -> Vec<u64> {
        let period = self.period.max(1);
        let mut ends = Vec::new();
        let mut time = 0;
        while time <= until {
            if let Some((_, end)) = self.around(time) {
                ends.push(end);
            }
            time += period - (time + self.phase) % period;
        }
        ends.retain(|end| *end <= until);
        ends
    }

    /// Whether the host stands still at some time from `from` to `to`, which are less than a period apart.
    #[must_use]
    pub fn touches(&self, from: u64, to: u64) -> bool {
        let next = self.period.max(1) - (from + self.phase) % self.period.max(1);
        self.around(from).is_some() || from + next <= to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_begin_and_end() {
        let stall = Stall { host: 0, period: 1000, lasts: 100, phase: 300, drops: 0.0 };
        assert_eq!((stall.around(699), stall.around(700)), (None, Some((700, 800))));
        assert_eq!((stall.around(799), stall.around(800)), (Some((700, 800)), None));
        assert_eq!(stall.ends(1799), [800]);
        assert_eq!(stall.ends(2800), [800, 1800, 2800]);
        assert_eq!(Stall { phase: 50, ..stall }.ends(1100), [50, 1050], "it begins within a stall");
        for (from, to, touches) in [(0, 699, false), (0, 700, true), (799, 799, true), (800, 1699, false)] {
            assert_eq!(stall.touches(from, to), touches, "{from} to {to}");
        }
    }

    #[test]
    fn a_flap_is_down_for_its_time() {
        let flap = Trouble::Flap { period: 100, down: 10, phase: 95 };
        let down: Vec<u64> = (0..120).filter(|time| flap.is_down(*time)).collect();
        let expected: Vec<u64> = (5..15).chain(105..115).collect();
        assert_eq!(down, expected);
        assert!(!Trouble::Flap { period: 0, down: 0, phase: 0 }.is_down(1));
    }

    #[test]
    fn a_black_hole_swallows_tuples_and_not_packets() {
        let hole = Trouble::BlackHole { share: 0.5, salt: 3 };
        let tuples = (0..1000).map(|port| Tuple { from: 1, to: 2, port });
        let swallowed = tuples.filter(|tuple| hole.loss(*tuple) > 0.0).count();
        assert!((430..570).contains(&swallowed), "{swallowed}");
    }
}
