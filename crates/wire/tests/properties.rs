//! Promises that hold for every packet.

use core::net::{Ipv4Addr, Ipv6Addr};

use ferroce_testkit::samples::{self, Numbers};
use ferroce_wire::net::{Ip, Ipv4, Ipv6, Udp};
use ferroce_wire::{
    Bth, BufferTooSmall, EmitError, Flow, Frame, Icrc, MAX_PACKET_LEN, Opcode, Packet, ParseError, PathMtu,
    PayloadLen, PayloadRule, Psn, Qpn,
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
            let packet = samples::packet(opcode, len, &Numbers::DISTINCT);
            assert_eq!(packet.opcode(), opcode);
            let bytes = written(packet, &payload[..len], &flow, 0);
            assert_eq!(bytes.len() % 4, 0);
            assert_eq!(Packet::parse(&bytes), Ok(packet.map_payload(|_| &payload[..len])), "{opcode} {len}");
            packets += 1;
        }
    }
    assert_eq!(packets, 139_381);
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

    /// Whatever the length of the payload: a packet is written and read, or refused by both.
    #[test]
    fn emit_refuses_what_parse_refuses(
        (packet, _) in samples::packets(),
        len in prop_oneof![0..=8_usize, 4090..=4104_usize, 0..=70_000_usize, Just(65_504), Just(65_532)],
        flow in flows(),
        v6: bool,
    ) {
        let payload = vec![0x5a; len];
        let packet = packet.map_payload(|_| &payload[..]);
        // Bodies without a payload drop what they are given.
        let len = packet.payload_len();
        let mut bytes = vec![0xaa; packet.len()];
        let frame = frame_of(packet, v6, 7);
        let mut frame_bytes = vec![0xaa; frame.len()];
        if len <= 4096 {
            prop_assert_eq!(packet.emit(&flow, 0, &mut bytes), Ok(bytes.len()));
            prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
            prop_assert_eq!(frame.emit(&mut frame_bytes), Ok(frame_bytes.len()));
            prop_assert_eq!(Frame::parse_ip(&frame_bytes).map(|frame| frame.packet), Ok(packet));
        } else {
            let refused = Err(EmitError::BadLength { opcode: packet.opcode(), len });
            prop_assert_eq!(packet.emit(&flow, 0, &mut bytes), refused);
            prop_assert_eq!(packet.emit_headers(&mut bytes), refused);
            prop_assert_eq!(frame.emit(&mut frame_bytes), refused);
            prop_assert!(bytes.iter().chain(&frame_bytes).all(|byte| *byte == 0xaa));
            // What was refused would not have been read.
            packet.map_payload(|_| PayloadLen(4096)).emit_headers(&mut bytes).unwrap();
            bytes[1] = bytes[1] & 0xcf | u8::try_from(len.wrapping_neg() & 3).unwrap() << 4;
            let parsed = Packet::parse(&bytes);
            prop_assert!(matches!(parsed, Err(ParseError::BadLength { .. })), "{:?}", parsed);
        }
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
        let error = BufferTooSmall { need: packet.len(), have: packet.len() - 1 };
        prop_assert_eq!(packet.emit(&flow, 0, &mut buffer), Err(error.into()));
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
        let packet = samples::packet(opcode, len, &Numbers::DISTINCT);
        let mut bytes = written(packet, &vec![0x5a; len], &flow, 0);
        for id in 0..=u16::MAX {
            flow.seal(&mut bytes, id).unwrap();
            assert_eq!(flow.solve_ip_id(&bytes), Some(id));
        }
    }
}

