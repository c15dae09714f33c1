//! Traffic that crosses, overtakes and rides along.

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Side, Verdict};
use ferroce_transport::{Acks, Data, MaskedAdd, MaskedSwap, SendFlags, SendOp, Status};
use ferroce_wire::{Body, Packet, PathMtu, Psn};

/// Both ends are requester and responder at once, and share nothing but the wire.
#[test]
fn both_directions_work_at_once() {
    for lost in [None, Some(0), Some(2), Some(7)] {
        let mut pair = pair(|setup| setup.mtu = PathMtu::B256);
        for side in [Side::A, Side::B] {
            let tag = if side == Side::A { 1 } else { 2 };
            fill(&mut pair, side, 0, 2000, tag);
            post_receive(&mut pair, side, 50, 0x8000, 2000);
            let sge = [pair.sge(side, 0, 2000)];
            let back = [pair.sge(side, 0x4000, 2000)];
            let ops = [
                (SendOp::Send, &sge),
                (SendOp::Write(pair.remote(side.other(), 0xc000)), &sge),
                (SendOp::Read(pair.remote(side.other(), 0)), &back),
            ];
            for (id, (op, sges)) in (1..).zip(ops) {
                post_with(&mut pair, side, id, op, Data::Gather(sges), SendFlags::SIGNALED);
            }
        }
        pair.filter(move |sent| if Some(sent.number) == lost { Verdict::Drop } else { Verdict::Deliver });
        pair.run();
        for side in [Side::A, Side::B] {
            let theirs = if side == Side::A { 2 } else { 1 };
            assert_sends(&mut pair, side, &[1, 2, 3].map(|id| (id, Status::Success, 2000)));
            assert_receives(&mut pair, side, &[(50, Status::Success, 2000)]);
            for offset in [0x8000, 0xc000, 0x4000] {
                assert_filled(&mut pair, side, offset, 2000, theirs);
            }
        }
        assert_at_peace(&mut pair);
    }
}

/// A READ response acknowledges everything before it: no ACK of its own is needed.
#[test]
fn an_answer_acknowledges_what_came_before_it() {
    let mut pair = pair(|setup| setup.acks = Acks::Hold);
    post_write(&mut pair, 1, 10);
    post_read(&mut pair, 2, 10);
    post_write(&mut pair, 3, 10);
    post_add(&mut pair, 4, (0x4000, 0x4000), 1);
    pair.run();
    let answers = ["B READ Response Only 11 msn=2", "B ATOMIC Acknowledge 13 msn=4"];
    assert_eq!(wire_of(&pair, Side::B), answers);
    let wanted: Vec<End> = (1..5).zip([10, 10, 10, 8]).map(|(id, len)| (id, Status::Success, len)).collect();
    assert_sends(&mut pair, Side::A, &wanted);
    assert_eq!(pair.counters(Side::B).acks_sent, 0);
    assert_at_peace(&mut pair);
}

/// Packets that overtake each other look like loss: one NAK, one rewind, nothing delivered twice.
#[test]
fn reordered_requests_recover() {
    for late in 0..5 {
        let mut pair = pair(|_| {});
        fill(&mut pair, Side::A, 0, 5000, 1);
        post_receive(&mut pair, Side::B, 50, 0, 5000);
        post_receive(&mut pair, Side::B, 51, 0, 5000);
        post_message(&mut pair, 1, 5000);
        pair.filter(move |sent| match (sent.from, sent.number) {
            (Side::A, number) if number == late => Verdict::Delay(Duration::from_nanos(100)),
            _ => Verdict::Deliver,
        });
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 5000)]);
        assert_receives(&mut pair, Side::B, &[(50, Status::Success, 5000)]);
        assert_filled(&mut pair, Side::B, 0, 5000, 1);
        assert!(pair.counters(Side::A).rewinds <= 1, "late {late}");
        assert_at_peace(&mut pair);
    }
}

