//! Work on a reliable connection when nothing goes wrong: every operation, every flag, every shape of data.

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{Acks, Data, ReceiveRequest, SendFlags, SendOp, Status, WorkKind};
use ferroce_wire::{Imm, Packet, PathMtu};

/// Nothing is a message too, and takes a PSN.
#[test]
fn zero_length_messages_arrive() {
    let mut pair = pair(|_| {});
    post_receive(&mut pair, Side::B, 50, 0, 0);
    post(&mut pair, 1, SendOp::Send, &[]);
    post_write(&mut pair, 2, 0);
    post_read(&mut pair, 3, 0);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A SEND Only 10 ask",
            "A WRITE Only 11 ask",
            "A READ Request 12 ask at=0 len=0",
            "B ACK 10 msn=1",
            "B ACK 11 msn=2",
            "B READ Response Only 12 msn=3",
        ],
    );
    let wanted = [(1, Status::Success, 0), (2, Status::Success, 0), (3, Status::Success, 0)];
    assert_sends(&mut pair, Side::A, &wanted);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 0)]);
    assert_untouched(&mut pair, Side::B, 0, 4096);
    assert_at_peace(&mut pair);
}

/// Lengths around each path MTU, in each kind of message.
#[test]
fn messages_of_every_length_around_the_mtu_arrive_whole() {
    for mtu in PathMtu::ALL {
        let bytes = u32::try_from(mtu.bytes()).unwrap();
        for length in [1, 3, bytes - 1, bytes, bytes + 1, 2 * bytes, 3 * bytes - 1] {
            let mut pair = pair(|setup| setup.mtu = mtu);
            let len = length as usize;
            fill(&mut pair, Side::A, 0, len, 1);
            fill(&mut pair, Side::B, 0x8000, len, 2);
            post_receive(&mut pair, Side::B, 50, 0x4000, length);
            post_write(&mut pair, 1, length);
            post_message(&mut pair, 2, length);
            let (op, sge) = (SendOp::Read(pair.remote(Side::B, 0x8000)), pair.sge(Side::A, 0x8000, length));
            post(&mut pair, 3, op, &[sge]);
            pair.run();
            let ids = [1, 2, 3].map(|id| (id, Status::Success, length));
            assert_sends(&mut pair, Side::A, &ids);
            assert_receives(&mut pair, Side::B, &[(50, Status::Success, length)]);
            assert_filled(&mut pair, Side::B, 0, len, 1);
            assert_filled(&mut pair, Side::B, 0x4000, len, 1);
            assert_filled(&mut pair, Side::A, 0x8000, len, 2);
            let packets = length.div_ceil(bytes) as usize;
            assert_eq!(wire_of(&pair, Side::A).len(), 2 * packets + 1, "{length} at {mtu:?}");
            assert_at_peace(&mut pair);
        }
    }
}

/// A message is gathered from pieces of odd lengths and scattered to pieces of others.
#[test]
fn pieces_of_odd_lengths_are_gathered_and_scattered() {
    let mut pair = pair(|setup| setup.mtu = PathMtu::B256);
    let lens = [1, 333, 0, 777];
    let total: u32 = lens.iter().sum();
    // The message lies in A from 0 on, its pieces apart from each other from 0x1000 on.
    fill(&mut pair, Side::A, 0, total as usize, 1);
    let (mut at, mut from) = (0x1000_u64, 0_usize);
    let gather = lens.map(|len| {
        let target = usize::try_from(at).unwrap();
        pair.memory(Side::A).copy_within(from..from + len as usize, target);
        let sge = pair.sge(Side::A, at, len);
        (at, from) = (at + 1001, from + len as usize);
        sge
    });
    let scatter = [(0x2000, 500), (0x3001, 7), (0x4000, 0), (0x5003, 700)];
    let sges = scatter.map(|(offset, len)| pair.sge(Side::B, offset, len));
    pair.post_receive(Side::B, &ReceiveRequest { id: 50, sges: &sges }).unwrap();
    post(&mut pair, 1, SendOp::Send, &gather);
    // And back by a READ, in yet other pieces.
    let op = SendOp::Write(pair.remote(Side::B, 0));
    post(&mut pair, 2, op, &gather);
    let read = [(0x8000, 1000), (0x9000, total - 1000)].map(|(offset, len)| pair.sge(Side::A, offset, len));
    let op = SendOp::Read(pair.remote(Side::B, 0));
    post(&mut pair, 3, op, &read);
    pair.run();
    assert_sends(&mut pair, Side::A, &[1, 2, 3].map(|id| (id, Status::Success, total)));
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, total)]);
    assert_filled(&mut pair, Side::B, 0, total as usize, 1);
    let joined = |pair: &mut Pair, side, pieces: &[(usize, usize)]| {
        let memory = pair.memory(side).to_vec();
        pieces.iter().flat_map(|(at, len)| memory[*at..*at + *len].to_vec()).collect::<Vec<u8>>()
    };
    let message = pair.memory(Side::A)[..total as usize].to_vec();
    let rest = total as usize - 507;
    assert_eq!(joined(&mut pair, Side::B, &[(0x2000, 500), (0x3001, 7), (0x5003, rest)]), message);
    assert_eq!(joined(&mut pair, Side::A, &[(0x8000, 1000), (0x9000, total as usize - 1000)]), message);
    assert_untouched(&mut pair, Side::B, 0x5003 + rest, 1000);
    assert_at_peace(&mut pair);
}

