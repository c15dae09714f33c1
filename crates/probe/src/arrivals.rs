//! How many probes of a flow came: what a responder counts, and tells in first ACKs to probers that ask.
//!
//! A flow is a queue pair of a prober, the epoch of its sequence numbers, and the port that its probes left from.

use crate::generations::Generations;
use crate::packet::Sequence;
use crate::report::Peer;
use crate::stamp::Stamp;

/// What a responder counted of one flow. All three numbers begin anew when they are full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arrivals {
    /// Names the count: another name is another count, which began at another time.
    pub name: u16,
    /// Probes that came and were not answered, as their source had sent too many.
    pub refused: u16,
    /// Probes that came and were answered, with the one that this ACK answers.
    pub answered: u32,
}

impl Arrivals {
    /// The eight bytes of a packet, as a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.name as u64) << 48 | (self.refused as u64) << 32 | self.answered as u64
    }

    /// What the number says.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "each is a part of the number")]
    pub const fn from_bits(bits: u64) -> Self {
        Self { name: (bits >> 48) as u16, refused: (bits >> 32) as u16, answered: bits as u32 }
    }
}

/// All flows that a responder counts.
#[derive(Clone, Debug)]
pub(crate) struct Flows(Generations<FlowName, Flow>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowName {
    pub(crate) prober: Peer,
    pub(crate) epoch: u32,
    pub(crate) port: u16,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    arrivals: Arrivals,
    /// The newest probe, and which of the 64 before it came: a copy of a packet is no other probe.
    newest: Option<u32>,
    before: u64,
}

impl Flows {
    pub(crate) fn new(places: usize) -> Self {
        Self(Generations::new(places))
    }

    /// A probe came and is answered: what to tell.
    pub(crate) fn answered(&mut self, flow: FlowName, sequence: Sequence, at: Stamp) -> Arrivals {
        let counter = sequence.counter();
        let known = self.0.entry(flow, || Flow {
            arrivals: Arrivals { name: name(at), ..Arrivals::default() },
            newest: None,
            before: 0,
        });
        if known.is_new(counter) {
            known.arrivals.answered = known.arrivals.answered.wrapping_add(1);
        }
        known.arrivals
    }

    /// A probe came and is not answered. Only flows that are known count this, so that a source that is over its
    /// limit takes no places.
    pub(crate) fn refused(&mut self, flow: &FlowName, sequence: Sequence) {
        if let Some(known) = self.0.get_mut(flow)
            && known.is_new(sequence.counter())
        {
            known.arrivals.refused = known.arrivals.refused.wrapping_add(1);
        }
    }
}

/// Flows that begin at other times have other names, but for one in 65,536.
#[expect(clippy::cast_possible_truncation, reason = "any bits that change with time")]
const fn name(at: Stamp) -> u16 {
    (at.nanos() >> 10) as u16
}

impl Flow {
    /// Whether the probe did not come before. Those far behind the newest are taken for new ones.
    fn is_new(&mut self, counter: u32) -> bool {
        let Some(newest) = self.newest else {
            self.newest = Some(counter);
            return true;
        };
        let ahead = counter.wrapping_sub(newest);
        if ahead == 0 {
            return false;
        }
        if ahead < 1 << 31 {
            let shifted = self.before.checked_shl(ahead).unwrap_or(0);
            let newest = 1_u64.checked_shl(ahead - 1).unwrap_or(0);
            (self.newest, self.before) = (Some(counter), shifted | newest);
            return true;
        }
        let Some(bit) = 1_u64.checked_shl(ahead.wrapping_neg() - 1) else { return true };
        let is_new = self.before & bit == 0;
        self.before |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const FLOW: FlowName = FlowName {
        prober: Peer { address: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), qpn: 7 },
        epoch: 3,
        port: 9,
    };

    proptest! {
        /// Steps of up to 20 either way, across the end of the numbers: each probe is counted once.
        #[test]
        fn copies_are_counted_once(first: u32, steps in prop::collection::vec(-20_i32..=20, 0..200)) {
            let mut flows = Flows::new(4);
            let (mut seen, mut newest) = (HashSet::new(), first);
            flows.answered(FLOW, Sequence::new(3, first), Stamp::from_nanos(1 << 20));
            seen.insert(first);
            for step in steps {
                let counter = newest.wrapping_add_signed(step);
                if step > 0 {
                    newest = counter;
                }
                seen.insert(counter);
                let told = flows.answered(FLOW, Sequence::new(3, counter), Stamp::from_nanos(9 << 20));
                // What lies before the first one counts as new, too.
                prop_assert_eq!(told.answered as usize, seen.len());
                prop_assert_eq!(told.name, name(Stamp::from_nanos(1 << 20)));
            }
        }

        #[test]
        fn arrivals_survive_their_bits(name: u16, refused: u16, answered: u32) {
            let arrivals = Arrivals { name, refused, answered };
            prop_assert_eq!(Arrivals::from_bits(arrivals.to_bits()), arrivals);
        }
    }

    #[test]
    fn what_is_refused_is_counted_only_where_the_flow_is_known() {
        let mut flows = Flows::new(4);
        flows.refused(&FLOW, Sequence::new(3, 0));
        let at = Stamp::from_nanos(5);
        assert_eq!(flows.answered(FLOW, Sequence::new(3, 1), at).refused, 0);
        flows.refused(&FLOW, Sequence::new(3, 2));
        flows.refused(&FLOW, Sequence::new(3, 2));
        assert_eq!(
            flows.answered(FLOW, Sequence::new(3, 3), at),
            Arrivals { name: 0, refused: 1, answered: 2 }
        );
    }
}