/// READ responses that overtake each other: asked for again, and placed right.
#[test]
fn reordered_read_responses_recover() {
    for late in 0..5 {
        let mut pair = pair(|_| {});
        fill(&mut pair, Side::B, 0, 5000, 1);
        post_read(&mut pair, 1, 5000);
        pair.filter(move |sent| match (sent.from, sent.number) {
            (Side::B, number) if number == late => Verdict::Delay(Duration::from_nanos(100)),
            _ => Verdict::Deliver,
        });
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 5000)]);
        assert_filled(&mut pair, Side::A, 0, 5000, 1);
        assert!(pair.counters(Side::A).rewinds <= 1, "late {late}");
        assert_at_peace(&mut pair);
    }
}

/// A flipped bit is caught by the ICRC before the machine sees the packet: it is a lost one.
#[test]
fn a_corrupt_packet_is_a_lost_one() {
    for bit in [0, 40, 95, 100, 1000, 8000] {
        let mut pair = pair(|_| {});
        fill(&mut pair, Side::A, 0, 3000, 1);
        post_write(&mut pair, 1, 3000);
        pair.filter(move |sent| match (sent.from, sent.number) {
            (Side::A, 1) => Verdict::Flip(bit),
            _ => Verdict::Deliver,
        });
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 3000)]);
        assert_filled(&mut pair, Side::B, 0, 3000, 1);
        assert_eq!(pair.counters(Side::B).nak_sequence_sent, 1);
        assert_at_peace(&mut pair);
    }
}

#[test]
fn compare_and_swap_swaps_only_what_it_finds() {
    let mut pair = pair(|_| {});
    set_word(&mut pair, Side::B, 64, 10);
    for (id, compare, swap) in [(0, 10, u64::MAX), (1, 10, 30), (2, u64::MAX, 1 << 63)] {
        let op = SendOp::CompareSwap { remote: pair.remote(Side::B, 64), compare, swap };
        let sge = pair.sge(Side::A, 8 * id, 8);
        post(&mut pair, id, op, &[sge]);
    }
    post_add(&mut pair, 3, (64, 24), (1 << 63) + 5);
    pair.run();
    assert_sends(&mut pair, Side::A, &[0, 1, 2, 3].map(|id| (id, Status::Success, 8)));
    let found = [0, 8, 16, 24].map(|offset| word(&mut pair, Side::A, offset));
    assert_eq!(found, [10, u64::MAX, u64::MAX, 1 << 63]);
    assert_eq!(word(&mut pair, Side::B, 64), 5, "adding wraps around");
    assert_at_peace(&mut pair);
}

#[test]
fn masked_atomics_touch_only_their_bits() {
    let mut pair = pair(|_| {});
    set_word(&mut pair, Side::B, 64, 0xaaaa_0000_0000_0011);
    let remote = pair.remote(Side::B, 64);
    let swap = MaskedSwap { compare: 0x11, compare_mask: 0xff, swap: u64::MAX, swap_mask: 0xff00 };
    let add = MaskedAdd { add: 0x0001_0000_0000_01f0, boundaries: 0x8000_0000_0000_0080 };
    let ops = [
        SendOp::MaskedCompareSwap { remote, swap },
        SendOp::MaskedCompareSwap { remote, swap: MaskedSwap { compare: 0x10, ..swap } },
        SendOp::MaskedFetchAdd { remote, add },
    ];
    for (id, op) in (0..).zip(ops) {
        let sge = pair.sge(Side::A, 8 * id, 8);
        post(&mut pair, id, op, &[sge]);
    }
    pair.run();
    assert_sends(&mut pair, Side::A, &[0, 1, 2].map(|id| (id, Status::Success, 8)));
    let found = [0, 8, 16].map(|offset| word(&mut pair, Side::A, offset));
    assert_eq!(found, [0xaaaa_0000_0000_0011, 0xaaaa_0000_0000_ff11, 0xaaaa_0000_0000_ff11]);
    // 0x11 + 0xf0 loses its carry; 0xff + 0x01 goes on into the field above.
    assert_eq!(word(&mut pair, Side::B, 64), 0xaaab_0000_0001_0001);
    assert_at_peace(&mut pair);
}