/// No flipped bit of a packet is taken for an identification: tried for every bit of
/// packets up to the longest.
#[test]
fn no_single_bit_corruption_is_taken_for_an_identification() {
    let flow = Flow::v4((Ipv4Addr::new(10, 0, 0, 1), 50_000), (Ipv4Addr::new(10, 0, 0, 2), 4791), true);
    let mut tried = 0;
    for len in [0, 1, 64, 1024, 4096] {
        let opcode = Opcode::from_byte(0xab).unwrap();
        let packet = samples::packet(opcode, len, &Numbers::DISTINCT);
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

/// Nor is a flipped bit of the ICRC, at any length that a packet may have, or one of what
/// the solver assumes about the headers below: addresses, ports and the flag against fragments.
#[test]
fn no_flipped_bit_of_the_icrc_or_of_the_flow_is_taken_for_an_identification() {
    let (source, dest) = ((0x0a00_0001, 50_000), (0x0a00_0002, 4791));
    let flow_of = |(from, from_port): (u32, u16), (to, to_port): (u32, u16), dont_fragment| {
        Flow::v4((from.into(), from_port), (to.into(), to_port), dont_fragment)
    };
    let flow = flow_of(source, dest, true);
    let mut others = vec![flow_of(source, dest, false)];
    for bit in 0..32 {
        others.push(flow_of((source.0 ^ 1 << bit, source.1), dest, true));
        others.push(flow_of(source, (dest.0 ^ 1 << bit, dest.1), true));
    }
    for bit in 0..16 {
        others.push(flow_of((source.0, source.1 ^ 1 << bit), dest, true));
        others.push(flow_of(source, (dest.0, dest.1 ^ 1 << bit), true));
    }
    let mut packet = [0xc3; MAX_PACKET_LEN];
    let lengths = (16..=MAX_PACKET_LEN).step_by(4);
    assert_eq!(lengths.clone().last(), Some(MAX_PACKET_LEN));
    for len in lengths {
        let packet = &mut packet[..len];
        flow.seal(packet, 0xbeef).unwrap();
        assert_eq!(flow.solve_ip_id(packet), Some(0xbeef));
        for bit in 0..32 {
            packet[len - 4 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(flow.solve_ip_id(packet), None, "{len} bytes, ICRC bit {bit}");
            packet[len - 4 + bit / 8] ^= 1 << (bit % 8);
        }
        for other in &others {
            assert_eq!(other.solve_ip_id(packet), None, "{len} bytes, {other:?}");
        }
    }
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
    Frame { ethernet: None, ip, udp, packet, icrc: Icrc { seen: 0, computed: 0 } }
}

/// Bits that switches and routers may change. In IPv4 they are under the header
/// checksum, so a lone flip there is still seen.
fn is_masked(bit: usize, v6: bool) -> bool {
    let byte = bit / 8;
    let udp = if v6 { 40 } else { 20 };
    let masked_ip = v6 && ((4..32).contains(&bit) || byte == 7);
    masked_ip || (udp + 6..udp + 8).contains(&byte) || byte == udp + Udp::LEN + Bth::VARIANT_BYTE
}

/// Lengths that depend on a connection are left to it: it has to answer with a NAK.
#[test]
fn a_length_that_only_a_connection_can_judge_is_read() {
    let flow = Flow::v4((Ipv4Addr::LOCALHOST, 0xc000), (Ipv4Addr::LOCALHOST, 4791), true);
    for (byte, len) in [(0x00, 5), (0x01, 0), (0x02, 0), (0x08, 0), (0x0d, 5), (0x0f, 0)] {
        let opcode = Opcode::from_byte(byte).unwrap();
        let packet = samples::packet(opcode, len, &Numbers::DISTINCT);
        let payload = vec![7; len];
        let bytes = written(packet, &payload, &flow, 0);
        assert_eq!(Packet::parse(&bytes), Ok(packet.map_payload(|_| &payload[..])), "{opcode}");
        assert!(opcode.info().payload.permits(len));
        for mtu in PathMtu::ALL {
            assert!(!opcode.info().payload.permits_at(len, mtu), "{opcode} at {mtu}");
        }
    }
}

#[test]
fn no_length_is_too_long_to_be_refused() {
    for opcode in Opcode::all() {
        for len in [usize::MAX, usize::MAX - 3, usize::MAX / 2, 1 << 16, 4097] {
            let packet = samples::packet(opcode, len, &Numbers::DISTINCT);
            let written = packet.emit_headers(&mut [0; MAX_PACKET_LEN]);
            match packet.payload_len() {
                0 => assert_eq!(written, Ok(packet.header_len())),
                len => {
                    assert_eq!(written, Err(EmitError::BadLength { opcode, len }));
                    assert!(packet.len() >= len.min(usize::MAX - 3), "{opcode}");
                }
            }
        }
    }
    let error = EmitError::BadLength { opcode: Opcode::from_byte(4).unwrap(), len: 5000 };
    let text = "RC SEND Only with 5000 payload bytes, allowed: 0 to one path MTU (at most 4096)";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_congestion_notification_points_backwards() {
    let packet = Packet::<PayloadLen>::congestion(Qpn::new(0x11));
    assert_eq!((packet.becn, packet.fecn, packet.psn), (true, false, Psn::new(0)));
    assert_eq!(packet.to_string(), "Congestion Notification qp=0x000011 psn=0x000000 becn");
}

#[test]
fn each_kind_of_bad_packet_has_its_reason() {
    let flow = Flow::v4((Ipv4Addr::LOCALHOST, 0xc000), (Ipv4Addr::LOCALHOST, 4791), true);
    let good = |byte: u8, len: usize| {
        let packet = samples::packet(Opcode::from_byte(byte).unwrap(), len, &Numbers::DISTINCT);
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
