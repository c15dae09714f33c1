//! A lost tail: nothing follows that could show the gap, and the transport time-out is far away. A probe
//! finds it after a millisecond, and costs no retry.

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{Access, Bind, DomainId, SendOp, Sge, Status};
use ferroce_wire::Rkey;

/// No retry, and a time-out of 67 ms: only a probe can help in time.
fn impatient() -> Pair {
    pair(|setup| {
        setup.retry_count = 0;
        setup.timeout = 14;
    })
}

/// Runs to rest, which is within 2 ms, after exactly one probe and no time-out.
#[track_caller]
fn assert_recovers(pair: &mut Pair) {
    assert_recovers_by(pair, 1);
}

/// The same after so many probes.
#[track_caller]
fn assert_recovers_by(pair: &mut Pair, probes: u64) {
    let start = pair.now();
    pair.run();
    let took = pair.now().since(start);
    let counters = pair.counters(Side::A);
    let case = format!("{took:?}, {counters:?}\n{}", wire(pair).join("\n"));
    assert!(took < Duration::from_millis(2), "{case}");
    assert_eq!(counters.timeouts, 0, "{case}");
    assert_eq!(counters.probes, probes, "{case}");
}

#[test]
fn a_lost_only_packet_is_recovered_by_the_probe() {
    let mut pair = impatient();
    post_write(&mut pair, 1, 10);
    lose(&mut pair, Side::A, &[0]);
    assert_recovers(&mut pair);
    assert_wire(&pair, &["A WRITE Only 10 ask", "A WRITE Only 10 ask", "B ACK 10 msn=1"]);
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 10)]);
    assert_at_peace(&mut pair);
}

/// Any number of packets at the end of a message: one probe, not one for each. If the peer had more than the probe
/// brought, it may still be at work on the rest, so that it is asked once more.
#[test]
fn a_lost_tail_of_a_message_costs_one_probe_or_two() {
    for kept in 0..8 {
        let mut pair = impatient();
        fill(&mut pair, Side::A, 0, 8192, 1);
        post_write(&mut pair, 1, 8192);
        let lost: Vec<usize> = (kept..8).collect();
        lose(&mut pair, Side::A, &lost);
        assert_recovers_by(&mut pair, if kept < 2 { 1 } else { 2 });
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 8192)]);
        assert_filled(&mut pair, Side::B, 0, 8192, 1);
        assert_at_peace(&mut pair);
    }
}

/// The same for a tail of several messages.
#[test]
fn a_lost_tail_of_several_messages_costs_one_probe() {
    for kept in 0..8 {
        let mut pair = impatient();
        for id in 0..8 {
            post_receive(&mut pair, Side::B, 50 + id, 100 * id, 100);
            post_message(&mut pair, id, 100);
        }
        let lost: Vec<usize> = (kept..8).collect();
        lose(&mut pair, Side::A, &lost);
        assert_recovers(&mut pair);
        assert_sends(&mut pair, Side::A, &(0..8).map(|id| (id, Status::Success, 100)).collect::<Vec<_>>());
        let received: Vec<_> = (0..8).map(|id| (50 + id, Status::Success, 100)).collect();
        assert_receives(&mut pair, Side::B, &received);
        assert_at_peace(&mut pair);
    }
}

/// All ACKs are lost: the probe is a duplicate, and its ACK speaks for everything.
#[test]
fn lost_acks_cost_one_probe_and_no_rewind() {
    let mut pair = impatient();
    for id in 0..8 {
        post_write(&mut pair, id, 10);
    }
    lose(&mut pair, Side::B, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_recovers(&mut pair);
    assert_eq!(pair.counters(Side::A).rewinds, 0);
    assert_eq!(pair.counters(Side::B).duplicate_requests, 1);
    assert_sends(&mut pair, Side::A, &(0..8).map(|id| (id, Status::Success, 10)).collect::<Vec<_>>());
    assert_at_peace(&mut pair);
}

/// A lost READ request, a lost answer, and an answer that lost its end.
#[test]
fn a_lost_tail_of_a_read_is_recovered_by_the_probe() {
    for (loser, lost) in [(Side::A, 0..1), (Side::B, 0..4), (Side::B, 1..4), (Side::B, 3..4)] {
        let mut pair = impatient();
        fill(&mut pair, Side::B, 0, 4000, 1);
        post_read(&mut pair, 1, 4000);
        lose(&mut pair, loser, &lost.collect::<Vec<_>>());
        assert_recovers(&mut pair);
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 4000)]);
        assert_filled(&mut pair, Side::A, 0, 4000, 1);
        assert_at_peace(&mut pair);
    }
}

