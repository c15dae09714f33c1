//! From the words of verbs to those of a card's library, and back.

use ferroce_device::{AddressVector, SourcePort};
use ferroce_system::Address;

use super::PORT;
use crate::capability::{Capability, Unsupported};

/// The rates that the library has numbers for, in units of 100 megabits per second, slowest first.
const RATES: &[(u32, u8)] = &[
    (25, 2),
    (50, 5),
    (100, 3),
    (140, 11),
    (200, 6),
    (250, 15),
    (280, 19),
    (300, 4),
    (400, 7),
    (500, 20),
    (560, 12),
    (600, 8),
    (800, 9),
    (1000, 16),
    (1120, 13),
    (1200, 10),
    (1680, 14),
    (2000, 17),
    (3000, 18),
    (4000, 21),
    (6000, 22),
];

/// Kilobits per second of such a unit.
const UNIT: u32 = 100_000;

/// An address as a card takes it. A source port that is only preferred is left out.
pub(crate) fn address(vector: &AddressVector) -> Result<Address, Unsupported> {
    if let SourcePort::Require(_) = vector.source_port {
        return Err(Capability::SourcePorts.into());
    }
    Ok(Address {
        gid: vector.gid,
        gid_index: u8::try_from(vector.sgid_index).unwrap_or(u8::MAX),
        port: PORT,
        traffic_class: vector.traffic_class,
        hop_limit: if vector.hop_limit == 0 { 64 } else { vector.hop_limit },
        flow_label: vector.flow_label,
        service_level: 0,
        lid: 0,
        static_rate: rate(vector.static_rate),
    })
}

/// The fastest rate that is no faster; the slowest if all are.
fn rate(kilobits: u32) -> u8 {
    if kilobits == 0 {
        return 0;
    }
    let slower = RATES.iter().rev().find(|(hundreds, _)| hundreds.saturating_mul(UNIT) <= kilobits);
    slower.map_or(RATES[0].1, |(_, code)| *code)
}

/// What a card says of an address.
pub(crate) fn vector(address: &Address) -> AddressVector {
    let rate = RATES.iter().find(|(_, code)| *code == address.static_rate);
    AddressVector {
        gid: address.gid,
        sgid_index: address.gid_index.into(),
        traffic_class: address.traffic_class,
        hop_limit: address.hop_limit,
        flow_label: address.flow_label,
        source_port: SourcePort::Any,
        static_rate: rate.map_or(0, |(hundreds, _)| hundreds.saturating_mul(UNIT)),
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::Gid;

    use super::*;

    #[test]
    fn an_address_goes_to_the_card_and_comes_back() {
        let given = AddressVector {
            traffic_class: 3,
            flow_label: 9,
            static_rate: 25_000_000,
            ..AddressVector::new(Gid([7; 16]), 2)
        };
        let there = address(&given).unwrap();
        assert_eq!((there.hop_limit, there.static_rate), (64, 15));
        assert_eq!(vector(&there), AddressVector { hop_limit: 64, ..given });
    }

    #[test]
    fn a_rate_is_never_exceeded_but_by_the_slowest() {
        for (kilobits, code) in [(0, 0), (1, 2), (2_500_000, 2), (4_999_999, 2), (99_000_000, 9)] {
            assert_eq!(rate(kilobits), code, "{kilobits}");
        }
    }

    #[test]
    fn a_required_source_port_is_refused_and_a_preferred_one_left_out() {
        let with = |source_port| AddressVector { source_port, ..AddressVector::new(Gid([7; 16]), 0) };
        assert_eq!(address(&with(SourcePort::Require(50_000))), Err(Capability::SourcePorts.into()));
        assert!(address(&with(SourcePort::Prefer(50_000))).is_ok());
    }
}
