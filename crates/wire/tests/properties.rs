//! Promises that hold for every packet.

use core::net::{Ipv4Addr, Ipv6Addr};

use ferroce_testkit::samples::{self, Numbers};
use ferroce_wire::net::{Ip, Ipv4, Ipv6, Udp};
use ferroce_wire::{
    Bth, Flow, Frame, Icrc, MAX_PACKET_LEN, Opcode, Packet, ParseError, PathMtu, PayloadLen, PayloadRule,
};
use proptest::prelude::*;

fn flows() -> impl Strategy<Value = Flow> {
    let ports = (any::<u16>(), any::<u16>());
    prop_oneof![
        (any::<u32>(), any::<u32>(), ports, any::<bool>()).prop_map(|(from, to, ports, df)| {
            Flow::v4((Ipv4Addr::from(from), ports.0), (Ipv4Addr::from(to), ports.1), df)
        }),
        (any::<u128>(), any::<u128>(), ports).prop_map(|(from, to, ports)| {
            Flow::v6((Ipv6Addr::from(from), ports.0), (Ipv6Addr::from(to), ports.1))
        }),
    ]
}

fn written(packet: Packet<PayloadLen>, payload: &[u8], flow: &Flow, id: u16) -> Vec<u8> {
    let mut bytes = vec![0xaa; MAX_PACKET_LEN];
    let len = packet.map_payload(|_| payload).emit(flow, id, &mut bytes).expect("room");
    bytes.truncate(len);
    bytes
}

const DISTINCT: Numbers = Numbers {
    wide: [0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 0x2122_2324_2526_2728],
    words: [0xa1a2_a3a4, 0xb1b2_b3b4, 0xc1c2_c3c4, 0xd1d2_d3d4, 0xe1e2_e3e4, 0xf1f2_f3f4],
    pkey: 0x8181,
    flags: 0,
    code: 0x1f,
    operand: [0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38],
};

/// All lengths that some path MTU allows.
fn lengths(opcode: Opcode) -> Vec<usize> {
    match opcode.info().payload {
        PayloadRule::Nothing | PayloadRule::EightBytes => vec![0],
        PayloadRule::FullMtu => PathMtu::ALL.iter().map(|mtu| mtu.bytes()).collect(),
        PayloadRule::OneToMtu => (1..=4096).collect(),
        PayloadRule::UpToMtu => (0..=4096).collect(),
    }
}

