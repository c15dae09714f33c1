//! The bytes of packets: golden ones of the Go package, any values, and the corpus of the fuzz target.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use ferroce_probe::{Arrivals, Kind, Packet, Ports, ProbePacketError, Sequence, Stamp};
use ferroce_testkit::fuzz;
use proptest::prelude::*;

/// What `SerializeProbePacket` of the Go package writes for these values, byte by byte.
const PROBE: [u8; 40] = [
    1, 0, 0, 0, // version, type, ack, flags
    0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0x2a, // sequence
    0x17, 0x9c, 0x1d, 0x2e, 0x3f, 0x40, 0x51, 0x62, // T1
    0, 0, 0, 0, 0, 0, 0, 0, // T3
    0, 0, 0, 0, 0, 0, 0, 0, // T4
    0, 0, 0, 0, // reserved
];

/// The same for the second ACK: the values of the layout test of the package, 1, 1000, 2000 and 3000.
const SECOND_ACK: [u8; 40] = [
    1, 1, 2, 0, //
    0, 0, 0, 0, 0, 0, 0, 1, //
    0, 0, 0, 0, 0, 0, 0x03, 0xe8, //
    0, 0, 0, 0, 0, 0, 0x07, 0xd0, //
    0, 0, 0, 0, 0, 0, 0x0b, 0xb8, //
    0, 0, 0, 0,
];

fn second_ack() -> Packet {
    Packet {
        kind: Kind::SecondAck,
        sequence: Sequence(1),
        t1: Stamp::from_nanos(1000),
        t3: Stamp::from_nanos(2000),
        t4: Stamp::from_nanos(3000),
        ports: None,
        arrivals: None,
    }
}

#[test]
fn the_bytes_are_those_of_the_go_package() {
    let probe = Packet {
        kind: Kind::Probe,
        sequence: Sequence::new(0xdead_beef, 42),
        t1: Stamp::from_nanos(0x179c_1d2e_3f40_5162),
        t3: Stamp::default(),
        t4: Stamp::default(),
        ports: None,
        arrivals: None,
    };
    let first = Packet { kind: Kind::FirstAck, t4: Stamp::default(), ..second_ack() };
    let mut first_bytes = SECOND_ACK;
    first_bytes[2] = 1;
    first_bytes[34..36].fill(0);
    for (packet, bytes) in [(probe, PROBE), (first, first_bytes), (second_ack(), SECOND_ACK)] {
        assert_eq!(packet.emit(), bytes, "{packet:?}");
        assert_eq!(Packet::parse(&bytes), Ok(packet));
    }
    assert_eq!((probe.sequence.epoch(), probe.sequence.counter()), (0xdead_beef, 42));
}

#[test]
fn ports_stand_in_the_reserved_bytes_behind_their_flag() {
    let packet = Packet { ports: Some(Ports { sent: 0xc123, reply: 0xe456 }), ..second_ack() };
    let mut bytes = SECOND_ACK;
    bytes[3] = 1;
    bytes[36..].copy_from_slice(&[0xc1, 0x23, 0xe4, 0x56]);
    assert_eq!(packet.emit(), bytes);
    assert_eq!(Packet::parse(&bytes), Ok(packet));
    bytes[3] = 0xfe;
    assert_eq!(
        Packet::parse(&bytes),
        Ok(second_ack()),
        "other flags and what they stand for are not looked at"
    );
}

#[test]
fn how_many_probes_came_stands_in_the_bytes_of_t4_behind_its_flag() {
    let arrivals = Arrivals { name: 0xabcd, refused: 0x0102, answered: 0x0304_0506 };
    let told = Packet {
        kind: Kind::FirstAck,
        t4: Stamp::default(),
        arrivals: Some(arrivals),
        ports: Some(Ports { sent: 0xc123, reply: 0xe456 }),
        ..second_ack()
    };
    let mut bytes = SECOND_ACK;
    bytes[2..4].copy_from_slice(&[1, 3]);
    bytes[28..].copy_from_slice(&[0xab, 0xcd, 1, 2, 3, 4, 5, 6, 0xc1, 0x23, 0xe4, 0x56]);
    assert_eq!(told.emit(), bytes);
    assert_eq!(Packet::parse(&bytes), Ok(told));
    let mut asks = PROBE;
    asks[3] = 2;
    assert_eq!(Packet::parse(&asks).unwrap().arrivals, Some(Arrivals::default()), "a probe asks with zeros");
    assert_eq!(Packet::parse(&asks).unwrap().emit(), asks);
    let second = Packet { arrivals: Some(arrivals), ..second_ack() };
    assert_eq!(second.emit(), SECOND_ACK, "the second ACK tells a time");
}

#[test]
fn what_is_no_packet_is_refused_with_the_reason() {
    let with = |at: usize, value: u8| {
        let mut bytes = SECOND_ACK;
        bytes[at] = value;
        Packet::parse(&bytes).unwrap_err()
    };
    assert_eq!(Packet::parse(&[]), Err(ProbePacketError::Length { have: 0 }));
    assert_eq!(Packet::parse(&SECOND_ACK[..39]), Err(ProbePacketError::Length { have: 39 }));
    let long = Packet::parse(&[SECOND_ACK.as_slice(), &[0]].concat()).unwrap_err();
    assert_eq!(long.to_string(), "41 bytes, a packet of a prober has 40");
    assert_eq!(with(0, 2), ProbePacketError::Version(2));
    assert_eq!(with(1, 2), ProbePacketError::Kind { kind: 2, ack: 2 });
    assert_eq!(with(1, 0), ProbePacketError::Kind { kind: 0, ack: 2 });
    assert_eq!(with(2, 0), ProbePacketError::Kind { kind: 1, ack: 0 });
    assert!(with(2, 3).to_string().starts_with("type 1 with ack 3, known are"));
}

#[test]
fn the_probe_corpus_finds_nothing() {
    assert!(fuzz::replay("probe", fuzz::probe) >= 10);
}

proptest! {
    #[test]
    fn every_packet_survives_its_bytes(
        which in 0..3_usize, numbers: [u64; 4], ports: Option<(u16, u16)>, has_arrivals: bool,
    ) {
        let [sequence, t1, t3, t4] = numbers;
        let kind = [Kind::Probe, Kind::FirstAck, Kind::SecondAck][which];
        let arrivals = (has_arrivals && kind != Kind::SecondAck).then(|| Arrivals::from_bits(t4));
        let packet = Packet {
            kind,
            sequence: Sequence(sequence),
            t1: Stamp::from_nanos(t1),
            t3: Stamp::from_nanos(t3),
            t4: Stamp::from_nanos(if arrivals.is_some() { 0 } else { t4 }),
            arrivals,
            ports: ports.map(|(sent, reply)| Ports { sent, reply }),
        };
        prop_assert_eq!(Packet::parse(&packet.emit()), Ok(packet));
        let halves = Sequence::new(packet.sequence.epoch(), packet.sequence.counter());
        prop_assert_eq!(halves, packet.sequence);
    }

    #[test]
    fn any_bytes_hold_the_promises_of_the_fuzz_target(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        fuzz::probe(&bytes);
    }
}
