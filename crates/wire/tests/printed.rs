//! Every opcode and every message as text, against the files in `tests/golden`.
//! `UPDATE_GOLDEN=1` writes them anew; read the difference before you believe it.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::{env, fs};

use ferroce_testkit::samples::{self, Numbers};
use ferroce_wire::mad::{BODY_LEN, CmMad, CmMessage, CommId, Opaque, PortSpace, ServiceId, Timeout};
use ferroce_wire::net::{Ethernet, Ip, Ipv4, Ipv6, Udp, VlanTag, Vlans};
use ferroce_wire::{
    Body, Captured, Datagram, Deth, Frame, Icrc, Long, Opcode, Packet, PayloadRule, Psn, QKey, Qpn, Service,
};

#[test]
fn every_opcode_and_message_on_one_line() {
    let mut text = String::new();
    for bytes in opcodes().iter().chain(&messages()) {
        writeln!(text, "{}", frame(bytes)).unwrap();
    }
    golden("short.txt", &text);
}

#[test]
fn every_opcode_with_all_its_fields() {
    golden("opcodes.txt", &long(&opcodes()));
}

#[test]
fn every_message_with_all_its_fields() {
    golden("messages.txt", &long(&messages()));
}

/// What a failing test shows of a number is the number, in the form in which it is written elsewhere.
#[test]
fn numbers_name_their_kind_when_they_are_debugged() {
    let gid: ferroce_wire::Gid = std::net::IpAddr::from([10, 0, 0, 7]).into();
    for (seen, expected) in [
        (format!("{:?}", CommId(0x1234)), "CommId(0x00001234)"),
        (format!("{:?}", ServiceId(5)), "ServiceId(0x0000000000000005)"),
        (format!("{:?}", Timeout::new(20)), "Timeout(20: 4.294967296s)"),
        (format!("{:?}", Opaque::<8>::new(&[1, 0xab, 0]).unwrap()), "Opaque<8>(01ab)"),
        (format!("{gid:?}"), "Gid(::ffff:10.0.0.7)"),
        (format!("{:?}", Opcode::from_byte(4).unwrap()), "Opcode(RC SEND Only, 0x04)"),
    ] {
        assert_eq!(seen, expected);
    }
}

fn long(frames: &[Vec<u8>]) -> String {
    let texts: Vec<String> = frames.iter().map(|bytes| Long(&frame(bytes)).to_string()).collect();
    texts.join("\n")
}

/// What was written, read: the text must come from the bytes.
fn frame(bytes: &[u8]) -> Frame<'_> {
    let frame = Frame::parse_ethernet(bytes).unwrap();
    assert!(frame.icrc.is_right());
    frame
}

#[track_caller]
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    for (line, (seen, expected)) in (1..).zip(text.lines().zip(expected.lines())) {
        assert_eq!(seen, expected, "line {line} of {name}; UPDATE_GOLDEN=1 rewrites it");
    }
    assert_eq!(text.len(), expected.len(), "length of {name}; UPDATE_GOLDEN=1 rewrites it");
}

/// A frame of every opcode, no two fields alike, in turn over IPv4 and over IPv6.
fn opcodes() -> Vec<Vec<u8>> {
    let frame = |opcode: Opcode| {
        let len = match opcode.info().payload {
            PayloadRule::Nothing | PayloadRule::EightBytes => 0,
            PayloadRule::FullMtu => 256,
            PayloadRule::OneToMtu | PayloadRule::UpToMtu => 5,
        };
        let payload = vec![0x5a; len];
        let numbers = Numbers { flags: opcode.byte(), code: code(opcode), ..Numbers::DISTINCT };
        let packet = samples::packet(opcode, len, &numbers).map_payload(|_| &payload[..]);
        written(opcode.byte() % 2 == 1, packet)
    };
    Opcode::all().map(frame).collect()
}

/// Another kind of acknowledgement for each response of RC and of XRC.
fn code(opcode: Opcode) -> u8 {
    const CODES: [u8; 8] = [0x1f, 0x0b, 0x2c, 0x60, 0x61, 0x62, 0x63, 0x85];
    let xrc = usize::from(opcode.info().service == Service::Xrc);
    CODES[(usize::from(opcode.byte()) + 3 * xrc) % CODES.len()]
}

