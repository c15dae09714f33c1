//! Which way probes were lost: what the prober sent and got, beside what the responder says that came.
//!
//! A probe without any answer was lost on the way there, or its answers were on the way back. First ACKs tell how
//! many probes of their flow came so far, so as soon as one answer comes, it is known of all probes before it which
//! of the two it was, though not of each by itself.

use crate::arrivals::Arrivals;
use crate::generations::Generations;
use crate::report::Peer;

/// Which way the probes of a flow were lost, as far as the responder has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directions {
    /// Probes of which it is known. Those after the last answer are not among them.
    pub told: u64,
    /// Of these, probes that did not come to the responder.
    pub lost_there: u64,
    /// Of these, probes that came, and whose first ACK did not come back.
    pub lost_back: u64,
    /// Of these, probes that came and that the responder refused to answer: this source sent too many.
    pub refused: u64,
}

impl Directions {
    /// Adds what is known of another flow.
    pub const fn add(&mut self, other: &Self) {
        self.told += other.told;
        self.lost_there += other.lost_there;
        self.lost_back += other.lost_back;
        self.refused += other.refused;
    }
}

/// The flows of a prober: targets, and ports that probes left from.
#[derive(Clone, Debug)]
pub(crate) struct Ways(Generations<(Peer, u16), Way>);

impl Ways {
    pub(crate) fn new(places: usize) -> Self {
        Self(Generations::new(places))
    }

    /// A probe leaves: its number among those of its flow, from 1.
    pub(crate) fn leaves(&mut self, target: Peer, port: u16) -> u64 {
        let is_whole = !self.0.has_forgotten();
        let way = self.0.entry((target, port), || Way { is_whole, ..Way::default() });
        way.sent += 1;
        way.sent
    }

    /// A probe did not leave after all.
    pub(crate) fn stays(&mut self, target: Peer, port: u16, number: u64) {
        if let Some(way) = self.0.get_mut(&(target, port))
            && way.count.is_none_or(|count| number > count.base)
        {
            way.unsent += 1;
        }
    }

    /// The first ACK of a probe came, and tells this.
    pub(crate) fn told(&mut self, target: Peer, port: u16, number: u64, arrivals: Arrivals) {
        // A count holds the probe that it tells of; whatever else is written there is no count.
        if let Some(way) = self.0.get_mut(&(target, port)).filter(|_| arrivals.answered > 0) {
            way.told(number, arrivals);
        }
    }

    pub(crate) fn directions(&self, target: Peer, port: u16) -> Option<Directions> {
        self.0.get(&(target, port)).map(Way::directions)
    }
}

/// One flow.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    sent: u64,
    /// Probes that did not leave, of those that the count is about.
    unsent: u64,
    /// Whether the first number of this flow is that of its first probe ever.
    is_whole: bool,
    count: Option<Count>,
    /// Of counts that are over.
    past: Directions,
}

/// What the responder tells under one name.
#[derive(Clone, Copy, Debug)]
struct Count {
    last: Arrivals,
    /// Probes up to this number are not among those that are told of.
    base: u64,
    /// The highest number that an answer came for.
    number: u64,
    answered: u64,
    refused: u64,
    /// First ACKs that came.
    acks: u64,
}

impl Way {
    fn told(&mut self, number: u64, arrivals: Arrivals) {
        match &mut self.count {
            Some(count) if count.last.name == arrivals.name => count.tell(number, arrivals),
            // An answer that was overtaken by those of a newer count.
            Some(count) if number <= count.number => {}
            _ => self.begin(number, arrivals),
        }
    }

    /// The responder counts anew: nothing is known of probes between the last answer and this one.
    fn begin(&mut self, number: u64, arrivals: Arrivals) {
        let is_first = self.count.is_none();
        self.past = self.directions();
        // The epoch is ours, so a first count is of all probes of the flow, if these are all that ever left.
        let counts_all = is_first && self.is_whole;
        let unsent = std::mem::take(&mut self.unsent);
        let count = Count { last: arrivals, base: number - 1, number, answered: 1, refused: 0, acks: 1 };
        self.count = Some(if counts_all {
            self.unsent = unsent;
            let (answered, refused) = (u64::from(arrivals.answered), u64::from(arrivals.refused));
            Count { base: 0, answered, refused, ..count }
        } else {
            count
        });
    }

    fn directions(&self) -> Directions {
        let mut all = self.past;
        if let Some(count) = &self.count {
            all.add(&count.directions(self.unsent));
        }
        all
    }
}

