//! Whether a packet arrived as it was sent.
//!
//! The ICRC covers the IPv4 identification, which no socket shows. Our own packets have the place
//! in their run; many senders have zero; the rest count up, and then the ICRC itself is solved for it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use ferroce_transport::Time;
use ferroce_wire::Flow;

use crate::PORT;

/// How far from the last one an identification may lie that the ICRC was solved for, when it comes at once.
const REACH: u16 = 4096;

/// How much farther for each millisecond since. Linux adds a random number of up to the ticks that have
/// passed, and has at most a thousand of them in a second.
const REACH_PER_MILLISECOND: u128 = 1;

/// Sources whose identifications are followed.
const SOURCES: usize = 1024;

/// Flows that are kept hashed.
const FLOWS: usize = 64;

/// Checks packets and remembers what it needs for the next one.
#[derive(Debug)]
pub struct Verifier {
    flows: [Option<Known>; FLOWS],
    identifications: HashMap<IpAddr, (u16, Time)>,
}

/// A flow whose packets were seen.
#[derive(Clone, Copy, Debug)]
struct Known {
    ends: Ends,
    flow: Flow,
    /// The last packet had its place in its run as its identification.
    by_place: bool,
}

/// Where a packet came from and went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The sender: its address and port.
    pub source: (IpAddr, u16),
    /// The address of ours that it was sent to.
    pub local: IpAddr,
}

impl Ends {
    /// Where its flow is kept.
    fn slot(&self) -> usize {
        let low = |address: IpAddr| match address {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(ip) => ip.octets()[15],
        };
        let (address, port) = self.source;
        usize::from(port ^ u16::from(low(address)) ^ u16::from(low(self.local)) << 3) % FLOWS
    }
}

impl Default for Verifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Verifier {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { flows: [None; FLOWS], identifications: HashMap::new() }
    }

    /// The identification with which the ICRC of `packet` is right, or `None` if it is wrong.
    /// `place` is the packet's place in what arrived together.
    pub fn check(&mut self, ends: &Ends, packet: &[u8], place: usize, now: Time) -> Option<u16> {
        let known = self.known(ends)?;
        let flow = known.flow;
        let expected = u16::try_from(place).unwrap_or(0);
        known.by_place = flow.verify(packet, expected).is_ok();
        if known.by_place {
            return Some(expected);
        }
        let found = flow.solve_ip_id(packet)?;
        self.follows(ends.source.0, found, now).then_some(found)
    }

    /// The flow of these packets, if the last one of it had its place in its run as its identification, as
    /// the next will have.
    #[must_use]
    pub fn flow_by_place(&self, ends: &Ends) -> Option<Flow> {
        let known = self.flows[ends.slot()].as_ref()?;
        (known.by_place && known.ends == *ends).then_some(known.flow)
    }

    fn known(&mut self, ends: &Ends) -> Option<&mut Known> {
        let place = &mut self.flows[ends.slot()];
        if place.is_none_or(|known| known.ends != *ends) {
            let (address, port) = ends.source;
            let flow = Flow::new(SocketAddr::new(address, port), SocketAddr::new(ends.local, PORT))?;
            *place = Some(Known { ends: *ends, flow, by_place: false });
        }
        place.as_mut()
    }

    /// Whether an identification that was solved for is credible: small, as in a run of
    /// packets that was cut apart, near the last one of its source, or the first of its source. A
    /// jump is refused once, and taken as where that source now stands: damage does not come twice.
    fn follows(&mut self, source: IpAddr, found: u16, now: Time) -> bool {
        if found < 128 {
            return true;
        }
        if !self.identifications.contains_key(&source) && self.identifications.len() >= SOURCES {
            self.identifications.clear();
        }
        let last = self.identifications.insert(source, (found, now));
        last.is_none_or(|(last, then)| {
            let since = now.since(then).as_millis().saturating_mul(REACH_PER_MILLISECOND);
            let ahead = REACH.saturating_add(u16::try_from(since).unwrap_or(u16::MAX));
            let distance = found.wrapping_sub(last);
            distance <= ahead || distance.wrapping_neg() <= REACH
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Time = Time::from_nanos(5_000_000);

    fn sealed(ends: &Ends, id: u16) -> [u8; 32] {
        let mut packet = [0x5a; 32];
        let (address, port) = ends.source;
        let flow = Flow::new(SocketAddr::new(address, port), SocketAddr::new(ends.local, PORT)).unwrap();
        flow.seal(&mut packet, id).unwrap();
        packet
    }

    fn ends() -> Ends {
        Ends { source: (IpAddr::from([10, 0, 0, 1]), 50_000), local: IpAddr::from([10, 0, 0, 2]) }
    }

    #[test]
    fn a_place_in_a_run_and_zero_are_known_at_once() {
        let mut verifier = Verifier::new();
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 5), 5, NOW), Some(5));
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 5), 0, NOW), Some(5), "a run cut apart");
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 0), 3, NOW), Some(0));
    }

    #[test]
    fn only_a_flow_whose_last_packet_went_by_its_place_is_taken_for_one_that_does() {
        let mut verifier = Verifier::new();
        assert_eq!(verifier.flow_by_place(&ends()), None, "nothing is known of it");
        let mut by_place_after = |id, place| {
            verifier.check(&ends(), &sealed(&ends(), id), place, NOW);
            verifier.flow_by_place(&ends()).is_some()
        };
        assert!(by_place_after(5, 5) && by_place_after(0, 0));
        assert!(!by_place_after(40_000, 0) && !by_place_after(3, 4));
        assert!(by_place_after(7, 7));
        let other = Ends { source: (ends().source.0, 50_000 ^ 64), ..ends() };
        assert_eq!(other.slot(), ends().slot());
        assert_eq!(verifier.flow_by_place(&other), None, "another one in the same place");
    }

    #[test]
    fn a_source_that_counts_is_followed() {
        let mut verifier = Verifier::new();
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 40_000), 0, NOW), Some(40_000));
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 40_001), 0, NOW), Some(40_001));
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 39_999), 0, NOW), Some(39_999), "overtaken");
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 50_001), 0, NOW), None, "a jump");
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 50_002), 0, NOW), Some(50_002));
    }

    /// Two right packets of a kernel that had been silent were once called wrong.
    #[test]
    fn a_source_that_was_silent_may_have_counted_on() {
        let mut verifier = Verifier::new();
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 1000), 0, NOW), Some(1000));
        let soon = NOW + Duration::from_millis(900);
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 6001), 0, soon), None, "not so far so soon");
        let later = soon + Duration::from_secs(20);
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 30_000), 0, later), Some(30_000));
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 24_000), 0, later), None, "not backwards");
        let much_later = later + Duration::from_secs(300);
        assert_eq!(verifier.check(&ends(), &sealed(&ends(), 23_000), 0, much_later), Some(23_000));
    }

    #[test]
    fn flipped_bits_are_found() {
        let mut verifier = Verifier::new();
        for bit in 0..32 * 8 {
            let mut packet = sealed(&ends(), 0);
            packet[bit / 8] ^= 1 << (bit % 8);
            // The byte with the congestion marks may change on the way.
            let expected = (bit / 8 == 4).then_some(0);
            assert_eq!(verifier.check(&ends(), &packet, 0, NOW), expected, "bit {bit}");
        }
    }
}