#[test]
fn every_opcode_at_every_length_comes_back() {
    let flow = Flow::v4((Ipv4Addr::LOCALHOST, 0xc000), (Ipv4Addr::LOCALHOST, 4791), true);
    let payload: Vec<u8> = (0..4096_u32).map(|i| (i % 251) as u8).collect();
    let mut packets = 0;
    for opcode in Opcode::all() {
        for len in lengths(opcode) {
            let packet = samples::packet(opcode, len, &DISTINCT);
            assert_eq!(packet.opcode(), opcode);
            let bytes = written(packet, &payload[..len], &flow, 0);
            assert_eq!(bytes.len() % 4, 0);
            assert_eq!(Packet::parse(&bytes), Ok(packet.map_payload(|_| &payload[..len])), "{opcode} {len}");
            packets += 1;
        }
    }
    assert_eq!(packets, 139_377);
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(
        (packet, payload) in samples::packets(),
        flow in flows(),
        id: u16,
    ) {
        let bytes = written(packet, &payload, &flow, id);
        prop_assert_eq!(bytes.len(), packet.len());
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet.map_payload(|_| &payload[..])));
        prop_assert_eq!(flow.verify(&bytes, id), Ok(()));
    }

    #[test]
    fn headers_written_alone_are_the_headers_of_the_whole(
        (packet, payload) in samples::packets(),
        flow in flows(),
    ) {
        let bytes = written(packet, &payload, &flow, 0);
        let mut headers = vec![0xaa; packet.header_len()];
        prop_assert_eq!(packet.emit_headers(&mut headers), Ok(headers.len()));
        prop_assert_eq!(&headers[..], &bytes[..headers.len()]);
    }

    #[test]
    fn a_buffer_that_is_too_small_stays_untouched((packet, payload) in samples::packets(), flow in flows()) {
        let packet = packet.map_payload(|_| &payload[..]);
        let mut buffer = vec![0xaa; packet.len() - 1];
        let error = packet.emit(&flow, 0, &mut buffer).unwrap_err();
        prop_assert_eq!((error.need, error.have), (packet.len(), packet.len() - 1));
        prop_assert!(buffer.iter().all(|byte| *byte == 0xaa));
    }

    /// Every bit of a frame from the IP header on: flipped, the frame is refused,
    /// or the bit is one that switches may change, which the ICRC leaves out.
    #[test]
    fn a_flipped_bit_is_seen_or_lies_in_a_masked_field(
        (packet, payload) in samples::packets(),
        v6: bool,
        id: u16,
        bits in prop::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let frame = frame_of(packet.map_payload(|_| &payload[..]), v6, id);
        let headers = (frame.ip.len() + Udp::LEN + packet.header_len()) * 8;
        let all = frame.len() * 8;
        // Every bit of the headers, and a sample of those of payload, pad and ICRC.
        let sampled = bits.iter().map(|bit| headers + bit.index(all - headers));
        let mut bytes = vec![0; frame.len()];
        frame.emit(&mut bytes).unwrap();
        for bit in (0..headers).chain(sampled) {
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            let accepted = Frame::parse_ip(&bytes).is_ok_and(|frame| frame.icrc.is_right());
            prop_assert_eq!(accepted, is_masked(bit, v6), "bit {}", bit);
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
        }
    }

    #[test]
    fn every_identification_is_found((packet, payload) in samples::packets(), id: u16) {
        let flow = Flow::v4((Ipv4Addr::new(10, 0, 0, 1), 50_000), (Ipv4Addr::new(10, 0, 0, 2), 4791), true);
        prop_assert_eq!(flow.solve_ip_id(&written(packet, &payload, &flow, id)), Some(id));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        ferroce_testkit::fuzz::packet(&bytes);
    }
}

/// Of all 65,536 identifications each is found, on the shortest and on the longest packet.
#[test]
fn all_identifications_are_found() {
    let flow = Flow::v4((Ipv4Addr::new(10, 0, 0, 1), 50_000), (Ipv4Addr::new(10, 0, 0, 2), 4791), true);
    for len in [0, 4096] {
        let opcode = Opcode::from_byte(0x04).unwrap();
        let packet = samples::packet(opcode, len, &DISTINCT);
        let mut bytes = written(packet, &vec![0x5a; len], &flow, 0);
        for id in 0..=u16::MAX {
            flow.seal(&mut bytes, id);
            assert_eq!(flow.solve_ip_id(&bytes), Some(id));
        }
    }
}

