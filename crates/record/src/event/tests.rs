use std::net::IpAddr;

use ferroce_transport::{Access, Sge, State, Status, VendorCode, WorkKind};
use ferroce_wire::{Lkey, Rkey, Service};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn qpns() -> impl Strategy<Value = Qpn> {
    (0_u32..1 << 24).prop_map(Qpn::new)
}

fn queues() -> impl Strategy<Value = Queue> {
    prop_oneof![
        qpns().prop_map(Queue::Send),
        qpns().prop_map(Queue::Receive),
        any::<u32>().prop_map(Queue::Shared)
    ]
}

/// Addresses that come back as they were: one of IPv4 is not written as one of IPv6.
fn addresses() -> impl Strategy<Value = IpAddr> {
    any::<IpAddr>().prop_map(|address| address.to_canonical())
}

fn posted() -> impl Strategy<Value = Event> {
    let what = (queues(), select(WorkOp::ALL), 0_u8..64, any::<(u32, u64, u16, u32)>());
    let places = any::<(u64, u32, u64, u32, u32)>();
    (what, places).prop_map(|((queue, op, flags, (work, id, pieces, length)), places)| {
        let (address, lkey, remote, key, imm) = places;
        let flags = PostedFlags::from_bits(flags).unwrap();
        let (lkey, key) = (Lkey(lkey), Rkey(key));
        Posted { queue, work, id, op, flags, pieces, length, address, lkey, remote, key, imm }.into()
    })
}

fn completed() -> impl Strategy<Value = Event> {
    let kinds: Vec<WorkKind> = (0..=u8::MAX).filter_map(WorkKind::from_code).collect();
    let vendors: Vec<Option<VendorCode>> = VendorCode::ALL.iter().copied().map(Some).chain([None]).collect();
    let what = (queues(), select(Status::ALL.to_vec()), select(vendors), select(kinds), 0_u8..64, qpns());
    let numbers = any::<(u32, u64, u32, u32, u32, u32, u32)>();
    (what, numbers).prop_map(|((queue, status, vendor_code, kind, flags, qpn), numbers)| {
        let (work, id, byte_len, imm, cq, source_qp, invalidated) = numbers;
        let flags = CompletedFlags::from_bits(flags).unwrap();
        let invalidated = Rkey(invalidated);
        Completed {
            queue,
            work,
            id,
            status,
            vendor_code,
            kind,
            flags,
            byte_len,
            imm,
            cq,
            qpn,
            source_qp,
            invalidated,
        }
        .into()
    })
}

fn other_work() -> impl Strategy<Value = Event> {
    let piece = (queues(), any::<(u32, u16, u64, u32, u32)>()).prop_map(
        |(queue, (work, index, address, length, lkey))| {
            Piece { queue, work, index, sge: Sge { address, length, lkey: Lkey(lkey) } }.into()
        },
    );
    let operands = (qpns(), any::<(u32, u64, u64, u64, u64)>()).prop_map(
        |(qpn, (work, compare_add, swap, compare_mask, swap_mask))| {
            Operands { qpn, work, compare_add, swap, compare_mask, swap_mask }.into()
        },
    );
    let doorbell = (queues(), any::<(u32, u32)>())
        .prop_map(|(queue, (first, count))| Doorbell { queue, first, count }.into());
    let begun = (qpns(), any::<(u32, u32, u32)>())
        .prop_map(|(qpn, (work, psn, packets))| Begun { qpn, work, psn, packets }.into());
    let polled =
        (qpns(), any::<(u32, u64, bool, bool)>()).prop_map(|(qpn, (cq, id, is_receive, is_forgotten))| {
            Polled { qpn, cq, id, is_receive, is_forgotten }.into()
        });
    let matched = (qpns(), queues(), any::<(u32, u64, u32)>())
        .prop_map(|(qpn, queue, (work, id, psn))| Matched { qpn, queue, work, id, psn }.into());
    prop_oneof![piece, operands, doorbell, begun, polled, matched]
}

fn packets() -> impl Strategy<Value = Event> {
    let packet = (qpns(), 0_u16..1 << 10, any::<(u32, u16, u8)>(), vec(any::<u8>(), 0..=HEADERS)).prop_map(
        |(qpn, flags, (work, payload, repeat), headers)| {
            let flags = PacketFlags::from_bits(flags).unwrap();
            let packet = Packet { qpn, flags, work, payload, headers_len: 0, repeat, headers: [0; HEADERS] };
            packet.with_headers(&headers).0.into()
        },
    );
    let more = (qpns(), any::<[u8; 32]>()).prop_map(|(qpn, bytes)| MoreHeaders::new(qpn, &bytes).into());
    let ends = (qpns(), addresses(), addresses(), any::<u16>())
        .prop_map(|(qpn, local, remote, port)| Ends { qpn, local, remote, port }.into());
    prop_oneof![packet, more, ends]
}