/// A lost atomic, and a lost answer of one.
#[test]
fn a_lost_atomic_is_recovered_by_the_probe_and_executed_once() {
    for loser in [Side::A, Side::B] {
        let mut pair = impatient();
        post_add(&mut pair, 1, (0, 0), 5);
        let (op, sge) = (SendOp::AtomicWrite(pair.remote(Side::B, 64)), pair.sge(Side::A, 64, 8));
        set_word(&mut pair, Side::A, 64, 77);
        post(&mut pair, 2, op, &[sge]);
        lose(&mut pair, loser, &[0, 1]);
        assert_recovers(&mut pair);
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, 8), (2, Status::Success, 8)]);
        assert_eq!((word(&mut pair, Side::B, 0), word(&mut pair, Side::B, 64)), (5, 77));
        assert_at_peace(&mut pair);
    }
}

/// Without loss no probe is sent, however long the link is.
#[test]
fn a_long_round_trip_is_not_taken_for_loss() {
    let mut pair = pair(|setup| setup.latency = Duration::from_micros(400));
    for id in 0..50 {
        post_write(&mut pair, id, 2000);
    }
    pair.run();
    assert_eq!(pair.take_sends(Side::A).len(), 50);
    let counters = pair.counters(Side::A);
    assert_eq!((counters.probes, counters.rewinds, counters.retransmitted), (0, 0, 0));
    assert_at_peace(&mut pair);
}

/// A slow peer answers what it was asked before the probe after the probe was sent. An answer for a packet
/// that had asked for one, and is not the probe's own, is not the probe's: nothing is sent again.
#[test]
fn late_answers_are_not_taken_for_the_answer_to_a_probe() {
    let mut pair = impatient();
    cut_both(&mut pair);
    for id in 0..8 {
        post_write(&mut pair, id, 10);
    }
    pair.run_for(Duration::from_micros(1500));
    assert_eq!(pair.counters(Side::A).probes, 1);
    pair.sent.clear();
    for done in 2..=8 {
        inject_response(&mut pair, START + done - 1, ack(done));
    }
    assert_eq!(wire_of(&pair, Side::A), [""; 0]);
    let counters = pair.counters(Side::A);
    assert_eq!((counters.rewinds, counters.needless_probes), (0, 1));
    assert_sends(&mut pair, Side::A, &(0..8).map(|id| (id, Status::Success, 10)).collect::<Vec<_>>());
}

/// The end of a message asks for an answer. That answer is not the probe's, although packets that were sent after it did
/// not ask for one; nor is it if local work, which has no packets, stands before that message.
#[test]
fn a_late_answer_to_the_end_of_a_message_is_not_taken_for_the_answer_to_a_probe() {
    for after_local_work in [false, true] {
        let mut pair = impatient();
        let window = pair.node(Side::A).device.memory.make_window(DomainId(1));
        let Sge { address, lkey, .. } = pair.sge(Side::A, 0, 0);
        let (new_key, access) = (Rkey(window + 1), Access::REMOTE_READ);
        let bind = Bind { window: Rkey(window), new_key, region: lkey, address, length: 16, access };
        cut_both(&mut pair);
        post_write(&mut pair, 0, 10);
        if after_local_work {
            post(&mut pair, 7, SendOp::BindWindow(bind), &[]);
        }
        post_write(&mut pair, 1, 10);
        post_write(&mut pair, 2, 8192);
        pair.run_for(Duration::from_micros(1500));
        assert_eq!(pair.counters(Side::A).probes, 1);
        pair.sent.clear();
        inject_response(&mut pair, START + 1, ack(2));
        assert_eq!(wire_of(&pair, Side::A), [""; 0]);
        assert_eq!(pair.counters(Side::A).rewinds, 0);
        assert_eq!(pair.take_sends(Side::A).len(), 2 + usize::from(after_local_work));
    }
}

/// A peer that was away for longer than the patience of a probe acknowledges what it takes in portions, each with the last
/// packet of it. Such an answer says nothing of the packets behind it: they are in the peer's buffer.
#[test]
fn a_peer_that_is_still_at_work_is_not_sent_everything_again() {
    let mut pair = impatient();
    cut_both(&mut pair);
    post_write(&mut pair, 0, 8192);
    post_write(&mut pair, 1, 8192);
    pair.run_for(Duration::from_micros(1500));
    assert_eq!(pair.counters(Side::A).probes, 1);
    pair.sent.clear();
    for (last, done) in [(5, 0), (11, 1), (15, 2)] {
        inject_response(&mut pair, START + last, ack(done));
        // Less than the time after which it is asked again.
        pair.run_for(Duration::from_micros(100));
    }
    assert_eq!(wire_of(&pair, Side::A), [""; 0]);
    let counters = pair.counters(Side::A);
    assert_eq!((counters.rewinds, counters.probes, counters.needless_probes), (0, 1, 1));
    assert_sends(&mut pair, Side::A, &[(0, Status::Success, 8192), (1, Status::Success, 8192)]);
}
