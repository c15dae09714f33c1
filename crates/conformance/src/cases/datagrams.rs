//! Datagrams: addresses, Q_Keys, and what is dropped.

use std::net::IpAddr;
use std::num::NonZeroU16;

use ferroce_device::source_port;
use ferroce_verbs::*;

use crate::rig::{End, Rig, pattern};
use crate::waiting::until;

const QKEY: QKey = QKey(0x1234_5678);
const HEADER: usize = DatagramHeader::LEN;

/// Posts receives at the beginning of a region, many enough for repeated datagrams.
fn post_receives(rig: &Rig, end: &End) {
    for id in 0..if rig.is_lossy() { 100 } else { 1 } {
        end.qp.receive(end.region.slice(..8192)).id(id).post().unwrap();
    }
}

pub(crate) fn datagram_arrives_with_its_header(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    post_receives(rig, &b);
    let message = pattern(200, 1);
    a.region.write_at(5, &message).unwrap();
    let got = rig.deliver(&a, &b, || {
        a.qp.send_to(&there, b.qp.qpn(), QKEY, a.region.slice(5..205)).id(8).post().unwrap();
    });
    assert_eq!((got.kind, got.byte_len, got.imm), (WorkKind::Receive, 240, None));
    assert_eq!((got.source_qp, got.qpn), (Some(a.qp.qpn()), b.qp.qpn()));
    assert_eq!(b.region.to_vec(HEADER..HEADER + 200).unwrap(), message);
    assert_eq!(b.region.to_vec(HEADER + 200..8192).unwrap(), [0; 8192 - 240]);
    let header = DatagramHeader::read(&b.region, 0).unwrap();
    assert_eq!((header.source, header.dest), (rig.a.address.into(), rig.b.address.into()));
    assert_eq!(header.traffic_class & !3, 0);
    let is_v4 = rig.a.address.is_ipv4();
    assert_eq!(
        b.region.to_vec(..20).unwrap().iter().all(|byte| *byte == 0),
        is_v4,
        "an IPv4 header has 20 bytes"
    );

    // The header is enough for an answer.
    let index = rig.b.context.gid_index(rig.b.address).unwrap();
    let back = rig.b.pd.address_handle(&header.reply_to(index)).unwrap();
    post_receives(rig, &a);
    let got = rig.deliver(&b, &a, || {
        b.qp.send_inline_to(&back, got.source_qp.unwrap(), QKEY, b"back").post().unwrap();
    });
    assert_eq!((got.byte_len, got.source_qp), (44, Some(b.qp.qpn())));
    assert_eq!(a.region.to_vec(40..44).unwrap(), b"back");
}

pub(crate) fn datagram_with_immediate(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    post_receives(rig, &b);
    let got = rig.deliver(&a, &b, || {
        a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"").imm(0xabcd).solicited().post().unwrap();
    });
    assert_eq!((got.byte_len, got.imm, got.solicited), (40, Some(0xabcd), rig.marks()));
}

pub(crate) fn datagram_lengths(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    let mtu = rig.a.context.port().active_mtu.bytes();
    for (seed, len) in (50..).zip([0, 1, 2, 3, 4, 255, mtu - 1, mtu]) {
        let message = pattern(len, seed);
        a.region.write_at(0, &message).unwrap();
        // What came late or twice is gone before the next one.
        until(|| b.receives.poll_one().is_none());
        b.qp.receive(b.region.slice(..8192)).post().unwrap();
        loop {
            let got = rig.deliver(&a, &b, || {
                // Two halves, so that datagrams are gathered too.
                let pieces = [a.region.slice(..len / 2), a.region.slice(len / 2..len)];
                a.qp.send_to(&there, b.qp.qpn(), QKEY, &pieces).post().unwrap();
            });
            if got.byte_len as usize == HEADER + len {
                break;
            }
            assert!(rig.is_lossy(), "{got:?}");
            b.qp.receive(b.region.slice(..8192)).post().unwrap();
        }
        assert_eq!(b.region.to_vec(HEADER..HEADER + len).unwrap(), message, "{len} bytes");
    }
}

/// Sends until the receiver has counted one that it drops.
fn dropped(rig: &Rig, a: &End, count: impl Fn() -> u64, mut send: impl FnMut()) {
    let before = count();
    loop {
        send();
        a.sent();
        if !rig.counts() {
            return;
        }
        if !rig.is_lossy() {
            until(|| count() > before);
        }
        if count() > before {
            break;
        }
    }
    if !rig.is_lossy() {
        assert_eq!(count(), before + 1);
    }
}