fn timing() -> impl Strategy<Value = Event> {
    let timer = (qpns(), select(TimerKind::ALL), any::<(u32, u32, u8, u8)>())
        .prop_map(|(qpn, kind, (psn, work, tries, most))| Timer { qpn, kind, psn, work, tries, most }.into());
    let wait = (qpns(), select(WaitReason::ALL), any::<(u32, u64)>())
        .prop_map(|(qpn, reason, (work, until))| Wait { qpn, reason, work, until }.into());
    prop_oneof![timer, wait]
}

fn objects() -> impl Strategy<Value = Event> {
    let states = || select(State::ALL.to_vec());
    let change = (qpns(), states(), states(), any::<bool>())
        .prop_map(|(qpn, from, to, is_asked)| StateChange { qpn, from, to, is_asked }.into());
    let services = select(vec![Service::Rc, Service::Uc, Service::Ud]);
    let pair = (qpns(), select(Step::ALL), services, states(), any::<(u32, u32, Option<u32>, u32, u32)>())
        .prop_map(|(qpn, step, service, state, (send_cq, receive_cq, shared, sends, receives))| {
            QueuePair { qpn, step, service, state, send_cq, receive_cq, shared, sends, receives }.into()
        });
    let way = (qpns(), qpns(), addresses(), addresses(), any::<(u16, u16, bool)>()).prop_map(
        |(qpn, peer, local, remote, (port, mtu, is_local))| {
            Way { qpn, peer, local, remote, port, mtu, is_local }.into()
        },
    );
    let region = (select(Step::ALL), select(RegionKind::ALL), 0_u32..32, any::<(u32, u32, u64, u64, u32)>())
        .prop_map(|(step, kind, access, (lkey, rkey, address, length, domain))| {
            let access = Access::from_bits(access).unwrap();
            let (lkey, rkey) = (Lkey(lkey), Rkey(rkey));
            Region { step, kind, lkey, rkey, address, length, access, domain }.into()
        });
    let connection = (select(ConnectionStep::ALL), addresses(), any::<(u32, u32, u64, u16)>()).prop_map(
        |(step, remote, (number, qpn, service, reason))| {
            Connection { step, number, qpn, service, remote, reason }.into()
        },
    );
    prop_oneof![change, pair, way, region, connection]
}

proptest! {
    #[test]
    fn every_event_comes_back_as_it_was(
        event in prop_oneof![posted(), completed(), other_work(), packets(), timing(), objects()],
    ) {
        let mut words = event.words();
        prop_assert_eq!(words[0], 0, "the time is for the ring");
        prop_assert_eq!(words[1] >> 8 & 0xff, 0, "so is the lap");
        words[0] = 77;
        words[1] |= 0xab00;
        prop_assert_eq!(Event::from_words(&words), Some(event));
    }

    /// What stands in a file may be anything.
    #[test]
    fn other_words_are_an_event_or_none(words in any::<[u64; 8]>(), kind in 0_u64..40) {
        let words = [words[0], words[1] & !0xff | kind, words[2], words[3], words[4], words[5], words[6], words[7]];
        if let Some(event) = Event::from_words(&words) {
            prop_assert_eq!(Event::from_words(&event.words()), Some(event));
        }
    }
}

proptest! {
    /// The short way to the words of a packet is the same as the long one.
    #[test]
    fn packets_are_the_same_both_ways(
        qpn in qpns(),
        flags in 0_u16..1 << 10,
        (work, payload, repeat) in any::<(u32, u16, u8)>(),
        headers in vec(any::<u8>(), 0..=80),
    ) {
        let flags = PacketFlags::from_bits(flags).unwrap();
        let packet = Packet { qpn, flags, work, payload, headers_len: 0, repeat, headers: [0; HEADERS] };
        let (packet, more) = packet.with_headers(&headers);
        let short = PacketHead { qpn, flags, work, payload, repeat }.words(&headers);
        prop_assert_eq!(short, (Event::from(packet).words(), more));
    }
}

#[test]
fn headers_that_are_too_long_for_one_event_take_two() {
    let headers: Vec<u8> = (0..56).collect();
    let qpn = Qpn::new(7);
    let packet = Packet {
        qpn,
        flags: PacketFlags::OUT,
        work: 0,
        payload: 0,
        headers_len: 0,
        repeat: 0,
        headers: [0; HEADERS],
    };
    let (packet, more) = packet.with_headers(&headers);
    let more = more.unwrap();
    assert_eq!((packet.headers_len, packet.headers()), (56, &headers[..HEADERS]));
    assert_eq!(more.bytes[..16], headers[HEADERS..]);
    assert_eq!(packet.with_headers(&headers[..28]).1, None);
}
