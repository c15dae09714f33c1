//! Bytes written by hand from the specification, for what no other implementation at hand
//! sends or dissects: XRC, FLUSH, ATOMIC WRITE, congestion notifications, and what stands
//! before a datagram in a receive buffer. Each is read, and written again.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::net::{Ipv4Addr, Ipv6Addr};

use ferroce_wire::header::{DatagramPrefix, Feth, FlushPlacement, FlushScope, Grh};
use ferroce_wire::net::{Ipv4, Ipv6};
use ferroce_wire::{
    Aeth, AtomicEth, Body, CreditCode, Flow, Gid, Imm, MAX_PACKET_LEN, Msn, NakCode, PKey, Packet,
    PayloadLen, Psn, Qpn, Request, Response, Reth, Rkey, RnrTimer, Segment, Srqn, Syndrome,
};

const QP: Qpn = Qpn::new(0x0a_0b0c);
const PSN: Psn = Psn::new(0x0d_0e0f);
const RETH: Reth = Reth { address: 0x2122_2324_2526_2728, rkey: Rkey(0x3132_3334), length: 5 };

/// Reads the lines as a packet, which must be this one, and writes it, which must give the
/// same bytes. The lines end before the ICRC, which captures judge.
fn both_ways(lines: &[&[u8]], packet: &Packet<&[u8]>) {
    let mut expected = lines.concat();
    expected.extend([0xee; 4]);
    assert_eq!(Packet::parse(&expected), Ok(*packet));

    let flow = Flow::v4((Ipv4Addr::LOCALHOST, 50_000), (Ipv4Addr::LOCALHOST, 4791), true);
    let mut written = [0xaa; MAX_PACKET_LEN];
    let len = packet.emit(&flow, 0, &mut written).unwrap();
    assert_eq!(len, expected.len());
    assert_eq!(written[..len - 4], expected[..len - 4], "{packet}");
    assert_eq!(flow.verify(&written[..len], 0), Ok(()));
}

#[test]
fn xrc_write_only_with_immediate() {
    // Opcode 101 01011, solicited, three bytes of pad.
    both_ways(
        &[
            &[0xab, 0xb0, 0xff, 0xff],
            &[0x00, 0x0a, 0x0b, 0x0c],
            &[0x80, 0x0d, 0x0e, 0x0f],
            // XRCETH: a reserved byte, then the shared receive queue.
            &[0x00, 0x11, 0x12, 0x13],
            // RETH: address, key, length.
            &[0x21, 0x22, 0x23, 0x24],
            &[0x25, 0x26, 0x27, 0x28],
            &[0x31, 0x32, 0x33, 0x34],
            &[0x00, 0x00, 0x00, 0x05],
            // Immediate data.
            &[0x41, 0x42, 0x43, 0x44],
            b"hello\0\0\0",
        ],
        &Packet {
            solicited: true,
            ack_request: true,
            ..Packet::new(
                QP,
                PSN,
                Body::XrcRequest(
                    Srqn::new(0x11_1213),
                    Request::Write(Segment::Only(RETH, Some(Imm(0x4142_4344))), b"hello"),
                ),
            )
        },
    );
}

#[test]
fn xrc_compare_and_swap() {
    // Opcode 101 10011, path migrated, no acknowledgement asked for.
    both_ways(
        &[
            &[0xb3, 0x40, 0x80, 0x01],
            &[0x00, 0x0a, 0x0b, 0x0c],
            &[0x00, 0x0d, 0x0e, 0x0f],
            &[0x00, 0x11, 0x12, 0x13],
            // AtomicETH: address, key, swap, compare.
            &[0x21, 0x22, 0x23, 0x24],
            &[0x25, 0x26, 0x27, 0x28],
            &[0x31, 0x32, 0x33, 0x34],
            &[0x41, 0x42, 0x43, 0x44],
            &[0x45, 0x46, 0x47, 0x48],
            &[0x51, 0x52, 0x53, 0x54],
            &[0x55, 0x56, 0x57, 0x58],
        ],
        &Packet {
            migrated: true,
            pkey: PKey(0x8001),
            ..Packet::new(
                QP,
                PSN,
                Body::XrcRequest(
                    Srqn::new(0x11_1213),
                    Request::CompareSwap(AtomicEth {
                        address: 0x2122_2324_2526_2728,
                        rkey: Rkey(0x3132_3334),
                        swap_or_add: 0x4142_4344_4546_4748,
                        compare: 0x5152_5354_5556_5758,
                    }),
                ),
            )
        },
    );
}