/// Inline bytes are taken when the work is posted: the program may reuse them at once.
#[test]
fn inline_bytes_may_change_after_the_post() {
    let mut pair = pair(|setup| setup.mtu = PathMtu::B256);
    let mut bytes = *b"as it was posted";
    let op = SendOp::Write(pair.remote(Side::B, 0));
    post_with(&mut pair, Side::A, 1, op, Data::Inline(&bytes), SendFlags::SIGNALED);
    bytes.fill(b'x');
    // The first copy is lost: what is sent again is the same.
    lose(&mut pair, Side::A, &[0]);
    pair.run();
    assert_eq!(&pair.memory(Side::B)[..16], b"as it was posted");
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 16)]);
    assert_at_peace(&mut pair);
}

/// Inline data needs no memory of the program, and may have several packets.
#[test]
fn inline_data_of_several_packets_arrives() {
    let mut pair = pair(|setup| {
        setup.mtu = PathMtu::B256;
        setup.caps.max_inline = 1000;
    });
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1000).collect();
    post_receive(&mut pair, Side::B, 50, 0, 1000);
    let op = SendOp::SendImm(Imm(9));
    post_with(&mut pair, Side::A, 1, op, Data::Inline(&bytes), SendFlags::SIGNALED);
    pair.run();
    assert_eq!(&pair.memory(Side::B)[..1000], bytes);
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 1000)]);
    let received = pair.take_receives(Side::B);
    assert_eq!((received[0].imm, received[0].kind), (Some(9), WorkKind::Receive));
}

/// Work without the flag completes silently; the next with it speaks for all.
#[test]
fn unsignaled_work_is_silent_unless_all_is_signaled() {
    for signal_all in [false, true] {
        let mut pair = pair(|setup| setup.signal_all = signal_all);
        for id in 1..4 {
            let (op, sge) = (SendOp::Write(pair.remote(Side::B, 0)), [pair.sge(Side::A, 0, 10)]);
            let flags = if id == 3 { SendFlags::SIGNALED } else { SendFlags::empty() };
            post_with(&mut pair, Side::A, id, op, Data::Gather(&sge), flags);
        }
        pair.run();
        let done: Vec<_> = pair.take_sends(Side::A).iter().map(|one| one.id).collect();
        assert_eq!(done, if signal_all { vec![1, 2, 3] } else { vec![3] });
        assert_eq!(pair.queue_pair(Side::A).sends_waiting(), 0);
    }
}

/// Unsignaled work that fails is not silent.
#[test]
fn unsignaled_work_that_fails_completes() {
    let mut pair = pair(|_| {});
    let mut remote = pair.remote(Side::B, 0);
    remote.rkey.0 ^= 1;
    let sge = [pair.sge(Side::A, 0, 10)];
    for id in [1, 2] {
        let (op, data) = (SendOp::Write(remote), Data::Gather(&sge));
        post_with(&mut pair, Side::A, id, op, data, SendFlags::empty());
    }
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::RemoteAccess, 0), (2, Status::Flushed, 0)]);
}