/// Every message of connection management, with distinct bytes and with few, and a management
/// datagram of a class that we know nothing about.
fn messages() -> Vec<Vec<u8>> {
    let mut distinct = [0; BODY_LEN];
    for (byte, value) in distinct.iter_mut().zip((1..=250).cycle()) {
        *byte = value;
    }
    let mut frames = Vec::new();
    for attribute_id in 0x10..=0x18 {
        for body in [distinct, [0; BODY_LEN]] {
            let message = CmMessage::parse(attribute_id, &body).unwrap();
            frames.push(written(false, mad(&bytes_of(message))));
        }
    }
    let CmMessage::Req(mut req) = CmMessage::parse(0x10, &distinct).unwrap() else { panic!("a REQ") };
    req.service_id = ServiceId::rdma_ip(PortSpace::Tcp, 7174);
    req.private_data.0[..2].copy_from_slice(&[0x00, 0x40]);
    frames.push(written(true, mad(&bytes_of(req.into()))));

    let mut performance = bytes_of(CmMessage::parse(0x14, &distinct).unwrap());
    performance[1..4].copy_from_slice(&[0x04, 1, 0x81]);
    frames.push(written(false, mad(&performance)));
    frames
}

fn bytes_of(message: CmMessage) -> [u8; CmMad::LEN] {
    let mut bytes = [0xaa; CmMad::LEN];
    CmMad::new(0x0102_0304_0506_0708, message).emit(&mut bytes);
    bytes
}

fn mad(payload: &[u8]) -> Packet<&[u8]> {
    let deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
    Packet::new(Qpn::GSI, Psn::new(0x31_3233), Body::Ud(Datagram { deth, imm: None, payload }))
}

fn written(v6: bool, packet: Packet<&[u8]>) -> Vec<u8> {
    let (outer, inner) = (VlanTag { service: true, control: 0x2123 }, VlanTag { service: false, control: 7 });
    let (ip, vlans) = if v6 {
        let (source, dest) = (Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 3), Ipv6Addr::LOCALHOST);
        let ip = Ipv6 { traffic_class: 0x6a, flow_label: 0x1_2345, hop_limit: 63, source, dest };
        (Ip::V6(ip), Vlans::Stacked(outer, inner))
    } else {
        let (source, dest) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
        let ip = Ipv4 { tos: 0x6a, id: 0x1234, dont_fragment: true, ttl: 63, source, dest };
        (Ip::V4(ip), Vlans::Tagged(inner))
    };
    let ethernet = Some(Ethernet { source: [2, 0, 0, 0, 0, 1], dest: [2, 0, 0, 0, 0, 2], vlans });
    let udp = Udp { source_port: 0xc123, dest_port: Udp::ROCE_PORT, checksum: 0x1357 };
    let frame = Frame { ethernet, ip, udp, packet, icrc: Icrc { seen: 0, computed: 0 } };
    let mut bytes = vec![0xaa; frame.len()];
    frame.emit(&mut bytes).unwrap();
    bytes
}

/// Beside whole management datagrams there are cut ones, and other payloads for queue pair 1.
#[test]
fn as_much_of_a_management_datagram_is_shown_as_there_is() {
    let message = CmMessage::parse(0x12, &[0x11; BODY_LEN]).unwrap();
    let frame = written(false, mad(&bytes_of(message)));
    let ip = &frame[18..];
    let headers = 20 + 8 + 12 + 8;
    let shown = |kept: usize| {
        let captured = Captured::parse_ip(&ip[..headers + kept], true).unwrap();
        (captured.packet.to_string(), Long(&captured).to_string())
    };
    let start = "UD SEND Only qp=0x000001 psn=0x313233 from-qp=0x000001 qkey=0x80010000";
    let (short, long) = shown(256);
    assert!(
        short.starts_with(&format!("{start} CM REJ transaction=0x102030405060708 local-id=0x11111111 ")),
        "{short}"
    );
    assert!(short.ends_with(" data=256"), "{short}");
    assert!(long.contains("CM ConnectReject (232 bytes)"), "{long}");
    for kept in [24, 255] {
        let (short, long) = shown(kept);
        let mad = "MAD class=0x07 method=0x03 attribute=0x0012 transaction=0x102030405060708";
        assert_eq!(short, format!("{start} {mad} data=256"));
        assert!(
            long.contains("Attribute ID: REJ (0x0012)") && long.contains("    Data: 232 bytes\n"),
            "{long}"
        );
    }
    for kept in [0, 23] {
        let (short, long) = shown(kept);
        assert_eq!(short, format!("{start} data=256"));
        assert!(!long.contains("MAD") && long.contains("    Data: 256 bytes\n"), "{long}");
    }
    let short = mad(&[7; 252]).to_string();
    assert_eq!(short, format!("{start} data=252"));
}