#[test]
fn xrc_acknowledge() {
    // Opcode 101 10001. A response has no XRCETH: the AETH follows the BTH at once.
    for (byte, syndrome) in [
        (0x0b, Syndrome::Ack(CreditCode::new(11))),
        (0x2c, Syndrome::RnrNak(RnrTimer::new(12))),
        (0x62, Syndrome::Nak(NakCode::RemoteAccess)),
    ] {
        both_ways(
            &[
                &[0xb1, 0x00, 0xff, 0xff],
                &[0x00, 0x0a, 0x0b, 0x0c],
                &[0x00, 0x0d, 0x0e, 0x0f],
                &[byte, 0x61, 0x62, 0x63],
            ],
            &Packet::new(
                QP,
                PSN,
                Body::XrcResponse(Response::Acknowledge(Aeth { syndrome, msn: Msn::new(0x61_6263) })),
            ),
        );
    }
}

#[test]
fn flush() {
    // Opcodes 000 11100 and 101 11100. The FETH comes before the RETH; of its last byte bits
    // 3 to 0 are the placement, bits 5 and 4 the selectivity; the rest is reserved.
    let reth = Reth { length: 0x4142_4344, ..RETH };
    for (byte, placement, scope) in [
        (0x01, FlushPlacement::GLOBAL, FlushScope::Range),
        (0x12, FlushPlacement::PERSISTENT, FlushScope::Region),
        (0x23, FlushPlacement::GLOBAL | FlushPlacement::PERSISTENT, FlushScope::Reserved2),
        (0x3f, FlushPlacement::new(0x0f), FlushScope::Reserved3),
    ] {
        let request = Request::Flush(Feth { placement, scope }, reth);
        let headers: [&[u8]; 5] = [
            &[0x00, 0x00, 0x00, byte],
            &[0x21, 0x22, 0x23, 0x24],
            &[0x25, 0x26, 0x27, 0x28],
            &[0x31, 0x32, 0x33, 0x34],
            &[0x41, 0x42, 0x43, 0x44],
        ];
        let bth: [&[u8]; 2] = [&[0x00, 0x0a, 0x0b, 0x0c], &[0x80, 0x0d, 0x0e, 0x0f]];
        let rc: [&[u8]; 1] = [&[0x1c, 0x00, 0xff, 0xff]];
        let packet = Packet { ack_request: true, ..Packet::new(QP, PSN, Body::RcRequest(request)) };
        both_ways(&[&rc[..], &bth, &headers].concat(), &packet);

        let (xrc, xrceth): ([&[u8]; 1], [&[u8]; 1]) = ([&[0xbc, 0x00, 0xff, 0xff]], [&[0, 0x11, 0x12, 0x13]]);
        let packet = Packet { body: Body::XrcRequest(Srqn::new(0x11_1213), request), ..packet };
        both_ways(&[&xrc[..], &bth, &xrceth, &headers].concat(), &packet);
    }
}

#[test]
fn atomic_write() {
    // Opcode 000 11101: the operand is the payload, eight bytes in memory order.
    both_ways(
        &[
            &[0x1d, 0x00, 0xff, 0xff],
            &[0x00, 0x0a, 0x0b, 0x0c],
            &[0x80, 0x0d, 0x0e, 0x0f],
            &[0x21, 0x22, 0x23, 0x24],
            &[0x25, 0x26, 0x27, 0x28],
            &[0x31, 0x32, 0x33, 0x34],
            &[0x00, 0x00, 0x00, 0x08],
            &[0x71, 0x72, 0x73, 0x74],
            &[0x75, 0x76, 0x77, 0x78],
        ],
        &Packet {
            ack_request: true,
            ..Packet::new(
                QP,
                PSN,
                Body::RcRequest(Request::AtomicWrite(
                    Reth { length: 8, ..RETH },
                    [0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78],
                )),
            )
        },
    );
}