/// A peer of another make does not know the opcode and drops the packet.
#[test]
fn a_masked_atomic_to_a_peer_that_knows_none_ends_with_retry_exceeded() {
    let mut pair = pair(|setup| setup.retry_count = 2);
    pair.filter(|sent| match sent.packet().opcode().byte() {
        0xc0.. => Verdict::Drop,
        _ => Verdict::Deliver,
    });
    let (remote, sge) = (pair.remote(Side::B, 64), pair.sge(Side::A, 0, 8));
    let add = MaskedAdd { add: 1, boundaries: 0 };
    post_write(&mut pair, 1, 10);
    post(&mut pair, 2, SendOp::MaskedFetchAdd { remote, add }, &[sge]);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10), (2, Status::RetryExceeded, 0)]);
    assert_eq!(pair.counters(Side::A).timeouts, 3);
}

/// A fence holds also when the answer that it waits for is lost.
#[test]
fn a_fence_waits_for_an_answer_that_was_lost() {
    let mut pair = pair(|_| {});
    set_word(&mut pair, Side::B, 0x4000, 41);
    post_add(&mut pair, 1, (0x4000, 0x4000), 1);
    let (op, sge) = (SendOp::Write(pair.remote(Side::B, 0x8000)), [pair.sge(Side::A, 0x4000, 8)]);
    let flags = SendFlags::SIGNALED | SendFlags::FENCE;
    post_with(&mut pair, Side::A, 2, op, Data::Gather(&sge), flags);
    lose(&mut pair, Side::B, &[0]);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 8), (2, Status::Success, 8)]);
    assert_eq!((word(&mut pair, Side::B, 0x4000), word(&mut pair, Side::B, 0x8000)), (42, 41));
    assert_at_peace(&mut pair);
}

/// Local work with a fence waits for READs as well.
#[test]
fn a_fence_holds_local_work_back() {
    let mut pair = pair(|_| {});
    let window = pair.node(Side::A).device.memory.make_window(ferroce_transport::DomainId(1));
    let bind = ferroce_transport::Bind {
        window: ferroce_wire::Rkey(window),
        new_key: ferroce_wire::Rkey(window + 1),
        region: pair.sge(Side::A, 0, 0).lkey,
        address: pair.sge(Side::A, 0, 0).address,
        length: 16,
        access: ferroce_transport::Access::REMOTE_READ,
    };
    cut(&mut pair, Side::B);
    post_read(&mut pair, 1, 10);
    let flags = SendFlags::SIGNALED | SendFlags::FENCE;
    post_with(&mut pair, Side::A, 2, SendOp::BindWindow(bind), Data::Gather(&[]), flags);
    pair.run_for(Duration::from_micros(100));
    let again =
        pair.node(Side::A).device.memory.bind(ferroce_transport::DomainId(1), Pair::qpn(Side::A), &bind);
    assert_eq!(again, Ok(()), "the window still had its first key");
}

/// What a peer tells of congestion is counted by name.
#[test]
fn congestion_is_counted() {
    let mut pair = pair(|_| {});
    let mut marked = Packet::new(Pair::qpn(Side::B), Psn::new(START), Body::RcRequest(send_only(b"x")));
    marked.fecn = true;
    post_receive(&mut pair, Side::B, 50, 0, 10);
    pair.inject(Side::B, &marked);
    pair.inject(Side::B, &Packet::new(Pair::qpn(Side::B), Psn::new(0), Body::Congestion));
    pair.run_for(Duration::from_micros(1));
    assert_eq!(pair.counters(Side::B).congestion_marks, 1);
    assert_eq!(pair.counters(Side::B).congestion_notifications, 1);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 1)]);
}