/// A fenced request waits for the READs and atomics before it; one without does not (IBA 10.8.3.3).
#[test]
fn a_fence_waits_for_reads_and_atomics() {
    for (flags, waits) in [(SendFlags::SIGNALED, false), (SendFlags::SIGNALED | SendFlags::FENCE, true)] {
        let mut pair = pair(|_| {});
        post_read(&mut pair, 1, 2000);
        post_add(&mut pair, 2, (0x4000, 0x4000), 1);
        let (op, sge) = (SendOp::Write(pair.remote(Side::B, 0x8000)), [pair.sge(Side::A, 0x4000, 8)]);
        post_with(&mut pair, Side::A, 3, op, Data::Gather(&sge), flags);
        set_word(&mut pair, Side::B, 0x4000, 41);
        pair.run();
        let lines = wire(&pair);
        let at = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();
        assert_eq!(at("A WRITE Only") > at("B ATOMIC Acknowledge"), waits, "{lines:#?}");
        // Fenced, the WRITE sends what the atomic brought.
        assert_eq!(word(&mut pair, Side::B, 0x8000), if waits { 41 } else { 0 });
        let ends = [(1, Status::Success, 2000), (2, Status::Success, 8), (3, Status::Success, 8)];
        assert_sends(&mut pair, Side::A, &ends);
        assert_at_peace(&mut pair);
    }
}

/// The solicited flag goes with the last packet of messages that take a receive, and into the completion.
#[test]
fn the_solicited_flag_reaches_the_receiver() {
    let mut pair = pair(|_| {});
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    let sge = [pair.sge(Side::A, 0, 2000)];
    let remote = pair.remote(Side::B, 0);
    for (id, op) in [(1, SendOp::Send), (2, SendOp::WriteImm(remote, Imm(5))), (3, SendOp::Write(remote))] {
        post_receive(&mut pair, Side::B, 50 + id, 0x8000, 2000);
        post_with(&mut pair, Side::A, id, op, Data::Gather(&sge), flags);
    }
    post_message(&mut pair, 4, 2000);
    post_receive(&mut pair, Side::B, 54, 0x8000, 2000);
    pair.run();
    let received: Vec<_> = pair.take_receives(Side::B).iter().map(|one| (one.id, one.solicited)).collect();
    assert_eq!(received, [(51, true), (52, true), (53, false)]);
    let solicited: Vec<_> = pair
        .sent
        .iter()
        .filter(|sent| sent.packet().solicited)
        .map(|sent| sent.packet().opcode().info().operation.name())
        .collect();
    assert_eq!(solicited, ["SEND Last", "RDMA WRITE Last with Immediate"]);
}

/// Held acknowledgements take each other's place: one speaks for all.
#[test]
fn held_acks_coalesce() {
    let mut pair = pair(|setup| setup.acks = Acks::Hold);
    for id in 0..10 {
        post_write(&mut pair, id, 10);
    }
    pair.run_for(Duration::from_micros(100));
    assert_eq!(wire_of(&pair, Side::B).len(), 0);
    assert!(pair.queue_pair(Side::B).owes_ack());
    assert_sends(&mut pair, Side::A, &[]);

    let now = pair.now();
    let datagram = pair.node(Side::B).transmit(now, 0, Acks::Send).expect("an ACK was owed");
    assert!(!pair.queue_pair(Side::B).owes_ack());
    pair.inject(Side::A, &Packet::parse(&datagram.bytes).unwrap());
    pair.run();
    assert_sends(&mut pair, Side::A, &(0..10).map(|id| (id, Status::Success, 10)).collect::<Vec<_>>());
    assert_eq!(pair.counters(Side::B).acks_sent, 1);
    assert_at_peace(&mut pair);
}

/// Answers of READs and refusals are no plain acknowledgements: they are not held.
#[test]
fn held_acks_do_not_hold_answers() {
    let mut pair = pair(|setup| setup.acks = Acks::Hold);
    post_read(&mut pair, 1, 10);
    post_add(&mut pair, 2, (64, 64), 1);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10), (2, Status::Success, 8)]);
    post_message(&mut pair, 3, 10);
    pair.run_for(Duration::from_micros(6));
    assert_eq!(pair.counters(Side::B).rnr_sent, 1);
}