#[test]
fn congestion_notification() {
    // Opcode 0x81, BECN, PSN 0, and sixteen zero bytes.
    let lines: [&[u8]; 7] = [
        &[0x81, 0x00, 0xff, 0xff],
        &[0x40, 0x0a, 0x0b, 0x0c],
        &[0x00, 0x00, 0x00, 0x00],
        &[0; 4],
        &[0; 4],
        &[0; 4],
        &[0; 4],
    ];
    both_ways(&lines, &Packet::congestion(QP));
    let mut headers = [0xaa; 28];
    assert_eq!(Packet::<PayloadLen>::congestion(QP).emit_headers(&mut headers), Ok(28));
    assert_eq!(headers[..], lines.concat());
}

const SOURCE: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 3);
const DEST: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 2);

/// Version 6, traffic class 0x1a, flow label 0xbcdef; 300 bytes of UDP; 63 hops.
const OVER_IPV6: [u8; 40] = [
    0x61, 0xab, 0xcd, 0xef, 0x01, 0x2c, 0x11, 0x3f, // then the source, then the destination
    0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, //
    0xfd, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
];

#[test]
fn global_route_header() {
    let grh = Grh {
        traffic_class: 0x1a,
        flow_label: 0xb_cdef,
        payload_len: 300,
        next_header: 17,
        hop_limit: 63,
        source: Gid::from(SOURCE),
        dest: Gid::from(DEST),
    };
    assert_eq!(Grh::parse(&OVER_IPV6), Ok(grh));
    let mut written = [0xaa; 40];
    grh.emit(&mut written);
    assert_eq!(written, OVER_IPV6);
    let (source, dest) = (SOURCE, DEST);
    let ip = Ipv6 { traffic_class: 0x1a, flow_label: 0xb_cdef, hop_limit: 63, source, dest };
    assert_eq!(Grh::from((ip, 300)), grh);
}

#[test]
fn before_a_datagram_over_ipv6() {
    let prefix = DatagramPrefix::parse(&OVER_IPV6).unwrap();
    assert_eq!(prefix, DatagramPrefix::V6(Grh::parse(&OVER_IPV6).unwrap()));
    let mut written = [0xaa; 40];
    prefix.emit(&mut written);
    assert_eq!(written, OVER_IPV6);
}

#[test]
fn before_a_datagram_over_ipv4() {
    // Twenty bytes that mean nothing, then the IPv4 header.
    let mut bytes = [0; 40];
    bytes[20..].copy_from_slice(&[
        0x45, 0x02, 0x01, 0x40, // 320 bytes in all
        0x12, 0x34, 0x40, 0x00, // identification, do not fragment
        0x3f, 0x11, 0x13, 0xd9, // 63 hops, UDP, checksum
        10, 77, 0, 3, //
        10, 77, 0, 2,
    ]);
    let (source, dest) = (Ipv4Addr::new(10, 77, 0, 3), Ipv4Addr::new(10, 77, 0, 2));
    let ip = Ipv4 { tos: 2, id: 0x1234, dont_fragment: true, ttl: 63, source, dest };
    let prefix = DatagramPrefix::V4(ip, 300);
    assert_eq!(DatagramPrefix::parse(&bytes), Ok(prefix));
    let mut written = [0xaa; 40];
    prefix.emit(&mut written);
    assert_eq!(written, bytes);
    // A device may leave anything in the first twenty, even what looks like IPv6.
    bytes[..20].fill(0x66);
    assert_eq!(DatagramPrefix::parse(&bytes), Ok(prefix));
}