pub(crate) fn datagram_with_the_wrong_qkey(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    post_receives(rig, &b);
    dropped(
        rig,
        &a,
        || b.qp.counters().wrong_qkey,
        || {
            a.qp.send_inline_to(&there, b.qp.qpn(), QKey(QKEY.0 + 1), b"let me in").post().unwrap();
        },
    );
    assert!(b.receives.poll_one().is_none());
    assert_eq!(b.region.to_vec(..100).unwrap(), [0; 100]);
    let got = rig.deliver(&a, &b, || {
        a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"please").post().unwrap();
    });
    assert_eq!(got.byte_len, 46);
}

pub(crate) fn datagrams_use_their_own_qkey(rig: &Rig) {
    // With the top bit set, the Q_Key of the sending queue pair is shown (IBA 10.2.5).
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    post_receives(rig, &b);
    let got = rig.deliver(&a, &b, || {
        a.qp.send_inline_to(&there, b.qp.qpn(), QKey(0x8000_0001), b"mine").post().unwrap();
    });
    assert_eq!(got.byte_len, 44);
}

pub(crate) fn datagram_without_receive(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    dropped(
        rig,
        &a,
        || b.qp.counters().no_receive,
        || {
            a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"too early").post().unwrap();
        },
    );
    post_receives(rig, &b);
    let got = rig.deliver(&a, &b, || {
        a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"now").post().unwrap();
    });
    assert!(rig.is_lossy() || got.byte_len == 43, "what was dropped does not come again");
}

pub(crate) fn datagram_to_an_absent_queue_pair(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    let gone = b.qp.qpn();
    drop(b.qp);
    dropped(
        rig,
        &a,
        || rig.counters().1.unknown_qp,
        || {
            a.qp.send_inline_to(&there, gone, QKEY, b"hello?").post().unwrap();
        },
    );
    assert_eq!(a.qp.state(), State::Rts, "no packet says anything");
}

pub(crate) fn datagram_longer_than_the_receive(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    b.region.fill(.., 0x5a).unwrap();
    b.qp.receive(b.region.slice(..44)).id(1).post().unwrap();
    let failed = loop {
        a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"12345").post().unwrap();
        a.sent();
        if !rig.is_lossy() {
            break b.receive_ended();
        }
        if let Some(failed) = b.receives.poll_one() {
            break failed;
        }
    };
    assert_eq!(b.region.load_u8(44), Ok(0x5a));
    assert_eq!((failed.id, failed.status), (1, Status::LocalLength));
}

pub(crate) fn datagram_longer_than_the_mtu(rig: &Rig) {
    rig.without_traffic();
    let (a, b) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    let mtu = rig.a.context.port().active_mtu.bytes();
    let error = a.qp.send_to(&there, b.qp.qpn(), QKEY, a.region.slice(..=mtu)).post().unwrap_err();
    let (given, allowed) = (mtu as u64 + 1, u32::try_from(mtu).unwrap());
    let wanted = PostRefusal::TooLong { given, allowed };
    assert_eq!(error, PostError::Refused { by: PostTarget::QueuePair(a.qp.qpn()), error: wanted });
    assert_eq!(a.qp.state(), State::Rts);
    assert!(a.sends.poll_one().is_none());
}

/// A flow label with bits in each of its bytes.
const LABEL: u32 = 0xa_bcde;

/// A handle with a traffic class, a hop limit and a flow label.
fn marked_handle(rig: &Rig) -> AddressHandle {
    let index = rig.a.context.gid_index(rig.a.address).unwrap();
    let vector = AddressVector {
        traffic_class: 0x28,
        hop_limit: 33,
        flow_label: LABEL,
        ..AddressVector::new(rig.b.address.into(), index)
    };
    rig.a.pd.address_handle(&vector).unwrap()
}

/// How many hops it says where the program chooses them; else those of the route, of which there is one between these hosts.
fn hops(rig: &Rig) -> u8 {
    if rig.a.context.can(Capability::HopLimits) { 33 } else { 64 }
}

pub(crate) fn datagram_header_shows_class_and_hops(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = marked_handle(rig);
    post_receives(rig, &b);
    let got = rig.deliver(&a, &b, || {
        a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"marked").post().unwrap();
    });
    let header = DatagramHeader::read(&b.region, 0).unwrap();
    assert_eq!((header.traffic_class, header.hop_limit), (0x28, hops(rig)));
    assert_eq!(header.flow_label, if rig.a.address.is_ipv6() { LABEL } else { 0 });
    // On one machine packets leave from the port of RoCEv2.
    let from = got.source_port.map(NonZeroU16::get);
    let port = if rig.is_one_machine() { 4791 } else { source_port(LABEL) };
    // Cards do not tell.
    assert_eq!(from, rig.a.context.can(Capability::SourcePorts).then_some(port));
    assert_eq!(DatagramHeader::parse(&b.region.to_vec(..46).unwrap()), Ok(header));
}

