//! Frames of captures: what a receiver would drop or ignore is shown with a note.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::net::Ipv4Addr;

use ferroce_testkit::captures;
use ferroce_testkit::samples::{self, Numbers};
use ferroce_wire::mad::CmMad;
use ferroce_wire::net::{Ethernet, Ip, IpChecksum, Ipv4, Udp};
use ferroce_wire::{Captured, Flow, Frame, Icrc, Long, Note, Opcode, Packet, ParseError, Qpn};

/// Where the transport begins behind an IPv4 header.
const BTH: usize = 20 + 8;

/// An IPv4 packet with this opcode and five bytes of payload, where it has any.
fn packet(byte: u8) -> Vec<u8> {
    let opcode = Opcode::from_byte(byte).unwrap();
    let headers = samples::packet(opcode, 5, &Numbers::DISTINCT);
    frame(headers.map_payload(|_| &b"hello"[..]))
}

fn frame(packet: Packet<&[u8]>) -> Vec<u8> {
    let (source, dest) = (Ipv4Addr::new(10, 77, 0, 3), Ipv4Addr::new(10, 77, 0, 2));
    let ip = Ip::V4(Ipv4 { tos: 0, id: 7, dont_fragment: true, ttl: 64, source, dest });
    let udp = Udp { source_port: 0xc123, dest_port: Udp::ROCE_PORT, checksum: 0 };
    let frame = Frame { ethernet: None, ip, udp, packet, icrc: Icrc { seen: 0, computed: 0 } };
    let mut bytes = vec![0xaa; frame.len()];
    frame.emit(&mut bytes).unwrap();
    bytes
}

/// The packet after a change, with the ICRC that it then has.
fn changed(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let frame = Frame::parse_ip(&bytes).unwrap();
    let flow = Flow::of(&frame.ip, &frame.udp);
    change(&mut bytes[BTH..]);
    flow.seal(&mut bytes[BTH..], 7).unwrap();
    bytes
}

fn notes(bytes: &[u8]) -> Vec<Note> {
    let captured = Captured::parse_ip(bytes, false).unwrap();
    assert!(captured.icrc.unwrap().is_right());
    captured.notes.iter().collect()
}

#[test]
fn a_wrong_header_checksum_is_noted_and_refused_on_the_way_in() {
    let good = packet(0x04);
    let mut bytes = good.clone();
    let computed = u16::from_be_bytes([bytes[10], bytes[11]]);
    bytes[10..12].fill(0);
    assert_eq!(Frame::parse_ip(&bytes), Err(ParseError::BadIpChecksum { seen: 0, computed }));
    assert_eq!(notes(&bytes), [Note::IpChecksum(IpChecksum { seen: 0, computed })]);
    let captured = Captured::parse_ip(&bytes, false).unwrap();
    assert_eq!(Captured { notes: Default::default(), ..captured }, Frame::parse_ip(&good).unwrap().into());
    let note = format!("IPv4 header checksum 0x0000, computed 0x{computed:04x}");
    assert!(captured.to_string().ends_with(&format!(" data=5 [{note}]")), "{captured}");
    assert!(Long(&captured).to_string().ends_with(&format!("        Check: correct\n    Note: {note}\n")));
}

#[test]
fn every_reserved_bit_is_noted() {
    // Opcode, place behind the start of the BTH, and the bits that are reserved there.
    let reserved = [
        (0x04, 4, 0x3f),
        (0x04, 8, 0x7f),
        (0xaa, 12, 0xff),
        (0x64, 16, 0xff),
        (0x1c, 12, 0xff),
        (0x1c, 14, 0xff),
        (0x1c, 15, 0xc0),
        (0xbc, 19, 0xc0),
        (0x81, 12, 0xff),
        (0x81, 27, 0xff),
    ];
    for (byte, at, bits) in reserved {
        assert_eq!(notes(&packet(byte)), []);
        for bit in (0..8).map(|bit| 1 << bit) {
            let bytes = changed(packet(byte), |packet| packet[at] ^= bit);
            let expected = if bits & bit != 0 { &[Note::ReservedBits][..] } else { &[] };
            assert_eq!(notes(&bytes), expected, "opcode 0x{byte:02x}, byte {at}, bit 0x{bit:02x}");
        }
    }
}