/// No flipped bit of a packet, of its ICRC or of what the solver assumes about its
/// headers is taken for an identification: tried for every bit of packets up to the longest.
#[test]
fn no_single_bit_corruption_is_taken_for_an_identification() {
    let flow = Flow::v4((Ipv4Addr::new(10, 0, 0, 1), 50_000), (Ipv4Addr::new(10, 0, 0, 2), 4791), true);
    let mut tried = 0;
    for len in [0, 1, 64, 1024, 4096] {
        let opcode = Opcode::from_byte(0xab).unwrap();
        let packet = samples::packet(opcode, len, &DISTINCT);
        for id in [0, 1, 0xbeef] {
            let mut bytes = written(packet, &vec![0xc3; len], &flow, id);
            for bit in 0..bytes.len() * 8 {
                if bit / 8 == Bth::VARIANT_BYTE {
                    continue;
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(flow.solve_ip_id(&bytes), None, "{len} bytes, bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
                tried += 1;
            }
        }
    }
    assert!(tried > 100_000, "{tried}");
}

fn frame_of(packet: Packet<&[u8]>, v6: bool, id: u16) -> Frame<'_> {
    let ip = if v6 {
        let (source, dest) = (Ipv6Addr::LOCALHOST, Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2));
        Ip::V6(Ipv6 { traffic_class: 0, flow_label: 0, hop_limit: 64, source, dest })
    } else {
        let (source, dest) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        Ip::V4(Ipv4 { tos: 0, id, dont_fragment: true, ttl: 64, source, dest })
    };
    let udp = Udp { source_port: 50_000, dest_port: 4791, checksum: 0 };
    let mut bytes = vec![0; packet.len()];
    packet.emit(&Flow::of(&ip, &udp), id, &mut bytes).expect("room");
    let seen = u32::from_le_bytes(*bytes.last_chunk().expect("an ICRC"));
    Frame { ethernet: None, ip, udp, packet, icrc: Icrc { seen, computed: seen } }
}

/// Bits that switches and routers may change. In IPv4 they are under the header
/// checksum, so a lone flip there is still seen.
fn is_masked(bit: usize, v6: bool) -> bool {
    let byte = bit / 8;
    let udp = if v6 { 40 } else { 20 };
    let masked_ip = v6 && ((4..32).contains(&bit) || byte == 7);
    masked_ip || (udp + 6..udp + 8).contains(&byte) || byte == udp + Udp::LEN + Bth::VARIANT_BYTE
}

#[test]
fn each_kind_of_bad_packet_has_its_reason() {
    let flow = Flow::v4((Ipv4Addr::LOCALHOST, 0xc000), (Ipv4Addr::LOCALHOST, 4791), true);
    let good = |byte: u8, len: usize| {
        let packet = samples::packet(Opcode::from_byte(byte).unwrap(), len, &DISTINCT);
        written(packet, &vec![7; len], &flow, 0)
    };
    let reason = |bytes: &[u8]| Packet::parse(bytes).unwrap_err();

    assert!(matches!(reason(&[]), ParseError::TooShort { need: 12, have: 0, .. }));
    assert!(matches!(reason(&good(0x0a, 0)[..28]), ParseError::TooShort { need: 32, have: 28, .. }));
    let mut bytes = good(0x04, 8);
    bytes[0] = 0x15;
    assert_eq!(reason(&bytes), ParseError::UnknownOpcode(0x15));
    bytes[0] = 0x40;
    assert_eq!(reason(&bytes), ParseError::UnknownOpcode(0x40), "reliable datagrams do not exist on RoCE");
    let mut bytes = good(0x04, 8);
    bytes[1] |= 1;
    assert_eq!(reason(&bytes), ParseError::UnknownVersion(1));
    let mut bytes = good(0x04, 8);
    bytes.push(0);
    assert_eq!(reason(&bytes), ParseError::NotWords(25));
    let mut bytes = good(0x04, 0);
    bytes[1] |= 0x30;
    assert_eq!(reason(&bytes), ParseError::BadPad { pad: 3, have: 0 });
    let mut bytes = good(0x04, 8);
    bytes[0] = 0x11;
    bytes[1] &= 0xcf;
    assert!(matches!(reason(&bytes), ParseError::BadLength { len: 4, allowed: "none", .. }));
    let mut bytes = good(0x1d, 0);
    bytes.extend([0; 4]);
    assert!(matches!(reason(&bytes), ParseError::BadLength { len: 12, allowed: "exactly 8", .. }));
    let mut bytes = good(0x04, 4096);
    bytes.extend([0; 4]);
    assert!(matches!(reason(&bytes), ParseError::BadLength { len: 4100, .. }));
    let mut bytes = good(0x04, 8);
    bytes[13] ^= 1;
    assert!(matches!(flow.verify(&bytes, 0), Err(ParseError::BadIcrc { .. })));
}
