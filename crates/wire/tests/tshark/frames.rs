//! Frames that we emit: every opcode over IPv4 and IPv6, and every value that tshark looks into.

use std::net::{Ipv4Addr, Ipv6Addr};

use ferroce_testkit::samples::{self, Numbers};
use ferroce_wire::net::{Ethernet, Ip, Ipv4, Ipv6, Udp, Vlans};
use ferroce_wire::{Frame, Icrc, Opcode, Packet, PathMtu, PayloadRule, Service};

use super::compare::Sample;
use super::told::Told;

const ONES: Numbers = Numbers {
    wide: [u64::MAX; 3],
    words: [u32::MAX; 6],
    pkey: 0xffff,
    flags: 0xff,
    code: 0xff,
    operand: [0xff; 8],
};

const ZEROS: Numbers = Numbers { wide: [0; 3], words: [0; 6], pkey: 0, flags: 0, code: 0, operand: [0; 8] };

/// A queue pair of no special meaning. tshark takes everything to and from the
/// queue pairs 0 and 1 for management datagrams, and nothing else uses these two.
const ORDINARY_QP: u32 = 2;

/// Every opcode with every kind of length and number; every combination of flags; every syndrome.
pub(crate) fn packets() -> Vec<Sample> {
    let mut samples = Vec::new();
    for opcode in Opcode::all() {
        for len in lengths(opcode) {
            both(&mut samples, "distinct", opcode, len, &Numbers::DISTINCT);
        }
        for len in lengths(opcode).into_iter().take(2) {
            both(&mut samples, "ones", opcode, len, &ONES);
            both(&mut samples, "zeros", opcode, len, &zeros(opcode));
        }
    }
    let opcode = |byte| Opcode::from_byte(byte).expect("a known opcode");
    for flags in 0..32 {
        both(&mut samples, "flags", opcode(0x04), 5, &Numbers { flags, ..Numbers::DISTINCT });
    }
    for code in 0..=u8::MAX {
        both(&mut samples, "syndrome", opcode(0x11), 0, &Numbers { code, ..Numbers::DISTINCT });
    }
    samples
}

fn zeros(opcode: Opcode) -> Numbers {
    let mut numbers = Numbers { words: [ORDINARY_QP, 0, 0, 0, 0, 0], ..ZEROS };
    if opcode.info().service == Service::Ud {
        // The source queue pair.
        numbers.words[3] = ORDINARY_QP;
    }
    numbers
}

/// Lengths of payload that the opcode allows.
fn lengths(opcode: Opcode) -> Vec<usize> {
    match opcode.info().payload {
        PayloadRule::Nothing | PayloadRule::EightBytes => vec![0],
        PayloadRule::FullMtu => PathMtu::ALL.iter().map(|mtu| mtu.bytes()).collect(),
        PayloadRule::OneToMtu => vec![1, 2, 3, 4, 7, 64, 1024, 4096],
        PayloadRule::UpToMtu => vec![0, 1, 2, 3, 4, 7, 64, 1024, 4096],
    }
}

fn both(samples: &mut Vec<Sample>, what: &str, opcode: Opcode, len: usize, numbers: &Numbers) {
    let payload: Vec<u8> = (0..=u8::MAX).cycle().skip(0x41).step_by(7).take(len).collect();
    let packet = samples::packet(opcode, len, numbers).map_payload(|_| payload.as_slice());
    samples.push(over_ipv4(what, packet));
    samples.push(over_ipv6(what, packet));
}

/// The packet in an IPv4 frame.
pub(crate) fn over_ipv4(what: &str, packet: Packet<&[u8]>) -> Sample {
    let (source, dest) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
    emitted(what, Ip::V4(Ipv4 { tos: 0x6a, id: 0x1234, dont_fragment: true, ttl: 63, source, dest }), packet)
}

/// The packet in an IPv6 frame.
pub(crate) fn over_ipv6(what: &str, packet: Packet<&[u8]>) -> Sample {
    let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let dest = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
    let ip = Ipv6 { traffic_class: 0x6a, flow_label: 0x1_2345, hop_limit: 63, source, dest };
    emitted(what, Ip::V6(ip), packet)
}

fn emitted(what: &str, ip: Ip, packet: Packet<&[u8]>) -> Sample {
    let ethernet = Ethernet { source: [2, 0, 0, 0, 0, 1], dest: [2, 0, 0, 0, 0, 2], vlans: Vlans::Untagged };
    let udp = Udp { source_port: 0xc123, dest_port: Udp::ROCE_PORT, checksum: 0 };
    let unsealed = Frame { ethernet: Some(ethernet), ip, udp, packet, icrc: Icrc { seen: 0, computed: 0 } };
    let mut bytes = vec![0xaa; unsealed.len()];
    assert_eq!(unsealed.emit(&mut bytes), Ok(bytes.len()));
    let icrc = u32::from_le_bytes(*bytes.last_chunk().expect("a frame is longer than its ICRC"));
    let frame = Frame { icrc: Icrc { seen: icrc, computed: icrc }, ..unsealed };
    Sample { what: format!("{what}: {frame}"), bytes, told: Told::of(&frame) }
}