impl Count {
    /// Answers and probes may overtake each other, so only what is more than before counts.
    fn tell(&mut self, number: u64, arrivals: Arrivals) {
        if number <= self.base {
            return;
        }
        self.acks += 1;
        self.number = self.number.max(number);
        let more = arrivals.answered.wrapping_sub(self.last.answered);
        if more < 1 << 31 {
            self.answered += u64::from(more);
            self.last.answered = arrivals.answered;
        }
        let more = arrivals.refused.wrapping_sub(self.last.refused);
        if more < 1 << 15 {
            self.refused += u64::from(more);
            self.last.refused = arrivals.refused;
        }
    }

    /// Whatever a responder says, no more is lost than was sent.
    fn directions(&self, unsent: u64) -> Directions {
        let told = (self.number - self.base).saturating_sub(unsent);
        let answered = self.answered.min(told);
        let refused = self.refused.min(told - answered);
        Directions {
            told,
            lost_there: told - answered - refused,
            lost_back: answered.saturating_sub(self.acks),
            refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Peer = Peer { address: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), qpn: 7 };

    const fn told(name: u16, answered: u32) -> Arrivals {
        Arrivals { name, refused: 0, answered }
    }

    fn ways(sent: u64) -> Ways {
        let mut ways = Ways::new(16);
        (1..=sent).for_each(|number| assert_eq!(ways.leaves(TARGET, 5), number));
        ways
    }

    #[test]
    fn loss_is_split_by_what_came() {
        let mut ways = ways(10);
        // Probes 1, 4 and 5 did not come, the first ACKs of 3 and 6 neither.
        for (number, came) in [(2, 1), (7, 4), (8, 5)] {
            ways.told(TARGET, 5, number, told(1, came));
        }
        let expected = Directions { told: 8, lost_there: 3, lost_back: 2, refused: 0 };
        assert_eq!(ways.directions(TARGET, 5), Some(expected));
        assert_eq!(ways.directions(TARGET, 6), None);
    }

    #[test]
    fn packets_that_overtake_each_other_are_not_lost() {
        let mut ways = ways(4);
        for (number, came) in [(3, 1), (1, 2), (4, 4), (2, 3)] {
            ways.told(TARGET, 5, number, told(1, came));
        }
        assert_eq!(ways.directions(TARGET, 5), Some(Directions { told: 4, ..Directions::default() }));
    }

    #[test]
    fn a_responder_that_began_again_is_believed_from_there_on() {
        let mut ways = ways(20);
        ways.told(TARGET, 5, 1, told(1, 1));
        ways.told(TARGET, 5, 3, told(1, 2));
        // Restarted: nothing is known of 4 to 9. Then 11 is lost on the way there.
        ways.told(TARGET, 5, 10, told(2, 1));
        ways.told(TARGET, 5, 2, told(1, 3));
        ways.told(TARGET, 5, 12, told(2, 2));
        let expected = Directions { told: 3 + 3, lost_there: 1 + 1, lost_back: 0, refused: 0 };
        assert_eq!(ways.directions(TARGET, 5), Some(expected));
    }

    #[test]
    fn a_prober_that_forgot_a_flow_does_not_take_its_count_for_loss() {
        let mut ways = Ways::new(2);
        ways.leaves(TARGET, 5);
        (100..200).for_each(|port| assert_eq!(ways.leaves(TARGET, port), 1));
        (1..=9).for_each(|number| assert_eq!(ways.leaves(TARGET, 5), number));
        ways.told(TARGET, 5, 7, told(1, 3));
        ways.told(TARGET, 5, 9, told(1, 5));
        let expected = Directions { told: 3, lost_back: 1, ..Directions::default() };
        assert_eq!(ways.directions(TARGET, 5), Some(expected), "8 came, and 1 to 6 are not known");
    }

    #[test]
    fn probes_that_did_not_leave_and_those_refused_are_not_lost() {
        let mut ways = ways(9);
        ways.stays(TARGET, 5, 2);
        ways.told(TARGET, 5, 3, told(1, 2));
        ways.told(TARGET, 5, 8, Arrivals { name: 1, refused: 3, answered: 4 });
        let expected = Directions { told: 7, lost_there: 0, lost_back: 2, refused: 3 };
        assert_eq!(ways.directions(TARGET, 5), Some(expected));
    }

    #[test]
    fn lies_of_a_responder_stay_within_what_was_sent() {
        for lie in [
            told(1, 0),
            told(1, u32::MAX),
            told(1, 1 << 31),
            Arrivals { name: 1, refused: u16::MAX, answered: 7 },
        ] {
            for before in [None, Some(told(1, 1)), Some(told(1, u32::MAX))] {
                let mut ways = ways(9);
                before.into_iter().for_each(|before| ways.told(TARGET, 5, 1, before));
                ways.told(TARGET, 5, 5, lie);
                let Directions { told, lost_there, lost_back, refused } = ways.directions(TARGET, 5).unwrap();
                assert!(told <= 9 && lost_there + lost_back + refused <= told, "{lie:?} after {before:?}");
            }
        }
    }
}