/// The forty bytes are those of the IP header, as the IBA and other network cards have it.
pub(crate) fn the_forty_bytes_are_the_ip_header(rig: &Rig) {
    let (a, b) = rig.ud(QKEY);
    let there = marked_handle(rig);
    post_receives(rig, &b);
    rig.deliver(&a, &b, || {
        a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"eight by").post().unwrap();
    });
    let seen = b.region.to_vec(..HEADER).unwrap();
    // UDP, BTH, DETH, eight bytes and the ICRC.
    let udp = 8 + 12 + 8 + 8 + 4;
    match (rig.a.address, rig.b.address) {
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let start = [0x62, 0x8a, 0xbc, 0xde, 0, udp, 17, hops(rig)];
            assert_eq!(seen, [&start[..], &from.octets(), &to.octets()].concat());
        }
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            assert_eq!(seen[..20], [0; 20]);
            let ip = &seen[20..];
            assert_eq!(ip[..4], [0x45, 0x28, 0, 20 + udp]);
            assert_eq!(ip[6..10], [0x40, 0, hops(rig), 17], "do not fragment, hops, UDP");
            assert_eq!(ip[12..], [from.octets(), to.octets()].concat());
            let words = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
            let sum: u32 = words.sum();
            // A card that hands datagrams to itself sends no packet, and may leave the checksum out.
            assert!((sum & 0xffff) + (sum >> 16) == 0xffff || !rig.counts(), "its checksum is right");
        }
        _ => unreachable!("both ends are of one family"),
    }
}

pub(crate) fn an_answer_goes_back_the_way_that_the_datagram_came(rig: &Rig) {
    let there = marked_handle(rig);
    for port in [ReplyPort::Usual, ReplyPort::Theirs] {
        let (a, b) = rig.ud(QKEY);
        post_receives(rig, &b);
        let got = rig.deliver(&a, &b, || {
            a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"ask").post().unwrap();
        });
        let header = DatagramHeader::read(&b.region, 0).unwrap();
        let back = b.qp.reply_to(&got, &header, port).unwrap();
        assert_eq!((back.qpn, back.qkey), (a.qp.qpn(), QKEY));
        let theirs = got.source_port.map(NonZeroU16::get).filter(|_| port == ReplyPort::Theirs);
        assert_eq!(back.address.address().source_port.wanted(), theirs);
        post_receives(rig, &a);
        let answer = rig.deliver(&b, &a, || {
            b.qp.send_inline_to(&back.address, back.qpn, back.qkey, b"say").post().unwrap();
        });
        // Where both ends are in one process but in two namespaces, sockets for other ports are not to be had.
        if rig.a.context.can(Capability::SourcePorts) {
            assert_eq!(answer.source_port.map(NonZeroU16::get), Some(back.address.source_port()));
        }
        let seen = DatagramHeader::read(&a.region, 0).unwrap();
        assert_eq!((seen.source, seen.dest), (header.dest, header.source));
        assert_eq!((seen.traffic_class, seen.flow_label), (header.traffic_class, header.flow_label));
        assert_eq!(seen.hop_limit, 64, "the hops of the way here are not those of the way back");
        let sent = Completion { id: 9, ..Completion::EMPTY };
        let error = a.qp.reply_to(&sent, &seen, port).unwrap_err();
        assert!(matches!(error, ReplyError::NotADatagram { id: 9 }), "{error}");
    }
}

pub(crate) fn datagrams_go_to_many(rig: &Rig) {
    let (a, first) = rig.ud(QKEY);
    let (_, second) = rig.ud(QKEY);
    let (_, third) = rig.ud(QKEY);
    let there = rig.a.handle_to(&rig.b);
    for (name, end) in (b'0'..).zip([&first, &second, &third]) {
        post_receives(rig, end);
        let got = rig.deliver(&a, end, || {
            a.qp.send_inline_to(&there, end.qp.qpn(), QKEY, &[name]).post().unwrap();
        });
        assert_eq!((got.byte_len, got.qpn), (41, end.qp.qpn()));
        assert_eq!(end.region.load_u8(40), Ok(name));
    }
}