#[test]
fn reserved_bits_of_messages_are_noted() {
    let rping = captures::named("rping");
    let bytes = &rping.frames[0][14..];
    let mut payload = *bytes[BTH + 20..].first_chunk::<{ CmMad::LEN }>().unwrap();
    // The reserved byte before the vendor ID of a REQ.
    payload[24 + 4] = 1;
    let whole = Frame::parse_ip(bytes).unwrap().packet.map_payload(|_| &payload[..]);
    assert_eq!(notes(&frame(whole)), [Note::ReservedBits]);
    let elsewhere = Packet { dest_qp: Qpn::new(2), ..whole };
    assert_eq!(notes(&frame(elsewhere)), [], "only queue pair 1 has messages");
}

#[test]
fn pad_that_is_not_zero_is_noted() {
    for at in 17..20 {
        let bytes = changed(packet(0x04), |packet| packet[at] = 0x80);
        assert_eq!(notes(&bytes), [Note::PadBytes]);
        // A pad byte that was kept is judged also where the rest is gone.
        let cut = Captured::parse_ip(&bytes[..BTH + at + 1], true).unwrap();
        let cut_at = Note::Cut { kept: at + 1, len: 24 };
        assert_eq!(cut.notes.iter().collect::<Vec<_>>(), [Note::PadBytes, cut_at]);
    }
    let bytes = changed(packet(0x04), |packet| {
        packet[4] |= 1;
        packet[19] = 1;
    });
    let captured = Captured::parse_ip(&bytes, false).unwrap();
    assert!(captured.to_string().ends_with(" data=5 [reserved bits set] [pad bytes not zero]"), "{captured}");
}

/// What the values do not hold is gone, so the ICRC must not be the old one.
#[test]
fn a_frame_with_odd_bytes_is_written_without_them_and_with_the_right_icrc() {
    let odd = changed(packet(0x04), |packet| {
        packet[4] |= 1;
        packet[8] |= 1;
        packet[19] = 1;
    });
    let frame = Frame::parse_ip(&odd).unwrap();
    assert!(frame.icrc.is_right());
    let mut again = vec![0xaa; odd.len()];
    frame.emit(&mut again).unwrap();
    assert_eq!(again, packet(0x04));
    frame.emit_with_icrc_as_seen(&mut again).unwrap();
    assert_eq!(again[..again.len() - 4], packet(0x04)[..again.len() - 4]);
    assert_eq!(again[again.len() - 4..], odd[odd.len() - 4..]);
    assert!(!Frame::parse_ip(&again).unwrap().icrc.is_right());
}

#[test]
fn a_cut_frame_says_so_and_has_no_icrc() {
    let bytes = packet(0x0a);
    let cut = Captured::parse_ip(&bytes[..BTH + 30], true).unwrap();
    assert_eq!((cut.is_cut(), cut.packet.payload_len(), cut.icrc), (true, 5, None));
    let note = "cut by the capture, which kept 30 of 40 bytes; ICRC not checked";
    assert!(cut.to_string().ends_with(&format!(" len=3520254932 data=5 [{note}]")), "{cut}");
    let long = Long(&cut).to_string();
    assert!(long.ends_with(&format!("    Data: 5 bytes\n    Note: {note}\n")), "{long}");
    let headers_gone = ParseError::TooShort { what: "transport headers", need: 28, have: 27 };
    assert_eq!(Captured::parse_ip(&bytes[..BTH + 27], true), Err(headers_gone));
    // Without a cut, missing bytes are a contradiction.
    let short = Captured::parse_ip(&bytes[..BTH + 30], false);
    assert_eq!(short, Err(ParseError::LengthMismatch { what: "IP", said: 48, have: 38 }));
}

#[test]
fn the_link_layer_and_the_ip_version_must_agree() {
    let rping = captures::named("rping");
    let mut bytes = rping.frames[0].clone();
    let tags = [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6];
    let tagged = [&bytes[..12], &tags, &bytes[12..]].concat();
    let frame = Frame::parse_ethernet(&tagged).unwrap();
    assert_eq!(frame.packet, Frame::parse_ethernet(&bytes).unwrap().packet);
    let mut again = vec![0xaa; tagged.len()];
    assert_eq!(frame.emit(&mut again), Ok(tagged.len()));
    assert_eq!(again, tagged);

    bytes[12..14].copy_from_slice(&Ethernet::IPV6.to_be_bytes());
    assert_eq!(Frame::parse_ethernet(&bytes), Err(ParseError::UnknownIpVersion(4)));
    bytes[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(Frame::parse_ethernet(&bytes), Err(ParseError::NotIp(0x0806)));
}
